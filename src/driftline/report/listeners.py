"""The listeners to the batches of a table."""

from __future__ import annotations

from typing import Any

from driftline.ingest.listener import Listener, Listeners
from driftline.report import lineage
from driftline.report.dataset_names import inputs
from driftline.report.log import Log
from driftline.report.metrics import Telemetry
from driftline.sources.given import given_paths


def listeners(data: Any, capture: str | None = None) -> Listeners:
    """All listeners to the batches of one call.

    ``data``: the data that it ingests; ``capture``: the capture whose micro-batches they are.
    """
    told_of_each: list[Listener] = [Log(capture)]
    if lineage.wanted():
        told_of_each.append(lineage.Lineage(inputs(given_paths(data)), capture))
    if Telemetry.wanted():
        told_of_each.append(Telemetry(capture))
    return Listeners(told_of_each)
