"""Files of an Iceberg table that this process looks keys up in, and those that it writes by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.core.schema.types import Field, Primitive
from driftline.errors import DataError, SetupError
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.store import options_of
from driftline.formats.iceberg.task_files import location_of
from driftline.formats.lookup import KeyLookup, find_rows
from driftline.keys.stored import KeyFile
from driftline.runtime import stores
from driftline.runtime.disk import local, on_disk
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.keys.identity import Bounds
    from driftline.keys.settle import Found
    from driftline.keys.stored import KeyCache


class KeyFiles:
    """Access to the files of a Java transaction's table, ``name``.

    ``open``: opens a file, in tasks too; ``paths``: gets the paths of the files that are written.
    """

    def __init__(self, spark: SparkSession, java: Any, name: str, paths: list[str]) -> None:
        self._spark = spark
        self.jvm: Any = spark._jvm
        self._java = java
        self.location = location_of(java.table())
        options = None
        if on_disk(self.location) is None:
            options = options_of(spark, java.table(), self.location)
            if options is None:
                raise SetupError(
                    f"{name}: its rows cannot be looked up by key: only Java reaches {self.location}",
                    "keep the table in a store that `driftline doctor` names, or on a disk",
                )
        self._options: Mapping[str, str] | None = options
        self.open = partial(_opened, options)
        self._paths = paths

    def planned(
        self, scan: Any, ids: Sequence[int], tasks: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The data files of a Java scan as Iceberg's JSON has them, each with its ``deletes``.

        ``ids``: the columns whose statistics they have; ``tasks``: gets Java's scan tasks, by path.
        """
        schema, names = scan.schema(), java_type(self.jvm, "java.util.ArrayList")()
        for name in filter(None, (schema.findColumnName(id_) for id_ in ids)):
            names.add(name)
        parser = java_type(self.jvm, "org.apache.iceberg.ScanTaskParser")
        for task in items(scan.includeColumnStats(names).planFiles()):
            planned = json.loads(parser.toJson(task))
            if tasks is not None:
                tasks[planned["data-file"]["file-path"]] = task
            yield {**planned["data-file"], "deletes": planned.get("delete-files", [])}

    def find(
        self, files: Iterable[Mapping[str, Any]], lookup: KeyLookup, cache: KeyCache | None = None
    ) -> list[Found]:
        """Find the rows of these files that have a key of the batch. Raises DataError for a file whose keys
        cannot be read.
        """
        constants = lookup.constants
        sized = [(_size(file, lookup), KeyFile(file["file-path"], constants)) for file in files]
        return find_rows(self._spark.sparkContext, lookup.finder(self.open), sized, cache)

    def created(self, path: str) -> pa.NativeFile:
        """Create a file, which is known among the paths from now on."""
        self._paths.append(path)
        if self._options is not None:
            return stores.created(path, self._options)
        place = local(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(place), "wb")

    def as_java(self, file: Mapping[str, Any]) -> Any:
        """Java's object of a file as Iceberg's JSON has it."""
        parser = java_type(self.jvm, "org.apache.iceberg.ContentFileParser")
        mapper = java_type(self.jvm, "org.apache.iceberg.util.JsonUtil").mapper()
        return parser.fromJson(mapper.readTree(json.dumps(file)), self._java.table().specs())


def _opened(options: Mapping[str, str] | None, path: str) -> pa.NativeFile:
    return pa.memory_map(str(local(path))) if options is None else stores.native(path, options)


def may_have(file: Mapping[str, Any], lookup: KeyLookup) -> bool:
    """True if the bounds of a file do not rule out that it has a key."""
    key_columns = (lookup.columns[id_] for id_ in lookup.keys.ids if id_ in lookup.columns)
    return lookup.keys.may_be_in(_bounds(file, key_columns))


def _size(file: Mapping[str, Any], lookup: KeyLookup) -> int:
    """The bytes of the columns in a file. Raises DataError for one whose keys cannot be read."""
    if file["file-format"].lower() != "parquet" or file.get("key-metadata"):
        raise DataError(
            f"{file['file-path']}: keys are not looked up in files of {file['file-format']}, nor in encrypted ones",
            "write the table anew in Parquet first: CALL … rewrite_data_files",
        )
    sizes = _by_id(file, "column-sizes")
    return sum(sizes.get(id_, 0) for id_ in lookup.columns) or int(file["file-size-in-bytes"])


def _by_id(file: Mapping[str, Any], name: str) -> dict[int, Any]:
    pairs = file.get(name)
    return {} if pairs is None else dict(zip(pairs["keys"], pairs["values"], strict=True))


def _bounds(file: Mapping[str, Any], columns: Iterable[Field]) -> dict[int, Bounds]:
    """The bounds of a data file's key columns, as `BatchKeys.may_be_in` takes them."""
    lows, highs, values, nulls = (
        _by_id(file, name) for name in ("lower-bounds", "upper-bounds", "value-counts", "null-value-counts")
    )
    bounds: dict[int, Bounds] = {}
    for column in columns:
        id_, type_ = column.id, column.type
        if id_ in values and values[id_] == nulls.get(id_):
            continue  # nothing but null
        has_both = id_ in lows and id_ in highs and isinstance(type_, Primitive)
        name = type_.name if has_both and isinstance(type_, Primitive) else ""
        bounds[id_] = None
        if name in ("int", "long"):
            low, high = (int.from_bytes(bytes.fromhex(b[id_]), "little", signed=True) for b in (lows, highs))
            bounds[id_] = low, high
        elif name == "string":
            bounds[id_] = bytes.fromhex(lows[id_]).decode(), bytes.fromhex(highs[id_]).decode()
    return bounds
