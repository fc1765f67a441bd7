"""The last changes of a table's definition, kept as one of its properties.

`history` and `undo` use them where the log of metadata versions no longer reaches. Each change names the
schema, partition spec and sort order before and after it by their ids, which a table keeps. Changes that
nobody recorded show as ids that do not meet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from driftline.core.changelog import record
from driftline.core.changelog.record import ChangeRecord
from driftline.core.changelog.restoring import HINTS, RESOLVED
from driftline.core.schema.definition import DISTRIBUTION, ROW_KEY, known_by

PROPERTY = "driftline.changes"
LIMIT = 32_000  # characters in all
SHORT = 1_000  # of a change that is not the last one
CHANGES = 100


class Ids(NamedTuple):
    """The ids of a table's definition."""

    schema: int
    spec: int
    order: int


@dataclass(frozen=True, slots=True)
class Step:
    """A step from one definition of a table to the next.

    ``before`` None: the table was created; ``snapshot``: the one after it; ``sequence``: the first sequence
    number of files that follow it.
    """

    before: Ids | None
    after: Ids
    snapshot: int | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A recorded change. ``at``: milliseconds, by the author's clock.

    ``was``: the former values of properties that belong to columns, the sort order or the key; None: none.
    """

    at: int
    step: Step
    record: ChangeRecord
    was: Mapping[str, str | None] = field(default_factory=dict)

    def properties_before(self, after: Mapping[str, str]) -> dict[str, str]:
        """The table's properties before the change, from those after it."""
        unchanged = {key: value for key, value in after.items() if key not in self.was}
        return unchanged | {key: value for key, value in self.was.items() if value is not None}


def noted(
    recorded: Mapping[str, str], step: Step, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """The property that a commit sets in place of the record in ``recorded``; none if it changes neither a
    definition nor a key.

    ``before``, ``after``: the table's properties.
    """
    if record.PROPERTY not in recorded or (step.before == step.after and known_by(before) == known_by(after)):
        return {}
    was = {key: before.get(key) for key in {*before, *after} if _belongs(key)}
    entry = {
        "at": time.time_ns() // 1_000_000,
        "from": step.before,
        "to": step.after,
        "snapshot": step.snapshot,
        "sequence": step.sequence,
        "was": {key: value for key, value in sorted(was.items()) if value != after.get(key)},
        **json.loads(recorded[record.PROPERTY]),
    }
    older = [_shortened(change) for change in (_load(before) if read(before) else [])]
    return {PROPERTY: _joined([record.dump(change) for change in (*older, entry)][-CHANGES:])}


def read(properties: Mapping[str, str]) -> tuple[Change, ...]:
    """The changes that a table remembers, oldest first."""
    try:
        return tuple(map(_change, _load(properties)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def is_among(now: Mapping[str, str], drafted: Mapping[str, str]) -> bool:
    """True if the last change that the properties ``drafted`` tell of is among those that ``now`` tell of,
    whatever came behind it.
    """
    return any(_key(change) == _key(last) for last in _load(drafted)[-1:] for change in _load(now))


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """The entries of a change that identify it, and never change while it is remembered."""
    return tuple(entry.get(key) for key in ("at", "by", "id", "batch"))


def who(now: Mapping[str, str], before: Mapping[str, str]) -> ChangeRecord | None:
    """The author of the version with the properties ``now``, made from the one with ``before``.

    None: not recorded.
    """
    if now.get(PROPERTY) != before.get(PROPERTY) and (changes := read(now)):
        return changes[-1].record
    return record.read(now, before)


def written_with(changes: Sequence[Change], schema: int) -> list[tuple[int, int | None]]:
    """For each schema, oldest first, the sequence number from which files were written with it; None where
    others may have changed the schema.

    ``schema``: the current one.
    """
    then = [None if change.step.before is None else change.step.before.schema for change in changes]
    return [
        (change.step.sequence, after if (after := change.step.after.schema) == next_ else None)
        for change, next_ in zip(changes, [*then, schema][1:], strict=False)
    ]


def _belongs(key: str) -> bool:
    return key == DISTRIBUTION or key in ROW_KEY or key.startswith((HINTS, RESOLVED))


def _joined(texts: list[str]) -> str:
    """The newest texts as one list, as far as there is room."""
    room, first = LIMIT - 1, len(texts)
    while first and (room := room - len(texts[first - 1]) - 1) >= 0:
        first -= 1
    return f"[{','.join(texts[first:])}]"


def _load(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        entries = json.loads(properties.get(PROPERTY, "[]"))
    except ValueError:
        return []
    return entries if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) else []


def _change(entry: Mapping[str, Any]) -> Change:
    before, snapshot = entry["from"], entry["snapshot"]
    step = Step(
        None if before is None else _ids(before),
        _ids(entry["to"]),
        None if snapshot is None else int(snapshot),
        int(entry["sequence"]),
    )
    return Change(int(entry["at"]), step, record.of_json(entry), dict(entry.get("was", {})))


def _ids(values: Iterable[Any]) -> Ids:
    return Ids(*map(int, values))


def _shortened(entry: dict[str, Any]) -> dict[str, Any]:
    """Shorten an entry to about `SHORT` characters of its text, or to as many of its rules as fit."""
    if "text" in entry:
        return {**entry, "text": record.cut(entry["text"], SHORT // 2)}
    rules, left_out = entry.get("rules", []), entry.get("left_out", 0)
    count = len(rules)
    while count and len(record.dump(entry)) > SHORT:
        count = count * 3 // 4
        entry = {**entry, "rules": rules[:count], "left_out": left_out + len(rules) - count}
    return entry
