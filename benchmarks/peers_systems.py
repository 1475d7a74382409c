"""What is compared: each system's environment, the process that answers, and its own program."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import peers_programs as programs
from capsar.hub import shipped_models
from peers_environments import BERT, CAPSAR, ROOT, SETFIT, Installed, fetch_spacy_model

sys.path.insert(0, str(ROOT / "experiments"))
from runs import Run, planned

if TYPE_CHECKING:
    from peers_process import Peer

HERE = Path(__file__).parent
SHIPPED = ("base", "fast")
TRAINED = ("capsar-bert-spans", "capsar-bert-minilm")
"""Our runs on Restaurant, the first that is there: with an extraction head, or else without."""


@dataclass(frozen=True, slots=True)
class System:
    """One row of the table."""

    name: str
    installed: Installed
    arguments: tuple[str, ...]
    """The program that answers inside its environment, and what it is given."""
    program: str
    """What a user writes."""
    models: tuple[Path, ...] = ()
    """Files of models that the install does not hold."""
    finds: bool = True
    """Whether it finds aspects by itself."""

    @property
    def is_ready(self) -> bool:
        """Whether its environment and its models are there."""
        return self.installed.is_there and all(path.is_dir() for path in self.models)

    def start(self) -> Peer:
        """Start it as a process that answers."""
        from peers_process import Peer

        command = [self.installed.python, *self.arguments]
        return Peer(command, self.installed.folder / f"{self.name}.log")


def trained_run(*sources: str) -> Run:
    """Return the first of our runs on Restaurant that was trained and judged."""
    for run in planned(sources):
        is_there = (run.folder / "bundle").is_dir() and run.read() is not None
        if run.dataset == "restaurant" and is_there:
            return run
    raise SystemExit(f"None of {sources} is trained: python experiments/reproduce.py bert")


def ready_systems(work: Path) -> list[System]:
    """Return every system that is prepared, and name those that are not."""
    ready = {system.name: system for system in all_systems(work) if system.is_ready}
    for system in all_systems(work):
        if system.name not in ready:
            print(f"left out, not prepared: {system.name}", file=sys.stderr)
    return list(ready.values())


def all_systems(work: Path) -> list[System]:
    """Return every system, ours first."""
    capsar = Installed(CAPSAR, work)
    trained = trained_run(*TRAINED).folder / "bundle"
    ours = [_capsar(name, name, capsar) for name in SHIPPED if name in shipped_models()]
    ours.append(_capsar("restaurant", str(trained), capsar, trained))
    return [*ours, _setfit(work), _bert(work)]


def _capsar(name: str, model: str, installed: Installed, *models: Path) -> System:
    arguments = (str(HERE / "peers_capsar.py"), model)
    return System(name, installed, arguments, programs.CAPSAR.format(model=model), models)


def _setfit(work: Path) -> System:
    installed = Installed(SETFIT, work)
    spacy = fetch_spacy_model(work)
    aspect, polarity = installed.folder / "aspect", installed.folder / "polarity"
    return System(
        "setfit",
        installed,
        (str(HERE / "peers_setfit.py"), "ask", str(installed.folder), str(spacy)),
        programs.SETFIT.format(aspect=str(aspect), polarity=str(polarity), spacy=str(spacy)),
        (aspect, polarity, spacy),
    )


def _bert(work: Path) -> System:
    installed = Installed(BERT, work)
    model = installed.folder / "model"
    return System(
        "bert",
        installed,
        (str(HERE / "peers_bert.py"), "ask", str(model)),
        programs.BERT.format(model=str(model)),
        (model,),
        finds=False,
    )
