"""Foreseeing a teacher's states: what they are, what is learnt of them, and that none is lost."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from families import make_bundle
from made_reviews import write_reviews
from stopped import assert_goes_on_alike
from test_network import examples, network
from test_run import command, losses, run
from test_teaching import configure
from torch import nn

import capsar
from capsar.config import RunConfig, run_config
from capsar.data.example import Example
from capsar.errors import ArtifactError, ConfigError
from capsar.model.network import Capsar
from capsar.model.spans import first_places
from capsar.pieces import word_places
from capsar.text import segment
from capsar.training import learner
from capsar.training.batches import collate, encode_examples
from capsar.training.imitation import Target, imitation_loss, read_states
from capsar.training.networks import trained_weights
from capsar.training.processes import make_accelerator
from capsar.training.run import load_network, train

TEXTS = ["The soup was unforgettably salty, but our waiter didn't mind.", "Fine.", "No. 1 soup!"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own: what an earlier run was told must not be found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "capsar" / "states"


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("imitated") / "reviews.csv", 160)


@pytest.mark.parametrize("family", ["bigru", "bert"])
def test_states_are_those_of_the_first_piece_of_each_word(family: str, tmp_path: Path) -> None:
    bundle = make_bundle(family, tmp_path)
    states = list(capsar.load(bundle).read_states(TEXTS))
    model, tokenizer = load_network(bundle)
    assert isinstance(model, Capsar)
    for text, found in zip(TEXTS, states, strict=True):
        batch = collate(encode_examples([Example(text)], tokenizer))
        with torch.inference_mode():
            own = model._states(batch, model.fixed(batch.ids))
        places = torch.from_numpy(word_places(batch.words.numpy(), len(segment(text))))
        expected = first_places(own, places)[0].numpy()
        assert found.shape == (len(segment(text)), model.encoder.hidden_dim)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_is_not_foreseen_by_hand() -> None:
    """A reader that foresees nothing: the mean of the squares, over words alone."""
    model = network().eval()
    batch = collate(examples(5))
    reader = nn.Linear(model.encoder.hidden_dim, 4)
    for parameter in reader.parameters():
        nn.init.zeros_(parameter)
    target = torch.randn(*batch.ids.shape, 4)
    expected = target[batch.mask].square().mean()
    target[~batch.mask] = 1e6
    torch.testing.assert_close(imitation_loss(model, reader, batch, target), expected)


def test_states_are_put_on_one_scale_over_all_words() -> None:
    generator = np.random.default_rng(0)
    sizes = [len(example.ids) for example in examples(40)]
    scales = np.array([0.1, 1, 50], np.float32)
    states = [(generator.normal(3, 1, (size, 3)) * scales).astype(np.float16) for size in sizes]
    batch = collate(examples(40))
    target = Target(states).of(range(40), batch)
    words = target[batch.mask]
    assert words.mean(0).abs().max() < 1e-3
    assert (words.std(0) - 1).abs().max() < 0.02
    assert not target[~batch.mask].any()


def test_states_are_read_once(
    small_bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsar.training.imitation._BLOCK", 2)
    first = read_states(str(small_bundle), TEXTS)
    files = list(cache.glob("*/*"))
    assert len(files) == 2  # blocks of two
    direct = capsar.load(small_bundle).read_states(TEXTS)
    for kept, own in zip(first, direct, strict=True):
        assert kept.dtype == np.float16
        np.testing.assert_allclose(kept, own, atol=1e-3)
    monkeypatch.setattr("capsar.training.imitation.load", None)
    again = read_states(str(small_bundle), TEXTS[::-1])
    assert all(np.array_equal(a, b) for a, b in zip(again[::-1], first, strict=True))
    with pytest.raises(TypeError):  # a further text is read
        read_states(str(small_bundle), [*TEXTS, "More."])
    with monkeypatch.context() as other:
        other.setattr("capsar.training.imitation.SEGMENTATION", "another")
        with pytest.raises(TypeError):  # and all of them, if they are cut into other words
            read_states(str(small_bundle), TEXTS)
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:200])
    with pytest.raises(ArtifactError, match="Delete the damaged cache"):
        read_states(str(small_bundle), TEXTS)
    with np.load(io.BytesIO(whole)) as kept:
        np.savez(files[0], **dict(kept) | {"words": kept["words"] + 1})
    with pytest.raises(ArtifactError, match=r"Delete .* \d+ states of \d+ words"):
        read_states(str(small_bundle), TEXTS)


def test_states_that_cannot_be_kept_are_told_of(
    small_bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where a folder should be")
    with pytest.raises(ArtifactError, match="XDG_CACHE_HOME"):
        read_states(str(small_bundle), TEXTS)
    cache.unlink()

    class Huge:
        def read_states(self, texts: list[str]) -> list[object]:
            return [np.full((len(segment(text)), 4), 1e6, np.float32) for text in texts]

    monkeypatch.setattr("capsar.training.imitation.load", lambda _: Huge())
    with pytest.raises(ArtifactError, match="half precision"), np.errstate(over="ignore"):
        read_states(str(small_bundle), TEXTS)
    assert not list(cache.glob("*/*.npz"))


def test_several_teachers_are_imitated_side_by_side(
    small_bundle: Path, reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    plain = Target.__init__

    def spy(self: Target, states: list[object]) -> None:
        plain(self, states)  # type: ignore[arg-type]
        sizes.append(self.size)

    monkeypatch.setattr(Target, "__init__", spy)
    for teacher in (str(small_bundle), "fast", (str(small_bundle), "fast")):
        run = configure(reviews, teacher=teacher, imitate_epochs=1)
        learner.Learner(run, make_accelerator()).imitate()
    assert sizes[2] == sizes[0] + sizes[1]


def imitating(reviews: Path, teacher: Path, **settings: object) -> RunConfig:
    return configure(reviews, teacher=str(teacher), imitate_epochs=3, **settings)


def test_a_network_foresees_its_teacher(
    small_bundle: Path, reviews: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what reads words learns of it, and it comes to know far more than at first."""
    content = imitating(reviews, small_bundle).as_dict()
    content["model"] |= {"input_dropout": 0.0, "units": 24}
    content["train"]["imitate_epochs"] = 100
    made = learner.Learner(run_config(content), make_accelerator())
    before = {name: value.clone() for name, value in trained_weights(made.model).items()}
    with caplog.at_level(logging.INFO, "capsar"):
        made.imitate()
    after = trained_weights(made.model)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {n for n in after if n.startswith(("encoder.", "learnt."))}
    assert f"states of {len({e.text for e in made.prepared.train})} texts" in caplog.text
    found = re.search(r"After 100 epochs it foresees (\S+) of their variance", caplog.text)
    assert found
    assert float(found[1]) > 0.5
    assert made.progress.seconds > 0
    assert all(parameter.grad is None for parameter in made.model.parameters())


