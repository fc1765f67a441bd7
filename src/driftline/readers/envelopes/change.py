"""The reading of a message in an envelope: changes, a mark that changes nothing, or a reason to refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from msgspec import Raw, json

from driftline.core.schema.definition import CHANGE
from driftline.core.schema.types import Path
from driftline.core.settings.row_key import PLACEHOLDER
from driftline.core.values import raw_members
from driftline.observe.decoder import REFUSED
from driftline.readers.envelopes import connect_schema

DELETE = "d"
SNAPSHOT_TAKEN = "complete snapshot"
LEFT_OUT, MARKED, REFUSED_VALUES = "left out", "marked", "refused"  # what becomes of unavailable values

_OBJECT, _NULL = b"{n"
_NAME = json.encode(CHANGE)


class NotReadable(ValueError):
    """A message of which no change can be read; the text says why."""


class Mark(NamedTuple):
    """A message that says nothing of a row, by what it is: `heartbeat`. ``truncated``: the position of a
    truncate, which all older rows go by; so they do by a complete snapshot, whose last message has
    ``records``, too.
    """

    kind: str
    truncated: str = ""
    records: Sequence[bytes] = ()


Changes: TypeAlias = "Sequence[bytes] | Mark"  # the texts of the records that a message is read as


@dataclass(frozen=True, slots=True)
class EnvelopeTerms:
    """The table's terms for messages: the ``key`` of its rows, and whether a position orders them.
    ``unavailable``: whether fields without their values are left out, or are named beside the change;
    ``truncates``: whether a truncate is applied; ``reconciles``: whether rows go that a complete snapshot
    does not have; ``placeholder_text``: of values that are left out, empty if none is.
    """

    key: tuple[Path, ...]
    by_position: bool
    unavailable: str = MARKED
    truncates: bool = True
    reconciles: bool = False
    placeholder_text: str = PLACEHOLDER

    def kept(self, unavailable: Sequence[str]) -> Sequence[str]:
        """The names of fields without their values that stand beside a change. Raises NotReadable where rows
        do not keep values.
        """
        if unavailable and self.unavailable == REFUSED_VALUES:
            raise NotReadable(
                f"`{unavailable[0]}` is a value that Debezium has left out as unavailable, which rows "
                "without an order, or with deletes = soft, do not keep"
            )
        return unavailable if self.unavailable == MARKED else ()

    @property
    def patches(self) -> bool:
        """True if a record changes only the fields of its row that it has."""
        return self.unavailable == LEFT_OUT


def is_object(text: bytes | Raw | None) -> bool:
    """True if the text of a value is an object."""
    return text is not None and memoryview(text)[0] == _OBJECT


def is_null(text: bytes | Raw | None) -> bool:
    """True if there is no value."""
    return text is None or memoryview(text)[0] == _NULL


def record(text: bytes | Raw, operation: str, position: str | None, unavailable: Sequence[str] = ()) -> bytes:
    """The text of a record that has the change as its last field. Raises NotReadable if it has such a field.

    ``unavailable``: the names of fields of which the message does not have the values.

    >>> record(b'{"id": 7}', "c", "0042")
    b'{"id": 7,"_change":{"op":"c","position":"0042"}}'
    """
    body = bytes(text)
    if (_NAME in body or b"\\" in body) and CHANGE in raw_members(body):
        raise NotReadable(f"it has a field {CHANGE} of its own, where the table keeps what its envelope says")
    place = b"" if position is None else b',"position":' + json.encode(position)
    if unavailable:
        place += b',"unavailable":' + json.encode(json.encode(sorted(unavailable)).decode())
    separator = b"" if body[1:-1].isspace() or len(body) == 2 else b","
    return b'%b%b%b:{"op":%b%b}}' % (body[:-1], separator, _NAME, json.encode(operation), place)


def unavailable_of(line: bytes) -> str:
    """The names of the fields without their values, as a JSON text; empty for a record without such.

    >>> unavailable_of(record(b'{"id": 7}', "u", "0042", ["b", "a"]))
    '["a","b"]'
    """
    if not line.endswith(b']"}}'):
        return ""
    change = raw_members(raw_members(line)[CHANGE])
    return json.decode(change["unavailable"], type=str) if "unavailable" in change else ""


def values_at(text: bytes | Raw, paths: Sequence[Path]) -> list[Raw | None]:
    """The values at these paths of an object; None where one is absent or null."""
    members = raw_members(text)
    values = []
    for path in paths:
        value = members.get(path[0])
        for step in path[1:]:
            value = raw_members(value).get(step) if value is not None and is_object(value) else None
        values.append(None if is_null(value) else value)
    return values


def of_key(key: bytes | Raw | None, paths: Sequence[Path]) -> bytes | None:
    """The text of a record that has what a message's key has, a struct or the one value; None without one.

    >>> of_key(b'{"id": 7}', [("id",)]), of_key(b"7", [("id",)]), of_key(b"7", [("a",), ("b",)])
    (b'{"id": 7}', b'{"id":7}', None)
    """
    if key is None or is_null(key):
        return None
    if is_object(key):
        members = raw_members(key)
        if members.keys() == {"schema", "payload"}:
            try:
                decode = connect_schema.of_schema(bytes(members["schema"]))
                return of_key(decode(members["payload"]), paths)
            except connect_schema.WrongValue as error:
                raise NotReadable(f"in the message's key, {error}") from None
        return bytes(key)
    inside = _object_in(key)
    if inside is not None:
        return of_key(inside, paths)
    if len(paths) != 1 or len(paths[0]) != 1:
        return None
    return b"{%b:%b}" % (json.encode(paths[0][0]), key)


def _object_in(key: bytes | Raw) -> bytes | None:
    """The text of the object that a text is, as a key may be in files."""
    if memoryview(key)[0] != ord('"'):
        return None
    try:
        text = json.decode(key, type=str).strip().encode()
        if not is_object(text):
            return None
        raw_members(text)
    except (*REFUSED, IndexError):
        return None
    return text
