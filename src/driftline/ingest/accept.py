"""Splits a batch into accepted records and those that the table's policies reject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.limits import schema_before, without_limits
from driftline.core.planning.plan import Conflict, Plan
from driftline.core.planning.planner import plan
from driftline.core.planning.policies import policy_of
from driftline.core.planning.shape import without_excluded
from driftline.core.schema.text import counted
from driftline.core.schema.types import Path, Schema, dotted
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError, UsageError
from driftline.ingest.batch import RecentBatches
from driftline.observe.observation import Observation
from driftline.sources.scan import BatchScan, Observed

_MEND = 'fix the data, or set on_conflict = "quarantine" to set such records aside'
_MORE_ROOM = 'set beyond = "rest" to keep it as text, or a higher limit'
ROUNDS = 20  # of looking for what the records that are left do to the table
# After these, each record that needs another column is refused, so that the work ends.
_PATIENCE = 10  # rounds of refusing only what has no room in any case


def accepted(
    scan: BatchScan,
    recent: RecentBatches,
    progress: Callable[[str], None],
    lossy: Callable[[Plan], Iterable[Path]] = lambda _: (),
    before: Observed | None = None,
) -> tuple[Observed, Plan]:
    """Observe and plan a batch without its refused records, which become the plan's conflicts.

    After a refusal the batch is observed once more without those records, so they leave no trace. Raises
    DataError for a conflict under ``on_conflict = "fail"``, or a limit exceeded under ``beyond = "fail"``.

    ``recent``: previous batches; ``progress``: called with each phase after the first, which is observing;
    ``lossy``: returns the columns that a plan's rewrites would change, which are not rewritten; ``before``:
    the observation of the whole batch, if there is one.
    """
    schema, settings = scan.schema, scan.settings
    refused = _Refused(schema, settings)
    for round_ in range(ROUNDS):
        if round_:
            progress("observing")
        observed, before = before or scan.observe(), None
        recent.remember(observed)
        observation = replace(
            observed.observation, shape=without_excluded(observed.observation.shape, settings.fields)
        )
        progress("planning")
        planned = recent.plan(schema, observation.shape, settings, refused.not_rewritten)
        planned = refused.without_loss(planned, observation, lossy)
        if (with_values := scan.with_declared_values(planned.schema)) is not None:
            scan = with_values
            continue
        refused.observed(observation)
        _fail(observation, planned, settings)
        if not planned.conflicts:
            return observed, replace(planned, conflicts=tuple(refused.conflicts))
        if refused.stuck:
            # No record is to blame alone: the table, as it becomes, takes each.
            replanned = plan(planned.schema, observation.shape, settings, refused.not_rewritten)
            if not (replanned.conflicts or replanned.changes):
                return observed, replace(planned, route=replanned.route, conflicts=tuple(refused.conflicts))
        _frozen_without_columns(schema, planned, settings)
        refused.add(observation, planned)
        scan = scan.refusing(refused.check(), refused.last, observation)
    conflict = refused.last[0]
    raise DataError(
        f"{dotted(conflict.path)}: the rest of the batch still does not fit: {conflict.why}",
        "ingest it in smaller batches",
    )


@dataclass(slots=True)
class _Refused:
    """The refusals of a batch so far.

    Attributes:
        schemas: schemas of the admission check.
        rooms: schemas of the admission check that say which columns have room.
        conflicts: all refusals.
        last: the conflicts of the last round.
        stuck: no record has one of the last conflicts.
        count: the number of records set aside.
    """

    schema: Schema
    settings: TableSettings
    not_rewritten: frozenset[Path] = frozenset()
    schemas: tuple[Schema, ...] = ()
    rooms: tuple[Schema, ...] = ()
    conflicts: list[Conflict] = field(default_factory=list)
    last: Sequence[Conflict] = ()
    stuck: bool = False
    count: int = -1
    rounds: int = 0

    def observed(self, observation: Observation) -> None:
        """Record the observation of the batch without the last conflicts."""
        self.stuck, self.count = self.count == observation.tally.rejected, observation.tally.rejected
        self.rounds += 1
        if not self.stuck:
            self.conflicts += self.last

    def without_loss(
        self, planned: Plan, observation: Observation, lossy: Callable[[Plan], Iterable[Path]]
    ) -> Plan:
        """Plan again, without rewriting the columns whose values the plan would change."""
        while lossy_now := frozenset(lossy(planned)) - self.not_rewritten:
            self.not_rewritten |= lossy_now
            planned = plan(self.schema, observation.shape, self.settings, self.not_rewritten)
        return planned

    def add(self, observation: Observation, planned: Plan) -> None:
        """Refuse the conflicts of the policies, or, if no record has one, those of the limits.

        Of the limits, that is the first record beyond them, and all that need more columns than the records
        before it left room for. Raises DataError for a limit under ``beyond = "fail"``.
        """
        beyond = [conflict for conflict in planned.conflicts if conflict.limit]
        free = plan(self.schema, observation.shape, without_limits(self.settings), self.not_rewritten)
        if free.conflicts and not (self.stuck and beyond):
            # A refused record may have decided a type here. Others that would fit alone wait then, and can be
            # replayed.
            self.schemas, self.last = (*self.schemas, free.schema), free.conflicts
        else:
            self._limit(planned, beyond)

    def _limit(self, planned: Plan, beyond: Sequence[Conflict]) -> None:
        # Records before it have settled their columns. To refuse it frees what it would have taken, so the
        # batch is observed again.
        first = min(beyond, key=lambda conflict: conflict.location)
        if self.settings.beyond == "fail":
            _fail_of(first)
        before, self.last = self.last, beyond
        if self.rounds > _PATIENCE:
            self.schemas = (*self.schemas, planned.schema)
        elif self.stuck and before[0].limit:
            # Records without an order: together they have no room, each alone does.
            self.rooms = (*self.rooms, planned.schema)
        else:
            self.rooms = (*self.rooms, schema_before(planned, first.location))
            self.last = [conflict for conflict in beyond if _record(conflict) == _record(first)]

    def check(self) -> AdmissionCheck:
        """Return the check that finds the refused records."""
        return AdmissionCheck(self.schemas, self.rooms, self.settings, self.not_rewritten)


def _record(conflict: Conflict) -> tuple[str, int]:
    return conflict.location.source, conflict.location.line


def fail_of_expectation(observation: Observation, settings: TableSettings) -> None:
    """Raise DataError if a record does not meet an expectation under which nothing is written then."""
    for expectation in settings.expect:
        violations = observation.tally.violations.get(expectation.name)
        if violations is not None and expectation.action == "fail":
            raise DataError(
                f"expectation {expectation.name}: {counted(violations.count, 'record')} not as expected; "
                f"{violations.location}: {violations.sample}",
                f"fix the data, or write else quarantine in expect.{expectation.name} to set such records aside",
            )


def unreadable(observation: Observation, settings: TableSettings) -> int:
    """Return the number of records that are rejected, those aside that an expectation sets aside."""
    violations = observation.tally.violations
    aside = [
        violations[e.name].count for e in settings.expect if e.action == "quarantine" and e.name in violations
    ]
    return observation.tally.rejected - sum(aside)


def _fail(observation: Observation, planned: Plan, settings: TableSettings) -> None:
    """Raise the error under which nothing of a batch is written, for a record that is not allowed."""
    fail_of_expectation(observation, settings)
    if settings.on_conflict != "fail":
        return
    if count := unreadable(observation, settings):
        worst = min(observation.tally.reasons, default=None)
        raise DataError(
            f"{counted(count, 'record')} cannot be read; {worst or 'of another length'}",
            _MEND,
        )
    _fail_of(planned.conflicts[0] if planned.conflicts else None)


def _fail_of(conflict: Conflict | None) -> None:
    if conflict is None:
        return
    place = f" in {conflict.location}" if str(conflict.location) else ""
    sample = f": {conflict.sample}" if conflict.sample else ""
    raise DataError(
        f"{conflict.in_words}{place}{sample} ({conflict.why})", _MORE_ROOM if conflict.limit else _MEND
    )


def _frozen_without_columns(schema: Schema, planned: Plan, settings: TableSettings) -> None:
    policy = policy_of(settings.fields.policy)
    if not (policy.makes_columns or schema.struct.fields or planned.schema.struct.fields):
        raise UsageError(
            "the policy is strict, and the table has no columns yet",
            "declare them with hints, or make the table under another policy first",
        )
