"""Verifies a table against source data the user still has, and makes the checks of audits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.capture.changed import ChangedFiles
from driftline.capture.finding import entry_of
from driftline.core.history.batch_properties import PREFIX as CAPTURE
from driftline.core.history.batch_properties import place_of as place_of_truncate
from driftline.core.planning.own_columns import own_column
from driftline.core.schema.naming import MARK, by_key, nearest
from driftline.core.schema.text import counted
from driftline.core.schema.types import Struct
from driftline.core.settings.properties import from_properties, reading, readings
from driftline.core.settings.row_key import DELETED_KIND, ORDER_KIND
from driftline.errors import DataError, UsageError, no_table
from driftline.ingest.attempts import Audit, OnAudit
from driftline.ingest.batch import read_by
from driftline.ingest.result import Violation
from driftline.lake.check_sources import SourceFiles, files_of, files_of_batch
from driftline.operations.replay import kept, waiting
from driftline.quarantine.table import with_feed
from driftline.report.findings import KINDS, violations
from driftline.runtime.failure import explained, java_ended
from driftline.runtime.stores import is_stored
from driftline.sources.files import fingerprint, stamps
from driftline.sources.inputs import Data
from driftline.sources.kafka import KafkaJson
from driftline.sources.spooled import place_of, told_where
from driftline.sql.quoting import name
from driftline.verify import (
    Stored,
    Verdict,
    compared_columns,
)
from driftline.verify.beside import Beside
from driftline.verify.comparison import TEXTS
from driftline.verify.csv import CsvDialect
from driftline.verify.workbooks import as_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.formats.base import CatalogTable, State
    from driftline.ingest.pipeline import BatchRun, Prepared


class AuditRequest(NamedTuple):
    """The audit that a person asks for, as `Table.capture` takes it."""

    audit: bool
    fail_on: str | Sequence[str]
    at_most: int | None
    verify: bool
    on_failure: OnAudit = "stop"

    def of(
        self,
        data: Data,
        warehouse: str | None,
        *,
        dry_run: bool = False,
    ) -> Audit:
        """Return the audit of the batches of ``data``, with its checks.

        ``warehouse``: the folder of the table's lake. Raises UsageError for checks without an audit, an audit
        without one, or data that `verify` cannot read.
        """
        checks = self._checks(data, in_parts=False, dry_run=dry_run)
        if not self.audit:
            return Audit()
        if self.verify:
            checks.append(partial(_unverified, data, warehouse))
        return Audit(checks, self.on_failure, self._must_be_possible)

    def of_pattern(
        self,
        data: Data,
        changed_files: ChangedFiles = "fail",
        *,
        dry_run: bool = False,
    ) -> Audit:
        """Return the audit of each of the tables of a pattern, as `of` that of one, but for `verify`.

        ``changed_files``: of a capture.
        """
        checks = self._checks(data, in_parts=changed_files == "append", dry_run=dry_run)
        # A table without expectations has nothing that `at_most` limits; another one may.
        return Audit(checks, self.on_failure, self._replace(at_most=None)._must_be_possible)

    def _checks(
        self, data: Data, *, in_parts: bool, dry_run: bool
    ) -> list[Callable[[Prepared], Sequence[Violation]]]:
        """The checks but for `verify`; raises as `of`."""
        kinds = (self.fail_on,) if isinstance(self.fail_on, str) else tuple(self.fail_on)
        self._must_make_sense(kinds, dry_run=dry_run)
        checks: list[Callable[[Prepared], Sequence[Violation]]] = []
        if kinds:
            checks.append(lambda prepared: violations(kinds, prepared.preview()))
        if self.at_most is not None:
            checks.append(partial(_beyond, self.at_most))
        if self.verify:
            _must_be_verifiable(data, in_parts=in_parts)
        return checks

    def _must_make_sense(self, kinds: Sequence[str], *, dry_run: bool) -> None:
        """Raise UsageError for checks without an audit, or an audit without one."""
        if unknown := next((kind for kind in kinds if kind not in KINDS), None):
            hint = nearest(unknown, [*KINDS]) or f"one of {', '.join(KINDS)}"
            raise UsageError(f"fail_on has {unknown}, which is no kind of finding", hint)
        limited = self.at_most is not None
        if self.at_most is not None and self.at_most < 0:
            raise UsageError(f"at_most is {self.at_most}", "a number of violations is 0 or more")
        if not self.audit:
            of_audit = {
                "fail_on": kinds, "at_most": limited, "verify": self.verify, "on_audit": self.on_failure != "stop",
            }  # fmt: skip
            if stated := next((argument for argument, value in of_audit.items() if value), None):
                raise UsageError(f"{stated} says what an audit does, and there is none", "pass --audit, too")
            return
        if dry_run:
            raise UsageError("a dry run has no batch to audit", "leave out --audit, or --dry-run")
        if not (kinds or limited or self.verify):
            hint = "pass --verify, --fail-on KIND, or --at-most N for violations of expectations"
            raise UsageError("the audit has nothing to check", hint)

    def _must_be_possible(self, run: BatchRun) -> None:
        """Raise UsageError for a check that cannot be made for the table of a batch."""
        if self.at_most is not None and not run.settings.expect:
            raise UsageError(
                f"{run.batch.table.name} has no expectations, so there is nothing that at_most limits",
                "pass --expect 'NAME: CONDITION', or leave out --at-most",
            )
        if self.verify:
            _must_stand_alone(run)


def _beyond(at_most: int, prepared: Prepared) -> list[Violation]:
    """The expectations that records of a prepared batch do not meet, if more violations than ``at_most``."""
    result = prepared.preview()
    if sum(outcome.count for outcome in result.expect.values()) <= at_most:
        return []
    return [replace(found, check=f"at-most {at_most}") for found in violations(["expect"], result)]


def _must_be_verifiable(data: Data, *, in_parts: bool) -> None:
    """Raise UsageError for data that a check cannot read once more."""
    if in_parts:
        kind = "parts of files for many tables, among which it deals whole ones"
        hint = "leave out --verify, or --changed-files append"
    elif hasattr(data, "selectExpr"):
        kind, hint = "a Spark DataFrame", "write it to files, or leave out --verify"
    elif isinstance(data, Iterator) and not hasattr(data, "read"):
        kind, hint = "an iterator, which gives its records once", "pass them as a list"
    else:
        return
    raise UsageError(f"verify cannot read {kind}", hint)


def _must_stand_alone(run: BatchRun) -> None:
    """Raise UsageError for a batch that cannot be read alone, or does not tell what its rows should be.

    Fields that a patch does not have stay as they were before, and so may those with a later order.
    """
    row_key, source = run.settings.row_key, run.batch.source
    if source.format == "csv" and getattr(source.found, "ranges", None):  # type: ignore[attr-defined]
        raise UsageError(
            f"{run.batch.table.name}: verify reads parts of files of JSON alone, as those of CSV have no header",
            "leave out --verify, or --changed-files append",
        )
    if row_key is None or not row_key.patch:
        return
    hint = "leave out --verify; `driftline verify` checks the table against all of its sources"
    if row_key.order_by:
        raise UsageError(
            f"{run.batch.table.name}: fields from before count by their own order in rows that are patched, so a "
            "batch cannot be verified alone",
            hint,
        )
    if not (isinstance(source, KafkaJson) or source.format in (*TEXTS, "excel")):
        raise UsageError(
            f"{run.batch.table.name}: verify reads patches of JSON and CSV alone, as other sources do not tell a null "
            "from an absent field",
            hint,
        )


def checked(
    table: CatalogTable, warehouse: str | None, data: Data, fmt: str | None, *, exactly: bool
) -> Verdict:
    """Check that every record of the data is in the table or its quarantine, as `Table.verify` promises.

    ``warehouse``: the folder of the table's lake. Raises UsageError for records of which there is no table.
    """
    state = with_feed(table, table.load())
    contents = Contents.of(table, state)
    room, defaults = place_of(table.spark, warehouse), table.defaults() if state.exists else {}
    with (
        told_where(table.spark, room),
        files_of(data, fmt, room, warehouse, partial(_lines, state), partial(read_as, table, state)) as files,
    ):
        return compared(contents, files, defaults, exactly=exactly)


def _unverified(data: Data, warehouse: str | None, prepared: Prepared) -> list[Violation]:
    """Check a prepared batch as `checked` does, with the table as its commit leaves it.

    ``data``: its records, if its source has no files.
    """
    planned, contents = prepared.planned, Contents.with_batch(prepared)
    spark = contents.table.spark
    room, write_lines = place_of(spark, warehouse), partial(_lines, contents.state)
    files = files_of_batch(planned.batch.source, data, room, warehouse, write_lines, planned.settings.row_key)
    with ExitStack() as stack:
        stack.enter_context(told_where(spark, room))
        return not_found(contents, stack.enter_context(files))


def not_found(contents: Contents, files: SourceFiles, *, must_exist: bool = True) -> list[Violation]:
    """The records of a batch that are not in the table, or in its quarantine, as an audit tells of them.

    ``contents``: the table with the batch; ``must_exist``: as of `compared`.
    """
    is_new = contents.before is None or not contents.before.exists
    defaults = {} if is_new else contents.table.defaults()
    verdict = compared(contents, files, defaults, exactly=False, must_exist=must_exist)
    found = [Violation("verify", m.why, m.path, m.sample, m.place) for m in verdict.mismatches]
    if verdict.missing > len(found):
        missing = f"{verdict.missing} of {counted(verdict.records, 'record')} not found"
        found.insert(0, Violation("verify", missing))
    # A row from before may be equal to a record, so all are counted where that would not show.
    if not found and contents.earlier is not None and contents.rows is not None:
        due, has = contents.earlier + verdict.found, contents.rows.count()
        if has != due:
            rows = f"{counted(due, 'row')} are due, and the table would have {has}"
            found.append(Violation("verify", rows))
    return found


class Contents(NamedTuple):
    """A table to check: its rows, None if it does not exist, and those that wait in its quarantine.

    ``files``: returns what `InWholeFiles.whole_files` does; ``before``: the table without a batch that is
    checked alone, or the table itself, where it has got more than is compared; ``earlier``: as of
    `StagedRows`.
    """

    table: CatalogTable
    state: State
    rows: DataFrame | None
    quarantine: DataFrame | None
    files: Callable[[], Sequence[str]] = tuple
    before: State | None = None
    earlier: int | None = None

    @classmethod
    def with_batch(cls, prepared: Prepared) -> Contents:
        """The table as the commit of a batch leaves it, with what the batch brings to its quarantine.

        What is there from before would stand for records that are equal.
        """
        planned, rejects, (state, rows) = prepared.planned, prepared.rejects, prepared.staged()
        table, before = planned.batch.table, planned.state
        waits = None if rejects is None else rejects.transaction.staged(whole=False).frame
        if rows is None:
            return cls(table, state, None, waits, before=before)
        return cls(table, state, rows.frame, waits, rows.files, before, rows.earlier)

    @classmethod
    def of(cls, table: CatalogTable, state: State) -> Contents:
        """The rows of a table as they are, and what waits in its quarantine."""
        rows = table.read_readable() if state.exists else None
        return cls(table, state, rows, waiting(table), table.whole_files if state.exists else tuple)


def compared(
    contents: Contents,
    files: SourceFiles,
    defaults: Mapping[int, Iterable[Any]],
    *,
    exactly: bool,
    must_exist: bool = True,
) -> Verdict:
    """Compare the files with the table. Raises DataError if it cannot be read.

    ``must_exist``: raise UsageError for records of which there is no table.
    """
    table, state, rows, quarantine, data_files, before, _ = contents
    if quarantine is not None and files.waiting:
        quarantine = quarantine.where(files.waiting)
    columns = table.readable(state.schema).struct if state.exists else Struct(())
    struct = compared_columns(columns)
    beside = _beside(contents, columns)
    left_out = {f.name for f in columns.fields} - {f.name for f in struct.fields}
    if beside is not None and beside.epochs:
        left_out.discard(beside.order)
    # Where no record has come, or all of them wait, there is no table yet.
    stored = Stored.of(
        table.spark.range(0).select() if rows is None else _live(rows, columns).drop(*left_out),
        replace(state.schema, struct=struct),
        quarantine,
        state.properties,
        defaults,
    )
    # Rows that only record a delete are none of the table's.
    has_deletes = own_column(columns, DELETED_KIND) is not None
    by_spark = has_deletes or (beside is not None and beside.epochs)
    stored = replace(stored, readings=files.by_file, files=tuple if by_spark else data_files, beside=beside)
    spark = table.spark
    try:
        verdict = files.verdict(spark, stored, exactly=exactly)
        stored = replace(stored, files=tuple)
        if verdict.missing and (by_file_now := _readings(spark, stored, files)):
            stored = replace(stored, readings=by_file_now)
            verdict = files.verdict(spark, stored, exactly=exactly)
        if verdict.missing and beside is not None and (earlier := _earlier(contents, columns)) is not None:
            stored = replace(stored, earlier=earlier)
            verdict = files.verdict(spark, stored, exactly=exactly)
        # Of a batch that is checked alone nothing is discarded yet.
        if verdict.missing and before in (None, state) and (all_kept := kept(table)) is not None:
            stored = replace(stored, quarantine=all_kept)
            verdict = verdict.with_discarded(files.verdict(spark, stored))
        # A feed makes its table with its first record: before that, nothing can be missing.
        if must_exist and verdict.records and not state.exists and quarantine is None:
            raise no_table(table.name)
        return verdict.named(files.names)
    except (Py4JError, PySparkException) as error:
        message, hint = explained(error)
        ended = java_ended(error)
        raise ended or DataError(f"{table.name} cannot be checked: {message}", hint) from error


def _beside(contents: Contents, columns: Struct) -> Beside | None:
    """Other changes of the table than those of its batch; None where there can be none.

    ``columns``: those of its rows.
    """
    row_key = from_properties(contents.state.properties).row_key
    if contents.before is None or row_key is None:
        return None
    order = own_column(columns, ORDER_KIND)
    truncate = place_of_truncate(contents.before.properties)
    return Beside("" if order is None else order.name, truncate, epochs=row_key.epoch > 0)


def _earlier(contents: Contents, columns: Struct) -> DataFrame | None:
    """Keys whose changes of before a batch may count instead of its own; None where no row shows all of them.

    ``columns``: those of the table's rows.
    """
    row_key, before = from_properties(contents.state.properties).row_key, contents.before
    if row_key is None or before is None or not before.exists:
        return None
    if row_key.keep:
        return None if row_key.order_by else contents.table.read_readable()
    order, mark = own_column(columns, ORDER_KIND), own_column(columns, DELETED_KIND)
    if order is None:
        return None
    if mark is not None:
        return None if contents.rows is None else contents.rows.where(name(mark.name))
    return contents.table.remembered_deletes(order.name) if row_key.remembers else None


def read_as(table: CatalogTable, state: State, files: Sequence[str]) -> dict[str, dict[str, str]]:
    """The properties by which the table read files as it took them, as far as it remembers, by path."""
    if not readings(state.properties):
        return {}
    numbers = {fingerprint(file, stamp): file for file, stamp in stamps(files).items()}
    captures = [key.removeprefix(CAPTURE) for key in state.properties if key.startswith(CAPTURE)]
    local = [entry_of(file) for file in numbers.values() if captures and not is_stored(file)]
    numbers |= {entry.fingerprint(name): entry.path for entry in local for name in captures}
    return {file: _instead(state.properties, read) for file, read in read_by(table, state, numbers).items()}


def _instead(properties: Mapping[str, str], read: Mapping[str, str]) -> dict[str, str]:
    """A reading as properties that hide all of today's."""
    return {**dict.fromkeys(reading(properties), ""), **read}


