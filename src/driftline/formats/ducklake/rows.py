"""The catalog rows that one transaction writes: columns, docs, properties, files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from driftline.core.columns.statistics import SeenNote
from driftline.core.schema.types import Primitive, Schema
from driftline.errors import DataError
from driftline.formats.base import CommitConflict
from driftline.formats.ducklake.files import (
    ColumnStats,
    DataFile,
    DeleteFile,
    ReturningFile,
    leaves,
    order_of,
)
from driftline.formats.ducklake.inlined import EndedRows, renew_inlined_table
from driftline.formats.ducklake.layout import CatalogLayout, partition_id_of
from driftline.formats.ducklake.scan import mapping_of
from driftline.formats.ducklake.snapshot import LakeState, TableRow
from driftline.formats.ducklake.types import COMMENT, ColumnRow, rows_of

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection
    from driftline.keys.anew import RewriteCandidate

AUTHOR = "driftline"  # of snapshots, in their changes
COMMIT_ID = "driftline.commit"  # in their messages: that of a `CommitMessage`


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The known values of a column in all files. ``low`` and ``high`` None: it holds only nulls."""

    nulls: bool
    low: str | None
    high: str | None


def add_statistics(
    connection: Connection,
    table: int,
    files: Sequence[DataFile],
    columns: Mapping[str, tuple[int, Primitive]],
    *,
    have_ids: bool = False,
) -> int:
    """Add the files to the table's statistics; returns the row id that their first row gets.

    ``have_ids``: their rows have ids already.
    """
    rows, size = sum(f.rows for f in files), sum(f.size for f in files)
    totals = connection.one("SELECT next_row_id FROM meta.ducklake_table_stats WHERE table_id = ?", [table])
    types = dict(columns.values())
    if totals is None:
        connection.insert(
            "ducklake_table_stats",
            [{"table_id": table, "record_count": rows, "next_row_id": rows, "file_size_bytes": size}],
        )
        known_of = {i: of_files(files, i, type_) for i, type_ in types.items()}
        _insert(connection, table, {i: k for i, k in known_of.items() if k is not None})
        return 0
    connection.execute(
        f"UPDATE meta.ducklake_table_stats SET record_count = record_count + {rows}, "
        f"next_row_id = next_row_id + {0 if have_ids else rows}, file_size_bytes = file_size_bytes + {size} WHERE table_id = {table}"
    )
    before = {
        int(i): ColumnBounds(bool(nulls), low, high)
        for i, nulls, low, high in connection.rows(
            "SELECT column_id, CAST(contains_null AS BOOLEAN), min_value, max_value "
            "FROM meta.ducklake_table_column_stats WHERE table_id = ? AND contains_null IS NOT NULL "
            "AND contains_nan IS NULL AND extra_stats IS NULL",
            [table],
        )
    }
    after = {}
    for i, old in before.items():
        new = of_files(files, i, types[i]) if i in types else None
        if new is not None:
            after[i] = both(old, new, types[i])
    # Of a column without a row DuckDB believes nothing; it adds none by itself.
    connection.execute(f"DELETE FROM meta.ducklake_table_column_stats WHERE table_id = {table}")
    _insert(connection, table, after)
    return int(totals[0])


def _insert(connection: Connection, table: int, bounds: Mapping[int, ColumnBounds]) -> None:
    connection.insert(
        "ducklake_table_column_stats",
        [
            {
                "table_id": table,
                "column_id": i,
                "contains_null": k.nulls,
                "min_value": k.low,
                "max_value": k.high,
            }
            for i, k in bounds.items()
        ],
    )


def of_files(files: Sequence[DataFile], column: int, type_: Primitive) -> ColumnBounds | None:
    """Return the statistics of a column over all files; None if one of them has none."""
    out = ColumnBounds(False, None, None)
    for file in files:
        stats = file.stats.get(column)
        bounds = None if stats is None else _of(stats)
        if bounds is None:
            return None
        out = both(out, bounds, type_)
    return out


def _of(stats: ColumnStats) -> ColumnBounds | None:
    if stats.nulls is None or (stats.values and (stats.low is None or stats.high is None)):
        return None
    return ColumnBounds(stats.nulls > 0, stats.low, stats.high)


