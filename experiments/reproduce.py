"""Reproduce the paper: `python experiments/reproduce.py table1|…|all --jobs 2`.

Runs what is missing, goes on with what was stopped, writes one JSON file a run, and renders
`docs/results.md` from those files alone. See `experiments/README.md`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import render_peers
from render import RESULTS_PAGE, render
from runs import (
    ALL,
    BERT,
    BEST,
    BEST_PARTS,
    FOLDS,
    MAIN,
    SPANS,
    SWEEPS,
    Run,
    finished,
    planned,
    write_json,
    write_text,
)
from summarize import SUMMARY, summarize_committed

NEEDS = {
    "table1": (),
    "table2": MAIN,
    "table3": ("capsar",),
    "table4": ("capsar",),
    "arts": ("capsar",),
    "figures": ("capsar", *SWEEPS),
    "bert": BERT,
    "spans": FOLDS + SPANS,
    "best": BEST + BEST_PARTS,
    "all": ALL,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=[*NEEDS, "run"])
    parser.add_argument("name", nargs="?", help="of one run, for `run`")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each")
    options = parser.parse_args()
    if options.what == "run":
        return _run_here(options.name)
    missing = [run for run in planned(NEEDS[options.what]) if run.read() is None]
    for name in sorted({run.pretrained for run in missing if not run.can_run}):
        print(f"left out: {name} is not below CAPSAR_ENCODERS", file=sys.stderr)
    missing = [run for run in missing if run.can_run]
    failed = []
    refresh()
    with ThreadPoolExecutor(options.jobs) as pool:
        for name in pool.map(_run_apart, missing):
            failed += [name] if name else []
            refresh()
    if options.what in ("figures", "all"):
        from figures import HEATMAPS, draw_all, open_sentences

        bundle = next(run.folder for run in planned(("capsar",)) if run.seed == 0) / "bundle"
        if bundle.is_dir() and not HEATMAPS.is_file():
            open_sentences(bundle)
        draw_all()
        refresh()
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    left = [run.name for run in missing if run.read() is None]
    for name in set(left) - set(failed):
        print(f"missing: {name}", file=sys.stderr)
    return int(bool(left))


def refresh() -> None:
    """Write the summary and the pages anew from the run files at hand."""
    summary = summarize_committed()
    write_json(SUMMARY, summary)
    drawn = {path.stem for path in (RESULTS_PAGE.parent / "figures").glob("*.svg")}
    write_text(RESULTS_PAGE, render(summary, finished(), drawn))
    render_peers.main()


def _run_apart(run: Run) -> str:
    """Do one run in a process of its own, with one thread; return its name if it failed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__)), "run", run.name]
    code = subprocess.run(command, env=environment, check=False).returncode
    return run.name if code else ""


def _run_here(name: str) -> int:
    from perform import do_run

    for run in planned():
        if run.name == name:
            return do_run(run)
    print(f"There is no run {name!r}; a run is SOURCE[-POINT]-DATASET-SEED", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
