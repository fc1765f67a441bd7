"""JSON in plain Python, with numbers as written: lines, and multi-line documents."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from itertools import chain, compress
from typing import IO, Any, NamedTuple

import msgspec

from driftline.verify.packed import Stream, pieces
from driftline.verify.values import number

_BLANK = b" \t\r\n"
_BLANKS, _BETWEEN = re.compile(r"[ \t\r\n]*"), re.compile(r"[ \t\r\n,]*")
_LINE = re.compile(r"[\r\n]\{")
_MARKS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_BLOCK = 2**20
# Bytes, and lines of a kind, that tell a document from lines
BEGINNING, _LOOKS = 2**20, 100
HELD = 32 * 2**20  # bytes of a document that are looked at before it is read
# Nested deeper, a text is malformed: what compares goes down by recursion
_DEEPEST = 500


class MalformedText(Exception):
    """A text that is no record; the message says why."""


class Text(NamedTuple):
    """A text that should be a record, and the number of its first line.

    A text longer than records may be is cut, but still longer than that.
    """

    line: int
    raw: bytes


class TextBlock(NamedTuple):
    """Texts that should be records, as `Text` has one, and the numbers of their first lines."""

    lines: Sequence[int]
    raws: Sequence[bytes]


# One record ---------------------------------------------------------------------------------------------


def _fraction(text: str) -> Any:
    written = number(text)
    return text if written is None else written


def _not_json(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_fraction, parse_int=_fraction, parse_constant=_not_json)
# Lenient: whether a part of a document is a record is seen when it is read on its own.
_STRUCTURE = json.JSONDecoder(parse_float=str, parse_int=str)


def parse(raw: bytes, errors: str = "strict") -> dict[str, Any]:
    """The one JSON object that the text is; of duplicate keys the last counts. Raises MalformedText.

    Args:
        errors: the treatment of bytes that are not UTF-8.

    >>> parse(b'{"a": 1.50, "b": [1], "b": [2]}')
    {'a': Decimal('1.50'), 'b': [2]}
    """
    try:
        value = _DECODER.decode(raw.decode(errors=errors))
        # Brackets are counted first: only a text with so many can be so deep.
        if raw.count(b"{") + raw.count(b"[") > _DEEPEST and _levels(value) > _DEEPEST:
            raise MalformedText("nested too deep")
        # Python takes half a surrogate pair, which no UTF-8 can have; only an escape can spell one.
        if b"\\ud" in raw.lower():
            json.dumps(value, ensure_ascii=False, default=str).encode(errors=errors)
    except UnicodeDecodeError as error:
        raise MalformedText("not UTF-8") from error
    except UnicodeEncodeError as error:
        raise MalformedText("a lone surrogate") from error
    except RecursionError as error:
        raise MalformedText("nested too deep") from error
    except ValueError as error:
        raise MalformedText(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedText("not a JSON object")
    return value


def parse_value(text: str) -> Any:
    """The JSON value that a text is, with its numbers as `parse` has them. Raises MalformedText."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedText(f"not JSON: {error}") from error


def _levels(value: Any) -> int:
    level, n = [value], 0
    while level := [x for x in level if isinstance(x, (dict, list))]:
        level = [x for outer in level for x in (outer.values() if isinstance(outer, dict) else outer)]
        n += 1
    return n


def listed(document: bytes, keys: Sequence[str]) -> Iterator[tuple[bytes, bool]]:
    """The texts of the elements of a list that these keys lead to; the document, with False, without one.

    >>> list(listed(b'{"a": {"b": [{"c": 1.50}]}}', ["a", "b"])), list(listed(b'{"a": 1}', ["a", "b"]))
    ([(b'{"c": 1.50}', True)], [(b'{"a": 1}', False)])
    """
    raw = msgspec.Raw(document)
    try:
        for key in keys:
            raw = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[key]
        elements = msgspec.json.decode(raw, type=list[msgspec.Raw] | None)
    except (KeyError, ValueError, RecursionError):
        yield document, False
    else:
        yield from ((bytes(element), True) for element in elements or ())


# Lines --------------------------------------------------------------------------------------------------


def lines(file: IO[bytes], longest: int) -> Iterator[tuple[bytes, int]]:
    """The lines from the file's present position, with their line feeds and sizes.

    A line longer than ``longest`` bytes is cut to one byte more.
    """
    most = longest + 2
    while line := file.readline(most):
        size = len(line)
        if size == most and not line.endswith(b"\n"):
            line = line[: longest + 1]
            while block := file.readline(_BLOCK):
                size += len(block)
                if block.endswith(b"\n"):
                    break
        yield line, size


