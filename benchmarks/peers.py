"""CAPSAR beside its peers, each in an environment of its own: `python benchmarks/peers.py STEP`.

`prepare` makes the environments and trains what has to be trained, `quality` judges answers on the
test part of SemEval-14 Restaurant, `speed` measures time and memory on one core. Each step writes
its part of `results/peers.json` and renders `docs/peers.md`. What is finished is not done again:
environments, models and answers stay below the work folder.

CAPSAR_DATA, CAPSAR_ENCODERS and our own runs below `runs/` are needed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measure import write_result
from peers_environments import ROOT
from peers_prepare import STEPS, prepare, source_stamp
from peers_quality import Questions, judge_all, read_questions
from peers_speed import PEER, measure_cold_start, measure_speed, use_one_core
from peers_systems import TRAINED, System, ready_systems, trained_run

WORK = ROOT / "runs" / "peers"
ABSENT = {
    "PyABSA 2.4": "It was not run. The models that it offers are fetched from a model hub when "
    "they are first asked for, and so are notices when it is imported; this machine has no "
    "way to that hub. Training it anew was not tried."
}
"""Peers that are not measured, and why."""
TURNS = 5


def speed(systems: list[System], work: Path, questions: Questions, turns: int) -> dict[str, float]:
    """Measure the speed, and keep it until the cold starts are measured too."""
    use_one_core()
    file = work / "speed.json"
    stamp = [source_stamp(), len(questions.texts), turns]
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if kept.get("stamp") != stamp:
        kept = {"stamp": stamp, "metrics": measure_speed(systems, questions, turns)}
        file.write_text(json.dumps(kept), encoding="utf-8")
    metrics: dict[str, float] = kept["metrics"] | measure_cold_start(systems, work, turns)
    file.unlink()
    return metrics


def tell_environments(systems: list[System]) -> dict[str, Any]:
    """Return the versions inside each environment."""
    return {s.installed.environment.name: s.installed.facts["versions"] for s in systems}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("step", choices=("prepare", "quality", "speed"))
    parser.add_argument("--work", type=Path, default=WORK, help="where everything is made")
    parser.add_argument("--only", nargs="+", choices=list(STEPS), help="prepare only these")
    parser.add_argument("--sentences", type=int, help="ask fewer, to try it out: writes nothing")
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if options.step == "prepare":
        metrics = prepare(work, options.only or list(STEPS))
        systems = ready_systems(work)
    else:
        systems = ready_systems(work)
        if PEER not in {system.name for system in systems}:
            raise SystemExit("There is nothing to compare with: run the step `prepare`")
        questions = read_questions()
        if options.sentences:
            questions = questions.first(options.sentences)
        if options.step == "quality":
            metrics = judge_all(systems, work, questions)
        else:
            metrics = speed(systems, work, questions, options.turns)
    if options.sentences:
        print(json.dumps(metrics, indent=1))
        return
    facts = {
        "environments": tell_environments(systems),
        "restaurant": trained_run(*TRAINED).row,
        "absent": ABSENT,
    }
    write_result("peers", metrics, part=options.step, facts=facts)
    render = ROOT / "experiments" / "render_peers.py"
    subprocess.run([sys.executable, str(render)], check=True)


if __name__ == "__main__":
    main()
