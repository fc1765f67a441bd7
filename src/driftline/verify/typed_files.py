"""Parquet and Avro in plain Python: structs as dicts without nulls, instants in UTC.

A value that no column holds as it is gets the spelling of the rules: a time, and an instant finer than a
microsecond, as text; a map whose keys are records as a list of entries.
"""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC
from decimal import Decimal
from functools import partial
from itertools import repeat
from typing import IO, Any, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from driftline.errors import DataError
from driftline.runtime.failure import WHOLE
from driftline.verify.files import Read, SourcePlace, opened
from driftline.verify.moments import FarMoment, OldDays, date_at, old_date_at, old_days, timestamp_at
from driftline.verify.values import Pairs, Single, Untyped

# What pyarrow, fastavro and their codecs raise for bytes that are not what the header says.
_BROKEN = (pa.ArrowException, OSError, EOFError, ValueError, LookupError, zlib.error, lzma.LZMAError)


_ROWS = 5_000  # per batch
_FAR = 2**63 * 1000  # nanoseconds, of a moment that is text in the table
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
Plain = Callable[[Any], Any]


def read_columns(path: str, fmt: str) -> Iterator[Read]:
    """The records of a Parquet or an Avro file."""
    place = SourcePlace(path)
    with _typed(path) as file:
        for record in _parquet(file) if fmt == "parquet" else _avro(file):
            yield Read(place, record)


@contextmanager
def _typed(path: str) -> Iterator[IO[bytes]]:
    """A typed file, opened. Raises DataError with its path where a library cannot read it."""
    with opened(path) as file:
        try:
            yield file
        except LookupError as error:
            raise DataError(
                f"{path}: cannot be read: its values are not what its schema says", WHOLE
            ) from error
        except _BROKEN as error:
            raise DataError(f"{path}: cannot be read: {str(error) or type(error).__name__}", WHOLE) from error


def readable(path: str, fmt: str) -> bool:
    """True if `read_columns` can read the file.

    It lacks some of Avro's codecs, takes Avro's metadata for text, and refuses logical types that should not
    count.
    """
    if fmt != "avro":
        return fmt == "parquet"
    from fastavro import reader
    from fastavro.schema import SchemaParseException

    with _typed(path) as file, suppress(UnicodeDecodeError, SchemaParseException):
        return reader(file).metadata.get("avro.codec", "null") in ("null", "deflate", "bzip2", "xz")
    return False


Renames: TypeAlias = "dict[str, tuple[str, Renames]]"  # the column of each field, and those inside


def earlier_names(path: str, keys: Mapping[str, Any]) -> Renames:
    """The fields of an Avro file that a table has by an alias of theirs, and not by their name.

    Args:
        keys: the fields of the table, each with those inside.
    """
    from fastavro import reader
    from fastavro.schema import SchemaParseException

    schema: Any = None
    with _typed(path) as file, suppress(UnicodeDecodeError, SchemaParseException):
        schema = reader(file).writer_schema
    return _renames(schema, keys, {})


def _renames(schema: Any, keys: Mapping[str, Any], named: dict[str, Any]) -> Renames:
    if isinstance(schema, list):
        several = [branch for branch in schema if _is_nested(branch, named)]
        return _renames(several[0], keys, named) if len(several) == 1 else {}
    if isinstance(schema, str):
        schema = named.get(schema)
    # A recursive schema ends where the table does
    if not isinstance(schema, dict) or not keys:
        return {}
    if "fields" not in schema:
        return _renames(schema.get("items"), keys, named)
    named[schema["name"]] = schema
    names = {f["name"] for f in schema["fields"]}
    out: Renames = {}
    for f in schema["fields"]:
        name, taken = f["name"], {column for column, _ in out.values()}
        columns = [alias for alias in f.get("aliases") or [] if alias in keys.keys() - names - taken]
        column = columns[0] if columns and name not in keys else name
        inside = _renames(f["type"], keys.get(column) or {}, named)
        if inside or column != name:
            out[name] = column, inside
    return out


def _is_nested(schema: Any, named: Mapping[str, Any]) -> bool:
    schema = named.get(schema) if isinstance(schema, str) else schema
    return isinstance(schema, dict) and schema["type"] in ("record", "error", "array", "map")


