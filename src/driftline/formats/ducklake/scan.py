"""Lists a table at a snapshot: data files, deletes, inlined rows, and the columns each file lacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from driftline.core.schema.types import List, Map, Schema, Type, children
from driftline.errors import DataError
from driftline.formats.ducklake.files import ids_in, unchanged
from driftline.formats.ducklake.inlined import InlinedRows, inlined_rows
from driftline.formats.ducklake.snapshot import LIVE, MAPPING, LakeState, TableRow, live
from driftline.formats.ducklake.types import SYNONYMS, promotes, read_type, spark_name
from driftline.runtime.disk import on_disk
from driftline.runtime.duckdb import instance, plain, reach
from driftline.runtime.spark_version import unopened_types, widens

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

# Own number, name in the file, field id, number of the parent
Row = tuple[int, str, int, int | None]


def mapping_of(
    connection: Connection, table: int, schema: Schema, snapshot: int, free: int
) -> tuple[int | None, int]:
    """Return the mapping of files that are written with this schema, created if needed.

    ``snapshot``: that of a new mapping; ``free``: the next free id of the catalog. Returns the mapping's id,
    None for a schema whose files need none, and the next free id after it.

    The table's tag has the ids of all its mappings, the newest first, and the fingerprint of that one: tags
    of before go with their snapshots, and files stay.
    """
    if not any(isinstance(f.type, List | Map) for _, f in schema.walk()):
        return None, free
    rows = _rows(schema)
    print_ = sha256(repr(rows).encode()).hexdigest()[:16]
    for (value,) in connection.rows(
        "SELECT value FROM meta.ducklake_tag WHERE object_id = ? AND key = ? AND end_snapshot IS NULL",
        [table, MAPPING],
    ):
        ids, fingerprint = _read(value)
        if fingerprint == print_:
            return ids[0], free
    ids = [free, *sorted(own_mappings(connection, table), reverse=True)]
    connection.end("ducklake_tag", snapshot, f"object_id = {table} AND key = '{MAPPING}'")
    value = f"{','.join(map(str, ids))}:{print_}"
    tag = {"object_id": table, "begin_snapshot": snapshot, "key": MAPPING, "value": value}
    connection.insert("ducklake_tag", [tag])
    _register(connection, table, free, rows)
    return free, free + 1


def _register(connection: Connection, table: int, id_: int, rows: Sequence[Row]) -> None:
    connection.insert(
        "ducklake_column_mapping", [{"mapping_id": id_, "table_id": table, "type": "map_by_name"}]
    )
    connection.insert(
        "ducklake_name_mapping",
        [
            {
                "mapping_id": id_,
                "column_id": number,
                "source_name": name,
                "target_field_id": field_id,
                "parent_column": parent,
                "is_partition": False,
            }
            for number, name, field_id, parent in rows
        ],
    )


def own_mappings(connection: Connection, table: int) -> set[int]:
    """Return the mappings of files that also have field ids."""
    return {
        id_
        for (value,) in connection.rows(
            "SELECT value FROM meta.ducklake_tag WHERE object_id = ? AND key = ?", [table, MAPPING]
        )
        for id_ in _read(value)[0]
    }


def _read(value: object) -> tuple[list[int], str]:
    """Return the ids of mappings and the fingerprint of the newest, as a tag has them."""
    ids, _, fingerprint = str(value).partition(":")
    return [int(id_) for id_ in ids.split(",")], fingerprint


def _rows(schema: Schema) -> list[Row]:
    rows: list[Row] = []

    def add(type_: Type, parent: int | None) -> None:
        """Append the rows of the fields inside a type."""
        for child in children(type_):
            number = len(rows)
            # DuckDB names an element by the group around it.
            name = "list" if isinstance(type_, List) else child.name
            rows.append((number, name, child.id, parent))
            add(child.type, number)

    add(schema.struct, None)
    return rows


_NESTED = ("struct", "list", "map")
# What Parquet has, as type and annotation, in DuckLake's words.
_TYPES = {
    "BOOLEAN": "boolean",
    "INT32": "int32",
    "INT32 INT_8": "int8",
    "INT32 INT_16": "int16",
    "INT32 INT_32": "int32",
    "INT32 UINT_8": "uint8",
    "INT32 UINT_16": "uint16",
    "INT32 UINT_32": "uint32",
    "INT64": "int64",
    "INT64 INT_64": "int64",
    "INT64 UINT_64": "uint64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "INT32 DATE": "date",
    "INT64 TIMESTAMP_MILLIS": "timestamp_ms",
    "BYTE_ARRAY": "blob",
    "BYTE_ARRAY UTF8": "varchar",
    "BYTE_ARRAY JSON": "varchar",
}


# DuckDB's compaction keeps old types in new files, so only their footers tell the types.
def earlier_types(
    connection: Connection, state: LakeState, files: Mapping[int, tuple[str, int, int]]
) -> dict[int, frozenset[tuple[int, str]]]:
    """By file: the columns that it has in another type than the table has now, and in which.

    ``files``: path, size and first snapshot by id. Empty, and no file is opened, where Spark reads all that
    there can be. Raises DataError where a file is not as it was registered.
    """
    assert state.table is not None
    now = {row.id: _known(row.type) for row in state.columns if row.type.lower() not in _NESTED}
    spans: dict[int, list[tuple[int, int | None, str]]] = {}
    for column, begin, end, kind in connection.rows(
        "SELECT column_id, begin_snapshot, end_snapshot, column_type FROM meta.ducklake_column WHERE table_id = ?",
        [state.table.id],
    ):
        if int(column) in now:
            span = int(begin), None if end is None else int(end), _known(str(kind))
            spans.setdefault(int(column), []).append(span)
    changed = {
        i: spans[i] for i, kind in now.items() if any(_strange(old, kind) for _, _, old in spans.get(i, ()))
    }
    if not changed or not files:
        return {}
    unchanged({path: size for path, size, _ in files.values()}, f"table {state.table.id}")
    footers = _footers([path for path, _, _ in files.values()], changed)
    out = {}
    for id_, (path, _, begin) in files.items():
        types_of = footers.get(path, {})
        # Spark writes no ids for elements, keys and values: they have the type that the table had then.
        has = {i: types_of.get(i) or _at(span, begin) or now[i] for i, span in changed.items()}
        out[id_] = frozenset((i, kind) for i, kind in has.items() if kind != now[i] and _readable(kind))
    return out


def _strange(old: str, new: str) -> bool:
    """True if Spark does not read the old type as the new one without help."""
    return old != new and not (widens() and promotes(old, new) and new != "uint64")


def _known(kind: str) -> str:
    return re.sub(r",\s*", ",", SYNONYMS.get(kind.lower(), kind.lower()))


def _at(spans: Collection[tuple[int, int | None, str]], snapshot: int) -> str | None:
    return next((k for begin, end, k in spans if begin <= snapshot and (end is None or snapshot < end)), None)


def _readable(kind: str) -> bool:
    try:
        spark_name(read_type(kind), "")
    except DataError:
        return False
    return True


def _footers(paths: list[str], columns: Collection[int]) -> dict[str, dict[int, str]]:
    out: dict[str, dict[int, str]] = {}
    with instance() as duckdb:
        reach(duckdb, paths[0])
        rows = duckdb.execute(
            "SELECT file_name, field_id, type, converted_type, logical_type, precision, scale FROM parquet_schema(?) "
            "WHERE field_id IS NOT NULL",
            [[plain(path) for path in paths]],
        ).fetchall()
    for file, column, *kind in rows:
        type_ = _kind(*kind) if column in columns else None
        if type_ is not None:
            out.setdefault(file, {})[int(column)] = type_
    return out


def _kind(
    type_: str | None, converted: str | None, logical: Any, precision: int | None, scale: int | None
) -> str | None:
    """DuckLake's type of a column of Parquet's; None for one that has none here."""
    if converted == "DECIMAL":
        return f"decimal({precision},{scale})"
    if converted == "TIMESTAMP_MICROS":
        return "timestamptz" if re.search(r"isAdjustedToUTC=(1|true)", str(logical)) else "timestamp"
    return _TYPES.get(" ".join(filter(None, (type_, converted))))


@dataclass(frozen=True, slots=True)
class MapRow:
    """An entry of a name mapping: the file's column ``name`` has the id ``id``.

    ``hive``: its value is in the path.
    """

    number: int
    name: str
    id: int
    parent: int | None
    hive: bool


@dataclass(frozen=True, slots=True)
class ScanGroup:
    """Files that are read the same way. ``missing``: ids of columns that they lack, which have a default.

    ``mapping``: None where the files have field ids. ``partial``: only rows up to the snapshot count.
    ``types``: ids of columns that they have in an earlier type, each with DuckLake's name of it.
    """

    mapping: int | None
    missing: frozenset[int]
    partial: bool
    deletes: bool
    types: frozenset[tuple[int, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Scan:
    """Paths are whole; ``files``: path to size; ``rows``: to the number of rows. ``deletes``: data file
    to delete file; ``deleted``: rows of it; ``unopened``: to the column for which Spark cannot open it.
    """

    state: LakeState
    groups: Mapping[ScanGroup, list[str]]
    files: Mapping[str, int]
    rows: Mapping[str, int]
    deletes: Mapping[str, str]
    deleted: Mapping[str, list[int]]
    mappings: Mapping[int, list[MapRow]]
    inlined: list[InlinedRows]
    unopened: Mapping[str, str]

    def whole_files(self) -> list[str]:
        """Return the files, if they are on this machine and alone say what the rows are; else none."""
        plain_group = ScanGroup(None, frozenset(), partial=False, deletes=False)
        paths = [on_disk(path) for path in self.files]
        if self.inlined or {*self.groups} != {plain_group}:
            return []
        return [str(path) for path in paths if path is not None] if None not in paths else []

    def of(self, paths: AbstractSet[str]) -> Scan:
        """Return the scan of these files alone."""
        groups = {group: [path for path in files if path in paths] for group, files in self.groups.items()}
        files = {path: size for path, size in self.files.items() if path in paths}
        unopened = {path: column for path, column in self.unopened.items() if path in paths}
        groups = {group: files for group, files in groups.items() if files}
        return replace(self, groups=groups, files=files, inlined=[], unopened=unopened)

    def beyond(self, first: Scan) -> Scan | None:
        """Return the scan of files that a ``first`` scan did not have.

        None if the rows of that one are no longer here unchanged.
        """
        paths = first.files.keys()
        same = (
            first.files.items() <= self.files.items()
            and first.deletes == {path: file for path, file in self.deletes.items() if path in paths}
            and first.deleted == {path: rows for path, rows in self.deleted.items() if path in paths}
            and first.inlined == self.inlined
        )
        return self.of(self.files.keys() - paths) if same else None


@dataclass(frozen=True, slots=True)
class _File:
    """A data file in the catalog.

    ``path``: complete; ``rows``: their number; ``begin``: its first snapshot; ``delete``: its delete file,
    None if it has none. ``partial``: the last snapshot of its rows, if that matters.
    """

    id: int
    path: str
    size: int
    rows: int
    begin: int
    partial: int | None
    mapping: int | None
    delete: str | None


def scan(connection: Connection, state: LakeState) -> Scan:
    """Everything there is to read. Raises DataError for files that Spark cannot read."""
    table, snapshot = state.table, state.snapshot
    assert table is not None
    assert snapshot is not None
    files = _files(connection, table, snapshot)
    sizes = {file.id: (file.path, file.size, file.begin) for file in files}
    types = earlier_types(connection, state, sizes)
    lacking = _lacking(connection, state, sizes, {file.id: file.mapping for file in files})
    own_mapping_ids = own_mappings(connection, table.id)
    deleted_rows = inlined_deletes(connection, table.id, snapshot)
    groups: dict[ScanGroup, list[str]] = {}
    for file in files:
        group = ScanGroup(
            None if file.mapping in own_mapping_ids else file.mapping,
            lacking.get(file.id, frozenset()),
            file.partial is not None and file.partial > snapshot,
            file.delete is not None or file.id in deleted_rows,
            types.get(file.id, frozenset()),
        )
        groups.setdefault(group, []).append(file.path)
    foreign = {group.mapping for group in groups if group.mapping is not None}
    return Scan(
        state,
        groups,
        {file.path: file.size for file in files},
        {file.path: file.rows for file in files},
        {file.path: file.delete for file in files if file.delete is not None},
        {file.path: deleted_rows[file.id] for file in files if file.id in deleted_rows},
        {mapping: _mapping(connection, mapping) for mapping in foreign},
        inlined_rows(connection, table.id, snapshot),
        _unopened(connection, table.id, {file.path: file.size for file in files if file.mapping is None}),
    )


def _unopened(connection: Connection, table: int, files: Mapping[str, int]) -> dict[str, str]:
    """Return the files, of these sizes, that this Spark cannot open, each with the column that is the cause.

    A column that was dropped is still in files from before.
    """
    kinds = ", ".join(f"'{kind}'" for kind in unopened_types())
    if not kinds:
        return {}
    columns = {
        int(id_): f"{name}, a {kind}"
        for id_, name, kind in connection.rows(
            "SELECT column_id, column_name, lower(column_type) FROM meta.ducklake_column "
            f"WHERE table_id = ? AND lower(column_type) IN ({kinds})",
            [table],
        )
    }
    if not columns:
        return {}
    unchanged(files, f"table {table}")
    footers = ids_in([*files])
    return {path: columns[i] for path, ids in footers.items() for i in sorted(ids & columns.keys())[:1]}


def _files(connection: Connection, table: TableRow, snapshot: int) -> list[_File]:
    """Return the table's data files at a snapshot. Raises DataError for one that Spark cannot read."""
    rows = connection.rows(
        f"""SELECT f.data_file_id, f.begin_snapshot, f.path, CAST(f.path_is_relative AS BOOLEAN), f.file_size_bytes, f.record_count,
            f.partial_max, f.mapping_id, f.encryption_key, d.path, CAST(d.path_is_relative AS BOOLEAN), d.format
            FROM meta.ducklake_data_file f LEFT JOIN (
                SELECT * FROM meta.ducklake_delete_file WHERE table_id = ? AND {LIVE}) d
            ON d.data_file_id = f.data_file_id
            WHERE f.table_id = ? AND {live("f")} ORDER BY f.data_file_id""",
        [table.id, snapshot, snapshot, table.id, snapshot, snapshot],
    )
    files = []
    for (
        id_,
        begin,
        path,
        relative,
        size,
        count,
        partial,
        mapping,
        key,
        delete,
        delete_relative,
        format_,
    ) in rows:
        if key is not None:
            raise DataError(f"the file {path} is encrypted: Spark cannot read it")
        if delete is not None and format_ != "parquet":
            raise DataError(
                f"the deleted rows of {path} are in a deletion vector, which Spark does not read",
                hint="CALL ducklake_rewrite_data_files in DuckDB rewrites the file",
            )
        files.append(
            _File(
                int(id_),
                _whole(table, path, relative),
                int(size),
                int(count),
                int(begin),
                None if partial is None else int(partial),
                None if mapping is None else int(mapping),
                None if delete is None else _whole(table, delete, delete_relative),
            )
        )
    return files


