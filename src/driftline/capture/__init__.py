"""Captures: named, checkpointed flows from a source into a table, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from driftline.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.capture.query import Batch, CaptureQuery, Flow
    from driftline.lake import Table


def capture(
    table: Table,
    data: DataFrame | str | os.PathLike[str],
    name: str,
    *,
    checkpoint: str | os.PathLike[str] | None,
    every: float | None,
    format: str | None,  # noqa: A002  the word that Spark's users know
    json_column: str | None,
    strings: bool,
    metadata: bool,
    max_files: int,
    max_records: int | None,
    skip_lost: bool,
    settings: Mapping[str, str],
    progress: Callable[[str], None],
    on_batch: Callable[[Batch], None],
) -> CaptureQuery:
    """Starts what `Table.capture` promises."""
    from driftline.capture.checkpoint import Checkpoint, default_place
    from driftline.capture.flows import Frames, files
    from driftline.capture.kafka import SCHEME, Kafka, is_kafka, kafka
    from driftline.capture.query import Capture, start
    from driftline.source.pipes import is_pipe

    if isinstance(data, (str, os.PathLike)) and is_pipe(os.fspath(data)):
        raise UsageError(
            f"{os.fspath(data)}: a pipe comes once, and cannot be captured",
            hint="take it as one batch: driftline ingest",
        )
    lake = table.lake
    default = default_place(lake.warehouse, table.name, name, named=checkpoint is not None)
    place = Checkpoint(default if checkpoint is None else os.fspath(checkpoint), name)
    flow: Flow
    if hasattr(data, "isStreaming"):
        frame = cast("DataFrame", data)
        if not frame.isStreaming:
            raise UsageError("this DataFrame is no stream", hint="take it as one batch: Table.ingest")
        by_kafka = json_column == "value" and is_kafka(frame)
        flow = Kafka(frame, "a DataFrame", metadata) if by_kafka else Frames(frame, json_column)
    elif str(data).startswith(SCHEME):
        flow = kafka(lake.spark, str(data), metadata=metadata, max_records=max_records, skip_lost=skip_lost)
    else:
        source = str(Path(data).absolute())
        flow = files(lake.spark, source, place.local, fmt=format, max_files=max_files, strings=strings)
    place.claim(table.name, flow.name)

    where = Capture(
        name,
        lambda spark: lake.on(spark).table(table.name).format,
        place,
        settings,
        progress,
        on_batch,
    )
    return start(where, flow, every)
