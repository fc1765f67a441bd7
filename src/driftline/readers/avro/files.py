"""Reads Avro files, by runs of blocks."""

from __future__ import annotations

import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
from fastavro import block_reader, parse_schema, reader
from fastavro.schema import SchemaParseException

from driftline.convert.declared import Leaves, leaf_readings
from driftline.convert.rest import row_texts
from driftline.core.schema.types import Field, List, Path, Struct, Type, dotted, peel, wrap
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError, UsageError
from driftline.observe.expect import UNKNOWN, ExpectedField
from driftline.readers.avro.nodes import LeafNode, ListNode, Node, RecordNode, UnionNode
from driftline.readers.avro.values import LogicalNode, columns_of, marked
from driftline.readers.columnar.message_files import message_run, row_messages
from driftline.readers.columnar.orc import JulianCalendar, calendar_of
from driftline.readers.columnar.parquet import FoundReaders
from driftline.readers.columnar.rows import ColumnReader, Rows, checked
from driftline.readers.envelopes.columns import FileTexts
from driftline.readers.json.rows import Run
from driftline.readers.rejects import Origin, Reject
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import mapped, opened

T = TypeVar("T")
_MAGIC = b"Obj\x01"
_SYNC = 16  # bytes behind the header, and behind each block
_OTHERS = ("snappy", "zstandard")  # codecs that are undone here


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Whole blocks of a file.

    Attributes:
        start: the byte that they begin at.
        calendar: the calendar that the file's dates are counted by, if not today's.
        first: the number of the first record in the file.
    """

    path: str
    start: int
    size: int
    calendar: JulianCalendar | None = None
    first: int = 1

    @property
    def leaves(self) -> Leaves:
        """The readings of its dates and times."""
        return leaf_readings if self.calendar is None else self.calendar.leaves


def cuts_of(path: str, target: int) -> tuple[bytes, list[BlockRange]]:
    """A file's schema, and its blocks in cuts of ``target`` bytes, or one block more.

    Raises EOFError where the file is cut off within a block.
    """
    cuts = []
    with opened(path) as (file, end):
        metadata, _ = _header(file)
        calendar = calendar_of({key.encode(): value for key, value in metadata.items()})
        start, first, count = file.tell(), 1, 0
        while file.tell() < end:
            count += _long(file)
            size = _long(file)
            # Blocks are only passed over: their sizes are enough to cut the file.
            file.seek(size + _SYNC, io.SEEK_CUR)
            if file.tell() > end:
                raise EOFError("it is cut off within a block")
            if file.tell() - start >= target or file.tell() == end:
                cuts.append(BlockRange(path, start, file.tell() - start, calendar, first))
                start, first, count = file.tell(), first + count, 0
    return metadata["avro.schema"], cuts


def container_of(cut: BlockRange) -> IO[bytes]:
    """An Avro file of the cut's blocks alone, in a codec that fastavro knows.

    The logical types of its schema are `marked`.
    """
    with opened(cut.path) as (file, _):
        metadata, sync = _header(file)
        file.seek(cut.start)
        blocks = file.read(cut.size)
    codec = metadata.get("avro.codec", b"null").decode()
    metadata["avro.schema"] = json.dumps(marked(json.loads(metadata["avro.schema"]))).encode()
    if codec in _OTHERS:
        metadata["avro.codec"] = b"null"
        blocks = b"".join(_undone(io.BytesIO(blocks), codec, sync))
    # Other metadata may be bytes, and fastavro takes all for text.
    named = {key: value for key, value in metadata.items() if key in ("avro.schema", "avro.codec")}
    return io.BytesIO(_MAGIC + _map(named) + sync + blocks)


def _undone(blocks: IO[bytes], codec: str, sync: bytes) -> Iterator[bytes]:
    """The blocks without their codec."""
    while count := blocks.read(1):
        blocks.seek(-1, io.SEEK_CUR)
        count = _varint(_long(blocks))
        data = _unpacked(blocks.read(_long(blocks)), codec)
        if blocks.read(_SYNC) != sync:
            raise ValueError("a block does not end where it should")
        yield count + _varint(len(data)) + data + sync


def _unpacked(data: bytes, codec: str) -> bytes:
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    packed, check = data[:-4], int.from_bytes(data[-4:], "big")
    size = _unsigned(io.BytesIO(packed))
    text: bytes = pa.Codec("snappy").decompress(packed, decompressed_size=size, asbytes=True)
    if zlib.crc32(text) != check:
        raise ValueError("a block's checksum is wrong")
    return text


def _header(file: IO[bytes]) -> tuple[dict[str, bytes], bytes]:
    """A file's metadata, and the mark that ends its blocks. Raises ValueError if it is no Avro file."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin like an Avro file")
    metadata: dict[str, Any] = {}
    while count := _long(file):
        if count < 0:  # the size in bytes follows the number of entries
            count, _ = -count, _long(file)
        for _ in range(count):
            key = file.read(_long(file)).decode()
            metadata[key] = file.read(_long(file))
    return metadata, file.read(_SYNC)


