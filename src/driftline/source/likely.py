"""Observations of the last batches: the batches of a capture are likely to be alike."""

from __future__ import annotations

from driftline.core.planning.recent import Recent
from driftline.core.planning.routes import Settings
from driftline.core.schema.types import Schema
from driftline.observe.observation import Observation

# By what they were observed against, which has the ids of a table's columns.
_last: Recent[tuple[Schema, Settings], Observation] = Recent(16)


def likely(schema: Schema, settings: Settings) -> Observation | None:
    """The observation of the last batch for such a table; None for a table without columns."""
    return _last.get((schema, settings)) if schema.struct.fields else None


def remember(schema: Schema, settings: Settings, seen: Observation) -> None:
    """Keep the observation of a batch, if it has records."""
    if seen.tally.records:
        _last.put((schema, settings), seen)
