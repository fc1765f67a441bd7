"""Parses one line of JSON into Python objects that keep the text of numbers, or states why it is no record;
splits an object by its keys, where the values may wait.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from msgspec import MsgspecError, Raw
from msgspec import json as msgspec_json

MAX_DEPTH = (
    100  # objects and lists inside each other; beyond, neither Python's pickle nor Spark's planner is safe
)

NOT_UTF8 = "invalid UTF-8"  # how that reason begins
_ELLIPSIS = "…".encode()
_SHOWN = 4 * 2**10  # bytes that are kept of a text that is too long

# Escapes that are whole characters. What is left of a valid text's backslashes is a lone surrogate.
_ESCAPES = re.compile(
    rb"\\(?:[^u]|u(?:[0-9a-ce-f][0-9a-f]{3}|d[0-7][0-9a-f]{2}|d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}))",
    re.IGNORECASE,
)


class Malformed(ValueError):
    """The line is not a record; the message says why. ``why``: the reason, as a `RefusedText` has it."""

    @property
    def why(self) -> Any:
        """The text of the reason, or the refusal."""
        return self.args[0]


class Number(str):
    """A JSON number, as written."""

    __slots__ = ()


class TruncatedText(bytes):
    """The beginning of a text longer than a record may be, with an ellipsis, so that it is no JSON.

    ``longest``: bytes.
    """

    longest: int


class UnlistedDocument(bytes):
    """A document without a list of records at ``path``, with an ellipsis behind it, so that it is no JSON."""

    path: str

    @classmethod
    def of(cls, document: bytes, path: str) -> UnlistedDocument:
        """Mark a document."""
        marked = cls(document + _ELLIPSIS)
        marked.path = path
        return marked

    @property
    def document(self) -> bytes:
        """The document as it was read."""
        return bytes(self).removesuffix(_ELLIPSIS)


class RefusedText(bytes):
    """A text that is no record for the reason ``why``, with an ellipsis behind it, so that it is no JSON.

    The reason is a text, or the refusal of a table.
    """

    why: object

    @classmethod
    def of(cls, text: bytes, why: object) -> RefusedText:
        """Mark the beginning of a text."""
        marked = cls(text[:_SHOWN] + _ELLIPSIS)
        marked.why = why
        return marked


def cut(text: bytes, longest: int) -> bytes:
    """The text, or a `TruncatedText` of one that is longer than this many bytes.

    >>> cut(b'{"a": 1}', 8), cut(b'{"a": 10}', 8)
    (b'{"a": 1}', b'{"a": 10}\\xe2\\x80\\xa6')
    """
    if len(text) <= longest:
        return text
    beginning = TruncatedText(text[:_SHOWN] + _ELLIPSIS)
    beginning.longest = longest
    return beginning


def has_value(value: object) -> bool:
    """True if there is, at any depth, more than null, ``[]`` and ``{}``.

    >>> has_value({"a": [None, {}]}), has_value([False])
    (False, True)
    """
    if isinstance(value, dict):
        return any(map(has_value, value.values()))
    return any(map(has_value, value)) if isinstance(value, list) else value is not None


def reason(line: bytes) -> str | None:
    """The reason a line is not a record; None if it is one, or blank.

    >>> reason(b'{"a": 1}'), reason(b"[1]")
    (None, 'not an object but a list')
    """
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        try:
            # What this one takes, `parse` takes; it is quicker.
            _quick.decode(line)
            return None
        except (MsgspecError, ValueError):
            pass
    try:
        parse(line)
    except Malformed as error:
        return str(error)
    return None


def parse(line: bytes) -> dict[str, object]:
    """The record of one line, with numbers as `Number`; of duplicate keys the last. Raises Malformed."""
    if isinstance(line, TruncatedText):
        raise Malformed(f"longer than {line.longest} bytes, which the setting max_record_bytes allows")
    if isinstance(line, UnlistedDocument):
        raise Malformed(f"no list at {line.path}, where the setting records looks for records")
    if isinstance(line, RefusedText):
        raise Malformed(line.why)
    try:
        record = _decode(line.decode())
    except UnicodeDecodeError as error:
        raise Malformed(f"{NOT_UTF8}: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise Malformed(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        cause = error.msg.removesuffix(" starting at")
        place = f"line {error.lineno}, column {error.colno}" if b"\n" in line else f"character {error.pos}"
        raise Malformed(f"invalid JSON: {cause} at {place}") from None
    if not isinstance(record, dict):
        raise Malformed(f"not an object but a {_NAMES[type(record)]}")
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _deeper(record, MAX_DEPTH):
        raise Malformed(_TOO_DEEP)
    if (b"\\ud" in line or b"\\uD" in line) and b"\\" in _ESCAPES.sub(b"", line):
        raise Malformed("invalid Unicode: half of a surrogate pair")
    return record


def parse_values(texts: Iterable[bytes]) -> list[object]:
    """The values of texts from records that `parse` accepts, with numbers as `Number`.

    >>> parse_values([b"1.50", b'["x"]'])
    ['1.50', ['x']]
    """
    values: list[object] = _decode((b"[%b]" % b",".join(texts)).decode())
    return values


raw_members: Final = msgspec_json.Decoder(dict[str, Raw]).decode
"""Split an object's text, by key; of a key that stands twice, the last value. Raises DecodeError, or
RecursionError where it is nested too deeply.

>>> {key: bytes(value) for key, value in raw_members('{"id": 1.50, "tags": ["a"]}').items()}
{'id': b'1.50', 'tags': b'["a"]'}
"""


def _constant(name: str) -> NoReturn:
    raise Malformed(f"invalid JSON: {name} is not a number")


_quick = msgspec_json.Decoder(dict[str, object])
_decode = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_constant).decode
_TOO_DEEP = f"too deeply nested: more than {MAX_DEPTH} levels"
_NAMES = {list: "list", str: "string", Number: "number", bool: "boolean", type(None): "null"}


def _deeper(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (
                parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ()
            )
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True
