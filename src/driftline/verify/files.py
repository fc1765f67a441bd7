"""Source files as plain Python reads them: JSON with its numbers as written, CSV as text."""

from __future__ import annotations

import io
import json
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from driftline.runtime.stores import is_stored, native
from driftline.verify.cells import Said, decoded, marks_of, rows
from driftline.verify.packed import is_packed, unpacked
from driftline.verify.values import number

_BLANK = b" \t\r\n"
_CHUNK = 16 * 2**20
LONGEST = 128 * 2**20  # bytes of a record, where the table does not say
_SHOWN = 4 * 2**10  # bytes of a longer one that the quarantine has
_NOTHING = Said()
_DEEPEST = 500  # nested deeper, a text is malformed: what compares goes down by recursion


class Malformed(Exception):
    """A text that is no record; the message says why."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """``line`` counts from 1, behind the byte ``start`` of the file; 0 where the file has no lines."""

    file: str
    start: int = 0
    line: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        before = 0
        if self.start:
            with opened(self.file) as f:
                left = self.start
                while left and (block := f.read(min(left, _CHUNK))):
                    before += block.count(b"\n")
                    left -= len(block)
        return f"{self.file}:{before + self.line}"


@dataclass(frozen=True, slots=True)
class Read:
    """A record of a file; None with the bytes and a reason where they are none."""

    place: Place
    record: dict[str, Any] | None
    raw: bytes = b""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A file, or the lines of it that begin within these bytes (``end`` None: the whole file).

    ``size``: bytes on disk; ``longest``: bytes that a record of JSON may have; ``said``: of CSV.
    """

    file: str
    fmt: str
    start: int = 0
    end: int | None = None
    size: int = 0
    longest: int = LONGEST
    said: Said = _NOTHING


def parts(files: Sequence[str], fmt: str, longest: int = LONGEST, said: Said = _NOTHING) -> list[Part]:
    """The files in pieces of at most a size for one task; only plain files of lines are cut."""
    out = []
    for file in files:
        size = _size(file)
        if fmt != "json" or _packed(file) or size <= _CHUNK or not _begins_with_a_record(file):
            out.append(Part(file, fmt, size=size, longest=longest, said=said))
        else:
            ends = [(at, min(at + _CHUNK, size)) for at in range(0, size, _CHUNK)]
            out += [Part(file, fmt, at, end, end - at, longest) for at, end in ends]
    return out


