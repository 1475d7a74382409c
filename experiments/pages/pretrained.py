"""Blocks of `docs/results/pretrained.md`: the bundled models on out-of-domain sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsar.bundle import find_bundle
from pages.formatting import (
    Number,
    bullets,
    gap,
    listed,
    number,
    paragraph,
    signed,
    spread,
    table,
)
from pretrained.sets import BUNDLED, IN_DOMAIN, OUT_OF_DOMAIN, THEME_SETS, opinion_set_name

if TYPE_CHECKING:
    from summarize import Results

_COLUMNS = ("macro_f1", "ece", "confidence", "span_f1", "joint_f1", "ars")
_BASELINES = ("vader", "majority")
_PREVIOUS = {f"{name}-previous": f"`{name}` of 0.1.0" for name in BUNDLED}
_LABELS = {
    **{name: f"`{name}`" for name in BUNDLED},
    **_PREVIOUS,
    "vader": "VADER",
    "majority": "majority class",
}
_TRAINED = {"capsar": "CAPSAR trained on it", "capsar-bert": "CAPSAR-BERT trained on it"}
_SHORT = 3
"""Decimal places in the README."""
_MAX_SHIFT = 0.05
"""How far the mean confidence may be from the accuracy before the page names the set."""
_DAGGER = "†"
_TRAINING_USED = " (its training set was used)"


def out_of_domain(results: Results) -> str:
    """Return the bundled models, the baselines and models trained on each set."""
    found, rows = results.summary, []
    for dataset, name in (OUT_OF_DOMAIN | IN_DOMAIN).items():
        shown = f"{name}{_TRAINING_USED}" if dataset in IN_DOMAIN else name
        for row, label in _LABELS.items():
            own = _metrics(results, row, dataset)
            if own:
                cells = [number(own[column]) if column in own else "" for column in _COLUMNS]
                compared = [_difference(own, reference) for reference in ("vader", "previous")]
                false = f"{own['false_per_100']:.0f}" if "false_per_100" in own else ""
                start = [shown, label, number(own["accuracy"]), _bounds(own)]
                rows.append([*start, *cells[:1], *compared, *cells[1:5], false, *cells[5:]])
        for row, label in _TRAINED.items():
            which = {"row": row, "dataset": dataset, "protocol": "ours"}
            for entry in found.find("table2", metric="accuracy", **which):
                encoder = entry["encoder"]
                macro = found.one("table2", metric="macro_f1", encoder=encoder, **which)
                if entry["mean"] is not None:
                    cells = [spread(entry), "", spread(macro)]
                    rows.append([shown, f"{label} ({encoder})", *cells, *[""] * 8])
    header = [
        "set", "model", "accuracy", "95 %", "macro-F1", "minus VADER", "minus 0.1.0", "ECE",
        "stated confidence", "span F1", "span + polarity", "false per 100", "ARS",
    ]  # fmt: skip
    return table(header, rows)


def readme(results: Results) -> str:
    """Return polarity and span metrics of models and baselines on the out-of-domain sets."""
    rows = []
    for dataset, shown in OUT_OF_DOMAIN.items():
        found = {row: _metrics(results, row, dataset) for row in (*BUNDLED, *_BASELINES)}
        polarity = [_polarity(own, marked=row in BUNDLED) for row, own in found.items()]
        spans = [
            _short(found[row]["span_f1"]) if "span_f1" in found[row] else "" for row in BUNDLED
        ]
        rows.append([shown, *polarity, *spans])
    labels = [_LABELS[row] for row in (*BUNDLED, *_BASELINES)]
    header = ["accuracy / macro-F1", *labels, *(f"`{name}`: span F1" for name in BUNDLED)]
    missed = [
        f"`{name}`: {listed(sets)}" for name in BUNDLED if (sets := _not_above_vader(results, name))
    ]
    note = f"{_DAGGER} not significantly more accurate than VADER ({'; '.join(missed)})."
    return "\n\n".join([table(header, rows), *([note] if missed else [])])


def _metrics(results: Results, row: str, dataset: str) -> dict[str, float]:
    entries = results.summary.find("out-of-domain", row=row, dataset=dataset)
    return {entry["metric"]: entry["mean"] for entry in entries}


def _polarity(own: dict[str, float], *, marked: bool) -> str:
    if not own:
        return ""
    mark = _DAGGER if marked and own.get("low_minus_vader", 1) <= 0 else ""
    return f"{_short(own['accuracy'])} / {_short(own['macro_f1'])}{mark}"


def _not_above_vader(results: Results, row: str) -> list[str]:
    """Return the sets on which a model is not significantly more accurate than VADER."""
    names = OUT_OF_DOMAIN | IN_DOMAIN
    return [
        shown
        for dataset, shown in names.items()
        if _metrics(results, row, dataset).get("low_minus_vader", 1) <= 0
    ]


def _short(value: float) -> str:
    return f"{Number(value):.{_SHORT}f}"


def _bounds(own: dict[str, float]) -> str:
    if "accuracy_low" not in own:
        return ""
    return f"{number(own['accuracy_low'])} to {number(own['accuracy_high'])}"


def _difference(own: dict[str, float], reference: str) -> str:
    if f"low_minus_{reference}" not in own:
        return ""
    mean, low, high = (
        signed(own[f"{key}_minus_{reference}"]) for key in ("accuracy", "low", "high")
    )
    return f"{mean} [{low}, {high}]"


def neutral_shares(results: Results) -> str:
    """Return how many aspects are neutral, and how many `base` predicts to be."""
    rows = []
    for dataset, shown in (OUT_OF_DOMAIN | IN_DOMAIN).items():
        names = ("neutral_share", "predicted_neutral_share")
        which = {"row": "base", "dataset": dataset}
        entries = results.summary.all_of("out-of-domain", names, **which)
        if entries:
            rows.append([shown, *(number(entry["mean"]) for entry in entries)])
    return table(["set", "neutral aspects", "predicted neutral by `base`"], rows)


def confidence_shift(results: Results) -> str:
    """Return the sets on which the mean confidence of a model is far from its accuracy."""
    lines = []
    for name in BUNDLED:
        far = []
        for dataset, shown in (OUT_OF_DOMAIN | IN_DOMAIN).items():
            own = _metrics(results, name, dataset)
            shift = own["confidence"] - own["accuracy"]
            if abs(shift) > _MAX_SHIFT:
                far.append(f"{shown} ({signed(shift)})")
        lines.append(f"`{name}`: {listed(far)}." if far else f"`{name}`: none.")
    return bullets(lines)


def few_rows(results: Results) -> str:
    """Return `base` fine-tuned on 200 labeled rows of Laptop."""
    metrics = ("accuracy", "macro_f1", "span_f1", "joint_f1")
    rows = []
    for prefix, shown in {"": "test set", "rest_": "training rows not drawn"}.items():
        which = {"row": "base-200-rows", "dataset": "laptop"}
        names = [f"{prefix}{metric}" for metric in metrics]
        own = results.summary.all_of("out-of-domain", names, **which)
        gaps = results.summary.all_of("out-of-domain", [f"{n}_vs_base" for n in names], **which)
        if own and gaps:
            rows.append([shown, "fine-tuned", *map(spread, own)])
            rows.append([shown, "minus `base`", *map(gap, gaps)])
    return table(["evaluated on", "", "accuracy", "macro-F1", "span F1", "span + polarity"], rows)


def smoke_set(results: Results) -> str:
    """Return how many sentences of the smoke set are right."""
    rows = [
        [
            f"`{name}`", f"{found['polarities_right']} of {found['polarities']}",
            f"{found['sentences_right']} of {found['sentences']}",
        ]
        for name, found in results.read("smoke-set").get("models", {}).items()
    ]  # fmt: skip
    header = ["model", "polarities right, aspect given", "sentences entirely right"]
    return table(header, rows)


def data_mix(results: Results) -> str:
    """Return what each training source adds, on the validation sources."""
    rows = []
    for name, variant in results.read("data-mix").get("variants", {}).items():
        found = variant["validation"]
        corpus, mams = found["capsar-corpus"], found["mams"]
        rows.append([
            name, number(corpus["metrics"]["accuracy"]), number(corpus["metrics"]["macro_f1"]),
            number(corpus["spans"]["spans"]["f1"]), number(corpus["spans"]["joint"]["f1"]),
            f"{corpus['spans']['false_per_100']:.1f}", number(mams["metrics"]["accuracy"]),
            number(mams["spans"]["spans"]["f1"]), number(found["nikon"]["metrics"]["accuracy"]),
        ])  # fmt: skip
    header = [
        "trained on", "corpus: accuracy", "macro-F1", "span F1", "span + polarity", "false per 100",
        "MAMS: accuracy", "span F1", "Nikon camera: accuracy",
    ]  # fmt: skip
    return table(header, rows)


def frequent_aspects(results: Results) -> str:
    """Return the most frequent aspects of 3,000 reviews, and what a reader said of them."""
    parts = []
    for name, found in results.read("frequent-aspects").get("models", {}).items():
        names = ", ".join(f"{aspect} ({times})" for aspect, times in found["aspects"].items())
        parts.append(paragraph(f"`{name}`: {names}."))
        reading = found["reading"]
        if reading:
            verbs, others = (
                listed(reading[key]) if reading[key] else "none"
                for key in ("not_nouns", "no_aspects")
            )
            parts.append(f"Verbs or adjectives, by the reader: {verbs}. Not aspects: {others}.")
    return "\n\n".join(parts)


def false_aspects(results: Results) -> str:
    """Return how many aspects that count as false are aspects by our guideline."""
    rows = [
        [OUT_OF_DOMAIN[name], found["read"], found["terms"]]
        for name, found in results.read("false-aspects").get("sets", {}).items()
    ]
    return table(["set", "read", "aspects by our guideline"], rows)


def opinions(results: Results) -> str:
    """Return the bundled models and two baselines on opinion phrases, with given aspects."""
    rows = []
    for name, systems in results.read("opinions").get("sets", {}).items():
        for system, found in systems.items():
            label = f"`{system}`" if system in BUNDLED else system
            cells = [
                f"{number(found[metric])} [{number(low)}, {number(high)}]"
                for metric, (low, high) in found["intervals"].items()
            ]
            shown = opinion_set_name(name)
            rows.append([shown, label, *cells, number(found["precision"]), number(found["recall"])])
    header = ["set", "", "F1, exact", "F1, overlapping", "precision, exact", "recall, exact"]
    return table(header, rows)


_THEME_SYSTEMS = {
    "base": "`base`",
    "fast": "`fast`",
    "terms": "listed terms alone",
    "untuned sentence": "sentence similarity, untuned encoder",
    "untuned mention": "mention similarity, untuned encoder",
}


def themes(results: Results) -> str:
    """Return the bundled models and three baselines on themes, explicit and implicit."""
    rows = []
    sets = results.read("themes").get("sets", {})
    for name, label in THEME_SETS.items():
        for system, shown in _THEME_SYSTEMS.items():
            found = sets.get(name, {}).get(system)
            if found is None:
                continue
            explicit, implicit = found["explicit"], found["implicit"]
            interval = f"[{number(explicit['low'])}, {number(explicit['high'])}]"
            cells = [f"{number(explicit['f1'])} {interval}"]
            if system in BUNDLED:
                cells += [number(implicit["precision"]), number(implicit["recall"])]
                for kind in ("explicit", "implicit"):
                    ours, vader = found[kind]["polarity_accuracy"], found["vader"][kind]
                    cells.append(f"{number(ours)} / {number(vader)}")
            else:
                cells += [""] * 4
            rows.append([label, shown, *cells])
    header = ["set", "", "explicit F1", "implicit precision", "implicit recall",
              "polarity / VADER, explicit", "polarity / VADER, implicit"]  # fmt: skip
    return table(header, rows)


def theme_validation(_: Results) -> str:
    """Return the F1 of themes on the corpus' validation part, with and without states."""
    rows = []
    for name in BUNDLED:
        found = find_bundle(name).config["validation_themes"]
        implicit = found["implicit"]
        cells = [number(found[level]["f1"]) for level in _THEME_LEVELS]
        cells.append(f"{number(implicit['precision'])} / {number(implicit['recall'])}")
        rows.append([f"`{name}`", *cells])
        if "without_states" in found:
            static = found["without_states"]
            rows.append(["word vectors alone", *(number(static[k]["f1"]) for k in _THEME_LEVELS)])
            rows[-1].append("")
    header = ["", "12–18 themes", "7–11 themes", "4–7 themes", "implicit, precision / recall"]
    return table(header, rows)


