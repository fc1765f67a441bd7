"""Spark SQL over a DuckLake: each table that a statement names becomes a view of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException

from driftline.errors import DataError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.offline import tables
from driftline.formats.ducklake.snapshot import LIVE, latest, live
from driftline.formats.ducklake.table import DuckLakeTable
from driftline.formats.lakes import BY_DUCKDB
from driftline.runtime.read_only import must_read
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG = "lake"  # may stand before a namespace
_ROUTINE = re.compile(
    r"UNRESOLVED_ROUTINE\] Cannot resolve (?:routine|function) ((?:`[^`]+`\.?)+)"
)  # 3.5: function
_NAMES = ("UnresolvedRelation", "UnresolvedTableOrView", "UnresolvedTable")


def sql(spark: SparkSession, catalog: CatalogDatabase, text: str) -> DataFrame:
    """Run a statement whose tables are named ``namespace.table``, with ``VERSION AS OF`` a snapshot,
    or ``TIMESTAMP AS OF`` a time, if asked.

    Raises UsageError for one that does more than read, DataError for
    views and macros, which are DuckDB's to run.
    """
    must_read(spark, text, BY_DUCKDB)
    session: Any = spark._jsparkSession
    try:
        plan = session.sessionState().sqlParser().parsePlan(text)
    except Exception:
        return spark.sql(text)  # which says what is wrong
    match plan.getClass().getSimpleName():
        case "ShowNamespacesCommand":
            return spark.createDataFrame([(n,) for n in namespaces(catalog)], "namespace string")
        case "ShowTables":
            named = _strings(plan.namespace(), "multipartIdentifier")[-1:]
            pairs = [pair for pair in tables(catalog) if not named or pair[0] == named[0]]
            if plan.pattern().isDefined():
                pairs = [pair for pair in pairs if _like(pair[1], str(plan.pattern().get()))]
            return spark.createDataFrame(pairs, "namespace string, tableName string")
    units = text.encode("utf-16-le")  # as Java counts
    # From the end, so that the text before keeps its place. A subquery is met twice.
    for relation in sorted(set(_relations(plan)), key=lambda r: -r.start):
        view = _view(spark, catalog, relation)
        if view is not None:
            if relation.travel is not None:
                units = _cut(units, *relation.travel, "")
            units = _cut(units, relation.start, relation.stop, view)
    try:
        return spark.sql(units.decode("utf-16-le"))
    except AnalysisException as error:
        if match := _ROUTINE.search(str(error)):
            _foreign(catalog, tuple(re.findall(r"`((?:[^`]|``)+)`", match[1])), "macro")
        raise


def _like(name: str, pattern: str) -> bool:
    """True if the name matches the pattern in Spark's syntax: ``*`` is anything, ``|`` separates
    alternatives.
    """
    parts = (".*".join(map(re.escape, part.strip().split("*"))) for part in pattern.split("|"))
    return re.fullmatch("|".join(parts), name, re.IGNORECASE) is not None


def _foreign(catalog: CatalogDatabase, name: tuple[str, ...], kind: str) -> None:
    """Raise DataError where the lake has a view, or a macro, of this name."""
    parts = _short(name)
    if len(parts) != 2 or not catalog.exists():
        return
    snapshot = catalog.read(latest)
    rows = catalog.read(
        lambda c: c.rows(
            f"SELECT 1 FROM meta.ducklake_{kind} v JOIN meta.ducklake_schema s ON s.schema_id = v.schema_id "
            f"WHERE lower(s.schema_name) = lower(?) AND lower(v.{kind}_name) = lower(?) AND {live('v')} AND {live('s')}",
            [*parts, snapshot, snapshot, snapshot, snapshot],
        )
    )
    if rows:
        raise DataError(
            f"{'.'.join(parts)} is a {kind} in DuckDB's SQL, which Spark does not have",
            hint="query it with DuckDB, or write the expression out",
        )


def _short(parts: tuple[str, ...]) -> tuple[str, ...]:
    return parts[1:] if len(parts) == 3 and parts[0] == CATALOG else parts


def _cut(units: bytes, start: int, stop: int, text: str) -> bytes:
    return units[: 2 * start] + text.encode("utf-16-le") + units[2 * stop :]


def namespaces(catalog: CatalogDatabase) -> list[str]:
    """The namespaces of the lake."""
    if not catalog.exists():
        return []
    snapshot = catalog.read(latest)
    return [
        name
        for (name,) in catalog.read(
            lambda c: c.rows(
                f"SELECT schema_name FROM meta.ducklake_schema WHERE {LIVE} ORDER BY schema_name",
                [snapshot, snapshot],
            )
        )
    ]


@dataclass(frozen=True, slots=True)
class _Relation:
    """A table's name in the text; ``travel``: where its VERSION or TIMESTAMP AS
    OF stands, for ``snapshot`` or ``time``.
    """

    parts: tuple[str, ...]
    start: int
    stop: int
    travel: tuple[int, int] | None = None
    snapshot: int | None = None
    time: str | None = None


def _view(spark: SparkSession, catalog: CatalogDatabase, relation: _Relation) -> str | None:
    parts = _short(relation.parts)
    if len(parts) != 2 or any("." in part for part in parts):
        return None
    table = DuckLakeTable(spark, catalog, ".".join(parts))
    snapshot = relation.snapshot
    if relation.time is not None:
        snapshot = _snapshot_at(spark, catalog, relation.time)
    if not table.load(snapshot).exists:
        _foreign(catalog, parts, "view")
        return None
    name = quoted(table.name if snapshot is None else f"{table.name}@{snapshot}")
    table.read(snapshot).createOrReplaceTempView(name)
    return name


def _snapshot_at(spark: SparkSession, catalog: CatalogDatabase, time: str) -> int:
    """The newest snapshot at this time, an expression of Spark's. Raises DataError if there is none."""
    row = spark.sql(f"SELECT unix_micros(cast({time} AS timestamp))").head()
    assert row is not None
    snapshot = catalog.read(
        lambda c: c.one(
            "SELECT max(snapshot_id) FROM meta.ducklake_snapshot WHERE epoch_us(CAST(snapshot_time AS TIMESTAMPTZ)) <= ?",
            [row[0]],
        )
    )
    if snapshot is None or snapshot[0] is None:
        raise DataError(f"there is no snapshot as of {time}", hint="earlier snapshots may have expired")
    return int(snapshot[0])


