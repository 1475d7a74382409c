"""The part of the model card on confidences: reliability diagram and risk-coverage curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsar.training.calibrate import FEW_EXAMPLES, highest_of

if TYPE_CHECKING:
    from capsar.evaluation.calibration import CalibrationFigures

_WIDTH = 20
_FEW = """ These are {number} examples only, so no
confidence is above {most:.2f}: so few can show no more."""


def render_confidence(figures: CalibrationFigures | None) -> str:
    """Return the section, or that there is nothing to say."""
    if figures is None:
        return "## Confidence\n\nNone: too little dev data to fit a calibration on.\n"
    number = figures.num_examples
    few = "" if number >= FEW_EXAMPLES else _FEW.format(number=number, most=highest_of(number))
    return f"""## Confidence

`confidence` is the probability that the polarity told is right. It was fitted on dev; here every
dev example is judged by a fit that did not see it.{few}

| | |
|---|---|
| calibration error (15 bins of equal mass) | {figures.ece:.4f} |
| what a perfect model of this size stays below, 19 times in 20 | {figures.ece_bound:.4f} |
| Brier score | {figures.brier:.4f} |
| log loss | {figures.log_loss:.4f} |
| accuracy of all answers | {figures.accuracy:.4f} |
| accuracy of the surest 80 % | {figures.accuracy_at_80:.4f} |

Reliability: the bar is the share that was right, the mark where it should end.

```
{_diagram(figures)}
```

Risk and coverage: the share of wrong answers if only the surest are given (`min_confidence`).

| answers given | {" | ".join(f"{float(share):.0%}" for share in figures.risk_coverage)} |
|---|{"---|" * len(figures.risk_coverage)}
| wrong | {" | ".join(f"{risk:.3f}" for risk in figures.risk_coverage.values())} |
"""


def _diagram(figures: CalibrationFigures) -> str:
    lines = ["confidence  right  answers"]
    for row in figures.bins:
        bar = ["#" if step < round(row.accuracy * _WIDTH) else " " for step in range(_WIDTH + 1)]
        bar[round(row.confidence * _WIDTH)] = "|"
        line = f"{row.confidence:>10.3f}  {row.accuracy:>5.3f}  {row.number:>7}  {''.join(bar)}"
        lines.append(line.rstrip())
    return "\n".join(lines)