def line_texts(file: IO[bytes], longest: int, size: int | None = None) -> Iterator[TextBlock]:
    """The lines from the file's present position that are not blank, counted from 1, many at a time.

    Args:
        size: only the lines that begin within so many bytes.
    """
    first = 1
    for every_line in _cut_in_lines(file, longest, size):
        numbers: Sequence[int] = range(first, first + len(every_line))
        first += len(every_line)
        raws = [line[: longest + 1] if len(line) > longest else line.strip(_BLANK) for line in every_line]
        if not all(raws):
            numbers, raws = [*compress(numbers, raws)], [*filter(None, raws)]
        yield TextBlock(numbers, raws)


def _cut_in_lines(file: IO[bytes], longest: int, size: int | None) -> Iterator[list[bytes]]:
    """The lines without their line feeds; of one that is too long, at least a byte more."""
    tail, remaining = b"", size
    while data := file.read(_BLOCK if remaining is None else min(remaining, _BLOCK)):
        remaining = None if remaining is None else remaining - len(data)
        head, *others = data.split(b"\n")
        tail = (tail + head)[: longest + 1]
        if others:
            yield [tail, *others[:-1]]
            tail = others[-1]
    if tail:
        if size is not None:  # the last line may go on behind
            tail += next((line.removesuffix(b"\n") for line, _ in lines(file, longest)), b"")
        yield [tail]


# Documents ----------------------------------------------------------------------------------------------


def of_file(file: IO[bytes], longest: int) -> Iterator[Text]:
    """The texts of a file, as `texts_of` has them, one by one."""
    return chain.from_iterable(map(Text, *texts) for texts in texts_of(file, longest))


def texts_of(file: IO[bytes], longest: int) -> Iterator[TextBlock]:
    """The texts of a file of lines, or of a document.

    Only its beginning, some lines and one record, of at most ``longest`` bytes, are buffered.
    """
    # An array that fits has to be whole; a longer one is read element by element.
    head = file.read(HELD)
    is_whole = len(head) < HELD
    head = head.removeprefix(BOM_UTF8)
    stream = BufferedReader(Stream(chain([head], pieces(file))))
    if _is_array(head, is_whole=is_whole):
        body = head.strip(_BLANK)
        # An array with a fault waits as the one text that it is.
        is_broken = is_whole and not _is_a(list, body)
        return _singly([Text(1, body)] if is_broken else _Elements(stream, longest))
    if is_of_objects(head[:BEGINNING], is_whole=is_whole and len(head) <= BEGINNING):
        return _singly(_Following(stream, longest))
    return line_texts(stream, longest)


def _singly(texts: Iterable[Text]) -> Iterator[TextBlock]:
    return (TextBlock([text.line], [text.raw]) for text in texts)


def _is_array(head: bytes, *, is_whole: bool) -> bool:
    """True if a file with this beginning is one array."""
    body = head.lstrip(_BLANK)
    if not body.startswith(b"["):
        return False
    first, end, _ = body.partition(b"\n")
    first = first.rstrip(_BLANK)
    # Behind a comma the array goes on, whatever is wrong with an element.
    if first.endswith(b",") or not (end or is_whole):
        return True
    try:
        _STRUCTURE.raw_decode(first.decode("latin-1"))
    except json.JSONDecodeError as error:
        return error.pos == len(first)
    except RecursionError:
        return False
    return is_whole and _is_a(list, body.rstrip(_BLANK))


def is_of_objects(head: bytes, *, is_whole: bool) -> bool:
    """True if the objects of a file with this beginning share lines or span them.

    One of them may have a fault: then no line is an object, and some are the inside of one.
    """
    body = head.strip(_BLANK).decode("latin-1")
    every_line = body.split("\n")
    first = every_line[0]
    with suppress(ValueError, RecursionError):
        _, end = _STRUCTURE.raw_decode(first)
        if first[end:].lstrip().startswith("{"):
            return first.startswith("{")
    if not body.startswith("{") or len(every_line) == 1:
        return False
    inside = [n for n, line in enumerate(every_line) if line.strip() and not line.lstrip().startswith("{")]
    openings = [n for n, line in enumerate(every_line) if line.startswith("{")]
    for n in inside[:_LOOKS]:
        begin = openings[bisect_right(openings, n) - 1]
        if _spans(every_line[begin:], n - begin, is_whole=is_whole):
            return True
    return bool(inside) and not any(_is_a(dict, every_line[n].encode("latin-1")) for n in openings[:_LOOKS])


