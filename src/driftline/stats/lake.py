"""Statistics of all tables of a lake."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TypedDict

from driftline.core.columns.statistics import iso
from driftline.core.support import as_json
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
        counts = [table.records for table in self.tables]
        return None if None in counts else sum(count or 0 for count in counts)

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


def last_drift(stats: Stats) -> int | None:
    """The time of the last drift of a field, in milliseconds; None if there was none, or that is unknown."""
    return max((event.at for event in stats.events if event.steps and event.at is not None), default=None)
