"""Steps over a table, drawn from a seed: batches of JSON and of typed records, promotions, other settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any, TypeAlias

from driftline.core.schema.text import parse_type
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    Field,
    List,
    Map,
    Struct,
    Type,
    decimal,
)
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings

FIELDS, WORDS, DATA = "abc", "pqr", ("101098", "101132", "2024-01-02", "x/y")
EMPTIED = "cq"  # a field of each, to which tests give the empty key
NUMBERS = (0, 7, -1, 0.5, 2**53 + 1, 10**20, 1.25)
TEXTS = ("x", "", "2024-01-02", "7", "true")
TYPED: dict[Type, tuple[Any, ...]] = {
    LONG: (0, 7, 2**53 + 1),
    DOUBLE: (0.5, -1.25),
    STRING: TEXTS,
    BOOLEAN: (True, False),
    DATE: (date(2024, 1, 2),),
    decimal(9, 2): (Decimal("1.50"), Decimal("-0.25")),
}
HINTS = {"a": ("map<string, long>", "decimal(9, 2)"), "b": ("list<struct<p: long>>", "string")}


@dataclass
class Json:
    """A batch of lines of JSON."""

    records: list[Any]

    @property
    def lines(self) -> list[bytes]:
        return [json.dumps(record).encode() for record in self.records]


@dataclass
class Typed:
    """A batch of typed records."""

    struct: Struct
    records: list[Any]


@dataclass
class Promote:
    """Promote the rest to columns: a part of it, chosen by this number; all where it is None."""

    part: int | None


@dataclass
class Change:
    """The table gets other settings."""

    settings: TableSettings = field(default_factory=TableSettings)


Step: TypeAlias = "Json | Typed | Promote | Change"


def steps(seed: int) -> list[Step]:
    random = Random(seed)
    out: list[Step] = [Change(settings(random))]
    for _ in range(random.randint(2, 6)):
        kind = random.random()
        if kind < 0.45:
            out.append(Json([record(random) for _ in range(random.randint(1, 3))]))
        elif kind < 0.7:
            out.append(typed(random))
        elif kind < 0.9:
            out.append(Promote(random.choice([None, random.randrange(10)])))
        else:
            out.append(Change(settings(random)))
    return [*out, Promote(None)] if random.random() < 0.7 else out


def with_empty_names(steps: Sequence[Step]) -> list[Step]:
    """The same steps, with an empty key for a field of the records and for one inside, and a table that keeps
    its values.
    """
    return [_with_empty_names(step) for step in steps]


def _with_empty_names(step: Step) -> Step:
    match step:
        case Change(settings):
            return Change(replace(settings, keep_empty_names=True))
        case Json(records):
            return Json(_renamed(records))
        case Typed(struct, records):
            type_ = _renamed_type(struct)
            assert isinstance(type_, Struct)
            return Typed(type_, _renamed(records))
        case _:
            return step


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {"" if key in EMPTIED else key: _renamed(item) for key, item in value.items()}
    return [_renamed(item) for item in value] if isinstance(value, list) else value


def _renamed_type(type_: Type) -> Type:
    match type_:
        case Struct(fields):
            names = ("" if f.name in EMPTIED else f.name for f in fields)
            return Struct(
                tuple(Field(name, _renamed_type(f.type)) for name, f in zip(names, fields, strict=True))
            )
        case List(element):
            return List(_renamed_type(element))
        case Map(key, value):
            return Map(key, _renamed_type(value))
        case _:
            return type_


def settings(random: Random) -> TableSettings:
    key = random.choice([*HINTS, "", ""])
    hints = {(key,): parse_type(random.choice(HINTS[key]))} if key else {}
    return TableSettings(
        dates=random.choice(["on", "off"]),
        max_columns=random.choice([1, 2, 3, 6, 10_000]),
        max_fields=random.choice([None, None, 1, 2]),
        beyond="rest",
        fields=field_settings(
            maps=random.choice(["auto", "auto", "hint"]),
            new_fields=random.choice(["add", "hold"]),
            paths=OfPaths(hints=hints),
        ),
    )


def record(random: Random) -> dict[str, Any]:
    keys = random.sample(FIELDS, random.randint(1, 2))
    return {key: value(random, 3) for key in keys}


def value(random: Random, levels: int) -> Any:
    kind = random.random()
    if not levels or kind < 0.4:
        return random.choice([*NUMBERS, *TEXTS, True, False, None])
    if kind < 0.65:
        return [value(random, levels - 1) for _ in range(random.randint(0, 2))]
    return {key: value(random, levels - 1) for key in keys_of_object(random)}


def keys_of_object(random: Random) -> list[str]:
    kind = random.random()
    keys = WORDS if kind < 0.6 else DATA if kind < 0.85 else (*WORDS, *DATA)
    return random.sample(keys, random.randint(0, 3))


def typed(random: Random) -> Typed:
    keys = random.sample(FIELDS, random.randint(1, 2))
    struct = Struct(tuple(Field(key, type_(random, 3)) for key in keys))
    return Typed(struct, [typed_value(random, struct) or {} for _ in range(random.randint(1, 3))])


def type_(random: Random, levels: int) -> Type:
    kind = random.random()
    if not levels or kind < 0.3:
        return random.choice([*TYPED])
    if kind < 0.5:
        return List(type_(random, levels - 1))
    if kind < 0.75:
        return Map(STRING, type_(random, levels - 1))
    keys = random.sample(WORDS, random.randint(1, 2))
    return Struct(tuple(Field(key, type_(random, levels - 1)) for key in keys))


def typed_value(random: Random, type_: Type) -> Any:
    """A value of the type, maps as dicts; or None."""
    if random.random() < 0.1:
        return None
    match type_:
        case Struct(fields):
            return {f.name: typed_value(random, f.type) for f in fields}
        case List(element):
            return [typed_value(random, element) for _ in range(random.randint(0, 2))]
        case Map(value=item):
            keys = random.sample([*WORDS, *DATA], random.randint(0, 2))
            return {key: typed_value(random, item) for key in keys}
        case _:
            return random.choice(TYPED[type_])
