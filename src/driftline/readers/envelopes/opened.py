"""The fields of a message, taken out of what may stand around it: its key, its topic, a `payload`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Raw, json

from driftline.core.settings.row_key import NO_POSITION
from driftline.core.values import raw_members
from driftline.observe.decoder import REFUSED
from driftline.readers.envelopes import connect_schema
from driftline.readers.envelopes.change import (
    DELETE,
    SNAPSHOT_TAKEN,
    Changes,
    EnvelopeTerms,
    Mark,
    NotReadable,
    is_null,
    is_object,
    of_key,
    record,
    values_at,
)

# All fields of what a message may stand in, such as a dump of a topic.
AROUND = {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"}


class Opened(NamedTuple):
    """The ``fields`` of a message, and the Kafka message's own ``key``."""

    fields: Mapping[str, Raw]
    key: Raw | None = None

    def value(self, name: str) -> Any:
        """The value of a field; None without one."""
        text = self.fields.get(name)
        return None if text is None else json.decode(text)

    def row(self, name: str) -> Raw | None:
        """The text of the field if it is an object."""
        text = self.fields.get(name)
        return text if is_object(text) else None

    def only(self, names: Collection[str]) -> bool:
        """True if the message has no other fields than these."""
        return all(name in names for name in self.fields)


def opened(text: bytes | Raw, key: Raw | None = None) -> Opened | Mark:
    """Take a message out of what stands around it; a mark for one that is a key alone.

    >>> opened(b'{"key": 7, "value": {"type": "insert"}}').value("type")
    'insert'
    >>> opened(b'{"_key": 7}').kind
    'tombstone'

    Raises NotReadable, and msgspec's errors for what is no object.
    """
    fields = raw_members(text)
    has_key = "_key" in fields
    key = fields.pop("_key", key)
    content = None
    if "payload" in fields and fields.keys() <= {"schema", "payload"}:
        content = _decoded(fields["payload"], fields.get("schema"))
    elif {"key", "value"} <= fields.keys() <= AROUND:
        content, key = fields["value"], fields["key"]
    if content is not None and is_object(content):
        return opened(content, key)
    if (has_key and not fields) or (content is not None and is_null(content)):
        return Mark("tombstone")
    return Opened(fields, key)


def _decoded(payload: Raw, schema: Raw | None) -> Raw:
    """The values of a message as the schema beside it tells them."""
    if schema is None or is_null(schema):
        return payload
    try:
        return connect_schema.of_schema(bytes(schema))(payload)
    except connect_schema.WrongValue as error:
        raise NotReadable(str(error)) from None


def positioned(position: str | None, terms: EnvelopeTerms, without: str) -> str | None:
    """The position of a change. Raises NotReadable if changes are ordered by it, and there is none.

    ``without``: what of the message should have it.
    """
    if position is None and terms.by_position:
        raise NotReadable(f"{NO_POSITION}: {without}")
    return position


def truncate(position: str | None, terms: EnvelopeTerms) -> Mark:
    """The mark of a truncate. Raises NotReadable where the table cannot tell which rows are older."""
    if not terms.truncates:
        raise NotReadable(
            "a truncate of the source's table, which is not applied to rows that stay or have an order of their own"
        )
    if position is None:
        raise NotReadable("a truncate of the source's table that does not say where it stood")
    return Mark("truncate", position)


def snapshot_taken(records: Sequence[bytes], position: str | None, terms: EnvelopeTerms) -> Changes:
    """Make the changes of the last message of a complete snapshot. All of its records have one position, that
    at which it was begun.
    """
    if not terms.reconciles or position is None:
        return records
    return Mark(SNAPSHOT_TAKEN, position, records)


def written(
    row: bytes | Raw,
    before: bytes | Raw | None,
    operation: str,
    position: str | None,
    terms: EnvelopeTerms,
    unavailable: Sequence[str] = (),
) -> Sequence[bytes]:
    """The record after a change; where its key was another ``before``, the one that goes, too.

    ``unavailable``: the names of fields of which the message does not have the values.
    """
    texts = [record(row, operation, position, unavailable)]
    if before is not None:
        was, now = values_at(before, terms.key), values_at(row, terms.key)
        if was != now and None not in was:
            texts.insert(0, record(before, DELETE, position))
    return texts


def deleted(row: bytes | Raw | None, key: Raw | None, position: str | None, terms: EnvelopeTerms) -> bytes:
    """The record that goes, with the key that the row or the Kafka message has. Raises NotReadable."""
    if row is not None and None not in values_at(row, terms.key):
        return record(row, DELETE, position)
    if (gone := of_key(key, terms.key)) is None:
        raise NotReadable("a delete without its key: neither its row nor the message's key has it")
    return record(gone, DELETE, position)


def merged(row: Raw, old: Raw) -> bytes:
    """The row as it was: with the values of the fields that have changed.

    >>> merged(Raw(b'{"id": 8, "n": 1}'), Raw(b'{"id": 7}'))
    b'{"id":7,"n":1}'
    """
    return json.encode(raw_members(row) | raw_members(old))


def text_of(value: Raw) -> str | None:
    """The text that a value is, if it is one."""
    try:
        return json.decode(value, type=str) if memoryview(value)[0] == ord('"') else None
    except REFUSED:
        return None
