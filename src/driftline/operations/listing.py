"""Lists the records of a table's quarantine by reason, by Spark or, without Java, by DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from driftline.core.schema.naming import QUARANTINE
from driftline.core.support import as_json
from driftline.errors import DriftlineError
from driftline.operations import quarantine_sql
from driftline.operations.quarantine_sql import ORDER, Ask
from driftline.quarantine.replays import IS_DISCARDED
from driftline.runtime.shown import Shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.formats.open import EmbeddedLake

LISTED = 100  # groups
_SAMPLE = 500  # characters of a record
_PLACE = (
    "coalesce(case when r.topic is not null then concat(r.topic, '/', r.partition, ':', r.offset) "
    "when r.line > 0 then concat(coalesce(r.source, ''), ':', r.line) else r.source end, '')"
)
# Places in a text are no reasons of their own.
_GROUPS = f"""
select regexp_replace(r.reason, '[0-9]+', '0'{{all}}) as alike, coalesce(r.path, '') as path, coalesce(r.table_type, '') as table_type,
  coalesce(r.incoming_type, '') as incoming_type, count(*) as number,
  min_by(coalesce(r.reason, ''), {ORDER}) as reason,
  min_by(coalesce(left(r.raw, {_SAMPLE}), ''), {ORDER}) as sample,
  min_by({_PLACE}, {ORDER}) as place, max_by({_PLACE}, {ORDER}) as last_place,
  min(r.quarantined_at) as first, max(r.quarantined_at) as last
from {{rows}} as r where {{waits}}
group by 1, 2, 3, 4 order by number desc, path, alike limit {LISTED}
"""
# Not `count_if`, which is a sum in DuckDB: null of no rows.
_COUNTS = f"""
select count(*) filter (where {{waits}}) as waiting, count(*) filter (where {IS_DISCARDED}) as discarded,
  count(*) filter (where not {{waits}} and not {IS_DISCARDED}) as replayed
from {{rows}} as r
"""


class RejectGroupJson(TypedDict):
    """Records that wait for one reason. ``path`` null: it is not a field's."""

    reason: str
    path: str | None
    table_type: str | None
    incoming_type: str | None
    count: int
    sample: str
    seen_in: str
    last_seen_in: str
    first: str
    last: str


class QuarantineJson(TypedDict):
    """The records of a table's quarantine, by reason."""

    table: str
    waiting: int
    replayed: int
    discarded: int
    groups: list[RejectGroupJson]


@dataclass(frozen=True, slots=True)
class RejectGroup:
    """Records that wait for one reason. ``sample``: the first of them, ``place``: its origin; ``last_place``:
    that of the last one.
    """

    reason: str
    path: str
    table_type: str
    incoming_type: str
    count: int
    sample: str
    place: str
    first: datetime
    last: datetime
    last_place: str = ""

    def to_dict(self) -> RejectGroupJson:
        """The form that `--json` prints."""
        return {
            "reason": self.reason,
            "path": self.path or None,
            "table_type": self.table_type or None,
            "incoming_type": self.incoming_type or None,
            "count": self.count,
            "sample": self.sample,
            "seen_in": self.place,
            "last_seen_in": self.last_place,
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
        }


@dataclass(frozen=True, slots=True, repr=False)
class Quarantine(Shown):
    """The contents of a table's quarantine: ``waiting`` records by reason, and the numbers of those that were
    replayed or ``discarded``.
    """

    table: str
    waiting: int = 0
    replayed: int = 0
    discarded: int = 0
    groups: tuple[RejectGroup, ...] = ()

    def to_dict(self) -> QuarantineJson:
        """The form that `--json` prints."""
        return as_json(QuarantineJson, self)


def by_spark(table: str, rows: DataFrame, reached: int) -> Quarantine:
    """List the ``rows`` of the table's quarantine. ``reached``: the last replay that the table has."""
    return _listed(table, quarantine_sql.by_spark(rows, reached))


def by_duckdb(lake: EmbeddedLake, table: str) -> Quarantine | None:
    """List the records of the table's quarantine without Java; None where that takes Spark, or there is no
    such table.
    """
    names = lake.names()
    if names is None or f"{table}{QUARANTINE}" not in names:
        return None if names is None or lake.table(table) is None else Quarantine(table)
    ask = quarantine_sql.by_duckdb(lake, table)
    try:
        return None if ask is None else _listed(table, ask)
    except DriftlineError:  # DuckDB is not installed, or does not read the table: Spark does, or says why not
        return None


def _listed(table: str, ask: Ask) -> Quarantine:
    counts, groups = ask(_COUNTS), ask(_GROUPS)
    return Quarantine(table, **counts[0], groups=tuple(map(_group, groups)))


def _group(row: Mapping[str, Any]) -> RejectGroup:
    first, last = (row[name].astimezone(UTC) for name in ("first", "last"))
    return RejectGroup(
        row["reason"], row["path"], row["table_type"], row["incoming_type"], row["number"], row["sample"],
        row["place"], first, last, row["last_place"],
    )  # fmt: skip
