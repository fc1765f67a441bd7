"""Values of Kafka in Confluent's wire format: a zero, the id of the schema in four bytes, and the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from driftline.convert.nodes import RecordNode

_HEAD = 5  # bytes


class UnreadableError(Exception):
    """A value is no record, for this reason."""


class Decoder(Protocol):
    """What reads the values of one schema. ``nodes``: its kinds of records, by name."""

    @property
    def nodes(self) -> Mapping[str, RecordNode]: ...

    def record(self, payload: bytes) -> tuple[str, Mapping[str, Any]]:
        """The record behind the header, and of which kind it is. Raises UnreadableError."""
        ...


def framed(value: bytes) -> tuple[int, bytes]:
    """The schema's id and what is behind it. Raises UnreadableError.

    >>> framed(bytes([0, 0, 0, 1, 2, 7]))
    (258, b'\\x07')
    """
    if value[:1] != b"\0":
        begins = f"it begins with byte 0x{value[0]:02X}, not 0x00" if value else "it is empty"
        raise UnreadableError(f"not in the registry's wire format: {begins}")
    if len(value) < _HEAD:
        raise UnreadableError("not in the registry's wire format: it ends within the schema's id")
    return int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]
