"""Reads messages in envelopes: changes, a mark that changes nothing, or a reason to reject it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from msgspec import Raw, json

from driftline.core.planning.shape import Facet, FieldShape, RecordShape
from driftline.core.schema.definition import CHANGE
from driftline.core.schema.types import BOOLEAN, STRING, Path, Primitive
from driftline.core.settings.row_key import NO_POSITION, PLACEHOLDER
from driftline.core.support import lines_with
from driftline.core.values import DATELIKE, raw_members
from driftline.observe.decoder import REFUSED
from driftline.readers.envelopes.connect_schema import WrongValue, of_schema

DELETE = "d"
SNAPSHOT_TAKEN = "complete snapshot"
LEFT_OUT, MARKED, REFUSED_VALUES = "left out", "marked", "refused"  # what becomes of unavailable values

_OBJECT, _NULL = b"{n"
_NAME = json.encode(CHANGE)
_CHANGE_OF_OPERATION = b',%b:{"op":' % _NAME


class NotReadable(ValueError):
    """A message of which no change can be read; the text says why."""


class Mark(NamedTuple):
    """A message that says nothing of a row, by its kind: `heartbeat`.

    Attributes:
        truncated: the position of a truncate, which all older rows go by; so they do by a complete snapshot.
        records: those of the last message of a complete snapshot.
    """

    kind: str
    truncated: str = ""
    records: Sequence[bytes] = ()


# The texts of the records that a message is read as
Changes: TypeAlias = "Sequence[bytes] | Mark"


@dataclass(frozen=True, slots=True)
class EnvelopeTerms:
    """The table's terms for messages.

    Attributes:
        key: the key of its rows.
        by_position: a position orders changes.
        unavailable: the treatment of fields without their values: left out, marked or refused.
        truncates: truncates are applied.
        reconciles: rows missing from a complete snapshot are deleted.
        placeholder_text: stands for values that are left out; empty if there is none.
    """

    key: tuple[Path, ...]
    by_position: bool
    unavailable: str = MARKED
    truncates: bool = True
    reconciles: bool = False
    placeholder_text: str = PLACEHOLDER

    def kept(self, unavailable: Sequence[str]) -> Sequence[str]:
        """Return the names of a change's fields without values.

        Raises NotReadable if rows do not keep values.
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

    Args:
        unavailable: the names of fields of which the message does not have the values.

    >>> record(b'{"id": 7}', "c", "0042")
    b'{"id": 7,"_change":{"op":"c","position":"0042"}}'
    """
    body = bytes(text)
    # Parsed only if the name may be there; an escape may spell it.
    if (_NAME in body or b"\\" in body) and CHANGE in raw_members(body):
        raise NotReadable(f"it has a field {CHANGE} of its own, where the table keeps what its envelope says")
    place = b"" if position is None else b',"position":' + json.encode(position)
    if unavailable:
        place += b',"unavailable":' + json.encode(json.encode(sorted(unavailable)).decode())
    separator = b"," if body[1:-1].strip() else b""
    return b'%b%b%b:{"op":%b%b}}' % (body[:-1], separator, _NAME, json.encode(operation), place)


def usual_record(row: bytes, operation: str, position: str) -> bytes:
    """The `record` of a row with fields, none of which is named as the change's.

    >>> usual_record(b'{"id": 7}', "c", "0042") == record(b'{"id": 7}', "c", "0042")
    True
    """
    # Its parts are joined, as a format takes twice as long.
    parts = (
        row[:-1],
        _CHANGE_OF_OPERATION,
        json.encode(operation),
        b',"position":',
        json.encode(position),
        b"}}",
    )
    return b"".join(parts)


def may_have_change(messages: Sequence[bytes]) -> list[int]:
    """The places of messages that may have a field of that name; an escape may spell it."""
    return lines_with(messages, {_NAME: _NAME, b"\\": rb"\\"})


def unavailable_in(lines: Iterable[bytes]) -> list[str]:
    """The names of the fields without their values in each record, as a JSON text; empty for none.

    >>> unavailable_in([record(b'{"id": 7}', "u", "0042", ["b", "a"]), b'{"id": 7}'])
    ['["a","b"]', '']
    """
    return [_unavailable_of(line) if line.endswith(b']"}}') else "" for line in lines]


def _unavailable_of(line: bytes) -> str:
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
                decode = of_schema(bytes(members["schema"]))
                return of_key(decode(members["payload"]), paths)
            except WrongValue as error:
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
    """Decode the values of a message by its schema."""
    if schema is None or is_null(schema):
        return payload
    try:
        return of_schema(bytes(schema))(payload)
    except WrongValue as error:
        raise NotReadable(str(error)) from None


def positioned(position: str | None, terms: EnvelopeTerms, without: str) -> str | None:
    """The position of a change. Raises NotReadable if changes are ordered by it, and there is none.

    Args:
        without: what of the message should have it.
    """
    # Arrival would be a dangerous default: a topic that is filled again would bring old rows back unnoticed.
    if position is None and terms.by_position:
        raise NotReadable(f"{NO_POSITION}: {without}")
    return position


def truncate(position: str | None, terms: EnvelopeTerms) -> Mark:
    """Return the mark of a truncate. Raises NotReadable if the table cannot determine older rows."""
    if not terms.truncates:
        raise NotReadable(
            "a truncate of the source's table, which is not applied to rows that stay or have an order of their own"
        )
    if position is None:
        raise NotReadable("a truncate of the source's table that does not say where it stood")
    return Mark("truncate", position)


def snapshot_taken(records: Sequence[bytes], position: str | None, terms: EnvelopeTerms) -> Changes:
    """Make the changes of the last message of a complete snapshot.

    All of its records have one position, that at which it was begun.
    """
    if not terms.reconciles or position is None:
        return records
    # Nobody has to remember which keys the snapshot showed: what is older than its position was not in it.
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

    Args:
        unavailable: the names of fields of which the message does not have the values.
    """
    texts = [record(row, operation, position, unavailable)]
    if before is not None:
        was, now = values_at(before, terms.key), values_at(row, terms.key)
        if was != now and None not in was:
            # The delete first: of changes of one position the later counts, and another key may be the old
            # one again.
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


