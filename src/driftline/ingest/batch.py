"""A batch under way: its request, its files, its plan for one table state, and its listeners."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.changes.apply import refits
from driftline.core.history.batch_properties import WAITED, Token
from driftline.core.planning.own_columns import spelled_field, with_own
from driftline.core.planning.plan import Plan, check_declared
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape, without_excluded
from driftline.core.schema.definition import WITH_VECTORS, Definition
from driftline.core.schema.text import counted
from driftline.core.schema.types import Path, Schema, Struct, mark_unwritable, name_text
from driftline.core.settings.creation import Creation
from driftline.core.settings.csv import JSON_SIGNS, UNSTATED
from driftline.core.settings.declarations import property_of
from driftline.core.settings.properties import (
    NEW_TABLE,
    earlier_patterns,
    from_properties,
    newly_kept,
    reading,
    readings,
    with_reading,
)
from driftline.core.settings.row_key import arrival_hint, check_kept, late_hint
from driftline.core.settings.table import TableSettings
from driftline.core.support import LruCache
from driftline.errors import DataError, DriftlineError
from driftline.formats.base import CatalogTable, Moved, State, Transaction
from driftline.formats.commit import Progress, Retry
from driftline.ingest.result import Result, result
from driftline.keys.settle import KeyCounts
from driftline.keys.stored import KeyCache
from driftline.observe.observation import Observation
from driftline.quarantine import table as quarantine
from driftline.readers.csv.types import offset_notes
from driftline.readers.envelopes.connect_schema import encoded_notes
from driftline.readers.envelopes.extended_json import extended_note
from driftline.readers.envelopes.messages import envelope_note
from driftline.readers.rejects import OriginOfRows
from driftline.sources.files import Stamp, changed, fingerprint, hashed, path_fingerprint, version_fingerprint
from driftline.sources.scan import BatchScan, Observed, Source
from driftline.sql.lost import most_waiting, waiting
from driftline.write import RowTasks

_NAMED = 5  # files that an error lists


@dataclass(frozen=True, slots=True)
class FileFingerprints:
    """The files of a batch by fingerprint, to ingest each only once.

    Attributes:
        files: paths by the fingerprint of location and version.
        paths: paths by the fingerprint of the location alone.
        versions: paths by the fingerprint of the version alone.
        reingest: ingest files that the table already has.
        dry_run: report files that the table already has.
    """

    files: Mapping[int, str] = field(default_factory=dict)
    paths: Mapping[int, str] = field(default_factory=dict)
    versions: Mapping[int, str] = field(default_factory=dict)
    reingest: bool = False
    dry_run: bool = False
    _ingested: dict[str, AbstractSet[int]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, source: Source, stamps: Mapping[str, Stamp], *, reingest: bool = False, dry_run: bool = False
    ) -> FileFingerprints:
        """Fingerprint the files that a person named; for an archive, the archive itself."""
        named = stamps if source.originals is None else source.originals
        return replace(cls.stamped(named), reingest=reingest, dry_run=dry_run)

    @classmethod
    def stamped(cls, stamps: Mapping[str, Stamp]) -> FileFingerprints:
        """Fingerprint the files, by path with the stamp of each."""
        return cls(
            {fingerprint(file, stamp): file for file, stamp in stamps.items()},
            {path_fingerprint(file): file for file in stamps},
            # Empty files have no records that could come again.
            {version_fingerprint(stamp): file for file, stamp in stamps.items() if stamp.size},
        )

    def taken(self, table: CatalogTable, state: State) -> AbstractSet[str]:
        """Return the files that the table has already ingested, and is not to ingest again."""
        if self.reingest:
            return frozenset()
        return {self.files[number] for number in self._known(table, state) & self.files.keys()}

    def check(self, table: CatalogTable, state: State) -> None:
        """Raise DataError if the table has already ingested one of the files."""
        if self.dry_run:
            return
        if taken := self.taken(table, state):
            where = "table" if state.exists else "quarantine"
            raise DataError(
                f"{table.name}: {self._count(taken)} in the {where} already: {_listed(taken)}",
                hint=f"leave {'it' if len(taken) == 1 else 'them'} out, or pass --again "
                "to ingest again as new rows; a new table takes every file",
            )

    def notes(self, table: CatalogTable, state: State) -> tuple[str, ...]:
        """Return notes on files that the table has, also in another version or under another name."""
        if self.reingest and not self.dry_run:
            return ()
        numbers = self._known(table, state)
        taken, changed, moved = (
            {file for number, file in files.items() if number in numbers}
            for files in (self.files, self.paths, self.versions)
        )
        changed -= taken
        moved -= taken | changed
        notes = []
        if taken:
            notes.append(f"{self._count(taken)} in the table already: --again ingests them once more")
        # No error: an export that is written anew each day is no mistake, and only its owner knows.
        if changed:
            notes.append(
                f"{_listed(changed)} changed since {_they(changed)} ingested: all is ingested, and what was there "
                "before comes again; a capture with --changed-files append takes only new lines"
            )
        if moved:
            notes.append(
                f"{_listed(moved)}: size and time are those of a file that was ingested under another name: if "
                f"{_they(moved)} moved or copied, all records come again"
            )
        return tuple(notes)

    def _known(self, table: CatalogTable, state: State) -> AbstractSet[int]:
        """Those of the fingerprints that the table has."""
        numbers = [*self.files, *self.paths, *self.versions]
        waited = WAITED in state.properties
        if not (numbers and (state.exists or waited)):
            return frozenset()
        # Each version of the table is asked once: that takes a dozen calls to Java.
        if state.version not in self._ingested:
            known = set(table.ingested_files(state, numbers) if state.exists else ())
            if waited and (waiting := quarantine.of(table).load()).exists:
                known |= set(quarantine.of(table).ingested_files(waiting, numbers))
            self._ingested[state.version] = frozenset(known)
        return self._ingested[state.version]

    def _count(self, taken: AbstractSet[str]) -> str:
        if len(self.files) == 1:
            return "the file is"
        return f"{len(taken)} of {counted(len(self.files), 'file')} {'is' if len(taken) == 1 else 'are'}"


def reading_hash(read: Mapping[str, str]) -> int:
    """Return a hash of the way files are read, to be mixed with a file's fingerprint."""
    # Not the number of the reading: whoever removes properties could make one reading another.
    return hashed(json.dumps(read, sort_keys=True))


