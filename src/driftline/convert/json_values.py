"""Values of JSON, which has one kind of number and one of text, as values of a column's type: exact, or None.

A number is judged by its text, as in observing (rule 2.1, and "JSON has one kind of number" in section 3).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import pyarrow as pa

from driftline.convert.kernels import convert
from driftline.convert.types import arrow_type
from driftline.core.planning.conversions import NARROW
from driftline.core.planning.shape import NUMBER_TEXT, Base
from driftline.core.schema.types import BINARY, DOUBLE, LONG, STRING, UUID, Primitive
from driftline.core.values import decimal_of, is_single

TEXT = ("string", "date", "timestamp", "timestamp_ntz", "time", "uuid")


def takes_number(bases: Iterable[Base], natural: Primitive) -> bool:
    """True if a column that takes the types ``bases`` is offered a number whose type by rule 2.1 is
    ``natural``.

    A column of a declared number type takes every number that is exact in it.
    """
    if any(isinstance(b, Primitive) and b.name in NARROW for b in bases):
        return True
    return (STRING if natural == NUMBER_TEXT else natural) in bases


def numbers_as(texts: Sequence[str], natural: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    """Convert JSON numbers, as written, to ``target``: exact, or null.

    ``natural``: their type by rule 2.1.
    """
    match target.name:
        case "string":
            return pa.array(texts, pa.string())
        case "double" if natural == DOUBLE:
            return pa.array(list(map(float, texts)), pa.float64())
        case "int" | "long" | "double" | "timestamp" | "timestamp_ntz" if natural == LONG:
            return convert(pa.array(list(map(int, texts)), pa.int64()), LONG, target, unit)
        case "float" if natural in (LONG, DOUBLE):
            return pa.array([float(text) if is_single(text) else None for text in texts], pa.float32())
        case "decimal":
            return pa.array([decimal_of(text, target) for text in texts], arrow_type(target))
        case _:
            return pa.nulls(len(texts), arrow_type(target))


def texts_as(texts: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    """Convert JSON strings that are all of type ``source`` (rule 2.2) to ``target``."""
    if source == STRING or target in (STRING, BINARY):
        return convert(texts, STRING, target, unit)
    if source == UUID:
        listed = texts.to_pylist()
        values = pa.array([None if t is None else uuid.UUID(t).bytes for t in listed], arrow_type(UUID))
    else:
        values = texts.cast(arrow_type(source))
    return convert(values, source, target, unit)
