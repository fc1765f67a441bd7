"""Messages of AWS DMS to streams: `data` of a row, and `metadata` that say what was done to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, json

from driftline.core.values import raw_members
from driftline.readers.envelopes.change import Changes, EnvelopeTerms, Mark, NotReadable
from driftline.readers.envelopes.opened import Opened, deleted, opened, positioned, truncate, written

WRITES = {"load": "r", "insert": "c", "update": "u"}  # by `operation`
CONTROLS = {
    "create-table", "rename-table", "drop-table", "change-columns", "add-column", "drop-column", "rename-column",
    "column-type-change",
}  # fmt: skip
_OLD = "BI_"  # before the name of a column: its value before the change
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)


def read(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    metadata = message.value("metadata")
    if not isinstance(metadata, dict) or not {"record-type", "operation"} <= metadata.keys():
        files = "; rows of its files need no envelope: delete_when = \"Op = 'D'\"" * ("Op" in message.fields)
        raise NotReadable(
            f"no message of DMS's: it has no `metadata` with `record-type` and `operation`{files}"
        )
    record_type, operation = metadata["record-type"], metadata["operation"]
    if not isinstance(operation, str):
        raise NotReadable(f"operation {operation!r} is no text")
    if record_type == "control" and operation == "truncate-table":
        return truncate(position(metadata.get("timestamp")), terms)
    if record_type == "control":
        if operation not in CONTROLS:
            raise NotReadable(f"a control record whose operation is {operation!r}, which is not applied")
        return Mark("schema change")
    if record_type != "data":
        raise NotReadable(f"record-type {record_type!r} is none of DMS's: data, control")
    if operation not in WRITES and operation != "delete":
        raise NotReadable(f"operation {operation!r} is none of DMS's: {', '.join((*WRITES, 'delete'))}")
    return _changes(message, metadata, operation, terms)


def _changes(message: Opened, metadata: Mapping[str, Any], operation: str, terms: EnvelopeTerms) -> Changes:
    row = message.row("data")
    if row is None:
        raise NotReadable(f"operation {operation!r} without an object in `data`")
    at = positioned(
        position(metadata.get("timestamp")),
        terms,
        "no UTC time in `metadata.timestamp` by which changes could be ordered",
    )
    values = raw_members(row)
    old = {name.removeprefix(_OLD): value for name, value in values.items() if _is_old(name, values)}
    now = {name: value for name, value in values.items() if not _is_old(name, values)}
    if (image := message.row("before-image")) is not None:
        old |= raw_members(image)
    was, is_now = json.encode(now | old), json.encode(now)
    if operation == "delete":
        return [deleted(was, message.key, at, terms)]
    return written(is_now, was if old and operation == "update" else None, WRITES[operation], at, terms)


def _is_old(name: str, values: Mapping[str, Raw]) -> bool:
    """True if it names the value that another column of the row had before."""
    return name.startswith(_OLD) and name.removeprefix(_OLD) in values


def position(time: Any) -> str | None:
    """The position of a change: the time at which DMS made the message.

    >>> position("2024-10-27T12:39:03.21Z"), position("2024-10-27T12:39:03Z"), position("27.10.2024")
    ('2024-10-27T12:39:03.210000000Z', '2024-10-27T12:39:03.000000000Z', None)
    """
    match = _TIME.fullmatch(time) if isinstance(time, str) else None
    return None if match is None else f"{match[1]}.{(match[2] or '').ljust(9, '0')}Z"