def read_by(table: CatalogTable, state: State, files: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """Return the properties by which the table has read files, by path, as far as it remembers.

    Args:
        table: the table.
        state: its state.
        files: paths by fingerprint.
    """
    if not (all_readings := readings(state.properties)):
        return {}
    by_reading = {
        number ^ reading_hash(read): (file, read) for number, file in files.items() for read in all_readings
    }
    taken = set(table.ingested_files(state, [*files, *by_reading]))
    # Of files that were taken before the table had a second reading there is no such number.
    latest = {file: all_readings[0] for number, file in files.items() if number in taken}
    return latest | {file: read for number, (file, read) in by_reading.items() if number in taken}


def _they(files: AbstractSet[str]) -> str:
    return "it was" if len(files) == 1 else "they were"


def _listed(files: AbstractSet[str]) -> str:
    unnamed = len(files) - _NAMED
    named = ", ".join(sorted(map(name_text, files))[:_NAMED])
    return named + (f", and {unnamed} more" if unnamed > 0 else "")


_MOST = 16  # of each


@dataclass(frozen=True, slots=True)
class RecentBatches:
    """Observations and plans of the last batches.

    The key of each is the schema with column ids, and the settings, that the batch was observed against.
    ``keys`` are those that the batches of a capture have read.
    """

    keys: KeyCache | None = None

    _observations: LruCache[tuple[Schema, TableSettings], Observation] = field(
        default_factory=lambda: LruCache(_MOST)
    )
    _plans: LruCache[tuple[Schema, RecordShape, TableSettings, frozenset[Path]], Plan] = field(
        default_factory=lambda: LruCache(_MOST)
    )

    def observation(self, scan: BatchScan) -> Observation | None:
        """Return the observation of the last batch for this schema and settings, if the table has columns."""
        return self._observations.get((scan.schema, scan.settings)) if scan.schema.struct.fields else None

    def remember(self, observed: Observed) -> None:
        """Keep the observation of a non-empty batch, if the next one is likely to resemble it."""
        scan = observed.scan
        if scan.repeats and observed.observation.tally.records:
            self._observations.put((scan.schema, scan.settings), observed.observation)

    def plan(
        self,
        schema: Schema,
        shape: RecordShape,
        settings: TableSettings,
        not_rewritten: frozenset[Path] = frozenset(),
    ) -> Plan:
        """Plan a batch as `plan` does, or return the plan of an equal batch."""
        key = schema, shape, settings, not_rewritten
        planned = self._plans.get(key)
        if planned is None:
            planned = plan(*key)
            self._plans.put(key, planned)
        return planned


AGAIN = "nothing was committed; run the batch again once its files are complete"

_SIGNS = {"driftline.decimal", "driftline.thousands"}
_COMPACT = property_of("compact")


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The part of a batch that is the same at each attempt.

    Attributes:
        properties: the batch's settings that the table keeps.
        creation: the layout of a new table, if one is requested.
        files: their stamps before the batch.
        fingerprints: the files that the table has to remember.
        recent: previous batches.
        alone: settings of this batch alone, before those that the table has or keeps.
        beside: further properties that the table gets, which are no settings.
        time: the time at which the batch began.
    """

    table: CatalogTable
    source: Source
    id: str
    properties: Mapping[str, str]
    token: Token | None
    progress: Progress
    retry: Retry
    files: Mapping[str, Stamp]
    creation: Creation | None = None
    fingerprints: FileFingerprints = field(default_factory=FileFingerprints)
    recent: RecentBatches = field(default_factory=RecentBatches)
    alone: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def table_properties(self, state: State) -> dict[str, str]:
        """Return the table properties that the batch sets."""
        before, properties = state.properties, {**state.properties, **self._stated}
        # To `verify`, a pattern of this batch alone is an earlier one as soon as the batch is in.
        once = {key: before.get(key, "") for key in self.alone}
        return {
            **self._new(state),
            **self.properties,
            **self.beside,
            **earlier_patterns(before, self.properties),
            **earlier_patterns({**before, **self.alone}, once),
            # A new table has had one reading, which its settings tell.
            **(with_reading(before, properties) if state.exists or self.alone else {}),
            # By this id an attempt whose commit ended in an error finds itself, and `undo` the batch.
            "driftline.batch": self.id,
            **(self.token.table_properties(state.properties) if self.token is not None else {}),
        }

    def remembered(self, state: State, batch_properties: Mapping[str, str]) -> list[int]:
        """Return the fingerprints by which the table remembers the files.

        Args:
            state: the table's state.
            batch_properties: the properties that the batch sets.
        """
        files = [*self.fingerprints.files, *(self.token.files if self.token is not None else ())]
        properties, by_reading = {**state.properties, **batch_properties, **self.alone}, list[int]()
        if readings(properties):
            hash_ = reading_hash(reading(properties))
            by_reading = [number ^ hash_ for number in files]
        # The last are kept longest: without them a file would be taken twice.
        return [*self.fingerprints.paths, *self.fingerprints.versions, *by_reading, *files]

    def load(self) -> State:
        """Load the table.

        Raises:
            BatchIsInError: the table has the batch.
            DataError: the table has one of the files.
            UsageError: the table has another key.
        """
        state = self.table.load()
        if not state.exists:
            state = quarantine.with_feed(self.table, state)
        elif self.properties:
            check_kept(self.table.name, state.properties, self.properties)
        self.check(state)
        return state

    def check(self, state: State) -> None:
        """Raise BatchIsInError if the table has the batch, DataError if it has one of the files."""
        if self.token is not None:
            self.token.check(self.table.name, state.uuid, state.properties)
        self.fingerprints.check(self.table, state)

    def check_files(self) -> None:
        """Raise DataError if a file in a store has changed: requests may have read different versions."""
        if change := changed({file: stamp for file, stamp in self.files.items() if stamp.mark}):
            raise DataError(f"{self.table.name}: {change}", AGAIN)

    def open(self, state: State) -> Schema:
        """Return the table's schema for which the batch is planned."""
        return mark_unwritable(state.schema, self.table.fillable(state.schema))

    def settings(self, state: State) -> TableSettings:
        """Return the batch's settings; a table that it creates gets the defaults of new tables."""
        properties = {**self._new(state), **state.properties, **self._stated}
        settings = replace(from_properties(properties), as_text=self.table.as_text)
        if settings.csv == UNSTATED or settings.csv.signs == JSON_SIGNS or self._stated.keys() & _SIGNS:
            return settings
        return replace(settings, csv=replace(settings.csv, kept=True))

    @property
    def _stated(self) -> Mapping[str, str]:
        return {**self.properties, **self.alone}

    def _new(self, state: State) -> Mapping[str, str]:
        if state.exists:
            return {}
        # A capture leaves a file with each micro-batch, and has nobody who would compact them.
        compacts = self.token is not None and self.table.can_compact
        return {**NEW_TABLE, **({_COMPACT: "auto"} if compacts else {}), **state.properties}

    def with_own(self, planned: Plan, observation: Observation) -> Plan:
        """Add the columns that the source fills itself to the plan, if there are records."""
        columns = self.source.columns if observation.tally.records else ()
        return with_own(planned, columns) if columns else planned

    def new_definition(self, state: State, planned: Plan) -> Definition | None:
        """Return the definition of the table that the batch creates; None if it exists, or is not created.

        Raises DataError or UsageError if hints or the requested layout do not fit the columns.
        """
        if state.exists or not planned.schema.struct.fields:
            return None
        table = self.table
        settings, blank = self.settings(state), table.blank
        check_declared(table.name, planned.route, settings.fields)
        creation = self.creation or Creation()
        if settings.row_key is not None and not creation.format_version:
            blank = replace(blank, format_version=max(blank.format_version, WITH_VECTORS))
        return creation.definition(table.name, blank, planned.schema, settings, table.parts_of)

    def differences(self, state: State) -> tuple[str, ...]:
        """Compare an existing table with the requested layout; a capture reports the differences once."""
        if self.creation is None or not state.exists or (self.token is not None and not self.token.tried):
            return ()
        table = self.table
        return tuple(self.creation.differences(table.name, table.definition(), table.parts_of))


@dataclass(frozen=True, slots=True)
class Planned:
    """An observed batch, planned for one state of the table. ``counts``: its changes by key, once settled."""

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
    def settings(self) -> TableSettings:
        """The settings that the batch is planned by."""
        return self.observed.scan.settings

    def tasks(self, struct: Struct) -> RowTasks:
        """Return tasks that make the batch's rows of ``struct``."""
        tasks, batch = self.observed.tasks(self.plan, struct), self.batch
        if not (names := self.settings.metadata):
            return tasks
        files = self.observed.scan.request.names
        return tasks.mapped(OriginOfRows.of(struct, names, batch.id, batch.time, files))

    @property
    def brings_nothing(self) -> bool:
        """True if the batch has no records and no truncate."""
        tally = self.observation.tally
        return not (tally.records + tally.rejected or tally.truncated)

    @property
    def is_empty(self) -> bool:
        """True if a micro-batch brings nothing, and needs no commit."""
        return self.batch.token is not None and self.brings_nothing

    @property
    def notes(self) -> Sequence[str]:
        """Notes for a person on how the batch was read, and on other ways if it creates the table."""
        row_key, notes = self.settings.row_key, self.observed.scan.notes(self.observation)
        if row_key is not None and row_key.envelope:
            tally = self.observation.tally
            # Where others have a position, the order of arrival would be worse.
            reasons = [] if tally.records else [bad.reason for bad in tally.reasons]
            notes = [*notes, *arrival_hint(self.batch.table.name, reasons, exists=self.state.exists)]
            return [*notes, *encoded_notes(self.observation.shape, row_key, self._is_settled)]
        if self.plan.changes:
            notes = [*notes, *offset_notes(self.observation.shape, self.plan.changes, self.settings.dates)]
            if self.batch.source.as_text and not self.settings.extended_json:
                notes = [*notes, *extended_note(self.observation.shape)]
        if self.state.exists:
            return notes
        return [*notes, *envelope_note(self.observation.shape)]

    def _is_settled(self, path: Path) -> bool:
        """True if the field already has a column, or its treatment was declared."""
        setting = self.settings.fields.at(path)
        if setting.hint is not None or setting.excluded:
            return True
        return self.state.exists and self.state.schema.find(path) is not None

    def on(self, now: State) -> Planned:
        """Rebase the planned batch on the table's state ``now``.

        Raises Moved if its rows would be written differently.
        """
        if self.state.fits(now):
            return replace(self, state=now)
        settings = self.batch.settings(now)
        if now.exists and self.state.exists and settings == self.settings and not self.plan.conflicts:
            shape = without_excluded(self.observation.shape, settings.fields)
            planned = self.batch.with_own(plan(self.batch.open(now), shape, settings), self.observation)
            same = (planned.changes, planned.route) == (self.plan.changes, self.plan.route)
            # What a column demands of values was looked for only where one
            # of them did when the batch was observed.
            same = same and refits(self.state.schema, now.schema)
            if same and not (planned.conflicts or planned.rewrites):
                return replace(self, state=now, plan=planned)
        raise Moved(f"{self.batch.table.name} has changed since the batch was planned")


def outcome(
    planned: Planned, written: int, quarantined: int, snapshot: int | None, rest: Mapping[str, int | None]
) -> Result:
    """Build the result of a committed batch.

    Args:
        planned: the batch and its plan.
        written: the number of records written.
        quarantined: the number of records in quarantine.
        snapshot: the table's snapshot.
        rest: the number of values that went to the rest, by path.
    """
    batch, state = planned.batch, planned.state
    counted = result(batch.table.name, batch.id, planned.observation, planned.plan, written, quarantined)
    counted = counted.with_rest(rest, planned.settings.fields)
    counted = counted.with_expectations(planned.settings.expect, planned.observation)
    new_definition = batch.new_definition(state, planned.plan) if batch.creation is not None else None
    differences: tuple[str, ...] = ()
    with suppress(DriftlineError, PySparkException, Py4JError):  # the batch may be in
        differences = batch.differences(state)
    hints = (*counted.hints, *planned.notes, *differences, *_late(planned))
    kept = newly_kept(state.properties if state.exists else None, batch.properties)
    return replace(
        counted,
        snapshot=snapshot,
        new_definition=new_definition,
        hints=hints,
        by_key=planned.counts,
        settings=kept,
    )


def _late(planned: Planned) -> list[str]:
    """Return a hint if the source's positions went back."""
    row_key, counts = planned.settings.row_key, planned.counts
    if row_key is None or counts is None:
        return []
    hint = late_hint(planned.batch.table.name, row_key, counts.late, counts.total)
    return [hint] if hint else []


def rest_of(
    transaction: Transaction, planned: Planned, counted: Mapping[str, int] | None
) -> Mapping[str, int | None]:
    """Count the values that went to the rest, by path.

    The batch is already committed: if the counts cannot be read, the paths come without them.

    Args:
        transaction: of the batch.
        planned: the batch.
        counted: the number of values by path in the rest, where tasks have counted them.
    """
    if not planned.plan.route.has_rest:
        return {}
    if counted is not None:
        return most_waiting(counted, planned.plan.schema, planned.settings.mark)
    with suppress(DriftlineError, PySparkException, Py4JError):
        rows = transaction.read_written()
        if rows is not None:
            values = waiting(rows, planned.plan.schema, planned.settings.mark)
            return {path_values.path: path_values.values for path_values in values}
    return paths_of_rest(planned.plan)


def paths_of_rest(planned: Plan) -> Mapping[str, int | None]:
    """Return the paths whose values the plan sends to the rest."""
    paths = (path for field in planned.route.fields for path in field.rest_paths((field.key,)))
    return {spelled_field(path): None for path in paths}


_LOG = logging.getLogger("driftline")


Ended_contra = TypeVar("Ended_contra", contravariant=True)  # a result


class Listener(Protocol[Ended_contra]):
    """A listener to batches, notified when one begins and when it ends. It must return quickly."""

    def begins(self, table: str, batch: str) -> None:
        """A batch of the table, given by its id, is about to be observed."""
        ...

    def ended(self, result: Ended_contra) -> None:
        """The batch was committed, or was empty."""
        ...

    def failed(self, error: BaseException) -> None:
        """The batch failed. The error is raised next."""
        ...


class Listeners(Generic[Ended_contra]):
    """A group of listeners. One that raises an error is logged, and not called again."""

    def __init__(self, listeners: Sequence[Listener[Ended_contra]] = ()) -> None:
        self._listeners = list(listeners)

    def begins(self, table: str, batch: str) -> None:
        """Notify each listener that a batch begins."""
        self._each(lambda listener: listener.begins(table, batch))

    def ended(self, result: Ended_contra) -> None:
        """Notify each listener that the batch ended."""
        self._each(lambda listener: listener.ended(result))

    def failed(self, error: BaseException) -> None:
        """Notify each listener that the batch failed."""
        self._each(lambda listener: listener.failed(error))

    def _each(self, tell: Callable[[Listener[Ended_contra]], None]) -> None:
        for listener in tuple(self._listeners):
            try:
                tell(listener)
            except Exception as error:
                with suppress(ValueError):  # another thread has removed it
                    self._listeners.remove(listener)
                # What others say may have a secret in it.
                name, cause = type(listener).__name__.lower(), type(error).__name__
                _LOG.warning("%s ends: %s; batches go on", name, cause)


def notify_listener(
    batch: BatchRequest,
    listener: Listener[Result],
    take: Callable[[BatchRequest], Result],
    spent: float = 0.0,
) -> Result:
    """Ingest the batch by ``take``, for which ``spent`` seconds have prepared, and notify the listener."""
    began = time.monotonic() - spent
    listener.begins(batch.table.name, batch.id)
    try:
        ended = take(batch)
    except BaseException as error:
        listener.failed(error)
        raise
    ended = replace(
        ended,
        bytes_read=batch.source.size(batch.files),
        seconds=time.monotonic() - began,
        commit_seconds=batch.retry.committing,
        retries=batch.retry.conflicts,
    )
    listener.ended(ended)
    return ended
