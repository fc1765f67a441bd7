"""A DuckLake on a Spark session: its tables, and SQL over them."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException

from driftline.core.schema.naming import QUARANTINE
from driftline.errors import DataError, UsageError, no_table
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.commit import drop, landed
from driftline.formats.ducklake.expiry import DuckLakeExpiry, clean
from driftline.formats.ducklake.rows import AUTHOR, CommitMessage
from driftline.formats.ducklake.snapshot import LIVE, find, latest, live
from driftline.formats.ducklake.statistics import tables
from driftline.formats.ducklake.table import DuckLakeTable
from driftline.formats.lakes import BY_DUCKDB, DroppedTables, Orphan, OwnView
from driftline.formats.leftovers import listed
from driftline.runtime.duckdb import identifier
from driftline.runtime.duckdb import literal as text_literal
from driftline.runtime.file_io import settings
from driftline.runtime.read_only import must_read
from driftline.runtime.stores import is_stored
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
            hint="`driftline query --engine duckdb` reads it, as any DuckDB does; or write the expression out",
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


@dataclass(frozen=True, slots=True)
class DuckLakeLocation:
    """A DuckLake by its catalog's database, without Spark."""

    catalog: CatalogDatabase

    @classmethod
    def of(cls, text: str, folder: str | os.PathLike[str], *, durable: bool = True) -> DuckLakeLocation:
        """The lake of a setting: ``duckdb``, ``sqlite``, either with ``:PATH``, or ``postgres:…``.

        ``folder``: the lake's, or its URI; ``durable`` False: it is written without syncs. Raises UsageError
        for any other text.
        """
        return cls(CatalogDatabase.of(text, folder, durable=durable))

    @property
    def shown(self) -> str:
        """The catalog for people, without a password."""
        return self.catalog.shown

    def engine(self) -> str:
        """The DuckDB and its extensions. Raises SetupError if one of them is missing."""
        return self.catalog.engine()

    def exists(self) -> bool:
        """True if there is a database; a server's is not asked."""
        return self.catalog.exists()

    def tables(self) -> list[str]:
        """The names of the lake's tables."""
        return [".".join(parts) for parts in tables(self.catalog)]

    def settings(self) -> dict[str, str]:
        """Spark's settings by which it reaches the store of the files; none for those on a disk."""
        return settings(self.catalog.data) if is_stored(self.catalog.data) else {}

    def open(self, spark: SparkSession) -> DuckLake:
        """The lake's tables, on a Spark session."""
        # A session that runs already has not begun with them.
        for key, value in self.settings().items():
            spark.conf.set(key.removeprefix("spark.hadoop."), value)
        return DuckLake(spark, self.catalog)


_VIEW_OF = "driftline.view-of"  # in the comment of a view, as JSON


@dataclass(frozen=True, slots=True)
class DuckLakeViews:
    """The views of a DuckLake, which are in DuckDB's SQL."""

    catalog: CatalogDatabase

    def statement(self, name: str, view: OwnView, selects: Mapping[str, str], lake: str = "lake") -> str:
        """The statements that create the view, and its comment, in the lake attached as ``lake``."""
        from driftline.sql.duckdb import in_duckdb  # late: sqlglot is slow to import

        assert view.of is not None
        # Wherever DuckDB attaches the lake, and as what: it replaces the name as it stores the view.
        full = ".".join((lake, _quoted(name)))
        select = "\nUNION ALL\n".join(
            f"{in_duckdb(selected)}\nFROM {'.'.join((lake, _quoted(table)))}"
            for table, selected in selects.items()
        )
        columns = ", ".join(map(identifier, view.columns))
        comment = json.dumps({_VIEW_OF: view.of, "types": dict(view.types)}, ensure_ascii=False)
        return (
            f"CREATE OR REPLACE VIEW {full} ({columns}) AS\n{select};\n"
            f"COMMENT ON VIEW {full} IS {text_literal(comment)}"
        )

    def get(self, name: str) -> OwnView | None:
        """A view by ``namespace.view``; None if there is none."""
        namespace, view = name.split(".")
        if not self.catalog.exists():
            return None
        now = self.catalog.read(latest)
        rows = self.catalog.read(
            lambda c: c.rows(
                "SELECT v.column_aliases, (SELECT t.value FROM meta.ducklake_tag t WHERE t.object_id = v.view_id AND "
                f"t.key = 'comment' AND {live('t')}) FROM meta.ducklake_view v JOIN meta.ducklake_schema s "
                f"ON s.schema_id = v.schema_id WHERE s.schema_name = ? AND v.view_name = ? AND {live('v')} AND {live('s')}",
                [now, now, namespace, view, now, now, now, now],
            )
        )
        if not rows:
            return None
        ((aliases, comment),) = rows
        (columns,) = csv.reader([str(aliases or "")])
        try:
            properties = json.loads(str(comment or "{}"))
            return OwnView(tuple(columns), properties.get(_VIEW_OF), properties.get("types", {}))
        except (ValueError, AttributeError):  # the comment of somebody else
            return OwnView(tuple(columns))

    def create(self, name: str, view: OwnView, selects: Mapping[str, str]) -> None:
        """Create the view, or replace it. Raises DataError if DuckDB refuses."""
        import duckdb

        try:
            self.catalog.by_duckdb(self.statement(name, view, selects, "lk"))
        except duckdb.Error as error:
            raise DataError(f"view {name} cannot be created: {str(error).splitlines()[0]}") from error

    def drop(self, name: str) -> None:
        """Drop the view."""
        self.catalog.by_duckdb(f"DROP VIEW lk.{_quoted(name)}")


