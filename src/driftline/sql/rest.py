"""The contents of the rest of some rows, path by path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from driftline.core.columns.siblings import Fields
from driftline.core.columns.statistics import SeenIn, SeenInJson
from driftline.core.planning.own_columns import is_type_key, rest_column, spelled_field, steps
from driftline.core.schema.types import Schema
from driftline.sql.quoting import name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MOST = 1_000  # paths
_SAMPLE = 200  # characters
_AT_ONCE = 10_000  # paths that a task counts before it reports them

Counts = dict[str, tuple[int, str]]  # by path: how many values, and one of them


class WaitingValuesJson(TypedDict):
    """Values that wait in the rest at one path."""

    path: str
    values: int
    sample: str
    first_seen: SeenInJson | None


@dataclass(frozen=True, slots=True)
class WaitingValues:
    """Values that wait at one ``path``, elements of lists as steps of the name ``element``, keys of maps of
    the name ``value``. ``sample``: one of them, as JSON text; ``first``: the batch that brought the first,
    None where that is not known.
    """

    path: str
    values: int
    sample: str
    first: SeenIn | None = None

    def to_dict(self) -> WaitingValuesJson:
        """The form that `--json` prints."""
        first = None if self.first is None else self.first.to_dict()
        return {"path": self.path, "values": self.values, "sample": self.sample, "first_seen": first}


def waiting(rows: DataFrame, schema: Schema, mark: str) -> tuple[WaitingValues, ...]:
    """The values waiting in rows of a table: at most `MOST` paths, those with most values first.

    ``mark``: the prefix of docs of evolved columns.
    """
    from pyspark.sql import functions as F

    column = rest_column(schema.struct)
    if column is None or column.name not in rows.columns:
        return ()
    entries = rows.select(name(column.name)).where(f"{name(column.name)} is not null")
    parts = entries.mapInArrow(
        partial(_counted, Fields([schema.struct], mark)), "path string, n long, sample string"
    )
    counted = parts.groupBy("path").agg(F.expr("sum(n) as n"), F.expr("min(sample) as sample"))
    most = counted.orderBy("n", "path", ascending=[False, True]).limit(MOST).collect()  # one row a path
    return tuple(WaitingValues(row["path"], row["n"], row["sample"]) for row in most)


def _counted(fields: Fields, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts: Counts = {}
    for batch in batches:
        for entries in batch.column(0).to_pylist():
            for path, text in entries or ():
                if not is_type_key(path):
                    _count(counts, spelled_field(fields.path(steps(path))), text[:_SAMPLE])
        if len(counts) > _AT_ONCE:
            yield _as_rows(counts)
            counts = {}
    yield _as_rows(counts)


def _count(counts: Counts, path: str, sample: str) -> None:
    number, least = counts.get(path, (0, sample))
    counts[path] = number + 1, min(least, sample)


def _as_rows(counts: Counts) -> pa.RecordBatch:
    import pyarrow as pa

    numbers, samples = [n for n, _ in counts.values()], [sample for _, sample in counts.values()]
    arrays = [
        pa.array(list(counts), pa.string()),
        pa.array(numbers, pa.int64()),
        pa.array(samples, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, ["path", "n", "sample"])
