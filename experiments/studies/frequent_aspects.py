"""What a report lists: `python experiments/studies/frequent_aspects.py [NAME]`.

Scores 3,000 product reviews, a third of a thousand of each of nine categories, with a bundled model
and reports on them, as `capsar score` and `capsar report` do. `results/frequent-aspects.json` holds
the 50 most mentioned aspects of each model. A reader then reads the names alone: `reading` lists
those that are verbs or adjectives, and those that are no aspects of a product. A reading is kept as
long as the names are the same.
"""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import ScoreOptions, report, score
from capsar.data.catalog import data_folder
from pretrained.sets import BUNDLED
from run import RESULTS, WORK, describe_study, read_json, write_json

RESULT = RESULTS / "frequent-aspects.json"
REVIEWS = 3000
ASPECTS = 50


def main(*names: str) -> None:
    before = read_json(RESULT).get("models", {})
    folder = WORK / "frequent-aspects"
    reviews = write_reviews(folder / "reviews.csv")
    about = describe_study(
        "frequent-aspects", "studies/frequent_aspects.py", "numpy", "onnxruntime", "duckdb"
    )
    models = before | {name: rank_aspects(name, reviews) for name in names or BUNDLED}
    for name, found in models.items():
        same = before.get(name, {}).get("aspects") == found["aspects"]
        found["reading"] = before[name]["reading"] if same else None
    write_json(RESULT, about | {"models": models})


def write_reviews(path: Path) -> Path:
    """Write the first reviews of each category as a CSV file."""
    files = sorted((data_folder() / "data" / "unlabelled" / "fdu-mtl").iterdir())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["category", "review"])
        for number, file in enumerate(files):
            size = REVIEWS * (number + 1) // len(files) - REVIEWS * number // len(files)
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            some = [line.strip() for line in lines if line.strip()][:size]
            writer.writerows([file.name.partition(".")[0], line] for line in some)
    return path


def rank_aspects(name: str, reviews: Path) -> dict[str, Any]:
    """Return how often each of the most mentioned aspects is mentioned."""
    scored = reviews.parent / name
    shutil.rmtree(scored, ignore_errors=True)
    options = ScoreOptions(text_column="review", keep=("category", "review"), model=name)
    job = score(reviews, scored, options)
    content = report(scored, reviews.parent / f"{name}.html")
    print(job)
    return {
        "reviews": REVIEWS,
        "mentions": content["overall"]["mentions"],
        "aspects": {a["name"]: a["mentions"] for a in content["aspects"][:ASPECTS]},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
