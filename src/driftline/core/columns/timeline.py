"""A table's batches on time axes: in runs of batches, and by the calendar; however many batches there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from driftline.core.columns.statistics import CommittedBatch, KnownSnapshot, to_minute

SLOTS = 60  # of an axis at most
_ENOUGH = 12  # slots by the calendar, where a finer unit has more
_MAX_YEAR = 9999


@dataclass(frozen=True, slots=True)
class TimeSlot:
    """A place on an axis: some consecutive batches, or a stretch of the calendar, even one without batches.

    Attributes:
        label: names it on the axis.
        batches: the number of batches in it.
        records: the records that they added.
        first: the first of them.
        last: the last of them.
        periods: the periods of `TimeAxes` that it consists of.
    """

    label: str
    batches: int
    records: int
    first: CommittedBatch | None
    last: CommittedBatch | None
    periods: range


@dataclass(frozen=True, slots=True)
class TimeAxes:
    """Batches on both axes.

    Counts are kept by period: a run of batches that no axis divides.

    Attributes:
        period_of: by the place of each batch, its period.
        by_date: empty if all batches are of one minute.
    """

    period_of: tuple[int, ...]
    by_batch: tuple[TimeSlot, ...]
    by_date: tuple[TimeSlot, ...]


def time_axes(batches: Sequence[CommittedBatch], slots: int = SLOTS) -> TimeAxes:
    """Put batches, oldest first, on axes of at most so many ``slots``.

    >>> day = 86_400_000
    >>> axes = time_axes([CommittedBatch(at * day, None, 1) for at in (0, 0, 2)])
    >>> [slot.batches for slot in axes.by_batch], [(s.label, s.batches) for s in axes.by_date]
    ([1, 1, 1], [('1970-01-01', 2), ('1970-01-02', 0), ('1970-01-03', 1)])
    """
    each = -(-len(batches) // slots) or 1
    runs = [range(i, min(i + each, len(batches))) for i in range(0, len(batches), each)]
    # A clock may run backwards, batches do not.
    times = list(accumulate((batch.at for batch in batches), max))
    stretches = _calendar(times, slots)
    starts = sorted({run.start for run in runs} | {run.start for _, run in stretches if run})
    place = {start: period for period, start in enumerate(starts)} | {len(batches): len(starts)}
    period_of = [0] * len(batches)
    for period, (start, stop) in enumerate(pairwise([*starts, len(batches)])):
        period_of[start:stop] = [period] * (stop - start)

    def slot(label: str, run: range) -> TimeSlot:
        """The slot of a run of batches."""
        periods = range(place[run.start], place[run.stop]) if run else range(0)
        return _slot(label, batches[run.start : run.stop], periods)

    return TimeAxes(
        tuple(period_of),
        tuple(slot(to_minute(batches[run.start].at), run) for run in runs),
        tuple(slot(label, run) for label, run in stretches) if len(stretches) > 1 else (),
    )


def periods(snapshots: Sequence[KnownSnapshot]) -> list[int | None]:
    """The period of each snapshot; None for one whose files have older rows."""
    period_of = iter(time_axes([s.batch for s in snapshots if s.born]).period_of)
    return [next(period_of) if s.born else None for s in snapshots]


def _slot(label: str, batches: Sequence[CommittedBatch], periods: range) -> TimeSlot:
    first, last = (batches[0], batches[-1]) if batches else (None, None)
    return TimeSlot(label, len(batches), sum(batch.records for batch in batches), first, last, periods)


def _calendar(times: Sequence[int], slots: int) -> list[tuple[str, range]]:
    """The stretches of the best unit of the calendar, each with its label."""
    if not times:
        return []
    first, last = (datetime.fromtimestamp(millis / 1000, UTC) for millis in (times[0], times[-1]))
    starts, form = _unit(first, last, len(times), slots)
    places, place = [0], 0
    for start in starts[1:]:
        while times[place] < start.timestamp() * 1000:
            place += 1
        places.append(place)
    stops = [*places[1:], len(times)]
    return [(start.strftime(form), range(*ends)) for start, *ends in zip(starts, places, stops, strict=True)]


def _unit(first: datetime, last: datetime, batches: int, slots: int) -> tuple[list[datetime], str]:
    """The beginnings of stretches, few enough, and enough for the batches; and the form of their labels."""
    chosen: tuple[list[datetime], str] = [], ""
    for begin, following, form in _UNITS:
        starts = [begin(first)]
        while len(starts) <= slots and (after := following(starts[-1])) is not None and after <= last:
            starts.append(after)
        if chosen[0] and len(starts) < min(batches, _ENOUGH):
            break
        if len(starts) <= slots:
            chosen = starts, form
    return chosen


def _steps(step: timedelta) -> Callable[[datetime], datetime | None]:
    return lambda start: start + step


def _months(start: datetime) -> datetime | None:
    return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)


def _years(count: int) -> Callable[[datetime], datetime | None]:
    return lambda start: None if start.year + count > _MAX_YEAR else start.replace(year=start.year + count)


def _day(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


_UNITS: Sequence[
    tuple[Callable[[datetime], datetime], Callable[[datetime], datetime | None], str]
] = (
    (lambda m: m.replace(second=0, microsecond=0), _steps(timedelta(minutes=1)), "%Y-%m-%d %H:%MZ"),
    (lambda m: m.replace(minute=0, second=0, microsecond=0), _steps(timedelta(hours=1)), "%Y-%m-%d %H:00Z"),
    (_day, _steps(timedelta(days=1)), "%Y-%m-%d"),
    (lambda m: _day(m) - timedelta(days=m.weekday()), _steps(timedelta(days=7)), "week of %Y-%m-%d"),
    (lambda m: _day(m).replace(day=1), _months, "%Y-%m"),
    (lambda m: _day(m).replace(month=1, day=1), _years(1), "%Y"),
    (lambda m: _day(m).replace(year=m.year - m.year % 10, month=1, day=1), _years(10), "%Ys"),
    (lambda m: _day(m).replace(year=m.year - m.year % 200, month=1, day=1), _years(200), "from %Y"),
)  # fmt: skip