TEXT, NUMBER, FLAG, OBJECT, LIST = "text", "number", "flag", "object", "list"
Kinds: TypeAlias = "Mapping[str, str]"

# By envelope: fields that are all there, of these kinds; the paths of those inside another have a dot.
SIGNS: Mapping[str, Kinds] = {
    "debezium": {"op": TEXT, "source": OBJECT, "source.connector": TEXT},
    "debezium-unwrapped": {"__op": TEXT, "__deleted": TEXT},
    "maxwell": {"database": TEXT, "table": TEXT, "type": TEXT, "ts": NUMBER, "data": OBJECT},
    "canal": {"database": TEXT, "table": TEXT, "type": TEXT, "isDdl": FLAG, "es": NUMBER, "data": LIST},
    "ogg": {"table": TEXT, "op_type": TEXT, "op_ts": TEXT, "pos": TEXT},
    "dms": {"data": OBJECT, "metadata": OBJECT, "metadata.record-type": TEXT, "metadata.operation": TEXT},
}
# Fields of which one at least is there, too: an object, or a document of MongoDB as text.
_ONE_OF = {
    "debezium": (("before", "after"), {OBJECT, TEXT}),
    "ogg": (("before", "after"), {OBJECT}),
}


def envelope_of(kind_at: Callable[[str], str | None]) -> str | None:
    """The envelope that fields are surely of.

    Args:
        kind_at: the kind of the field at a path, None without one.

    >>> fields = {"table": TEXT, "op_type": TEXT, "op_ts": TEXT, "pos": TEXT, "after": OBJECT}
    >>> envelope_of(fields.get), envelope_of({"table": TEXT}.get)
    ('ogg', None)
    """
    for name, kinds in SIGNS.items():
        others = _ONE_OF.get(name)
        if all(kind_at(path) == kind for path, kind in kinds.items()) and (
            others is None or others[1] & set(map(kind_at, others[0]))
        ):
            return name
    return None


def envelope_note(shape: RecordShape) -> list[str]:
    """A note for a person whose records are messages in an envelope; none for other records."""
    name = envelope_of(lambda path: _kind(_field_at(shape, path)))
    if name is None:
        return []
    return [f"the records are changes of a database: --envelope {name}, with a --key, makes them rows"]


def _field_at(shape: RecordShape, path: str) -> FieldShape | None:
    name, _, inside = path.partition(".")
    field = shape.fields.get(name)
    if field is None or not inside:
        return field
    records = [profile.record for profile in field.facets.values() if profile.record is not None]
    return _field_at(records[0], inside) if len(records) == 1 else None


def _kind(field: FieldShape | None) -> str | None:
    """The kind of all values of a field; None if there are several."""
    kinds = set() if field is None else set(map(_kind_of, field.facets))
    return kinds.pop() if len(kinds) == 1 else None


def _kind_of(facet: Facet) -> str:
    if facet.dim:
        return LIST
    if not isinstance(facet.base, Primitive):
        return OBJECT
    if facet.base in (STRING, *DATELIKE):
        return TEXT
    return FLAG if facet.base == BOOLEAN else NUMBER
