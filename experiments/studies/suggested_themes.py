"""Suggested themes on real reviews: `python experiments/studies/suggested_themes.py draw`.

Scores 2,000 unlabeled reviews of each of three domains, suggests themes for each domain, and draws
200 mentions from its ten largest themes into `runs/suggested/mentions.tsv`. A reader marks each
with `y` or `n`: is the mention of this theme, as its terms describe it? `count FILE` writes the
shares to `results/suggested-themes.json`, without text.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import ScoreOptions, Themes, score
from capsar.data.catalog import data_folder
from capsar.reporting.suggest import suggest_themes
from evaluate import rounded
from run import RESULTS, WORK, describe_study, write_json

RESULT = RESULTS / "suggested-themes.json"
FOLDER = WORK / "suggested"
DOMAINS = ("kitchen_housewares", "apparel", "camera_photo")
REVIEWS, DRAWN, THEMES, LARGEST = 2000, 200, 12, 10
MODEL = "base"


def draw() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    generator = random.Random(0)
    lines, sizes = [], {}
    for number, domain in enumerate(DOMAINS):
        path = data_folder() / "data" / "unlabelled" / "fdu-mtl" / f"{domain}.task.unlabel"
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()[:REVIEWS]
        source = FOLDER / f"{domain}.parquet"
        if not source.exists():
            pq.write_table(pa.table({"text": texts}), source)
        plain, themed = FOLDER / f"{domain}-plain", FOLDER / f"{domain}-themed"
        shutil.rmtree(themed, ignore_errors=True)
        score([str(source)], str(plain), ScoreOptions(model=MODEL))
        themes, _ = suggest_themes(plain, THEMES)
        options = ScoreOptions(model=MODEL, keep=("text",), themes=Themes(tuple(themes)))
        score([str(source)], str(themed), options)
        found = [
            (mention["theme"], mention["text"], row["text"], mention["start"], mention["end"])
            for file in sorted(themed.glob("*.parquet"))
            for row in pq.read_table(file).to_pylist()
            for mention in row["aspects"] or []
            if mention["theme"] and not mention["implicit"]
        ]
        counts = Counter(theme for theme, *_ in found)
        largest = dict(counts.most_common(LARGEST))
        sizes[domain] = list(largest.values())
        chosen = [mention for mention in found if mention[0] in largest]
        share = DRAWN // len(DOMAINS) + (number < DRAWN % len(DOMAINS))
        by_name = {theme.name: theme for theme in themes}
        for theme, _, text, start, end in generator.sample(chosen, share):
            terms = ", ".join(by_name[theme].terms[:10])
            marked = f"[{text[start:end]}]"
            around = text[max(0, start - 90) : start] + marked + text[end : end + 90]
            lines.append(f"{domain}\t{theme} ({terms})\t{' '.join(around.split())}")
    (FOLDER / "mentions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (FOLDER / "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")


def count(path: str) -> None:
    domains = [line.split("\t")[0] for line in (FOLDER / "mentions.tsv").read_text().splitlines()]
    answers = [line.split("\t")[0].strip() for line in Path(path).read_text().splitlines()]
    if len(answers) != len(domains) or set(answers) - {"y", "n"}:
        raise SystemExit(f"Expected {len(domains)} lines that begin with y or n")
    right = {
        domain: sum(a == "y" for a, d in zip(answers, domains, strict=True) if d == domain)
        for domain in DOMAINS
    }
    about = describe_study("suggested-themes", "studies/suggested_themes.py draw", "onnxruntime")
    found = {
        "reviews": REVIEWS * len(DOMAINS),
        "mentions": len(answers),
        "right": sum(right.values()) / len(answers),
        "domains": {d: right[d] / domains.count(d) for d in DOMAINS},
        "mentions_of_themes": json.loads((FOLDER / "sizes.json").read_text()),
    }
    write_json(RESULT, rounded(about | found))


if __name__ == "__main__":
    draw() if sys.argv[1] == "draw" else count(sys.argv[2])
