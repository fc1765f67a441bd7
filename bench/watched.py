"""The cost of watching a capture: the same micro-batches with and without metrics and lineage, in turns.

    python bench/watched.py [--batches 60] [--records 10000]

The one that is watched writes a file for Prometheus, counts for OpenTelemetry, and sends OpenLineage's events of each
micro-batch to a file. What is compared is the median time of a micro-batch, as in `bench/stream.py`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pyspark.sql.streaming import StreamingQuery
from stream import TURN, Side, write

from driftline import Batch, Lake
from driftline.report import lineage
from driftline.report.metrics import Metrics, Telemetry


def plain(lake: Lake) -> Callable[[Side], StreamingQuery]:
    def start(side: Side) -> StreamingQuery:
        return lake.table(f"bench.{side.name}").capture(side.folder, name="bench", max_files=1)

    return start


def watched(lake: Lake, folder: Path) -> Callable[[Side], StreamingQuery]:
    counted = Metrics("bench.watched", "bench", file=folder / "bench.prom")

    def count(batch: Batch) -> None:
        counted.count(batch.result, batch.lag)

    def start(side: Side) -> StreamingQuery:
        table = lake.table(f"bench.{side.name}")
        return table.capture(side.folder, name="bench", max_files=1, on_batch=count)

    return start


@contextmanager
def unwatched() -> Iterator[None]:
    """OpenTelemetry and OpenLineage are at work in the whole process: here they are not."""
    with (
        mock.patch.object(Telemetry, "wanted", return_value=False),
        mock.patch.object(lineage, "wanted", return_value=False),
    ):
        yield


def run(lake: Lake, folder: Path, args: argparse.Namespace) -> tuple[Side, Side]:
    sides = (
        Side("alone", folder / "alone", plain(lake)),
        Side("watched", folder / "watched", watched(lake, folder)),
    )
    for side in sides:
        side.folder.mkdir()
    files = write(folder / "files", args, drift=0, wide=0)
    for turn in range(0, len(files), TURN):
        for side in sides if turn % (2 * TURN) else reversed(sides):
            with nullcontext() if side.name == "watched" else unwatched():
                side.take(files[turn : turn + TURN])
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--records", type=int, default=10_000)
    args = parser.parse_args()
    set_meter_provider(MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False))
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        transport = {"TYPE": "file", "LOG_FILE_PATH": str(folder / "events.jsonl"), "APPEND": "true"}
        os.environ |= {f"OPENLINEAGE__TRANSPORT__{name}": text for name, text in transport.items()}
        alone, with_all = run(Lake.open(folder / "lake"), folder, args)
        lineage._outbox().flush(60)
        events = (folder / "events.jsonl").read_text().splitlines()
        assert len(events) == 2 * args.batches, f"{len(events)} events"
    for side in (alone, with_all):
        side.took = side.took[TURN:]  # the first turn warms up
        print(f"  {side.name:12} {side.median():6.0f} ms median")
    print(f"  cost of metrics and lineage: {with_all.median() / alone.median() - 1:.1%}", flush=True)


if __name__ == "__main__":
    main()
