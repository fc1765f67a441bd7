"""Messages of a topic as texts of JSON, in which the message's own key is a field of the record."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import json

from driftline.core.settings.condition import MESSAGE_KEY
from driftline.core.values import Malformed, parse, raw_members, reason
from driftline.observe.decoder import REFUSED
from driftline.observe.json_lines import Why
from driftline.readers.deletes import NO_RECORD
from driftline.readers.wire import UnreadableError

_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_NAME = b'"%b"' % MESSAGE_KEY.encode()
NULL_VALUE = "a null value, for which delete_when is not true"
_NO_OBJECT = reason(NO_RECORD)
OWN_KEY = f"it has a field {MESSAGE_KEY} of its own, where the table reads the message's key"


class MessageTexts(NamedTuple):
    """The texts of messages; those of a table that reads keys have them.

    ``nulls``: the places of messages whose value is null, and whose text has the key alone; ``wrong``: the
    reasons of those that cannot be read.
    """

    lines: Sequence[bytes]
    nulls: Sequence[int]
    wrong: Mapping[int, str]

    def nulls_in(self, start: int, stop: int) -> Sequence[int]:
        """The places of null values in a part of the texts, counted from its ``start``."""
        low, high = (bisect_left(self.nulls, place) for place in (start, stop))
        return [place - start for place in self.nulls[low:high]]

    def why(self, place: int, value: bytes | None, why: Why) -> Why:
        """The reason for the reject of a message, whose text was refused for that of ``why``."""
        if not isinstance(why, str):
            return why
        if place in self.wrong:
            return self.wrong[place]
        if value is None:
            return NULL_VALUE if why == _NO_OBJECT else why
        if not value.strip():
            return "an empty value is no record"
        return (reason(value) if self.lines[place] is not value else None) or why


def without_keys(values: Sequence[bytes | None]) -> MessageTexts:
    """The texts of messages; a null value is none."""
    return MessageTexts([b"" if v is None else v if v.strip() else NO_RECORD for v in values], (), {})


def with_keys(
    values: Sequence[bytes | None], keys: Sequence[bytes | None], *, nulls: bool, again: bool = False
) -> MessageTexts:
    """The texts of messages with their keys. ``nulls``: null values are read, for they delete rows; else they
    are no texts. ``again``: texts may have their keys already, as those that were made of typed values have.
    """
    lines: list[bytes] = []
    null_places: list[int] = []
    wrong: dict[int, str] = {}
    for place, (value, key) in enumerate(zip(values, keys, strict=True)):
        try:
            if value is not None:
                lines.append(_with_key(value, key, again=again))
                continue
            lines.append(b"{%b:%b}" % (_NAME, key_text(key)) if nulls else b"")
            if nulls:
                null_places.append(place)
        except UnreadableError as error:
            wrong[place] = str(error)
            lines.append(NO_RECORD)
    return MessageTexts(lines, null_places, wrong)


@lru_cache(maxsize=10_000)
def key_text(key: bytes | None) -> bytes:
    """A message's key as a value of JSON. Raises UnreadableError for bytes that are no text.

    That is the JSON value that its bytes spell, else their text. Of bare numbers only whole ones in their
    usual spelling are numbers: 1.10 and 1.1 are two keys where keys are plain text. Of an object with
    `schema` and `payload` alone, as Kafka Connect writes it, the payload counts.

    >>> [key_text(key) for key in (b"7", b'{"id": 7}', b"1.10", b"a7", None)]
    [b'7', b'{"id": 7}', b'"1.10"', b'"a7"', b'null']
    """
    if key is None:
        return b"null"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UnreadableError("the message's key is no text")
    if key.lstrip()[:1] == b"{":
        return _payload(key) if reason(key) is None else json.encode(text)
    try:
        value = json.decode(key)
    except REFUSED:
        return json.encode(text)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return json.encode(text) if is_number and not _WHOLE.fullmatch(text) else key


def _payload(key: bytes) -> bytes:
    """The payload of a key that has its schema beside it; any other as it is."""
    if b"payload" not in key and b"\\" not in key:
        return key
    try:
        members = raw_members(key)
    except REFUSED:
        return key
    return bytes(members["payload"]) if members.keys() == {"schema", "payload"} else key


def _with_key(value: bytes, key: bytes | None, *, again: bool) -> bytes:
    """The text of an object with the key as its first field; any other as it is. Raises UnreadableError."""
    body = value.lstrip()
    if body[:1] != b"{":
        return value if body else NO_RECORD
    if (_NAME in body or b"\\" in body) and _has_key(body):
        if again:
            return value
        raise UnreadableError(OWN_KEY)
    separator = b"" if body[1:].lstrip()[:1] == b"}" else b","
    return b"{%b:%b%b%b" % (_NAME, key_text(key), separator, body[1:])


def _has_key(text: bytes) -> bool:
    try:
        return MESSAGE_KEY in raw_members(text)
    except REFUSED:
        pass
    try:
        return MESSAGE_KEY in parse(text)
    except Malformed:
        return False
