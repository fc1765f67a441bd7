"""Changes that a table has by key beside those of the sources, one of which may count instead of theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from driftline.verify.conditions import MOMENT, NUMBER, TEXT, identity
from driftline.verify.json_texts import parse_value

Order: TypeAlias = "tuple[tuple[str, Any], ...]"
PlacedOrder: TypeAlias = "tuple[float, Order]"  # behind its epoch
ALWAYS: PlacedOrder = (float("inf"), ())  # of what counts whatever comes behind it
NEVER: PlacedOrder = (-1, ())


@dataclass(frozen=True, slots=True)
class Beside:
    """Changes that a table has by key beside those of its sources.

    Attributes:
        order: the column with the order of each row's latest change; empty where changes have none.
        truncate: the epoch and the position of the last truncate before the sources.
        epochs: rows may have orders of an earlier epoch.
    """

    order: str = ""
    truncate: tuple[int, str] = (0, "")
    epochs: bool = False


# The texts of orders -----------------------------------------------------------------------------------


def order_in(text: str, kinds: Sequence[str | None]) -> PlacedOrder | None:
    """The order that a text of the table's says, by the kinds of its fields; None for any other text.

    >>> order_in("000001 2502725 a!Bb", [NUMBER, TEXT])
    (1, (('number', Decimal('72.5')), ('text', 'a b')))
    >>> order_in("000000 049787~", [NUMBER]), order_in("2026", [TEXT])
    ((0, (('number', Decimal('-12')),)), None)
    """
    epoch, *parts = text.split(" ")
    if not epoch.isdigit() or len(parts) != len(kinds):
        return None
    try:
        fields = [(kind or TEXT, _READ[kind or TEXT](part)) for kind, part in zip(kinds, parts, strict=True)]
    except (ArithmeticError, KeyError, ValueError):
        return None
    return int(epoch), tuple(fields)


_FROM_NINE = str.maketrans("0123456789", "9876543210")
_WIDTH = 3  # digits of an exponent, to which 500 is added
_ENDLESS = {"2999": Decimal("Infinity"), "0000~": Decimal("-Infinity"), "1": Decimal(0)}


def _number(text: str) -> Decimal:
    if text in _ENDLESS:
        return _ENDLESS[text]
    sign = 1 if text[0] == "0" else 0
    digits = text[1:-1].translate(_FROM_NINE) if sign else text[1:]
    exponent, places = int(digits[:_WIDTH]) - 500, digits[_WIDTH:]
    return Decimal((sign, tuple(map(int, places)), exponent - len(places)))


def _text(text: str) -> str:
    return re.sub("!(.)", lambda match: chr(ord(match[1]) - 34), text, flags=re.DOTALL)


_READ: Mapping[str, Callable[[str], Any]] = {NUMBER: _number, MOMENT: _number, TEXT: _text}


# Keys --------------------------------------------------------------------------------------------------


def key_in(text: str) -> list[tuple[str, str] | None]:
    """The parts of a key that is remembered as one text, as `identity` has them.

    >>> key_in('[["number", "7.50"], ["text", "a"], null]')
    [('number', '75e-1'), ('text', 'a'), None]
    """
    parts = parse_value(text)
    return [None if part is None else _part(*part) for part in parts]


def _part(kind: str, text: str) -> tuple[str, str] | None:
    return identity(Decimal(text)) if kind == NUMBER else (str(kind), str(text))
