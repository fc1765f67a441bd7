"""Values of a key's field in a column of another type of their kind: rows stay the same key there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.kernels import convert
from driftline.convert.types import arrow_type
from driftline.core.planning.conversions import NUMBERS
from driftline.core.schema.types import Primitive
from driftline.keys.identity import FieldColumns

_BITS = {"int": 31, "long": 63}
_EXACT = Context(prec=80)


@dataclass(frozen=True, slots=True)
class KeyFold:
    """Columns of a key's field, by their ids, that become one of type ``to``."""

    columns: FieldColumns
    to: Primitive

    def kept(self, rows: pa.Table) -> list[int]:
        """The columns that hold a value which the one column cannot hold."""
        return [
            id_
            for id_, (_, lost) in zip(self.columns.ids, self._parts(rows), strict=True)
            if lost is not None
        ]

    def folded(self, rows: pa.Table, new: int, takers: Sequence[tuple[int, int]]) -> pa.Table:
        """The rows with the one column too, by its id ``new``, and what it cannot hold.

        ``takers``: the ids of columns that have such values, and of those that take them.
        """
        parts = dict(zip(self.columns.ids, self._parts(rows), strict=True))
        merged = pc.coalesce(*[values for values, _ in parts.values()])
        rows = rows.append_column(str(new), merged)
        for old, taker in takers:
            lost = parts[old][1]
            rows = rows.append_column(str(taker), pa.nulls(len(rows)) if lost is None else lost)
        return rows

    def _parts(self, rows: pa.Table) -> list[tuple[pa.Array, pa.Array | None]]:
        """For each column its values in the new type, and those that have none there; None: all have."""
        parts: list[tuple[pa.Array, pa.Array | None]] = []
        for type_, values in self.columns.values(rows):
            new = _converted(values, type_, self.to)
            lost = pc.if_else(new.is_null(), values, pa.scalar(None, values.type))
            parts.append((new, None if lost.null_count == len(lost) else lost))
        return parts


def _converted(values: pa.Array, source: Primitive, to: Primitive) -> pa.Array:
    """The values in another type of their kind; null for those that it cannot hold exactly."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(to))
    if to.name not in NUMBERS:
        return convert(values, source, to)
    exact = [None if value is None else _exact(value, to) for value in values.to_pylist()]
    return pa.array(exact, arrow_type(to))


def _exact(value: float | Decimal, to: Primitive) -> float | Decimal | None:
    """The number in another type; None if it is not that number there.

    >>> from driftline.core.schema.types import DOUBLE, LONG, decimal
    >>> [_exact(2.5, t) for t in (LONG, DOUBLE, decimal(3, 1))], _exact(2**60 + 1, DOUBLE)
    ([None, 2.5, Decimal('2.5')], None)
    """
    number = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not number.is_finite():
        return float(number) if to.name in ("float", "double") and number == number else None
    if to.name in _BITS:
        integer = int(number)
        return (
            integer if integer == number and -(2 ** _BITS[to.name]) <= integer < 2 ** _BITS[to.name] else None
        )
    if to.name == "decimal":
        precision, scale = to.args
        placed = number.scaleb(scale, _EXACT)
        fits = placed == placed.to_integral_value() and abs(placed) < 10**precision
        return _EXACT.quantize(number, Decimal(1).scaleb(-scale)) if fits else None
    near = float(np.float32(number)) if to.name == "float" else float(number)
    return near if Decimal(repr(near)) == number else None
