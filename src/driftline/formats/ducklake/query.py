"""Spark SQL over a DuckLake: each table that a statement names becomes a view of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException

from driftline.formats.ducklake.catalog import Catalog
from driftline.formats.ducklake.snapshot import LIVE, latest, live
from driftline.formats.ducklake.table import DuckLakeTable
from driftline.reading import must_read
from driftline.route.sql import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG = "lake"  # may stand before a namespace
_NAMES = ("UnresolvedRelation", "UnresolvedTableOrView", "UnresolvedTable")


def sql(spark: SparkSession, catalog: Catalog, text: str) -> DataFrame:
    """Runs a statement with tables named ``namespace.table``, and ``VERSION AS OF`` a snapshot if asked.

    Raises UsageError for one that does more than read.
    """
    must_read(spark, text, "DuckDB runs it")
    session: Any = spark._jsparkSession
    try:
        plan = session.sessionState().sqlParser().parsePlan(text)
    except Exception:
        return spark.sql(text)  # which says what is wrong
    match plan.getClass().getSimpleName():
        case "ShowNamespacesCommand":
            return spark.createDataFrame([(n,) for n in namespaces(catalog)], "namespace string")
        case "ShowTables":
            wanted = [part.split(".")[0] for part in _strings(plan.child(), "nameParts")][-1:]
            found = [pair for pair in tables(catalog) if not wanted or pair[0] == wanted[0]]
            return spark.createDataFrame(found, "namespace string, tableName string")
    units = text.encode("utf-16-le")  # as Java counts
    # From the end, so that what stands before keeps its place. A subquery is met twice.
    for relation in sorted(set(_relations(plan)), key=lambda r: -r.start):
        view = _view(spark, catalog, relation)
        if view is not None:
            if relation.travel is not None:
                units = _cut(units, *relation.travel, "")
            units = _cut(units, relation.start, relation.stop, view)
    return spark.sql(units.decode("utf-16-le"))


def _cut(units: bytes, start: int, stop: int, text: str) -> bytes:
    return units[: 2 * start] + text.encode("utf-16-le") + units[2 * stop :]


def namespaces(catalog: Catalog) -> list[str]:
    """The namespaces of the lake."""
    if not catalog.exists():
        return []
    at = catalog.read(latest)
    return [
        name
        for (name,) in catalog.read(
            lambda c: c.rows(
                f"SELECT schema_name FROM meta.ducklake_schema WHERE {LIVE} ORDER BY schema_name", [at, at]
            )
        )
    ]


def tables(catalog: Catalog) -> list[tuple[str, str]]:
    """The tables of the lake, each with its namespace before it."""
    if not catalog.exists():
        return []
    at = catalog.read(latest)
    return [
        (str(namespace), str(name))
        for namespace, name in catalog.read(
            lambda c: c.rows(
                "SELECT s.schema_name, t.table_name FROM meta.ducklake_table t JOIN meta.ducklake_schema s "
                f"ON s.schema_id = t.schema_id WHERE {live('t')} AND {live('s')} ORDER BY 1, 2",
                [at, at, at, at],
            )
        )
    ]


@dataclass(frozen=True, slots=True)
class _Relation:
    """A table's name in the text; ``travel``: where its VERSION AS OF stands, for ``snapshot``."""

    parts: tuple[str, ...]
    start: int
    stop: int
    travel: tuple[int, int] | None = None
    snapshot: int | None = None


def _view(spark: SparkSession, catalog: Catalog, relation: _Relation) -> str | None:
    parts = (
        relation.parts[1:] if len(relation.parts) == 3 and relation.parts[0] == CATALOG else relation.parts
    )
    if len(parts) != 2 or any("." in part for part in parts):
        return None
    table = DuckLakeTable(spark, catalog, ".".join(parts))
    if not table.load(relation.snapshot).exists:
        return None
    name = quoted(table.name if relation.snapshot is None else f"{table.name}@{relation.snapshot}")
    table.read(relation.snapshot).createOrReplaceTempView(name)
    return name


def _relations(node: Any) -> Iterator[_Relation]:
    """The names of tables in a parsed statement, wherever they stand."""
    kind = node.getClass().getSimpleName()
    if kind == "RelationTimeTravel":
        (inner,) = _relations(node.relation())
        version = node.version()
        if version.isDefined() and str(version.get()).isdecimal():
            span = _span(node)
            yield _Relation(inner.parts, inner.start, inner.stop, span, int(str(version.get())))
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
