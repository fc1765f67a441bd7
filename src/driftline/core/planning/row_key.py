"""Rows by key, as a person sets it: fields of the key, fields of the order, what deletes (section 11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from driftline.core.planning.contract import parse_path, parse_paths, spelled_path
from driftline.core.planning.policies.by_kind import KEY, ORDER
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import BOOLEAN, STRING, Field, Path
from driftline.errors import DataError, UsageError

KEY_PROPERTY = "driftline.key"
ORDER_PROPERTY = "driftline.order-by"
DELETES_PROPERTY = "driftline.deletes"
HARD, SOFT = "hard", "soft"  # what a delete does: removes the row, or marks it

ORDER_KIND = "order"
ORDER_COLUMN = Field(
    "_order",
    STRING,
    doc=f"{METADATA}{ORDER_KIND}\nthe order of the row's latest change, as a text that sorts",
)

DELETED_KIND = "deleted"
# Iceberg has a column `_deleted` itself.
DELETED_COLUMN = Field(
    "_is_deleted",
    BOOLEAN,
    doc=f"{METADATA}{DELETED_KIND}\ntrue for a row whose latest change deletes it",
)

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


@dataclass(frozen=True, slots=True)
class RowKey:
    """The fields by which a table knows its rows; the latest change by ``order_by`` counts, else the last to
    arrive. A record for which ``delete_when`` is true deletes its row; with ``soft`` its row stays, and has a
    mark.
    """

    key: tuple[Path, ...]
    order_by: tuple[Path, ...] = ()
    delete_when: Condition | None = None
    soft: bool = False

    @classmethod
    def of(cls, key: str, order_by: str, delete_when: str, deletes: str = HARD) -> RowKey | None:
        """Read the settings; None without a key. Raises ValueError."""
        if not key:
            given = {"order_by": order_by, "delete_when": delete_when, "deletes": deletes == SOFT}
            if needless := [name for name, value in given.items() if value]:
                raise ValueError(f"{needless[0]} needs a key")
            return None
        keys, orders = parse_paths(key), parse_paths(order_by) if order_by else ()
        for path in (*keys, *orders):
            if (*keys, *orders).count(path) > 1:
                raise ValueError(f"{spelled_path(path)} is named twice")
            if set(path) & {"element", "value"}:
                raise ValueError(f"{spelled_path(path)}: no key or order is inside a list or a map")
        return cls(keys, orders, parse_condition(delete_when) if delete_when else None, deletes == SOFT)

    @property
    def columns(self) -> list[Field]:
        """The columns of the table's own that its rows have."""
        return [*([ORDER_COLUMN] if self.order_by else []), *([DELETED_COLUMN] if self.soft else [])]

    @property
    def delete_paths(self) -> set[Path]:
        """The fields that `delete_when` asks for."""
        return set() if self.delete_when is None else set(_paths(self.delete_when))

    @property
    def roles(self) -> dict[Path, str]:
        """The role of each field."""
        return dict.fromkeys(self.key, KEY) | dict.fromkeys(self.order_by, ORDER)


def _paths(condition: Condition) -> Iterator[Path]:
    match condition:
        case Negation(part):
            yield from _paths(part)
        case Junction(parts):
            for part in parts:
                yield from _paths(part)
        case _:
            yield condition.path


def check_kept(table: str, now: Mapping[str, str], requested: Mapping[str, str]) -> None:
    """Raise UsageError where an existing table would get another key or order.

    ``now``: its properties; ``requested``: those of a batch.
    """
    for name, flag, default in (
        (KEY_PROPERTY, "key", ""),
        (ORDER_PROPERTY, "order_by", ""),
        (DELETES_PROPERTY, "deletes", HARD),
    ):
        kept = now.get(name) or default
        if name in requested and (requested[name] or default) != kept:
            has = f"{flag} = {kept!r}" if kept else f"no {flag}"
            raise UsageError(
                f"{table} has {has}: {flag} is set when a table is made",
                "make another table with it, from the same source",
            )


