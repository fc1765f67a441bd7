"""The rows of a table for tasks: out of its files, or through Spark where these alone do not tell them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from driftline.convert.spark import from_spark
from driftline.core.schema.types import Struct
from driftline.keys.anew import RowsLeft
from driftline.keys.slices import shares_of
from driftline.sql.quoting import name
from driftline.tasks.run import Batches, Reported, RowMaker, SetAside, numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class RowSource:
    """Rows of a table with the columns of ``struct``, which tasks read.

    Attributes:
        rows: the rows, as Spark reads them.
        live: the rows as tasks read them out of files; None if Spark alone can.
    """

    rows: DataFrame
    struct: Struct
    live: RowsLeft | None = None

    def having(self, names: Collection[str]) -> Self:
        """The rows with some of their columns."""
        struct = Struct(tuple(f for f in self.struct.fields if f.name in names))
        return replace(self, rows=self.rows.select(*(name(f.name) for f in struct.fields)), struct=struct)

    def for_tasks(self) -> tuple[DataFrame, Callable[[Batches], Batches]]:
        """Return what the tasks are given, and what makes the rows of it, in Arrow's types of the columns."""
        if self.live is None:
            return numbered(self.rows), partial(_from_spark, self.struct)
        stored = replace(self.live.stored, struct=self.struct)
        spark = self.rows.sparkSession
        shares = shares_of(spark, RowsLeft(stored, self.live.files, with_ids=False))
        count = len(shares)
        return spark.range(0, count, 1, max(count, 1)), partial(_out_of_files, shares)

    def tasks(self, maker: RowMaker[Batches]) -> tuple[DataFrame, RowMaker[Batches]]:
        """Return what the tasks are given, and a maker that hands the rows of it to another one."""
        frame, read = self.for_tasks()
        return frame, _Reading(read, maker)


def _from_spark(struct: Struct, batches: Batches) -> Batches:
    for batch in batches:
        yield from_spark(batch, struct)


def _out_of_files(shares: Sequence[RowsLeft], numbers: Batches) -> Batches:
    """The rows of the shares with these numbers."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from shares[number].read()


@dataclass(frozen=True, slots=True)
class _Reading:
    """Hands the batches that ``read`` makes of a task's own to a ``maker``."""

    read: Callable[[Batches], Batches]
    maker: RowMaker[Batches]

    def rows(
        self, task_input: Iterator[pa.RecordBatch], set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Reported[Any]]:
        """Yield the rows of the maker, and return its report."""
        return self.maker.rows(self.read(task_input), set_aside)
