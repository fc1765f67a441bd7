"""Expected rows of JSON records, and their fingerprints.

Each value is expected as it is written, in the column of its type. A decoder takes only records for which
that is certain; for any other, `match` decides.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, chain
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeAlias, Union

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.support import gc_paused
from driftline.verify.matching_key import TableColumn, TableStruct
from driftline.verify.moments import moment
from driftline.verify.values import number, reads_back

WIDTH = 16  # bytes of a fingerprint
_HASH = blake2b(digest_size=WIDTH)
_SLICE = 2**26  # bytes of rows that are joined at once: offsets have 31 bits

PRESENCE = pa.null()  # the type of a column that counts as null or not null
TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# Types that Spark hands over in Arrow all the same
_PRESENT = {"float", "decimal", "binary", "fixed"}

# A later one may hold a copy of an earlier one
_COPIED = ("boolean", "long", "double", "string")
# Texts that no two numbers of one double have
_SHORT = r"^-?(?:0|[1-9][0-9]{0,13})$|^-?(?:0|[1-9][0-9]{0,5})\.[0-9]{1,7}(?:e[+-]?[0-9]{1,2})?$|^-?(?:0|[1-9][0-9]{0,6})\.[0-9]{1,8}$|^-?[1-9]e[+-]?[0-9]{1,2}$"
_EXACT_INTEGER = 2**53
MOST_LEVELS = 60  # of lists, structs and maps, beyond which Arrow hands nothing over

Copies: TypeAlias = "tuple[dict[str, int], ...]"
Blocks: TypeAlias = "list[np.ndarray[Any, Any]]"


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """The type that a column is compared by: a list by its element, a struct by its fields.

    Attributes:
        levels: the depth of the column's own type.
    """

    type: pa.DataType
    children: tuple[ColumnShape, ...] = ()
    copies: Copies = ()
    levels: int = 1

    @classmethod
    def of_all(cls, record: TableStruct) -> tuple[ColumnShape | None, ...]:
        """The shapes of a record's columns; None for a type that Spark may not hand over in Arrow."""
        shapes = (cls.of(column, column.dim) for _, column in record.columns.values())
        return tuple(None if shape is None or shape.levels > MOST_LEVELS else shape for shape in shapes)

    @classmethod
    def of(cls, column: TableColumn, dim: int) -> ColumnShape | None:
        """The shape of a column inside ``dim`` lists; None if Spark may not hand its type over in Arrow."""
        if dim:
            element = cls.of(column, dim - 1)
            if element is None:
                return None
            return cls(pa.list_(element.type), (element,), levels=element.levels + 1)
        if column.record is not None:
            if column.record.rest is not None:
                return None
            children = cls.of_all(column.record)
            names = [str(i) for i in range(len(children))]
            if any(child is None for child in children):
                return None
            shapes = tuple(child for child in children if child is not None)
            type_ = pa.struct([(n, c.type) for n, c in zip(names, shapes, strict=True)])
            levels = max((child.levels for child in shapes), default=0) + 1
            return cls(type_, shapes, copies_in(column.record), levels)
        if column.value is not None:
            value = cls.of(column.value, column.value.dim)
            return None if value is None else cls(PRESENCE, levels=value.levels + 2)
        name = column.type.name if column.type is not None else ""
        return cls(TYPES.get(name, PRESENCE)) if name in TYPES or name in _PRESENT else None


def copies_in(record: TableStruct) -> Copies:
    """The positions of a key's columns, by type, if one may hold a copy of another one's value."""
    by_key: dict[str, dict[str, int]] = {}
    for place, (key, column) in enumerate(record.columns.values()):
        if not column.dim and column.type is not None and column.type.name in _COPIED:
            by_key.setdefault(key, {})[column.type.name] = place
    return tuple(places for places in by_key.values() if len(places) > 1)


