"""Documents of MongoDB in Debezium's messages, as the check reads them: plain Python over parsed JSON."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.moments import moment_text


class NoDocument(Exception):
    """A text of which no document can be read; the text says why."""


class DocumentChange(NamedTuple):
    """A change of a document: its letter and the document, or what a patch changes of it."""

    op: str
    row: Any


def changes_in(
    op: str, message: dict[str, Any], id_: Any, *, patch: bool, known: Callable[[Any], bool]
) -> Sequence[DocumentChange]:
    """The changes in a message. ``id_``: of its key, None without; ``patch``: rows keep what a change does
    not have; ``known``: true for a document with the table's key. Raises NoDocument.
    """
    after, before = _document(message.get("after")), _document(message.get("before"))
    if op == "d":
        if before is not None and known(before):
            return [DocumentChange("d", before)]
        if id_ is None:
            raise NoDocument("no key")
        return [DocumentChange("d", {"_id": id_})]
    if after is None:
        if not patch or id_ is None:
            raise NoDocument("no document")
        return [DocumentChange(op, {**_update(message.get("updateDescription")), "_id": id_})]
    clears = [DocumentChange("d", after)] if patch and op != "c" else []
    return [*clears, DocumentChange(op, after)]


def id_of(key: Any) -> Any:
    """The id that a message's key has: a value of Extended JSON as a text, or the text."""
    inside = key.get("id") if isinstance(key, dict) else key
    if not isinstance(inside, str):
        return inside
    try:
        return _value(parse(b'{"v":%b}' % inside.encode())["v"])
    except MalformedText:
        return inside


def _document(text: Any) -> Any:
    if text is None:
        return None
    try:
        document = _value(parse(text.encode())) if isinstance(text, str) else None
    except MalformedText:
        document = None
    if not isinstance(document, dict):
        raise NoDocument("no document as text")
    return document


def _update(description: Any) -> dict[str, Any]:
    if not isinstance(description, dict) or description.get("truncatedArrays"):
        raise NoDocument("no update that a patch can have")
    try:
        updated = parse((description.get("updatedFields") or "{}").encode())
    except (AttributeError, MalformedText):
        raise NoDocument("no update") from None
    removed = description.get("removedFields") or []
    if not isinstance(removed, list) or not all(isinstance(path, str) for path in removed):
        raise NoDocument("no update")
    fields = [(path, _value(value)) for path, value in updated.items()]
    fields += [(path, None) for path in removed if path not in updated]
    paths = sorted(f"{path}." for path, _ in fields)
    if any(path.startswith(around) for around, path in pairwise(paths)):
        raise NoDocument("fields of an update inside each other")
    if not fields or any(
        isinstance(value, dict) or re.search(r"(^|[.])[0-9]+([.]|$)", path) for path, value in fields
    ):
        raise NoDocument("no update that a patch can have")
    row: dict[str, Any] = {}
    for path, value in fields:
        parent, _, last = path.rpartition(".")
        inside = row
        for step in parent.split(".") if parent else ():
            inside = inside.setdefault(step, {})
        inside[last] = value
    return row


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_value, value))
    if not isinstance(value, dict):
        return value
    told = list(_told(value)) if any(name.startswith("$") for name in value) else []
    return told[0] if told else {name: _value(inner) for name, inner in value.items()}


def _told(value: dict[str, Any]) -> Iterator[Any]:
    """The value that an object of Extended JSON stands for; nothing if it is another object."""
    found: Any
    match value:
        case {"$oid": str() as text} | {"$uuid": str() as text} | {"$symbol": str() as text}:
            found = text
        case {"$code": str() as text}:
            found = text
        case {"$numberInt": str() as text} | {"$numberLong": str() as text} if re.fullmatch("-?[0-9]+", text):
            found = int(text)
        case {"$numberDouble": str() as text} | {"$numberDecimal": str() as text}:
            found = _number(text)
        case {"$date": str() as text}:
            found = text
        case {"$date": {"$numberLong": str() as text}} if re.fullmatch("-?[0-9]+", text):
            found = f"{moment_text(int(text), 3)}Z"
        case {"$date": int() | Decimal() as number}:
            found = f"{moment_text(int(number), 3)}Z"
        case {"$binary": {"base64": str() as text, "subType": str() as kind}}:
            found = _binary(text, kind)
        case {"$binary": str() as text, "$type": str() as kind} if len(value) == 2:
            yield _binary(text, kind)
            return
        case {"$undefined": _}:
            found = None
        case {"$timestamp": {"t": seconds, "i": turn}}:
            found = {"t": seconds, "i": turn}
        case {"$regularExpression": expression}:
            found = expression
        case _:
            return
    if len(value) == 1:
        yield found


def _number(text: str) -> Any:
    try:
        return parse(b'{"v":%b}' % text.encode())["v"] if re.match("-?[0-9]", text) else text
    except MalformedText:
        return text


def _binary(text: str, kind: str) -> str:
    raw = base64.b64decode(text)
    return str(uuid.UUID(bytes=raw)) if kind.lstrip("0") == "4" and len(raw) == 16 else text