def _spans(every_line: Sequence[str], inside: int, *, is_whole: bool) -> bool:
    """True if the object that begins with the first line has the line with the number ``inside`` in it."""
    text = "\n".join(every_line)
    try:
        _, end = _STRUCTURE.raw_decode(text)
    except json.JSONDecodeError as error:
        return not is_whole and error.pos > len(text) - 16  # the rest of it is behind the beginning
    except RecursionError:
        return False
    return text.count("\n", 0, end) >= inside


def _is_a(kind: type, raw: bytes) -> bool:
    try:
        # A character for each byte: a text in it may be no UTF-8.
        return isinstance(_STRUCTURE.decode(raw.decode("latin-1")), kind)
    except (ValueError, RecursionError):
        return False


class _Elements:
    """The elements of an array, and values that follow it."""

    def __init__(self, file: IO[bytes], longest: int) -> None:
        self._file, self._longest = file, longest
        self._chars, self._at, self._line = "", 0, 1  # a character for each byte

    def __iter__(self) -> Iterator[Text]:
        self._pass(_BLANKS)
        self._go(self._at + 1)
        between = _BETWEEN
        while following := self._pass(between):
            if following == "]" and between is _BETWEEN:
                self._go(self._at + 1)
                between = _BLANKS
                continue
            line, end = self._line, self._end()
            yield Text(line, self._broken() if end is None else self._taken(end))

    def _taken(self, end: int) -> bytes:
        """The value up to its end; of a long one how it begins."""
        raw = self._chars[self._at : min(end, self._at + self._longest + 1)]
        self._go(end)
        return raw.encode("latin-1")

    def _pass(self, blanks: re.Pattern[str]) -> str:
        """Pass over blanks; returns the character behind them."""
        while True:
            passed = blanks.match(self._chars, self._at)
            self._go(passed.end() if passed else self._at)
            if self._at < len(self._chars) or not self._more():
                return self._chars[self._at : self._at + 1]

    def _end(self) -> int | None:
        """The end of the value that begins here; None if it is no JSON, or longer than a record may be."""
        while True:
            end = None
            with suppress(ValueError, RecursionError):
                _, end = _STRUCTURE.raw_decode(self._chars, self._at)
            if end is not None and end < len(self._chars) - len("e+"):  # behind which a number goes on
                return end
            if len(self._chars) - self._at > self._longest or not self._more():
                return end

    def _broken(self) -> bytes:
        """Pass over text that is no JSON, or too long, until its braces are closed.

        Returns the text; of one that is too long, its beginning.
        """
        raw, depth, in_text, is_closed = "", 0, False, False
        while True:
            end = self._at
            for mark in _MARKS.finditer(self._chars, self._at):
                end = mark.end()
                in_text ^= mark[0] == '"'
                depth += 0 if in_text else {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark[0], 0)
                if is_closed := depth <= 0 and not in_text:
                    break
            if not is_closed:
                # A backslash may belong to what follows.
                end = max(end, len(self._chars) - self._chars.endswith("\\"))
            raw += self._chars[self._at : end][: self._longest + 1 - len(raw)]
            self._go(end)
            if is_closed:
                return raw.encode("latin-1")
            if not self._more():
                raw += self._chars[self._at :]
                self._go(len(self._chars))
                return raw.encode("latin-1")

    def _go(self, position: int) -> None:
        self._line += self._chars.count("\n", self._at, position)
        self._at = position

    def _more(self) -> bool:
        """Read more of the text, and drop the part behind; False at its end."""
        # As much again as is held: a long value is tried a few times, not once for each block.
        data = self._file.read(max(_BLOCK, len(self._chars) - self._at))
        if data:
            self._chars, self._at = self._chars[self._at :] + data.decode("latin-1"), 0
        return bool(data)


class _Following(_Elements):
    """Values that follow one another."""

    def __iter__(self) -> Iterator[Text]:
        while self._pass(_BLANKS):
            line, end = self._line, self._end()
            yield Text(line, self._broken() if end is None else self._taken(end))

    def _broken(self) -> bytes:
        """Pass over text that is no JSON, or too long, to the next line that begins with a brace.

        Returns the text; of one that is too long, its beginning.
        """
        raw = ""
        while True:
            following = _LINE.search(self._chars, self._at + 1)
            end = following.start() if following else max(self._at, len(self._chars) - 1)
            raw += self._chars[self._at : end][: self._longest + 1 - len(raw)]
            self._go(end)
            if following:
                return raw.encode("latin-1")
            if not self._more():
                raw += self._chars[self._at :]
                self._go(len(self._chars))
                return raw.encode("latin-1")
