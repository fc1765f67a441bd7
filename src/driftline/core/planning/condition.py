"""Conditions over records: their parts, and how a person writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from driftline.core.schema.types import Path

Literal: TypeAlias = str | Decimal | bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """``PATH IS NULL``."""

    path: Path


@dataclass(frozen=True, slots=True)
class OneOf:
    """``PATH IN (…)``; with one value, ``PATH = …``."""

    path: Path
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """``NOT …``."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions of which all hold, or ``any_of`` them."""

    parts: tuple[Condition, ...]
    any_of: bool


Condition: TypeAlias = IsNull | OneOf | Negation | Junction


def paths_of(condition: Condition) -> Iterator[Path]:
    """The fields that a condition asks for."""
    match condition:
        case Negation(part):
            yield from paths_of(part)
        case Junction(parts):
            for part in parts:
                yield from paths_of(part)
        case _:
            yield condition.path