def test_what_is_imitated_is_what_is_learnt_from(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further sources too; sentences without a term only where they are learnt from; never dev."""
    calls = _count(monkeypatch, plain=False)
    for name, aspect in (("own", "soup"), ("more", "cake")):
        rows = [f"Text {i} has {aspect}.,{aspect},positive" for i in range(40)]
        rows += [f"Text {i} has nothing.,," for i in range(40 if name == "own" else 0)]
        content = "\n".join(["text,aspect,polarity", *rows])
        (tmp_path / f"{name}.csv").write_text(content, encoding="utf-8")
    content = imitating(tmp_path / "own.csv", small_bundle).as_dict()
    content["data"]["polarity_only"] = [str(tmp_path / "more.csv")]
    for weight in (0.0, 1.0):
        content["model"]["span_weight"] = weight
        made = learner.Learner(run_config(content), make_accelerator())
        made.imitate()
        texts = set(calls.pop())
        assert sum("cake" in text for text in texts) == 40
        assert sum("soup" in text for text in texts) == 32
        assert sum("nothing" in text for text in texts) == 32 * bool(weight)
        assert not texts & {e.text for e in made.prepared.dev}


def test_a_stopped_run_does_not_imitate_again(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _count(monkeypatch)
    run = imitating(reviews, small_bundle, checkpoint_steps=2)
    assert_goes_on_alike(run, tmp_path, at=5)
    assert len(calls) == 2  # the one that was stopped, and the one that was not
    plain = train(configure(reviews, teacher=str(small_bundle)), tmp_path / "plain")
    assert len(calls) == 2
    whole = train(run, tmp_path / "whole")
    assert plain.history != whole.history


def test_each_network_of_a_cross_validation_imitates_without_its_part(
    small_bundle: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _count(monkeypatch)
    content = imitating(reviews, small_bundle).as_dict()
    content["data"] |= {"folds": 2, "dev_share": 0.0}
    train(run_config(content), tmp_path / "run")
    first, second, everything = (set(texts) for texts in calls)
    assert first | second == everything
    assert not first & second
    train(run_config(content), tmp_path / "run")
    assert len(calls) == 3


def _count(monkeypatch: pytest.MonkeyPatch, *, plain: bool = True) -> list[list[str]]:
    calls: list[list[str]] = []
    original = learner.imitate

    def imitate(model: object, texts: list[str], *others: object) -> None:
        calls.append(texts)
        if plain:
            original(model, texts, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(learner, "imitate", imitate)
    return calls


def test_who_has_nobody_to_imitate_is_told(reviews: Path) -> None:
    with pytest.raises(ConfigError, match="imitate_epochs must be 0 unless there is a teacher"):
        configure(reviews, imitate_epochs=1)
    content = configure(reviews, teacher="base", imitate_epochs=1).as_dict()
    content["model"]["encoder"] = "tiny"
    with pytest.raises(ConfigError, match="a new recurrent encoder to imitate it"):
        run_config(content)
    with pytest.raises(ConfigError, match="a new recurrent encoder to imitate it"):
        configure(reviews, teacher="base", imitate_epochs=1, start_from="fast")
    with pytest.raises(ConfigError, match="0 or more"):
        configure(reviews, teacher="base", imitate_epochs=-1)


@pytest.mark.slow
def test_two_processes_imitate_as_one_does(
    small_bundle: Path, reviews: Path, tmp_path: Path
) -> None:
    """One imitates, and the other gets its weights: else they would learn apart from then on."""
    settings = ["model.input_dropout=0", "train.max_epochs=3", f"train.teacher={small_bundle}"]
    settings.append("train.imitate_epochs=4")
    run(command(reviews, tmp_path / "one", *settings))
    run(command(reviews, tmp_path / "two", *settings, ranks=2))
    run(command(reviews, tmp_path / "plain", *settings[:-1]))
    one, two, plain = (losses(tmp_path / name) for name in ("one", "two", "plain"))
    assert two == pytest.approx(one, rel=1e-3)
    assert plain != pytest.approx(one, rel=1e-3)
