"""Deletes that a table remembers, so that late changes bring no deleted row back.

Of a row that is gone its key and the order of its delete stay, in files beside those of rows. The name of
such a file has the moment since which its deletes are remembered.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from driftline.convert.types import arrow_schema
from driftline.core.schema.types import Field, Struct
from driftline.keys.identity import BatchKeys, FieldColumns, by_kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NAME = re.compile(r"\d{5}-(\d+)-[0-9a-f]{32}-\d{5}\.parquet$")
OF_BATCH, _GATHERED = (
    "00000",
    "00001",
)  # how the name of a file begins: one batch's deletes, or those of several
_SLOTS = 7  # into which the span of memory is divided
_FEW = 16  # files of the present slot: so many are gathered into one; those of a past one always are
_LARGE = 8 * 2**20  # bytes: a file that stays as it is


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """Deletes of a batch that are to be remembered, for ``span`` seconds.

    ``fields``: the columns of the key; ``rows``: by column id, with the ``orders`` of their deletes, which
    are in the column ``order`` of the table.
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
        """The deletes among a batch's changes: its rows ``gone``, with their ``orders`` among all."""
        places = pa.array(gone)
        return cls(keys.fields, keys.rows.take(places), orders.take(places), order, span)

    @property
    def columns(self) -> pa.Table:
        """Key and order columns, by their ids."""
        return self.rows.append_column(str(self.order), self.orders)


def key_texts(fields: Sequence[FieldColumns], rows: pa.Table) -> pa.Array:
    """Each row's key as JSON: a list of its values, each as a text behind its kind. ``rows``: columns by id.

    >>> rows = pa.table({"1": [7, None, None], "2": ["x", "7", None]})
    >>> from driftline.core.schema.types import LONG, STRING
    >>> key_texts([FieldColumns.of([(1, LONG), (2, STRING)])], rows).to_pylist()
    ['[["number", "7"]]', '[["text", "7"]]', '[null]']
    """
    keys: list[list[tuple[str, str] | None]] = [[] for _ in range(len(rows))]
    for columns in fields:
        parts: list[tuple[str, str] | None] = [None] * len(rows)
        for type_, column in columns.values(rows):
            for kind, values in by_kind(column, type_):
                name = "number" if kind == "whole" else kind
                for place, value in enumerate(values.to_pylist()):
                    if value is not None:
                        parts[place] = name, value.hex() if isinstance(value, bytes) else str(value)
        for key, part in zip(keys, parts, strict=True):
            key.append(part)
    return pa.array([json.dumps(key, ensure_ascii=False) for key in keys], pa.string())


def only(struct: Struct, ids: Collection[int]) -> Struct:
    """The columns with these ids, and the structs around them."""
    fields: list[Field] = []
    for f in struct.fields:
        if isinstance(f.type, Struct):
            if (inside := only(f.type, ids)).fields:
                fields.append(replace(f, type=inside))
        elif f.id in ids:
            fields.append(f)
    return Struct(tuple(fields))


def nested(struct: Struct, columns: pa.Table) -> pa.RecordBatch:
    """Rows of the ``struct`` from leaf ``columns``, named by their ids; null where there is none."""
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
    """A file of remembered deletes. ``since``: seconds since 1970; files that others wrote count as new."""

    path: str
    size: int
    since: float

    @classmethod
    def of(cls, path: str, size: int) -> MemoryFile:
        """A file that is known by its path."""
        named = _NAME.search(path)
        return cls(path, size, int(named[1]) / 1000 if named else time.time())


def name_of(since: float, *, gathered: bool = False) -> str:
    """A new name for a file of deletes; ``gathered``: of several batches."""
    return f"{_GATHERED if gathered else OF_BATCH}-{int(since * 1000)}-{uuid4().hex}-00001.parquet"


@dataclass(frozen=True, slots=True)
class Tidying:
    """Files of remembered deletes that are to go: ``outdated`` ones, and groups that become one file each."""

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
        groups = (g for number, g in slots.items() if len(g) >= (_FEW if number >= present else 2))
        return cls(outdated, list(groups))

    @property
    def gone(self) -> list[MemoryFile]:
        """All files that go."""
        return [*self.outdated, *(file for group in self.groups for file in group)]


def latest(group: Iterable[MemoryFile]) -> float:
    """The moment since which all deletes of a group of files are remembered."""
    return max(file.since for file in group)
