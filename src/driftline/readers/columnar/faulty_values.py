"""Rows of typed columns with a value outside its type: text that is not UTF-8, too many digits.

Such a row is set aside, and the others are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert.declared import Declared
from driftline.convert.rest import row_texts
from driftline.core.schema.types import Struct
from driftline.errors import DataError
from driftline.readers.columnar.rows import Rows
from driftline.readers.rejects import Reject

PlaceOf: TypeAlias = Callable[[int], str]  # a prefix for the reason of a row, by its number
# What Arrow says of values, and why their rows are set aside; the others have a place in a table.
_FAULTS = (
    ("Invalid UTF8", "text that is not UTF-8"),
    ("does not fit in precision", "a decimal with more digits than its type has"),
)


def read_checked(
    declared: Declared,
    columns: Sequence[pa.Array],
    source: str,
    place: PlaceOf = lambda _: "",
    first: int | None = None,
) -> Rows:
    """Read the columns of an Arrow schema as those of a table, and check their rows, as `checked` does.

    Raises DataError for values that cannot be read, with their column.
    """
    try:
        return checked(declared.read(columns), declared.struct, source, place, first)
    except DataError:
        # A table's decimal has no room for some digits: the source's own columns tell which rows have them.
        reasons = _reasons(columns, declared.schema.names, place)
        if not reasons:
            raise
    wide = Declared(pa.schema([f.with_type(_widest(f.type)) for f in declared.schema]), declared.leaves)
    faulty = pa.array(sorted(reasons))
    widened = [c.take(faulty).cast(f.type) for c, f in zip(columns, wide.schema, strict=True)]
    sound = pa.array(_sound(len(columns[0]), reasons))
    batch = declared.read([column.filter(sound) for column in columns])
    return _without(batch, source, first, reasons, row_texts(wide.read(widened), wide.struct))


def checked(
    batch: pa.RecordBatch,
    struct: Struct,
    source: str,
    place: PlaceOf = lambda _: "",
    first: int | None = None,
) -> Rows:
    """Check the rows by the types of ``struct``; those with a faulty value become rejects.

    ``first``: the number of the first row in its file, if that is known.
    """
    reasons = _reasons(batch.columns, [f.name for f in struct.fields], place)
    if not reasons:
        lines = None if first is None else np.arange(first, first + batch.num_rows)
        return Rows(batch, source, lines=lines)
    texts = row_texts(batch.take(pa.array(sorted(reasons))), struct)
    sound = batch.filter(pa.array(_sound(batch.num_rows, reasons)))
    return _without(sound, source, first, reasons, texts)


def _without(
    sound: pa.RecordBatch,
    source: str,
    first: int | None,
    reasons: Mapping[int, str],
    texts: Sequence[bytes],
) -> Rows:
    """The ``sound`` rows, and those between them as rejects."""
    count = sound.num_rows + len(reasons)
    lines = None if first is None else np.arange(first, first + count)
    rows = Rows(sound, source, lines=lines)
    rejects = [
        Reject(rows.origin_of(number), text, reasons[number])
        for number, text in zip(sorted(reasons), texts, strict=True)
    ]
    return Rows(sound, source, rejects, lines=None if lines is None else lines[_sound(count, reasons)])


def _sound(count: int, reasons: Mapping[int, str]) -> NDArray[np.bool_]:
    """Flags of the rows that have no reason to be set aside."""
    flags = np.ones(count, np.bool_)
    flags[list(reasons)] = False
    return flags


def _reasons(columns: Sequence[pa.Array], names: Sequence[str], place: PlaceOf) -> dict[int, str]:
    """The first fault of each row that has one."""
    reasons: dict[int, str] = {}
    for name, column in zip(names, columns, strict=True):
        for row, fault in _faulty(column, range(len(column))):
            reasons.setdefault(row, f"{place(row)}{name}: {fault}")
    return reasons


def _widest(type_: pa.DataType) -> pa.DataType:
    """The type with decimals, at any depth, that have room for more digits than they say."""
    if pa.types.is_decimal(type_):
        return pa.decimal256(76, type_.scale)
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(_widest(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(_widest(type_.value_type))
    if pa.types.is_large_list(type_):
        return pa.large_list(_widest(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_widest(type_.key_type), _widest(type_.item_type))
    return type_


def _faulty(column: pa.Array, rows: range) -> Iterator[tuple[int, str]]:
    """Find the rows with a faulty value, and the faults, by halves."""
    # A slice of lists would have the values of all.
    part = np.arange(rows.start, rows.stop) if len(rows) < len(column) else None
    fault = _fault(column if part is None else column.take(pa.array(part)))
    if fault and len(rows) == 1:
        yield rows.start, fault
    elif fault:
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            yield from _faulty(column, half)


def _fault(column: pa.Array) -> str | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return next((fault for message, fault in _FAULTS if message in str(error)), None)
    return None