def fingerprints(
    shapes: Sequence[ColumnShape], columns: Sequence[pa.Array], rows: int, copies: Copies = ()
) -> bytes:
    """The fingerprints of the rows, in order.

    Args:
        copies: those in their columns.
    """
    columns = _without(copies, columns)
    size = sum(column.get_total_buffer_size() for column in columns)  # nbytes reads offsets: see _add
    step = max(1, rows * _SLICE // max(size, 1))
    out = []
    for start in range(0, rows, step):
        slices = [column.slice(start, step) for column in columns]
        # Equal fingerprints of 128 bits over an unambiguous encoding count as equal rows.
        encoded = _encoded(shapes, slices, min(step, rows - start))
        for row in encoded.to_pylist():
            hash_ = _HASH.copy()  # in two thirds of the time that a new one takes
            hash_.update(row)
            out.append(hash_.digest())
    return b"".join(out)


def _encoded(shapes: Sequence[ColumnShape], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Each row as bytes that no other row has.

    They are a block of fixed size, with the lengths of the texts that follow it.
    """
    # One byte that is always there: without columns there would be nothing to concatenate.
    blocks: Blocks = [np.zeros((rows, 1), np.uint8)]
    texts: list[pa.Array] = []
    for shape, column in zip(shapes, columns, strict=True):
        _add(shape, column, blocks, texts)
    block = np.concatenate(blocks, axis=1)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(block.shape[1]), rows, [None, pa.py_buffer(block)]
    ).cast(pa.binary())
    return pc.binary_join_element_wise(fixed, *texts, b"") if texts else fixed


def _add(shape: ColumnShape, column: pa.Array, blocks: Blocks, texts: list[pa.Array]) -> None:
    type_ = shape.type
    # Java gives empty lists no offsets, which Arrow's kernels read all the same
    if not len(column):
        column = pa.array([], column.type)
    if pa.types.is_list(type_):
        lengths = _lengths(pc.list_value_length(column), blocks)
        elements = column.flatten()
        # Elements are encoded as rows of their own, and joined list by list behind the number of them.
        encoded = _encoded(shape.children, [elements], len(elements))
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        texts.append(pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), encoded), b""))
    elif pa.types.is_string(type_):
        binary = column.cast(pa.binary())
        _lengths(pc.binary_length(binary), blocks)
        texts.append(binary.fill_null(b""))
    else:
        blocks.append(_bytes(pc.is_valid(column).cast(pa.uint8())))
        if pa.types.is_struct(type_):
            fields = _without(shape.copies, column.flatten())
            # Below a null the children are null too: `flatten` puts the struct's nulls into its fields.
            for child, field in zip(shape.children, fields, strict=True):
                _add(child, field, blocks, texts)
        elif pa.types.is_boolean(type_):
            blocks.append(_bytes(column.fill_null(False).cast(pa.uint8())))
        elif type_ != PRESENCE:
            blocks.append(_bytes(pc.fill_null(_number(column.cast(type_)), 0)))


def _without(copies: Copies, columns: Sequence[pa.Array]) -> list[pa.Array]:
    """The columns without lawful copies.

    These are a boolean as 1 or 0, a number or boolean as text, and a whole number as a double.
    """
    out = list(columns)
    for places in copies:
        names = [name for name in _COPIED if name in places]
        for i, name in enumerate(names):
            for copy_type in names[i + 1 :]:
                copied = _is_copy(columns[places[name]], name, out[places[copy_type]], copy_type)
                out[places[copy_type]] = pc.if_else(copied, None, out[places[copy_type]])
    return out


def _is_copy(values: pa.Array, name: str, column: pa.Array, copy_type: str) -> pa.Array:
    """Flag the values of a column of the type ``name`` that the column of the ``copy_type`` holds too."""
    if name == "double":
        text = pc.if_else(pc.match_substring_regex(column, _SHORT), column, None)
        read, doubles = text.cast(pa.float64()), pc.fill_null(values, 0.0)
        # By their bits: -0.0 equals 0.0 as a number, but is no copy of it.
        same = pc.fill_null(read, np.nan).to_numpy().view(np.int64) == doubles.to_numpy().view(np.int64)
        return pc.and_(pc.and_(pa.array(same), values.is_valid()), read.is_valid())
    if copy_type == "double":
        integers = pc.if_else(pc.less_equal(pc.abs_checked(_far(values)), _EXACT_INTEGER), _far(values), None)
        return pc.fill_null(pc.equal(integers.cast(pa.float64()), column), False)
    same_type = values.cast(column.type)
    return pc.fill_null(pc.equal(same_type, column), False)


def _far(values: pa.Array) -> pa.Array:
    """Whole numbers of 64 bits; null for the least of them, which has no positive counterpart."""
    wide = values.cast(pa.int64())
    return pc.if_else(pc.equal(wide, -(2**63)), None, wide)


def _number(column: pa.Array) -> pa.Array:
    """The column's values as numbers of their size: instants count their units."""
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _lengths(lengths: pa.Array, blocks: Blocks) -> np.ndarray[Any, Any]:
    """Add the lengths to the block, -1 for null; returns them, 0 for null."""
    signed = pc.fill_null(lengths, -1).to_numpy(zero_copy_only=False).astype(np.int32)
    blocks.append(signed.reshape(-1, 1).view(np.uint8))
    lengths_of_values: np.ndarray[Any, Any] = np.maximum(signed, 0)
    return lengths_of_values


def _bytes(numbers: pa.Array) -> np.ndarray[Any, Any]:
    values = np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False))
    return values.reshape(-1, 1).view(np.uint8)