def suggested_themes(results: Results) -> str:
    """Return how often a reader agrees with suggested themes."""
    found = results.read("suggested-themes")
    if not found:
        return ""
    domains = listed(
        [f"{number(share)} ({name.replace('_', ', ')})" for name, share in found["domains"].items()]
    )
    return paragraph(
        f"Suggested themes: of {found['mentions']} mentions drawn from the ten largest suggested "
        f"themes of three domains ({found['reviews']:,} reviews), an independent reader found "
        f"{number(found['right'])} to belong to their theme: {domains}."
    )


_THEME_LEVELS = ("fine", "medium", "coarse")
_RANKINGS = {
    "importance": "importance (shown)",
    "opinions": "opinion phrases (shown)",
    "attributions": "attributions by routing",
    "gradient": "gradient x input, signed",
    "gradient_norm": "gradient x input, norm",
    "random": "random words",
}


def faithfulness(results: Results) -> str:
    """Return how faithful the word scores of the bundled models are."""
    rows = []
    for model, sets in results.read("faithfulness-bundled").get("models", {}).items():
        for name, found in sets.items():
            for ranking, label in _RANKINGS.items():
                suffix = "" if ranking == "attributions" else f"_{ranking}"
                row = [f"{OUT_OF_DOMAIN[name]}, `{model}`", label]
                for measure in ("comprehensiveness", "sufficiency"):
                    compared = found.get(f"{measure}_vs_{ranking}")
                    bounds = (
                        [signed(compared[k]) for k in ("mean", "low", "high")] if compared else []
                    )
                    difference = "{} [{}, {}]".format(*bounds) if bounds else ""
                    row += [number(found[f"{measure}{suffix}"]), difference]
                rows.append(row)
    header = [
        "set", "words ranked by", "comprehensiveness", "importance minus it", "sufficiency",
        "importance minus it",
    ]  # fmt: skip
    return table(header, rows)


def llm(results: Results) -> str:
    """Return the bundled models beside a language model, on the same sentences."""
    rows = []
    document = results.read("llm")
    for system, sets in document.get("systems", {}).items():
        label = f"`{system}`" if system in BUNDLED else system
        for name, found in sets.items():
            shown = (OUT_OF_DOMAIN | IN_DOMAIN)[name]
            cells = [
                number(found[metric]) for metric in ("span_f1", "joint_f1", "polarity_of_found")
            ]
            rows.append([
                label, shown, *cells, f"{found['seconds_per_1000']:,.1f}",
                f"{found['dollars_per_1000']:.5f}",
            ])  # fmt: skip
    header = [
        "system", "set", "span F1", "span + polarity", "polarity of spans found",
        "core-seconds per 1,000", "dollars per 1,000",
    ]  # fmt: skip
    return table(header, rows)
