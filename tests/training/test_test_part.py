"""No code path of training, selection or tuning can open a test file.

Three ways to look: what the code can reach (its syntax), what it refuses (every test part under
every name), and what it really opens (an audit hook in a process that trains).
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
from capsar.training.prepare import prepare_data

SOURCE = Path(catalog.__file__).parent.parent
DOOR = "test_examples"
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
    """Every module of ours that a module imports, on whatever line."""
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
    """Whether a module names the door to test parts, or asks for a test file past it."""
    for node in ast.walk(tree):
        names = (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", ""))
        if DOOR in names:
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "find_file":
            part = ast.unparse(node.args[1])
            if part not in ("'vectors'", "part"):
                return True
    return False


def test_training_reaches_no_code_that_opens_a_test_part() -> None:
    trees = modules()
    roots = {name for name in trees if name.startswith(("capsar.training", "capsar.model"))}
    roots |= {"capsar.cli.train", "capsar.data.splits"}
    assert "capsar.training.tune" in roots
    found = reached(roots, trees)
    assert {"capsar.data.readers", "capsar.analyze", "capsar.evaluation.evaluate"} <= found
    openers = {name for name in found if mentions(trees[name])}
    assert openers == {"capsar.data.catalog"}  # where the door is defined, and used by nobody


def test_the_look_at_the_syntax_would_see_it() -> None:
    trees = modules()
    assert mentions(trees["capsar.evaluation.robustness"])
    assert mentions(trees["capsar.cli.evaluate"])
    assert mentions(ast.parse("catalog.test_examples('mams')"))
    assert mentions(ast.parse("find_file(name, TEST)"))
    spoilt = trees | {
        "capsar.training.tune": ast.parse("def f():\n  from capsar.evaluation import robustness")
    }
    assert "capsar.evaluation.robustness" in reached({"capsar.training.run"}, spoilt)


def test_the_door_refuses_training() -> None:
    """`training_examples` takes the part's name from a configuration: never that of a test part."""
    for name in TESTED:
        for source in (f"{name}:test",):
            with pytest.raises(ConfigError, match="only evaluation opens it"):
                prepare_data(DataConfig(train=source))


@pytest.mark.data
@pytest.mark.parametrize("name", ["semeval14-restaurants", "twitter", "arts-laptops", "mams"])
def test_a_test_file_is_refused_under_whatever_name(
    name: str, shared: Path, tmp_path: Path
) -> None:
    path = catalog.find_file(name, "test")
    copy = tmp_path / f"mine{path.suffix}"
    shutil.copy(path, copy)
    for source in (str(path), str(copy), f"{name}:test"):
        with pytest.raises(ConfigError, match="only evaluation opens it"):
            prepare_data(DataConfig(train=source))
        with pytest.raises(ConfigError, match="only evaluation opens it"):
            prepare_data(DataConfig(train="semeval14-laptops", dev=source))


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
assert "about_threshold" in json.loads((result.bundle / "config.json").read_text())
"""


def files_opened(code: str, data: Path) -> set[Path]:
    """Run code in a process of its own, and return every file that Python opened in it."""
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
    own = {name for name in TESTED if catalog.locate(files[name]).is_relative_to(ROOT)}
    assert own == {"capsar-corpus"}
    return {((ROOT if name in own else data) / files[name].path).resolve() for name in TESTED}


test_files.__test__ = False  # type: ignore[attr-defined]  # a helper, by its name


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
        {"train": "semeval14-laptops", "dev_share": 0.3},
        {"train": "twitter"},
        {"train": "mams", "dev": "mams:dev"},
    ],
    ids=lambda source: source["train"],
)
def test_a_whole_training_opens_no_test_file(
    source: dict[str, object], shared: Path, tmp_path: Path
) -> None:
    content = TINY | {"data": source | {"train_share": 0.05, "word_dim": 8}}
    code = _TRAIN.format(content=json.dumps(content), folder=str(tmp_path / "run"))
    opened = files_opened(code, shared)
    train_file = (shared / catalog.dataset(str(source["train"])).file("train").path).resolve()
    assert train_file in opened  # the hook sees what is read
    assert not opened & test_files(shared)


@pytest.mark.data
def test_the_hook_would_catch_it(shared: Path) -> None:
    """A positive control, for every test part: whichever reader opens it, the hook sees it."""
    code = f"""
from capsar.data.catalog import test_examples
for name in {TESTED!r}:
    test_examples(name)
"""
    assert files_opened(code, shared) >= test_files(shared)


@pytest.mark.data
@pytest.mark.slow
def test_a_training_that_peeked_would_be_caught(shared: Path, tmp_path: Path) -> None:
    """The same training, spoilt: the threshold is tuned on the test part."""
    spoil = """
import capsar.training.finish as finish
from capsar.data.catalog import test_examples
tune = finish.choose_about_threshold
def peek(reader, dev):
    return tune(reader, [e for e in test_examples("semeval14-laptops") if e.spans])
finish.choose_about_threshold = peek
"""
    source = {"train": "semeval14-laptops", "train_share": 0.05, "word_dim": 8}
    content = json.dumps(TINY | {"data": source})
    code = spoil + _TRAIN.format(content=content, folder=str(tmp_path / "run"))
    caught = files_opened(code, shared) & test_files(shared)
    assert caught == {catalog.find_file("semeval14-laptops", "test").resolve()}
