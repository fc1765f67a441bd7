"""Compares a row's rest with the record: read from its text, without knowing how it got there."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from driftline.core.planning.own_columns import is_type_key, steps, type_key
from driftline.core.schema.schema_json import type_of
from driftline.core.schema.types import STRING, Map, Primitive, Struct, Type, peel
from driftline.verify.holds import holds
from driftline.verify.moments import Moment
from driftline.verify.source_values import (
    Cell,
    Single,
    ValueSettings,
    base64_text,
    number,
    single,
    written,
)

Steps = tuple["str | int", ...]
_DECODE = json.JSONDecoder(parse_int=number, parse_float=number).decode


class RowRest:
    """A row's rest. ``used``: the values of it that the record was found to have."""

    def __init__(self, stored: Mapping[str, str] | None, settings: ValueSettings) -> None:
        self._settings = settings
        self._typed: dict[Steps, bool] = {}
        self.values: dict[Steps, Any] = {}
        self.used: set[Steps] = set()
        for path, text in (stored or {}).items():
            if not is_type_key(path):
                spelled = (stored or {}).get(type_key(path))
                location = steps(path)
                self._typed[location] = spelled is not None
                value = _DECODE(text)
                self.values[location] = value if spelled is None else _typed(value, type_of(spelled))

    def records(self) -> Iterator[dict[str, Any]]:
        """Each value in a record of its own, without the lists around it."""
        for location, value in self.values.items():
            nested = value
            for key in reversed([step for step in location if isinstance(step, str)]):
                nested = {key: nested}
            yield nested

    def holds(self, v: Any, location: Steps) -> bool:
        """True if the rest holds the value, whole or in parts."""
        if location in self.values:
            if not self._same(self.values[location], v, self._typed[location]):
                return False
            self.used.add(location)
            return True
        if self._holds_around(v, location):
            return True
        if isinstance(v, list):
            parts: list[tuple[str | int, Any]] = list(enumerate(v))
        elif isinstance(v, dict):
            parts = [(str(key), x) for key, x in v.items()]
        else:
            return False
        # Each part is asked for: what one uses is used, though another one is lost.
        results = [self.holds(x, (*location, step)) for step, x in parts if not self._settings.is_nothing(x)]
        return all(results)

    def _holds_around(self, v: Any, location: Steps) -> bool:
        """True if the rest holds the value as part of one that waits whole."""
        ends = (end for end in range(1, len(location)) if location[:end] in self.values)
        return any(
            self._same(_at(self.values[location[:end]], location[end:]), v, self._typed[location[:end]])
            for end in ends
        )

    def agrees(self, location: Steps, record: Any) -> bool:
        """True if the record has the same value at the path as the rest."""
        return self._same(self.values[location], _at(record, location), self._typed[location])

    def _same(self, stored: Any, v: Any, typed: bool) -> bool:
        is_nothing, empty_names = self._settings.is_nothing, self._settings.empty_names
        if stored is None or is_nothing(v):
            return (stored is None and v is None) or (is_nothing(v) and is_nothing(stored))
        if isinstance(v, dict):
            keys = {str(key): x for key, x in v.items()}
            return isinstance(stored, dict) and all(
                self._same(stored.get(key), keys.get(key), typed)
                for key in {*keys, *stored}
                if empty_names or key != ""
            )
        if isinstance(v, list):
            same = isinstance(stored, list) and len(stored) == len(v)
            return same and all(self._same(x, y, typed) for x, y in zip(stored, v, strict=True))
        if isinstance(v, Cell):
            return v == stored if isinstance(stored, str) else bool(written(v, self._settings) == stored)
        if isinstance(v, bytes) and isinstance(stored, str):
            return base64_text(v) == stored
        if isinstance(stored, str):
            return (typed or _is_text(v)) and holds(STRING, stored, v, self._settings)
        if isinstance(stored, bool) or isinstance(v, bool):
            return stored is v
        return bool(stored == v) or (stored != stored and v != v)


def _at(value: Any, steps_: Steps) -> Any:
    """The value at a path; None if there is none."""
    for step in steps_:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, dict):
            value = next((x for key, x in value.items() if str(key) == step), None)
        else:
            value = None
    return value


def _is_text(v: Any) -> bool:
    """True if the value is a text in the rest: moments of typed sources are, and numbers that JSON cannot
    express.
    """
    return isinstance(v, str | Moment) or (isinstance(v, float) and not math.isfinite(v))


def _typed(value: Any, type_: Type) -> Any:
    """A value of the rest as one of its type; dates and the like stay text."""
    dim, base = peel(type_)
    if value is None:
        return None
    if dim:
        return [_typed(item, type_.element) for item in value]  # type: ignore[union-attr]
    match base:
        case Struct(fields):
            types = {f.name: f.type for f in fields}
            return {key: _typed(item, types[key]) for key, item in value.items()}
        case Map():
            return {key: _typed(item, base.value) for key, item in value.items()}
        case Primitive("float"):
            return Single(single(float(value)))
        case Primitive("double"):
            return float(value)
        case Primitive("binary" | "fixed"):
            return base64.b64decode(value)
    return value
