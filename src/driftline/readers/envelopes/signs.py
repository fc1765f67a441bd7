"""The fields by which a message is surely in an envelope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from driftline.core.planning.shape import Facet, FieldShape, RecordShape
from driftline.core.schema.types import BOOLEAN, STRING, Primitive
from driftline.core.values import DATELIKE

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
    """The envelope that fields are surely of. ``kind_at``: the kind of the field at a path, None without one.

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
