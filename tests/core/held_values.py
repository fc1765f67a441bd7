"""Which scalars of a record a row holds, read from the table's side: a reader of its own, which knows of driftline
no more than how a schema names its types, marks its siblings and writes paths of the rest."""

from __future__ import annotations

import base64
import json
import re
from calendar import timegm
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

Place: TypeAlias = "tuple[str | int, ...]"  # keys, and places in lists
Held: TypeAlias = "tuple[Any, Any]"  # a column's type, and what the row has in it

MARK, METADATA = "upsolver_evolved_from:", "driftline_metadata:"
STEP = re.compile(r"\[(\d+)\]|\.?(?:`((?:[^`]|``)*)`|([^.\[`\s]+))")
TYPE = " type"


class Number(str):
    """A number of JSON, as it is written."""

    __slots__ = ()


def record_of(text: str | bytes) -> Any:
    """A line of JSON."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def scalars(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """All scalars of a value, each with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from scalars(item, (*at, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from scalars(item, (*at, place))
    elif value is not None:
        yield at, value


def faults(struct: Any, row: Mapping[str, Any], record: Any) -> list[str]:
    """The faults of the row of a record. ``struct``: the table's columns; maps of the row are dicts."""
    reader = Reader()
    rest: Mapping[str, str] = {}
    columns = []
    for f in struct.fields:
        if (f.doc or "").startswith(METADATA):
            rest = row[f.name] or {}
        else:
            columns.append(f)
    reader.fields([(f, row[f.name]) for f in columns], record, ())
    reader.rest(rest, record)
    lost = [f"lost: {at} = {value!r}" for at, value in scalars(record) if at not in reader.held]
    return lost + reader.wrong


@dataclass
class Reader:
    """``held``: the places of scalars that some column holds; ``wrong``: what no record brought."""

    held: set[Place] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def fields(self, columns: Sequence[Held], record: Mapping[str, Any], at: Place) -> None:
        """The fields of a record, by their keys. ``columns``: of structs, each with what it has."""
        by_key: dict[str, list[Held]] = {}
        for f, stored in columns:
            key = f.doc.split("\n")[0].removeprefix(MARK) if (f.doc or "").startswith(MARK) else f.name
            by_key.setdefault(key, []).append((f.type, stored))
        for key, columns_of_key in by_key.items():
            self.value(columns_of_key, record.get(key), (*at, key))

    def value(self, columns: Sequence[Held], value: Any, at: Place) -> None:
        """A value of a field, against all columns of it."""
        leaves: dict[Place, tuple[Any, list[Held]]] = {}
        own = depth(value)
        for type_, stored in columns:
            dim, inner = peeled(type_)
            if own is None or own > dim:
                self.nothing(stored, at, value)
                continue
            for place, leaf, held in self.leaves(value, stored, dim, at):
                leaves.setdefault(place, (leaf, []))[1].append((inner, held))
        for place, (leaf, held) in leaves.items():
            self.leaf(held, leaf, place)

    def leaves(self, value: Any, stored: Any, dim: int, at: Place) -> Iterator[tuple[Place, Any, Any]]:
        """The value's leaves, beside what stands at their places in a column of ``dim`` lists."""
        own = depth(value)
        if own is None or stored is None:
            self.nothing(stored, at, value)
            return
        for _ in range(dim - own):
            if not isinstance(stored, list) or len(stored) != 1:
                self.nothing(stored, at, value)
                return
            stored = stored[0]
        if not own:
            yield at, value, stored
        elif not isinstance(stored, list) or len(list(dropped_nulls(stored))) > len(value):
            self.nothing(stored, at, value)
        else:
            for place, item in enumerate(value):
                below = stored[place] if place < len(stored) else None
                yield from self.leaves(item, below, own - 1, (*at, place))

    def leaf(self, held: Sequence[Held], leaf: Any, at: Place) -> None:
        """A leaf, against all columns of its field."""
        structs = [(t, x) for t, x in held if hasattr(t, "fields") and x is not None]
        maps = [(t, x) for t, x in held if hasattr(t, "value") and x is not None]
        plain = [(t, x) for t, x in held if not (hasattr(t, "fields") or hasattr(t, "value"))]
        if isinstance(leaf, dict):
            self.fields([(f, x[f.name]) for t, x in structs for f in t.fields], leaf, at)
            for key in {**leaf, **{key: None for _, x in maps for key in x}}:
                self.value([(t.value, x.get(key)) for t, x in maps], leaf.get(key), (*at, key))
            structs = maps = []
        for type_, stored in plain:
            if stored is not None and not isinstance(leaf, dict) and same(leaf, stored, type_.name):
                self.held.add(at)
            elif not is_routed(leaf, type_.name):
                self.nothing(stored, at, leaf)
        for _, stored in (*structs, *maps):
            self.nothing(stored, at, leaf)

    def nothing(self, stored: Any, at: Place, value: Any) -> None:
        """A column that must not hold anything, at this place."""
        strange = [scalar for _, scalar in scalars(stored)]
        if strange:
            self.wrong.append(f"strange: {at} = {value!r} has {strange!r}")

    def rest(self, rest: Mapping[str, str], record: Any) -> None:
        """The faults of the rest: each of its values must be the record's, and wait once."""
        brought, waiting = dict(scalars(record)), set()
        for path, text in rest.items():
            if path.endswith(TYPE):
                continue
            for at, scalar in scalars(record_of(text), steps(path)):
                if at not in brought or not same_text(brought[at], scalar):
                    self.wrong.append(f"strange: {path} waits as {text}, at {at}")
                elif at in waiting:
                    self.wrong.append(f"twice: {at} waits in {path} and elsewhere")
                waiting.add(at)
        self.held |= waiting


def peeled(type_: Any) -> tuple[int, Any]:
    """The number of lists around a type, and the type inside of them."""
    dim = 0
    while hasattr(type_, "element"):
        dim, type_ = dim + 1, type_.element
    return dim, type_


def depth(value: Any) -> int | None:
    """The number of lists around the deepest element with a scalar; None without any."""
    if isinstance(value, list):
        depths = [below for item in value if (below := depth(item)) is not None]
        return max(depths) + 1 if depths else None
    return 0 if any(True for _ in scalars(value)) else None


def dropped_nulls(stored: list[Any]) -> list[Any]:
    """The list without the nulls at its end."""
    end = len(stored)
    while end and stored[end - 1] is None:
        end -= 1
    return stored[:end]


def steps(path: str) -> Place:
    out: list[str | int] = []
    for found in STEP.finditer(path):
        place, quoted, plain = found.groups()
        out.append(int(place) if place else plain if plain is not None else quoted.replace("``", "`"))
    return tuple(out)


def same(value: Any, stored: Any, type_: str) -> bool:
    """True if a column of the type holds the scalar, exactly."""
    if type_ == "string":
        typed = is_number(value) and not isinstance(value, Number)
        return Decimal(stored) == digits(value) if typed else bool(stored == written(value))
    if isinstance(value, bool):
        return bool(stored == value)
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        return moment(value) is not None and midnight(stored) == midnight(moment(value))
    if is_number(value):
        return is_number(stored) and digits(value) == digits(stored)
    if is_number(stored) and moment(value) is not None:
        return timegm(moment(value).timetuple()) * 1000 == stored
    return type(stored) is type(value) and bool(stored == value)


def is_routed(value: Any, type_: str) -> bool:
    """True if a column of moments may have one for the number: that is lawful, and no proof of it."""
    return is_number(value) and type_ in ("date", "timestamp", "timestamp_ntz")


def same_text(value: Any, waiting: Any) -> bool:
    """True if the scalar waits as this one of JSON."""
    if isinstance(value, bool) or isinstance(waiting, bool):
        return value is waiting
    if is_number(value):
        return isinstance(waiting, Number) and digits(value) == digits(waiting)
    return type(waiting) is str and waiting == written(value)


def written(value: Any) -> str:
    """A scalar as text."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal, Number)) and not isinstance(value, bool)


def digits(value: Any) -> Decimal:
    return Decimal(repr(value) if isinstance(value, float) else value)


def moment(value: Any) -> date | None:
    """The day or instant that a value is, or is the text of."""
    if isinstance(value, date):
        return value
    try:
        text = str(value) if isinstance(value, str) and not isinstance(value, Number) else ""
        return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    except ValueError:
        return None


def midnight(moment: Any) -> tuple[Any, ...]:
    """A moment's parts, those of a day at its begin; zones are UTC's."""
    clock = (
        (moment.hour, moment.minute, moment.second, moment.microsecond)
        if isinstance(moment, datetime)
        else (0,) * 4
    )
    return (moment.year, moment.month, moment.day, *clock)
