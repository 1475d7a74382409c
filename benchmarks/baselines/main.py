"""Compare CAPSAR with baselines: `python benchmarks/baselines/main.py STEP`.

`prepare` creates an environment per system and trains the baselines, `quality` evaluates them on
the test set of SemEval-14 Restaurant, `speed` measures time and memory on one core. Each step adds
its metrics to `results/baselines.json`. Environments, models and predictions are kept in the work
folder and reused. Needs CAPSAR_DATA, CAPSAR_ENCODERS and our own runs in `runs/`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from baselines.prepare import prepare, source_stamp
from baselines.quality import EvaluationSet, evaluate_systems, read_test_set
from baselines.speed import REFERENCE, measure_cold_start, measure_speed
from baselines.systems import TRAINED, System, ready_systems, trained_run
from measure import RESULTS, ROOT, write_result

WORK = ROOT / "runs" / "baselines"
TURNS = 5


def speed(systems: list[System], work: Path, test: EvaluationSet) -> dict[str, float]:
    """Measure the speed, and keep it in a file until the cold starts are measured."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core, also for child processes
    file = work / "speed.json"
    stamp = [source_stamp(), len(test.texts), TURNS]
    cached = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if cached.get("stamp") != stamp:
        cached = {"stamp": stamp, "metrics": measure_speed(systems, test, TURNS)}
        file.write_text(json.dumps(cached), encoding="utf-8")
    metrics: dict[str, float] = cached["metrics"] | measure_cold_start(systems, work, TURNS)
    file.unlink()
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare CAPSAR with baselines.")
    parser.add_argument("step", choices=("prepare", "quality", "speed"))
    parser.add_argument("--work", type=Path, default=WORK, help="work folder")
    parser.add_argument("--sentences", type=int, help="use fewer sentences and write no result")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if options.step == "prepare":
        metrics = prepare(work)
        systems = ready_systems(work)
    else:
        systems = ready_systems(work)
        if REFERENCE not in {system.name for system in systems}:
            raise SystemExit("The baselines are missing: run the step `prepare` first")
        test = read_test_set()
        test = test.first(options.sentences) if options.sentences else test
        if options.step == "quality":
            metrics = evaluate_systems(systems, work, test)
        else:
            metrics = speed(systems, work, test)
    if options.sentences:
        print(json.dumps(metrics, indent=1))
        return
    before = json.loads((RESULTS / "baselines.json").read_text(encoding="utf-8"))
    facts = {
        "environments": {
            one.installed.environment.name: one.installed.facts["versions"] for one in systems
        },
        "restaurant": trained_run(*TRAINED).row,
        "absent": before["absent"],
    }
    write_result("baselines", metrics, part=options.step, facts=facts)
    print("Update the docs: python experiments/pages/render.py")


if __name__ == "__main__":
    main()
