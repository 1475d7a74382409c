"""`Capsar`: the network of the paper, from word ids to sentiment capsules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.errors import ArtifactError
from capsar.labels import CLASSES
from capsar.model.batch import Batch, Output
from capsar.model.capsules import PrimaryCapsules, RoutedCapsules
from capsar.model.encoders import BiRecurrent
from capsar.model.explanation import because_scores
from capsar.model.loss import margin_loss, reconstruction_loss, teaching_loss
from capsar.model.proximity import proximity
from capsar.model.reconstruction import Reconstruction, about_scores, aspect_vector
from capsar.model.routing import route
from capsar.model.spans import SpanHead, best_of_pieces, first_places, tag_loss
from capsar.model.transformer import Transformer

if TYPE_CHECKING:
    from capsar.config import ModelConfig


class Capsar(nn.Module):
    """CAPSAR with a recurrent encoder, or with a pre-trained transformer in its place.

    Args:
        model_config: The sizes and choices of the network.
        vectors: The initial vector of every word or piece of the vocabulary (V, E). They stay
            fixed, as the space of reconstruction and detection; what training adds to a word's
            vector is kept apart.
        num_trained: How many words, from the first, can be trained: those of the training texts. No
            other word ever gets a gradient, so nothing is lost, and much time is saved.
        transformer: Whose input vectors these are, if the encoder is one.
        vector_scale: What a transformer's vectors are multiplied by for reconstruction.
    """

    encoder: BiRecurrent | Transformer
    word_vectors: Tensor
    vector_scale: Tensor

    def __init__(
        self,
        model_config: ModelConfig,
        vectors: Tensor,
        *,
        num_trained: int = 0,
        transformer: Any = None,  # noqa: ANN401  (a model of any family)
        vector_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.model_config = model_config
        word_dim = vectors.shape[1]
        self.learnt: nn.Embedding | None = None
        self.shares_table = transformer is not None and model_config.freeze_embeddings
        if not self.shares_table:
            self.register_buffer("word_vectors", vectors)
        if transformer is not None:
            self.register_buffer("vector_scale", torch.tensor(vector_scale))
            self.encoder = Transformer(transformer, frozen=model_config.freeze_embeddings)
        else:
            if model_config.train_embeddings:
                self.learnt = nn.Embedding(num_trained, word_dim, padding_idx=0)
                nn.init.zeros_(self.learnt.weight)
            self.encoder = BiRecurrent(
                input_dim=word_dim,
                units=model_config.units,
                cell=model_config.cell,
                input_dropout=model_config.input_dropout,
                state_dropout=model_config.state_dropout,
            )
        self.primary = PrimaryCapsules(
            hidden_dim=self.encoder.hidden_dim,
            capsules_per_word=model_config.capsules_per_word,
            capsule_dim=model_config.primary_dim,
            kernel_width=model_config.kernel_width,
            activation=model_config.activation,
            squashed=model_config.squash_primary,
        )
        child_dim = model_config.primary_dim
        self.intermediate: RoutedCapsules | None = None
        if model_config.intermediate_capsules:
            self.intermediate = RoutedCapsules(
                num_capsules=model_config.intermediate_capsules,
                capsule_dim=model_config.intermediate_dim,
                child_dim=child_dim,
                iterations=model_config.routing_iterations,
            )
            child_dim = model_config.intermediate_dim
        self.sentiment = RoutedCapsules(
            num_capsules=len(CLASSES),
            capsule_dim=model_config.class_dim,
            child_dim=child_dim,
            iterations=model_config.routing_iterations,
        )
        self.reconstruction = Reconstruction(
            num_classes=len(CLASSES), capsule_dim=model_config.class_dim, word_dim=word_dim
        )
        # Without reconstruction its layer gets no gradient, and no process must wait for one.
        self.reconstruction.requires_grad_(model_config.reconstruction_weight != 0)
        self.spans: SpanHead | None = None  # made last: no other weight depends on there being one
        if model_config.span_weight:
            self.spans = SpanHead(hidden_dim=self.encoder.hidden_dim, units=model_config.span_units)

    @property
    def given(self) -> str:
        """The name of the weights that are not trained, and that data or encoder give again."""
        if isinstance(self.encoder, Transformer) and self.shares_table:
            return self.encoder.table_name("encoder.")
        return "word_vectors"

    @property
    def fixed_vectors(self) -> Tensor:
        """The fixed vector of every word or piece (V, E), before it is scaled."""
        if isinstance(self.encoder, Transformer) and self.shares_table:
            return self.encoder.table
        return self.word_vectors

    def forward(self, batch: Batch) -> Output:
        """Return the sentiment capsules of a batch, and tags if it has places of words."""
        word_vectors = self.fixed(batch.ids)  # (B, T, E)
        states = self._states(batch, word_vectors)  # (B, T, H)
        if self.spans is None or batch.places is None:
            return self._route(batch, states, word_vectors)
        tags = self._tag(self.spans, batch, batch.places, states, word_vectors)  # (B, W, 3)
        return replace(self._route(batch, states, word_vectors), tags=tags)

    def _route(self, batch: Batch, states: Tensor, word_vectors: Tensor) -> Output:
        """Route states to sentiment capsules."""
        children = self._weigh(batch, states)  # (B, N, P)
        if self.intermediate is not None:
            children = self.intermediate(children)  # (B, J, P')
        capsules = self.sentiment(children)  # (B, C, D)
        return Output(capsules, (capsules.square().sum(-1) + 1e-12).sqrt(), word_vectors)

    def _tag(
        self, head: SpanHead, batch: Batch, places: Tensor, states: Tensor, word_vectors: Tensor
    ) -> Tensor:
        """Return the tags of words (B, W, 3), from the states that the capsules are routed from.

        What the capsules are about is an input like any other: no gradient goes back through it, so
        that finding aspects does not change what opening a capsule means.
        """
        alone = batch.without_aspect()
        with torch.no_grad():
            opened = self._route(alone, states.detach(), word_vectors)
            about = self.about(alone, opened)  # (B, C, T)
        present = torch.arange(places.shape[1], device=places.device) <= batch.words.amax(1, True)
        about = best_of_pieces(about, batch.words, places.shape[1]) * present.unsqueeze(1)
        logits: Tensor = head(first_places(states, places), about, opened.lengths, present)
        return logits.float()

    def fixed(self, ids: Tensor) -> Tensor:
        """Return the fixed vectors of ids (B, T), the space of reconstruction: (B, T, E)."""
        vectors = functional.embedding(ids, self.fixed_vectors)  # (B, T, E)
        return vectors * self.vector_scale if isinstance(self.encoder, Transformer) else vectors

    def _primary(self, batch: Batch, word_vectors: Tensor) -> Tensor:
        """Return the primary capsules of a batch (B, N, P)."""
        return self._weigh(batch, self._states(batch, word_vectors))

    def _states(self, batch: Batch, word_vectors: Tensor) -> Tensor:
        """Return the hidden states of a batch (B, T, H)."""
        if isinstance(self.encoder, Transformer):
            states: Tensor = self.encoder(batch.ids, batch.attention, batch.segments)
            return states
        return self.encode(batch.ids, word_vectors, batch.mask)

    def _weigh(self, batch: Batch, states: Tensor) -> Tensor:
        """Return the primary capsules of states (B, N, P), which may be written over."""
        weights = proximity(
            batch.mask,
            batch.first_words,
            batch.words,
            alpha=self.model_config.alpha,
            beta=self.model_config.beta,
            gamma=self.model_config.gamma,
            scale=self.model_config.proximity_scale,
        ).unsqueeze(-1)  # (B, T, 1)
        weighted = states.mul_(weights) if self.spans is None else states * weights
        capsules: Tensor = self.primary(weighted, batch.mask)
        return capsules

    def encode(self, ids: Tensor, word_vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states of words, by id (B, T) and fixed vector (B, T, E): (B, T, H)."""
        if self.learnt is not None:
            known = ids < self.learnt.num_embeddings  # (B, T)
            word_vectors = word_vectors + self.learnt(ids * known)
        states: Tensor = self.encoder(word_vectors, mask)
        return states

    def loss(self, batch: Batch, output: Output) -> Tensor:
        """Return the loss of each example of a batch (B) (eq. 8), and of its tags if it has some.

        An example without a polarity is there for its tags alone.
        """
        if output.tags is None or batch.tags is None or batch.tag_weights is None:
            return self._sentiment_loss(batch, output)
        known = batch.polarity >= 0  # (B)
        judged = replace(batch, polarity=batch.polarity.clamp(min=0))
        loss = self._sentiment_loss(judged, output) * known
        weights = self.model_config.span_weight * batch.tag_weights  # (B)
        return loss + weights * tag_loss(output.tags, batch.tags)

    def _sentiment_loss(self, batch: Batch, output: Output) -> Tensor:
        """Return the loss of each example's sentiment (B) (eq. 8)."""
        config = self.model_config
        truth = functional.one_hot(batch.polarity, len(CLASSES)).to(output.lengths.dtype)  # (B, C)
        loss = margin_loss(
            output.lengths, truth, upper=config.upper_margin, lower=config.lower_margin
        )
        if batch.told is not None and batch.told_shares is not None:
            loss = torch.lerp(loss, teaching_loss(output.lengths, batch.told), batch.told_shares)
        if config.reconstruction_weight:
            aspect = aspect_vector(output.word_vectors, batch.aspect_mask)  # (B, E)
            both = output.capsules.repeat(2, 1, 1)  # (2 B, C, D): one product instead of two
            opened = self.reconstruction(both, torch.cat([truth, 1 - truth]))  # (2 B, E)
            from_true, from_others = opened.chunk(2)  # (B, E)
            distance = reconstruction_loss(aspect, from_true, from_others)  # (B)
            loss = loss + config.reconstruction_weight * distance
        return loss if batch.weights is None else loss * batch.weights

    def about(self, batch: Batch, output: Output) -> Tensor:
        """Return how much each sentiment capsule is about each word or piece (B, C, T)."""
        opened = self.reconstruction.open_each(output.capsules)  # (B, C, E)
        return about_scores(opened, output.word_vectors, batch.mask)

    @torch.no_grad()
    def because(self, batch: Batch) -> Tensor:
        """Return each word's or piece's share in each capsule (B, C, T); rows sum to lengths."""
        primary = self._primary(batch, self.fixed(batch.ids))  # (B, N, P)
        children = primary
        layers = []
        for layer in (self.intermediate, self.sentiment):
            if layer is not None:
                routed = route(children, layer.weight, iterations=layer.iterations)
                layers.append((routed, layer.weight))
                children = routed.parents
        per_word = self.model_config.capsules_per_word
        return because_scores(primary, layers, capsules_per_word=per_word)

    @classmethod
    def from_weights(
        cls,
        model_config: ModelConfig,
        weights: dict[str, Tensor],
        *,
        transformer: Any = None,  # noqa: ANN401
    ) -> Self:
        """Make a network from the weights that another one saved.

        Raises:
            ArtifactError: If they are not those of such a network.
        """
        try:
            if transformer is not None:
                table = transformer.get_input_embeddings().weight.detach()
                model = cls(model_config, table.clone(), transformer=transformer)
            else:
                vectors = weights["word_vectors"]
                num_trained = len(weights["learnt.weight"]) if model_config.train_embeddings else 0
                model = cls(model_config, vectors, num_trained=num_trained)
            model.load_state_dict(weights)
        except (KeyError, RuntimeError) as error:
            raise ArtifactError(f"The weights do not fit the configuration: {error}") from error
        return model
