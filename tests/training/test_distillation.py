"""Test the moving average of weights, class weights and soft targets of teachers."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from interrupted import assert_resumes_exactly
from synthetic_reviews import write_reviews
from test_network import examples, network

import capsar
from capsar.config import RunConfig, TrainConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ArtifactError, ConfigError
from capsar.model.losses import distillation_loss
from capsar.model.span_head import tag_distillation_loss
from capsar.training.batches import EncodedExample, collate, encode_examples
from capsar.training.dataset import prepare_data
from capsar.training.distillation import add_teacher_targets, balance_classes
from capsar.training.initialize import load_network, trained_weights
from capsar.training.loop import Progress
from capsar.training.optim import make_ema
from capsar.training.state import TrainState
from capsar.training.teachers import (
    LENGTHS,
    TAGS,
    example_key,
    predict_tags,
    predict_teacher,
    record_outputs,
    text_key,
)
from capsar.training.trainer import make_accelerator, train
from capsar.training.validation import NetworkPredictor

SIZES = {
    "units": 8, "primary_dim": 6, "intermediate_capsules": 4, "intermediate_dim": 8,
    "class_dim": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("distilled") / "reviews.csv", 160)


def configure(reviews: Path, **settings: object) -> RunConfig:
    basic = {"learning_rate": 0.02, "batch_size": 32, "max_epochs": 2}
    return run_config(
        {
            "data": {"train": str(reviews), "validation_ratio": 0.2, "word_dim": 12},
            "model": SIZES,
            "train": basic | settings,
        }
    )


def test_ema_matches_hand_computed_values() -> None:
    """Weights 4, 8, 8 with the decays 1/10, 2/11, 3/12."""
    model = network()
    ema = make_ema(model, 0.99)
    for value in (4.0, 8.0, 8.0):
        for parameter in model.parameters():
            parameter.data.fill_(value)
        ema.update_parameters(model)
    mean = 0.25 * (4 * 2 / 11 + 8 * 9 / 11) + 0.75 * 8
    for name, parameter in ema.module.named_parameters():
        assert parameter.flatten()[-1].item() == pytest.approx(mean), name


def test_ema_shares_fixed_vectors_and_leaves_the_network_alone() -> None:
    model = network()
    ema = make_ema(model, 0.5)
    ema.update_parameters(model)
    before = {name: value.clone() for name, value in trained_weights(model).items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert ema.module.word_vectors is model.word_vectors
    assert all(torch.equal(v, before[k]) for k, v in trained_weights(ema.module).items())
    ema.update_parameters(model)
    assert all(torch.allclose(v, before[k] + 1) for k, v in trained_weights(model).items())


def test_resumed_run_with_ema_equals_uninterrupted_run(reviews: Path, tmp_path: Path) -> None:
    run = configure(reviews, ema_decay=0.9, class_balance=0.5)
    whole = assert_resumes_exactly(run, tmp_path, at=7)
    last = train(replace(run, train=replace(run.train, ema_decay=0.0)), tmp_path / "last")
    assert last.history != whole.history


def test_restoring_copies_tensors_to_the_device_of_the_network(reviews: Path) -> None:
    """Checkpoints are read on the CPU; the moving average must stay where the network is."""
    run = configure(reviews, ema_decay=0.9)
    state = TrainState(run, make_accelerator())
    steps = state.steps(validate=False)
    for _ in range(3):
        next(steps)
    assert state.ema is not None
    tensors, step = state.tensors(), state.progress.step
    resumed = TrainState(run, make_accelerator())
    before = [parameter.data_ptr() for parameter in resumed.evaluated.parameters()]
    resumed.restore(Progress(step=step), tensors)
    assert [parameter.data_ptr() for parameter in resumed.evaluated.parameters()] == before
    assert resumed.ema is not None
    assert int(resumed.ema.n_averaged) == int(state.ema.n_averaged) == 3
    pairs = zip(resumed.evaluated.parameters(), state.evaluated.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def by(*teachers: str, tags: bool = False) -> TrainConfig:
    return TrainConfig(teacher=teachers, distill_weight=0.5, distill_tags=tags)


def encoded(*polarities: int) -> list[EncodedExample]:
    return [EncodedExample((1,), (0,), (0,), polarity) for polarity in polarities]


def test_class_weights_match_hand_computed_values() -> None:
    """Eight and two examples: with balance 1 both classes have the same total weight."""
    made = encoded(*[0] * 8, *[2] * 2, -1)
    even = balance_classes(made, 1.0)
    assert [e.weight for e in even] == pytest.approx([0.625] * 8 + [2.5] * 2 + [1])
    half = balance_classes(made, 0.5)
    assert half[8].weight / half[0].weight == pytest.approx(2)
    assert sum(e.weight for e in half[:10]) == pytest.approx(10)
    assert balance_classes(made, 0.0) == made


def test_weights_scale_the_loss_of_their_example_only() -> None:
    model = network().eval()
    made = examples(6)
    heavy = [replace(made[0], weight=3.0), *made[1:]]
    plain, weighed = (model.loss(collate(e), model(collate(e))) for e in (made, heavy))
    torch.testing.assert_close(weighed, plain * torch.tensor([3.0, 1, 1, 1, 1, 1]))


def test_distillation_loss_matches_hand_computed_values() -> None:
    lengths, teacher = torch.tensor([[0.5, 0.1, 0.9]]), torch.tensor([[0.5, 0.3, 0.6]])
    torch.testing.assert_close(distillation_loss(lengths, teacher), torch.tensor([0.13]))
    model = network(reconstruction_weight=0.0).eval()
    made = examples(4)
    targeted = [
        replace(e, teacher_lengths=(0.2, 0.3, 0.4), distill_weight=0.75) for e in made[:2]
    ] + made[2:]
    batch = collate(targeted)
    output = model(batch)
    plain = model.loss(collate(made), output)
    own = distillation_loss(output.lengths, torch.tensor([[0.2, 0.3, 0.4]]).expand(4, 3))
    expected = torch.cat([0.25 * plain[:2] + 0.75 * own[:2], plain[2:]])
    torch.testing.assert_close(model.loss(batch, output), expected)


def test_soft_targets_are_the_mean_of_the_teachers(small_bundle: Path, reviews: Path) -> None:
    prepared = prepare_data(configure(reviews).data)
    inputs = [*prepared.splits.train[:30], capsar.Example("This one has no aspect.")]
    made = encode_examples(inputs, prepared.vocabulary.tokenizer)
    analyzer, base = capsar.load(small_bundle), capsar.load("fast")
    targeted = add_teacher_targets(made, inputs, by(str(small_bundle), "fast"))
    mean = (analyzer.predict_lengths(inputs[:30]) + base.predict_lengths(inputs[:30])) / 2
    assert [e.teacher_lengths for e in targeted[:30]] == pytest.approx(
        [pytest.approx(row) for row in mean]
    )
    assert Counter(e.distill_weight for e in targeted) == {0.5: 30, 0.0: 1}
    assert add_teacher_targets(made, inputs, by()) == made


def test_teacher_outputs_are_cached(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("capsar.training.teachers._OUTPUTS_PER_FILE", 8)
    prepared = prepare_data(configure(reviews).data)
    inputs = prepared.splits.train[:20]
    made = encode_examples(inputs, prepared.vocabulary.tokenizer)
    first = add_teacher_targets(made, inputs, by(str(small_bundle)))
    kept = tmp_path / "capsar" / "lengths"
    files = list(kept.glob("*/*"))
    assert len(files) == 3  # eight outputs per file
    monkeypatch.setattr("capsar.training.teachers.load", None)
    assert add_teacher_targets(made, inputs, by(str(small_bundle))) == first
    assert add_teacher_targets(made[7:9], inputs[7:9], by(str(small_bundle))) == first[7:9]
    with pytest.raises(TypeError):  # a new example, and another teacher, need the model
        predict_teacher(str(small_bundle), prepared.splits.train[:21])
    with pytest.raises(TypeError):
        add_teacher_targets(made, inputs, by("fast"))
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:40])
    with pytest.raises(ArtifactError, match="Delete the damaged cache"):
        add_teacher_targets(made, inputs, by(str(small_bundle)))
    with np.load(io.BytesIO(whole)) as content:
        np.savez(files[0], **dict(content) | {"rows": content["rows"] + 1})
    with pytest.raises(ArtifactError, match=r"Delete .* \d+ keys of \d+ outputs"):
        add_teacher_targets(made, inputs, by(str(small_bundle)))
    shutil.rmtree(kept)
    kept.write_text("a file where a folder should be")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ArtifactError, match="XDG_CACHE_HOME"):
        add_teacher_targets(made, inputs, by(str(small_bundle)))


def test_interrupted_teacher_inference_resumes_from_the_cache(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("capsar.training.teachers._OUTPUTS_PER_FILE", 8)
    inputs = prepare_data(configure(reviews).data).splits.train[:20]
    teacher = capsar.load(small_bundle)
    expected = teacher.predict_lengths(inputs)
    blocks: list[int] = []

    class Interrupted:
        """A teacher that is interrupted once, after two files."""

        def predict_lengths(self, inputs: list[capsar.Example]) -> object:
            blocks.append(len(inputs))
            if len(blocks) == 3:
                raise KeyboardInterrupt
            return teacher.predict_lengths(inputs)

    monkeypatch.setattr("capsar.training.teachers.load", lambda _: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        predict_teacher(str(small_bundle), inputs)
    assert predict_teacher(str(small_bundle), inputs) == pytest.approx(expected, abs=1e-6)
    assert blocks == [8, 8, 4, 4]


def test_distillation_moves_predictions_toward_the_teacher(
    small_bundle: Path, reviews: Path, tmp_path: Path
) -> None:
    """Trained on soft targets only, a network is closer to its teacher than without."""
    held_out = [e for e in read_examples(reviews) if e.spans][:60]
    targets = capsar.load(small_bundle).predict_lengths(held_out)
    distances = []
    for number, settings in enumerate(({"teacher": str(small_bundle), "distill_weight": 1.0}, {})):
        run = configure(reviews, max_epochs=4, **settings)
        result = train(run, tmp_path / f"run{number}")
        own = NetworkPredictor(*load_network(result.bundle)).predict_lengths(held_out)
        distances.append(float(((own - targets) ** 2).sum(1).mean()))
    assert distances[0] < 0.5 * distances[1]
    config = (tmp_path / "run0" / "bundle" / "config.json").read_text()
    assert str(small_bundle) not in config


def test_changed_teacher_is_another_run(small_bundle: Path, reviews: Path, tmp_path: Path) -> None:
    copied = tmp_path / "teacher"
    capsar.training.trainer.export_bundle(small_bundle, copied)
    run = configure(reviews, teacher=str(copied), max_epochs=1)
    train(run, tmp_path / "run")
    (copied / "manifest.json").write_bytes((copied / "manifest.json").read_bytes() + b"\n")
    with pytest.raises(ConfigError, match="different: fingerprint"):
        train(run, tmp_path / "run")
    with pytest.raises(ArtifactError):
        train(configure(reviews, teacher=str(tmp_path / "nowhere")), tmp_path / "other")


def test_teachers_need_a_capsule_head(reviews: Path) -> None:
    content = configure(reviews, teacher="base").as_dict()
    content["model"] |= {"encoder": "tiny", "head": "bert-pair", "aspect_encoding": "pair"}
    with pytest.raises(ConfigError, match="teacher must be empty"):
        run_config(content)


def test_recorded_outputs_replace_the_teacher(tmp_path: Path, reviews: Path) -> None:
    """A pseudo-labeled text is trained on the teacher's outputs alone, in eight bits."""
    prepared = prepare_data(configure(reviews).data)
    inputs = prepared.splits.train[:12]
    texts = list(dict.fromkeys(example.text for example in inputs))
    terms = dict.fromkeys(texts[1:], ())  # the first one is not annotated in full
    made = encode_examples(inputs, prepared.vocabulary.tokenizer, terms=terms)
    lengths, tags = predict_teacher("fast", inputs), predict_tags("fast", texts)
    path = tmp_path / "recorded.npz"
    outputs = {
        LENGTHS: {example_key(e): own[None] for e, own in zip(inputs, lengths, strict=True)},
        TAGS: {text_key(text): own for text, own in zip(texts, tags, strict=True)},
    }
    record_outputs(path, outputs)
    recorded = add_teacher_targets(made, inputs, by(str(path), tags=True), {texts[-1]})
    live = add_teacher_targets(made, inputs, by("fast", tags=True), {texts[-1]})
    for own, other, example in zip(recorded, live, inputs, strict=True):
        assert own.teacher_lengths == pytest.approx(other.teacher_lengths, abs=1 / 500)
        assert own.teacher_tags == pytest.approx(other.teacher_tags, abs=1 / 500)
        assert other.teacher_tags.sum(-1) == pytest.approx(1, abs=1e-5)
        is_pseudo, is_partial = example.text == texts[-1], example.text == texts[0]
        assert own.distill_weight == (1 if is_pseudo else 0.5)
        assert own.tag_distill_weight == (1 if is_pseudo or is_partial else 0.5)
    more = prepared.splits.train[:40]
    with pytest.raises(ArtifactError, match=r"has no lengths of \d+ of \d+ inputs"):
        predict_teacher(str(path), more)
    # What was not recorded is trained on its labels; a file that has nothing is an error.
    others = [example for example in more if example.text not in texts and example.spans]
    made = encode_examples([*inputs, *others], prepared.vocabulary.tokenizer)
    partial = add_teacher_targets(made, [*inputs, *others], by(str(path), tags=True))
    assert [e.distill_weight for e in partial] == [0.5] * len(inputs) + [0.0] * len(others)
    assert partial[len(inputs) :] == made[len(inputs) :]
    with pytest.raises(ArtifactError, match=r"no lengths of any of the \d+ training inputs"):
        add_teacher_targets(made[len(inputs) :], others, by(str(path)))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ArtifactError, match="not a file of recorded outputs"):
        predict_teacher(str(path), inputs)