def floats_in(path: str, fmt: str) -> int:
    """2 where a file has a float anywhere in its schema, 1 where a double, else 0."""
    with _typed(path) as file:
        if fmt == "parquet":
            text = str(ParquetFile(file).schema_arrow).lower()
            return 2 if "float" in text else int("double" in text)
        from fastavro import reader

        schema: Any = reader(file).metadata["avro.schema"]
        return 2 if '"float"' in schema else int('"double"' in schema)


# Parquet ------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """The facts that a file states about a leaf.

    Attributes:
        old: the calendar by which its days are counted, if not today's.
        word: its bytes are a word of an ENUM.
    """

    int96: bool = False
    old: OldDays | None = None
    word: bool = False

    @classmethod
    def of(cls, leaf: Any, old: OldDays | None) -> _Kind:
        """The facts about a leaf of Parquet's schema; ``old``: the calendar of its file."""
        int96 = leaf.physical_type == "INT96"
        counted = old if old is not None and (old.int96 if int96 else old.days) else None
        return cls(int96, counted, leaf.converted_type == "ENUM")


def _parquet(file: Any) -> Iterator[dict[str, Any]]:
    parquet = ParquetFile(file, coerce_int96_timestamp_unit="us")
    metadata = parquet.metadata.metadata or {}
    old = old_days({key.decode(): value.decode(errors="replace") for key, value in metadata.items()})
    kinds = [_Kind.of(parquet.schema.column(i), old) for i in range(len(parquet.schema))]
    index = _index(parquet)
    # Read twice: microseconds reach all years, but only nanoseconds have all digits.
    fine = ParquetFile(file, coerce_int96_timestamp_unit="ns") if any(k.int96 for k in kinds) else None
    before = 0
    for group in range(parquet.num_row_groups):
        table = parquet.read_row_group(group)
        if len(table) != (rows := parquet.metadata.row_group(group).num_rows):
            raise DataError(f"row group {group}: it holds {len(table)} rows, but the footer says {rows}")
        fine_table = fine.read_row_group(group) if fine is not None else table
        for start in range(0, len(table), _ROWS):
            # One for each leaf, in the order in which `_values` comes to them.
            flags = iter(kinds)
            columns = [
                by_field(
                    field, _values(_one(column.slice(start, _ROWS)), _one(second.slice(start, _ROWS)), flags)
                )
                for field, column, second in zip(table.schema, table.columns, fine_table.columns, strict=True)
            ]
            names = table.column_names
            if index is not None and columns:
                names = [*names, index[0]]
                columns.append(list(index[1][before + start : before + start + _ROWS][: len(columns[0])]))
            for row in zip(*columns, strict=True) if columns else ():
                yield {name: value for name, value in zip(names, row, strict=True) if value is not None}
        before += rows


def _index(parquet: ParquetFile) -> tuple[str, range] | None:
    """The name and the values of an index of pandas that is a range, and so no column of the file."""
    try:
        (index,) = json.loads(parquet.metadata.metadata[b"pandas"])["index_columns"]
        name, values = index["name"], range(index["start"], index["stop"], index["step"])
    except (KeyError, TypeError, ValueError):
        return None
    columns = parquet.schema_arrow.names
    is_column = isinstance(name, str) and name not in columns and len(values) == parquet.metadata.num_rows
    return (name, values) if is_column else None


