"""A source's values in Python.

JSON's integers are int, its other numbers Decimal, as written; a cell of CSV is a text, and the value that is
written so (2.1 to 2.3 of the evolution rules).
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from driftline.verify.written_dates import WrittenDate


class Single(float):
    """A number of 4 bytes."""


class Untyped(list[Any]):
    """A list of a typed source that has no type for its values: its schema makes no column."""


class Pairs(dict[Any, Any]):
    """A map of a typed source or a table: its keys are values, an entry without a value is one."""


class Cell(str):
    """A cell of CSV: a text, and the typed value that is written so."""

    __slots__ = ()


class Misquoted(Cell):
    """A cell whose quotes do not end where it ends: readers may take it as it is ``written``, quotes
    included.
    """

    written: str

    @classmethod
    def of(cls, text: str, written: str) -> Misquoted:
        cell = cls(text)
        cell.written = written
        return cell


class SignedCell(Cell):
    """A cell of a file whose numbers have ``signs`` of their own: a comma as the decimal one, and that
    between thousands.
    """

    signs: tuple[bool, str]

    @classmethod
    def of(cls, text: str, signs: tuple[bool, str]) -> SignedCell:
        """The cell with this text."""
        cell = cls(text)
        cell.signs = signs
        return cell


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """The settings of a table that determine how its values are read.

    ``unit``: its epoch unit, None where it was not set. ``offsets``: strings with any offset are instants.
    ``units``: epoch units of key paths, dotted, without steps for elements of lists. ``resolved``: fields
    were folded into a type that somebody chose, so that a text may be what it spells, and a number an
    instant. ``comma``: the decimal sign of CSV's numbers is a comma; ``thousands``: the sign between their
    thousands, if there is one. ``empty_names``: the empty key is kept. ``patterns``: those of texts that are
    dates, by key path; ``written``: those of the field. ``mixed_signs``: files differ in the signs of
    numbers.
    """

    unit: str | None = None
    offsets: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    resolved: bool = False
    comma: bool = False
    empty_names: bool = False
    thousands: str = ""
    patterns: Mapping[str, tuple[WrittenDate, ...]] = field(default_factory=dict)
    written: tuple[WrittenDate, ...] = ()
    mixed_signs: bool = False

    @property
    def of_paths(self) -> bool:
        """True if some paths have settings of their own."""
        return bool(self.units or self.patterns)

    def at(self, path: str) -> ValueSettings:
        """The settings for the field at a path, with the unit of the longest path that leads to it."""
        prefixes = [p for p in self.units if path == p or path.startswith(f"{p}.")]
        unit = self.units[max(prefixes, key=len)] if prefixes else self.unit
        written = self.patterns.get(path, ())
        return (
            replace(self, unit=unit, units={}, written=written, patterns={}) if prefixes or written else self
        )

    def is_nothing(self, v: Any) -> bool:
        """True if the value carries none."""
        return is_nothing(v, empty_names=self.empty_names)


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_COMMA = str.maketrans(",.", "._")
_INT_DIGITS = 4300  # Python converts no more


def number(text: str) -> int | Decimal | None:
    """The number that the text is by JSON's grammar, None if it is none, or beyond what Decimal can hold.

    >>> number("-12"), number("1.50"), number("007")
    (-12, Decimal('1.50'), None)
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[1] is None and match[2] is None and len(text) < _INT_DIGITS:
        return int(text)
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def by_pattern(text: str, settings: ValueSettings) -> date | None:
    """The date or moment that a pattern of the field prints as the text; None if there is none."""
    return next((m for pattern in settings.written if (m := pattern.moment(text)) is not None), None)


def written(text: str, settings: ValueSettings) -> int | Decimal | None:
    """The number that a cell of CSV is.

    >>> written("1,50", ValueSettings(comma=True)), written("1.50", ValueSettings(comma=True))
    (Decimal('1.50'), None)
    """
    return number(spelled(text, settings))