def _readings(spark: SparkSession, stored: Stored, files: SourceFiles) -> dict[str, Mapping[str, str]]:
    """The readings of the files: for one whose reading the table does not remember, that by which it has most
    of the records, of all readings that it has had.
    """

    def missing(file: str, read: Mapping[str, str]) -> int:
        of_file = files._replace(files=[file])
        return of_file.verdict(spark, replace(stored, readings={file: read})).missing

    had = [_instead(stored.properties, read) for read in readings(stored.properties)]
    is_asked = bool(had) and files.kind in TEXTS
    unknown = [file for file in files.files if file not in stored.readings] if is_asked else []
    nearest = {file: min(had, key=partial(missing, file)) for file in unknown}
    return {**stored.readings, **nearest} if nearest else {}


def _live(rows: DataFrame, struct: Struct) -> DataFrame:
    """Return the rows without those that only record a delete."""
    mark = own_column(struct, DELETED_KIND)
    return rows if mark is None else rows.where(f"NOT coalesce({name(mark.name)}, false)")


SHEET = "driftline.sheet"


def _lines(state: State, file: str, target: Path, read: Mapping[str, str]) -> None:
    """Write lines as `SheetLines` of a table."""
    merged = {**state.properties, **read}
    as_lines(file, target, merged.get(SHEET, ""), CsvDialect.of(merged), keys_of(state))


def keys_of(state: State) -> list[str]:
    """The keys of a table's fields."""
    return list(by_key(state.schema.struct.fields, state.properties.get("driftline.mark", MARK)))
