"""Conditions over records: their syntax tree, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal as Choice
from typing import TypeAlias, get_args

from driftline.core.schema.types import Path

Literal: TypeAlias = str | Decimal | bool
Bound: TypeAlias = str | Decimal | datetime
Operator: TypeAlias = Choice["<", "<=", ">", ">="]
Action: TypeAlias = Choice["warn", "quarantine", "fail"]
ACTIONS: tuple[str, ...] = get_args(Action)


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
class Inequality:
    """``PATH < value`` and the like: numbers by value, texts by code points, dates and timestamps by time.

    A datetime is compared with dates, timestamps, and texts that spell one. Where none has a zone, it is UTC.
    Values of another kind are unknown.
    """

    path: Path
    operator: Operator
    value: Bound


@dataclass(frozen=True, slots=True)
class Like:
    """``PATH LIKE pattern``: ``%`` stands for any text, ``_`` for one character.

    Behind a backslash, each of the three stands for itself. Values other than texts are unknown.
    """

    path: Path
    pattern: str


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


Condition: TypeAlias = IsNull | OneOf | Inequality | Like | KeyAlone | Negation | Junction


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that records are expected to meet.

    Attributes:
        action: the treatment of a record for which the condition is false. It is counted (``warn``), waits in
            quarantine (``quarantine``), or fails the batch (``fail``).
    """

    name: str
    condition: Condition
    action: Action

    @property
    def reason(self) -> str:
        """The reason for which the quarantine keeps a record."""
        return f"{EXPECT}{self.name}"


# True for each record, as all of no conditions hold
NOTHING_ASKED = Junction((), any_of=False)
# Begins the reason for which a record waits that does not meet an expectation
EXPECT = "expect "
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


def leaves_of(condition: Condition) -> Iterator[IsNull | OneOf | Inequality | Like | KeyAlone]:
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
