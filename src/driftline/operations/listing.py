"""Lists the records of a table's quarantine by reason, by Spark or, without Java, by DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from driftline.core.schema.naming import QUARANTINE
from driftline.core.support import as_json
from driftline.errors import DriftlineError
from driftline.operations.duckdb_query import query
from driftline.quarantine.replays import IS_DISCARDED, last_replay, waits
from driftline.runtime.duckdb import identifier
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
_ORDER = (
    "{row}(r.quarantined_at, coalesce(r.source, ''), coalesce(r.line, 0), coalesce(r.topic, ''), "
    "coalesce(r.partition, 0), coalesce(r.offset, 0))"
)
# Of SQL that both engines read; what they spell differently stands in braces.
_GROUPS = f"""
select {{alike}} as alike, coalesce(r.path, '') as path, coalesce(r.table_type, '') as table_type,
  coalesce(r.incoming_type, '') as incoming_type, count(*) as number,
  min_by(coalesce(r.reason, ''), {_ORDER}) as reason,
  min_by(coalesce(left(r.raw, {_SAMPLE}), ''), {_ORDER}) as sample,
  min_by({_PLACE}, {_ORDER}) as place, max_by({_PLACE}, {_ORDER}) as last_place,
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
# Places in a text are no reasons of their own.
_SPARK = {"row": "struct", "alike": "regexp_replace(r.reason, '[0-9]+', '0')"}
_DUCKDB = {"row": "row", "alike": "regexp_replace(r.reason, '[0-9]+', '0', 'g')"}


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
    counts, groups = (
        rows.sparkSession.sql(sql.format(rows="{rows}", waits=waits(reached), **_SPARK), rows=rows).collect()
        for sql in (_COUNTS, _GROUPS)  # reasons, not records
    )
    return _quarantine(table, counts[0].asDict(), (group.asDict() for group in groups))


def by_duckdb(lake: EmbeddedLake, table: str) -> Quarantine | None:
    """List the records of the table's quarantine without Java; None where that takes Spark, or there is no
    such table.
    """
    names, own = lake.names(), lake.table(table)
    if names is None or f"{table}{QUARANTINE}" not in names:
        return None if names is None or own is None else Quarantine(table)
    waiting = lake.table(f"{table}{QUARANTINE}")
    if waiting is None or (own is None and table in names):
        return None
    reached = last_replay(waiting.load(), own.load().properties if own else {})
    words = {"rows": ".".join(map(identifier, waiting.name.split("."))), "waits": waits(reached), **_DUCKDB}
    try:
        counts, groups = (_by_duckdb(lake, sql.format(**words)) for sql in (_COUNTS, _GROUPS))
    except DriftlineError:  # DuckDB is not installed, or does not read the table: Spark does, or says why not
        return None
    return _quarantine(table, counts[0], groups)


def _by_duckdb(lake: EmbeddedLake, sql: str) -> Sequence[Mapping[str, Any]]:
    with query(lake.in_duckdb(sql), sql) as batches:
        rows: Sequence[Mapping[str, Any]] = batches.read_all().to_pylist()
        return rows


def _quarantine(table: str, counts: Mapping[str, Any], groups: Iterable[Mapping[str, Any]]) -> Quarantine:
    return Quarantine(table, **counts, groups=tuple(map(_group, groups)))


def _group(row: Mapping[str, Any]) -> RejectGroup:
    first, last = (row[name].astimezone(UTC) for name in ("first", "last"))
    return RejectGroup(
        row["reason"], row["path"], row["table_type"], row["incoming_type"], row["number"], row["sample"],
        row["place"], first, last, row["last_place"],
    )  # fmt: skip
