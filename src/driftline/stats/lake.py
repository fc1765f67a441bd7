"""Statistics of all tables of a lake."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from driftline.core.columns.statistics import iso
from driftline.core.support import as_json
from driftline.errors import UsageError
from driftline.ingest.pattern import is_other
from driftline.runtime.shown import Shown
from driftline.stats.model import Event, EventJson, Stats, StatsJson

DAYS = 7  # whose drift is reported
_DAY = 86_400_000  # milliseconds


def _now() -> int:
    return time.time_ns() // 1_000_000


class LakeDriftJson(EventJson):
    """Drift of a table."""

    table: str


class LakeStatsJson(TypedDict):
    """The statistics of a lake: the last drift, then each table."""

    lake: str
    at: str
    drift: list[LakeDriftJson]
    tables: list[StatsJson]


@dataclass(frozen=True, slots=True)
class PatternStats:
    """The tables that a pattern made, by name, with the `_other` beside them; counts are those of all."""

    pattern: str
    tables: tuple[Stats, ...]

    @property
    def records(self) -> int | None:
        """Their records; None if those of one are unknown."""
        return _sum(table.records for table in self.tables)

    @property
    def leaves(self) -> tuple[int, int]:
        """The columns of the narrowest and of the widest table."""
        widths = [table.leaves for table in self.tables]
        return min(widths), max(widths)

    @property
    def drifted_fields(self) -> int:
        """Their drifted fields."""
        return sum(table.drifted_fields for table in self.tables)

    @property
    def quarantined(self) -> int:
        """Their records in quarantine."""
        return sum(table.quarantined for table in self.tables)

    @property
    def waiting_values(self) -> int:
        """Their values in the rest."""
        return sum(table.waiting_values for table in self.tables)

    @property
    def at(self) -> int | None:
        """The time of their last commit."""
        return max((table.at for table in self.tables if table.at is not None), default=None)


def by_pattern(tables: Sequence[Stats]) -> Iterator[Stats | PatternStats]:
    """Yield the tables, and one value for those that a pattern made, where the first of them stands.

    The only table of a pattern stays by itself.
    """
    patterns = _patterns(tables)
    of_pattern: dict[str, list[Stats]] = {}
    for table in tables:
        of_pattern.setdefault(patterns.get(table.table, ""), []).append(table)
    for table in tables:
        pattern = patterns.get(table.table, "")
        together = of_pattern[pattern]
        if not pattern or len(together) == 1:
            yield table
        elif table is together[0]:
            yield PatternStats(pattern, tuple(together))


def made_by(pattern: str, tables: Sequence[Stats]) -> tuple[Stats, ...]:
    """The tables that a pattern made, and the `_other` beside them. Raises UsageError if there are none."""
    patterns = _patterns(tables)
    of_pattern = tuple(table for table in tables if patterns.get(table.table) == pattern)
    if not of_pattern:
        raise UsageError(f"there is no table of {pattern}", "`driftline tables` lists the tables that exist")
    return of_pattern


def _patterns(tables: Sequence[Stats]) -> dict[str, str]:
    """The patterns that made tables, by name."""
    patterns = {table.table: table.pattern for table in tables if table.pattern is not None}
    in_namespace: dict[str, set[str]] = {}
    for name, pattern in patterns.items():
        in_namespace.setdefault(_namespace(name), set()).add(pattern)
    for table in tables:
        beside = in_namespace.get(_namespace(table.table), set())
        if is_other(table.table) and len(beside) == 1:  # of two patterns it may be the other's
            patterns[table.table] = min(beside)
    return patterns


def _namespace(table: str) -> str:
    return table.rpartition(".")[0]


def _sum(counts: Iterable[int | None]) -> int | None:
    numbers = list(counts)
    return None if None in numbers else sum(count or 0 for count in numbers)


@dataclass(frozen=True, slots=True, repr=False)
class LakeStats(Shown):
    """The statistics of a lake's tables, by name.

    Attributes:
        at: when they were looked at, in milliseconds.
    """

    lake: str
    tables: tuple[Stats, ...]
    at: int = field(default_factory=_now)

    @property
    def records(self) -> int | None:
        """The records of all tables; None if those of one are unknown."""
        return _sum(table.records for table in self.tables)

    @property
    def drift(self) -> tuple[tuple[Stats, Event], ...]:
        """The drift of the last `DAYS`, newest first, each with its table."""
        since = self.at - DAYS * _DAY
        drifted = [
            (table, event)
            for table in self.tables
            for event in table.events
            if event.steps and event.at is not None and event.at >= since
        ]
        return tuple(sorted(drifted, key=lambda pair: -(pair[1].at or 0)))

    @property
    def waiting(self) -> tuple[Stats, ...]:
        """The tables with records waiting in quarantine, or values in the rest."""
        return tuple(table for table in self.tables if table.quarantined or table.rest)

    def to_dict(self) -> LakeStatsJson:
        """The form that `--json` prints."""
        drift = [{"table": table.table, **event.to_dict()} for table, event in self.drift]
        return as_json(LakeStatsJson, self, at=iso(self.at), drift=drift)


def last_drift(stats: Stats | PatternStats) -> int | None:
    """The time of the last drift of a field, in milliseconds; None if there was none, or that is unknown."""
    tables = stats.tables if isinstance(stats, PatternStats) else [stats]
    events = (event for table in tables for event in table.events)
    return max((event.at for event in events if event.steps and event.at is not None), default=None)