def _map(entries: dict[str, bytes]) -> bytes:
    parts = [_varint(len(entries))] if entries else []
    for key, value in entries.items():
        name = key.encode()
        parts += [_varint(len(name)), name, _varint(len(value)), value]
    return b"".join([*parts, _varint(0)])


def _unsigned(file: IO[bytes]) -> int:
    number = shift = 0
    while True:
        byte = file.read(1)
        if not byte:
            raise EOFError("it is cut off within a number")
        number |= (byte[0] & 0x7F) << shift
        shift += 7
        if not byte[0] & 0x80:
            return number


def _long(file: IO[bytes]) -> int:
    number = _unsigned(file)
    return (number >> 1) ^ -(number & 1)


def _varint(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


_ROWS = 10_000  # per batch
_CUT = 16 * 2**20  # bytes of a part


class FieldAliases(NamedTuple):
    """The earlier names of a field, and the aliases of the fields of its records."""

    name: str
    earlier: tuple[str, ...]
    inside: Aliases


Aliases: TypeAlias = "tuple[FieldAliases, ...]"


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Avro files of one schema.

    Attributes:
        aliases: earlier names of the schema's fields, at any depth.
    """

    struct: Struct
    label: str
    cuts: Sequence[BlockRange]
    aliases: Aliases = ()

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each part."""
        return [cut.size for cut in self.cuts]

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return [cut.path for cut in self.cuts]

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of some blocks. Raises DataError where the file is broken."""
        cut = self.cuts[part]
        records: Any = _read(cut, lambda: _opened(cut))
        node = columns_of(records.writer_schema, cut.leaves)
        first, names = cut.first, [f.name for f in self.struct.fields]
        types = [f.type for f in self.struct.fields]
        while batch := _read(cut, lambda: list(islice(records, _ROWS))):
            for rows in _rows(node, batch, cut, first):
                arrays = map(named, rows.batch.columns, types)
                yield replace(rows, batch=pa.RecordBatch.from_arrays([*arrays], names))
            first += len(batch)


# What fastavro and its codecs raise for bytes that are no Avro. Only their own work stands under it: a value
# that no column takes, or a mistake of ours, is no broken file.
_DECODING = (EOFError, ValueError, KeyError, IndexError, TypeError, OverflowError, StopIteration)
_BROKEN = (*_DECODING, OSError, zlib.error, lzma.LZMAError)


def _read(cut: BlockRange, step: Callable[[], T]) -> T:
    """Take a step of reading a file. Raises DataError where the file is broken."""
    try:
        return step()
    except _BROKEN as error:
        raise DataError(f"{cut.path}: cannot be read: {_said(error)}", WHOLE) from error


def _opened(cut: BlockRange) -> Any:
    return reader(container_of(cut), return_record_name=True, handle_unicode_errors="surrogateescape")


# What Arrow raises for values that no column takes.
_UNFIT = (pa.ArrowException, ValueError, OverflowError)


def _rows(node: RecordNode, records: Sequence[Any], cut: BlockRange, first: int) -> Iterator[Rows]:
    """The records as rows. Those that no column takes become rejects; they are found by halves.

    Args:
        first: the number of the first one in its file.
    """
    try:
        columns = node.columns(records)
    except _UNFIT as error:
        if len(records) > 1:
            # Arrow does not say which value it refuses. By halves, a few bad records cost a few conversions
            # each.
            middle = len(records) // 2
            yield from _rows(node, records[:middle], cut, first)
            yield from _rows(node, records[middle:], cut, first + middle)
            return
        # A batch without rows, to carry the reject in its order.
        columns = [array[:0] for array in node.columns([{}])]
        text = _text(cut, records[0])
        rejects = [Reject(Origin(cut.path, first), text, f"a value that its type has no room for: {error}")]
        batch = pa.RecordBatch.from_arrays(columns, [f.name for f in node.struct.fields])
        yield Rows(batch, cut.path, rejects, lines=np.zeros(0, np.int64))
        return
    batch = pa.RecordBatch.from_arrays(columns, [f.name for f in node.struct.fields])
    yield checked(batch, node.struct, cut.path, first=first)


def _text(cut: BlockRange, record: Any) -> bytes:
    """The text of a record with a value that no column takes."""
    node = columns_of(_opened(cut).writer_schema, cut.leaves, roomy=True)
    batch = pa.RecordBatch.from_arrays(node.columns([record]), [f.name for f in node.struct.fields])
    return row_texts(batch, node.struct)[0]


def avro_messages(reader: ColumnReader, part: int) -> Iterator[Run]:
    """The records of some blocks as texts, by the rules of messages in Avro.

    Raises DataError where the file is broken.
    """
    assert isinstance(reader, AvroReader)
    cut = reader.cuts[part]
    if cut.calendar is not None:  # which those do not know
        yield from row_messages(reader, part)
        return
    blocks: Any = _read(cut, lambda: block_reader(container_of(cut)))
    texts_of, first = FileTexts(_read(cut, lambda: _schema_text(cut.path))), cut.first
    while (block := _read(cut, lambda: next(blocks, None))) is not None:
        texts: list[bytes] = []
        numbers: list[int] = []
        rejects: list[Reject] = []
        for number in range(first, first + block.num_records):
            text = _read(cut, partial(texts_of.next, block.bytes_))
            if texts_of.wrong:
                rejects.append(Reject(Origin(cut.path, number), text, texts_of.wrong[0]))
                texts_of.wrong.clear()
            else:
                texts.append(text)
                numbers.append(number)
        first += block.num_records
        yield message_run(texts, cut.path, np.array(numbers, np.int64), rejects)


def _schema_text(path: str) -> str:
    with opened(path) as (file, _):
        return _header(file)[0]["avro.schema"].decode()


def avro_found(files: Sequence[str]) -> FoundReaders:
    """The readers of `avro_readers`, with a note on each logical type that counts for nothing."""
    readers, notes = _found(files)
    return FoundReaders(readers, notes)


def avro_readers(files: Sequence[str]) -> list[AvroReader]:
    """A reader for the files of each schema, in order.

    Raises UsageError for a file that cannot be read, or has a field that no table can have.
    """
    return _found(files)[0]


def by_aliases(
    found: FoundReaders, expected: ExpectedField, settings: TableSettings, before: FoundReaders | None
) -> FoundReaders:
    """Let a field whose schema says that it has been renamed fill the column of its earlier name.

    Messages in an envelope are read by their own rules, which know no aliases.
    """
    readers = cast("Sequence[AvroReader]", found.readers)  # or others that have aliases
    if settings.row_key is not None and settings.row_key.envelope:
        return found
    records = [AliasedRecords(blocks.struct, blocks.aliases, blocks.label) for blocks in readers]
    structs, notes = _by_earlier_names(records, expected.fields)
    out = [replace(blocks, struct=struct) for blocks, struct in zip(readers, structs, strict=True)]
    return FoundReaders(out, [*found.notes, *notes])


@dataclass(frozen=True, slots=True)
class AvroFiles:
    """Finds the readers of Avro files for a table. ``written``: those by the files alone."""

    written: FoundReaders

    def __call__(
        self, expected: ExpectedField, settings: TableSettings, before: FoundReaders | None = None
    ) -> FoundReaders:
        """Find the readers by `by_aliases`."""
        return by_aliases(self.written, expected, settings, before)


class AliasedRecords(NamedTuple):
    """The records of a file at one place of its schema."""

    struct: Struct
    aliases: Aliases
    label: str


def _by_earlier_names(
    files: Sequence[AliasedRecords], expected: Mapping[str, ExpectedField], path: Path = ()
) -> tuple[list[Struct], list[str]]:
    """Name the fields of records at a path as the table does, or other files of the batch.

    Args:
        files: the records of each file.
        expected: the table's columns for them.

    Returns the structs, and a note on each field.
    """
    if not any(records.aliases for records in files):  # of nearly all files
        return [records.struct for records in files], []
    # In one batch, files of an old writer may come with those of the new one.
    by_name = {
        f.name for records in files for f in records.struct.fields if not _aliases_at(records, f.name).earlier
    }
    column_names, notes = {*expected, *by_name}, []
    fields: list[list[Field]] = []
    inside: dict[str, list[tuple[int, int, AliasedRecords]]] = {}
    for number, records in enumerate(files):
        columns = _earlier_names(records, column_names)
        fields.append([replace(f, name=columns.get(f.name, f.name)) for f in records.struct.fields])
        notes += [
            f"the field {dotted((*path, name))} fills {dotted((*path, column))}, its earlier name by an alias of the "
            f"schema ({records.label})"
            for name, column in columns.items()
        ]
        for place, f in enumerate(records.struct.fields):
            if isinstance(struct := peel(f.type)[1], Struct):
                within = AliasedRecords(struct, _aliases_at(records, f.name).inside, records.label)
                inside.setdefault(fields[number][place].name, []).append((number, place, within))
    for name, places in inside.items():
        structs, notes_inside = _by_earlier_names(
            [within for *_, within in places], expected.get(name, UNKNOWN).fields, (*path, name)
        )
        notes += notes_inside
        for (number, place, _), struct in zip(places, structs, strict=True):
            f = fields[number][place]
            fields[number][place] = replace(f, type=wrap(struct, peel(f.type)[0]))
    return [Struct(tuple(of_file)) for of_file in fields], notes


def _aliases_at(records: AliasedRecords, name: str) -> FieldAliases:
    return next(
        (of_field for of_field in records.aliases if of_field.name == name), FieldAliases(name, (), ())
    )


def _earlier_names(records: AliasedRecords, column_names: set[str]) -> Mapping[str, str]:
    """The earlier name of each field that has a column by that name alone."""
    names = {f.name for f in records.struct.fields}
    columns: dict[str, str] = {}
    for name, earlier, _ in records.aliases:
        column = next((alias for alias in earlier if alias in column_names and alias not in names), None)
        if column is not None and name not in column_names and column not in columns.values():
            columns[name] = column
    return columns


def named(array: pa.Array, type_: Type) -> pa.Array:
    """The array with the names of a type for the fields of its structs."""
    named = _arrow_named(array.type, type_)
    return array if named == array.type else array.view(named)


def _arrow_named(arrow: pa.DataType, type_: Type) -> pa.DataType:
    match type_:
        case List(element):
            return pa.list_(arrow.value_field.with_type(_arrow_named(arrow.value_type, element)))
        case Struct(fields):
            return pa.struct(
                [
                    child.with_name(f.name).with_type(_arrow_named(child.type, f.type))
                    for child, f in zip(arrow, fields, strict=True)
                ]
            )
        case _:
            return arrow


def _found(files: Sequence[str]) -> tuple[list[AvroReader], list[str]]:
    cuts: dict[tuple[Struct, Aliases], list[BlockRange]] = {}
    labels: dict[tuple[Struct, Aliases], str] = {}
    notes: dict[str, str] = {}  # with the file that is the first to need it
    for path, (struct, aliases, cut, unknown) in zip(files, mapped(_cut, files), strict=True):
        cuts.setdefault((struct, aliases), []).extend(cut)
        labels.setdefault((struct, aliases), path)
        notes = {**dict.fromkeys(sorted(unknown), path), **notes}
    readers = [
        AvroReader(struct, labels[struct, aliases], cut, aliases) for (struct, aliases), cut in cuts.items()
    ]
    return readers, [f"{note} ({path})" for note, path in notes.items()]


def _cut(path: str) -> tuple[Struct, Aliases, list[BlockRange], set[str]]:
    """The types of a file, the aliases of its fields, its blocks, and notes on its logical types."""
    unknown: set[str] = set()
    try:
        text, cuts = cuts_of(path, _CUT)
    except _BROKEN as error:
        raise UsageError(f"{path}: cannot be read as avro: {_said(error)}", WHOLE) from error
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error
    try:
        leaves = cuts[0].leaves if cuts else leaf_readings
        node = columns_of(_parsed(text, unknown), leaves)
        return node.struct, _aliases(node), cuts, unknown
    except RecursionError as error:
        raise UsageError(f"{path}: its schema is nested too deeply") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error


def _aliases(node: Node) -> Aliases:
    """The aliases of the fields of records, also in lists; none where a union has several records."""
    match node:
        case RecordNode(nodes=nodes, aliases=aliases):
            earlier = dict(aliases)
            fields = [FieldAliases(key, earlier.get(key, ()), _aliases(child)) for key, child in nodes]
            return tuple(f for f in fields if f.earlier or f.inside)
        case ListNode(items):
            return _aliases(items)
        case UnionNode(branches):
            records = [branch for branch in branches if not isinstance(branch, LeafNode | LogicalNode)]
            return _aliases(records[0]) if len(records) == 1 else ()
        case _:
            return ()


def _parsed(text: bytes, unknown: set[str]) -> Any:
    try:
        return parse_schema(marked(json.loads(text), unknown))
    except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"its schema does not parse: {type(error).__name__}: {error}") from error


def _said(error: BaseException) -> str:
    # Of a list or a dict of fastavro's, such as the branches of a union: no words of theirs help a person.
    if isinstance(error, LookupError | TypeError):
        return "its values are not what its schema says"
    return str(error) or type(error).__name__
