"""The target of a capture, a table or the tables of a pattern, and what a batch did to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.capture.checkpoint import Checkpoint, TableEntry
from driftline.capture.kafka_client import LostOffsets, LostOffsetsJson
from driftline.capture.resuming import Resumption
from driftline.core.history.batch_properties import PREFIX, Captured, Token, check_table, other_checkpoint
from driftline.core.schema.naming import QUARANTINE
from driftline.core.support import as_json
from driftline.errors import DataError, DriftlineError
from driftline.formats.base import CatalogTable, State
from driftline.ingest.assignment import Assignment
from driftline.ingest.attempts import UNKNOWN, Options, ingest
from driftline.ingest.batch import RecentBatches
from driftline.ingest.fan_out import (
    RESTORE,
    FanOut,
    FanOutError,
    FanOutJson,
    FanOutResult,
    MicroBatch,
    hinting_at_restore,
    older_checkpoint,
)
from driftline.ingest.result import Result, ResultJson
from driftline.ingest.route import named_values
from driftline.ingest.router import tables_of
from driftline.keys.stored import KeyCache
from driftline.quarantine import table as quarantine
from driftline.quarantine.replays import has_replay
from driftline.runtime.threads import at_once
from driftline.sources.scan import Source

PUBLISHING = ("quarantining", "committing")  # phases before which nothing of a table's batch is visible
_TABLES_AT_ONCE = 8  # that are loaded


class BatchJson(ResultJson):
    """A batch of a capture."""

    capture: str
    epoch: int
    tombstones: int
    lag: int | None
    lost: list[LostOffsetsJson]


@dataclass(frozen=True, slots=True)
class Batch:
    """The outcome of one batch.

    Attributes:
        epoch: the number of Spark's micro-batch, or of a list of files.
        lag: files or offsets still to come, if known.
        lost: offsets that were skipped because they were gone.
        changed_files: the number of files that had changed since they were taken, by their fate: ``append``,
            ``again`` or ``skip``.
    """

    capture: str
    epoch: int
    result: Result
    tombstones: int = 0
    lag: int | None = None
    lost: tuple[LostOffsets, ...] = ()
    changed_files: Mapping[str, int] = field(default_factory=dict)

    @property
    def results(self) -> tuple[Result, ...]:
        """The result of the table."""
        return (self.result,)

    def with_notes(self, notes: Sequence[str]) -> Batch:
        """The batch with notes on how it was found."""
        return replace(self, result=replace(self.result, hints=(*self.result.hints, *notes)))

    def to_dict(self) -> BatchJson:
        """The form that `--json` prints."""
        return as_json(BatchJson, self, **self.result.to_dict())

    def to_dicts(self) -> Iterator[Mapping[str, Any]]:
        """Yield what `--json` prints."""
        yield self.to_dict()


class PatternBatchJson(FanOutJson):
    """The sums of a batch of a capture into the tables of a pattern."""

    capture: str
    epoch: int
    lag: int | None
    lost: list[LostOffsetsJson]
    hints: list[str]


@dataclass(frozen=True, slots=True)
class PatternBatch:
    """The outcome of one batch into the tables of a pattern; the attributes are those of `Batch`.

    Attributes:
        notes: on how it was found.
    """

    capture: str
    epoch: int
    result: FanOutResult
    lag: int | None = None
    lost: tuple[LostOffsets, ...] = ()
    changed_files: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """The results of the tables."""
        return self.result.results

    def with_notes(self, notes: Sequence[str]) -> PatternBatch:
        """The batch with notes on how it was found."""
        return replace(self, notes=tuple(notes))

    def to_dicts(self) -> Iterator[Mapping[str, Any]]:
        """Yield what `--json` prints: an object a table, then one with sums."""
        for result in self.results:
            of_table = Batch(self.capture, self.epoch, result, lag=self.lag, lost=self.lost)
            yield {**of_table.to_dict(), "pattern": self.result.pattern}
        yield as_json(PatternBatchJson, self, hints=list(self.notes), **self.result.sums())


AnyBatch: TypeAlias = Batch | PatternBatch


class CaptureTarget(Protocol):
    """The target of a stream, in the stream's own session."""

    def must_lack(self, token: Token) -> None:
        """Raise BatchIsInError if all of the batch is in, and errors as `Token.check`."""
        ...

    def ingest(self, source: Source, token: Token, options: Options, check: Callable[[], None]) -> AnyBatch:
        """Ingest a batch.

        Args:
            source: of the batch.
            token: of the batch.
            options: of the batch, without its token.
            check: raises DataError if the source has changed; called while nothing is visible.
        """
        ...

    def note(self, ended: AnyBatch, token: Token, number: int) -> None:
        """Note in the checkpoint what the target does not say of the batch that has ended.

        Args:
            ended: its outcome.
            token: of the batch.
            number: of the batch, in the checkpoint.
        """
        ...

    def left(self) -> DriftlineError | None:
        """The error with which the capture ends though all batches are in; None without any."""
        ...


