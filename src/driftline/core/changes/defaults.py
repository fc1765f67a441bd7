"""Column defaults: a literal, as Iceberg's JSON writes a value of the column's type.

The value is exact, or the literal is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from struct import pack, unpack
from uuid import UUID

from driftline.core.changes.values import Literal
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Default, Expression, Field, Primitive, Schema, Type
from driftline.errors import DataError

_BITS = {"int": 31, "long": 63}
_EXACT = {"float": 2**24, "double": 2**53}  # beyond, not every whole number is there


def default_json(type_: Type, value: Literal) -> Default:
    """The value in the form of the column's type; None is no default.

    >>> from driftline.core.schema.types import DATE, decimal
    >>> default_json(decimal(9, 2), Decimal("1.5")), default_json(DATE, "2026-01-02")
    ('1.50', '2026-01-02')

    Raises DataError where the column cannot hold it exactly.
    """
    if value is None or isinstance(value, Expression):
        return value
    if not isinstance(type_, Primitive):
        raise DataError(
            f"{type_name(type_)} can only have NULL as its default", "set defaults on its fields instead"
        )
    try:
        default = _of(type_, value)
    except (ValueError, ArithmeticError):
        default = None
    if default is None:
        raise DataError(f"{shown(value)} is no {type_name(type_)}, or not exactly")
    return default


def literal_of(type_: Type, default: Default) -> Literal:
    """The literal for which `default_json` returns this default."""
    if isinstance(default, str) and isinstance(type_, Primitive):
        if type_.name == "decimal":
            return Decimal(default)
        if type_.name in ("binary", "fixed"):
            return bytes.fromhex(default)
    return default


def defaults_of(schemas: Iterable[Schema]) -> dict[int, frozenset[Literal]]:
    """Collect the defaults of each column that has any, by its id, over several schemas.

    A float's default is the number that its four bytes hold.

    >>> from driftline.core.schema.types import INT, Field, Struct
    >>> old, new = (Schema(Struct((Field("a", INT, 1, write_default=n),))) for n in (5, 7))
    >>> sorted(defaults_of([old, new])[1])
    [5, 7]
    """
    out: dict[int, frozenset[Literal]] = {}
    for schema in schemas:
        for _, f in schema.walk():
            for default in (f.initial_default, f.write_default):
                if default is not None:
                    literal = literal_of(f.type, default)
                    if isinstance(f.type, Primitive) and f.type.name == "float":
                        # A float of a file has four bytes, and is compared with the default.
                        literal = unpack("<f", pack("<f", literal))[0]
                    out[f.id] = out.get(f.id, frozenset()) | {literal}
    return out


def no_value(column: Field) -> str:
    """The message that a column's default has no value here."""
    return f"{column.name} has the default {column.write_default}, which gives no value here"


def shown(value: Literal) -> str:
    """A literal as SQL has it."""
    match value:
        case None | bool():
            return "NULL" if value is None else str(value).upper()
        case int() | float() | Decimal():
            return str(value)
        case bytes():
            return f"X'{value.hex()}'"
        case Expression():
            return value.sql
        case datetime() | date() | time():
            return f"'{value.isoformat()}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


def _of(type_: Primitive, value: Literal) -> Default:
    convert = _CONVERSIONS.get(type_.name)
    return None if convert is None else convert(type_, value)


def _text(value: Literal) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(value)


def _whole(value: Literal, bits: int) -> int | None:
    # Python counts True as the number 1.
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    integer: int = int(value)
    return integer if integer == value and -(2**bits) <= integer < 2**bits else None


def _floating(value: Literal, exact: int) -> float | None:
    """The nearest double of a number; a whole number has to be exact, so it is at most ``exact``."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, int) and abs(value) > exact:
        return None
    return float(value) if math.isfinite(float(value)) else None


def _decimal(value: Literal, precision: int, scale: int) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    # By its shortest text, as a person wrote it; the double itself has up to 50 digits more.
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    with localcontext(Context(prec=precision, traps=[Inexact, InvalidOperation])):
        return f"{exact.quantize(Decimal(1).scaleb(-scale)):f}"


def _bytes(value: Literal, type_: Primitive) -> str | None:
    if not isinstance(value, bytes) or (type_.args and len(value) != type_.args[0]):
        return None
    return value.hex().upper()


def _date(value: Literal) -> str | None:
    if isinstance(value, datetime):
        return None
    return (value if isinstance(value, date) else date.fromisoformat(_text(value))).isoformat()


def _timestamp(value: Literal, *, instant: bool) -> str | None:
    """A timestamp's text.

    An instant is in UTC, which a missing zone also means; a type without a zone accepts none.
    """
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
    if instant:
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    elif moment.tzinfo:
        return None
    return moment.isoformat()


def _uuid(value: Literal) -> str:
    return str(value if isinstance(value, UUID) else UUID(str(value)))


def _time(value: Literal) -> str | None:
    moment = value if isinstance(value, time) else time.fromisoformat(_text(value))
    return None if moment.tzinfo else moment.isoformat()


# A literal as the default of a column, in Iceberg's JSON, by the name of the column's type; None or
# ValueError if it is none, or not exact.
_CONVERSIONS: Mapping[str, Callable[[Primitive, Literal], Default]] = {
    "boolean": lambda _, value: value if isinstance(value, bool) else None,
    "int": lambda type_, value: _whole(value, _BITS[type_.name]),
    "long": lambda type_, value: _whole(value, _BITS[type_.name]),
    "float": lambda type_, value: _floating(value, _EXACT[type_.name]),
    "double": lambda type_, value: _floating(value, _EXACT[type_.name]),
    "decimal": lambda type_, value: _decimal(value, *type_.args),
    "string": lambda _, value: value if isinstance(value, str) else None,
    "uuid": lambda _, value: _uuid(value),
    "binary": lambda type_, value: _bytes(value, type_),
    "fixed": lambda type_, value: _bytes(value, type_),
    "date": lambda _, value: _date(value),
    "time": lambda _, value: _time(value),
    "timestamp": lambda _, value: _timestamp(value, instant=True),
    "timestamp_ntz": lambda _, value: _timestamp(value, instant=False),
}
