"""A value of each type of a drifted field: a bound of the batch that brought the
type, or else the first that is met there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from driftline.core.columns.statistics import Numbers, Value
from driftline.core.schema.types import Field, Primitive, Schema, peel
from driftline.stats.exact import peek
from driftline.stats.type_shares import Siblings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.core.columns.statistics import TableStatistics
    from driftline.formats.base import CatalogTable

PEEKS = 40  # columns that are looked into at most

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def samples(
    table: CatalogTable, schema: Schema, fields: Sequence[Siblings], statistics: TableStatistics
) -> dict[int, str]:
    """Samples by column id. Where bounds do not serve, a few values are read, of one batch each."""
    by_column, missing = by_bounds(fields, statistics)
    readable = {f.id for _, f in table.readable(schema).walk()}
    peeked = [m for m in missing if {c.id for c in m[0].columns} <= readable][:PEEKS]
    looked_up = peek(
        [(_batch(table, statistics, column), siblings, column) for siblings, column in peeked], schema
    )
    return by_column | {
        column.id: text for (_, column), text in zip(peeked, looked_up, strict=True) if text is not None
    }


def by_bounds(
    fields: Sequence[Siblings], statistics: TableStatistics
) -> tuple[dict[int, str], list[tuple[Siblings, Field]]]:
    """Samples by column id from bounds, and the columns with values for which bounds do not serve."""
    bounds: dict[int, str] = {}
    missing: list[tuple[Siblings, Field]] = []
    for siblings in fields:
        for column in siblings.columns:
            text = own_sample(column, siblings.below(column), statistics.firsts.get(column.id))
            if text is not None:
                bounds[column.id] = text
            elif statistics.counts.numbers(column.id).values != 0:
                missing.append((siblings, column))
    return bounds, missing


def _batch(table: CatalogTable, statistics: TableStatistics, column: Field) -> DataFrame:
    """The rows of the batch that brought the column; all rows if that is unknown."""
    snapshots = statistics.counts.snapshots
    place = statistics.counts.first_place(column.id)
    if place is None or place == 0 or not snapshots[place].born:
        return table.read_readable()
    appended = table.read_appended(snapshots[place - 1].id, snapshots[place].id)
    return table.read_readable() if appended is None else appended


def own_sample(column: Field, narrower: Sequence[Field], bounds: Numbers | None) -> str | None:
    """The lower or the upper bound, whichever none of the ``narrower`` columns
    beside it could hold; None if neither is.

    >>> from driftline.core.columns.statistics import Numbers
    >>> from driftline.core.schema.types import LONG, STRING
    >>> own_sample(Field("a_string", STRING), [Field("a", LONG)], Numbers(low="12", high="12 EUR"))
    '12 EUR'
    """
    if bounds is None:
        return None
    for value, cut in ((bounds.low, bounds.low_cut), (bounds.high, bounds.high_cut)):
        if value is not None and not any(_holds(c, value) for c in narrower):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            return text + "…" * cut
    return None


def _holds(column: Field, value: Value) -> bool:
    """True if the column could have held a value that is written so."""
    type_ = peel(column.type)[1]
    text = str(value)
    if not isinstance(type_, Primitive):
        return False
    match type_.name:
        case "boolean":
            return text.lower() in ("true", "false")
        case "int" | "long":
            return bool(re.fullmatch(r"-?\d+", text)) and -(2**63) <= int(text) < 2**63
        case "float" | "double" | "decimal":
            return bool(_NUMBER.fullmatch(text))
        case "date" | "timestamp" | "timestamp_ntz":
            return bool(_DATE.match(text))
        case _:
            return False
