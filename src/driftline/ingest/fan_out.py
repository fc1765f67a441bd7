"""Ingests one batch into many tables, each as if its records had come alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypedDict, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.history.batch_properties import BatchIsInError, Captured, ReplacedTable, Token
from driftline.core.schema.text import counted
from driftline.core.settings.properties import NEW_TABLE, as_properties, from_properties
from driftline.core.settings.row_key import KEY_SETTINGS, RowKey
from driftline.core.settings.table import TableSettings
from driftline.core.support import as_json
from driftline.errors import DataError, DriftlineError, UsageError
from driftline.formats.base import CatalogTable, State
from driftline.formats.lakes import Catalog
from driftline.ingest import attempts
from driftline.ingest.assignment import MAX_TABLES, Assignment
from driftline.ingest.attempts import UNKNOWN, DealtShares, Options, PreparedBatch
from driftline.ingest.batch import FileFingerprints, Listener, RecentBatches
from driftline.ingest.deal import Share, SpoolSlice
from driftline.ingest.dealt import Dealable, Spool, dealable, spooled
from driftline.ingest.pattern import TOPIC, Pattern, is_other
from driftline.ingest.result import Result
from driftline.ingest.route import Route, named_values
from driftline.ingest.router import Router
from driftline.ingest.together import Outcome, commit_alone, commit_together
from driftline.keys.stored import KeyCache
from driftline.quarantine import table as quarantine
from driftline.runtime.failure import explained, java_ended
from driftline.runtime.shown import Shown
from driftline.runtime.threads import at_once
from driftline.sources.files import stamps
from driftline.sources.scan import Source
from driftline.sources.spooled import folder_in, place_of, told_where

_VIOLATIONS = 20  # that an error lists
_TABLES_AT_ONCE = 4  # more gain nothing: they take turns in Python, and in the catalog
RESTORE = (
    "restore the checkpoint and all tables of the pattern to one time; or give the capture another name, "
    "and new tables, to ingest everything again"
)
_ANEW = (
    "go on without the rows that it had: pass --on-table-error quarantine, then --replay ingests what waits "
    "into a new table, with which the capture goes on"
)
T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", DataError, UsageError)
# Settings by which records are taken out of files: the files are read once, for all tables.
_READ_BY = ("records", "max_record_bytes", "hive")
_CSV_READ_BY = ("delimiter", "quote", "encoding", "escape", "header", "skip_lines", "comment", "trim")


class FanOutJson(TypedDict):
    """The sums of a batch into many tables. ``tables``: the number of those that got records."""

    pattern: str
    tables: int
    rows_read: int
    rows_written: int
    rows_quarantined: int
    passed_over: list[str]
    by_case: dict[str, list[str]]
    failed: dict[str, str]
    waiting: list[str]


@dataclass(frozen=True, slots=True, repr=False)
class FanOutResult(Shown):
    """The result of a batch into many tables. Counts are records.

    Attributes:
        results: of the tables that got records, by the place of the first.
        passed_over: tables that have the files already.
        by_case: the spellings of values that share a table, by its name.
        failed: the errors of tables that did not get their records, by name.
        waiting: tables whose records wait whole in their quarantines, for an error of the table.
    """

    pattern: str
    results: tuple[Result, ...] = ()
    passed_over: tuple[str, ...] = ()
    by_case: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[str, DriftlineError] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()

    @property
    def committed(self) -> tuple[Result, ...]:
        """The results of the tables that got their records."""
        return tuple(result for result in self.results if result.table not in self.failed)

    @property
    def rows_read(self) -> int:
        """The number of records that were read for these tables."""
        return sum(result.rows_read for result in self.results)

    @property
    def rows_written(self) -> int:
        """The number of records written."""
        return sum(result.rows_written for result in self.results)

    @property
    def rows_quarantined(self) -> int:
        """The number of records in quarantine."""
        return sum(result.rows_quarantined for result in self.results)

    def to_dicts(self) -> Iterator[Mapping[str, Any]]:
        """Yield what `ingest --json` prints: an object a table, then one with sums."""
        for result in self.results:
            yield {**result.to_dict(), "pattern": self.pattern}
        yield self.sums()

    def sums(self) -> FanOutJson:
        """The form of the sums that `--json` prints."""
        return as_json(
            FanOutJson,
            self,
            tables=len(self.results),
            by_case={table: list(spellings) for table, spellings in self.by_case.items()},
            failed={table: error.message for table, error in self.failed.items()},
        )


class FanOutError(DataError):
    """Tables that did not get their records, while others did. ``result``: what the others got."""

    def __init__(self, result: FanOutResult) -> None:
        waiting, lacking = result.waiting, {*result.failed, *result.waiting}
        listed = [f"{table}: {error.message}" for table, error in result.failed.items()]
        if waiting:
            listed.append(
                f"the records of {_listed(waiting)} wait whole in quarantine: once the table is mended, --replay ingests them"
            )
        if result.failed.keys() - {*waiting}:
            listed.append("the same command again brings what is missing")
        super().__init__(
            f"{result.pattern}: {counted(len(lacking), 'table')} did not get their records, "
            f"{len({of_table.table for of_table in result.results} - lacking)} did",
            "\n  ".join(listed),
        )
        self.result = result


class TablesHaveFiles(DataError):
    """All tables have their shares of the files already. ``result``: that of a batch that brings nothing."""

    def __init__(self, result: FanOutResult) -> None:
        super().__init__(
            f"{result.pattern}: all tables have the files already: {_listed(result.passed_over)}",
            "pass --again to ingest again as new rows",
        )
        self.result = result


class FanOutAuditError(DataError):
    """Tables whose batch fails its audit: nothing is committed. ``result``: as it would have been."""

    def __init__(self, result: FanOutResult) -> None:
        violations = [(of.table, violation) for of in result.results for violation in of.audit]
        counts = Counter(violation.check for _, violation in violations)
        listed = [f"{table}: {violation}" for table, violation in violations[:_VIOLATIONS]]
        listed += [f"and {len(violations) - _VIOLATIONS} more"] * (len(violations) > _VIOLATIONS)
        super().__init__(
            f"{result.pattern}: the batch fails its audit, and nothing of it is committed: "
            f"{', '.join(f'{count} {check}' for check, count in counts.items())} "
            f"in {counted(sum(bool(of.audit) for of in result.results), 'table')}",
            "\n  ".join(listed),
        )
        self.result = result


def error_of_table(name: str, error: BaseException) -> DataError | None:
    """The error in words if the table itself is in error; None if what came for it is, or the machine."""
    cause = error.__cause__ if isinstance(error, DataError) else error
    if isinstance(error, ReplacedTable):
        return error
    if not isinstance(cause, PySparkException | Py4JError | OSError) or java_ended(cause):
        return None
    if isinstance(error, DataError):
        return error
    message, hint = explained(cause)
    return DataError(message if name in message else f"{name}: {message}", hint)


@dataclass(frozen=True, slots=True)
class TableShare:
    """A table that is to get a share of a batch.

    Attributes:
        state: the table as it was loaded, without anything if it is in error.
        error: its own, for which its share is to wait in its quarantine.
        waits: its share waits there since an earlier attempt.
    """

    table: CatalogTable
    state: State
    share: Share
    error: DataError | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a capture, which each table gets once.

    Attributes:
        token: of a table, by its name.
        assigned: the tables of values from an earlier attempt; None without one.
        keep: called with those of this attempt once all tables are written, and before the first one commits.
    """

    token: Callable[[str], Token]
    assigned: Assignment | None
    keep: Callable[[Assignment], None]

    def is_in(self, table: CatalogTable, state: State) -> bool:
        """True if a table has its share.

        Raises DataError if the table is not the capture's, or has later micro-batches.
        """
        token = self.token(table.name)
        last = Captured.of(token.name, state.properties)
        try:
            with hinting_at_restore():
                token.check(table.name, state.uuid, state.properties)
        except BatchIsInError:
            assert last is not None
            if last.epoch > token.epoch:
                raise older_checkpoint(token.name, table.name, last.epoch, token.epoch) from None
            return True
        return False

    def waits(self, table: CatalogTable) -> bool:
        """True if the share of a table waits whole in its quarantine since an earlier attempt."""
        token = self.token(table.name)
        return token.tried and token.waits(quarantine.of(table).load().properties)


