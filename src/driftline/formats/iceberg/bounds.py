"""The bounds that data files' metrics have of columns, as values.

Bounds are bytes. They are compared by keys that sort as the values do, and only the lowest and the highest
become values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from driftline.core.columns.statistics import Numbers, shown
from driftline.core.schema.types import Primitive

CUT = 16  # characters, at which Iceberg cuts the bounds of texts
_KINDS = {
    "int": "whole", "long": "whole", "date": "whole", "time": "whole", "timestamp": "whole", "timestamp_ntz": "whole",
    "float": "fraction", "double": "fraction", "decimal": "decimal", "boolean": "bytes", "string": "bytes", "uuid": "bytes",
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kind(type_: Primitive) -> str | None:
    """The rule for comparing the bounds of a column; None if they are not compared."""
    return _KINDS.get(type_.name)


def sorting(kind: str | None, raw: bytes) -> Any:
    """A sort key for raw bounds; those of kinds ``whole`` and ``fraction`` must have one width.

    >>> from struct import pack
    >>> sorted((-1.5, 2.0, -0.0, 0.5, -3.0), key=lambda x: sorting("fraction", pack("<d", x)))
    [-3.0, -1.5, -0.0, 0.5, 2.0]
    """
    match kind:
        case "whole":
            return int.from_bytes(raw, "little", signed=True)
        case "decimal":
            return int.from_bytes(raw, "big", signed=True)
        case "fraction":
            bits = int.from_bytes(raw, "little", signed=True)
            return bits if bits >= 0 else -(bits + (1 << (8 * len(raw) - 1))) - 1
    return raw


def numbers(raw_lows: Iterable[bytes], raw_highs: Iterable[bytes], type_: Primitive) -> Numbers:
    """The bounds of a column, from the lowest and the highest of each width."""
    if kind(type_) is None:
        return Numbers()
    lows = [value for low in raw_lows if (value := _value(low, type_)) is not None]
    highs = [value for high in raw_highs if (value := _value(high, type_)) is not None]
    if not lows or not highs:
        return Numbers()
    low, high = shown(min(lows), type_), shown(max(highs), type_)
    low_cut = high_cut = False
    if type_.name == "string":
        low_cut, high_cut = len(str(low)) >= CUT, len(str(high)) >= CUT
        # The last character of an upper bound that was cut is one higher than it was.
        high = str(high)[:-1] if high_cut else high
    return Numbers(low=low, high=high, low_cut=low_cut, high_cut=high_cut)


def _value(raw: bytes, type_: Primitive) -> Any:
    """A bound's value; None where Python has none.

    >>> from driftline.core.schema.types import DATE, DOUBLE, LONG
    >>> _value(b"\\xfe\\xff\\xff\\xff", LONG), _value(b"\\x00\\x00\\xc0\\x3f", DOUBLE)
    (-2, 1.5)
    >>> _value(b"\\x01\\x00\\x00\\x00", DATE)
    '1970-01-02'
    """
    match type_.name:
        case "boolean":
            return raw != b"\0"
        case "float" | "double":
            return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
        case "decimal":
            return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}e-{type_.args[1]}")
        case "string":
            return raw.decode(errors="replace")
        case "uuid":
            return str(UUID(bytes=bytes(raw)))
    number = int.from_bytes(raw, "little", signed=True)
    try:
        match type_.name:
            case "date":
                return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
            case "timestamp" | "timestamp_ntz" | "time":
                moment = (_EPOCH + timedelta(microseconds=number)).replace(tzinfo=None)
                text = (moment.time() if type_.name == "time" else moment).isoformat()
                return text.rstrip("0") if "." in text else text
    except OverflowError:  # beyond the year 9999
        return None
    return number
