"""Charts as Vega-Lite, by Altair: forms without data, which the page fills and draws.

Colors are named `$positive`, `$ink` and so on; the page puts in those of its light or dark look.
"""

from __future__ import annotations

from typing import Any

_PERCENT = "%"


def chart_specs() -> dict[str, dict[str, Any]]:
    """Return every chart of the page by its name."""
    import altair as alt

    return {
        "praised": _ranking(alt, "$positive"),
        "blamed": _ranking(alt, "$negative"),
        "trend": _trend(alt),
        "grid": _grid(alt),
        "dots": _dots(alt),
        "surety": _surety(alt),
    }


def _spec(chart: Any) -> dict[str, Any]:  # noqa: ANN401  (Altair has many kinds of charts)
    spec: dict[str, Any] = chart.to_dict(validate=True)
    del spec["config"], spec["$schema"]  # the page brings its own, and asks nobody
    for part in (spec, *spec.get("layer", ())):
        part.pop("data", None)
    return spec


def _ranking(alt: Any, color: str) -> dict[str, Any]:  # noqa: ANN401
    """Bars: how many mentions of 1,000 reviews praise or blame an aspect, with intervals."""
    base = alt.Chart(alt.NamedData(name="rows")).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=150, ticks=False)),
        tooltip="tip:N",
    )
    bars = base.mark_bar(color=color, cursor="pointer", cornerRadiusEnd=3, height={"band": 0.66})
    bars = bars.encode(x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=4)))
    rules = base.mark_rule(color="$ink", strokeWidth=1.5, opacity=0.75, cursor="pointer")
    rules = rules.encode(x=alt.X("low:Q"), x2="high:Q")
    return _spec((bars + rules).properties(width="container", height=alt.Step(25)))


def _trend(alt: Any) -> dict[str, Any]:  # noqa: ANN401
    """Shares by period with bands, and below them the number of mentions."""
    x = alt.X("start:T", title=None, axis=alt.Axis(grid=False, labelOverlap=True, tickCount=6))
    shares = []
    for polarity in ("negative", "positive"):
        base = alt.Chart(alt.NamedData(name="rows")).encode(x=x, tooltip="tip:N")
        color = f"${polarity}"
        band = base.mark_area(color=color, opacity=0.16).encode(
            y=alt.Y(f"{polarity}_low:Q", axis=_share_axis(alt)), y2=f"{polarity}_high:Q"
        )
        scale = alt.Scale(domain=[0, 1])
        y = alt.Y(f"{polarity}:Q", title=None, scale=scale, axis=_share_axis(alt))
        line = base.mark_line(color=color, strokeWidth=2.5).encode(y=y)
        points = base.mark_point(color=color, filled=True, size=34, opacity=1).encode(y=y)
        shares += [band, line, points]
    above = alt.layer(*shares).properties(width="container", height=190)
    return _spec(above)


def _share_axis(alt: Any) -> Any:  # noqa: ANN401
    return alt.Axis(format=_PERCENT, tickCount=5, title=None)


def _grid(alt: Any) -> dict[str, Any]:  # noqa: ANN401
    """Aspects by groups, each colored by its net share; a dot where a group differs clearly."""
    base = alt.Chart(alt.NamedData(name="rows")).encode(
        x=alt.X(
            "group:N",
            sort=None,
            title=None,
            axis=alt.Axis(orient="top", labelAngle=0, labelLimit=110, ticks=False, domain=False),
        ),
        y=alt.Y(
            "name:N",
            sort=None,
            title=None,
            axis=alt.Axis(labelLimit=150, ticks=False, domain=False),
        ),
        tooltip="tip:N",
    )
    scale = alt.Scale(
        domain=[-1, 0, 1],
        range=["$negative", "$ground", "$positive"],
        clamp=True,
        interpolate="lab",
    )
    cells = base.mark_rect(cornerRadius=4, stroke="$card", strokeWidth=3, cursor="pointer").encode(
        color=alt.Color("net:Q", scale=scale, legend=None), opacity=_faded(alt)
    )
    dark = "abs(datum.net) > 0.55 && !datum.few"
    inked = alt.condition(dark, alt.value("$on_tone"), alt.value("$ink"))
    texts = base.mark_text(fontSize=12.5, cursor="pointer").encode(text="label:N", color=inked)
    return _spec((cells + texts).properties(width="container", height=alt.Step(32)))


def _faded(alt: Any, usual: float = 1) -> Any:  # noqa: ANN401
    """What few reviews mention is paler."""
    return alt.condition("datum.few", alt.value(usual * 0.35), alt.value(usual))


def _dots(alt: Any) -> dict[str, Any]:  # noqa: ANN401
    """Shares of one aspect in each group, with intervals."""
    layers = []
    for polarity in ("negative", "positive"):
        base = alt.Chart(alt.NamedData(name="rows")).encode(
            y=alt.Y("group:N", sort=None, title=None, axis=alt.Axis(labelLimit=130, ticks=False)),
            tooltip="tip:N",
        )
        scale = alt.Scale(domain=[0, 1])
        rule = base.mark_rule(color=f"${polarity}", strokeWidth=5, strokeCap="round")
        point = base.mark_point(color=f"${polarity}", filled=True, size=80)
        layers += [
            rule.encode(
                x=alt.X(f"{polarity}_low:Q", scale=scale, axis=_share_axis(alt)),
                x2=f"{polarity}_high:Q",
                opacity=_faded(alt, 0.28),
            ),
            point.encode(
                x=alt.X(f"{polarity}:Q", scale=scale, title=None, axis=_share_axis(alt)),
                opacity=_faded(alt),
            ),
        ]
    return _spec(alt.layer(*layers).properties(width="container", height=alt.Step(26)))


def _surety(alt: Any) -> dict[str, Any]:  # noqa: ANN401
    """How sure mentions are; those below the limit stand out."""
    color = alt.condition("datum.unsure", alt.value("$negative"), alt.value("$neutral"))
    bars = (
        alt.Chart(alt.NamedData(name="rows"))
        .mark_bar(binSpacing=1)
        .encode(
            x=alt.X("low:Q", bin="binned", title="confidence", axis=alt.Axis(tickCount=6)),
            x2="high:Q",
            y=alt.Y("share:Q", title=None, axis=alt.Axis(format=_PERCENT, tickCount=3)),
            color=color,
            tooltip="tip:N",
        )
    )
    return _spec(bars.properties(width="container", height=130))
