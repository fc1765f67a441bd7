"""Values of MySQL that come as texts, as the values of JSON that the type of their column says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TypeAlias

from msgspec import json

Decode: TypeAlias = "Callable[[str], bytes | None]"  # None for a text that is no such value: it stays a text

_NUMBER = re.compile(r"(-?)0*(\d{1,400}(?:\.\d+)?(?:[eE][+-]?\d+)?)")
_TYPE = re.compile(r"\s*([a-z0-9_]+)", re.IGNORECASE)
_LABEL = re.compile(r"'((?:[^']|'')*)'")


def number(text: str) -> bytes | None:
    """The number of a text, digit by digit; None if it is none.

    >>> number("0042"), number("-1.50"), number("1.0E10"), number("12a")
    (b'42', b'-1.50', b'1.0E10', None)
    """
    match = _NUMBER.fullmatch(text) if text.isascii() else None
    return None if match is None else (match[1] + match[2]).encode()


def label(labels: Sequence[str], text: str) -> bytes | None:
    """The label of an enum that comes as its number; None for one that comes as itself.

    >>> label(["a", "b"], "2"), label(["a", "b"], "b"), label(["a", "b"], "3"), label(["1", "2"], "2")
    (b'"b"', None, None, None)
    """
    if text in labels or not _is_whole(text) or not 0 < int(text) <= len(labels):
        return None
    return json.encode(labels[int(text) - 1])


def labels_of_bits(labels: Sequence[str], text: str) -> bytes | None:
    """The labels of a set that come as a number, a bit for each; None if they come as themselves.

    >>> labels_of_bits(["a", "b", "c"], "5"), labels_of_bits(["a"], "a"), labels_of_bits(["a"], "2")
    (b'"a,c"', None, None)
    """
    if text in labels or not _is_whole(text) or int(text) >= 2 ** len(labels):
        return None
    bits = int(text)
    return json.encode(",".join(name for place, name in enumerate(labels) if bits >> place & 1))


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20


# Types by their first word. All others are texts as they come: of dates and times, JSON, geometry, bytes.
NUMBERS = {
    "bit", "bool", "boolean", "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "serial", "year",
    "dec", "decimal", "fixed", "numeric", "float", "double", "real",
}  # fmt: skip
LABELS = {"enum": label, "set": labels_of_bits}


@lru_cache(maxsize=10_000)
def decoder(type_text: str) -> Decode | None:
    """The decoder of a column's values; None for a type whose values are texts.

    >>> decoder("DECIMAL(8,2) unsigned")("10.50"), decoder("varchar(10)")
    (b'10.50', None)
    >>> decoder("enum('big','it''s')")("2")
    b'"it\\'s"'
    """
    match = _TYPE.match(type_text)
    name = "" if match is None else match[1].lower()
    if name in NUMBERS:
        return number
    if name in LABELS:
        return partial(LABELS[name], [text.replace("''", "'") for text in _LABEL.findall(type_text)])
    return None
