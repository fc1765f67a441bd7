"""Patches at random, and what a row of a table has to hold of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driftline.core.planning.own_columns import is_type_key, steps
from driftline.keys.settle import KeyCounts

Event = dict[str, Any]


def patched(target: Any, patch: Any) -> Any:
    """RFC 7396, but for null, which stays as such."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        made[key] = patched(made.get(key), value)
    return made


class PatchOracle:
    """The rows that patches make by ``id``, in the order of ``seq`` or as they come, and their counts."""

    def __init__(self, *, ordered: bool) -> None:
        self.ordered = ordered
        self.history: dict[Any, list[Event]] = {}

    def _order(self, number: int, event: Event) -> tuple[float, int]:
        return (event["seq"] if self.ordered else 0, number)

    def _sorted(self, key: Any) -> list[Event]:
        numbered = sorted(enumerate(self.history.get(key, [])), key=lambda x: self._order(*x))
        return [event for _, event in numbered]

    def row(self, key: Any) -> Event | None:
        """The row of a key; None without one."""
        made: Event | None = None
        for event in self._sorted(key):
            made = None if event.get("op") == "d" else patched(made, event)
        return made

    @property
    def rows(self) -> dict[Any, Event]:
        """All rows."""
        return {key: row for key in self.history if (row := self.row(key)) is not None}

    def take(self, batch: Sequence[Event]) -> KeyCounts:
        """Apply a batch."""
        counts = dict.fromkeys(("inserted", "updated", "deleted", "superseded", "late", "ignored"), 0)
        by_key: dict[Any, list[Event]] = {}
        for event in batch:
            by_key.setdefault(event["id"], []).append(event)
        for key, events in by_key.items():
            had, before = self.row(key), self._sorted(key)
            deletes = [event["seq"] for event in before if event.get("op") == "d"]
            floor = max(deletes, default=-1) if self.ordered else -1
            latest = max(enumerate(events), key=lambda x: self._order(*x))[1]
            self.history.setdefault(key, []).extend(events)
            counts["superseded"] += len(events) - 1
            if self.ordered and latest["seq"] < floor:
                counts["late"] += 1
            elif latest.get("op") == "d" and self.row(key) is None:
                counts["ignored" if had is None else "deleted"] += 1
            else:
                counts["inserted" if had is None else "updated"] += 1
        return KeyCounts(**counts)


FIELDS: Mapping[str, Sequence[Any]] = {
    "v": [1, 2.5, "text", True, [1, 2], None, {"a": 1}, {"a": None, "b": "x"}, {"c": {"d": 1}}, {}],
    "w": [1, 2, None, []],
    "n": [{"x": 1}, {"x": "t", "y": None}, {"y": {"z": 1}}, {"y": {"u": [1]}}, None, 7],
    "m": [
        {"2026-01-01": 1, "2026-01-02": 2},
        {"2026-01-02": None},
        {"2026-01-03": "three", "2026-01-01": 4},
        None,
    ],
    "l": [{"x": 1}, [{"x": 1}, {"y": 2}], {"y": "t"}, [{"x": "u"}], None, {"x": None, "z": {"a": 1}}],
    # A struct first, and a map once there are more keys.
    "q": [{"Q1": 1}, {"Q2": 2, "Q3": None}, {"Q4": 4, "Q5": 5}, {"Q6": 6, "Q1": "x", "Q7": 7}, {"Q2": None}],
    "o": [{"2026-01-01": {"a": 1}}, {"2026-01-01": {"b": 2}, "2026-01-02": {"a": None}}, {"2026-01-01": {"a": "x"}}],
}  # fmt: skip


def patches(chance: random.Random, count: int, keys: int = 12) -> list[Event]:
    """Changes of some rows, of which some come late, twice, or delete."""
    made: list[Event] = [{"id": keys, "seq": 0, "l": {"x": 0}}]  # its objects have a column of their own
    for number in range(count):
        late = chance.random() < 0.4
        event: Event = {
            "id": chance.randrange(keys),
            "seq": chance.randrange(number + 1) if late else number,
        }
        if chance.random() < 0.12:
            event["op"] = "d"
        else:
            for name in chance.sample(list(FIELDS), chance.randrange(3)):
                event[name] = chance.choice(FIELDS[name])
        made += [event] * (2 if chance.random() < 0.05 else 1)
    return made


def differences(row: Event, record: Event) -> list[str]:
    """The fields of which a row does not hold what the record has."""
    columns = {name: [value] for name, value in row.items() if not name.startswith("_")}
    candidates = _by_key(columns)
    for path, text in dict(row.get("_rest") or ()).items():
        if not is_type_key(path):
            _add(candidates, steps(path), json.loads(text))
    keys = dict.fromkeys((*candidates, *record))
    return [
        f"{key}: {record.get(key)!r} against {candidates.get(key)!r}"
        for key in keys
        if not _holds(record.get(key), candidates.get(key, []))
    ]


def _by_key(columns: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, values in columns.items():
        found.setdefault(name.partition("_")[0], []).extend(values)
    return found


def _add(candidates: dict[str, list[Any]], path: Sequence[str | int], value: Any) -> None:
    """Add a value of the rest, also into the elements of lists of objects."""
    key, *below = path
    if below and isinstance(below[0], int):
        for elements in candidates.get(str(key), []):
            if isinstance(elements, list) and len(elements) > below[0]:
                for step in reversed(below[2:]):
                    value = {step: value}
                elements[below[0]] = {**(elements[below[0]] or {}), f"{below[1]}_rest{len(path)}": value}
        return
    for step in reversed(below):
        value = {step: value}
    candidates.setdefault(str(key), []).append(value)


def _holds(value: Any, candidates: Sequence[Any]) -> bool:
    held = [c for c in candidates if c is not None]
    if value is None:
        return not held
    if not isinstance(value, dict):
        if value == []:
            return all(c == [] for c in held)
        return bool(held) and all(_converted(c, value) for c in held)
    # An object stands in a column of lists, too, but for those that are older than the column.
    held = [c[0] if _wraps(c) else c for c in held]
    objects = [c for c in map(_object, held) if c is not None]
    if len(objects) < len(held):
        return False
    below = _by_key({f"{key}_{n}": [inner] for n, c in enumerate(objects) for key, inner in c.items()})
    return all(_holds(value.get(key), below.get(key, [])) for key in dict.fromkeys((*value, *below)))


def _wraps(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)


def _object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    is_map = isinstance(value, list) and all(isinstance(entry, tuple) for entry in value)
    return dict(value) if is_map else None


def _converted(held: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return _holds(value, [held])
    if isinstance(held, list) and not isinstance(value, list):
        return len(held) == 1 and _converted(held[0], value)
    if isinstance(held, list):
        return len(held) == len(value) and all(map(_converted, held, value))
    if isinstance(held, str):
        return held == (value if isinstance(value, str) else json.dumps(value))
    return bool(held == value)
