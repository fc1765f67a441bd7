"""Speculation: a likely plan by which a batch is read once, and the check that it was right.

Tasks observe all records while they write rows by such a plan. A task that meets what the plan does not cover
makes no more rows, and raises nothing, so that fewer rows are written than records observed.
"""

from __future__ import annotations

from dataclasses import replace

from driftline.core.planning.exclude import without_excluded
from driftline.core.planning.routes import Plan, Settings, same_rows
from driftline.core.schema.types import Schema
from driftline.errors import DriftlineError
from driftline.formats.base import State
from driftline.ingest.accept import planned_for
from driftline.ingest.batch import BatchRequest, Planned
from driftline.ingest.rewrite import rewrites
from driftline.observe.observation import Observation


class SpeculationFailed(Exception):
    """The batch does not match the speculated plan; it has to be read again."""


def guessed_plan(batch: BatchRequest, state: State, settings: Settings) -> Planned | None:
    """The likely contents of the batch, and a plan by which it can be read once; None if there is none."""
    batch.progress("observing")
    schema = batch.open(state)
    seen = batch.source.guess(schema, settings)
    if seen is None:
        return None
    batch.progress("planning")
    planned = _plan_of(batch, schema, seen, settings)
    if planned.conflicts or rewrites(planned.changes) or not planned.schema.struct.fields:
        return None
    try:
        batch.made_as(state, planned)
    except DriftlineError:  # all of the batch may have what its beginning lacks
        return None
    return Planned(batch, state, schema, seen, planned, settings)


def confirmed(guessed: Planned, written: int) -> Planned:
    """Plan the batch again from everything observed, after ``written`` rows were written by the speculated
    plan.

    Raises SpeculationFailed if that plan would have made other columns or other rows.
    """
    settings = guessed.settings
    seen = guessed.batch.source.observe(guessed.asked, settings)
    planned = _plan_of(guessed.batch, guessed.batch.open(guessed.state), seen, settings)
    if written != seen.tally.records or (seen.tally.malformed and settings.on_conflict == "fail"):
        raise SpeculationFailed
    if planned.conflicts or planned.schema != guessed.plan.schema:
        raise SpeculationFailed
    if not same_rows(planned.route, guessed.plan.route):
        raise SpeculationFailed
    return replace(guessed, seen=seen, plan=planned)


def _plan_of(batch: BatchRequest, schema: Schema, seen: Observation, settings: Settings) -> Plan:
    planned = planned_for(schema, without_excluded(seen.shape, settings.contract), settings)
    return batch.with_own(planned, seen)