def test_tag_distillation_loss_matches_hand_computed_values() -> None:
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 0.0, 0.0], [5.0, 5.0, 5.0]]])
    teacher = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    log_sum = math.log(math.e**2 + math.e + 1)
    expected = (log_sum - 1.5 + math.log(3)) / 2  # the third position is no word
    torch.testing.assert_close(tag_distillation_loss(logits, teacher), torch.tensor([expected]))


def test_pseudo_labeled_sentences_are_trained_on(reviews: Path, tmp_path: Path) -> None:
    path = tmp_path / "pseudo.jsonl"
    rows = [
        {
            "text": "a light and quiet fan",
            "aspect": "fan",
            "start": 18,
            "end": 21,
            "polarity": "positive",
        },
        {"text": "we bought it twice"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = configure(reviews, teacher="fast", distill_tags=True)
    run = replace(
        run,
        data=replace(run.data, pseudo_labeled=str(path)),
        model=replace(run.model, span_weight=1.0),
    )
    state = TrainState(run, make_accelerator())
    by_text = {
        example.text: own for example, own in zip(state.examples, state.encoded, strict=True)
    }
    fan, bought = (by_text[str(row["text"])] for row in rows)
    assert (fan.distill_weight, fan.tag_distill_weight, bought.tag_distill_weight) == (1, 1, 1)
    assert set(bought.tags or ()) == {0}
    assert state.data.facts["pseudo_labeled_sentences"] == 2
    assert next(state.steps(validate=False)).loss > 0
