"""Conditions over records: their syntax tree, and its text."""

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
    """An AND of conditions, or an OR with ``any_of``."""

    parts: tuple[Condition, ...]
    any_of: bool


@dataclass(frozen=True, slots=True)
class KeyAlone:
    """``value IS NULL`` of records that have their message's key: no other field has a value."""


Condition: TypeAlias = IsNull | OneOf | KeyAlone | Negation | Junction

NOTHING_ASKED = Junction((), any_of=False)  # true for each record, as all of no conditions hold
MESSAGE_KEY = "_key"  # the field of a record that has its message's key


def of_message(condition: Condition, *, null: bool) -> Condition:
    """Specialise a condition for messages of a topic, whose value is ``null`` or a record.

    `value is null` asks for the message's value there, and not for a field.

    >>> of_message(IsNull(("value",)), null=True) == NOTHING_ASKED
    True
    """
    return _answered(condition, replace(NOTHING_ASKED, any_of=not null))


def of_record(condition: Condition) -> Condition:
    """Specialise a condition for records from elsewhere that have their message's key as a field."""
    return _answered(condition, KeyAlone())


def _answered(condition: Condition, of_null: Condition) -> Condition:
    match condition:
        case IsNull(("value",)) | KeyAlone():
            return of_null
        case Negation(part):
            return Negation(_answered(part, of_null))
        case Junction(parts, any_of):
            return Junction(tuple(_answered(part, of_null) for part in parts), any_of)
        case _:
            return condition


def asks_for_null(condition: Condition) -> bool:
    """True if the condition asks whether a message's value is null."""
    return of_record(condition) != condition


def leaves_of(condition: Condition) -> Iterator[IsNull | OneOf | KeyAlone]:
    """Yield the conditions without NOT, AND and OR."""
    match condition:
        case Negation(part):
            yield from leaves_of(part)
        case Junction(parts):
            for part in parts:
                yield from leaves_of(part)
        case _:
            yield condition


def paths_of(condition: Condition) -> Iterator[Path]:
    """Yield the fields that a condition reads."""
    return (leaf.path for leaf in leaves_of(condition) if not isinstance(leaf, KeyAlone))
