"""Checks a small table of an embedded lake against small files in this process, without Java.

DuckDB reads the rows, with the deletes and schema changes of the table. Whatever it may read otherwise than
Spark is left to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.core.history.batch_properties import FEED
from driftline.core.planning.own_columns import own_column
from driftline.core.schema.naming import QUARANTINE, caseless
from driftline.core.schema.types import Primitive, Schema, Struct, Type
from driftline.core.settings.properties import readings
from driftline.core.settings.row_key import DELETED_KIND
from driftline.errors import NeedsSpark, no_table
from driftline.files.endings import is_archive, is_packed
from driftline.operations.duckdb_query import query
from driftline.quarantine.replays import IS_DISCARDED, last_replay, waits
from driftline.runtime.duckdb import identifier
from driftline.verify.job import Stored, compared_columns, verify
from driftline.verify.local import LocalRows

if TYPE_CHECKING:
    import pyarrow as pa

    from driftline.formats.lakes import OfflineTable
    from driftline.formats.open import EmbeddedLake
    from driftline.verify.verdict import Verdict

# Bytes of JSON, of more than which Spark's tasks make shorter work
_SOURCE = 32 * 2**20
_CSV = 4  # times as long takes a byte of CSV, whose values are compared one by one
_PACKED = 8  # times as long a byte of a packed or typed file
_ROWS = 200_000  # of a table; more would take longer than a start of Spark
_BYTES = 256 * 2**20  # of these rows in Arrow
_BATCH = 10_000  # rows
# Types whose values DuckDB hands over as Spark does.
_SAME = frozenset(
    [
        *("boolean", "int", "long", "float", "double", "decimal", "string", "uuid", "binary", "fixed"),
        *("date", "timestamp", "timestamp_ntz"),
    ]
)
# A quarantined record, in one of both, and why it waits
_RAW = ("raw", "raw_bytes", "reason")


def check_small(lake: EmbeddedLake, name: str, files: Sequence[str], fmt: str, *, exactly: bool) -> Verdict:
    """Check that a table by ``namespace.table`` has each record of the files, as `Table.verify` does.

    Raises NeedsSpark where that takes Spark, UsageError for records of which there is no table.
    """
    try:
        _must_be_small(files, fmt)
        table = _SmallTable.of(lake, name)
        verdict = table.verdict(files, fmt, exactly=exactly)
    except Exception as error:  # whatever is wrong with a file, Spark's road says so
        raise NeedsSpark(f"{name}: {error}") from error
    if verdict.records and not table.exists:
        raise no_table(name)
    return verdict


def _must_be_small(files: Sequence[str], fmt: str) -> None:
    if fmt == "excel":
        raise NeedsSpark("workbooks become files for tasks")
    size, plain = 0, {"json": 1, "csv": _CSV}.get(fmt, _PACKED)
    for file in files:
        path = Path(file)
        # Once a pipe is read, Spark could not read it.
        if is_archive(file) or not path.is_file():
            raise NeedsSpark(f"{file} is no plain file of this machine")
        size += path.stat().st_size * (_PACKED if is_packed(file) else plain)
    if size > _SOURCE:
        raise NeedsSpark("the files are large")


@dataclass(frozen=True, slots=True)
class _SmallTable:
    """A table of an embedded lake, and its quarantine, each None where it is not there."""

    lake: EmbeddedLake
    name: str
    own: OfflineTable | None
    quarantine: OfflineTable | None

    @classmethod
    def of(cls, lake: EmbeddedLake, name: str) -> _SmallTable:
        """The table by ``namespace.table``. Raises NeedsSpark if it takes Spark to know what is there."""
        lake.check_open(writes=False)
        names = lake.names(views=True)
        tables = {each: lake.table(each) for each in (name, f"{name}{QUARANTINE}")}
        if names is None or any(
            table is None and caseless(each) in map(caseless, names) for each, table in tables.items()
        ):
            raise NeedsSpark("the catalog or the table cannot be read")
        return cls(lake, name, *tables.values())

    @property
    def exists(self) -> bool:
        """True if there is the table or a record that waits for it."""
        return self.own is not None or self.quarantine is not None

    def verdict(self, files: Sequence[str], fmt: str, *, exactly: bool) -> Verdict:
        """Check the table. Raises NeedsSpark."""
        reached, properties = 0, self._properties()
        if readings(properties):
            raise NeedsSpark("each file has to be read as it once was")
        if self.quarantine is not None:
            reached = last_replay(self.quarantine.load(), properties)
        stored = self._stored(properties, self._quarantined(waits(reached)))
        verdict = verify(None, stored, files, fmt, exactly=exactly)
        if verdict.missing and self.quarantine is not None:
            all_kept = self._quarantined(f"({waits(reached)}) or {IS_DISCARDED}")
            again = verify(None, replace(stored, quarantine=all_kept), files, fmt)
            verdict = verdict.with_discarded(again)
        return verdict

    def _properties(self) -> Mapping[str, str]:
        if self.own is not None:
            return self.own.load().properties
        # A first batch that is refused whole makes no table, so its settings wait with its records.
        feed = self.quarantine.load().properties.get(FEED, "{}") if self.quarantine is not None else "{}"
        properties: Mapping[str, str] = json.loads(feed)
        return properties

    def _stored(self, properties: Mapping[str, str], quarantined: LocalRows | None) -> Stored:
        if self.own is None:
            return Stored.of(LocalRows((), lambda: iter(())), Schema(Struct(())), quarantined, properties)
        schema = self.own.load().schema
        struct = compared_columns(schema.struct)
        if not struct.fields or not all(_is_same(f.type) for _, f in Schema(struct).walk()):
            raise NeedsSpark("DuckDB hands a column over otherwise than Spark")
        deleted = own_column(schema.struct, DELETED_KIND)
        # Rows that only record a delete are none of the table's.
        where = None if deleted is None else f"NOT coalesce({identifier(deleted.name)}, false)"
        rows = self._rows(self.name, [f.name for f in struct.fields], where)
        defaults = self.own.defaults()
        return Stored.of(rows, replace(schema, struct=struct), quarantined, properties, defaults)

    def _quarantined(self, where: str) -> LocalRows | None:
        name = f"{self.name}{QUARANTINE}"
        return None if self.quarantine is None else self._rows(name, _RAW, where)

    def _rows(self, name: str, columns: Sequence[str], where: str | None) -> LocalRows:
        # Under a name of its own: a struct may be named like the table, and have a field named like a column.
        alias = max(("r", *columns), key=len) + "_"
        listed = ", ".join(f"{identifier(alias)}.{identifier(column)}" for column in columns)
        table = ".".join(map(identifier, name.split(".")))
        condition = f" WHERE {where}" if where else ""
        sql = f"SELECT {listed} FROM {table} AS {identifier(alias)}{condition}"
        return LocalRows(columns, partial(_batches, self.lake, sql))


def _is_same(type_: Type) -> bool:
    return not isinstance(type_, Primitive) or type_.name in _SAME


def _batches(lake: EmbeddedLake, sql: str) -> Iterator[pa.RecordBatch]:
    """The rows that DuckDB selects. Raises NeedsSpark if they are too many."""
    rows = size = 0
    with query(lake.in_duckdb(sql), sql, _BATCH) as batches:
        for batch in batches:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > _ROWS or size > _BYTES:
                raise NeedsSpark("the table is large")
            yield batch