def whole_bounds(
    connection: Connection, state: LakeState, columns: Collection[int]
) -> dict[str, dict[int, tuple[int, int] | None]]:
    """Return the lowest and the highest value of columns of whole numbers in data files, by path and id.

    None: only nulls. Files and columns for which the catalog has no bounds are left out.
    """
    table, snapshot = state.table, state.snapshot
    assert table is not None
    bounds: dict[str, dict[int, tuple[int, int] | None]] = {}
    for path, relative, column, low, high in connection.rows(
        f"""SELECT f.path, CAST(f.path_is_relative AS BOOLEAN), s.column_id,
            TRY_CAST(s.min_value AS BIGINT), TRY_CAST(s.max_value AS BIGINT)
            FROM meta.ducklake_data_file f JOIN meta.ducklake_file_column_stats s
            ON s.data_file_id = f.data_file_id AND s.table_id = f.table_id
            WHERE f.table_id = ? AND {live("f")} AND s.column_id IN ({", ".join(map(str, columns))})
            AND (s.null_count = f.record_count
                 OR TRY_CAST(s.min_value AS BIGINT) <= TRY_CAST(s.max_value AS BIGINT))""",
        [table.id, snapshot, snapshot],
    ):
        both = None if low is None else (int(low), int(high))
        bounds.setdefault(_whole(table, path, relative), {})[int(column)] = both
    return bounds


