"""The rest of rows that patches make: of each source the JSON texts that no later change has replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Raw, json

from driftline.core.planning.rest import TYPE_KEY, is_type_key, steps
from driftline.core.values.members import raw_members
from driftline.keys.merge import Node, PatchedField
from driftline.keys.patched import Merges


def merged_rest(rest: pa.Array, roots: Sequence[PatchedField], merges: Merges) -> pa.Array:
    """The rest of each row."""
    if rest.null_count == len(rest):
        return pa.nulls(len(merges), rest.type)
    texts, rows = rest.to_pylist(), []
    ends = [*merges.begins[1:].tolist(), len(merges.places)]
    for begin, end, number in zip(merges.begins.tolist(), ends, merges.merge.tolist(), strict=True):
        places = enumerate(merges.places[begin:end].tolist())
        has = {source: dict(texts[at] or ()) for source, at in places if at >= 0}
        rows.append(_merged(has, roots[number]) or None)
    return pa.array(rows, rest.type)


def _merged(texts: Mapping[int, Mapping[str, str]], root: PatchedField) -> list[tuple[str, str]]:
    """The texts of one row by path. ``texts``: those of each source."""
    row: dict[str, str] = {}
    for source, text_of in texts.items():
        for path, text in text_of.items():
            if is_type_key(path):
                continue
            remaining = _left(_at(root, path), text, source)
            if remaining is None:
                continue
            row[path] = _both(row[path], remaining) if path in row else remaining
            if path + TYPE_KEY in text_of:
                row[path + TYPE_KEY] = text_of[path + TYPE_KEY]
    return list(row.items())


def _at(root: PatchedField, path: str) -> Node | None:
    """A field as changes have made it, the one around it where it is in a list; None if it is gone."""
    node: Node | None = root
    for step in steps(path):
        if not isinstance(node, PatchedField) or isinstance(step, int):
            return node
        node = node.member(step)
    return node


def _left(node: Node | None, text: str | Raw, source: int) -> str | None:
    """The part of a source's text that no other has replaced; None for nothing."""
    if not isinstance(node, PatchedField):
        return _plain(text) if node == source else None
    if source not in node.objects or memoryview(_bytes(text))[0] != ord("{"):
        return None
    remaining: dict[str, Any] = {}
    members: dict[str, Raw] = raw_members(_bytes(text))
    for key, value in members.items():
        part = _left(node.member(key), value, source)
        if part is not None:
            remaining[key] = Raw(part.encode())
    return json.encode(remaining).decode() if remaining or not members else None


def _both(first: str, second: str) -> str:
    """The members of two objects."""
    members: dict[str, Raw] = raw_members(first)
    for key, value in raw_members(second).items():
        has = members.get(key)
        is_object = has is not None and _plain(has)[0] == _plain(value)[0] == "{"
        members[key] = Raw(_both(_plain(has), _plain(value)).encode()) if is_object else value
    return json.encode(members).decode()


def _bytes(text: str | Raw) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def _plain(text: str | Raw | None) -> str:
    return text if isinstance(text, str) else bytes(text or b"").decode()
