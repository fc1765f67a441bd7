"""Parquet files of a DuckLake: their storage, and the column statistics in their footers."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from driftline.core.schema.types import BOUNDS, FRACTIONS, List, Map, Primitive, Schema, Struct, Type
from driftline.errors import DataError, SetupError
from driftline.runtime.disk import NEW, delete_by_hadoop, delete_file
from driftline.runtime.duckdb import instance, plain, reach
from driftline.runtime.file_io import hadoop_file_system, hadoop_path
from driftline.runtime.stores import at_once, configured, created, explaining, filesystem, is_stored, native

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Storage:
    """The disk or the store that has a lake's files; it is sent to tasks.

    ``options``: of the store, as `stores.filesystem` takes them; None on a disk.
    """

    options: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: str) -> Self:
        """Return the one that has this folder. Raises SetupError for a place that only Java knows."""
        if is_stored(folder):
            return cls(configured(folder))
        if local(folder) is None:
            raise SetupError(
                f"the files of the lake are in {folder}: driftline reaches those on a disk and in stores"
            )
        return cls()

    def open(self, path: str) -> pa.NativeFile:
        """Return a file, to be read anywhere in it."""
        return pa.memory_map(str(local(path))) if self.options is None else native(path, self.options)

    def create(self, path: str) -> pa.NativeFile:
        """Return a new file, open for writing, with the folders on the way."""
        if self.options is not None:
            return created(path, self.options)
        place = Path(str(local(path)))
        place.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(place), "wb")

    def put(self, path: str, content: bytes) -> None:
        """Write a new file; after an error it is not there."""
        try:
            with self.create(path) as stream:
                stream.write(content)
        except BaseException:
            self.remove(path)
            raise

    def copy(self, source: str, target: str) -> None:
        """Copy a file, in a store without its bytes coming here."""
        if self.options is None:
            shutil.copyfile(str(local(source)), str(local(target)))
            return
        (system, place), (_, copied) = (filesystem(path, self.options) for path in (source, target))
        with explaining(source, self.options):
            system.copy_file(place, copied)

    def remove(self, path: str) -> None:
        """Delete a file that this process has made, if it is there; one that stays is an orphan."""
        if self.options is None:
            delete_file(str(local(path)), NEW)
            return
        with suppress(OSError):
            delete_file(path, NEW, self.options)

    def sweep(self, prefix: str) -> None:
        """Delete all files of a store whose URIs begin so; those that cannot be deleted are orphans."""
        from pyarrow.fs import FileSelector

        scheme = prefix.partition("://")[0]
        system, place = filesystem(prefix, self.options)
        with suppress(OSError):
            beside = FileSelector(place.rpartition("/")[0], allow_not_found=True)
            for file in system.get_file_info(beside):
                if file.is_file and file.path.startswith(place):
                    delete_file(f"{scheme}://{file.path}", NEW, self.options)

    def size(self, path: str) -> int:
        """Return the bytes of a file. Raises FileNotFoundError."""
        if self.options is None:
            return Path(str(local(path))).stat().st_size
        system, place = filesystem(path, self.options)
        with explaining(path, self.options):
            info = system.get_file_info(place)
        if info.size is None:
            raise FileNotFoundError(2, "there is no such object", path)
        return int(info.size)


def local(path: str) -> Path | None:
    """Return the path on this machine; None for one elsewhere."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else path)
    return None


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """The statistics of a leaf column in one file. ``low``, ``high``: as DuckDB prints them, if known."""

    size: int
    values: int
    nulls: int | None
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows, ``path`` below the table's folder. ``partition``: the values of its partition keys."""

    path: str
    rows: int
    size: int
    footer: int
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    partition: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file of positions in a data file; ``path`` below the table's folder, as that of the data file."""

    path: str
    data_file: str
    rows: int
    size: int
    footer: int


@dataclass(frozen=True, slots=True)
class ReturningFile:
    """A data file that a snapshot ended, by its ``id``; ``path``: of its copy, in the table's folder."""

    id: int
    path: str


def leaves(schema: Schema) -> dict[str, tuple[int, Primitive]]:
    """Return the leaf columns: the path that Parquet has for each, to id and type."""
    out: dict[str, tuple[int, Primitive]] = {}

    def walk(type_: Type, id_: int, path: str) -> None:
        """Add the leaf columns inside a type, whose path in Parquet is ``path``."""
        match type_:
            case Primitive():
                out[path] = (id_, type_)
            case Struct(fields):
                for f in fields:
                    walk(f.type, f.id, f"{path}, {f.name}" if path else f.name)
            case List(element, element_id):
                walk(element, element_id, f"{path}, list, element")
            case Map(key, value, key_id, value_id):
                walk(key, key_id, f"{path}, key_value, key")
                walk(value, value_id, f"{path}, key_value, value")

    walk(schema.struct, 0, "")
    return out


