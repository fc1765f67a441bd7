"""What of a batch the table accepts: observed, planned, and what does not fit set aside."""

from __future__ import annotations

from collections.abc import Callable

from driftline.core.plan import plan
from driftline.core.routes import Plan, Settings
from driftline.core.types import Schema
from driftline.observe.observation import Observation
from driftline.source.base import Source


def accepted(
    source: Source, schema: Schema, settings: Settings, progress: Callable[[str], None]
) -> tuple[Observation, Plan]:
    """What the batch holds, and what it does to a table of ``schema``."""
    progress("observing")
    seen = source.observe(schema, settings)
    progress("planning")
    return seen, plan(schema, seen.shape, settings)
