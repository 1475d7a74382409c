"""Means of weights, evened-out classes and teachers: by hand, and through a whole run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_reviews import write_reviews
from stopped import assert_goes_on_alike
from test_network import examples, network

import capsar
from capsar.config import RunConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ArtifactError, ConfigError
from capsar.model.loss import teaching_loss
from capsar.training.averaging import Average
from capsar.training.batches import EncodedExample, collate, encode_examples
from capsar.training.networks import trained_weights
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import prepare_data
from capsar.training.run import load_network, train
from capsar.training.teaching import ask, balance_classes, be_told, keep_told

SIZES = {
    "units": 8, "primary_dim": 6, "intermediate_capsules": 4, "intermediate_dim": 8,
    "class_dim": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("taught") / "reviews.csv", 160)


def configure(reviews: Path, **settings: object) -> RunConfig:
    basic = {"learning_rate": 0.02, "batch_size": 32, "max_epochs": 2}
    return run_config(
        {
            "data": {"train": str(reviews), "dev_share": 0.2, "word_dim": 12},
            "model": SIZES,
            "train": basic | settings,
        }
    )


def test_the_mean_of_weights_by_hand() -> None:
    """Weights 4, 8, 8 at the decays 1/10, 2/11, 3/12: 4, then 8 - 4 * 2/11, then a fourth of it."""
    model = network()
    average = Average(0.99)
    for step, value in enumerate((4.0, 8.0, 8.0)):
        for parameter in model.parameters():
            parameter.data.fill_(value)
        average.update(model, step)
    mean = 0.25 * (4 * 2 / 11 + 8 * 9 / 11) + 0.75 * 8
    for name, value in average.weights_of(model).items():
        assert value.flatten()[-1].item() == pytest.approx(mean), name


def test_a_network_has_the_mean_for_a_while_only() -> None:
    model = network()
    average = Average(0.5)
    average.update(model, 0)
    before = {name: value.clone() for name, value in trained_weights(model).items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    with average.in_place(model):
        assert all(torch.equal(v, before[k]) for k, v in trained_weights(model).items())
    assert all(not torch.equal(v, before[k]) for k, v in trained_weights(model).items())


def test_a_stopped_run_goes_on_with_its_mean_and_keeps_what_it_judged(
    reviews: Path, tmp_path: Path
) -> None:
    run = configure(reviews, average=0.9, checkpoint_steps=2, class_balance=0.5)
    whole = assert_goes_on_alike(run, tmp_path, at=7)
    last = train(replace(run, train=replace(run.train, average=0.0)), tmp_path / "last")
    assert last.history != whole.history


def encoded(*polarities: int) -> list[EncodedExample]:
    return [EncodedExample((1,), (0,), (0,), polarity) for polarity in polarities]


def test_classes_are_evened_out_by_hand() -> None:
    """Eight and two: at balance 1 each class counts the same, at a half as the root says."""
    made = encoded(*[0] * 8, *[2] * 2, -1)
    even = balance_classes(made, 1.0)
    assert [e.weight for e in even] == pytest.approx([0.625] * 8 + [2.5] * 2 + [1])
    half = balance_classes(made, 0.5)
    assert half[8].weight / half[0].weight == pytest.approx(2)
    assert sum(e.weight for e in half[:10]) == pytest.approx(10)
    assert balance_classes(made, 0.0) == made


def test_a_weight_multiplies_the_loss_of_its_example_alone() -> None:
    model = network().eval()
    made = examples(6)
    heavy = [replace(made[0], weight=3.0), *made[1:]]
    plain, weighed = (model.loss(collate(e), model(collate(e))) for e in (made, heavy))
    torch.testing.assert_close(weighed, plain * torch.tensor([3.0, 1, 1, 1, 1, 1]))


def test_what_is_told_by_hand() -> None:
    lengths, told = torch.tensor([[0.5, 0.1, 0.9]]), torch.tensor([[0.5, 0.3, 0.6]])
    torch.testing.assert_close(teaching_loss(lengths, told), torch.tensor([0.13]))
    model = network(reconstruction_weight=0.0).eval()
    made = examples(4)
    taught = [replace(e, told=(0.2, 0.3, 0.4), told_share=0.75) for e in made[:2]] + made[2:]
    batch = collate(taught)
    output = model(batch)
    plain = model.loss(collate(made), output)
    own = teaching_loss(output.lengths, torch.tensor([[0.2, 0.3, 0.4]]).expand(4, 3))
    expected = torch.cat([0.25 * plain[:2] + 0.75 * own[:2], plain[2:]])
    torch.testing.assert_close(model.loss(batch, output), expected)


def test_teachers_tell_the_mean_of_their_lengths(small_bundle: Path, reviews: Path) -> None:
    prepared = prepare_data(configure(reviews).data)
    asked = [*prepared.train[:30], capsar.Example("Nothing is asked of this one.")]
    made = encode_examples(asked, prepared.tokenizer)
    analyzer, base = capsar.load(small_bundle), capsar.load("fast")
    taught = be_told(made, asked, (str(small_bundle), "fast"), 0.5)
    mean = (analyzer.predict_lengths(asked[:30]) + base.predict_lengths(asked[:30])) / 2
    assert [e.told for e in taught[:30]] == pytest.approx([pytest.approx(row) for row in mean])
    assert Counter(e.told_share for e in taught) == {0.5: 30, 0.0: 1}
    assert be_told(made, asked, (), 0.5) == made


def test_a_teacher_is_asked_once(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("capsar.training.teaching._BLOCK", 8)
    prepared = prepare_data(configure(reviews).data)
    asked = prepared.train[:20]
    made = encode_examples(asked, prepared.tokenizer)
    first = be_told(made, asked, str(small_bundle), 0.5)
    kept = tmp_path / "capsar" / "told"
    files = list(kept.glob("*/*"))
    assert len(files) == 3  # blocks of eight
    monkeypatch.setattr("capsar.training.teaching.load", None)
    assert be_told(made, asked, str(small_bundle), 0.5) == first
    assert be_told(made[7:9], asked[7:9], str(small_bundle), 0.5) == first[7:9]
    with pytest.raises(TypeError):  # a further question is asked, another teacher too
        ask(str(small_bundle), prepared.train[:21])
    with pytest.raises(TypeError):
        be_told(made, asked, "fast", 0.5)
    keep_told(str(small_bundle), prepared.train[20:21], [(0.25, 0.5, 0.75)])
    told = ask(str(small_bundle), prepared.train[:21])
    assert told[:20].tolist() == [list(e.told) for e in first]
    assert told[20].tolist() == [0.25, 0.5, 0.75]
    files[0].write_bytes(files[0].read_bytes()[:40])
    with pytest.raises(ArtifactError, match="Delete the damaged cache"):
        be_told(made, asked, str(small_bundle), 0.5)


def test_who_is_stopped_while_asking_asks_for_the_rest(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("capsar.training.teaching._BLOCK", 8)
    asked = prepare_data(configure(reviews).data).train[:20]
    teacher = capsar.load(small_bundle)
    expected = teacher.predict_lengths(asked)
    blocks: list[int] = []

    class Stopped:
        """A teacher that answers two blocks, then is stopped once."""

        def predict_lengths(self, questions: list[capsar.Example]) -> object:
            blocks.append(len(questions))
            if len(blocks) == 3:
                raise KeyboardInterrupt
            return teacher.predict_lengths(questions)

    monkeypatch.setattr("capsar.training.teaching.load", lambda _: Stopped())
    with pytest.raises(KeyboardInterrupt):
        ask(str(small_bundle), asked)
    assert ask(str(small_bundle), asked) == pytest.approx(expected, abs=1e-6)
    assert blocks == [8, 8, 4, 4]


def test_a_run_follows_its_teacher(small_bundle: Path, reviews: Path, tmp_path: Path) -> None:
    """Taught by capsule lengths alone, a network comes nearer to its teacher than without."""
    held_out = [e for e in read_examples(reviews) if e.spans][:60]
    told = capsar.load(small_bundle).predict_lengths(held_out)
    distances = []
    for number, settings in enumerate(({"teacher": str(small_bundle), "teacher_share": 1.0}, {})):
        run = configure(reviews, max_epochs=4, **settings)
        result = train(run, tmp_path / f"run{number}")
        own = NetworkPredictor(*load_network(result.bundle)).predict_lengths(held_out)
        distances.append(float(((own - told) ** 2).sum(1).mean()))
    assert distances[0] < 0.5 * distances[1]
    config = (tmp_path / "run0" / "bundle" / "config.json").read_text()
    assert str(small_bundle) not in config


def test_another_teacher_is_another_run(small_bundle: Path, reviews: Path, tmp_path: Path) -> None:
    copied = tmp_path / "teacher"
    capsar.training.run.export_bundle(small_bundle, copied)
    run = configure(reviews, teacher=str(copied), max_epochs=1)
    train(run, tmp_path / "run")
    (copied / "manifest.json").write_bytes((copied / "manifest.json").read_bytes() + b"\n")
    with pytest.raises(ConfigError, match="different: fingerprint"):
        train(run, tmp_path / "run")
    with pytest.raises(ArtifactError):
        train(configure(reviews, teacher=str(tmp_path / "nowhere")), tmp_path / "other")


def test_a_teacher_needs_capsules(reviews: Path) -> None:
    content = configure(reviews, teacher="base").as_dict()
    content["model"] |= {"encoder": "tiny", "head": "first-token", "aspect_entry": "pair"}
    with pytest.raises(ConfigError, match="teacher must be none"):
        run_config(content)
