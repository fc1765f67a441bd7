"""Rows of a frame in files that tasks write, and the driver reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def written_parts(frame: DataFrame, folder: Path) -> list[str]:
    """Write the rows of a frame to files in a folder that all tasks see; returns these in the rows' order.

    The driver then reads them, and holds no more than a part of one.
    """
    written = frame.mapInArrow(partial(_written, str(folder)), "part int, path string").collect()
    return [row.path for row in sorted(written)]


def _written(folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the batches of a task to a file of its own; yields the partition and the path."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    path = f"{folder}/part-{uuid4().hex}.arrow"  # another attempt of the task writes another one
    with ExitStack() as stack:
        writer: Any = None
        for batch in batches:
            writer = writer or stack.enter_context(pa.ipc.new_file(path, batch.schema))
            writer.write_batch(batch)
    if writer is not None:
        yield pa.record_batch(
            [pa.array([context.partitionId()], pa.int32()), pa.array([path])], ["part", "path"]
        )


def batches_of(path: str, numbers: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Read batches of such a file; all of them without ``numbers``."""
    with pa.memory_map(path) as file:
        batches = pa.ipc.open_file(file)
        for number in range(batches.num_record_batches) if numbers is None else numbers:
            yield batches.get_batch(number)
