"""Unwraps records from messages in an envelope, named by a setting or detected with certainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from msgspec import Raw

from driftline.core.schema.definition import POSITION
from driftline.core.settings.row_key import RowKey
from driftline.core.support import gc_paused
from driftline.core.values import RefusedText, raw_members
from driftline.observe.decoder import REFUSED
from driftline.observe.json_lines import Why
from driftline.readers.envelopes.debezium import Placeholder, read_debezium, read_unwrapped, usual_records
from driftline.readers.envelopes.messages import (
    FLAG,
    LEFT_OUT,
    LIST,
    MARKED,
    NUMBER,
    OBJECT,
    REFUSED_VALUES,
    TEXT,
    Changes,
    EnvelopeTerms,
    Mark,
    NotReadable,
    envelope_of,
    is_object,
    opened,
)
from driftline.readers.envelopes.other_tools import read_canal, read_dms, read_maxwell, read_ogg
from driftline.readers.rejects import Reject

_Reader: TypeAlias = "Callable[[bytes, EnvelopeTerms], Changes]"

NAMED: Mapping[str, _Reader] = {
    "debezium": read_debezium,
    "debezium-unwrapped": read_unwrapped,
    "maxwell": read_maxwell,
    "canal": read_canal,
    "ogg": read_ogg,
    "dms": read_dms,
}
# Those that know messages which say nothing of a row by all fields that these have.
_WITH_MARKS: Sequence[_Reader] = (read_debezium, read_maxwell, read_canal, read_dms)
_KINDS = {ord('"'): TEXT, ord("{"): OBJECT, ord("["): LIST, ord("t"): FLAG, ord("f"): FLAG}


class Unwrapper:
    """In a task: reads messages as records, and counts those that say nothing of a row.

    ``control_messages``: their number by what they are; ``truncated``: the position of the last truncate
    among them.
    """

    def __init__(self, row_key: RowKey) -> None:
        self._is_debezium = row_key.envelope in ("auto", "debezium")
        self._read = _read_unnamed if row_key.envelope == "auto" else NAMED[row_key.envelope]
        unavailable = MARKED if row_key.keeps_fields else LEFT_OUT if row_key.patch else REFUSED_VALUES
        by_position = row_key.order_by == (POSITION,)
        truncates = by_position and not row_key.soft
        self._terms = EnvelopeTerms(
            row_key.key,
            POSITION in row_key.order_by,
            unavailable,
            truncates,
            row_key.reconciles,
            row_key.placeholder,
        )
        self._complete = replace(self._terms, placeholder_text="")
        self._placeholder = Placeholder.of(row_key.placeholder)
        self.control_messages: Counter[str] = Counter()
        self.truncated = ""

    @classmethod
    def of(cls, row_key: RowKey | None) -> Unwrapper | None:
        """The unwrapper for a table; None if its records come without an envelope."""
        return cls(row_key) if row_key is not None and row_key.envelope else None

    @gc_paused()
    def records(self, messages: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
        """The texts of the records in some messages, each with the place of its message.

        A message that cannot be read comes as a `RefusedText`; what is no object, as it is.
        """
        # One search over all messages, since most of them have all their values.
        incomplete = set(self._placeholder.places_in(messages))
        usual: Sequence[bytes | None] = [None] * len(messages)
        if self._is_debezium:
            usual = usual_records(messages, self._terms, incomplete)
        texts: list[bytes] = []
        places: list[int] = []
        for place, text in enumerate(usual):
            if text is not None:
                texts.append(text)
                places.append(place)
                continue
            terms = self._terms if place in incomplete else self._complete
            records = self._records(messages[place], terms)
            texts += records
            places += [place] * len(records)
        return texts, places

    def _records(self, message: bytes, terms: EnvelopeTerms) -> Sequence[bytes]:
        """The texts of the records in a message that is read by itself."""
        if isinstance(message, RefusedText):
            return [message]
        try:
            changes = self._read(message, terms)
        except NotReadable as error:
            return [RefusedText.of(message, str(error))]
        except REFUSED:
            return [message]
        if isinstance(changes, Mark):
            self.control_messages[changes.kind] += 1
            self.truncated = max(self.truncated, changes.truncated)
            return changes.records
        return changes

    def drain(self) -> tuple[Counter[str], str]:
        """The number of messages that say nothing of a row, since the last call, and the last truncate."""
        taken = self.control_messages, self.truncated
        self.control_messages, self.truncated = Counter(), ""
        return taken


def rejecting(reject: Callable[[int, Why], Reject], places: Sequence[int]) -> Callable[[int, Why], Reject]:
    """Make a maker of rejects that takes the places of records, and rejects their messages."""
    return lambda number, why: reject(places[number], why)


def _read_unnamed(text: bytes, terms: EnvelopeTerms) -> Changes:
    """Read a message in the envelope that it is surely in.

    Raises NotReadable, and msgspec's errors for what is no object.
    """
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