Paths: TypeAlias = "Collection[tuple[str, ...]]"  # of keys, without steps into lists

_WHOLE = {"int": 31, "long": 63}  # bits without the sign
_DAY, _TIME = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}", r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_MOMENTS = {"timestamp": f"^{_DAY}{_TIME}Z$", "timestamp_ntz": f"^{_DAY}{_TIME}$", "date": f"^{_DAY}$"}
_SCALARS = {"boolean", "double", "string", *_WHOLE, *_MOMENTS}
_NO_NAME = re.compile(r'[\x00-\x1f"\\]')  # the decoder has no keys with these

# Of up to 15 digits, a number is what its double reads back as, unless that is next to nothing.
_LONG = re.compile(rb"[0-9.]{16,}(?:[eE][+-]?[0-9]+)?")
_DIGITS, _RUN = bytes(48 if byte in b"0123456789." else 32 for byte in range(256)), b"0" * 16
_EXACT, _TINY, _NEGATIVE = 2**53, 1e-290, re.compile(rb"[0-9][eE]-")


_TOGETHER = 256  # lines that are decoded at once where one of more lines is refused
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)


class Fingerprinted(NamedTuple):
    """Fingerprints of lines.

    Attributes:
        places: of the lines that have one.
        others: of those without.
    """

    fingerprints: bytes
    places: list[int]
    others: list[int]