@dataclass(slots=True)
class FanOut:
    """The tables of a pattern.

    Attributes:
        settings: of a table, by its name.
        max_tables: the number of tables that the pattern makes at most.
        recent: the batches before, by table.
        keys: of rows that the batches of a capture have read, of all tables together.
        listener: notified of each batch once, with all tables, unless it is only planned.
    """

    catalog: Catalog
    pattern: Pattern
    settings: Callable[[str], Mapping[str, Any]]
    max_tables: int = MAX_TABLES
    recent: dict[str, RecentBatches] = field(default_factory=dict)
    keys: KeyCache | None = None
    listener: Listener[FanOutResult] | None = None

    def ingest(
        self,
        source: Source,
        options: Options,
        shared: str | None,
        micro_batch: MicroBatch | None = None,
        *,
        dry_run: bool = False,
    ) -> FanOutResult:
        """Deal a source, and ingest each table's share: all are written before the first one commits.

        Args:
            source: files, rows in memory, a DataFrame or messages.
            options: of each table's batch, without settings.
            shared: the lake's folder, which all tasks see, if known.
            micro_batch: of a capture; None for a batch by itself.
            dry_run: only plan.

        Raises:
            UsageError: the source cannot be dealt, or a table cannot take part. Nothing is written.
            DataError: a batch cannot go into its table. Nothing is written.
            FanOutError: some tables did not get their records.
        """
        if dry_run or (listener := self.listener) is None:
            return self._deal(source, options, shared, micro_batch, dry_run=dry_run)
        batch = "" if micro_batch is None else micro_batch.token(self.pattern.text).batch
        listener.begins(self.pattern.text, batch)
        try:
            result = self._deal(source, options, shared, micro_batch)
        except BaseException as error:
            listener.failed(error)
            raise
        listener.failed(FanOutError(result)) if result.failed else listener.ended(result)
        return result

    def _deal(
        self,
        source: Source,
        options: Options,
        shared: str | None,
        micro_batch: MicroBatch | None,
        *,
        dry_run: bool = False,
    ) -> FanOutResult:
        read_by = self._settings(self.pattern.text, {})
        batch = dealable(source, self.pattern, read_by)
        spark = batch.spark
        room = place_of(spark, shared)
        with told_where(spark, room), folder_in(room) as folder:
            options.progress("dealing")
            assigned = None if micro_batch is None else micro_batch.assigned
            router = Router.of(self.catalog, self.pattern, self.max_tables, assigned)
            spool = spooled(batch, self.pattern, router.tables, read_by, folder)
            dealt = DealtBatch(self, batch, options, spool, read_by, micro_batch, dry_run=dry_run)
            return self._ingest(dealt, router)

    def _ingest(self, batch: DealtBatch, router: Router) -> FanOutResult:
        destinations = batch.at_once(batch.destination, batch.spool.shares.items())
        passed_over = tuple(to.table.name for to in destinations if not (to.share.slices or to.waits))
        has_all = bool(destinations) and not any(to.share.slices for to in destinations)
        by_case = {to.table.name: to.share.spellings for to in destinations if len(to.share.spellings) > 1}
        waiting = tuple(to.table.name for to in destinations if to.waits)
        failed: dict[str, DriftlineError] = {
            to.table.name: to.error for to in destinations if to.error is not None
        }
        before = FanOutResult(self.pattern.text, (), passed_over, by_case, failed, waiting)
        if has_all and batch.micro_batch is None and not batch.dry_run:
            raise TablesHaveFiles(replace(before, passed_over=tuple(to.table.name for to in destinations)))
        destinations = [to for to in destinations if to.share.slices]
        if batch.dry_run:
            return replace(before, results=tuple(batch.at_once(batch.planned, destinations)))
        prepared: list[PreparedBatch] = []

        def prepare(to: TableShare) -> tuple[TableShare, PreparedBatch] | None:
            """Write a share. After an error in another table, it is taken back."""
            with suppress(BatchIsInError):  # another process brought it meanwhile
                ready = batch.prepared(to)
                prepared.append(ready)
                return to, ready
            return None

        with abandoned(prepared), ExitStack() as stack:
            in_order = [written for written in batch.at_once(prepare, destinations) if written is not None]
            batch.audit([ready for _, ready in in_order], before, stack)
            if batch.micro_batch is not None:
                batch.micro_batch.keep(router.assignment)
            ended = batch.committed(in_order)
        results = tuple(result for result, _ in ended if result is not None)
        told = {to.table.name for (to, _), outcome in zip(in_order, ended, strict=True) if any(outcome)}
        passed_over += tuple(to.table.name for to in destinations if to.table.name not in told)
        failed |= {to.table.name: error for (to, _), (_, error) in zip(in_order, ended, strict=True) if error}
        waiting += tuple(result.table for result in results if result.table in failed)
        result = replace(before, results=results, passed_over=passed_over, failed=failed, waiting=waiting)
        # A capture goes on behind tables whose records wait, and tells of them at its end.
        if failed.keys() - ({*waiting} if batch.micro_batch is not None else set()):
            raise FanOutError(result)
        return result

    def tolerated(self, name: str, error: BaseException) -> DataError:
        """The error of a table whose records are to wait in its quarantine; raises any other ``error``."""
        failed = error_of_table(name, error)
        if failed is None or not self._settings(name, {}).table_may_fail:
            raise error
        return failed

    def settings_of(self, name: str) -> Mapping[str, Any]:
        """The settings that a table is given; `_other` gets none of a key."""
        given = self.settings(name)
        if not is_other(name):
            return given
        # It takes records of many kinds, which a key of one of them would have replace each other.
        others = {setting: value for setting, value in given.items() if setting not in KEY_SETTINGS}
        # An envelope decides how the files are read, and they are read once for all tables.
        return {**others, "hive": "off"} if given.get("envelope") else others

    def _settings(self, name: str, properties: Mapping[str, str]) -> TableSettings:
        """The settings of a table with these properties."""
        return from_properties({**NEW_TABLE, **properties, **as_properties(self.settings_of(name))})


