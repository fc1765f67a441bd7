"""Charts of a table's statistics by batch and by date: records, drift, quarantine, on one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from driftline.core.columns.statistics import CommittedBatch, to_minute
from driftline.core.columns.timeline import TimeSlot, time_axes
from driftline.core.schema.types import dotted
from driftline.report.lines import clean
from driftline.report.page import chart
from driftline.report.stats_text import percent
from driftline.stats.model import DriftedField, ExpectationOverTime, Stats

IN_SHORT = 6  # fields in a notebook


@dataclass(frozen=True, slots=True)
class Axis:
    """A time axis of some batches.

    Attributes:
        name: batch or date.
        ticks: its slots, oldest first.
        periods: those of each slot; None is that of what came before all batches.
        ends: the time of the last batch in each slot.
    """

    name: str
    ticks: tuple[chart.Tick, ...]
    periods: tuple[tuple[int | None, ...], ...]
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the bars: its counts by period, 0 where none is given, None where one is not known."""

    name: str
    shade: str
    counts: Mapping[int | None, int | None]

    def by_slot(self, axis: Axis) -> list[int | None]:
        """The counts in each slot of an axis."""
        slots = ([self.counts.get(period, 0) for period in periods] for periods in axis.periods)
        return [None if None in slot else sum(count or 0 for count in slot) for slot in slots]


def axes_of(batches: Sequence[CommittedBatch], before: int | None = None) -> list[Axis]:
    """The axes of some batches, oldest first: by batch, and by date if that is more than one slot.

    Args:
        before: a slot in front is for what came before this time.
    """
    divided, axes = time_axes(batches), []
    for name, slots in (("batch", divided.by_batch), ("date", divided.by_date)):
        if slots:
            ticks = [chart.Tick(slot.label, _about(slot, name)) for slot in slots]
            periods: list[tuple[int | None, ...]] = [tuple(slot.periods) for slot in slots]
            ends = [to_minute(slot.last.at) if slot.last else "" for slot in slots]
            if before is not None:
                label = f"before {to_minute(before)}"
                about = f"{label}: batches that are no longer known, or whose files were written anew"
                ticks, periods, ends = [chart.Tick(label, about), *ticks], [(None,), *periods], [label, *ends]
            axes.append(Axis(name, tuple(ticks), tuple(periods), tuple(ends)))
    return axes


def _about(slot: TimeSlot, axis: str) -> str:
    """A slot at length: its batch, or how many there are, until when."""
    if slot.first is None or slot.last is None:
        return f"{slot.label}, no batch"
    if slot.batches > 1:
        until = f" to {to_minute(slot.last.at)}" if axis == "batch" else ""
        return f"{slot.label}{until}, {slot.batches:,} batches"
    batch = f" · {clean(slot.first.id)[:8]}" if slot.first.id else ""
    return f"{slot.label}{batch}" + (f", {to_minute(slot.first.at)}" if axis == "date" else "")


def charts(
    title: str, axes: Sequence[Axis], parts: Sequence[Part], *, shares: bool = False, legend: bool = True
) -> Markup:
    """A chart by each axis, of which one is in sight."""
    drawn = {}
    for axis in axes:
        series = [chart.Series(part.name, part.shade, part.by_slot(axis)) for part in parts]
        drawn[axis.name] = chart.chart(
            f"{title} by {axis.name}", axis.ticks, series, shares=shares, legend=legend
        )
    return chart.by_axis(drawn)


def axes(stats: Stats) -> list[Axis]:
    """The time axes of a table."""
    earlier = any(None in field.periods for field in stats.drifted)
    return axes_of(stats.known, stats.before if earlier else None)


def types(field: DriftedField) -> list[Part]:
    """The types of a drifted field, each with its shade, and its values by period."""
    shades = chart.shades([chart.kind(part.types[0]) for part in field.parts])
    return [
        Part(part.name, shade, {period: values[i] for period, values in field.periods.items()})
        for i, (part, shade) in enumerate(zip(field.parts, shades, strict=True))
    ]


def drift(field: DriftedField, axes: Sequence[Axis], *, legend: bool = True) -> Markup | None:
    """The share of each type of a field over time; None if it is not counted by period."""
    title = f"Types of {clean(dotted(field.path))}"
    return charts(title, axes, types(field), shares=True, legend=legend) if field.periods else None


def in_short(stats: Stats) -> Markup:
    """Charts of the first drifted fields by batch, with their own style, for a notebook."""
    by_batch = axes(stats)[:1]
    fields = [field for field in stats.drifted if field.periods][:IN_SHORT]
    if not fields:
        return Markup("")
    used = {part.shade for field in fields for part in types(field)}
    drawn = (
        Markup("<h4><code>{}</code></h4>{}").format(clean(dotted(field.path)), drift(field, by_batch))
        for field in fields
    )
    return Markup('<div class="driftline"><style>.driftline{{max-width:40rem;{}}}</style>{}{}</div>').format(
        Markup(chart.STYLE),  # noqa: S704  our own
        chart.patterns(used),
        Markup("").join(drawn),
    )


def last_seen(part: Part, axes: Sequence[Axis]) -> str:
    """The time of the last batch that certainly brought a value; "" if that is not known."""
    for axis in axes[:1]:
        counts = part.by_slot(axis)
        return next((axis.ends[i] for i in reversed(range(len(counts))) if counts[i]), "")
    return ""


def records(stats: Stats) -> Markup | None:
    """The records that batches brought; None if no batch is known."""
    counts: dict[int | None, int | None] = {}
    for period, batch in zip(time_axes(stats.known).period_of, stats.known, strict=True):
        counts[period] = (counts.get(period) or 0) + batch.records
    axes, parts = axes_of(stats.known), [Part("records", "plain", counts)]
    return charts("Records", axes, parts, legend=False) if axes else None


def refused(stats: Stats) -> Markup | None:
    """The records in quarantine by reason, over all batches; None if they are not known by batch."""
    if not stats.refused:
        return None
    # Records of a batch wait from just before it was committed, and a batch may have no others.
    times = {batch.id: batch.at for batches in stats.refused.values() for batch in batches}
    times |= {batch.id: batch.at for batch in stats.known if batch.id is not None}
    batches = sorted(
        (CommittedBatch(time, id_, 0) for id_, time in times.items()), key=lambda batch: batch.at
    )
    period_of = dict(zip((batch.id for batch in batches), time_axes(batches).period_of, strict=True))
    parts = []
    for (reason, of_reason), tone in zip(stats.refused.items(), chart.TONES, strict=False):
        counts: dict[int | None, int | None] = {}
        for batch in of_reason:
            period = period_of[batch.id]
            counts[period] = (counts.get(period) or 0) + batch.records
        parts.append(Part(reason or "other reasons", tone, counts))
    return charts("Records in quarantine", axes_of(batches), parts)


def expectation(expected: ExpectationOverTime) -> Markup | None:
    """The records that do not meet an expectation, by batch; None if there are none."""
    if not expected.batches:
        return None
    ticks = []
    for batch in expected.batches:
        label = to_minute(batch.at) if batch.batch else to_minute(batch.at)[:10]
        which = f" · {clean(batch.batch)[:8]}" if batch.batch else ", batches that had any"
        about = f"{label}{which}, {batch.records:,} records ({percent(batch.share)})"
        ticks.append(chart.Tick(label, about))
    counts = [batch.violations for batch in expected.batches]
    series = [chart.Series("not as expected", "tone-1", counts)]
    return chart.chart(f"Violations of {clean(expected.name)} by batch", ticks, series, legend=False)