@dataclass(slots=True)
class TableTarget:
    """A table."""

    table: CatalogTable
    checkpoint: Checkpoint
    recent: RecentBatches = field(default_factory=lambda: RecentBatches(KeyCache()))
    _commits: bool = field(default=False, init=False)  # the batch has come to its commit

    def must_lack(self, token: Token) -> None:
        """Raise BatchIsInError if the table has the batch, and errors as `Token.check`."""
        state = self.table.load()
        token.check(self.table.name, state.uuid, state.properties)

    def ingest(self, source: Source, token: Token, options: Options, check: Callable[[], None]) -> Batch:
        """Ingest a batch into the table, as `CaptureTarget.ingest`."""
        self._commits = False

        def progress(phase: str) -> None:
            """Tell of a phase, and check the source before anything is visible."""
            options.progress(phase)
            self._commits = self._commits or phase == "committing"
            if phase in PUBLISHING:
                check()

        options_of_batch = replace(options, token=token, progress=progress, recent=self.recent)
        result = ingest(self.table, source, options_of_batch)
        return Batch(token.name, token.epoch, result, result.tombstones)

    def note(self, ended: AnyBatch, token: Token, number: int) -> None:
        """Note the table's uuid, or that the batch brought nothing."""
        checkpoint = self.checkpoint
        if not self._commits:  # there was nothing to commit
            last = Captured.of(token.name, self.table.load().properties)
            checkpoint.settle(last, number, token.contents)
        elif checkpoint.uuid is None or checkpoint.since is None:
            checkpoint.remember(self.table.load().uuid, number)

    def left(self) -> None:
        """None: a batch that is in is whole."""


@dataclass(slots=True)
class PatternTarget:
    """The tables of a pattern. ``shared``: the lake's folder, which all tasks see, if known."""

    fan_out: FanOut
    checkpoint: Checkpoint
    shared: str | None
    _failed: FanOutResult | None = field(default=None, init=False)  # with the tables in error

    def must_lack(self, token: Token) -> None:
        """Pass: each table is asked once its share is known."""

    def ingest(
        self, source: Source, token: Token, options: Options, check: Callable[[], None]
    ) -> PatternBatch:
        """Ingest a batch into the tables that lack it, as `CaptureTarget.ingest`."""
        checkpoint, fan_out = self.checkpoint, self.fan_out
        _adopt_replayed(token.name, fan_out, checkpoint)
        kept, known = checkpoint.assigned(token.epoch), checkpoint.tables

        def of_table(name: str) -> Token:
            """The batch's token for a table."""
            return replace(token, table=known[name].uuid if name in known else None)

        def keep(assignment: Assignment) -> None:
            """Keep the tables of values for later attempts."""
            check()
            checkpoint.assign(token.epoch, assignment.to_json())

        assigned = None
        if kept is not None:
            ascii_only = fan_out.catalog.ascii_names
            assigned = Assignment(fan_out.pattern, ascii_only=ascii_only).with_tables(kept)
        result = fan_out.ingest(source, options, self.shared, MicroBatch(of_table, assigned, keep))
        if result.waiting:
            before = self._failed or FanOutResult(result.pattern)
            # Of each table the last one, as a capture may go on like this for weeks.
            last = {of_table.table: of_table for of_table in (*before.results, *result.results)}
            self._failed = FanOutResult(
                result.pattern,
                tuple(last.values()),
                failed={**before.failed, **result.failed},
                waiting=tuple(dict.fromkeys([*before.waiting, *result.waiting])),
            )
        return PatternBatch(token.name, token.epoch, result)

    def note(self, ended: AnyBatch, token: Token, number: int) -> None:
        """Note the uuids and epochs of the tables that have the batch, or that it brought nothing."""
        assert isinstance(ended, PatternBatch)
        checkpoint, known = self.checkpoint, self.checkpoint.tables
        # A table whose records are all in quarantine has no commit; one that deletes rows has one.
        written = [result.table for result in ended.results if result.snapshot is not None]
        waiting = [f"{table}{QUARANTINE}" for table in ended.result.waiting]
        names = [*written, *waiting, *ended.result.passed_over]
        if not names:
            _, state = _last_table(token.name, self.fan_out, checkpoint)
            checkpoint.settle(Captured.of(token.name, state.properties), number, token.contents)
            return
        uuids = {
            name: known[name].uuid if name in known else self.fan_out.catalog.table(name).load().uuid
            for name in names
        }
        checkpoint.remember_tables({name: TableEntry(uuid, token.epoch) for name, uuid in uuids.items()})

    def left(self) -> DriftlineError | None:
        """The error for tables that did not get their records, which wait in quarantine; None without any."""
        return None if self._failed is None else FanOutError(self._failed)


