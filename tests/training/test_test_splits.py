"""Test that training, model selection and tuning never open a test set.

Three checks: what the code can reach (its syntax tree), what it rejects (every test set, also under
another name), and what it opens (an audit hook in a training process).
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capsar.config import DataConfig
from capsar.data import catalog
from capsar.errors import ConfigError
from capsar.training.dataset import prepare_data

SOURCE = Path(catalog.__file__).parent.parent
ACCESSOR = "test_examples"
ROOT = Path(__file__).parents[2]
TESTED = [name for name, d in catalog.datasets().items() if "test" in [f.part for f in d.files]]


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("capsar", *path.relative_to(SOURCE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules of the package that a module imports anywhere."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found & known


def reached(roots: set[str], trees: dict[str, ast.Module]) -> set[str]:
    seen: set[str] = set()
    waiting = set(roots)
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting |= imports(trees[name], set(trees)) - seen
    return seen


def mentions(tree: ast.Module) -> bool:
    """Return whether a module names the accessor of test sets, or finds their files otherwise."""
    for node in ast.walk(tree):
        names = (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", ""))
        if ACCESSOR in names:
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "find_file":
            part = ast.unparse(node.args[1])
            if part not in ("'vectors'", "part"):
                return True
    return False


def test_training_cannot_reach_code_that_opens_a_test_set() -> None:
    trees = modules()
    roots = {name for name in trees if name.startswith(("capsar.training", "capsar.model"))}
    roots |= {"capsar.cli.train", "capsar.data.splits"}
    assert "capsar.training.validation" in roots
    found = reached(roots, trees)
    assert {
        "capsar.data.readers",
        "capsar.inference.analyzer",
        "capsar.evaluation.evaluate",
    } <= found
    openers = {name for name in found if mentions(trees[name])}
    assert openers == {"capsar.data.catalog"}  # where it is defined, but not used


def test_syntax_check_detects_access() -> None:
    trees = modules()
    assert mentions(trees["capsar.evaluation.robustness"])
    assert mentions(trees["capsar.cli.evaluate"])
    assert mentions(ast.parse("catalog.test_examples('mams')"))
    assert mentions(ast.parse("find_file(name, TEST)"))
    tampered = trees | {
        "capsar.training.validation": ast.parse(
            "def f():\n  from capsar.evaluation import robustness"
        )
    }
    assert "capsar.evaluation.robustness" in reached({"capsar.training.trainer"}, tampered)


def test_catalog_rejects_test_sets_for_training() -> None:
    """`training_examples` gets the name of the part from the configuration."""
    for name in TESTED:
        for source in (f"{name}:test",):
            with pytest.raises(ConfigError, match=r"test set of .*only for evaluation"):
                prepare_data(DataConfig(train=source))


@pytest.mark.data
@pytest.mark.parametrize("name", ["semeval14-restaurants", "twitter", "arts-laptops", "mams"])
def test_test_files_are_rejected_under_any_name(name: str, shared: Path, tmp_path: Path) -> None:
    path = catalog.find_file(name, "test")
    copy = tmp_path / f"mine{path.suffix}"
    shutil.copy(path, copy)
    for source in (str(path), str(copy), f"{name}:test"):
        with pytest.raises(ConfigError, match=r"test set of .*only for evaluation"):
            prepare_data(DataConfig(train=source))
        with pytest.raises(ConfigError, match=r"test set of .*only for evaluation"):
            prepare_data(DataConfig(train="semeval14-laptops", validation=source))


_WATCH = """
import json, os, sys
opened = []
def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        opened.append(os.path.realpath(os.fsdecode(arguments[0])))
sys.addaudithook(watch)
from pathlib import Path
{code}
print(json.dumps(opened))
"""
_TRAIN = """
from capsar import train
from capsar.config import run_config
result = train(run_config(json.loads({content!r})), Path({folder!r}))
assert (result.bundle / "capsules.onnx").is_file()
assert "aspect_threshold" in json.loads((result.bundle / "config.json").read_text())
"""


def files_opened(code: str, data: Path) -> set[Path]:
    """Run code in a separate process, and return every file that Python opened in it."""
    done = subprocess.run(
        [sys.executable, "-c", _WATCH.format(code=code)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CAPSAR_DATA": str(data)},
    )
    assert done.returncode == 0, done.stderr
    return {Path(name) for name in json.loads(done.stdout.splitlines()[-1])}


def test_files(data: Path) -> set[Path]:
    files = {name: catalog.dataset(name).file("test") for name in TESTED}
    own = {name for name in TESTED if catalog.expected_path(files[name]).is_relative_to(ROOT)}
    assert own == {"capsar-corpus"}
    return {((ROOT if name in own else data) / files[name].path).resolve() for name in TESTED}


test_files.__test__ = False  # type: ignore[attr-defined]  # a helper, not a test


TINY = {
    "model": {
        "units": 4, "primary_dim": 4, "intermediate_capsules": 4, "intermediate_dim": 4,
        "class_dim": 4,
    },
    "train": {"max_epochs": 2},
}  # fmt: skip


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        {"train": "semeval14-restaurants", "vectors": "glove.840B.300d.subset"},
        {"train": "semeval14-laptops", "validation_ratio": 0.3},
        {"train": "twitter"},
        {"train": "mams", "validation": "mams:dev"},
    ],
    ids=lambda source: source["train"],
)
def test_training_opens_no_test_file(
    source: dict[str, object], shared: Path, tmp_path: Path
) -> None:
    content = TINY | {"data": source | {"train_ratio": 0.05, "word_dim": 8}}
    code = _TRAIN.format(content=json.dumps(content), folder=str(tmp_path / "run"))
    opened = files_opened(code, shared)
    train_file = (shared / catalog.dataset(str(source["train"])).file("train").path).resolve()
    assert train_file in opened  # the hook works
    assert not opened & test_files(shared)


@pytest.mark.data
def test_audit_hook_detects_every_test_set(shared: Path) -> None:
    """Positive control: the hook detects every test set, whichever reader opens it."""
    code = f"""
from capsar.data.catalog import test_examples
for name in {TESTED!r}:
    test_examples(name)
"""
    assert files_opened(code, shared) >= test_files(shared)


@pytest.mark.data
@pytest.mark.slow
def test_audit_hook_detects_tuning_on_a_test_set(shared: Path, tmp_path: Path) -> None:
    """Positive control: the same training, with the threshold tuned on the test set."""
    tampering = """
import capsar.training.trainer as trainer
from capsar.data.catalog import test_examples
tune = trainer.choose_aspect_threshold
def peek(predictor, examples):
    return tune(predictor, [e for e in test_examples("semeval14-laptops") if e.spans])
trainer.choose_aspect_threshold = peek
"""
    source = {"train": "semeval14-laptops", "train_ratio": 0.05, "word_dim": 8}
    content = json.dumps(TINY | {"data": source})
    code = tampering + _TRAIN.format(content=content, folder=str(tmp_path / "run"))
    caught = files_opened(code, shared) & test_files(shared)
    assert caught == {catalog.find_file("semeval14-laptops", "test").resolve()}
