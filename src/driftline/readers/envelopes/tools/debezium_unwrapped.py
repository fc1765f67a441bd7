"""Rows that Debezium's ExtractNewRecordState took out of its messages, with fields of its own beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, json

from driftline.readers.envelopes.change import Changes, EnvelopeTerms, Mark, NotReadable
from driftline.readers.envelopes.log_positions import LAST_OF_SNAPSHOT, ChangeSource, Digits, position
from driftline.readers.envelopes.opened import (
    Opened,
    deleted,
    opened,
    positioned,
    snapshot_taken,
    truncate,
    written,
)
from driftline.readers.envelopes.unavailable import available

_OPERATIONS = ("c", "u", "r", "d", None)
_FLAGS: Mapping[Any, bool] = {"true": True, True: True, "false": False, False: False, None: False}
# Of `lsn` and of `source.lsn` in Debezium's setting `add.fields`, by their names in the row.
_IN_SOURCE = {
    prefix + name: name
    for prefix in ("__", "__source_")
    for name in ChangeSource.__struct_fields__
    if name not in ("ts_ms", "snapshot")
}
_TIME = "time:"  # before a position that is one
_TIMES = {"__source_ts_ns": 0, "__source_ts_us": 3, "__source_ts_ms": 6}  # and the zeros to nanoseconds


def read(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message: the row with all its fields. Raises NotReadable, and msgspec's errors for what is no
    object.
    """
    message = opened(text)
    if isinstance(message, Mark):
        raise NotReadable(
            "a tombstone, which does not say where it stood: a delete is read of the field __deleted, which"
            " Debezium adds with delete.tombstone.handling.mode = rewrite"
        )
    operation, flag = message.value("__op"), message.value("__deleted")
    if operation == "t":
        return truncate(_position(message), terms)
    if operation not in _OPERATIONS:
        raise NotReadable(f"__op {operation!r} is none of Debezium's: c, u, r, d, t")
    if not isinstance(flag, str | bool | None) or flag not in _FLAGS:
        raise NotReadable(f"__deleted {flag!r} is neither true nor false")
    place = positioned(
        _position(message),
        terms,
        "no field that says where the change stood, such as __lsn: name it in add.fields",
    )
    row: bytes | Raw = json.encode(message.fields)
    if _FLAGS[flag] or operation == "d":
        return [deleted(Raw(row), message.key, place, terms)]
    row, unavailable = available(row, terms)
    records = written(row, None, operation or "u", place, terms, terms.kept(unavailable))
    return snapshot_taken(records, place, terms) if _ends_snapshot(message, place) else records


def _ends_snapshot(message: Opened, place: str | None) -> bool:
    """True for the last record of a snapshot, if its position is that of all: the source's time is not."""
    places = map(message.value, ("__snapshot", "__source_snapshot"))
    is_last = message.value("__op") == "r" and any(place in LAST_OF_SNAPSHOT for place in places)
    return is_last and not (place or "").startswith(_TIME)


def _position(message: Opened) -> str | None:
    """The place in the log; without any field of it, the time of the source's change, which sorts behind.

    >>> _position(opened(b'{"id": 7, "__source_file": "bin.000003", "__source_pos": 154}'))
    '0000000003:00000000000000000154:0000000000'
    >>> _position(opened(b'{"id": 7, "__source_ts_ms": 1700000000000}'))
    'time:01700000000000000000'
    """
    source: dict[str, Any] = {}
    for name, in_source in _IN_SOURCE.items():
        if name in message.fields and (value := message.value(name)) is not None:
            source[in_source] = value
    if source.keys() - {"connector"}:
        return position(ChangeSource(**source, ts_ms=message.value("__source_ts_ms")))
    for name, zeros in _TIMES.items():
        if (time := Digits(20 - zeros)(message.value(name))) is not None:
            return f"{_TIME}{time}{'0' * zeros}"
    return None