# Types whose bounds order as DuckDB orders them, and print as it prints them. Not floats: the footer does not
# say whether there is a NaN; not binary: it is no text.
BOUNDED = (
    *("boolean", "int", "long", "decimal", "date", "timestamp", "timestamp_ntz", "string"),
    *BOUNDS,
    *FRACTIONS,
)


def describe(folder: str, paths: Sequence[str], schema: Schema) -> list[DataFile]:
    """Describe the files below ``folder`` by their footers."""
    if not paths:
        return []
    with instance() as duckdb:  # reads them all at once
        reach(duckdb, folder)
        return _described(duckdb, folder, paths, schema)


def _described(connection: Any, folder: str, paths: Sequence[str], schema: Schema) -> list[DataFile]:
    full = [plain(folder + path) for path in paths]
    columns = leaves(schema)
    files = {
        name: (rows, size, footer)
        for name, rows, size, footer in connection.execute(
            "SELECT file_name, num_rows, file_size_bytes, footer_size FROM parquet_file_metadata(?)", [full]
        ).fetchall()
    }
    stats: dict[str, dict[int, ColumnStats]] = {name: {} for name in files}
    for row in _chunks(connection, [folder + path for path in paths], columns):
        name, path, size, values, nulls, lows, highs = row
        id_, type_ = columns[path]
        column_stats = ColumnStats(size, values - (nulls or 0), nulls)
        if type_.name in BOUNDED:
            column_stats = ColumnStats(size, values - (nulls or 0), nulls, *_bounds(lows, highs, type_))
        stats[name][id_] = column_stats
    return [
        DataFile(path, rows, size, footer, stats[folder + path])
        for path in paths
        for rows, size, footer in [files[folder + path]]
    ]


def _chunks(connection: Any, paths: Sequence[str], columns: Iterable[str]) -> list[tuple[Any, ...]]:
    """Return the statistics of the files' columns, as `_CHUNKS` has them. ``columns``: their paths.

    DuckDB cannot print a timestamp at the end of what 64 bits count, and so no statistics of its file at all:
    the columns of such a file have no bounds.
    """
    import duckdb

    try:
        rows: list[tuple[Any, ...]] = connection.execute(_CHUNKS, [list(map(plain, paths))]).fetchall()
    except duckdb.ConversionException:
        if len(paths) > 1:
            return [row for path in paths for row in _chunks(connection, [path], columns)]
        return list(_chunks_by_arrow(paths[0], {path.replace(", ", "."): path for path in columns}))
    return rows