class ExpectedRows:
    """A maker of fingerprints of lines, for a table's columns and their ``shapes``.

    Args:
        left_out: paths of keys whose values are not compared.
    """

    def __init__(
        self, record: TableStruct, shapes: Sequence[ColumnShape], left_out: Iterable[Sequence[str]] = ()
    ) -> None:
        self._shapes = shapes
        self._has_copies = bool(copies_in(record)) or any(map(_has_copies, shapes))
        self._record = _RecordFields(record, shapes, {tuple(path) for path in left_out})
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._record.type)

    @gc_paused()
    def of_lines(self, lines: Sequence[bytes]) -> Fingerprinted:
        """The fingerprints of the rows that are expected of these lines, one record each."""
        doubts = _DoubtfulLines(lines, strictly=self._has_copies)
        records = self._decoded(lines)
        places = [place for place, record in enumerate(records) if record is not None]
        if len(places) < len(lines):
            doubts.places.update(place for place, record in enumerate(records) if record is None)
            records = [record for record in records if record is not None]
        columns = self._record.columns(records, np.array(places, np.int64), doubts)
        if doubts.places:
            certain = [i for i, place in enumerate(places) if place not in doubts.places]
            columns = [column.take(pa.array(certain, pa.int64())) for column in columns]
            places = [places[i] for i in certain]
        return Fingerprinted(fingerprints(self._shapes, columns, len(places)), places, sorted(doubts.places))

    def _decoded(self, lines: Sequence[bytes]) -> list[Any]:
        """The record of each line; None for a line that the decoder does not take."""
        records = self._at_once(lines)
        if records is not None:
            return records
        if len(lines) > _TOGETHER:
            some = (lines[start : start + _TOGETHER] for start in range(0, len(lines), _TOGETHER))
            return [*chain.from_iterable(map(self._decoded, some))]
        return [*map(self._decoded_alone, lines)]

    def _at_once(self, lines: Sequence[bytes]) -> list[Any] | None:
        """The records of all lines; None if one of them may be no record, or more than one."""
        text, ends = b"\n".join(lines), len(lines) - 1
        # No line feed within a record is between these braces, so each of them ends a record.
        if not (text[:1] == b"{" and text.count(b"\n") == ends == text.count(b"}\n{")):
            return None
        try:
            records = self._decoder.decode_lines(text)
        except _REFUSED:
            return None
        return records if len(records) == len(lines) else None

    def _decoded_alone(self, line: bytes) -> Any:
        try:
            return self._decoder.decode(line)
        except _REFUSED:
            return None


def _has_copies(shape: ColumnShape) -> bool:
    return bool(shape.copies) or any(map(_has_copies, shape.children))


class _DoubtfulLines:
    """The ``places`` of lines whose records may be another row than expected.

    Args:
        strictly: a long number may be text too, which its double cannot show.
    """

    def __init__(self, lines: Sequence[bytes], *, strictly: bool) -> None:
        self._lines, self._strictly = lines, strictly
        self.places: set[int] = set()
        self._add_unread()

    def add(self, owners: np.ndarray[Any, Any]) -> None:
        """Doubts the lines at these places."""
        self.places.update(owners.tolist())

    def add_tiny(self, owners: np.ndarray[Any, Any]) -> None:
        """Doubts those of the lines that have a number next to nothing."""
        self.places.update(i for i in set(owners.tolist()) if _NEGATIVE.search(self._lines[i]))

    def _add_unread(self) -> None:
        """Doubts lines with a number that its double does not read back as."""
        # One search over all lines for a run of 16 digits, since few lines have such a number.
        text = b" ".join(self._lines)
        digits = text.translate(_DIGITS)
        ends = list(accumulate(len(line) + 1 for line in self._lines)) if _RUN in digits else []
        start = digits.find(_RUN)
        while start >= 0 and (long := _LONG.match(text, start)):
            if (self._strictly and not long[0].isdigit()) or not _reads_back(long[0]):
                self.places.add(bisect_right(ends, start))
            start = digits.find(_RUN, long.end())


def _reads_back(text: bytes) -> bool:
    if text.isdigit():
        return True
    value = number(text.decode())
    return value is not None and (isinstance(value, int) or reads_back(float(value), value))