def spelled(text: str, settings: ValueSettings) -> str:
    """The text with the number in it as JSON writes it; with `_` for a sign that stands where it must not.

    >>> [spelled(text, ValueSettings(thousands=",")) for text in ("-1,234.50", "12,34", "7.5")]
    ['-1234.50', '12_34', '7.5']
    """
    comma, thousands = settings.comma, settings.thousands
    if isinstance(text, SignedCell):
        comma, thousands = text.signs
    if thousands and thousands in text:
        integer, point, fraction = text.partition("," if comma else ".")
        first, *groups = integer.removeprefix("-").split(thousands)
        digits = [first, *groups, fraction or "0"]
        is_grouped = groups and all(len(group) == 3 for group in groups) and 1 <= len(first) <= 3
        if is_grouped and first[0] != "0" and (fraction or not point) and all(map(_are_digits, digits)):
            text = f"{'-' * integer.startswith('-')}{first}{''.join(groups)}{point}{fraction}"
        else:
            text = text.replace(thousands, "_")
    return text.translate(_COMMA) if comma else text


def _are_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def single(x: float) -> float:
    """The nearest number of 4 bytes."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def base64_text(v: bytes) -> str:
    """The text of bytes in the rest and in quarantine."""
    return base64.b64encode(v).decode()


def reads_back(x: float, written: Decimal) -> bool:
    """True if ``x``, printed at as many digits as were written, 17 at most, is the written number (2.1).

    >>> reads_back(0.1, Decimal("0.10000000000000001")), reads_back(0.1, Decimal("0.1000000000000000001"))
    (True, False)
    """
    digits = min(len(written.as_tuple().digits), 17)
    # Half way between two prints, it may be either: printers differ.
    return math.isfinite(x) and written in (Decimal(f"{x:.{digits - 1}e}"), Decimal(repr(x)))


def declared(cell: Cell, settings: ValueSettings) -> Any:
    """The number that the cell's text is, for a declared column; else the value of `typed`.

    >>> declared(Cell("1.50"), ValueSettings()), declared(Cell("007"), ValueSettings())
    (Decimal('1.50'), '007')
    """
    number_ = written(cell, settings)
    return typed(cell, settings) if number_ is None else number_


def typed(cell: Cell, settings: ValueSettings) -> Any:
    """The value that the cell's text is written as; the text if it is none (2.3).

    >>> [typed(Cell(text), ValueSettings()) for text in ("12", "007", "1.50", "True")]
    [12, '007', Decimal('1.50'), True]
    """
    text = str(cell)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    n = written(cell, settings)
    plain = spelled(cell, settings)
    if isinstance(n, int):
        return n if str(n) == plain else text
    if n is None or not (_PLAIN_FRACTION.fullmatch(plain) or _printed(float(n), plain)):
        return text
    return n


def _printed(x: float, text: str) -> bool:
    """True if the text is ``x`` as Python, or Java, prints it with an exponent."""
    if not math.isfinite(x):
        return False
    sign, digits, _ = (shortest := Decimal(repr(x))).as_tuple()
    first, fraction = str(digits[0]), "".join(map(str, digits[1:])).rstrip("0") or "0"
    return text in (repr(x), f"{'-' * sign}{first}.{fraction}E{shortest.adjusted()}")


def is_nothing(v: Any, *, empty_names: bool = False) -> bool:
    """null, ``[]``, ``{}`` and what holds only those carry no value (2.4); nor does the empty key (2.5).

    ``empty_names``: it does, as in a map, of whose keys it is one.
    """
    if v is None:
        return True
    if isinstance(v, list):
        return all(is_nothing(x, empty_names=empty_names) for x in v)
    if isinstance(v, Pairs):
        return not v
    if isinstance(v, dict):
        return all(is_nothing(x, empty_names=empty_names) for k, x in v.items() if empty_names or k != "")
    return isinstance(v, Cell) and not v
