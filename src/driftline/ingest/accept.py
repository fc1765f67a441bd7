"""What of a batch the table accepts: observed, planned, and what the policies refuse set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from driftline.core.planning.admission import Judge
from driftline.core.planning.exclude import without_excluded
from driftline.core.planning.plan import plan
from driftline.core.planning.policies import policy_of
from driftline.core.planning.recent import Recent
from driftline.core.planning.routes import Conflict, Plan, Settings
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Path, Schema, dotted
from driftline.errors import DataError, UsageError
from driftline.observe.observation import Observation
from driftline.source.base import Source

_MEND = 'mend the data, or set on_conflict = "quarantine" to set such records aside'
_MORE_ROOM = 'set beyond = "rest" to keep it as text, or a higher limit'
ROUNDS = 20  # of looking for what the records that are left do to the table


def accepted(
    source: Source,
    schema: Schema,
    settings: Settings,
    progress: Callable[[str], None],
    lossy: Callable[[Plan], Iterable[Path]] = lambda _: (),
) -> tuple[Observation, Plan]:
    """What of the batch is accepted, and what that does to a table of
    ``schema``; the plan's conflicts are the rest's.

    Where the policies refuse something, the batch is observed once more without the records that hold it:
    they leave no trace in the schema. ``lossy``: the columns whose values a plan's rewrites would change;
    those stay as they are. Raises DataError for a conflict under ``on_conflict = "fail"``.
    """
    schemas: list[Schema] = []
    conflicts: list[Conflict] = []
    not_rewritten: frozenset[Path] = frozenset()
    refused, blamed = -1, 0
    for _ in range(ROUNDS):
        progress("observing")
        seen = source.observe(schema, settings)
        seen = replace(seen, shape=without_excluded(seen.shape, settings.contract))
        progress("planning")
        planned = planned_for(schema, seen.shape, settings, not_rewritten)
        while more := frozenset(lossy(planned)) - not_rewritten:
            not_rewritten |= more
            planned = plan(schema, seen.shape, settings, not_rewritten)
        if settings.on_conflict == "fail":
            _fail(seen, planned)
        if settings.beyond == "fail":
            _fail_of(next((c for c in planned.conflicts if c.limit), None))
        if not planned.conflicts:
            return seen, replace(planned, conflicts=tuple(conflicts))
        if refused == seen.tally.malformed:
            # No record is to blame alone: the table, as it becomes, takes each.
            again = plan(planned.schema, seen.shape, settings, not_rewritten)
            if not (again.conflicts or again.changes):
                return seen, replace(planned, route=again.route, conflicts=tuple(conflicts[:-blamed]))
        refused = seen.tally.malformed
        _frozen_without_columns(schema, planned, settings)
        schemas.append(planned.schema)
        conflicts += planned.conflicts
        blamed = len(planned.conflicts)
        source.refuse(Judge(tuple(schemas), settings, not_rewritten), planned.conflicts)
    raise DataError(
        f"{dotted(conflicts[-1].path)}: what is left of the batch still does not fit: {conflicts[-1].why}",
        "ingest the batch in smaller parts",
    )


# The batches of a capture that bring nothing new have one shape, and one plan.
_plans: Recent[tuple[Schema, RecordShape, Settings, frozenset[Path]], Plan] = Recent(16)


def planned_for(
    schema: Schema, shape: RecordShape, settings: Settings, not_rewritten: frozenset[Path] = frozenset()
) -> Plan:
    """`plan`, of which the last are remembered."""
    asked = schema, shape, settings, not_rewritten
    planned = _plans.get(asked)
    if planned is None:
        planned = plan(*asked)
        _plans.put(asked, planned)
    return planned


def _fail(seen: Observation, planned: Plan) -> None:
    """Nothing of the batch is written where anything of it is refused or malformed."""
    if seen.tally.malformed:
        worst = min(seen.tally.reasons, default=None)
        raise DataError(f"{seen.tally.malformed} malformed records; {worst or 'of another length'}", _MEND)
    _fail_of(planned.conflicts[0] if planned.conflicts else None)


def _fail_of(conflict: Conflict | None) -> None:
    if conflict is None:
        return
    place = f" in {conflict.place}" if str(conflict.place) else ""
    sample = f": {conflict.sample}" if conflict.sample else ""
    message = (
        f"{dotted(conflict.path)}: the table has {conflict.table_type}, {conflict.incoming_type} came{place}{sample} "
        f"({conflict.why})"
    )
    raise DataError(message, _MORE_ROOM if conflict.limit else _MEND)


def _frozen_without_columns(schema: Schema, planned: Plan, settings: Settings) -> None:
    policy = policy_of(settings.contract.policy)
    if not (policy.makes_columns or schema.struct.fields or planned.schema.struct.fields):
        raise UsageError(
            "the policy is strict, and the table has no columns yet",
            "declare them with hints, or make the table under another policy first",
        )
