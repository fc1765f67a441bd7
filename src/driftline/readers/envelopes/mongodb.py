"""MongoDB documents in Debezium's messages: Extended JSON in either dialect and version.

A change has its document, or says what an update set and removed.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from msgspec import DecodeError, Raw, Struct, json

from driftline.core.values import raw_members
from driftline.readers.envelopes.connect_schema import moment_text
from driftline.readers.envelopes.messages import (
    DELETE,
    Changes,
    EnvelopeTerms,
    NotReadable,
    is_null,
    of_key,
    record,
    values_at,
)

_ID = ("_id",)
_WHOLE_UPDATES = "set the connector's capture.mode = change_streams_update_full"
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_UUIDS = ("04", "4")
_decode = json.Decoder(float_hook=lambda text: Raw(text.encode())).decode  # numbers keep all their digits


def _whole(text: str) -> int:
    return int(text)


def _number(text: str) -> Raw | str:
    """The number of a text, digit by digit; the text of what JSON has no number for."""
    return Raw(text.encode()) if _NUMBER.fullmatch(text) else text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _date(value: Any) -> str:
    """A moment: its text, or milliseconds since 1970."""
    if isinstance(value, str):
        return value
    milliseconds = value if isinstance(value, int) else int(value["$numberLong"])
    return f"{moment_text(milliseconds, 3)}Z"


def _binary(value: Any) -> str:
    return _bytes(value["base64"], value["subType"])


def _bytes(base64: str, kind: str) -> str:
    """Bytes in base64; a UUID as its text."""
    raw = b64decode(base64, validate=True)
    return str(UUID(bytes=raw)) if kind in _UUIDS and len(raw) == 16 else base64


# Types that JSON does not have, by all names of the object that stands for a value.
RULES: Mapping[frozenset[str], Callable[[dict[str, Any]], Any]] = {
    frozenset(names.split()): rule
    for names, rule in {
        "$oid": lambda v: _text(v["$oid"]),
        "$uuid": lambda v: _text(v["$uuid"]),
        "$symbol": lambda v: _text(v["$symbol"]),
        "$code": lambda v: _text(v["$code"]),
        "$numberInt": lambda v: _whole(_text(v["$numberInt"])),
        "$numberLong": lambda v: _whole(_text(v["$numberLong"])),
        "$numberDouble": lambda v: _number(_text(v["$numberDouble"])),
        "$numberDecimal": lambda v: _number(_text(v["$numberDecimal"])),
        "$date": lambda v: _date(v["$date"]),
        "$binary": lambda v: _binary(v["$binary"]),
        "$binary $type": lambda v: _bytes(v["$binary"], v["$type"]),
        "$undefined": lambda _: None,
        "$timestamp": lambda v: {"t": v["$timestamp"]["t"], "i": v["$timestamp"]["i"]},
        "$regularExpression": lambda v: v["$regularExpression"],
    }.items()
}


def plain(value: Any) -> Any:
    """A value of Extended JSON as the value that it stands for; an object of other names stays one.

    >>> plain({"n": {"$numberLong": "7"}, "at": {"$date": {"$numberLong": "1772366400000"}}})
    {'n': 7, 'at': '2026-03-01T12:00:00Z'}
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    # No object of Extended JSON has more names, and most documents have.
    rule = RULES.get(frozenset(value)) if len(value) <= 2 else None
    if rule is not None:
        try:
            return rule(value)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            pass
    return {name: plain(item) for name, item in value.items()}


def read(
    message: Mapping[str, Raw], operation: str, key: Raw | None, place: str | None, terms: EnvelopeTerms
) -> Changes:
    """Read a change.

    Args:
        message: `before`, `after` and `updateDescription`.

    Raises NotReadable.
    """
    after, before = (_document(name, message[name]) for name in ("after", "before"))
    if operation == DELETE:
        gone = (
            before if before is not None and None not in values_at(before, terms.key) else _of_key(key, terms)
        )
        return [record(gone, DELETE, place)]
    # The whole document counts where it comes along: `updateDescription` may be of another dialect, and a
    # patch can neither replace an object nor change an element of a list.
    if after is None:
        return [record(_patch(message["updateDescription"], key, terms), operation, place)]
    written = record(after, operation, place)
    # A patch keeps what a document does not have; behind a delete there is nothing to keep.
    return [record(after, DELETE, place), written] if terms.patches and operation != "c" else [written]


def _document(name: str, text: Raw) -> bytes | None:
    """The text of a document as plain JSON; None without one. Raises NotReadable."""
    if is_null(text):
        return None
    try:
        document = plain(_decode(json.decode(text, type=str)))
    except (DecodeError, RecursionError, TypeError):
        document = None
    if not isinstance(document, dict):
        raise NotReadable(f"no document of MongoDB as text in `{name}`")
    return json.encode(document)


def _of_key(key: Raw | None, terms: EnvelopeTerms) -> bytes:
    """The record with the `_id` that a message's key has. Raises NotReadable."""
    is_text = key is not None and memoryview(key)[0] == ord('"')
    inside = None if is_text else of_key(key, [("id",)])
    id_ = key if is_text else None if inside is None else raw_members(inside).get("id")
    if terms.key != (_ID,) or is_null(id_):
        raise NotReadable("a delete without its key: neither `before` nor the message's key has it")
    assert id_ is not None
    value = json.decode(id_)
    if isinstance(value, str):
        with suppress(DecodeError, RecursionError):  # else it is the text itself
            value = plain(_decode(value))
    return json.encode({"_id": value})


class _Update(Struct, rename="camel"):
    """Debezium's `updateDescription`."""

    updated_fields: str | None = None
    removed_fields: list[str] | None = None
    truncated_arrays: list[Any] | None = None


def _patch(description: Raw, key: Raw | None, terms: EnvelopeTerms) -> bytes:
    """The record of what an update set and removed, by `updateDescription`. Raises NotReadable."""
    if not terms.patches:
        raise NotReadable(
            f"an update without its document in `after`: {_WHOLE_UPDATES}, or make the table with merge = patch"
        )
    try:
        update = json.decode(description, type=_Update | None) or _Update()
        updated = _decode(update.updated_fields or "{}")
        values = {path: plain(value) for path, value in updated.items()}
        values |= dict.fromkeys(update.removed_fields or ())
    except (AttributeError, DecodeError, RecursionError, ValueError):
        raise NotReadable("no update of MongoDB's in `updateDescription`") from None
    arrays = bool(update.truncated_arrays)
    if not values and not arrays:
        raise NotReadable(
            "op 'u' without a document in `after`, and without an update in `updateDescription`"
        )
    if arrays or any(step.isdecimal() for path in values for step in path.split(".")):
        raise NotReadable(f"an update of elements of a list, which a patch does not have: {_WHOLE_UPDATES}")
    if any(isinstance(value, dict) for value in values.values()):
        raise NotReadable(f"an update that replaces an object, which a patch would merge: {_WHOLE_UPDATES}")
    return json.encode(_nested(values) | json.decode(_of_key(key, terms)))


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by dotted path as one object. Raises NotReadable."""
    row: dict[str, Any] = {}
    for path, value in values.items():
        *steps, last = path.split(".")
        inside = row
        for step in steps:
            inside = inside.setdefault(step, {})
            if not isinstance(inside, dict):
                raise NotReadable(f"an update of `{path}` and of a field around it")
        if last in inside:
            raise NotReadable(f"an update of `{path}` and of a field inside it")
        inside[last] = value
    return row