def _whole(table: TableRow, path: str, relative: bool) -> str:
    return table.folder + path if relative else str(path)


def _lacking(
    connection: Connection,
    state: LakeState,
    files: Mapping[int, tuple[str, int, int]],
    mappings: Mapping[int, int | None],
) -> dict[int, frozenset[int]]:
    """For each file the columns with a default that it lacks. Files by path, size, first snapshot; mapping.

    The time of a file shows nothing: DuckDB rewrites old ones without the columns that came later.
    """
    assert state.table is not None
    table = state.table.id
    defaulted = {row.id for row in state.columns if row.initial_default is not None}
    if not defaulted:
        return {}
    listed = ", ".join(map(str, sorted(defaulted)))
    has: dict[int, set[int]] = {}
    for file, column in connection.rows(
        "SELECT data_file_id, column_id FROM meta.ducklake_file_column_stats "
        f"WHERE table_id = ? AND column_id IN ({listed})",
        [table],
    ):
        has.setdefault(int(file), set()).add(int(column))
    mapped: dict[int, set[int]] = {}
    for mapping, column in connection.rows(
        "SELECT m.mapping_id, n.target_field_id FROM meta.ducklake_column_mapping m "
        f"JOIN meta.ducklake_name_mapping n USING (mapping_id) WHERE m.table_id = ? AND n.target_field_id IN ({listed})",
        [table],
    ):
        mapped.setdefault(int(mapping), set()).add(int(column))
    # Statistics of a column say that the file has it; whoever wrote none is asked.
    to_open = [i for i in files if mappings[i] is None and not defaulted <= has.get(i, set())]
    unchanged({path: size for path, size, _ in map(files.__getitem__, to_open)}, f"table {table}")
    footers = ids_in([files[i][0] for i in to_open])
    out = {}
    for i, (path, *_) in files.items():
        mapping = mappings[i]
        of_file: AbstractSet[int] = footers[path] if path in footers else has.get(i, set())
        if missing := defaulted - (of_file if mapping is None else mapped.get(mapping, set())):
            out[i] = frozenset(missing)
    return out


def inlined_deletes(connection: Connection, table: int, snapshot: int) -> dict[int, list[int]]:
    """The deleted rows that the catalog itself keeps of a table at a snapshot, by the ids of data files."""
    name = f"ducklake_inlined_delete_{table}"
    if name not in connection.tables():
        return {}
    out: dict[int, list[int]] = {}
    for file, row in connection.rows(
        f"SELECT file_id, row_id FROM meta.{name} WHERE begin_snapshot <= ?", [snapshot]
    ):
        out.setdefault(int(file), []).append(int(row))
    return out


def _mapping(connection: Connection, mapping: int) -> list[MapRow]:
    return [
        MapRow(int(number), str(name), int(id_), None if parent is None else int(parent), bool(hive))
        for number, name, id_, parent, hive in connection.rows(
            "SELECT column_id, source_name, target_field_id, parent_column, CAST(is_partition AS BOOLEAN) "
            "FROM meta.ducklake_name_mapping WHERE mapping_id = ? ORDER BY column_id",
            [mapping],
        )
    ]
