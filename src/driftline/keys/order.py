"""The order of changes, as one text a row that sorts by its bytes as the changes do.

The text begins with an epoch of six digits; a part for each order field follows, with a blank between parts.

- A number: `1` for zero. A positive one: `2`, three digits of its decimal exponent plus 500, its digits
  without the zeros that end them. A negative one: `0`, the same with each digit taken from 9, and `~`.
- A date or a moment: its microseconds since 1970, as a number. A date is its midnight in UTC.
- A text: its characters. Those up to `!`, which would sort among what stands between parts, become `!` and
  the character 34 further on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.kernels import convert
from driftline.core.planning.policies.by_kind import order_kind
from driftline.core.schema.types import STRING, TIMESTAMP, Primitive
from driftline.keys.identity import FieldColumns

_EPOCH = 6  # digits
_BIAS = 500  # added to exponents, so that none is negative
_FROM_NINE = str.maketrans("0123456789", "9876543210")
_LOW = re.compile(r"[\x00-!]")
_SHIFT = 34


def orders(rows: pa.Table, fields: Sequence[FieldColumns], epoch: int = 0) -> pa.Array:
    """The order of each row; null where a field has no value. ``rows``: columns by their ids."""
    parts = [
        pc.coalesce(*[_texts(values, type_) for type_, values in columns.values(rows)]) for columns in fields
    ]
    return pc.binary_join_element_wise(f"{epoch:0{_EPOCH}d}", *parts, " ")


def _texts(values: pa.Array, type_: Primitive) -> pa.Array:
    match order_kind(type_):
        case "number" if type_.name in ("int", "long"):
            return _integers(values)
        case "number":
            return _each(values, number_text)
        case "moment":
            moments = convert(values, type_, TIMESTAMP) if type_.name == "date" else values
            return _integers(moments.cast(pa.int64()))
        case "text":
            text = values if type_ == STRING else convert(values, type_, STRING)
            low = pc.any(pc.match_substring_regex(text, _LOW.pattern)).as_py()
            return _each(text, plain_text) if low else text
        case _:
            return pa.nulls(len(values), pa.string())


def _integers(values: pa.Array) -> pa.Array:
    """The texts of whole numbers; those above zero, as most are, by whole columns."""
    positive = pc.greater(values, 0)
    digits = pc.if_else(positive, values, pa.scalar(None, values.type)).cast(pa.string())
    exponents = pc.add(pc.utf8_length(digits), _BIAS).cast(pa.string())
    texts = pc.binary_join_element_wise("2", exponents, pc.utf8_rtrim(digits, "0"), "")
    if pc.all(positive, min_count=0).as_py():
        return texts
    others = pc.if_else(positive, pa.scalar(None, values.type), values)
    return pc.coalesce(texts, _each(others, number_text))


def _each(values: pa.Array, text: Callable[..., str | None]) -> pa.Array:
    return pa.array([None if v is None else text(v) for v in values.to_pylist()], pa.string())


def number_text(number: float | Decimal) -> str | None:
    """A number as it sorts; None for NaN.

    >>> [number_text(n) for n in (-12, -0.5, 0, 0.05, 12, Decimal("120"))]
    ['049787~', '04994~', '1', '24995', '250212', '250312']
    """
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    if exact.is_nan():
        return None
    if not exact:
        return "1"
    if exact.is_infinite():
        return "2999" if exact > 0 else "0000~"
    sign, digits, _ = exact.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    text = f"{exact.adjusted() + 1 + _BIAS:03d}{text}"
    return f"0{text.translate(_FROM_NINE)}~" if sign else f"2{text}"


def plain_text(text: str) -> str:
    """Encode a text so that it sorts right beside others of any length.

    >>> plain_text("a b"), plain_text("a") + " " < plain_text("a b") + " "
    ('a!Bb', True)
    """
    return _LOW.sub(lambda match: "!" + chr(ord(match[0]) + _SHIFT), text)