def both(a: ColumnBounds, b: ColumnBounds, type_: Primitive) -> ColumnBounds:
    """Two parts of a column together."""
    order = order_of(type_)
    lows = [x for x in (a.low, b.low) if x is not None]
    highs = [x for x in (a.high, b.high) if x is not None]
    return ColumnBounds(
        a.nulls or b.nulls, min(lows, key=order, default=None), max(highs, key=order, default=None)
    )


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The message of a snapshot. ``id``: by which a commit finds itself in the catalog."""

    author: str
    text: str
    extra: Mapping[str, object]
    id: str = field(default_factory=lambda: uuid4().hex)


@dataclass(slots=True)
class TableCommit:
    """The changes that one transaction makes to its table.

    Attributes:
        base: None if the table is to be created, with its files in ``folder``.

    ``pinned``: only if nobody has changed the table since. ``keys``: the layout of the files. ``dropped``:
    files to remove; ``replaces``: all of them; ``note``: of the batches that
    brought the values of those in their place. ``written``: the schema by which the files name their columns.
    ``removed``: properties to remove; ``layout``: before and after. ``sources``: the fingerprints of the
    source files that the table takes. ``deletes``, ``ended``: rows to remove; ``rewritten``: files that go as
    a whole, and ``own``: the columns with values in rows that were in none of them; ``batch``: its id.
    ``compacts``: the files that are added have the rows of those that go, with their ids, and no others.
    ``uuid``: of a table that is created. ``summary``: what the snapshot's message says of the table.
    ``reverts``: the snapshot whose rows go, and those that it
    removed come back; ``returning``: the files that it ended.
    """

    name: str
    base: LakeState | None
    schema: Schema
    folder: str
    pinned: bool = False
    keys: CatalogLayout = field(default_factory=CatalogLayout)
    files: list[DataFile] = field(default_factory=list)
    written: Schema | None = None
    dropped: tuple[str, ...] = ()
    replaces: bool = False
    note: SeenNote | None = None
    properties: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    layout: tuple[CatalogLayout, CatalogLayout] | None = None
    sources: tuple[int, ...] = ()
    deletes: list[DeleteFile] = field(default_factory=list)
    ended: list[EndedRows] = field(default_factory=list)
    rewritten: Sequence[RewriteCandidate] = ()
    own: Collection[int] = ()
    batch: str | None = None
    compacts: bool = False
    reverts: int | None = None
    returning: Sequence[ReturningFile] = ()
    uuid: str = field(default_factory=lambda: str(uuid4()))
    summary: Mapping[str, str] = field(default_factory=dict)

    @property
    def properties_after(self) -> dict[str, str]:
        """The table's properties after the commit."""
        before = {} if self.base is None else self.base.properties
        staying = {key: value for key, value in before.items() if key not in self.removed}
        return staying | self.properties

    @property
    def new_files(self) -> list[str]:
        """The files that the catalog names from then on."""
        files: list[DataFile | DeleteFile | ReturningFile] = [*self.files, *self.deletes, *self.returning]
        return [self.folder + file.path for file in files]

    @property
    def removes(self) -> bool:
        """True if it removes some of the table's rows."""
        return bool(self.deletes or self.ended or self.rewritten)


@dataclass(slots=True)
class LatestSnapshot:
    """The lake's newest snapshot, and the next ids that it assigns."""

    snapshot: int
    schema_version: int
    catalog_id: int
    file_id: int
    changes_made: list[str] = field(default_factory=list)


def set_version(connection: Connection, head: LatestSnapshot, table: int) -> None:
    """Record that the table has the schema version of the new snapshot."""
    connection.insert(
        "ducklake_schema_versions",
        [{"begin_snapshot": head.snapshot, "schema_version": head.schema_version, "table_id": table}],
    )


def set_columns(
    connection: Connection, head: LatestSnapshot, intent: TableCommit, now: LakeState, table: TableRow
) -> None:
    """Write the columns that differ from the present ones, and end those they replace or that are dropped.

    Their docs, the schema version and the table for inlined data follow.
    """
    before = {row.id: row for row in now.columns}
    rows = rows_of(intent.schema, now.schema, now.columns, intent.name)
    changed = [row for row in rows if row.id not in before or row != before[row.id]]
    ended = [row.id for row in changed if row.id in before] + sorted(set(before) - {row.id for row in rows})
    if ended:
        where = f"table_id = {table.id} AND column_id IN ({_listed(ended)})"
        connection.end("ducklake_column", head.snapshot, where)
    connection.insert(
        "ducklake_column",
        [_column(row, table.id, head.snapshot) for row in changed],
    )
    _docs(connection, head, intent, now, table)
    set_version(connection, head, table.id)
    renew_inlined_table(connection, table.id, table.schema_id, head.schema_version, rows)


def _column(row: ColumnRow, table: int, snapshot: int) -> dict[str, object]:
    return {
        "column_id": row.id,
        "begin_snapshot": snapshot,
        "table_id": table,
        "column_order": row.order,
        "column_name": row.name,
        "column_type": row.type,
        "initial_default": row.initial_default,
        "default_value": row.default,
        "nulls_allowed": row.nullable,
        "parent_column": row.parent,
        "default_value_type": row.default_type,
        "default_value_dialect": row.dialect,
    }