def _quoted(name: str) -> str:
    return ".".join(map(identifier, name.split(".")))


@dataclass(frozen=True, slots=True)
class DuckLake:
    """The tables of a DuckLake. ``catalog``: its database."""

    spark: SparkSession
    catalog: CatalogDatabase

    @property
    def folder(self) -> str:
        """The folder of the lake's files."""
        return self.catalog.data.rstrip("/").rpartition("/")[0]

    @property
    def durable(self) -> bool:
        """False if the lake is written without syncs."""
        return self.catalog.durable

    @property
    def ascii_names(self) -> bool:
        """False: names may have letters of any script."""
        return False

    @property
    def commits_together(self) -> bool:
        """True: a snapshot is one of the whole lake."""
        return True

    @property
    def commits_at_once(self) -> int:
        """One: each commit is a snapshot of the whole lake."""
        return 1

    @property
    def writes(self) -> str:
        """The engine that runs statements that write."""
        return BY_DUCKDB

    @property
    def has_views(self) -> bool:
        """A DuckLake keeps no views of Spark's."""
        return False

    @property
    def own_views(self) -> DuckLakeViews:
        """The views of the lake, which are in DuckDB's SQL."""
        return DuckLakeViews(self.catalog)

    def sync_view(self, _: str) -> None:
        """Do nothing: what DuckDB writes is synced."""

    def sql_name(self, name: str) -> str:
        """A table by ``namespace.table``, quoted for Spark SQL."""
        return ".".join(map(quoted, name.split(".")))

    def on(self, spark: SparkSession) -> DuckLake:
        """Open the lake in another session of the running Spark."""
        return replace(self, spark=spark)

    def table(self, name: str) -> DuckLakeTable:
        """A table by ``namespace.table``. Raises UsageError for an impossible name."""
        return DuckLakeTable(self.spark, self.catalog, name)

    def sql(self, query: str) -> DataFrame:
        """Run a statement that reads: Spark's SQL cannot write a DuckLake. Raises UsageError for another."""
        return sql(self.spark, self.catalog, query)

    def tables(self) -> list[str]:
        """The names of all tables of the lake."""
        return [".".join(parts) for parts in tables(self.catalog)]

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        self.catalog.check_writable()

    def drop(
        self, name: str, *, purge: bool, dry_run: bool, before: Callable[[], None] = lambda: None
    ) -> DroppedTables:
        """End a table and its quarantine in one snapshot; those before it keep their files. ``before``:
        called before anything changes.

        Raises UsageError if there is neither, or for ``purge``.
        """
        self.check_writable()
        if purge:
            raise UsageError(
                "a DuckLake keeps the files of a dropped table for its older snapshots",
                hint="drop it without --purge, then end the snapshots of all tables: driftline expire of another "
                "table, or DuckDB's ducklake_expire_snapshots and ducklake_cleanup_old_files",
            )
        rows = self.catalog.read(
            lambda connection: {
                each: find(connection, each, latest(connection)) for each in (name, name + QUARANTINE)
            }
        )
        tables = {each: row for each, row in rows.items() if row is not None}
        if not tables:
            raise no_table(name)
        folders = tuple(row.folder for row in tables.values())
        files = [file for folder in folders for file in listed(self.spark, folder, float("inf"))]
        if not dry_run:
            before()
            message = CommitMessage(AUTHOR, f"drops {name}", {})
            self.catalog.write(
                lambda connection: drop(connection, list(tables), message), partial(landed, message=message)
            )
        return DroppedTables(tuple(tables), folders, len(files), sum(file.size for file in files))

    def expiry(self, name: str) -> DuckLakeExpiry:
        """The end of the older snapshots of the lake, for a table."""
        return DuckLakeExpiry(self.spark, self.catalog, name)

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Delete the files that no snapshot has, last touched more than
        ``older_than`` seconds ago; returns them.
        """
        self.check_writable()
        return clean(self.catalog, older_than, dry_run=dry_run, spark=self.spark)
