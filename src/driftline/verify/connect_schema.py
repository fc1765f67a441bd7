"""Values by the schema of Kafka Connect that stands beside them, as the check reads them: over parsed JSON.

Written on its own beside `readers.envelopes.connect_schema`, from the same documents of Kafka Connect's and
Debezium's.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_DIGITS = {"": 0, "Milli": 3, "Micro": 6, "Nano": 9}  # behind the second, by the type's name
_CONNECT = "org.apache.kafka.connect.data."
_TIMES = {"io.debezium.time.Time": 3, f"{_CONNECT}Time": 3} | {
    f"io.debezium.time.{unit}Time": digits for unit, digits in _DIGITS.items() if digits > 3
}
_MOMENTS = {"io.debezium.time.Timestamp": 3, f"{_CONNECT}Timestamp": 3} | {
    f"io.debezium.time.{unit}Timestamp": digits for unit, digits in _DIGITS.items() if digits > 3
}
_DAYS = ("io.debezium.time.Date", f"{_CONNECT}Date")


class Undecoded(ValueError):
    """A value that is not of its schema's type."""


def decoded(value: Any, schema: Any) -> Any:
    """A value as its schema tells it. Raises Undecoded."""
    if value is None or schema is None:
        return value
    if not isinstance(schema, dict):
        raise Undecoded("a schema that is none of Kafka Connect's")
    try:
        return _named(value, schema)
    except Undecoded:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Undecoded(f"no {schema.get('name') or schema.get('type')}") from error


def field_schema(schema: Any, name: str) -> Any:
    """The schema of one field of a struct; None without one."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return next((f for f in fields or () if isinstance(f, dict) and f.get("field") == name), None)


def _named(value: Any, schema: Mapping[str, Any]) -> Any:
    name, parameters = schema.get("name"), schema.get("parameters") or {}
    if name == f"{_CONNECT}Decimal":
        return _number(value, int(parameters.get("scale") or 0))
    if name == "io.debezium.data.VariableScaleDecimal":
        return _number(value["value"], _whole(value["scale"]))
    if name in _DAYS:
        return _day(_whole(value))
    if name in _TIMES:
        return _clock(_whole(value), _TIMES[name])
    if name in _MOMENTS:
        return _moment(_whole(value), _MOMENTS[name])
    if name == "io.debezium.data.Bits":
        return _bits(_bytes(value), int(parameters.get("length") or 0))
    return _container(value, schema)


def _container(value: Any, schema: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "struct":
            members = dict(value)
            for f in schema.get("fields") or ():
                if f["field"] in members:
                    members[f["field"]] = decoded(members[f["field"]], f)
            return members
        case "array":
            return [decoded(item, schema.get("items")) for item in value]
        case "map" if isinstance(value, list):
            return [[key, decoded(item, schema.get("values"))] for key, item in value]
        case "map":
            return {key: decoded(item, schema.get("values")) for key, item in value.items()}
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Undecoded(f"{value!r} is no whole number")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Undecoded(f"{value!r} is no base64")
    return base64.b64decode(value, validate=True)


def _number(value: Any, scale: int) -> int | Decimal:
    digits = Decimal(int.from_bytes(_bytes(value), "big", signed=True))
    number = Decimal((*digits.as_tuple()[:2], -scale))
    return int(number) if scale <= 0 and len(digits.as_tuple().digits) - scale < 300 else number


def _day(days: int) -> str:
    """The date so many days after 1970-01-01, in the Gregorian calendar of any year."""
    # Eras of 400 years that begin on the first of March: leap days come last.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += era * 400 + (month <= 2)
    return f"{year:0{4 if year >= 0 else 5}}-{month:02}-{day:02}"


def _clock(units: int, digits: int) -> str:
    seconds, behind = divmod(abs(units), 10**digits)
    hours, seconds = divmod(seconds, 3600)
    text = f"{'-' * (units < 0)}{hours:02}:{seconds // 60:02}:{seconds % 60:02}"
    fraction = f"{behind:0{digits}}" if behind else ""
    while fraction[-3:] == "000":
        fraction = fraction[:-3]
    return f"{text}.{fraction}" if fraction else text


def _moment(units: int, digits: int) -> str:
    if digits == 6 and units in (9223372036825200000, -9223372036832400000):
        return "infinity" if units > 0 else "-infinity"
    days, of_day = divmod(units, 86_400 * 10**digits)
    return f"{_day(days)}T{_clock(of_day, digits)}"


def _bits(raw: bytes, length: int) -> str:
    text = "".join(f"{byte:08b}" for byte in reversed(raw))
    surplus = len(text) - length
    return text if length < 1 or surplus < 0 else text[: max(0, surplus)].lstrip("0") + text[surplus:]
