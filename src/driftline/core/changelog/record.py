"""The author of a change, as a property of the version that it made, or among the table's last changes.

A version with the same record as the one before was made by somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from driftline.core.changes.text import in_words
from driftline.core.changes.values import AddColumn, Change
from driftline.core.schema.types import dotted

PROPERTY = "driftline.change"
BATCH = "driftline.batch"
EXPIRED = "driftline.expired"  # how many batches there were whose snapshots were let go
LEDGER = "driftline.files"  # where the source files are listed that the table has taken
MOVED = "driftline.moved-rows"  # of the batch's snapshot: how many rows it only wrote anew
OTHERS = "driftline.moved-from-others"  # of the same: some were in files that others wrote
LIMIT = 4000  # characters
STATEMENT = 1000


@dataclass(frozen=True, slots=True)
class Rule:
    """The cause of a batch's change to one column."""

    path: str
    rule: str
    field: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A recorded author. ``by``: batch, alter, resolve, promote or undo.

    ``text``: the statements, or what the undo took back. ``left_out``: the number of rules that did not fit.
    ``counts``: of a batch of changes by key, its records by what became of them.
    """

    by: str
    text: str = ""
    batch: str = ""
    rules: tuple[Rule, ...] = ()
    left_out: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


def of_batch(
    batch: str, changes: Iterable[Change], counts: Mapping[str, int] | None = None
) -> dict[str, str]:
    """The property that records a batch's changes; none if it made none.

    Samples are data, so they are left out. ``counts``: of changes by key.
    """
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
    # Plain rules come last, and are left out first.
    rules.sort(key=lambda r: r.rule == "first-sight")
    count = len(rules)
    while len(text := _batch(batch, rules[:count], len(rules) - count, counts or {})) > LIMIT:
        count = count * 3 // 4
    return {PROPERTY: text}


def of_statements(text: str) -> dict[str, str]:
    """The property that records statements of `alter`."""
    return {PROPERTY: dump({"by": "alter", "id": uuid4().hex, "text": cut(text)})}


def of_resolve(text: str) -> dict[str, str]:
    """The property that records a `resolve`, by its arguments."""
    return {PROPERTY: dump({"by": "resolve", "id": uuid4().hex, "text": cut(text)})}


def of_promote(text: str) -> dict[str, str]:
    """The property that records a `promote`, by its paths."""
    return {PROPERTY: dump({"by": "promote", "id": uuid4().hex, "text": cut(text)})}


def of_undo(text: str) -> dict[str, str]:
    """The property that records an `undo`, by what it took back."""
    return {PROPERTY: dump({"by": "undo", "id": uuid4().hex, "text": cut(text)})}


def in_short(changes: Iterable[Any]) -> str:
    """Changes that came as values, as a text to record."""
    return "; ".join(map(in_words, changes))


def read(now: Mapping[str, str], before: Mapping[str, str]) -> ChangeRecord | None:
    """The author of the version with the properties ``now``, made from the one with ``before``.

    None: not recorded.

    >>> read({"driftline.batch": "b2"}, {"driftline.batch": "b1"}).batch
    'b2'
    """
    text = now.get(PROPERTY)
    if text is not None and text != before.get(PROPERTY):
        try:
            return of_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
    batch = now.get(BATCH)
    return ChangeRecord("batch", batch=batch) if batch and batch != before.get(BATCH) else None


def of_json(data: Mapping[str, Any]) -> ChangeRecord:
    """The record that a property holds. Raises ValueError, KeyError, TypeError where it is none."""
    rules = tuple(Rule(*map(str, rule)) for rule in data.get("rules", ()))
    return ChangeRecord(
        str(data["by"]),
        str(data.get("text", "")),
        str(data.get("batch", "")),
        rules,
        int(data.get("left_out", 0)),
        {str(outcome): int(count) for outcome, count in data.get("counts", {}).items()},
    )


def _batch(batch: str, rules: list[Rule], left_out: int, counts: Mapping[str, int]) -> str:
    listed = [[r.path, r.rule, r.field, r.place] for r in rules]
    by_key = {"counts": counts} if counts else {}
    return dump({"by": "batch", "batch": batch, "rules": listed, "left_out": left_out, **by_key})


def dump(value: Mapping[str, Any]) -> str:
    """Serialise a value for a property."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cut(text: str, most: int = STATEMENT) -> str:
    """Shorten the text to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
