"""Messages whose envelope is not named: each is read in the one that it is surely in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Raw

from driftline.core.values.members import raw_members
from driftline.readers.envelopes import debezium
from driftline.readers.envelopes.change import Changes, EnvelopeTerms, Mark, NotReadable, is_object
from driftline.readers.envelopes.opened import opened
from driftline.readers.envelopes.signs import FLAG, LIST, NUMBER, OBJECT, TEXT, envelope_of
from driftline.readers.envelopes.tools import canal, debezium_unwrapped, dms, maxwell, ogg

Reader: TypeAlias = "Callable[[bytes, EnvelopeTerms], Changes]"

NAMED: Mapping[str, Reader] = {
    "debezium": debezium.read,
    "debezium-unwrapped": debezium_unwrapped.read,
    "maxwell": maxwell.read,
    "canal": canal.read,
    "ogg": ogg.read,
    "dms": dms.read,
}
# Those that know messages which say nothing of a row by all fields that these have.
_WITH_MARKS: Sequence[Reader] = (debezium.read, maxwell.read, canal.read, dms.read)
_KINDS = {ord('"'): TEXT, ord("{"): OBJECT, ord("["): LIST, ord("t"): FLAG, ord("f"): FLAG}


def read(text: bytes, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    name = envelope_of(lambda path: _kind_at(message.fields, path))
    if name is not None:
        return NAMED[name](text, terms)
    for reader in _WITH_MARKS:
        try:
            mark = reader(text, terms)
        except NotReadable:
            continue
        if isinstance(mark, Mark):
            return mark
    raise NotReadable(
        "not surely in an envelope: name it, such as envelope = debezium, or take the records as they are"
    )


def _kind_at(fields: Mapping[str, Raw], path: str) -> str | None:
    name, _, inside = path.partition(".")
    value = fields.get(name)
    if value is None:
        return None
    if inside:
        return _kind_at(raw_members(value), inside) if is_object(value) else None
    first = memoryview(value)[0]
    return _KINDS.get(first) or (NUMBER if first in b"-0123456789" else None)