@dataclass(frozen=True, slots=True)
class DealtBatch:
    """A batch that was dealt. ``read_by``: the settings by which its files were read."""

    fan_out: FanOut
    source: Dealable
    options: Options
    spool: Spool
    read_by: TableSettings
    micro_batch: MicroBatch | None
    dry_run: bool

    def at_once(self, work: Callable[[T], R], tables: Iterable[T]) -> list[R]:
        """Do the work for a few tables at a time."""
        return at_once(self.source.spark, work, tables, _TABLES_AT_ONCE)

    def destination(self, shared: tuple[str, Share]) -> TableShare:
        """Load a table, and leave out what it has already. Raises UsageError if it cannot take part."""
        name, share = shared
        table = self.fan_out.catalog.table(name)
        try:
            return self._destination(table, share)
        except (DriftlineError, PySparkException, Py4JError, OSError) as error:
            if self.dry_run:
                raise
            failed = self.fan_out.tolerated(name, error)
            self._tell(name, failed)
            return self._not_waiting(
                TableShare(table, UNKNOWN, share, failed), self.fan_out._settings(name, {})
            )

    def _destination(self, table: CatalogTable, share: Share) -> TableShare:
        name, state = table.name, quarantine.with_feed(table, table.load())
        settings = self.fan_out._settings(name, state.properties)
        pattern = self.fan_out.pattern.text
        if settings.row_key is not None:
            if settings.row_key.envelope and not self.source.as_text:
                raise UsageError(
                    f"{pattern}: messages in an envelope are dealt as JSON, and these records come as columns",
                    "pass them as JSON, or ingest them table by table",
                )
            _must_stay(self.fan_out.pattern, name, settings.row_key)
            _must_be_spelled_alike(name, share, state)
            if settings.row_key.deletes_by_null and settings.row_key.envelope != "debezium":
                self._must_name_nulls(name)
        own, common = _read_by(settings, self.source.format), _read_by(self.read_by, self.source.format)
        if setting := next((setting for setting in common if own[setting] != common[setting]), None):
            raise UsageError(
                f"{pattern}: {name} has {setting} = {own[setting]}, and the files are read once for all tables, by {common[setting]}",
                f"pass --set {setting}=VALUE, which counts for all of them",
            )
        if self.micro_batch is not None:
            slices = [] if self.micro_batch.is_in(table, state) else share.slices
        else:
            slices = self._lacking(table, state, share.slices)
        return self._not_waiting(TableShare(table, state, replace(share, slices=slices)), settings)

    def _not_waiting(self, to: TableShare, settings: TableSettings) -> TableShare:
        """The share without what waits whole in the quarantine, since the table was in error."""
        waiting, slices = quarantine.of(to.table), to.share.slices
        if self.micro_batch is not None:
            waits = slices and self.micro_batch.waits(to.table)
            lacking = [] if waits else slices
        else:
            lacking = (
                self._lacking(waiting, waiting.load(), slices)
                if slices and settings.table_may_fail
                else slices
            )
        return replace(to, share=replace(to.share, slices=lacking), waits=len(lacking) < len(slices))

    def _must_name_nulls(self, name: str) -> None:
        """Raise UsageError for null values that may delete rows, and name no table."""
        if self.spool.nulls:
            raise UsageError(
                f"{self.fan_out.pattern.text}: {name} deletes rows by null values, and these have nothing that names a table",
                "have {_topic} or {_key} name the tables, which null values have too",
            )

    def _lacking(self, table: CatalogTable, state: State, slices: list[SpoolSlice]) -> list[SpoolSlice]:
        """The slices of files that the table does not have."""
        source = self._dealt(slices)
        named = stamps(source.files) if source.originals is None else source.originals
        fingerprints = FileFingerprints.of(source, named, reingest=self.options.reingest)
        taken = set(fingerprints.taken(table, state))
        if taken >= set(named) and named:
            return []
        return [part for part in slices if part.file not in taken]

    def planned(self, to: TableShare) -> Result:
        """Plan a table's share, and write nothing."""
        return attempts.ingest(to.table, self._dealt(to.share.slices), self._options(to), dry_run=True)

    def prepared(self, to: TableShare) -> PreparedBatch:
        """Write a table's share, visible to nobody; whole into its quarantine if the table is in error."""
        name, failed = to.table.name, to.error
        if failed is None:
            try:
                return attempts.prepare(to.table, self._dealt(to.share.slices), self._options(to))
            except DataError as error:
                if error_of_table(name, error) is None or not self._may_fail(to):
                    raise _named(name, error) from error
                failed = error
            except UsageError as error:
                raise _named(name, error) from error
        return self._set_aside(to, failed)

    def audit(self, prepared: Sequence[PreparedBatch], before: FanOutResult, stack: ExitStack) -> None:
        """Check what all tables are to get, before the first one commits.

        ``stack``: holds what a check needs that is made again after a conflict.

        Raises FanOutAuditError if one fails, and its records are not to wait in quarantine.
        """
        audited = [ready for ready in prepared if ready.error is None and ready.ready is not None]
        if self.options.audit.of_shares is not None and audited:
            written = [ready.ready.prepared for ready in audited if ready.ready is not None]
            fan_out = self.fan_out
            elsewhere = {*self.spool.shares} - {ready.table.name for ready in audited}
            shares = DealtShares(fan_out.catalog, fan_out.pattern, self.source, written, elsewhere)
            self.options.progress("auditing")
            check = stack.enter_context(self.options.audit.of_shares(shares))
            for ready in audited:
                ready.attempts.audit = replace(
                    ready.attempts.audit, checks=[*ready.attempts.audit.checks, check]
                )
        violations = self.at_once(PreparedBatch.violations, prepared)
        if any(violations) and self.options.audit.on_failure == "stop":
            error = FanOutAuditError(replace(before, results=tuple(ready.failed() for ready in prepared)))
            for ready, of_table in zip(prepared, violations, strict=True):
                if of_table:
                    self._tell(ready.table.name, error)
            raise error

    def _set_aside(self, to: TableShare, error: DataError) -> PreparedBatch:
        return attempts.set_aside(to.table, self._dealt(to.share.slices), self._options(to), error)

    def committed(
        self, written: Sequence[tuple[TableShare, PreparedBatch]]
    ) -> list[tuple[Result | None, DriftlineError | None]]:
        """Commit the batches: at once if the lake can, else a few tables at a time.

        Returns the result of each, and the error of its table, which keeps no other's records. Neither means
        that another process brought the batch meanwhile.
        """
        catalog, prepared = self.fan_out.catalog, [ready for _, ready in written]
        if catalog.commits_together:
            outcomes = commit_together(prepared)
        else:
            outcomes = at_once(self.source.spark, commit_alone, prepared, catalog.commits_at_once)
        return [self._ended(*each, outcome) for each, outcome in zip(written, outcomes, strict=True)]

    def _ended(
        self, to: TableShare, ready: PreparedBatch, outcome: Outcome
    ) -> tuple[Result | None, DriftlineError | None]:
        """The result and the error of a table; where it may be in error, its records wait."""
        if not isinstance(outcome, DriftlineError):
            return outcome, None if outcome is None else ready.error
        failed = error_of_table(to.table.name, outcome)
        # What may be visible must not come a second time.
        if failed is None or not ready.invisible or not self._may_fail(to):
            return None, outcome
        waiting = self._set_aside(to, failed)
        try:
            return waiting.commit(), failed
        except DriftlineError as error:
            return None, error
        finally:
            waiting.abandon()

    def _may_fail(self, to: TableShare) -> bool:
        return self.fan_out._settings(to.table.name, to.state.properties).table_may_fail

    def _tell(self, name: str, error: DataError) -> None:
        """Notify the listener of an error by which a table's share ends before its commit."""
        if (listener := self.options.listener) is not None:
            token = None if self.micro_batch is None else self.micro_batch.token(name)
            listener.begins(name, "" if token is None else token.batch)
            listener.failed(error)

    def _dealt(self, slices: Sequence[SpoolSlice]) -> Source:
        return self.spool.source(self.source, slices)

    def _options(self, to: TableShare) -> Options:
        name = to.table.name
        return replace(
            self.options,
            settings=self.fan_out.settings_of(name),
            properties=_route(self.fan_out.pattern, to),
            token=None if self.micro_batch is None else self.micro_batch.token(name),
            recent=self.fan_out.recent.setdefault(name, RecentBatches(self.fan_out.keys)),
        )


