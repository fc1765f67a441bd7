"""A batch under way, the same at each attempt, and its plan for one state of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from driftline.core.changes.apply import refits
from driftline.core.history.batch_properties import Token
from driftline.core.planning.own_columns import with_own
from driftline.core.planning.plan import Plan, Settings
from driftline.core.planning.planner import plan
from driftline.core.schema.definition import WITH_VECTORS, Definition
from driftline.core.schema.types import Path, Schema, Struct, mark_unwritable
from driftline.core.settings.creation import Creation, check_declared
from driftline.core.settings.csv import JSON_SIGNS
from driftline.core.settings.fields import without_excluded
from driftline.core.settings.properties import (
    NEW_TABLE,
    earlier_patterns,
    from_properties,
    reading,
    readings,
    with_reading,
)
from driftline.core.settings.row_key import arrival_hint, check_kept
from driftline.errors import DataError
from driftline.formats.base import CatalogTable, Moved, State
from driftline.formats.commit import Progress, Retry
from driftline.ingest.once import Once, reading_hash
from driftline.ingest.recent import RecentBatches
from driftline.keys.settle import KeyCounts
from driftline.observe.observation import Observation
from driftline.quarantine.table import with_feed
from driftline.readers.csv.types import offset_notes
from driftline.readers.envelopes.connect_schema import encoded_notes
from driftline.readers.envelopes.messages import envelope_note
from driftline.readers.rejects import OriginOfRows
from driftline.sources.files import Stamp, changed
from driftline.sources.scan import Observed, Source
from driftline.write import RowTasks

AGAIN = "nothing was committed; run the batch again once its files are complete"

_SIGNS = {"driftline.decimal", "driftline.thousands"}


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The part of a batch that is the same at each attempt.

    ``properties``: its settings; ``creation``: the layout of a new table; ``files``: their stamps before the
    batch; ``once``: the files that the table is to remember; ``recent``: the batches before; ``time``: of its
    beginning.
    """

    table: CatalogTable
    source: Source
    id: str
    properties: Mapping[str, str]
    token: Token | None
    progress: Progress
    retry: Retry
    files: Mapping[str, Stamp]
    creation: Creation
    once: Once = field(default_factory=Once)
    recent: RecentBatches = field(default_factory=RecentBatches)
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def marks(self, state: State) -> dict[str, str]:
        """The table properties that the batch sets."""
        before, properties = state.properties, {**state.properties, **self.properties}
        return {
            **self._new(state),
            **self.properties,
            **earlier_patterns(before, self.properties),
            **(with_reading(before, properties) if state.exists else {}),
            "driftline.batch": self.id,
            **(self.token.marks(state.properties) if self.token is not None else {}),
        }

    def remembered(self, state: State, marks: Mapping[str, str]) -> list[int]:
        """The numbers by which the table is to remember the files.

        ``marks``: the properties that it gets with the batch.
        """
        files = [*self.once.files, *(self.token.files if self.token is not None else ())]
        properties, by_reading = {**state.properties, **marks}, list[int]()
        if readings(properties):
            hash_ = reading_hash(reading(properties))
            by_reading = [number ^ hash_ for number in files]
        # The last are kept longest: without them a file would be taken twice.
        return [*self.once.paths, *self.once.versions, *by_reading, *files]

    def load(self) -> State:
        """Load the table. Raises BatchIsInError if it has the batch, DataError if it has one of the files,
        UsageError if it has another key.
        """
        state = with_feed(self.table, self.table.load())
        if state.exists:
            check_kept(self.table.name, state.properties, self.properties)
        self.check(state)
        return state

    def check(self, state: State) -> None:
        """Raise BatchIsInError if the table has the batch, DataError if it has one of the files."""
        if self.token is not None:
            self.token.check(self.table.name, state.uuid, state.properties)
        self.once.check(self.table, state)

    def check_files(self) -> None:
        """Raise DataError if a file of a store has changed: each request may have read another version."""
        if change := changed({file: stamp for file, stamp in self.files.items() if stamp.mark}):
            raise DataError(f"{self.table.name}: {change}", AGAIN)

    def open(self, state: State) -> Schema:
        """The table's schema, as the batch is planned for it."""
        return mark_unwritable(state.schema, self.table.fillable(state.schema))

    def settings(self, state: State) -> Settings:
        """The settings of the batch; a table that it creates gets those of new tables."""
        properties = {**self._new(state), **state.properties, **self.properties}
        settings = replace(from_properties(properties), as_text=self.table.as_text)
        if settings.csv.signs == JSON_SIGNS or self.properties.keys() & _SIGNS:
            return settings
        return replace(settings, csv=replace(settings.csv, kept=True))

    def _new(self, state: State) -> Mapping[str, str]:
        return {} if state.exists else {**NEW_TABLE, **state.properties}

    def with_own(self, planned: Plan, observation: Observation) -> Plan:
        """The plan with the columns that the source fills itself, if there are records."""
        return with_own(planned, self.source.columns) if observation.tally.records else planned

    def made_as(self, state: State, planned: Plan) -> Definition | None:
        """The definition of the table that the batch creates.

        None if it exists, or is not created. Raises DataError, UsageError.
        """
        if state.exists or not planned.schema.struct.fields:
            return None
        table = self.table
        settings, blank = self.settings(state), table.blank
        check_declared(table.name, planned.route, settings.contract)
        if settings.row_key is not None and not self.creation.format_version:
            blank = replace(blank, format_version=max(blank.format_version, WITH_VECTORS))
        return self.creation.definition(table.name, blank, planned.schema, settings, table.parts_of)

    def differences(self, state: State) -> tuple[str, ...]:
        """The differences of an existing table from the requested layout; a capture reports them once."""
        if not (self.creation and state.exists) or (self.token is not None and not self.token.tried):
            return ()
        table = self.table
        return tuple(self.creation.differences(table.name, table.definition(), table.parts_of))


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch observed, and planned for a table as it was loaded. ``counts``: its changes by key, once they
    are settled.
    """

    batch: BatchRequest
    state: State
    observed: Observed
    plan: Plan
    counts: KeyCounts | None = None

    @property
    def observation(self) -> Observation:
        """The contents of the batch."""
        return self.observed.observation

    @property
    def settings(self) -> Settings:
        """The settings that the batch is planned by."""
        return self.observed.scan.settings

    def tasks(self, struct: Struct) -> RowTasks:
        """Tasks that make the batch's rows of ``struct``."""
        tasks, batch = self.observed.tasks(self.plan, struct), self.batch
        if not (names := self.settings.metadata):
            return tasks
        files = self.observed.scan.request.names
        return tasks.mapped(OriginOfRows.of(struct, names, batch.id, batch.time, files))

    @property
    def is_empty(self) -> bool:
        """True if a capture's micro-batch has no records, and needs no commit."""
        tally = self.observation.tally
        changes = tally.records + tally.malformed or tally.truncated
        return self.batch.token is not None and not changes

    @property
    def notes(self) -> Sequence[str]:
        """Notes for a person on how the batch was read, and could be where it makes the table."""
        row_key, notes = self.settings.row_key, self.observed.scan.notes(self.observation)
        if row_key is not None and row_key.envelope:
            tally = self.observation.tally
            # Where others have a position, the order of arrival would be worse.
            reasons = [] if tally.records else [bad.reason for bad in tally.reasons]
            notes = [*notes, *arrival_hint(self.batch.table.name, reasons, exists=self.state.exists)]
            return [*notes, *encoded_notes(self.observation.shape, row_key, self._is_settled)]
        if self.plan.changes:
            notes = [*notes, *offset_notes(self.observation.shape, self.plan.changes, self.settings.dates)]
        if self.state.exists:
            return notes
        return [*notes, *envelope_note(self.observation.shape)]

    def _is_settled(self, path: Path) -> bool:
        """True if a field has its column, or what becomes of it was declared."""
        setting = self.settings.contract.at(path)
        if setting.hint is not None or setting.excluded:
            return True
        return self.state.exists and self.state.schema.find(path) is not None

    def on(self, now: State) -> Planned:
        """Rebase the planned batch on the table as it is ``now``.

        Raises Moved if its rows would be written differently.
        """
        if self.state.fits(now):
            return replace(self, state=now)
        settings = self.batch.settings(now)
        if now.exists and self.state.exists and settings == self.settings and not self.plan.conflicts:
            shape = without_excluded(self.observation.shape, settings.contract)
            planned = self.batch.with_own(plan(self.batch.open(now), shape, settings), self.observation)
            same = (planned.changes, planned.route) == (self.plan.changes, self.plan.route)
            # What a column demands of values was looked for only where one
            # of them did when the batch was observed.
            same = same and refits(self.state.schema, now.schema)
            if same and not (planned.conflicts or planned.rewrites):
                return replace(self, state=now, plan=planned)
        raise Moved(f"{self.batch.table.name} has changed since the batch was planned")