def _docs(
    connection: Connection, head: LatestSnapshot, intent: TableCommit, now: LakeState, table: TableRow
) -> None:
    before = {f.id: f.doc for _, f in now.schema.walk() if f.doc}
    after = {f.id: f.doc for _, f in intent.schema.walk() if f.doc}
    ended = [i for i, doc in before.items() if after.get(i) != doc]
    if ended:
        where = f"table_id = {table.id} AND key = '{COMMENT}' AND column_id IN ({_listed(ended)})"
        connection.end("ducklake_column_tag", head.snapshot, where)
    connection.insert(
        "ducklake_column_tag",
        [
            {
                "table_id": table.id,
                "column_id": i,
                "begin_snapshot": head.snapshot,
                "key": COMMENT,
                "value": doc,
            }
            for i, doc in after.items()
            if before.get(i) != doc
        ],
    )


def set_properties(
    connection: Connection, snapshot: int, table: TableRow, now: LakeState, intent: TableCommit
) -> None:
    """Write the properties that differ from the present ones, and end those that are replaced or removed."""
    changed = {key: value for key, value in intent.properties.items() if now.properties.get(key) != value}
    for key in (changed.keys() | set(intent.removed)) & now.properties.keys():
        connection.end("ducklake_tag", snapshot, f"object_id = {table.id} AND key = ?", [key])
    connection.insert(
        "ducklake_tag",
        [
            {"object_id": table.id, "begin_snapshot": snapshot, "key": key, "value": value}
            for key, value in changed.items()
        ],
    )


def add_files(connection: Connection, head: LatestSnapshot, intent: TableCommit, table: TableRow) -> None:
    """Register the files that the transaction has written.

    Raises DataError for a file that the catalog has already, CommitConflict if the partitioning has changed.
    """
    _must_be_new(connection, intent, table)
    columns = leaves(intent.schema)
    first_row = add_statistics(connection, table.id, intent.files, columns, have_ids=intent.compacts)
    partition_id = intent.keys.partition_id
    if partition_id_of(connection, table.id, head.snapshot) != partition_id:
        raise CommitConflict(f"{intent.name} was repartitioned by another writer", intent.name)
    names = intent.written or intent.schema
    mapping, first_id = None, head.file_id
    # Tasks write the ids of elements, too. By a mapping DuckDB would look for the rows' ids under a name.
    if not intent.compacts:
        mapping, first_id = mapping_of(connection, table.id, names, head.snapshot, head.file_id)
    head.file_id = first_id + len(intent.files)
    of_table: dict[str, object] = {
        "table_id": table.id,
        "begin_snapshot": head.snapshot,
        "mapping_id": mapping,
        "partition_id": partition_id,
    }
    files, statistics, values = [], [], []
    for id_, file in enumerate(intent.files, first_id):
        row_id = None if intent.compacts else first_row
        files.append({**of_table, **_file(file), "data_file_id": id_, "row_id_start": row_id})
        first_row += file.rows
        of_file = {"data_file_id": id_, "table_id": table.id}
        statistics += [{**of_file, **column} for column in _column_statistics(file)]
        values += [
            {**of_file, "partition_key_index": i, "partition_value": value}
            for i, value in enumerate(file.partition)
        ]
    connection.insert("ducklake_data_file", files)
    connection.insert("ducklake_file_partition_value", values)
    connection.insert("ducklake_file_column_stats", statistics)


def _must_be_new(connection: Connection, intent: TableCommit, table: TableRow) -> None:
    """Raise DataError where the catalog has one of the files."""
    paths = [file.path for file in intent.files]
    places = ", ".join("?" * len(paths))
    if registered := connection.rows(
        f"SELECT path FROM meta.ducklake_data_file WHERE table_id = {table.id} AND path IN ({places})", paths
    ):
        raise DataError(f"{intent.name}: the file {registered[0][0]} is registered already")


def _file(file: DataFile) -> dict[str, object]:
    return {
        "path": file.path,
        "path_is_relative": True,
        "file_format": "parquet",
        "record_count": file.rows,
        "file_size_bytes": file.size,
        "footer_size": file.footer,
    }


def _column_statistics(file: DataFile) -> Iterator[dict[str, object]]:
    for column, statistics in file.stats.items():
        yield {
            "column_id": column,
            "column_size_bytes": statistics.size,
            "value_count": statistics.values,
            "null_count": statistics.nulls,
            "min_value": statistics.low,
            "max_value": statistics.high,
        }


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