def _read_by(settings: TableSettings, fmt: str) -> dict[str, Any]:
    """The settings by which records are taken out of files of a format."""
    csv = {setting: getattr(settings.csv, setting) for setting in _CSV_READ_BY} if fmt == "csv" else {}
    if fmt == "excel":
        csv = {"header": settings.csv.header, "skip_lines": settings.csv.skip_lines, "sheet": settings.sheet}
    return {setting: getattr(settings, setting) for setting in _READ_BY} | csv


@contextmanager
def hinting_at_restore() -> Iterator[None]:
    """Give errors about a table of another time than the checkpoint the hint that holds for a pattern."""
    try:
        yield
    except ReplacedTable as error:
        raise ReplacedTable(f"{error.message}", f"{RESTORE}; or {_ANEW}") from error
    except DataError as error:
        raise DataError(f"{error.message}", RESTORE) from error


def older_checkpoint(capture: str, table: str, has: int, checkpoint: int) -> DataError:
    """The error for a table of a pattern that has later micro-batches than the checkpoint."""
    return DataError(
        f"{table} has the batches of capture {capture} up to {has}, and its checkpoint is at {checkpoint}: "
        "it is older than the table",
        f"put the newest checkpoint back; or {RESTORE}",
    )


# Where messages in an envelope name the table that changed: in that of Debezium; of Maxwell, Canal and
# GoldenGate; of DMS; and behind the transform of Debezium, which puts two underscores before names.
_NAMES_OF_TABLES = frozenset({
    *(("source", name) for name in ("name", "db", "schema", "table", "collection")),
    *((name,) for name in ("database", "schema", "table")),
    *(("metadata", name) for name in ("schema-name", "table-name")),
    *((f"__{name}",) for name in ("db", "schema", "table", "source_db", "source_schema", "source_table")),
})  # fmt: skip
_AROUND = ("payload", "value")  # a message with its schema, or with its key, stands below these


