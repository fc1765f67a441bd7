"""Avro files, read by runs of blocks."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

import numpy as np
import pyarrow as pa
from fastavro import block_reader, parse_schema, reader
from fastavro.schema import SchemaParseException

from driftline.convert.avro import columns_of
from driftline.core.schema.types import Struct
from driftline.errors import DataError, UsageError
from driftline.readers.columnar.faulty_values import checked
from driftline.readers.columnar.julian import JulianCalendar, calendar_of, unread
from driftline.readers.columnar.message_files import message_run, row_messages
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.envelopes.avro_texts import FileTexts
from driftline.readers.json.rows import Run
from driftline.readers.rejects import Origin, Reject
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import mapped, opened

_MAGIC = b"Obj\x01"
_SYNC = 16  # bytes behind the header, and behind each block
_OTHERS = ("snappy", "zstandard")  # codecs that are undone here


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Whole blocks of a file, behind the byte ``start``. ``calendar``: the one that the file's dates are
    counted by, if not today's; ``first``: the number of the first record in the file.
    """

    path: str
    start: int
    size: int
    calendar: JulianCalendar | None = None
    first: int = 1


def cuts_of(path: str, target: int) -> tuple[bytes, list[BlockRange]]:
    """A file's schema, and its blocks in cuts of ``target`` bytes, or one block more. Raises
    EOFError where the file is cut off within one.
    """
    cuts = []
    with opened(path) as (file, end):
        metadata, _ = _header(file)
        calendar = calendar_of({key.encode(): value for key, value in metadata.items()})
        start, first, count = file.tell(), 1, 0
        while file.tell() < end:
            count += _long(file)
            size = _long(file)
            file.seek(size + _SYNC, io.SEEK_CUR)
            if file.tell() > end:
                raise EOFError("it is cut off within a block")
            if file.tell() - start >= target or file.tell() == end:
                cuts.append(BlockRange(path, start, file.tell() - start, calendar, first))
                start, first, count = file.tell(), first + count, 0
    return metadata["avro.schema"], cuts


def container_of(cut: BlockRange) -> IO[bytes]:
    """An Avro file of the cut's blocks alone, of a codec that fastavro knows. Its dates and timestamps are
    integers, `unread`, if they are by an old calendar.
    """
    with opened(cut.path) as (file, _):
        metadata, sync = _header(file)
        file.seek(cut.start)
        blocks = file.read(cut.size)
    codec = metadata.get("avro.codec", b"null").decode()
    if cut.calendar is not None:
        metadata["avro.schema"] = unread(metadata["avro.schema"]).encode()
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


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Avro files of one schema."""

    struct: Struct
    label: str
    cuts: Sequence[BlockRange]

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
        try:
            yield from _rows(cut)
        except _BROKEN as error:
            raise DataError(f"{cut.path}: cannot be read: {_said(error)}", WHOLE) from error


# What fastavro raises for bytes that are no Avro.
_BROKEN = (OSError, EOFError, ValueError, KeyError, IndexError, TypeError, OverflowError, StopIteration)


def _rows(cut: BlockRange) -> Iterator[Rows]:
    records: Any = reader(container_of(cut), return_record_name=True, handle_unicode_errors="surrogateescape")
    node = columns_of(records.writer_schema, cut.calendar.avro_leaves() if cut.calendar else None)
    names = [f.name for f in node.struct.fields]
    first = cut.first
    while some := list(islice(records, _ROWS)):
        columns = pa.RecordBatch.from_arrays(node.columns(some), names)
        yield checked(columns, node.struct, cut.path, first=first)
        first += len(some)


def avro_messages(reader: ColumnReader, part: int) -> Iterator[Run]:
    """The records of some blocks as texts, by the rules of messages in Avro. Raises DataError where the file
    is broken.
    """
    assert isinstance(reader, AvroReader)
    cut = reader.cuts[part]
    if cut.calendar is not None:  # which those do not know
        yield from row_messages(reader, part)
        return
    try:
        yield from _messages(cut)
    except _BROKEN as error:
        raise DataError(f"{cut.path}: cannot be read: {_said(error)}", WHOLE) from error


def _messages(cut: BlockRange) -> Iterator[Run]:
    blocks: Any = block_reader(container_of(cut))
    texts_of, first = FileTexts(blocks.metadata["avro.schema"]), cut.first
    for block in blocks:
        texts: list[bytes] = []
        numbers: list[int] = []
        rejects: list[Reject] = []
        for number in range(first, first + block.num_records):
            text = texts_of.next(block.bytes_)
            if texts_of.wrong:
                rejects.append(Reject(Origin(cut.path, number), text, texts_of.wrong[0]))
                texts_of.wrong.clear()
            else:
                texts.append(text)
                numbers.append(number)
        first += block.num_records
        yield message_run(texts, cut.path, np.array(numbers, np.int64), rejects)


def avro_readers(files: Sequence[str]) -> list[AvroReader]:
    """A reader for the files of each schema, in order.

    Raises UsageError for a file that cannot be read, or has a field that no table can have.
    """
    cuts: dict[Struct, list[BlockRange]] = {}
    labels: dict[Struct, str] = {}
    for path, (struct, cut) in zip(files, mapped(_cut, files), strict=True):
        cuts.setdefault(struct, []).extend(cut)
        labels.setdefault(struct, path)
    return [AvroReader(struct, labels[struct], cut) for struct, cut in cuts.items()]


def _cut(path: str) -> tuple[Struct, list[BlockRange]]:
    """The types of a file, and its blocks."""
    try:
        text, cuts = cuts_of(path, _CUT)
        return columns_of(_parsed(text)).struct, cuts
    except RecursionError as error:
        raise UsageError(f"{path}: its schema is nested too deeply") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}", error.hint) from error
    except _BROKEN as error:
        raise UsageError(f"{path}: cannot be read as avro: {_said(error)}", WHOLE) from error


def _parsed(text: bytes) -> Any:
    try:
        return parse_schema(json.loads(text))
    except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"its schema does not parse: {type(error).__name__}: {error}") from error


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