def _relations(node: Any) -> Iterator[_Relation]:
    """The names of tables in a parsed statement, wherever they stand."""
    kind = node.getClass().getSimpleName()
    if kind == "RelationTimeTravel":
        (relation,) = _relations(node.relation())
        version, time, span = node.version(), node.timestamp(), _span(node)
        if time.isDefined():
            yield _Relation(relation.parts, relation.start, relation.stop, span, time=str(time.get().sql()))
            return
        if version.isDefined() and str(version.get()).isdecimal():
            yield _Relation(relation.parts, relation.start, relation.stop, span, int(str(version.get())))
            return
        raise ParseException("a DuckLake table is read at a snapshot: VERSION AS OF and its number")
    if kind in _NAMES:
        start, stop = _span(node)
        yield _Relation(tuple(_strings(node, "multipartIdentifier")), start, stop)
    for group in (node.children(), node.innerChildren(), node.subqueries()):
        iterator = group.iterator()
        while iterator.hasNext():
            child = iterator.next()
            if hasattr(child, "children"):
                yield from _relations(child)


def _span(node: Any) -> tuple[int, int]:
    origin = node.origin()
    return int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1


def _strings(node: Any, method: str) -> list[str]:
    try:
        iterator = getattr(node, method)().iterator()
    except Exception:
        return []
    out = []
    while iterator.hasNext():
        out.append(str(iterator.next()))
    return out
