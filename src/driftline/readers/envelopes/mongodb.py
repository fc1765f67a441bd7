"""MongoDB documents in Debezium's messages.

A change has its document, or says what an update set and removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import DecodeError, Raw, Struct, json

from driftline.core.values import raw_members
from driftline.readers.envelopes.extended_json import decode, plain
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
        document = plain(decode(json.decode(text, type=str)))
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
            value = plain(decode(value))
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
        updated = decode(update.updated_fields or "{}")
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