class _RecordFields:
    """The fields of a record: ``type`` for the decoder, and what columns its objects are."""

    def __init__(self, record: TableStruct, shapes: Sequence[ColumnShape], left_out: Paths) -> None:
        # The shapes go on with the table's other columns, which no record fills: they are null.
        self._types = [shape.type for shape in shapes]
        by_key: dict[str, list[tuple[int, TableColumn, ColumnShape]]] = {}
        for place, ((key, column), shape) in enumerate(zip(record.columns.values(), shapes, strict=False)):
            by_key.setdefault(key, []).append((place, column, shape))
        fields = {
            key: _KeyColumns(columns, {path[1:] for path in left_out if path[0] == key})
            for key, columns in by_key.items()
            if (key,) not in left_out and _is_plain(key, columns)
        }
        types = {key: f.type for key, f in fields.items()}
        types |= {path[0]: Any for path in left_out if len(path) == 1 and not _NO_NAME.search(path[0])}
        names = {key: f"f{i}" for i, key in enumerate(types)}
        self._fields = [(attrgetter(names[key]), f) for key, f in fields.items()]
        self.type: Any = msgspec.defstruct(
            "Record",
            [(names[key], type_, None) for key, type_ in types.items()],
            rename={name: key for key, name in names.items()},
            # A key without a column leaves the line in doubt. Records have no cycles for the collector to
            # look for.
            forbid_unknown_fields=True,
            gc=False,
        )

    def columns(
        self, records: Sequence[Any], owners: np.ndarray[Any, Any], doubts: _DoubtfulLines
    ) -> list[pa.Array]:
        """The columns that these objects are.

        Args:
            owners: the places of their lines.
        """
        out: list[Any] = [None] * len(self._types)
        for value, f in self._fields:
            for place, column in f.columns([*map(value, records)], owners, doubts):
                out[place] = column
        return [
            pa.nulls(len(records), type_) if column is None else column
            for column, type_ in zip(out, self._types, strict=True)
        ]


def _is_plain(key: str, columns: Sequence[tuple[int, TableColumn, ColumnShape]]) -> bool:
    """True if the type of a value determines which of its key's columns holds it."""
    if not key or _NO_NAME.search(key):
        return False
    kinds = [_kind(column) for _, column, _ in columns]
    names = set(kinds)
    numbers = names & {"double", *_WHOLE}
    return bool(
        len(names) == len(kinds)
        and names <= {"list", "record", *_SCALARS}
        and not names >= {*_WHOLE}
        and not (numbers and names & {*_MOMENTS})
        and all(_shaped(column, shape) for _, column, shape in columns)
    )


def _kind(column: TableColumn) -> str:
    if column.dim:
        return "list"
    if column.record is not None:
        return "record"
    return column.type.name if column.type is not None else ""


def _shaped(column: TableColumn, shape: ColumnShape) -> bool:
    """Tell whether a column's elements have a type that is compared."""
    for _ in range(column.dim):
        if not shape.children:
            return False
        shape = shape.children[0]
    return bool(shape.type != PRESENCE)


class _KeyColumns:
    """The columns of one key, each for values of one type."""

    def __init__(self, columns: Sequence[tuple[int, TableColumn, ColumnShape]], left_out: Paths) -> None:
        self._places = {_kind(column): place for place, column, _ in columns}
        self._whole = next((name for name in _WHOLE if name in self._places), None)
        self._records: _RecordFields | None = None
        self._elements: _ListElements | None = None
        types: list[Any] = []
        for _, column, shape in columns:
            match _kind(column):
                case "list":
                    self._elements = _ListElements(column, shape, left_out)
                    types.append(self._elements.type)
                case "record":
                    assert column.record is not None
                    self._records = _RecordFields(column.record, shape.children, left_out)
                    types.append(self._records.type)
                case name:
                    types += _python_types(name, has_whole=self._whole is not None)
        self._is_single = len(self._places) == 1
        self.type: Any = Union[(*types, None)]

    def columns(
        self, values: list[Any], owners: np.ndarray[Any, Any], doubts: _DoubtfulLines
    ) -> Iterator[tuple[int, pa.Array]]:
        """The columns of these values, each with its place."""
        texts: list[Any] | None = None
        for kind, place in self._places.items():
            if kind in _MOMENTS or kind == "string":
                texts = self._only(values, str) if texts is None else texts
            elif kind == "list":
                assert self._elements is not None
                yield place, self._elements.column(self._only(values, list), owners, doubts)
            elif kind == "record":
                assert self._records is not None
                objects = self._only(values, self._records.type)
                yield place, _structs(self._records, objects, owners, doubts)
            elif kind == "boolean":
                yield place, pa.array(self._only(values, bool), pa.bool_())
            elif kind == "double":
                accepted = (float,) if self._whole else (float, int)
                yield place, _doubles(self._only(values, *accepted), owners, doubts)
            else:
                yield place, pa.array(self._only(values, int), TYPES[kind])
        if texts is not None:
            yield from self._texts(pa.array(texts, pa.string()), owners, doubts)

    def _only(self, values: list[Any], *types: type) -> list[Any]:
        return values if self._is_single else [x if type(x) in types else None for x in values]

    def _texts(
        self, texts: pa.Array, owners: np.ndarray[Any, Any], doubts: _DoubtfulLines
    ) -> Iterator[tuple[int, pa.Array]]:
        """Texts as the instant, zoneless timestamp or date that they spell, if there is such a column."""
        for kind, pattern in _MOMENTS.items():
            if kind in self._places:
                spelled = pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)
                moments = _moments(spelled, TYPES[kind])
                if "string" not in self._places:  # which keeps the text
                    texts = pc.if_else(moments.is_valid(), None, texts)
                yield self._places[kind], moments
        if "string" in self._places:
            yield self._places["string"], texts
        # A text that no column has the type of: `match` says where it went.
        elif texts.null_count < len(texts):
            doubts.add(owners[texts.is_valid().to_numpy(zero_copy_only=False)])


