"""Test feature distillation: the teachers' states, their cache, and training on them."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from families import make_bundle
from interrupted import assert_resumes_exactly
from synthetic_reviews import write_reviews
from test_distillation import configure
from test_network import examples, network
from test_trainer import command, losses, run
from torch import nn

import capsar
from capsar.config import RunConfig, run_config
from capsar.errors import ArtifactError, ConfigError
from capsar.model.network import Capsar
from capsar.model.span_head import gather_first
from capsar.schema import Example
from capsar.tokenizer import first_subwords, tokenize_words
from capsar.training import state
from capsar.training.batches import collate, encode_examples
from capsar.training.distillation import FeatureTargets, feature_loss
from capsar.training.initialize import load_network, trained_weights
from capsar.training.teachers import read_states
from capsar.training.trainer import make_accelerator, train

TEXTS = ["The soup was unforgettably salty, but our waiter didn't mind.", "Fine.", "No. 1 soup!"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "capsar" / "states"


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("distilled") / "reviews.csv", 160)


@pytest.mark.parametrize("family", ["bigru", "bert"])
def test_states_are_those_of_the_first_subword_of_each_word(family: str, tmp_path: Path) -> None:
    bundle = make_bundle(family, tmp_path)
    states = list(capsar.load(bundle).read_states(TEXTS))
    model, tokenizer = load_network(bundle)
    assert isinstance(model, Capsar)
    for text, found in zip(TEXTS, states, strict=True):
        batch = collate(encode_examples([Example(text)], tokenizer))
        with torch.inference_mode():
            own = model.encode(batch, model.embed(batch.ids))
        starts = torch.from_numpy(first_subwords(batch.words.numpy(), len(tokenize_words(text))))
        expected = gather_first(own, starts)[0].numpy()
        assert found.shape == (len(tokenize_words(text)), model.encoder.hidden_dim)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_feature_loss_ignores_padding() -> None:
    """With predictions of zero, the loss is the mean square over words."""
    model = network().eval()
    batch = collate(examples(5))
    reader = nn.Linear(model.encoder.hidden_dim, 4)
    for parameter in reader.parameters():
        nn.init.zeros_(parameter)
    target = torch.randn(*batch.ids.shape, 4)
    expected = target[batch.mask].square().mean()
    target[~batch.mask] = 1e6
    torch.testing.assert_close(feature_loss(model, reader, batch, target), expected)


def test_targets_are_standardized_over_all_words() -> None:
    generator = np.random.default_rng(0)
    sizes = [len(example.ids) for example in examples(40)]
    scales = np.array([0.1, 1, 50], np.float32)
    states = [(generator.normal(3, 1, (size, 3)) * scales).astype(np.float16) for size in sizes]
    batch = collate(examples(40))
    target = FeatureTargets(states).batch(range(40), batch)
    words = target[batch.mask]
    assert words.mean(0).abs().max() < 1e-3
    assert (words.std(0) - 1).abs().max() < 0.02
    assert not target[~batch.mask].any()


def test_states_are_cached(
    small_bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsar.training.teachers._OUTPUTS_PER_FILE", 2)
    first = read_states(str(small_bundle), TEXTS)
    files = list(cache.glob("*/*"))
    assert len(files) == 2  # two outputs per file
    direct = capsar.load(small_bundle).read_states(TEXTS)
    for kept, own in zip(first, direct, strict=True):
        assert kept.dtype == np.float16
        np.testing.assert_allclose(kept, own, atol=1e-3)
    monkeypatch.setattr("capsar.training.teachers.load", None)
    again = read_states(str(small_bundle), TEXTS[::-1])
    assert all(np.array_equal(a, b) for a, b in zip(again[::-1], first, strict=True))
    with pytest.raises(TypeError):  # a new text needs the model
        read_states(str(small_bundle), [*TEXTS, "More."])
    with monkeypatch.context() as other:
        other.setattr("capsar.training.teachers.SEGMENTATION", "another")
        with pytest.raises(TypeError):  # and so do all texts with another tokenization
            read_states(str(small_bundle), TEXTS)
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:200])
    with pytest.raises(ArtifactError, match="Delete the damaged cache"):
        read_states(str(small_bundle), TEXTS)
    with np.load(io.BytesIO(whole)) as kept:
        np.savez(files[0], **dict(kept) | {"rows": kept["rows"] + 1})
    with pytest.raises(ArtifactError, match=r"Delete .* \d+ keys of \d+ outputs"):
        read_states(str(small_bundle), TEXTS)


def test_states_that_cannot_be_cached_are_an_error(
    small_bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where a folder should be")
    with pytest.raises(ArtifactError, match="XDG_CACHE_HOME"):
        read_states(str(small_bundle), TEXTS)
    cache.unlink()

    class Huge:
        def read_states(self, texts: list[str]) -> list[object]:
            return [np.full((len(tokenize_words(text)), 4), 1e6, np.float32) for text in texts]

    monkeypatch.setattr("capsar.training.teachers.load", lambda _: Huge())
    with pytest.raises(ArtifactError, match="half precision"), np.errstate(over="ignore"):
        read_states(str(small_bundle), TEXTS)
    assert not list(cache.glob("*/*.npz"))


def test_states_of_several_teachers_are_concatenated(
    small_bundle: Path, reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    plain = FeatureTargets.__init__

    def spy(self: FeatureTargets, states: list[object]) -> None:
        plain(self, states)  # type: ignore[arg-type]
        sizes.append(self.size)

    monkeypatch.setattr(FeatureTargets, "__init__", spy)
    for teacher in (str(small_bundle), "fast", (str(small_bundle), "fast")):
        run = configure(reviews, teacher=teacher, feature_distill_epochs=1)
        state.TrainState(run, make_accelerator()).distill_features()
    assert sizes[2] == sizes[0] + sizes[1]


def distilling(reviews: Path, teacher: Path, **settings: object) -> RunConfig:
    return configure(reviews, teacher=str(teacher), feature_distill_epochs=3, **settings)


def test_feature_distillation_explains_the_states(
    small_bundle: Path, reviews: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the encoder and the word vectors are trained."""
    content = distilling(reviews, small_bundle).as_dict()
    content["model"] |= {"input_dropout": 0.0, "units": 24}
    content["train"]["feature_distill_epochs"] = 100
    made = state.TrainState(run_config(content), make_accelerator())
    before = {name: value.clone() for name, value in trained_weights(made.model).items()}
    with caplog.at_level(logging.INFO, "capsar"):
        made.distill_features()
    after = trained_weights(made.model)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {n for n in after if n.startswith(("encoder.", "learnt."))}
    assert f"on {len({e.text for e in made.data.splits.train})} texts" in caplog.text
    found = re.search(r"After 100 epochs, (\S+) of the states' variance", caplog.text)
    assert found
    assert float(found[1]) > 0.5
    assert made.progress.seconds > 0
    assert all(parameter.grad is None for parameter in made.model.parameters())


