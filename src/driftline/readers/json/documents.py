"""Splits JSON documents into records: arrays, multi-line objects, several objects on one line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import msgspec

from driftline.core.planning.shape import RECORD, Facet, RecordShape
from driftline.core.schema.types import Path, dotted
from driftline.core.values import UnlistedDocument, cut
from driftline.files.text import BOM

_WHOLE = 64 * 2**20  # bytes of a document that is read at once
_WINDOW = 4 * 2**20  # bytes of which a larger one is read in pieces, at least
_BLANKS = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_MARKS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
# A line that begins with a brace, whatever ends the one before it
_NEXT = re.compile(r"[\r\n]\{")
# In front of a line that cannot begin an object
_CONTINUED = re.compile(r"\n(?=[ \t]*[^\s{])")
_LOOKS = 100  # lines of each kind that are looked at
_BEYOND = -1
_NEAR = 16  # characters: an error so near to the end may be no more than the end

_scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode


def is_document(head: bytes, *, whole: bool) -> bool:
    """True for an array, and for objects that span lines or share one.

    Lone carriage returns may be line ends. A document with a fault, wherever it is, is a document: its lines
    are no records.

    Args:
        head: The beginning of the file.
        whole: ``head`` is all of the file.

    >>> is_document(b'{"a": 1}\\n{"a": 2}', whole=True), is_document(b'[{"a": 1},\\n{"a": 2}]', whole=True)
    (False, True)
    >>> is_document(b'{\\n "a": 1\\n} {\\n "a": 2\\n}', whole=True)
    True
    >>> is_document(b'{\\n "a": [1 2]\\n}', whole=True)
    True
    >>> is_document(b'{"a": 1}\\r{"a": 2}', whole=True)
    True
    """
    text = head.decode(errors="replace").removeprefix("\ufeff").lstrip()
    first, _, others = text.partition("\n")
    if text.startswith("["):
        if len(first) == len(text) and not whole:
            return True
        if _begins(first, whole=True) == len(first):
            return not others.strip()
        return _goes_on(first)
    if not text.startswith("{"):
        return False
    end = _begins(first, whole=whole or len(first) < len(text))
    if end and first[end:].lstrip().startswith("{"):
        return True
    if len(first) == len(text):
        return False
    # The lines of a document with a fault would be so many rejects, with which a replay can do nothing.
    return _spans_lines(text, whole=whole) or not _has_line_alone(text)


def _goes_on(line: str) -> bool:
    """True if an array begins with the line and goes on behind it: nothing else ends in a comma.

    >>> _goes_on('[{"a": 1},'), _goes_on('[{"a" 1},'), _goes_on("[oops"), _goes_on("[1]")
    (True, True, False, False)
    """
    line = line.rstrip()
    try:
        _scan(line)
    except json.JSONDecodeError as error:
        return error.pos == len(line) or line.endswith(",")
    except RecursionError:
        return line.endswith(",")
    return False


def _spans_lines(text: str, *, whole: bool) -> bool:
    """True if one of the first objects that begin a line ends on a later one."""
    for continued in islice(_CONTINUED.finditer(text), _LOOKS):
        # The first line begins with a brace, too
        start = text.rfind("\n{", 0, continued.start()) + 1
        if start + _begins(text[start:], whole=whole) > continued.start():
            return True
    return False


def _has_line_alone(text: str) -> bool:
    """True if one of the first lines that begin with a brace is an object.

    Also if no line begins otherwise, so that there is nothing that lines could be parts of.
    """
    if _CONTINUED.search(text) is None:
        return True
    lines = islice((line for line in text.split("\n") if line.startswith("{")), _LOOKS)
    return any(_begins(line, whole=True) == len(line) for line in lines)


def _begins(text: str, *, whole: bool) -> int:
    """The end of the JSON value that the text begins with, and of the blanks after it; 0 if there is none.

    Args:
        whole: the text is complete; otherwise an incomplete value may still become one.
    """
    try:
        _, end = _scan(text)
    except json.JSONDecodeError as error:
        cut = error.msg.startswith("Unterminated string") or error.pos > len(text) - 16
        return len(text) if cut and not whole else 0
    except RecursionError:
        return 0
    return len(text) if not text[end:].strip() else end


def records_in(file: IO[bytes], longest: int) -> Iterator[bytes]:
    """The text of each record of a document, as `records_of` yields them; a large document is read in pieces.

    A record of more than ``longest`` bytes comes as `TruncatedText`.
    """
    head = file.read(_WHOLE)
    if len(head) < _WHOLE:
        yield from (cut(record, longest) for record in records_of(head))
    else:
        yield from _Pieces(head, file, longest)


def records_of(document: bytes) -> Iterator[bytes]:
    """The text of each record of a document: the elements of an array, or successive values.

    Text that is no JSON comes as it is, up to the next line that begins with a brace.
    """
    text = document.removeprefix(BOM).strip()
    if text.startswith(b"["):
        try:
            elements = msgspec.json.decode(text, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            # One element that is no JSON is rejected alone, as it is in a large document.
            is_array = _begins(text.decode("latin-1"), whole=True) == len(text)
            yield from _Pieces(text, None, len(text)) if is_array else [text]
        else:
            yield from map(bytes, elements)
        return
    yield from _Pieces(text, None, len(text))


class _Pieces:
    """The values of an array, or successive values, of a text of which only a window is in memory.

    Args:
        file: the text after the window; None if there is none.
    """

    def __init__(self, window: bytes, file: IO[bytes] | None, longest: int) -> None:
        self._file, self._longest = file, longest
        # A character for each byte, and the same braces and quotes.
        self._chars = window.removeprefix(BOM).decode("latin-1")
        self._at = _end_of(_BLANKS, self._chars, 0)
        self._array = self._chars.startswith("[", self._at)

    def __iter__(self) -> Iterator[bytes]:
        if self._array:
            self._at += 1
        while self._goes_on():
            end = self._value()
            if end is None:
                yield self._broken()
            elif end == _BEYOND:
                yield cut(self._chars[self._at :].encode("latin-1"), self._longest)
                self._skip()
            else:
                yield cut(self._chars[self._at : end].encode("latin-1"), self._longest)
                self._at = end

    def _goes_on(self) -> bool:
        """Move to the next value, if there is one."""
        between = _BETWEEN if self._array else _BLANKS
        self._at = _end_of(between, self._chars, self._at)
        while self._at == len(self._chars) and self._read():
            self._at = _end_of(between, self._chars, self._at)
        if self._array and self._chars.startswith("]", self._at):
            self._at, self._array = self._at + 1, False
            return self._goes_on()
        return self._at < len(self._chars)

    def _value(self) -> int | None:
        """The end of the value that begins here.

        `_BEYOND` if it is too long for the window, None if it is no JSON.
        """
        while True:
            end = None
            try:
                _, end = _scan(self._chars, self._at)
                is_cut = end == len(self._chars)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos > len(self._chars) - _NEAR
            except RecursionError:
                is_cut = False
            # What reaches up to the end of the window may go on behind it.
            if not is_cut:
                return end
            if len(self._chars) - self._at > self._longest:
                return end or _BEYOND
            if not self._read():
                return end

    def _skip(self) -> None:
        """Skip a value that is too long to be held."""
        depth, in_text = 0, False
        while True:
            for mark in _MARKS.finditer(self._chars, self._at):
                if mark[0] == '"':
                    in_text = not in_text
                elif not in_text and mark[0] in "{}[]":
                    depth += 1 if mark[0] in "{[" else -1
                self._at = mark.end()
                if depth <= 0 and not in_text:
                    return
            # An escape at the end belongs to the next character, so it is looked at again with it.
            if not self._chars.endswith("\\"):
                self._at = len(self._chars)
            if not self._read():
                self._at = len(self._chars)
                return

    def _broken(self) -> bytes:
        """The text that is no JSON, up to the next line that begins with a brace.

        Of a text that is too long it is no more than shows so.
        """
        parts, room = [], self._longest + 1
        while True:
            following = _NEXT.search(self._chars, self._at + 1)
            end = -1 if following is None else following.start()
            # The line feed may be the last that the window has.
            stop = end if end >= 0 else max(self._at, len(self._chars) - 1)
            parts.append(self._chars[self._at : stop][:room])
            room -= len(parts[-1])
            self._at = stop
            if end >= 0:
                break
            if not self._read():
                parts.append(self._chars[self._at :][:room])
                self._at = len(self._chars)
                break
        return cut("".join(parts).encode("latin-1"), self._longest)

    def _read(self) -> bool:
        """Read more text, and drop the part that is done; False at the end of the text."""
        # As much again as is held, so that a long value is scanned a few times and not once a window.
        size = max(_WINDOW, len(self._chars) - self._at)
        data = b"" if self._file is None else self._file.read(size)
        if data:
            self._chars, self._at = self._chars[self._at :] + data.decode("latin-1"), 0
        return bool(data)


def _end_of(blanks: re.Pattern[str], chars: str, start: int) -> int:
    match = blanks.match(chars, start)
    return start if match is None else match.end()


_NULL = b"null"
_RECORD, _RECORDS = Facet(0, RECORD), Facet(1, RECORD)


class ListedRecords:
    """Takes records out of the list at a path of each document.

    Values next to the list are no part of a record: they are counted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._others: Counter[str] = Counter()

    def of(self, document: bytes) -> Iterator[bytes]:
        """Yield the text of each element of the list; a null is an empty one.

        A document without the list comes as an `UnlistedDocument`.

        >>> listed = ListedRecords(("data", "rows"))
        >>> list(listed.of(b'{"data": {"rows": [{"a": 1}, {"a": 2}], "page": 7}, "next": null}'))
        [b'{"a": 1}', b'{"a": 2}']
        >>> listed.drain()
        Counter({'data.page': 1})
        """
        others: list[str] = []
        text: bytes | msgspec.Raw = document
        try:
            for depth, key in enumerate(self._path):
                members: dict[str, msgspec.Raw] = _decoded(text, dict[str, msgspec.Raw])
                text = members.pop(key)
                outside = self._path[:depth]
                others += [
                    dotted((*outside, name)) for name, value in members.items() if bytes(value) != _NULL
                ]
            records: list[msgspec.Raw] = _decoded(text, list[msgspec.Raw] | None) or []
        except (KeyError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            # It waits whole, as an answer with an error should.
            yield UnlistedDocument.of(document, dotted(self._path))
            return
        self._others.update(others)
        yield from map(bytes, records)

    def drain(self) -> Counter[str]:
        """Count documents with a value at each path outside the list, since the last call."""
        others, self._others = self._others, Counter()
        return others


def lists_of_records(shape: RecordShape, path: Path = ()) -> Iterator[Path]:
    """The paths of lists of objects in documents, as far as objects alone lead there."""
    for key, field in shape.fields.items():
        for facet, profile in field.facets.items():
            if facet == _RECORDS:
                yield (*path, key)
            elif facet == _RECORD and profile.record is not None:
                yield from lists_of_records(profile.record, (*path, key))


def _decoded(text: bytes | msgspec.Raw, type_: Any) -> Any:
    return msgspec.json.decode(text, type=type_)
