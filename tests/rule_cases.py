"""The cases of tests/rules, read; what compares them with a table stands in the tests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from driftline.core.schema.naming import is_metadata, marked_key
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Map, Struct, Type, peel

RULES = Path(__file__).parent / "rules"
SECTIONS = ("batch:", "schema:", "rows:", "untyped:", "converted:", "quarantine:", "expect:", "counts:")


@dataclass
class Case:
    title: str
    declared: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    batches: list[list[str]] = field(default_factory=list)
    sections: dict[str, list[str]] = field(default_factory=dict)

    @property
    def keyed(self) -> bool:
        return "key" in self.settings


def cases(*, keyed: bool | None = None) -> list[Any]:
    """All cases, or those of tables with a key, or the others."""
    out = []
    for file in sorted(RULES.glob("*.txt")):
        for case in read(file):
            if keyed in (None, case.keyed):
                out.append(pytest.param(case, id=f"{file.stem}: {case.title}"))
    return out


def read(file: Path) -> list[Case]:
    found: list[Case] = []
    into: list[str] = []
    for line in file.read_text().splitlines():
        if line.startswith("# "):
            found.append(Case(line[2:].strip()))
        elif line.startswith("table: "):
            found[-1].declared = line[7:]
        elif line.startswith("set: "):
            key, value = line[5:].split(" = ", 1)
            found[-1].settings[key.strip()] = value.strip()
        elif line in SECTIONS:
            into = []
            if line == "batch:":
                found[-1].batches.append(into)
            else:
                found[-1].sections[line[:-1]] = into
        elif line.strip():
            into.append(line)
    return found


def columns(struct: Struct, prefix: str = "", *, own: bool = True) -> list[str]:
    """A struct's columns as ``name: type``, nested ones dotted below, with ``<- key`` where evolved; without
    driftline's ``own``, if told so.
    """
    out = []
    for column in struct.fields:
        if not own and is_metadata(column.doc):
            continue
        key = marked_key(column.doc)
        inner = peel(column.type)[1]
        out.append(
            f"{prefix}{column.name}: {_shown(column.type)}" + (f" <- {key}" if key is not None else "")
        )
        steps = f"{prefix}{column.name}."
        while isinstance(inner, Map):
            steps, inner = f"{steps}value.", peel(inner.value)[1]
        if isinstance(inner, Struct):
            out += columns(inner, steps)
    return out


def _shown(type_: Type) -> str:
    dim, inner = peel(type_)
    match inner:
        case Struct():
            name = "record"
        case Map(key, value):
            name = f"map<{type_name(key)}, {_shown(value)}>"
        case _:
            name = type_name(inner)
    return "list<" * dim + name + ">" * dim


def text(value: Any) -> str:
    """One spelling for equal values, so that rows can be sorted."""
    match value:
        case dict():
            return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(map(text, value)) + "]"
        case str() if re.fullmatch(r"[0-9]{4}-[0-9-]{5}T[0-9:.]+Z?", value):
            return repr(re.sub(r"(\.[0-9]*?)0+(Z?)$", r"\1\2", value).replace(".Z", "Z").removesuffix("."))
        case bool() | None | str():
            return repr(value)
        case _:
            # Equal numbers, one spelling; doubles as the nearest double.
            number = Decimal(value).normalize()
            if number == number.to_integral_value():
                return str(int(number))
            return str(float(number)) if len(number.as_tuple().digits) <= 17 else str(number.normalize())