def _chunks_by_arrow(path: str, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """The statistics of a file's columns without bounds. ``columns``: their paths by Arrow's spelling."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(native(path)) as file:
        metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number in range(metadata.num_columns):
        chunks = [group.column(number) for group in groups]
        statistics = [chunk.statistics for chunk in chunks]
        has_nulls = all(s is not None and s.has_null_count for s in statistics)
        yield (
            path,
            columns[chunks[0].path_in_schema],
            sum(chunk.total_compressed_size for chunk in chunks),
            sum(chunk.num_values for chunk in chunks),
            sum(s.null_count for s in statistics) if has_nulls else None,
            None,
            None,
        )


def ids_in(paths: Sequence[str]) -> dict[str, frozenset[int]]:
    """Return the field ids in each file's footer, nested ones included."""
    if not paths:
        return {}
    out = dict.fromkeys(paths, frozenset[int]())
    with instance() as duckdb:
        reach(duckdb, paths[0])
        rows = duckdb.execute(
            "SELECT file_name, list(field_id) FROM parquet_schema(?) WHERE field_id IS NOT NULL GROUP BY ALL",
            [[plain(path) for path in paths]],
        ).fetchall()
    return out | {name: frozenset(map(int, ids)) for name, ids in rows}


_CHUNKS = """
SELECT file_name, path_in_schema, sum(total_compressed_size), sum(num_values),
    CASE WHEN bool_and(stats_null_count IS NOT NULL) THEN sum(stats_null_count) END,
    CASE WHEN bool_and(stats_min_value IS NOT NULL OR stats_null_count = num_values)
        THEN list(stats_min_value) FILTER (stats_min_value IS NOT NULL) END,
    CASE WHEN bool_and(stats_max_value IS NOT NULL OR stats_null_count = num_values)
        THEN list(stats_max_value) FILTER (stats_max_value IS NOT NULL) END
FROM parquet_metadata(?) GROUP BY ALL"""


def _bounds(
    lows: list[str] | None, highs: list[str] | None, type_: Primitive
) -> tuple[str | None, str | None]:
    """Return the lowest and the highest of all row groups."""
    if not lows or not highs:
        return None, None
    if any("\0" in text or "\\x" in text for text in (*lows, *highs)):
        return None, None
    key = order_of(type_)
    return min(lows, key=key), max(highs, key=key)


def order_of(type_: Primitive) -> Any:
    """Return the key function that sorts DuckLake's text of this type's values as the values themselves.

    >>> from driftline.core.schema.types import LONG
    >>> sorted(["10", "-9", "9"], key=order_of(LONG))
    ['-9', '9', '10']
    """
    match type_.name:
        case name if name in ("int", "long", "decimal", *BOUNDS):
            return Decimal
        case "string":
            return str.encode
        case name if name in ("date", "timestamp", "timestamp_ntz", *FRACTIONS):
            return _moment_order
        case _:
            return str  # false before true


_YEAR = re.compile(r"(\d+)-(\S+)( \(BC\))?(.*)")


def _moment_order(text: str) -> tuple[float, str, str]:
    """The order of a date or moment as DuckDB prints it, whose year may have five digits or be before Christ.

    >>> sorted(["10000-01-01", "infinity", "2024-01-01", "0044-01-01 (BC)"], key=_moment_order)
    ['0044-01-01 (BC)', '2024-01-01', '10000-01-01', 'infinity']
    """
    match = _YEAR.fullmatch(text)
    if match is None:
        return float(text.replace("infinity", "inf")), "", ""
    year, day, before_christ, clock = match.groups()
    return 1 - int(year) if before_christ else int(year), day, clock


def listed(spark: SparkSession, folder: str) -> list[str]:
    """Return the Parquet files in a folder, below it, as paths relative to it."""
    path = hadoop_path(spark, folder)
    fs = hadoop_file_system(spark, path)
    if not fs.exists(path):
        return []
    base = fs.makeQualified(path).toUri().getPath().rstrip("/") + "/"
    out, walk = [], fs.listFiles(path, True)
    while walk.hasNext():
        name = walk.next().getPath().toUri().getPath()
        if name.endswith(".parquet") and "/_temporary/" not in name:
            out.append(str(name)[len(base) :])
    return sorted(out)


def moved(spark: SparkSession, source: str, target: str) -> None:
    """Move a file; creates the folders on the way."""
    old, new = hadoop_path(spark, source), hadoop_path(spark, target)
    fs = hadoop_file_system(spark, old)
    fs.mkdirs(new.getParent())
    if not fs.rename(old, new):
        raise SetupError(f"{source} cannot be moved to {target}", hint="check that its folder is writable")


def removed(spark: SparkSession, folder: str) -> None:
    """Delete a file or a folder that this process has made, with everything in it."""
    # What cannot be deleted is an orphan, which `driftline clean` finds
    with suppress(Exception):
        delete_by_hadoop(spark, folder, NEW)


# Spark asks for each size anyway, and would not notice a file of another size.
def unchanged(paths: Mapping[str, int], table: str) -> None:
    """Check that the registered files still have their registered size; in a store, many at once.

    Raises DataError, which names the file.
    """
    stored = [path for path in paths if local(path) is None]
    storage = Storage.of(stored[0]) if stored else None
    sizes = dict(zip(stored, at_once(partial(_size, storage), stored), strict=True)) if storage else {}
    for path, size in paths.items():
        try:
            actual = _size_here(path) if path not in sizes else sizes[path]
            if isinstance(actual, OSError):
                raise actual
        except OSError as error:
            raise DataError(
                f"{table}: the file {path} cannot be read: {error.strerror}",
                hint="it is registered in the catalog: restore it, or expire the snapshots that contain it",
            ) from error
        if actual != size:
            raise DataError(
                f"{table}: the file {path} was replaced: it now has {actual} bytes, not {size}",
                hint="restore the registered file",
            )


def _size(storage: Storage, path: str) -> int | OSError:
    """Return the size of a file of a store, or why it has none."""
    try:
        return storage.size(path)
    except OSError as error:
        return error


def _size_here(path: str) -> int:
    return os.stat(str(local(path))).st_size  # noqa: PTH116  thousands of files: no object for each
