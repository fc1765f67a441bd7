"""Messages of Maxwell: `data` of a row, `old` values of the fields that changed, and a `type`."""

from __future__ import annotations

from msgspec import Raw

from driftline.readers.envelopes.change import Changes, EnvelopeTerms, Mark, NotReadable
from driftline.readers.envelopes.log_positions import Digits, file_number
from driftline.readers.envelopes.opened import Opened, deleted, merged, opened, positioned, written

# By `type`.
WRITES = {"insert": "c", "update": "u", "bootstrap-insert": "r"}
MARKS = {
    "bootstrap-start": "bootstrap mark",
    "bootstrap-complete": "bootstrap mark",
    "database-create": "schema change",
    "database-alter": "schema change",
    "database-drop": "schema change",
    "table-create": "schema change",
    "table-alter": "schema change",
    "table-drop": "schema change",
}
# All fields of a mark: an object with any other is no mark.
_MARK_FIELDS = {
    "bootstrap mark": {"database", "table", "type", "ts", "data", "comment", "primary_key", "primary_key_columns"},
    "schema change": {"database", "table", "type", "ts", "old", "def", "sql", "charset", "position", "gtid", "schema_id"},
}  # fmt: skip
_LAST = 9_999_999_999  # the last row of a transaction has no `xoffset`
# Rows of a bootstrap say nothing of the log: they are older than any change.
_BEFORE_ALL = f"{0:020}:{0:010}"


def read(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    kind = message.value("type")
    if not isinstance(kind, str) or "database" not in message.fields:
        raise NotReadable("no message of Maxwell's: it has no `type` and `database`")
    if kind in MARKS:
        return _mark(message, kind)
    if kind not in WRITES and kind != "delete":
        raise NotReadable(f"type {kind!r} is none of Maxwell's: {', '.join((*WRITES, 'delete', *MARKS))}")
    row = message.row("data")
    if row is None:
        raise NotReadable(f"type {kind!r} without an object in `data`")
    position = positioned(
        _position(message, kind), terms, "no `position` and no `xid` that says where the change stood"
    )
    if kind == "delete":
        return [deleted(row, message.key, position, terms)]
    old = message.row("old") if kind == "update" else None
    return written(row, None if old is None else merged(row, old), WRITES[kind], position, terms)


def _mark(message: Opened, kind: str) -> Mark:
    mark = MARKS[kind]
    if not message.only(_MARK_FIELDS[mark]) or message.value("data"):
        raise NotReadable(f"type {kind!r} with other fields than Maxwell's message of that type has")
    return Mark(mark)


def _position(message: Opened, kind: str) -> str | None:
    """The place in the binary log, if the message has it; else transaction and row, as numbers.

    >>> row = opened(b'{"position": "master.000006:800911", "xid": 23396, "xoffset": 2}')
    >>> _position(row, "insert")
    '0000000006:00000000000000800911:0000000002'
    >>> _position(opened(b'{"xid": 23396}'), "insert")
    '00000000000000023396:9999999999'
    """
    place, xid = message.value("position"), message.value("xid")
    row = Digits(10, absent=_LAST)(message.value("xoffset"))
    if isinstance(place, str):
        file, _, offset = place.rpartition(":")
        parts = [file_number(file), Digits()(offset), row]
    elif xid is not None:
        parts = [Digits()(xid), row]
    else:
        return _BEFORE_ALL if kind == "bootstrap-insert" else None
    numbers = [part for part in parts if part is not None]
    return ":".join(numbers) if len(numbers) == len(parts) else None
