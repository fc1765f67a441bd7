"""Deletes and truncates that a table remembers, so that late changes restore no deleted row.

Of a deleted row, the key and the order of its delete stay, in separate files. The name of such a file has
the time since which its deletes are remembered.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.types import arrow_schema
from driftline.core.schema.types import STRING, Field, Struct
from driftline.keys.identity import BatchKeys, Bounds, FieldColumns, by_kind, orders
from driftline.keys.settle import Found

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The time is in the name: the snapshots that know it expire, and sequence numbers tell only the order.
_NAME = re.compile(r"\d{5}-(\d+)-[0-9a-f]{32}-\d{5}\.parquet$")
# How the name of a file begins: one batch's deletes, or those of several
OF_BATCH, _GATHERED = (
    "00000",
    "00001",
)
# Files are dropped whole. Only files of one slot are gathered, so nothing is remembered much longer than the
# span.
_SLOTS = 7  # into which the span of memory is divided
# Files of the present slot: so many are gathered into one; those of a past one always are
_FEW = 16
_LARGE = 8 * 2**20  # bytes: a file that stays as it is


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """Deletes of a batch, to be remembered for ``span`` seconds.

    Attributes:
        fields: the columns of the key.
        rows: the key columns, by id.
        orders: the orders of the deletes.
        order: the id of the table's column with the order.
    """

    fields: Sequence[FieldColumns]
    rows: pa.Table
    orders: pa.Array
    order: int
    span: int

    @classmethod
    def of(
        cls, keys: BatchKeys, gone: NDArray[np.int64], orders: pa.Array, order: int, span: int
    ) -> DeletedKeys:
        """Select the deletes from a batch's changes: its rows ``gone``, with their ``orders`` among all."""
        places = pa.array(gone)
        return cls(keys.fields, keys.rows.take(places), orders.take(places), order, span)

    @property
    def columns(self) -> pa.Table:
        """Key and order columns, by their ids."""
        return self.rows.append_column(str(self.order), self.orders)


def key_texts(fields: Sequence[FieldColumns], rows: pa.Table) -> pa.Array:
    """Format each row's key as JSON: a list of values, each a kind and a text.

    Args:
        rows: columns by id.

    >>> rows = pa.table({"1": [7, None, None], "2": ["x", "7", None]})
    >>> from driftline.core.schema.types import LONG, STRING
    >>> key_texts([FieldColumns.of([(1, LONG), (2, STRING)])], rows).to_pylist()
    ['[["number", "7"]]', '[["text", "7"]]', '[null]']
    """
    # A DuckLake remembers deletes in a table with fixed columns, which need not follow changes of the key's
    # columns. So the key is one text, and each value has its kind next to it.
    keys: list[list[tuple[str, str] | None]] = [[] for _ in range(len(rows))]
    for columns in fields:
        parts: list[tuple[str, str] | None] = [None] * len(rows)
        for type_, column in columns.values(rows):
            for kind, values in by_kind(column, type_):
                # Whole numbers are a kind of their own only to be compared quickly; as keys, 7 and 7.0 are
                # one.
                name = "number" if kind == "whole" else kind
                for place, value in enumerate(values.to_pylist()):
                    if value is not None:
                        parts[place] = name, value.hex() if isinstance(value, bytes) else str(value)
        for key, part in zip(keys, parts, strict=True):
            key.append(part)
    return pa.array([json.dumps(key, ensure_ascii=False) for key in keys], pa.string())


def only(struct: Struct, ids: Collection[int]) -> Struct:
    """Select the columns with these ids, and the structs around them."""
    fields: list[Field] = []
    for f in struct.fields:
        if isinstance(f.type, Struct):
            if (inside := only(f.type, ids)).fields:
                fields.append(replace(f, type=inside))
        elif f.id in ids:
            fields.append(f)
    return Struct(tuple(fields))


