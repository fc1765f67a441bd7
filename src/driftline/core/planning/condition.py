"""Conditions over records: their parts, and how a person writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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

NOTHING_ASKED = Junction((), any_of=False)  # true for each record, as all of no conditions hold


def of_message(condition: Condition, *, null: bool) -> Condition:
    """The condition for messages of a topic, whose value is ``null`` or a record.

    `value is null` asks for the message's value there, and not for a field.

    >>> of_message(IsNull(("value",)), null=True) == NOTHING_ASKED
    True
    """
    match condition:
        case IsNull(("value",)):
            return replace(NOTHING_ASKED, any_of=not null)
        case Negation(part):
            return Negation(of_message(part, null=null))
        case Junction(parts, any_of):
            return Junction(tuple(of_message(part, null=null) for part in parts), any_of)
        case _:
            return condition


def asks_for_null(condition: Condition) -> bool:
    """True if the condition asks whether a message's value is null."""
    return of_message(condition, null=True) != of_message(condition, null=False)


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