def resumption_of(name: str, fan_out: FanOut, checkpoint: Checkpoint) -> Resumption:
    """The state of a capture into the tables of a pattern before it begins.

    Raises DataError if a table and the checkpoint are of different times.
    """
    catalog = fan_out.catalog
    _adopt_replayed(name, fan_out, checkpoint)
    last, state = _last_table(name, fan_out, checkpoint)
    noted = (table for table in checkpoint.tables if not table.endswith(QUARANTINE))
    names = list(dict.fromkeys([*noted, *tables_of(catalog, fan_out.pattern)]))

    def check(table: str) -> None:
        """Compare a table of the pattern with the checkpoint; one that is in error may be left as it is."""
        try:
            state = catalog.table(table).load()
            # Another table of the namespace may be another capture's. It is asked once records go there.
            if table in checkpoint.tables or named_values(fan_out.pattern, state.properties):
                _check(name, table, state, checkpoint)
        except (DataError, PySparkException, Py4JError, OSError) as error:
            fan_out.tolerated(table, error)

    at_once(last.spark, check, names, _TABLES_AT_ONCE)
    return Resumption(name, last, state, checkpoint, None, of_pattern=True)


def _adopt_replayed(capture: str, fan_out: FanOut, checkpoint: Checkpoint) -> None:
    """Go on with tables that were made anew by the replay of what waited once those before were gone."""
    entries = checkpoint.tables
    anew = []
    for waiting, since in entries.items():
        name = waiting.removesuffix(QUARANTINE)
        noted = entries.get(name)
        if name == waiting or noted is None or noted.epoch >= since.epoch:
            continue
        table = fan_out.catalog.table(name)
        with suppress(DataError, PySparkException, Py4JError, OSError):  # it is told by who needs the table
            state = table.load()
            is_another = (
                state.exists and state.uuid != noted.uuid and Captured.of(capture, state.properties) is None
            )
            if is_another and has_replay(quarantine.of(table).load(), state.properties):
                anew.append(name)
    if anew:
        checkpoint.forget_tables(anew)


def must_be_whole(resumption: Resumption) -> None:
    """Raise DataError for a micro-batch that some tables of a pattern may have, and others not."""
    checkpoint, settled = resumption.checkpoint, resumption.checkpoint.settled(resumption.last)
    epochs = [entry.epoch for entry in checkpoint.tables.values()]
    epochs += [checkpoint.epoch_of(settled["number"])] if settled else []
    if checkpoint.last_assigned > max(epochs, default=-1):
        raise DataError(
            f"capture {resumption.name} was broken off in batch {checkpoint.last_assigned}, which some tables may have",
            "start the capture first: it brings the others what they lack of it",
        )


def _check(name: str, table: str, state: State, checkpoint: Checkpoint) -> None:
    """Raise DataError if a table of a pattern and the checkpoint of the capture differ."""
    noted, last = checkpoint.tables.get(table), Captured.of(name, state.properties)
    with hinting_at_restore():
        if noted is not None:
            check_table(name, noted.uuid, table, state.uuid)
        if last is not None and last.stream != checkpoint.stream:
            raise other_checkpoint(name, table, last)
    if noted is not None and (last is None or last.epoch < noted.epoch):
        has = "no batch" if last is None else f"batches up to {last.epoch}"
        raise DataError(
            f"{table} has {has} of capture {name}, which brought it batch {noted.epoch}: it may be restored",
            RESTORE,
        )
    if last is not None and last.epoch > checkpoint.last_assigned:
        raise older_checkpoint(name, table, last.epoch, checkpoint.last_assigned)


def _last_table(name: str, fan_out: FanOut, checkpoint: Checkpoint) -> tuple[CatalogTable, State]:
    """The table that got the last batch that brought anything; before the first one, any table."""
    entries, catalog = checkpoint.tables, fan_out.catalog
    if not entries:
        table = catalog.table(fan_out.pattern.example)
        return table, table.load()
    last = max(entries, key=lambda table: (entries[table].epoch, table))
    table, entry = catalog.table(last), entries[last]
    if not last.endswith(QUARANTINE):  # which need not be there any more
        try:
            state = table.load()
            with hinting_at_restore():
                check_table(name, entry.uuid, last, state.uuid)
            return table, state
        except (DataError, PySparkException, Py4JError, OSError) as error:
            fan_out.tolerated(last, error)
    # The checkpoint knows what it brought, too.
    return table, replace(UNKNOWN, properties={f"{PREFIX}{name}": f"{checkpoint.stream}:{entry.epoch}"})
