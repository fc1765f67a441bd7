"""Who changed a table, kept as a property of the version that the change made.

A property cannot hold a history without bounds: it holds the last change, and older ones are read back along the log of
metadata versions. A version whose record is the one before it was made by somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from driftline.core.changes.text import in_words
from driftline.core.changes.values import AddColumn, Change
from driftline.core.types import dotted

PROPERTY = "driftline.change"
BATCH = "driftline.batch"
LIMIT = 4000  # characters
STATEMENT = 1000


@dataclass(frozen=True, slots=True)
class Rule:
    """What a batch's change of one column was made for."""

    path: str
    rule: str
    field: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """``by``: batch, alter, resolve or undo. ``text``: the statements, or what the undo took back. ``left_out`` rules were too many."""

    by: str
    text: str = ""
    batch: str = ""
    rules: tuple[Rule, ...] = ()
    left_out: int = 0


def of_batch(batch: str, changes: Iterable[Change]) -> dict[str, str]:
    """The property that tells of a batch's changes; none where it made none. Samples are not in it: they are data."""
    rules = [
        Rule(
            dotted(c.path),
            c.reason.rule,
            dotted(c.reason.field) if c.reason.field and c.reason.field != c.path else "",
            str(c.reason.place or ""),
        )
        for c in changes
        if not (isinstance(c, AddColumn) and c.within)
    ]
    if not rules:
        return {}
    # What is plain is told last, and left out first.
    rules.sort(key=lambda r: r.rule == "first-sight")
    kept = len(rules)
    while len(text := _batch(batch, rules[:kept], len(rules) - kept)) > LIMIT:
        kept = kept * 3 // 4
    return {PROPERTY: text}


def of_statements(text: str) -> dict[str, str]:
    return {PROPERTY: _dump({"by": "alter", "id": uuid4().hex, "text": _cut(text)})}


def of_resolve(text: str) -> dict[str, str]:
    return {PROPERTY: _dump({"by": "resolve", "id": uuid4().hex, "text": _cut(text)})}


def of_undo(text: str) -> dict[str, str]:
    return {PROPERTY: _dump({"by": "undo", "id": uuid4().hex, "text": _cut(text)})}


def in_short(changes: Iterable[Any]) -> str:
    """Changes that came as values, as a text to record."""
    return "; ".join(map(in_words, changes))


def read(now: Mapping[str, str], before: Mapping[str, str]) -> Record | None:
    """Who made the version with the properties ``now`` out of that with ``before``; None: it does not say.

    >>> read({"driftline.batch": "b2"}, {"driftline.batch": "b1"}).batch
    'b2'
    """
    text = now.get(PROPERTY)
    if text is not None and text != before.get(PROPERTY):
        try:
            return _record(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
    batch = now.get(BATCH)
    return Record("batch", batch=batch) if batch and batch != before.get(BATCH) else None


def _record(data: Mapping[str, Any]) -> Record:
    rules = tuple(Rule(*map(str, rule)) for rule in data.get("rules", ()))
    return Record(
        str(data["by"]),
        str(data.get("text", "")),
        str(data.get("batch", "")),
        rules,
        int(data.get("left_out", 0)),
    )


def _batch(batch: str, rules: list[Rule], left_out: int) -> str:
    told = [[r.path, r.rule, r.field, r.place] for r in rules]
    return _dump({"by": "batch", "batch": batch, "rules": told, "left_out": left_out})


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cut(text: str) -> str:
    return text if len(text) <= STATEMENT else text[: STATEMENT - 1] + "…"