def values_of(array: pa.Array) -> list[Any]:
    """The values of an array."""
    return _values(array, array, repeat(_Kind()))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _values(array: pa.Array, fine: pa.Array, kinds: Iterator[_Kind]) -> list[Any]:
    """The values of a column.

    Args:
        fine: the same, its old timestamps in nanoseconds.
        kinds: the file's, leaf by leaf.
    """
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name == "arrow.uuid":
            next(kinds)
            return [None if value is None else str(value) for value in array.to_pylist()]
        values = _values(array.storage, fine.storage, kinds)
        is_of_pandas = type_.extension_name in _OF_PANDAS
        return (
            _of_pandas(type_.extension_name, type_.__arrow_ext_serialize__(), values)
            if is_of_pandas
            else values
        )
    if pa.types.is_dictionary(type_):
        words = _values(array.dictionary, fine.dictionary, kinds)
        # Below a struct that is null there may be a place, though there is no word.
        return [None if place is None or not words else words[place] for place in array.indices.to_pylist()]
    if pa.types.is_struct(type_):
        names = [f.name for f in type_]
        children = [_values(array.field(i), fine.field(i), kinds) for i in range(len(names))]
        rows = zip(*children, strict=True) if children else repeat((), len(array))
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            if valid
            else None
            for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(type_):
        return _maps(array, fine, kinds)
    if any(is_list(type_) for is_list in _LISTS):
        lists = _cut(_values(_elements(array), _elements(fine), kinds), array)
        return [None if v is None else Untyped(v) for v in lists] if _is_untyped(type_) else lists
    return _leaves(array, fine, next(kinds))


_OF_PANDAS = ("pandas.period", "pandas.interval")


def by_field(field: pa.Field, values: list[Any]) -> list[Any]:
    """The values of a column, whose extension type its field may name where this process does not know it."""
    metadata = field.metadata or {}
    name = metadata.get(b"ARROW:extension:name", b"").decode()
    known = name in _OF_PANDAS and not isinstance(field.type, pa.BaseExtensionType)
    return _of_pandas(name, metadata.get(b"ARROW:extension:metadata", b""), values) if known else values


def _of_pandas(name: str, parameters: bytes, values: list[Any]) -> list[Any]:
    """Periods of pandas, which are counted, by their texts; intervals with what is closed."""
    from pandas import Period

    try:
        meaning = json.loads(parameters)
        if name == "pandas.interval":
            return [None if ends is None else {**ends, "closed": meaning["closed"]} for ends in values]
        return [None if n is None else str(Period(ordinal=n, freq=meaning["freq"])) for n in values]
    except (ValueError, TypeError, KeyError):
        return values


def _is_untyped(type_: pa.DataType) -> bool:
    """True if a type holds nothing but null, so that it makes no column."""
    if pa.types.is_struct(type_):
        return all(_is_untyped(f.type) for f in type_)
    if pa.types.is_map(type_):
        return _is_untyped(type_.item_type)
    return pa.types.is_null(type_) or (
        any(is_list(type_) for is_list in _LISTS) and _is_untyped(type_.value_type)
    )


def _maps(array: pa.Array, fine: pa.Array, kinds: Iterator[_Kind]) -> list[Any]:
    entries, fine_entries = (
        a.cast(pa.list_(pa.struct([a.type.key_field, a.type.item_field]))) for a in (array, fine)
    )
    flat, fine_flat = _elements(entries), _elements(fine_entries)
    keys = _values(flat.field(0), fine_flat.field(0), kinds)
    values = _values(flat.field(1), fine_flat.field(1), kinds)
    pairs = _cut(list(zip(keys, values, strict=True)), entries)
    kind = dict if _is_untyped(array.type.item_type) else Pairs
    if pa.types.is_nested(array.type.key_type):
        return [
            None if items is None else [{"key": k, **({} if v is None else {"value": v})} for k, v in items]
            for items in pairs
        ]
    return [None if items is None else kind(items) for items in pairs]


def _elements(lists: pa.Array) -> pa.Array:
    """The elements of lists, of which Arrow cannot flatten some that are all null."""
    return lists.flatten() if lists.null_count < len(lists) else lists.values.slice(0, 0)


def _cut(items: list[Any], lists: pa.Array) -> list[Any]:
    out: list[Any] = []
    start = 0
    for length in pc.list_value_length(lists).to_pylist():
        out.append(None if length is None else items[start : start + length])
        start += length or 0
    return out