def nested(struct: Struct, columns: pa.Table) -> pa.RecordBatch:
    """Nest leaf ``columns``, named by their ids, to rows of ``struct``; missing columns are null."""
    schema, count = arrow_schema(struct), len(columns)

    def array(f: Field, type_: pa.DataType) -> pa.Array:
        """The values of a field."""
        if isinstance(f.type, Struct):
            inside = [array(part, type_.field(i).type) for i, part in enumerate(f.type.fields)]
            return pa.StructArray.from_arrays(inside, fields=list(type_))
        if str(f.id) not in columns.column_names:
            return pa.nulls(count, type_)
        return columns.column(str(f.id)).combine_chunks().cast(type_)

    arrays = [array(f, schema.field(i).type) for i, f in enumerate(struct.fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file of remembered deletes.

    Attributes:
        since: seconds since 1970; files by other writers count as new.
    """

    path: str
    size: int
    since: float

    @classmethod
    def of(cls, path: str, size: int) -> MemoryFile:
        """Describe a file from its path."""
        named = _NAME.search(path)
        # A file by another writer may hold deletes of now, and forgetting one would bring its row back.
        return cls(path, size, int(named[1]) / 1000 if named else time.time())


def name_of(since: float, *, gathered: bool = False) -> str:
    """Make up a name for a file of deletes; ``gathered``: of several batches."""
    return f"{_GATHERED if gathered else OF_BATCH}-{int(since * 1000)}-{uuid4().hex}-00001.parquet"


@dataclass(frozen=True, slots=True)
class Tidying:
    """Files of remembered deletes to remove: ``outdated`` ones, and groups to be merged."""

    outdated: Sequence[MemoryFile] = ()
    groups: Sequence[Sequence[MemoryFile]] = field(default=())

    @classmethod
    def of(cls, files: Iterable[MemoryFile], now: float, span: int) -> Tidying:
        """Find the files that are older than ``span`` seconds, and those that are small and many."""
        slot = max(span / _SLOTS, 1)
        present, outdated, slots = int(now // slot), [], dict[int, list[MemoryFile]]()
        for file in files:
            if file.since < now - span:
                outdated.append(file)
            elif file.size < _LARGE:
                slots.setdefault(int(file.since // slot), []).append(file)
        # A past slot gets no more files, so two are enough; the present one would be rewritten with each
        # batch.
        groups = (g for number, g in slots.items() if len(g) >= (_FEW if number >= present else 2))
        return cls(outdated, list(groups))

    @property
    def gone(self) -> list[MemoryFile]:
        """All files to remove."""
        return [*self.outdated, *(file for group in self.groups for file in group)]


def latest(group: Iterable[MemoryFile]) -> float:
    """Return the time since which all deletes of a group of files are remembered."""
    return max(file.since for file in group)


Positions: TypeAlias = "Mapping[str, NDArray[np.int64]]"  # of rows, by file


@dataclass(frozen=True, slots=True)
class LastTruncate:
    """The last truncate that a table knows.

    Attributes:
        epoch: its epoch.
        position: its position, empty if there is none.
        new: the batch brings it, and older rows are deleted.
        updates: it is a snapshot, and the batch has the new values of rows that stay.
    """

    position: str = ""
    epoch: int = 0
    new: bool = False
    updates: bool = False

    @classmethod
    def of(cls, known: tuple[int, str], sent: tuple[int, str], *, updates: bool = False) -> LastTruncate:
        """Return the later truncate: the table's ``known`` one, or the last one ``sent`` by a batch.

        Each is given by epoch and position.
        """
        # By epoch first: positions of a source that was reset say nothing about those before.
        new = bool(sent[1]) and sent > known
        epoch, position = sent if new else known
        return cls(position, epoch, new, updates)

    def updated(self, orders: pa.Array) -> pa.Array:
        """Flag keys, by the ``orders`` of their latest changes, whose older rows are updated."""
        return pc.and_(pc.greater_equal(orders, self.floor), self.updates)

    @property
    def floor(self) -> str:
        """The truncate as an order of rows; empty if there is none."""
        if not self.position:
            return ""
        position = pa.table({"0": [self.position]})
        text: str = orders(position, [FieldColumns.of([(0, STRING)])], self.epoch)[0].as_py()
        return text


@dataclass(frozen=True, slots=True)
class KeysAndOlder:
    """The keys of a batch, and all rows with an order below the ``floor``.

    Older rows have the code after the last key's, whatever their key is, unless the batch has ``updated`` it.
    They are looked up like `BatchKeys`. ``order``: the id of the order column.
    """

    keys: BatchKeys
    order: int
    floor: str
    updated: pa.Array

    @property
    def ids(self) -> list[int]:
        """The columns that are compared."""
        return [*self.keys.ids, self.order]

    def candidates(self, rows: pa.Table) -> None:
        """Any row may be older."""

    def codes(self, rows: pa.Table) -> pa.Array:
        """Return the code of each row; null for a row that does not match."""
        codes = self.keys.codes(rows)
        # Strictly less: a row at the truncate's own position may be newer.
        older = pc.less(rows.column(str(self.order)).cast(pa.string()), self.floor)
        older = pc.and_not(older, pc.fill_null(self.updated.take(codes), False))
        return pc.if_else(pc.fill_null(older, False), pa.scalar(len(self.keys), codes.type), codes)

    def may_be_in(self, bounds: Mapping[int, Bounds]) -> bool:
        """True if some rows may have a key of the batch, or be older."""
        # A column of nulls is never older: the text sorts behind every order.
        bound = bounds.get(self.order, ("\U0010ffff", None))
        return bound is None or bound[0] < self.floor or self.keys.may_be_in(bounds)

    def apart(self, found: Iterable[Found]) -> tuple[list[Found], Positions]:
        """Split the rows with a key of the batch from the positions of older rows, by file."""
        rows: list[Found] = []
        older: dict[str, list[NDArray[np.int64]]] = {}
        for hits in found:
            is_older = hits.codes == len(self.keys)
            if is_older.any():
                older.setdefault(hits.file, []).append(hits.positions[is_older])
            rows.append(hits.only(~is_older))
        return rows, {file: np.concatenate(parts) for file, parts in older.items()}


def as_deletes(floor: str, keys: int) -> Found:
    """Express a truncate as remembered deletes of so many keys, each deleted at the ``floor``."""
    # Settling, filling and patches need no rule for truncates: to late changes, a truncate is a remembered
    # delete.
    codes = np.arange(keys)
    return Found("", codes, codes, pa.repeat(floor, keys).cast(pa.string()))


def together(some: Positions, others: Positions) -> Positions:
    """Merge positions of rows, by file."""
    parts: dict[str, Sequence[NDArray[np.int64]]] = {
        file: [rows[file] for rows in (some, others) if file in rows] for file in {**some, **others}
    }
    return {file: np.unique(np.concatenate(rows)) for file, rows in parts.items()}