def test_feature_distillation_uses_the_training_texts(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also partially annotated sources; never the validation set."""
    calls = _count(monkeypatch, plain=False)
    for name, aspect in (("own", "soup"), ("more", "cake")):
        rows = [f"Text {i} has {aspect}.,{aspect},positive" for i in range(40)]
        rows += [f"Text {i} has nothing.,," for i in range(40 if name == "own" else 0)]
        content = "\n".join(["text,aspect,polarity", *rows])
        (tmp_path / f"{name}.csv").write_text(content, encoding="utf-8")
    content = distilling(tmp_path / "own.csv", small_bundle).as_dict()
    content["data"]["partially_annotated"] = [str(tmp_path / "more.csv")]
    for weight in (0.0, 1.0):
        content["model"]["span_weight"] = weight
        made = state.TrainState(run_config(content), make_accelerator())
        made.distill_features()
        texts = set(calls.pop())
        assert sum("cake" in text for text in texts) == 40
        assert sum("soup" in text for text in texts) == 32
        assert sum("nothing" in text for text in texts) == 32 * bool(weight)
        assert not texts & {e.text for e in made.data.splits.validation}


def test_resumed_run_does_not_distill_again(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _count(monkeypatch)
    run = distilling(reviews, small_bundle)
    assert_resumes_exactly(run, tmp_path, at=7)
    assert len(calls) == 2  # the interrupted run and the whole one
    plain = train(configure(reviews, teacher=str(small_bundle)), tmp_path / "plain")
    assert len(calls) == 2
    whole = train(run, tmp_path / "whole")
    assert plain.history != whole.history


def test_each_fold_distills_without_its_validation_set(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _count(monkeypatch)
    content = distilling(reviews, small_bundle).as_dict()
    content["data"] |= {"folds": 2, "validation_ratio": 0.0}
    train(run_config(content), tmp_path / "run")
    first, second, everything = (set(texts) for texts in calls)
    assert first | second == everything
    assert not first & second
    train(run_config(content), tmp_path / "run")
    assert len(calls) == 3


def _count(monkeypatch: pytest.MonkeyPatch, *, plain: bool = True) -> list[list[str]]:
    calls: list[list[str]] = []
    original = state.distill_features

    def distill(model: object, texts: list[str], *others: object) -> None:
        calls.append(texts)
        if plain:
            original(model, texts, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(state, "distill_features", distill)
    return calls


def test_invalid_settings_are_rejected(reviews: Path) -> None:
    with pytest.raises(ConfigError, match="must be 0 unless there is a teacher"):
        configure(reviews, feature_distill_epochs=1)
    content = configure(reviews, teacher="base", feature_distill_epochs=1).as_dict()
    content["model"]["encoder"] = "tiny"
    with pytest.raises(ConfigError, match="a new recurrent encoder"):
        run_config(content)
    with pytest.raises(ConfigError, match="a new recurrent encoder"):
        configure(reviews, teacher="base", feature_distill_epochs=1, init_from="fast")
    with pytest.raises(ConfigError, match="0 or more"):
        configure(reviews, teacher="base", feature_distill_epochs=-1)


@pytest.mark.slow
def test_two_processes_distill_as_one_does(
    small_bundle: Path, reviews: Path, tmp_path: Path
) -> None:
    """One process distills features, and the other gets its weights."""
    settings = ["model.input_dropout=0", "train.max_epochs=3", f"train.teacher={small_bundle}"]
    settings.append("train.feature_distill_epochs=4")
    run(command(reviews, tmp_path / "one", *settings))
    run(command(reviews, tmp_path / "two", *settings, ranks=2))
    run(command(reviews, tmp_path / "plain", *settings[:-1]))
    one, two, plain = (losses(tmp_path / name) for name in ("one", "two", "plain"))
    assert two == pytest.approx(one, rel=1e-3)
    assert plain != pytest.approx(one, rel=1e-3)
