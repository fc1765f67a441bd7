"""A chart of stacked bars over time, as HTML by itself: for a page, a notebook, a server's answer.

Everything that is data is escaped. Colours are never the only sign: each has a pattern, and each chart its
numbers as a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape

from driftline.core.schema.types import Primitive, Type, peel
from driftline.report.lines import clean
from driftline.report.stats_text import percent

# The one table of colours: of each kind of type, then of what is no type. Each has three times the contrast
# of the cards behind it (WCAG 1.4.11), by day and by night, and a pattern of its own.
_COLOURS = {
    "whole": ("#3f7fd2", ""), "fraction": ("#1c8f86", "M0 4h8"), "decimal": ("#7d77e0", "M0 4h8M4 0v8"),
    "text": ("#c07f1e", "M-2 2l4-4M0 8l8-8M6 10l4-4"), "time": ("#4c8f3a", "M4 0v8"),
    "boolean": ("#c75a88", "M2 2h2v2h-2zM6 6h2v2h-2z"), "list": ("#a5705a", "M-2 6l4 4M0 0l8 8M6-2l4 4"),
    "record": ("#75808f", "M0 0h4v4h-4zM4 4h4v4h-4z"), "other": ("#838b96", "M0 6l4-4 4 4"),
    "plain": ("#2f8f88", ""), "tone-1": ("#d4574b", ""), "tone-2": ("#b0742c", "M0 8l8-8M-2 2l4-4M6 10l4-4"), "tone-3": ("#9a70c4", "M0 4h8"),
    "tone-4": ("#3f8fa8", "M4 0v8"), "tone-5": ("#7c8c3c", "M2 2h2v2h-2z"), "tone-6": ("#838b96", "M0 4h8M4 0v8"),
}  # fmt: skip
KINDS = ("whole", "fraction", "decimal", "text", "time", "boolean", "list", "record", "other")
TONES = tuple(name for name in _COLOURS if name.startswith("tone-"))  # of reasons, rules and the like
_KINDS = {
    "string": "text", "uuid": "text", "boolean": "boolean", "int": "whole", "long": "whole", "float": "fraction",
    "double": "fraction", "decimal": "decimal", "date": "time", "time": "time", "timestamp": "time",
    "timestamp_ntz": "time",
}  # fmt: skip
_AGAIN = {"": 1.0, "-2": 0.5, "-3": 1.75}  # widths of the pattern, where a field has several types of a kind
_STRIPES = "M0 2h8M0 6h8"  # for those without a pattern
_WIDTH, _HEIGHT, _BAR = 600, 84, 40  # the widest bar
_GAP = 0.16  # of a bar's room
STYLE = (Path(__file__).parent / "chart.css").read_text()


class Tick(NamedTuple):
    """A slot of the axis. ``about``: the same at more length, for the table."""

    label: str
    about: str


class Series(NamedTuple):
    """The counts of one part by slot; None: unknown. ``shade``: the name of its colour and pattern."""

    name: str
    shade: str
    counts: Sequence[int | None]


def kind(type_: Type) -> str:
    """The kind by which a type is coloured and filtered."""
    dim, base = peel(type_)
    if dim:
        return "list"
    return _KINDS.get(base.name, "other") if isinstance(base, Primitive) else "record"


def palette() -> Mapping[str, str]:
    """The colour of each kind and tone."""
    return {name: colour for name, (colour, _) in _COLOURS.items()}


def variables() -> str:
    """The colours as properties of CSS, ``--whole`` and so on."""
    return ";".join(f"--{name}:{colour}" for name, colour in palette().items())


def shades(kinds: Sequence[str]) -> list[str]:
    """The shade of each of some parts by their kinds, different ones for parts of one kind.

    >>> shades(["text", "whole", "text"])
    ['text', 'whole', 'text-2']
    """
    again = list(_AGAIN)
    return [kind + again[min(list(kinds[:i]).count(kind), len(again) - 1)] for i, kind in enumerate(kinds)]


def patterns(used: Collection[str] | None = None) -> Markup:
    """The patterns that charts and swatches of a document refer to; those that are ``used``, or all."""
    defined = Markup("").join(
        _pattern(kind, again) for kind in _COLOURS for again in _AGAIN if used is None or kind + again in used
    )
    return Markup('<svg width="0" height="0" class="patterns" aria-hidden="true">{}</svg>').format(defined)


def _pattern(kind: str, again: str) -> Markup:
    colour, path = _COLOURS[kind]
    path = path or (_STRIPES if again else "")
    # A square of 9, so that neighbours overlap: scaled tiles show seams otherwise.
    return Markup(
        '<pattern id="p-{}" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="scale({})">'
        '<path d="M0 0h9v9h-9z" fill="{}"/>{}</pattern>'
    ).format(
        kind + again,
        _AGAIN[again],
        colour,
        Markup('<path d="{}" stroke="#fff" stroke-opacity=".6" fill="none"/>').format(path) if path else "",
    )


def swatch(shade: str) -> Markup:
    """A small square of a shade, beside its name."""
    return Markup(
        '<svg class="swatch" width="14" height="14" aria-hidden="true"><rect width="14" height="14" rx="3" fill="url(#p-{})"/></svg>'
    ).format(shade)


def bar(parts: Sequence[tuple[str, float]], spoken: str) -> Markup:
    """One bar, of the shares of some shades."""
    drawn, start = Markup(""), 0.0
    for shade, share in parts:
        drawn += Markup('<rect x="{:.1f}" width="{:.1f}" height="10" fill="url(#p-{})"/>').format(
            start * _WIDTH, max(share * _WIDTH - 2, 3), shade
        )
        start += share
    return Markup(
        '<svg class="bar" viewBox="0 0 {} 10" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, spoken, drawn)


def chart(
    title: str, ticks: Sequence[Tick], series: Sequence[Series], *, shares: bool = False, legend: bool = True
) -> Markup:
    """The chart of some series: bars, the ends of the axis, and a table of all numbers to open.

    Args:
        title: describes it, and is said by a screen reader.
        ticks: the slots of the axis, oldest first.
        series: what the bars consist of, from below.
        shares: bars are of one height, and each part is a share of its slot.
        legend: say which shade is which.
    """
    names = Markup("").join(
        Markup("<li>{}{}</li>").format(swatch(part.shade), clean(part.name)) for part in series
    )
    return Markup(
        '<figure class="chart"><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
        '<div class="axis" aria-hidden="true">{}</div>{}{}</figure>'
    ).format(
        _WIDTH,
        _HEIGHT,
        _spoken(title, ticks, series, shares=shares),
        Markup("").join(_paths(len(ticks), series, shares=shares)),
        Markup("").join(
            Markup("<span>{}</span>").format(tick.label) for tick in dict.fromkeys((*ticks[:1], *ticks[-1:]))
        ),
        Markup('<ul class="legend">{}</ul>').format(names) if legend else "",
        _table(title, ticks, series, shares=shares),
    )


def _totals(series: Sequence[Series]) -> list[int]:
    return [sum(count or 0 for count in slot) for slot in zip(*(part.counts for part in series), strict=True)]


def _paths(slots: int, series: Sequence[Series], *, shares: bool) -> Iterator[Markup]:
    """A path for each series, of all its bars: few elements, however many slots there are."""
    totals = _totals(series)
    measured = [None not in slot for slot in zip(*(part.counts for part in series), strict=True)]
    room = min(_WIDTH / max(slots, 1), _BAR)
    high = max(totals, default=0) or 1
    tops = [float(_HEIGHT)] * slots
    for part in series:
        drawn = []
        for i, count in enumerate(part.counts):
            if not count or (shares and not measured[i]):
                continue
            tall = max(_HEIGHT * count / (totals[i] if shares else high), 1.5)
            tops[i] = max(tops[i] - tall, 0)
            drawn.append(
                f"M{i * room:.4g} {tops[i]:.4g}h{room * (1 - _GAP):.3g}v{max(tall - 0.8, 1):.4g}h-{room * (1 - _GAP):.3g}z"
            )
        if drawn:
            yield Markup('<path d="{}" fill="url(#p-{})"/>').format("".join(drawn), part.shade)


def _spoken(title: str, ticks: Sequence[Tick], series: Sequence[Series], *, shares: bool) -> str:
    """The title, and what the first and the last slot with a value say."""
    totals = _totals(series)
    filled = [i for i, total in enumerate(totals) if total]
    ends = [
        f"{ticks[i].label}: "
        + ", ".join(
            f"{_cell(part.counts[i], totals[i], shares=shares)} {clean(part.name)}"
            for part in series
            if part.counts[i] != 0
        )
        for i in dict.fromkeys((*filled[:1], *filled[-1:]))
    ]
    return f"{title}. {'; '.join(ends) or 'no values'}"


def _cell(count: int | None, total: int, *, shares: bool) -> str:
    if count is None:
        return "?"
    return percent(count / total) if shares and total else f"{count:,}"


def _number(count: int | None, total: int, *, shares: bool) -> str:
    share = f" · {percent(count / total)}" if shares and total and count is not None else ""
    return "?" if count is None else f"{count:,}{share}"


def _table(title: str, ticks: Sequence[Tick], series: Sequence[Series], *, shares: bool) -> Markup:
    """The numbers. Rows and cells end where the next begins, as HTML allows: a page has many of them."""
    totals = _totals(series)
    rows = (
        Markup("<tr><th scope=row>{}{}").format(
            clean(tick.about),
            Markup("").join(
                Markup("<td>{}").format(_number(part.counts[i], totals[i], shares=shares)) for part in series
            ),
        )
        for i, tick in enumerate(ticks)
    )
    heads = Markup("").join(Markup("<th scope=col>{}").format(clean(part.name)) for part in series)
    return Markup(
        '<details class="numbers"><summary>Numbers</summary><div class="wide-table" role="group" tabindex="0" aria-label="{}">'
        "<table><thead><tr><th scope=col>when{}<tbody>{}</table></div></details>"
    ).format(title, heads, Markup("").join(rows))


def by_axis(charts: Mapping[str, Markup]) -> Markup:
    """A chart by several axes, of which one is in sight: the one that `switch` has on."""
    if len(charts) == 1:
        return next(iter(charts.values()))
    return Markup("").join(
        Markup('<div class="by-{}">{}</div>').format(axis, drawn) for axis, drawn in charts.items()
    )


def switch() -> Markup:
    """The choice between both axes, of all charts of the document; it needs no script."""
    options = Markup("").join(
        Markup('<label><input type="radio" name="axis" id="axis-{}"{}><span>{}</span></label>').format(
            axis, Markup(" checked") if axis == "batch" else "", escape(f"By {axis}")
        )
        for axis in ("batch", "date")
    )
    return Markup('<fieldset class="axes"><legend class="hidden">Time axis</legend>{}</fieldset>').format(
        options
    )