def _python_types(name: str, *, has_whole: bool) -> list[Any]:
    match name:
        case "boolean":
            return [bool]
        case "double":
            return [float] if has_whole else [float, int]
        case "int" | "long":
            bits = _WHOLE[name]
            return [Annotated[int, msgspec.Meta(ge=-(2**bits), le=2**bits - 1)]]
        case _:
            return [str]


class _ListElements:
    """The elements of lists of one column."""

    def __init__(self, column: TableColumn, shape: ColumnShape, left_out: Paths) -> None:
        element = TableColumn(column.name, column.dim - 1, column.type, column.record, column.value)
        self._field = _KeyColumns([(0, element, shape.children[0])], left_out)
        self.type: Any = list[self._field.type]  # type: ignore[name-defined]

    def column(self, lists: list[Any], owners: np.ndarray[Any, Any], doubts: _DoubtfulLines) -> pa.Array:
        """A column of lists."""
        lengths = [0 if v is None else len(v) for v in lists]
        elements = [*chain.from_iterable(v for v in lists if v)]
        ((_, element_column),) = self._field.columns(elements, np.repeat(owners, lengths), doubts)
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
        return pa.ListArray.from_arrays(
            offsets, element_column, mask=pa.array([v is None for v in lists], pa.bool_())
        )


def _structs(
    fields: _RecordFields, objects: list[Any], owners: np.ndarray[Any, Any], doubts: _DoubtfulLines
) -> pa.Array:
    empty = fields.type()
    columns = fields.columns([empty if x is None else x for x in objects], owners, doubts)
    names = [str(i) for i in range(len(columns))]
    return pa.StructArray.from_arrays(columns, names, mask=pa.array([x is None for x in objects], pa.bool_()))


def _doubles(values: list[Any], owners: np.ndarray[Any, Any], doubts: _DoubtfulLines) -> pa.Array:
    try:
        column = pa.array(values, pa.float64())
    except (pa.ArrowInvalid, OverflowError):
        inexact = [type(x) is int and abs(x) > _EXACT for x in values]
        doubts.add(owners[inexact])
        column = pa.array([None if no else x for x, no in zip(values, inexact, strict=True)], pa.float64())
    tiny = np.abs(column.to_numpy(zero_copy_only=False)) < _TINY
    if tiny.any():
        doubts.add_tiny(owners[tiny])
    return column


def _moments(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """The moments that texts look like; null if there is no such day or time."""
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        return pa.array([None if text is None else moment(text) for text in texts.to_pylist()], type_)