def _must_stay(pattern: Pattern, table: str, row_key: RowKey) -> None:
    """Raise UsageError for braces whose values may change for a row: it would then stand in two tables."""
    if is_other(table):
        raise UsageError(
            f"{table} has a key, and takes records of many kinds, which would replace each other",
            f"ingest into a pattern of another namespace, or rename {table} before",
        )
    for number, brace in enumerate(pattern.braces):
        path = pattern.path(number)
        if path is None:
            stays = brace == TOPIC or pattern.path_in_key(number) is not None
        elif row_key.envelope:
            stays = (path[1:] if path[0] in _AROUND else path) in _NAMES_OF_TABLES
        else:
            stays = path in row_key.key
        if not stays:
            raise UsageError(
                f"{pattern.text}: {table} has a key, and {{{brace}}} may change for a row, which would then be in two tables",
                "with a key, braces hold _topic, _key.x, a field of the key, or a table's name in an envelope, as source.table",
            )


def _must_be_spelled_alike(table: str, share: Share, state: State) -> None:
    """Raise DataError for values that share a table by key: rows of one would replace those of another."""
    route = Route.of(state.properties)
    spelled = list(dict.fromkeys([*(route.values if route else ()), *share.values]))
    if len(spelled) > 1:
        texts = [", ".join(filter(None, values)) for values in spelled]
        raise DataError(
            f"{table} has a key, and the values {_listed(texts)} differ in case alone: their rows would replace each other",
            "ingest the records of one of them into a table by itself, and leave them out here",
        )


def _route(pattern: Pattern, to: TableShare) -> dict[str, str]:
    """The property of a table that the pattern makes, or has made; none for any other table."""
    named = [values for values in to.share.values if pattern.names(values)]
    before = named_values(pattern, to.state.properties)
    if not named or (to.state.exists and not before):
        return {}
    return Route(pattern.text, tuple(dict.fromkeys([*before, *named]))).as_property()


class UncommittedRows(Protocol):
    """Rows that are written for a table, and visible to nobody."""

    def abandon(self) -> None:
        """Take back what is not visible."""
        ...


@contextmanager
def abandoned(written: Sequence[UncommittedRows]) -> Iterator[None]:
    """Take back at the end, or after an error, what is written and not visible."""
    try:
        yield
    finally:
        for of_table in written:
            of_table.abandon()


def _named(name: str, error: E) -> E:
    """The error with the name of its table."""
    return error if name in error.message else type(error)(f"{name}: {error.message}", error.hint)


def _listed(names: Sequence[str], most: int = 5) -> str:
    unlisted = len(names) - most
    return ", ".join(names[:most]) + (f", and {unlisted} more" if unlisted > 0 else "")