def grouped(pieces: Sequence[Part], cores: int) -> list[list[Part]]:
    """The pieces for each task, in order: a task costs more than a
    small file, so each core gets one at least.

    >>> [len(task) for task in grouped([Part("a", "json", size=5)] * 5, 2)]
    [3, 2]
    """
    most = min(_CHUNK, -(-sum(piece.size for piece in pieces) // cores))
    out: list[list[Part]] = []
    filled = most
    for piece in pieces:
        if filled >= most:
            out.append([])
            filled = 0
        out[-1].append(piece)
        filled += piece.size
    return out


def read(part: Part) -> Iterator[Read]:
    """The part's records, and what is none, in order."""
    if part.fmt == "csv":
        yield from _csv(part.file, _text(part.file, part.said.encoding), part.said)
    elif part.end is not None:
        yield from _cut(part)
    else:
        data = _whole(part.file)
        document = _document(part, data)
        yield from _lines(part, 0, data.split(b"\n")) if document is None else document


def _packed(file: str) -> bool:
    with opened(file) as f:
        return is_packed(f.read(16), file)


def opened(file: str) -> IO[bytes]:
    """A file of this machine, or of a store by its URI."""
    return io.BufferedReader(native(file)) if is_stored(file) else open(file, "rb")


def _size(file: str) -> int:
    with opened(file) as f:
        return f.seek(0, io.SEEK_END)


def _whole(file: str) -> bytes:
    with opened(file) as f:
        return unpacked(f.read(), file).removeprefix(BOM_UTF8)


# JSON ---------------------------------------------------------------------------------------------------


def _fraction(text: str) -> Any:
    written = number(text)
    return text if written is None else written


def _not_json(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_fraction, parse_int=_fraction, parse_constant=_not_json)


def parse(raw: bytes) -> dict[str, Any]:
    """The one JSON object that the text is; of duplicate keys the last counts. Raises Malformed.

    >>> parse(b'{"a": 1.50, "b": [1], "b": [2]}')
    {'a': Decimal('1.50'), 'b': [2]}
    """
    try:
        value = _DECODER.decode(raw.decode())
        if raw.count(b"{") + raw.count(b"[") > _DEEPEST and _levels(value) > _DEEPEST:
            raise Malformed("nested too deep")
        if b"\\ud" in raw.lower():
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeDecodeError as error:
        raise Malformed("not UTF-8") from error
    except UnicodeEncodeError as error:
        raise Malformed("a lone surrogate") from error
    except RecursionError as error:
        raise Malformed("nested too deep") from error
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Malformed("not a JSON object")
    return value


def _levels(value: Any) -> int:
    level, n = [value], 0
    while level := [x for x in level if isinstance(x, (dict, list))]:
        level = [x for outer in level for x in (outer.values() if isinstance(outer, dict) else outer)]
        n += 1
    return n


def _lines(part: Part, start: int, lines: Sequence[bytes] | Iterator[bytes]) -> Iterator[Read]:
    for n, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n")
        raw = text.strip(_BLANK)
        if raw or len(text) > part.longest:
            yield _read(part, Place(part.file, start, n), text if len(text) > part.longest else raw)


def _read(part: Part, place: Place, raw: bytes) -> Read:
    if len(raw) > part.longest:
        beginning = raw[:_SHOWN] + "…".encode()
        return Read(place, None, beginning, f"longer than {part.longest} bytes")
    try:
        return Read(place, parse(raw))
    except Malformed as error:
        return Read(place, None, raw, str(error))


def _cut(part: Part) -> Iterator[Read]:
    """The lines that begin within the part: the first byte of a line decides whose it is."""
    assert part.end is not None
    with opened(part.file) as f:
        begin = part.start
        if part.start:
            f.seek(part.start - 1)
            begin = part.start - 1 + len(f.readline())
        f.seek(begin)

        def lines() -> Iterator[bytes]:
            at = begin
            while at < part.end and (line := f.readline()):  # type: ignore[operator]
                yield line if at else line.removeprefix(BOM_UTF8)
                at += len(line)

        yield from _lines(part, begin, lines())


def _begins_with_a_record(file: str) -> bool:
    """Whether the first line that is not blank is a JSON object by itself."""
    with opened(file) as f:
        for line in f:
            raw = line.removeprefix(BOM_UTF8).strip(_BLANK)
            if raw:
                return _read(Part(file, "json"), Place(file), raw).record is not None
    return True


_STRUCTURE = json.JSONDecoder()  # lenient: whether a part is a record is seen when it is read by itself


def _document(part: Part, data: bytes) -> list[Read] | None:
    """The records of a file that is one JSON array, or objects over several lines; None for any other."""
    body = data.strip(_BLANK)
    if not body.startswith((b"[", b"{")):
        return None
    try:
        text = data.decode()
        first = body.partition(b"\n")[0]
        if body.startswith(b"{") and (first == body or isinstance(_STRUCTURE.decode(first.decode()), dict)):
            return None
    except UnicodeDecodeError:
        return None
    except (ValueError, RecursionError):
        pass  # the first line is no record by itself
    if body.startswith(b"{"):
        found = list(_objects(part, data))
        return found if found[0].record is not None or _is_object(found[0].raw) else None
    try:
        _STRUCTURE.decode(text)
    except (ValueError, RecursionError):
        return None
    return list(_elements(part, text))


def _objects(part: Part, data: bytes) -> Iterator[Read]:
    """Objects one after another: each ends with a line that makes it whole, a broken one
    before the next that begins with a brace.
    """
    gathered: list[bytes] = []
    begin = 1
    for n, line in enumerate([*data.split(b"\n"), b"{"], 1):
        if gathered and line.startswith(b"{"):
            yield _read(part, Place(part.file, 0, begin), b"\n".join(gathered).strip(_BLANK))
            gathered = []
        if not gathered:
            begin = n
        if gathered or line.strip(_BLANK):
            gathered.append(line.removeprefix(BOM_UTF8) if n == 1 else line)
        raw = b"\n".join(gathered).strip(_BLANK) if line.rstrip(_BLANK).endswith(b"}") else b""
        if _is_object(raw):
            yield _read(part, Place(part.file, 0, begin), raw)
            gathered = []


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(_STRUCTURE.decode(raw.decode()), dict)
    except (ValueError, RecursionError):
        return False


def _elements(part: Part, text: str) -> Iterator[Read]:
    """An array's elements, each with the line where it begins."""
    at, line = text.index("[") + 1, 1 + text.count("\n", 0, text.index("["))
    while True:
        begin = at
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return
        line += text.count("\n", begin, at)
        _, end = _STRUCTURE.raw_decode(text, at)
        yield _read(part, Place(part.file, 0, line), text[at:end].encode())
        line += text.count("\n", at, end)
        at = end


# CSV ----------------------------------------------------------------------------------------------------


def _csv(file: str, text: str, said: Said) -> Iterator[Read]:
    """Records by the first row's names: a cell is text, an empty one null. A row of another width is
    malformed; a blank line is a row only of a single column.
    """
    header: Sequence[str] | None = None
    for row in rows(text, *marks_of(text, said)):
        if header is None:
            header = row.cells if row.raw else None
            continue
        if not row.raw and len(header) > 1:
            continue
        raw = row.raw.encode(errors="surrogateescape")
        reason = ""
        if row.cells is None:
            reason = "a quote is never closed"
        elif len(row.cells) != len(header):
            reason = f"{len(row.cells)} cells, where the header has {len(header)}"
        elif not _is_text(raw):
            reason = "not UTF-8"
        place = Place(file, 0, row.line)
        if reason or row.cells is None:
            yield Read(place, None, raw, reason)
        else:
            yield Read(place, dict(zip(header, row.cells, strict=True)))


def _text(file: str, encoding: str) -> str:
    """What the file holds; a byte order mark goes before the encoding that was said."""
    with opened(file) as f:
        data = f.read()
    marked = data.startswith((BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE))
    return decoded(unpacked(data, file), "utf-8" if marked else encoding)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
