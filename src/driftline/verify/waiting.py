"""Compares a row's rest with the record: read from its text, without knowing how it got there."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from driftline.core.planning.rest import is_type_key, steps, type_key
from driftline.core.schema.schema_json import type_of
from driftline.core.schema.types import STRING, Map, Primitive, Struct, Type, peel
from driftline.verify.holds import holds
from driftline.verify.source_values import (
    Cell,
    Single,
    ValueSettings,
    base64_text,
    is_nothing,
    number,
    single,
    written,
)

Steps = tuple["str | int", ...]
_DECODE = json.JSONDecoder(parse_int=number, parse_float=number).decode


class RowRest:
    """A row's rest. ``used``: the values of it that the record was found to have."""

    def __init__(self, stored: Mapping[str, str] | None, how: ValueSettings) -> None:
        self._how = how
        self._typed: dict[Steps, bool] = {}
        self.values: dict[Steps, Any] = {}
        self.used: set[Steps] = set()
        for path, text in (stored or {}).items():
            if not is_type_key(path):
                spelled = (stored or {}).get(type_key(path))
                at = steps(path)
                self._typed[at] = spelled is not None
                value = _DECODE(text)
                self.values[at] = value if spelled is None else _typed(value, type_of(spelled))

    def records(self) -> Iterator[dict[str, Any]]:
        """Each value in a record of its own, without the lists around it."""
        for at, value in self.values.items():
            nested = value
            for key in reversed([step for step in at if isinstance(step, str)]):
                nested = {key: nested}
            yield nested

    def holds(self, v: Any, at: Steps) -> bool:
        """True if the rest holds the value, whole or in parts."""
        if at in self.values:
            if not self._same(self.values[at], v, self._typed[at]):
                return False
            self.used.add(at)
            return True
        if self._holds_around(v, at):
            return True
        if isinstance(v, list):
            parts: list[tuple[str | int, Any]] = list(enumerate(v))
        elif isinstance(v, dict):
            parts = [(str(key), x) for key, x in v.items()]
        else:
            return False
        # Each part is asked for: what one uses is used, though another one is lost.
        held = [self.holds(x, (*at, step)) for step, x in parts if not is_nothing(x)]
        return all(held)

    def _holds_around(self, v: Any, at: Steps) -> bool:
        """True if the rest holds the value as part of one that waits whole."""
        ends = (end for end in range(1, len(at)) if at[:end] in self.values)
        return any(self._same(_at(self.values[at[:end]], at[end:]), v, self._typed[at[:end]]) for end in ends)

    def agrees(self, at: Steps, record: Any) -> bool:
        """True if the record has the same value at the path as the rest."""
        return self._same(self.values[at], _at(record, at), self._typed[at])

    def _same(self, stored: Any, v: Any, typed: bool) -> bool:
        if stored is None or is_nothing(v):
            return (stored is None and v is None) or (is_nothing(v) and is_nothing(stored))
        if isinstance(v, dict):
            keys = {str(key): x for key, x in v.items()}
            return isinstance(stored, dict) and all(
                self._same(stored.get(key), keys.get(key), typed) for key in {*keys, *stored} if key != ""
            )
        if isinstance(v, list):
            same = isinstance(stored, list) and len(stored) == len(v)
            return same and all(self._same(x, y, typed) for x, y in zip(stored, v, strict=True))
        if isinstance(v, Cell):
            return v == stored if isinstance(stored, str) else bool(written(v, self._how) == stored)
        if isinstance(v, bytes) and isinstance(stored, str):
            return base64_text(v) == stored
        if isinstance(stored, str):
            return (typed or _is_text(v)) and holds(STRING, stored, v, self._how)
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
    return isinstance(v, (str, date)) or (isinstance(v, float) and not math.isfinite(v))


def _typed(value: Any, type_: Type) -> Any:
    """A value of the rest as one of its type; dates and the like stay text."""
    dim, inner = peel(type_)
    if value is None:
        return None
    if dim:
        return [_typed(item, type_.element) for item in value]  # type: ignore[union-attr]
    match inner:
        case Struct(fields):
            types = {f.name: f.type for f in fields}
            return {key: _typed(item, types[key]) for key, item in value.items()}
        case Map():
            return {key: _typed(item, inner.value) for key, item in value.items()}
        case Primitive("float"):
            return Single(single(float(value)))
        case Primitive("double"):
            return float(value)
        case Primitive("binary" | "fixed"):
            return base64.b64decode(value)
    return value