def refuse_key(table: str, properties: Mapping[str, str], reason: str, instead: str | None = None) -> None:
    """Raise DataError with the ``reason`` if the table has a key; ``instead``: what to do."""
    if properties.get(KEY_PROPERTY):
        raise DataError(f"{table} has a key ({properties[KEY_PROPERTY]}): {reason}", instead)


_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w`]))|(?P<symbol><>|!=|[=(),])"
    r"|(?P<path>(?:`(?:[^`]|``)+`|\w+)(?:\.(?:`(?:[^`]|``)+`|\w+))*))"
)
_END = ("end", "")


def parse_condition(text: str) -> Condition:
    """Read a condition: ``PATH = value``, ``!=``, ``IN (…)``, ``IS NULL``, with AND, OR, NOT and brackets.

    Values are texts in single quotes, numbers, true and false. Raises ValueError.

    >>> parse_condition("op = 'd' or value is null").any_of
    True
    """
    parser = _ConditionParser(list(_tokens(text)), text)
    condition = parser.alternatives()
    parser.expect(_END[1])
    return condition


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[position:].strip()!r} is not understood in {text!r}")
        yield match.lastgroup, match[match.lastgroup]
        position = match.end()


@dataclass(slots=True)
class _ConditionParser:
    tokens: Sequence[tuple[str, str]]
    text: str
    at: int = field(default=0)

    def alternatives(self) -> Condition:
        """Read parts with OR between them."""
        parts = [self.conjunction()]
        while self._word("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else Junction(tuple(parts), any_of=True)

    def conjunction(self) -> Condition:
        """Read parts with AND between them."""
        parts = [self.single()]
        while self._word("and"):
            parts.append(self.single())
        return parts[0] if len(parts) == 1 else Junction(tuple(parts), any_of=False)

    def single(self) -> Condition:
        """Read one test, or a condition in brackets."""
        if self._word("not"):
            return Negation(self.single())
        if self._word("("):
            condition = self.alternatives()
            self.expect(")")
            return condition
        return self._test()

    def _test(self) -> Condition:
        kind, token = self._next()
        if kind != "path":
            raise ValueError(f"a field should stand where {token or 'the end'!r} stands in {self.text!r}")
        path = parse_path(token)
        if self._word("is"):
            negated = self._word("not")
            self.expect("null")
            return Negation(IsNull(path)) if negated else IsNull(path)
        negated = self._word("not")
        if negated or self._peek() == "in":
            self.expect("in")
            self.expect("(")
            values = [self._value()]
            while self._word(","):
                values.append(self._value())
            self.expect(")")
        else:
            _, symbol = self._next()
            if symbol not in ("=", "!=", "<>"):
                raise ValueError(f"=, !=, IN or IS should stand behind {token} in {self.text!r}")
            negated, values = symbol != "=", [self._value()]
        one_of = OneOf(path, tuple(values))
        return Negation(one_of) if negated else one_of

    def _value(self) -> Literal:
        kind, token = self._next()
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "number":
            return Decimal(token)
        if token.lower() in ("true", "false"):
            return token.lower() == "true"
        raise ValueError(f"a value should stand where {token or 'the end'!r} stands in {self.text!r}")

    def expect(self, word: str) -> None:
        """Pass over this word. Raises ValueError for another."""
        if not self._word(word):
            raise ValueError(
                f"{word.upper() or 'the end'} should stand where {self._peek() or 'the end'!r} stands in {self.text!r}"
            )

    def _peek(self) -> str:
        kind, token = self.tokens[self.at] if self.at < len(self.tokens) else _END
        return token if kind == "text" else token.lower()

    def _next(self) -> tuple[str, str]:
        token = self.tokens[self.at] if self.at < len(self.tokens) else _END
        self.at += 1
        return token

    def _word(self, word: str) -> bool:
        if self._peek() != word:
            return False
        self.at += 1
        return True