def _leaves(array: pa.Array, fine: pa.Array, kind: _Kind) -> list[Any]:
    type_ = array.type
    if pa.types.is_timestamp(type_):
        zone = UTC if type_.tz is not None or kind.int96 else None
        per = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[type_.unit]
        units = array.cast(pa.int64()).to_pylist()
        if kind.int96:  # in nanoseconds it wraps around
            nanos = fine.cast(pa.int64()).to_pylist()
            units = [u and (n if n // 1000 == u else u * 1000) for u, n in zip(units, nanos, strict=True)]
            per = 1
        if kind.old is not None and zone is not None:
            units = [None if n is None else kind.old.today(n, 10**9 // per) for n in units]
        return [
            None if n is None else _moment(n * per, zone) if -_FAR <= n * per < _FAR else _far(n, type_)
            for n in units
        ]
    if pa.types.is_time(type_) or pa.types.is_duration(type_):
        per = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[type_.unit]
        integers = array.cast(pa.int32() if pa.types.is_time32(type_) else pa.int64()).to_pylist()
        return [None if n is None else clock_text(n * per) for n in integers]
    if pa.types.is_float16(type_) or pa.types.is_float32(type_):
        return [None if x is None else Single(x) for x in array.to_pylist()]
    if pa.types.is_date64(type_):
        return [None if n is None else _date64(n) for n in array.cast(pa.int64()).to_pylist()]
    if kind.word or pa.types.is_string(type_) or pa.types.is_large_string(type_):
        texts = array.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode(errors="surrogateescape") for text in texts]
    if pa.types.is_date32(type_):
        date_of = date_at if kind.old is None else old_date_at
        return [None if n is None else date_of(n) for n in array.cast(pa.int32()).to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]


def _date64(millis: int) -> Any:
    """A date, or a timestamp where the count of milliseconds is no whole number of days."""
    days, of_day = divmod(millis, 86_400_000)
    return timestamp_at(millis * 1000, zoned=False) if of_day else date_at(days)


def _far(units: int, type_: pa.TimestampType) -> str:
    """The text of a moment that no count of microseconds reaches."""
    return str(np.datetime64(units, type_.unit)) + ("Z" if type_.tz is not None else "")


def _moment(nanos: int, zone: Any) -> Any:
    micros, finer = divmod(nanos, 1000)
    moment = timestamp_at(micros, zoned=zone is not None)
    if not finer or isinstance(moment, FarMoment):  # what is finer has years from 1677 to 2262
        return moment
    moment = moment.replace(tzinfo=None)
    text = f"{moment.replace(microsecond=0).isoformat()}.{moment.microsecond * 1000 + finer:09d}"
    return text + ("Z" if zone is not None else "")


def moment_at(nanos: int) -> Any:
    """The moment at so many nanoseconds of UTC, a text if it is finer than a microsecond."""
    return _moment(nanos, UTC)


def clock_text(nanos: int) -> str:
    """A time of a day, or a duration, as the rules spell it."""
    seconds, fraction = divmod(abs(nanos), 10**9)
    hours, minutes = divmod(seconds // 60, 60)
    text = f"{'-' if nanos < 0 else ''}{hours:02}:{minutes:02}:{seconds % 60:02}"
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


# Avro ---------------------------------------------------------------------------------------------------


# Before the name of a logical type, whose values are read as they were written
_UNREAD = "written-"
_UNITS = {"millis": 10**6, "micros": 10**3, "nanos": 1}  # nanoseconds
_BASES = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "duration": ("fixed",),
    "float": ("float",),  # none of Avro's: it tells a float from a double in a union
    **{f"{local}timestamp-{unit}": ("long",) for local in ("", "local-") for unit in _UNITS},
}
_FARTHEST = 10_000  # the scale of a number that is written out


class _AsWritten(NamedTuple):
    """A value as it was written, with its logical type."""

    value: Any
    schema: Any


def _avro(file: Any) -> Iterator[dict[str, Any]]:
    from fastavro import block_reader, parse_schema, reader, schemaless_reader

    logical_as_written()
    records: Any = reader(file, return_record_name=True, handle_unicode_errors="surrogateescape")
    text = records.metadata["avro.schema"]
    plain = AvroSchema(old_days(records.metadata))
    # Nothing that fastavro would convert, so its own loop over the records does.
    if "logicalType" not in text and not ('"float"' in text and '"double"' in text):
        yield from map(plain.plain(records.writer_schema), records)
        return
    schema: Any = parse_schema(json.loads(text, object_hook=unread))
    of_schema = plain.plain(schema)
    file.seek(0)
    blocks: Iterator[Any] = block_reader(file)
    read_record = partial(schemaless_reader, return_record_name=True, handle_unicode_errors="surrogateescape")
    for block in blocks:
        for _ in range(block.num_records):
            yield of_schema(read_record(block.bytes_, schema, None))


def logical_as_written() -> None:
    """Have fastavro leave values of logical types that are marked by `unread` as they were written."""
    from fastavro.read import LOGICAL_READERS

    # fastavro turns values into Python's, which has no year 0, no time below 0, and rounds decimals.
    bases = [(base, name) for name, of_name in _BASES.items() for base in of_name]
    # Under names of their own, so that others in this process read their logical types as before.
    LOGICAL_READERS.update({f"{base}-{_UNREAD}{name}": _as_written for base, name in bases})


def _with_floats(node: dict[str, Any]) -> dict[str, Any]:
    """The node; in its union of float and double, which Python has as one type, a float is known as such."""
    unions = {key: node[key] for key in ("type", "items", "values") if isinstance(node.get(key), list)}
    marked: Any = {"type": "float", "logicalType": _UNREAD + "float"}
    return node | {
        key: [marked if base == "float" else branch for branch, base in zip(union, bases, strict=True)]
        for key, union in unions.items()
        for bases in [[branch.get("type") if isinstance(branch, dict) else branch for branch in union]]
        if "double" in bases
    }


def unread(node: dict[str, Any]) -> dict[str, Any]:
    """The node, with another name for its logical type, if that may stand on its base; else without one."""
    node = _with_floats(node)
    name, base, size = node.get("logicalType"), node.get("type"), node.get("size")
    if not isinstance(name, str) or not isinstance(base, str):
        return node
    bare = {key: value for key, value in node.items() if key != "logicalType"}
    if base not in _BASES.get(name, ()) or (
        base == "fixed" and size != {"uuid": 16, "duration": 12}.get(name, size)
    ):
        return bare
    if name == "decimal" and not _is_decimal(node.get("precision"), node.get("scale", 0), base, size):
        return bare
    return {**bare, "logicalType": _UNREAD + name}


def _is_decimal(precision: Any, scale: Any, base: str, size: Any) -> bool:
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return False
    return base != "fixed" or len(str(2 ** (8 * size - 1) - 1)) > precision


def _as_written(value: Any, schema: Any, *_: Any) -> _AsWritten:
    return _AsWritten(value, schema)


def _decimal(data: bytes, scale: int) -> Decimal:
    return Decimal((*Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()[:2], -scale))


def _big_decimal(data: bytes) -> Any:
    """A number whose digits stand behind their count, and before its scale; bytes that are none stay such."""

    def long(start: int) -> tuple[int, int]:
        end = next(i for i in range(start, len(data)) if data[i] < 0x80) + 1
        number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[start:end]))
        return number // 2 if number % 2 == 0 else -(number // 2) - 1, end

    try:
        count, begin = long(0)
        scale, end = long(begin + count) if count > 0 else (0, -1)
    except StopIteration:
        return data
    is_number = end == len(data) and abs(scale) <= _FARTHEST
    return _decimal(data[begin : begin + count], scale) if is_number else data


def _duration(data: bytes) -> str:
    months, days, millis = (int.from_bytes(data[i : i + 4], "little") for i in (0, 4, 8))
    fraction = f".{millis % 1000:03}".rstrip("0") if millis % 1000 else ""
    time_text = f"T{millis // 1000}{fraction}S" if millis or not (months or days) else ""
    return f"P{f'{months}M' if months else ''}{f'{days}D' if days else ''}{time_text}"


def _uuid(value: Any) -> str:
    if isinstance(value, bytes):
        return str(UUID(bytes=value))
    try:
        return str(UUID(value))
    except ValueError:
        return str(value)


_PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


class AvroSchema:
    """A converter of values to plain ones, by their schema.

    Args:
        old: by which calendar its days are counted, if not today's.
    """

    def __init__(self, old: OldDays | None = None) -> None:
        self.named: dict[str, Any] = {}
        self._old = old
        self._untyped: set[str] = set()  # names of records

    def plain(self, schema: Any) -> Plain:
        """The function that makes values of the schema plain."""
        if isinstance(schema, list):
            return self.union([branch for branch in schema if branch != "null"])
        if isinstance(schema, str):
            if schema not in self.named and schema not in _PRIMITIVES:
                return self.recursive(schema)
            return self.named.get(schema) or (Single if schema == "float" else self._scalar)
        match schema["type"]:
            case "record":
                self.named[schema["name"]] = plain = self._record(schema["fields"])
                if self._is_untyped(schema):
                    self._untyped.add(schema["name"])
                return plain
            case "array":
                items = self.plain(schema["items"])
                return lambda values: [None if v is None else items(v) for v in values]
            case "map":
                items = self.plain(schema["values"])
                kind_of_map = dict if self._is_untyped(schema["values"]) else Pairs
                return lambda pairs: kind_of_map(
                    {k: None if v is None else items(v) for k, v in pairs.items()}
                )
            case "enum" | "fixed":
                self.named[schema["name"]] = self._scalar
                return self._scalar
            case kind:
                return self.plain(kind)

    def recursive(self, name: str) -> Plain:
        """The function for a type inside itself. Raises ValueError: no column has one."""
        raise ValueError(f"the type {name} is recursive")

    def _is_untyped(self, schema: Any) -> bool:
        """True if a type holds nothing but null, so that it makes no column."""
        if isinstance(schema, list):
            return all(map(self._is_untyped, schema))
        if isinstance(schema, str):
            return schema == "null" or schema in self._untyped
        match schema["type"]:
            case "record":
                return all(self._is_untyped(f["type"]) for f in schema["fields"])
            case "array":
                return self._is_untyped(schema["items"])
            case "map":
                return self._is_untyped(schema["values"])
            case kind:
                return bool(kind == "null")

    def _record(self, fields: Sequence[Any]) -> Plain:
        readers = [(f["name"], self.plain(f["type"])) for f in fields]

        def plain(record: Any) -> dict[str, Any]:
            """The record as a dict of its fields that are not null."""
            values = record[1] if type(record) is tuple else record
            return {name: read(values[name]) for name, read in readers if values.get(name) is not None}

        return plain

    def union(self, branches: Sequence[Any]) -> Plain:
        """The function that makes values of a union plain, whose ``branches`` are other than null."""
        names = [self.name(branch) for branch in branches]
        plains = [self.plain(branch) for branch in branches]
        # Next to doubles a float comes with its type.
        kinds: dict[type, str] = {
            list: "array",
            dict: "map",
            float: "double" if "double" in names else "float",
        }

        def plain(value: Any) -> Any:
            """The value, made plain by the branch that it belongs to."""
            kind = value[0] if type(value) is tuple else kinds.get(type(value))
            if kind in names:
                return plains[names.index(kind)](value)
            return self._scalar(value)

        return plains[0] if len(plains) == 1 else plain

    def name(self, branch: Any) -> str:
        """The name of a type, as the reader gives that of a record."""
        if isinstance(branch, str):
            return branch
        return str(branch.get("name") or branch["type"])

    def _scalar(self, value: Any) -> Any:
        """A value with nothing inside, by its logical type."""
        if type(value) is not _AsWritten:
            return value
        written, schema = value
        name = schema["logicalType"].removeprefix(_UNREAD)
        kind, _, unit = name.rpartition("-")
        old = self._old if self._old is not None and self._old.days else None
        match name:
            case "float":
                return Single(written)
            case "date":
                return date_at(written) if old is None else old_date_at(written)
            case "decimal":
                return _decimal(written, schema.get("scale", 0))
            case "big-decimal":
                return _big_decimal(written)
            case "uuid":
                return _uuid(written)
            case "duration":
                return _duration(written)
        if kind == "time":
            return clock_text(written * _UNITS[unit])
        per, zone = _UNITS[unit], UTC if kind == "timestamp" else None
        if old is not None and zone is not None:
            written = old.today(written, 10**9 // per)
        if not -_FAR <= written * per < _FAR:
            return _far(written, pa.timestamp({10**6: "ms", 10**3: "us", 1: "ns"}[per], zone and "UTC"))
        return _moment(written * per, zone)
