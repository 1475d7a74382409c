"""`Capsar`: the network of the paper, from word ids to sentiment capsules."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.errors import ArtifactError
from capsar.model.capsules import CAPSULES_PER_WORD, PrimaryCapsules, RoutedCapsules
from capsar.model.encoders import BiGRU, Transformer
from capsar.model.losses import (
    Reconstruction,
    aspect_vector,
    cosine_similarity,
    distillation_loss,
    margin_loss,
    reconstruction_loss,
)
from capsar.model.routing import Routed, route
from capsar.model.span_head import (
    SpanHead,
    best_subwords,
    gather_first,
    tag_distillation_loss,
    tag_loss,
)
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.config import ModelConfig

BETA, GAMMA = 10.0, 1.0
"""Of location proximity (eq. 2, § 4.3)."""
_EPS = 1e-12


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentences, each with one aspect or none, padded to one length."""

    ids: Tensor
    """Ids of words or subwords (B, T)."""
    mask: Tensor
    """Which tokens belong to a word; only these vote in routing (B, T)."""
    words: Tensor
    """The word of each token (B, T); -1 for none."""
    attention: Tensor
    """Which tokens the encoder reads (B, T): special tokens too, which do not vote."""
    segments: Tensor
    """0, or 1 in a second segment (B, T)."""
    first_words: Tensor
    """The first word of each mention of the aspect (B, M); -1 for none."""
    aspect_mask: Tensor
    """Which tokens belong to the aspect (B, T)."""
    polarity: Tensor
    """The index of the true class (B); -1 if there is no label."""
    first_subwords: Tensor | None = None
    """The first token of each word (B, W), for the span head; any value for no word."""
    tags: Tensor | None = None
    """The tag of each word (B, W); -1 for none."""
    tag_weights: Tensor | None = None
    """The weight of each sentence's tags (B): lower if several examples share the sentence."""
    weights: Tensor | None = None
    """The weight of each example's polarity (B); 1 if not given."""
    teacher_lengths: Tensor | None = None
    """The capsule lengths predicted by the teachers (B, C)."""
    distill_weights: Tensor | None = None
    """The weight of the teachers in the loss of each example (B)."""
    teacher_tags: Tensor | None = None
    """The tag probabilities predicted by the teachers (B, W, 3); 0 for no word."""
    tag_distill_weights: Tensor | None = None
    """The weight of the teachers in the loss of each sentence's tags (B)."""
    sentences: Tensor | None = None
    """The index of each example's sentence among the distinct ones (B), to encode each once."""
    sentence_rows: Tensor | None = None
    """The first example of each distinct sentence (S)."""

    def to(self, device: torch.device) -> Batch:
        """Move all tensors to a device."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {n: t if t is None else t.to(device) for n, t in tensors.items()}
        return Batch(**moved)

    def without_aspect(self) -> Batch:
        """Return a copy whose aspect is hidden from proximity, but not from reconstruction."""
        return replace(self, first_words=torch.full_like(self.first_words, -1))


@dataclass(frozen=True, slots=True)
class Output:
    """The output of the network for a batch."""

    capsules: Tensor
    """Sentiment capsules (B, C, D)."""
    lengths: Tensor
    """Their lengths (B, C): the longest is the predicted class."""
    word_vectors: Tensor
    """The fixed vectors of the tokens (B, T, E): the targets of reconstruction."""
    tags: Tensor | None = None
    """Tag logits of each word (B, W, 3), if the batch has `first_subwords` and there is a head."""


def proximity(
    mask: Tensor,
    first_words: Tensor,
    words: Tensor | None = None,
    *,
    alpha: float = 3.0,
    scale: str = "none",
) -> Tensor:
    """Return the location proximity `l_t` of every token (B, T) (eq. 2).

    `l_t = 1 + max(0, alpha + n / beta - |gamma (k - t)|)` on words and 0 on padding, where `n` is
    the length of the sentence in words and `k` the first word of the aspect. A subword has the
    proximity of its word. With several mentions the largest value counts; without any, `l_t = 1`.

    Args:
        mask: Which tokens belong to a word (B, T).
        first_words: The first word of each mention (B, M); negative for none.
        words: The word of each token (B, T); by default each token is a word.
        alpha: The value added to the first aspect word in a very short sentence.
        scale: `"none"`, or `"one"` to divide by the largest value of the sentence, so that distance
            lowers the weight of the other words instead of raising that of the near ones.
    """
    if words is None:
        words = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)  # (B, T)
    distance = (first_words.unsqueeze(1) - words.unsqueeze(2)).abs()  # (B, T, M)
    num_words = words.masked_fill(~mask, -1).amax(1) + 1  # (B)
    reach = (alpha + num_words / BETA).view(-1, 1, 1)  # (B, 1, 1)
    near = (reach - GAMMA * distance).clamp(min=0)  # (B, T, M)
    near = near.masked_fill((first_words < 0).unsqueeze(1), 0)
    weights = 1 + near.amax(-1)  # (B, T)
    if scale == "one":
        weights = weights / weights.amax(1, keepdim=True)
    return weights * mask  # (B, T)


def attribute(primary: Tensor, layers: Sequence[tuple[Routed, Tensor]]) -> Tensor:
    """Return the contribution of each token to the length of each sentiment capsule (B, C, T).

    A child `i` adds `c_ij (W_j^T q_j) . p_i` to its parent `j`, along the parent's direction. These
    contributions are chained through the routed layers, with the couplings held fixed, so that the
    contributions to a sentiment capsule sum to its length.

    Args:
        primary: The primary capsules (B, N, P).
        layers: The routed layers above them, the lowest first, each with its weight.
    """
    children, chained = primary, None
    for number, (routed, weight) in enumerate(layers, start=1):
        pulled_back = torch.einsum("bcd,cdp->bcp", routed.parents, weight)  # (B, C, P)
        own = children @ pulled_back.transpose(1, 2)  # (B, N, C)
        own = own / len(weight) if routed.couplings is None else own * routed.couplings
        if number < len(layers):
            own = own / (own.sum(1, keepdim=True) + _EPS)  # children of a parent sum to one
        else:  # children sum to q . q~ = |q| |q~|; divided by |q~|, to the length |q|
            own = own / (routed.inputs.square().sum(-1) + _EPS).sqrt().unsqueeze(1)
        chained = own if chained is None else chained @ own  # (B, primary capsules, C)
        children = routed.parents
    if chained is None:
        raise ValueError("a network has at least one routed layer")
    batch, _, classes = chained.shape
    tokens = chained.view(batch, -1, CAPSULES_PER_WORD, classes)  # (B, T, 6, C)
    return tokens.sum(2).transpose(1, 2)  # (B, C, T)


class Capsar(nn.Module):
    """CAPSAR with a bidirectional GRU, or CAPSAR-BERT with a pre-trained transformer (§ 3.6).

    Args:
        model_config: The sizes and options of the network.
        vectors: The initial vector of every word or subword of the vocabulary (V, E). They stay
            fixed as targets of reconstruction; training learns offsets to them.
        num_trained: How many words of the vocabulary have an offset: the first ones, which occur in
            the training texts. Other words would never get a gradient.
        transformer: A pre-trained model whose input embeddings are `vectors`.
        vector_scale: The factor of a transformer's vectors as targets of reconstruction.
    """

    encoder: BiGRU | Transformer
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
        if transformer is not None:
            self.register_buffer("vector_scale", torch.tensor(vector_scale))
            self.encoder = Transformer(transformer)
        else:
            self.register_buffer("word_vectors", vectors)
            if model_config.train_embeddings:
                self.learnt = nn.Embedding(num_trained, word_dim, padding_idx=0)
                nn.init.zeros_(self.learnt.weight)
            self.encoder = BiGRU(
                input_dim=word_dim,
                units=model_config.units,
                input_dropout=model_config.input_dropout,
                state_dropout=model_config.state_dropout,
            )
        self.primary = PrimaryCapsules(
            hidden_dim=self.encoder.hidden_dim,
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
        # Without reconstruction the layer has no gradient, for which other processes would wait.
        self.reconstruction.requires_grad_(model_config.reconstruction_weight != 0)
        self.spans: SpanHead | None = None  # last, so that it changes no other initial weight
        if model_config.span_weight:
            self.spans = SpanHead(hidden_dim=self.encoder.hidden_dim)

    @classmethod
    def from_weights(
        cls,
        model_config: ModelConfig,
        weights: dict[str, Tensor],
        *,
        transformer: Any = None,  # noqa: ANN401
    ) -> Self:
        """Make a network from a state dict.

        Raises:
            ArtifactError: If the weights do not fit the configuration.
        """
        try:
            if transformer is not None:
                table = transformer.get_input_embeddings().weight.detach()
                model = cls(model_config, table, transformer=transformer)
            else:
                vectors = weights["word_vectors"]
                num_trained = len(weights["learnt.weight"]) if model_config.train_embeddings else 0
                model = cls(model_config, vectors, num_trained=num_trained)
            model.load_state_dict(weights)
        except (KeyError, RuntimeError) as error:
            raise ArtifactError(f"The weights do not fit the configuration: {error}") from error
        return model

    @property
    def frozen_key(self) -> str:
        """The name in the state dict of the word vectors, which are not trained."""
        if isinstance(self.encoder, Transformer):
            return f"encoder.{self.encoder.table_name}"
        return "word_vectors"

    @property
    def fixed_vectors(self) -> Tensor:
        """The fixed vector of every word or subword (V, E), not scaled."""
        if isinstance(self.encoder, Transformer):
            return self.encoder.table
        return self.word_vectors

    def forward(self, batch: Batch) -> Output:
        """Return the sentiment capsules of a batch, and tags if it has `first_subwords`."""
        word_vectors = self.embed(batch.ids)  # (B, T, E)
        states = self.encode(batch, word_vectors)  # (B, T, H)
        output = self._route(batch, states, word_vectors)
        if self.spans is None or batch.first_subwords is None:
            return output
        tags = self._tag(self.spans, batch, batch.first_subwords, states, word_vectors)
        return replace(output, tags=tags)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the fixed vectors of ids (B, T), the targets of reconstruction: (B, T, E)."""
        vectors = functional.embedding(ids, self.fixed_vectors)  # (B, T, E)
        return vectors * self.vector_scale if isinstance(self.encoder, Transformer) else vectors

    def encode(self, batch: Batch, word_vectors: Tensor) -> Tensor:
        """Return the hidden states of a batch with these fixed vectors: (B, T, H) (eq. 1)."""
        states: Tensor
        if batch.sentences is not None and batch.sentence_rows is not None:
            rows = batch.sentence_rows  # (S)
            once = replace(
                batch,
                ids=batch.ids[rows],
                mask=batch.mask[rows],
                attention=batch.attention[rows],
                segments=batch.segments[rows],
                sentences=None,
            )
            return self.encode(once, word_vectors[rows]).index_select(0, batch.sentences)
        if isinstance(self.encoder, Transformer):
            states = self.encoder(batch.ids, batch.attention, batch.segments)
        else:
            if self.learnt is not None:
                has_offset = batch.ids < self.learnt.num_embeddings  # (B, T)
                word_vectors = word_vectors + self.learnt(batch.ids * has_offset)  # (B, T, E)
            states = self.encoder(word_vectors, batch.mask)
        return states

    def _primary(self, batch: Batch, states: Tensor) -> Tensor:
        """Return the primary capsules (B, N, P) of states (B, T, H)."""
        weights = proximity(
            batch.mask,
            batch.first_words,
            batch.words,
            alpha=self.model_config.alpha,
            scale=self.model_config.proximity_scale,
        )  # (B, T)
        weighted = states * weights.unsqueeze(-1)  # (B, T, H), eq. 3
        capsules: Tensor = self.primary(weighted, batch.mask)
        return capsules

    def _route(self, batch: Batch, states: Tensor, word_vectors: Tensor) -> Output:
        """Return the sentiment capsules of states (B, T, H)."""
        children = self._primary(batch, states)  # (B, N, P)
        if self.intermediate is not None:
            children = self.intermediate(children)  # (B, J, D of the intermediate layer)
        capsules = self.sentiment(children)  # (B, C, D)
        return Output(capsules, (capsules.square().sum(-1) + _EPS).sqrt(), word_vectors)

    def _tag(
        self,
        head: SpanHead,
        batch: Batch,
        first_subwords: Tensor,
        states: Tensor,
        word_vectors: Tensor,
    ) -> Tensor:
        """Return the tag logits of words (B, W, 3) from states (B, T, H).

        The capsules are inputs of the head without a gradient, so that extraction does not change
        what they reconstruct.
        """
        num_words = first_subwords.shape[1]
        hidden = batch.without_aspect()
        with torch.no_grad():
            output = self._route(hidden, states, word_vectors)
            similarity = self.similarity(hidden, output)  # (B, C, T)
        is_word = torch.arange(num_words, device=states.device) <= batch.words.amax(1, True)
        similarity = best_subwords(similarity, batch.words, num_words) * is_word.unsqueeze(1)
        word_states = gather_first(states, first_subwords)  # (B, W, H)
        logits: Tensor = head(word_states, similarity, output.lengths, is_word)
        return logits.float()

    def loss(self, batch: Batch, output: Output) -> Tensor:
        """Return the loss of each example of a batch (B): eq. 8, plus that of its tags.

        An example without a polarity has only the loss of its tags.
        """
        config = self.model_config
        has_polarity = batch.polarity >= 0  # (B)
        truth = functional.one_hot(batch.polarity.clamp(min=0), len(CLASSES))  # (B, C)
        truth = truth.to(output.lengths.dtype)
        loss = margin_loss(output.lengths, truth)  # (B)
        if batch.teacher_lengths is not None and batch.distill_weights is not None:
            distilled = distillation_loss(output.lengths, batch.teacher_lengths)  # (B)
            loss = torch.lerp(loss, distilled, batch.distill_weights)
        if config.reconstruction_weight:
            aspect = aspect_vector(output.word_vectors, batch.aspect_mask)  # (B, E)
            twice = output.capsules.repeat(2, 1, 1)  # (2 B, C, D): one product instead of two
            reconstructed = self.reconstruction(twice, torch.cat([truth, 1 - truth]))  # (2 B, E)
            distance = reconstruction_loss(aspect, *reconstructed.chunk(2))  # (B)
            loss = loss + config.reconstruction_weight * distance
        if batch.weights is not None:
            loss = loss * batch.weights
        loss = loss * has_polarity
        if output.tags is not None and batch.tags is not None and batch.tag_weights is not None:
            of_tags = tag_loss(output.tags, batch.tags)  # (B)
            if batch.teacher_tags is not None and batch.tag_distill_weights is not None:
                distilled = tag_distillation_loss(output.tags, batch.teacher_tags)  # (B)
                of_tags = torch.lerp(of_tags, distilled, batch.tag_distill_weights)
            loss = loss + config.span_weight * batch.tag_weights * of_tags
        return loss

    def similarity(self, batch: Batch, output: Output) -> Tensor:
        """Return the cosine of each capsule's reconstruction and each token (B, C, T)."""
        reconstructed = self.reconstruction.reconstruct_each(output.capsules)  # (B, C, E)
        return cosine_similarity(reconstructed, output.word_vectors, batch.mask)

    @torch.no_grad()
    def attributions(self, batch: Batch) -> Tensor:
        """Return the contribution of each token to each capsule's length (B, C, T)."""
        primary = self._primary(batch, self.encode(batch, self.embed(batch.ids)))  # (B, N, P)
        children = primary
        layers = []
        for layer in (self.intermediate, self.sentiment):
            if layer is not None:
                routed = route(children, layer.weight, iterations=layer.iterations)
                layers.append((routed, layer.weight))
                children = routed.parents
        return attribute(primary, layers)
