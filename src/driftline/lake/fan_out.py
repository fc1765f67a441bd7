"""The tables of a pattern, for users."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from subprocess import Popen
from typing import TYPE_CHECKING, Any, Unpack, cast

from driftline.capture import CaptureRequest, SeekRequest, StreamOptions, capture, seek
from driftline.capture.changed import ChangedFiles
from driftline.capture.folder import MAX_FILES
from driftline.capture.kafka import TopicReading, ValueFormat
from driftline.capture.query import CaptureQuery
from driftline.capture.seeking import Seek
from driftline.capture.targets import PatternBatch
from driftline.core.settings.declarations import SettingArguments
from driftline.errors import UsageError
from driftline.files.endings import FileFormat
from driftline.ingest.assignment import MAX_TABLES
from driftline.ingest.attempts import Audit, OnAudit, Options
from driftline.ingest.batch import Listener
from driftline.ingest.fan_out import FanOut, FanOutResult
from driftline.ingest.pattern import Pattern
from driftline.lake.check import AuditRequest
from driftline.lake.check_pattern import checked_tables, checked_topics_of, with_share_checks
from driftline.lake.table import given_settings, with_url
from driftline.operations.split import TableSplit, split
from driftline.report.listeners import is_measured, listeners_by_table, pattern_listeners
from driftline.report.metrics import Telemetry
from driftline.runtime.front import front
from driftline.runtime.shown import Shown, notebook_progress, shows
from driftline.sources.files import topics_in
from driftline.sources.inputs import Data, given_paths
from driftline.sources.opening import opened
from driftline.stats.lake import LakeStats, made_by
from driftline.verify import PatternVerdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.lake import Lake


@front
class PatternTables(Shown):
    """The tables of a lake that the values of records name, by a pattern such as ``hooks.{event}``."""

    def __init__(self, lake: Lake, pattern: str, max_tables: int = MAX_TABLES) -> None:
        self.lake = lake
        self.pattern = pattern
        self._parsed = Pattern.of(pattern)
        if lake.embedded is not None and lake.embedded.ducklake is not None and len(self._parsed.parts) > 2:
            raise UsageError(f"{pattern!r}: a namespace of a DuckLake has one part", "use namespace.table")
        if max_tables < 0:
            raise UsageError(f"max_tables = {max_tables} is not possible", "pass 0 or more")
        self._max_tables = max_tables

    @property
    def _java(self) -> Popen[Any] | None:
        return self.lake._java

    @property
    def _configured(self) -> tuple[Mapping[str, str], ...]:
        return self.lake._configured

    def ingest(
        self,
        data: Data,
        *,
        format: FileFormat | None = None,  # noqa: A002  the word that Spark's users know
        settings: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] | None = None,
        dry_run: bool = False,
        again: bool = False,
        keep: bool = True,
        audit: bool = False,
        fail_on: str | Sequence[str] = (),
        at_most: int | None = None,
        verify: bool = False,
        on_change: str | None = None,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[SettingArguments],
    ) -> FanOutResult:
        """Ingest data as one batch of each table, with the rules of each. They are read once.

        All tables' rows are written before the first table commits; each commits by itself.

        Args:
            data: Files of one format; dicts; rows of pandas, Polars, Arrow or a DataFrame of Spark.
            format: As for `Table.ingest`; so are ``again``, ``keep`` and ``progress``.
            settings: Settings of the tables, kept with them; or a function from a table's name to its own.
            dry_run: Plan only; write nothing.
            audit: Check the batch of each table before the first one commits; if one fails, nothing is kept.
            fail_on: As for `Table.ingest`; so are ``at_most``, which counts for each table, and ``verify``.
            on_change: As for `Table.ingest`, called for each table.
            options: The same settings as arguments.

        Raises:
            UsageError, DataError: All tables are then as they were.
            FanOutError: Some tables did not get their records. The same call again
                brings what is missing.
            FanOutAuditError: The batch fails its audit. All tables are then as they were.
            SetupError: As for `Table.ingest`.
        """
        lake = self.lake
        fan_out = self._fan_out(settings, options, pattern_listeners(data, on_change))
        checks = self._audit(AuditRequest(audit, fail_on, at_most, verify), data, dry_run=dry_run)
        with opened(lake.spark, data, format=format, shared=lake.warehouse) as source:
            shown = progress or notebook_progress(self.pattern)
            run = Options(
                reingest=again, progress=shown, listener=listeners_by_table(), keep=keep, audit=checks
            )
            return fan_out.ingest(source, run, lake.warehouse, dry_run=dry_run)

    def capture(
        self,
        data: DataFrame | str | os.PathLike[str],
        *,
        name: str,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float | None = None,
        format: FileFormat | None = None,  # noqa: A002
        max_files: int = 1000,
        notify: str | None = None,
        list_every: float | None = None,
        changed_files: ChangedFiles = "fail",
        kafka: Mapping[str, str] | None = None,
        start: str | datetime = "earliest",
        value_format: ValueFormat = "json",
        registry: str | Mapping[str, str] | None = None,
        kafka_metadata: bool = False,
        max_records: int | None = None,
        skip_lost: bool = False,
        settings: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] | None = None,
        audit: bool = False,
        fail_on: str | Sequence[str] = (),
        at_most: int | None = None,
        verify: bool = False,
        on_audit: OnAudit = "stop",
        progress: Callable[[str], None] = lambda _: None,
        on_batch: Callable[[PatternBatch], None] = lambda _: None,
        on_change: str | None = None,
        **options: Unpack[SettingArguments],
    ) -> CaptureQuery:
        """Capture files, topics of Kafka or a streaming DataFrame into the tables, each record once.

        Which values have which table is settled once for a micro-batch, and kept in the checkpoint. If the
        capture dies between the commits of two tables, its next start brings what is missing.

        Args:
            data: A folder or glob of files of one format; topics of Kafka; or a
                streaming DataFrame, each row of which is a record.
            name: As for `Table.capture`; so are the arguments not told of here.
            settings: As for `ingest`; so are ``audit``, ``fail_on``, ``at_most`` and ``verify``.
            on_audit: ``stop`` before a micro-batch that fails; ``quarantine``: of each table that fails the
                records wait there, whole, and the others get theirs.
            on_batch: Called with each micro-batch, in another thread.
            on_change: As for `ingest`.
            options: The same settings as arguments.

        Raises:
            UsageError, DataError, SetupError: Also raised by the query's `awaitTermination`.
            FanOutError: Some tables did not get their records, and the capture has ended. Its next start
                brings what is missing.
        """
        source = data if hasattr(data, "selectExpr") else os.fspath(cast("str", data))
        audited = AuditRequest(audit, fail_on, at_most, verify, on_audit)
        checks = self._audit(audited, source, changed_files)
        topics = TopicReading(
            kafka or {}, start, kafka_metadata, max_records, skip_lost, value_format, with_url(registry)
        )
        reading = StreamOptions(format, None, False, max_files, topics, notify, list_every, changed_files)
        request = CaptureRequest(
            self.pattern, name, checkpoint, every, {}, progress, self._measured(on_batch),
            listeners_by_table(name), audit=checks, secrets=self._configured,
            fan_out=self._fan_out(settings, options, pattern_listeners(data, on_change, name)),
        )  # fmt: skip
        return capture(self.lake.format, data, reading, request)

    def seek(
        self,
        source: str | os.PathLike[str],
        *,
        name: str,
        to: str | datetime,
        checkpoint: str | os.PathLike[str] | None = None,
        format: FileFormat | None = None,  # noqa: A002
        kafka: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> Seek:
        """Change the position at which a capture into the tables goes on with its next start.

        What is taken again comes into each of its tables once more.

        Args:
            source: As for `Table.seek`; so are the other arguments.

        Raises:
            UsageError, DataError, SetupError: The capture runs, has not begun, was broken off between two
                tables, or differs from one of them.
        """
        reading = StreamOptions(format, None, False, MAX_FILES, TopicReading(kafka or {}))
        fan_out = self._fan_out(None, {})
        request = SeekRequest(self.pattern, name, checkpoint, to, dry_run, fan_out)
        return seek(self.lake.format, os.fspath(source), reading, request)

    def split(
        self, table: str, *, dry_run: bool = False, progress: Callable[[str], None] | None = None
    ) -> TableSplit:
        """Make the tables of the rows that a table of this lake has. They stay there, too.

        Each table gets the columns that have a value among its rows. All tables' rows are written, and their
        values counted, before the first table commits; each commits by itself. The same call again brings
        what is missing.

        Args:
            table: The table's name.
            dry_run: Tell what each table would get; write nothing.
            progress: Called with the name of each step.

        Raises:
            UsageError: There is no such table or field, there would be too many tables, or one is there.
            DataError: No row has a value that names a table, or rows cannot be read or written as they are.
        """
        shown = progress or notebook_progress(table)
        of_lake = self.lake.table(table).format
        return split(
            self.lake.format, of_lake, self._parsed, self._max_tables, dry_run=dry_run, progress=shown
        )

    def verify(
        self,
        data: Data,
        format: FileFormat | None = None,  # noqa: A002
        *,
        exactly: bool = False,
        kafka: Mapping[str, str] | None = None,
        value_format: ValueFormat = "json",
        registry: str | Mapping[str, str] | None = None,
    ) -> PatternVerdict:
        """Check independently, value by value, that every record is in its table or a quarantine.

        A record is looked for in the table that its values name; then in `_other`, where those are whose
        values have no table, or had none when they came.

        Args:
            data: Files of one format; dicts, or rows of pandas, Polars or Arrow; or topics of Kafka: what
                captures have taken of them, as far as Kafka has it.
            format: As for `ingest`.
            exactly: Also check that the tables hold nothing else, so that no record was doubled.
            kafka: As for `capture`; so are ``value_format`` and ``registry``.

        Raises:
            UsageError: There is no table of the pattern, or the data do not go into one.
        """
        lake = self.lake
        if (url := topics_in(given_paths(data))) is not None:
            topics = TopicReading(kafka or {}, value_format=value_format, registry=with_url(registry))
            return checked_topics_of(lake.format, self._parsed, lake.warehouse, url, topics, exactly=exactly)
        return checked_tables(
            lake.spark, lake.format, self._parsed, lake.warehouse, data, format, exactly=exactly
        )

    def stats(
        self, *, exact: bool = False, over_time: bool = True, progress: Callable[[str], None] = lambda _: None
    ) -> LakeStats:
        """The statistics of the tables that the pattern made, and of the `_other` beside them.

        The `named_by` of each has the values that named it.

        Args:
            exact: As for `Lake.stats`; so are ``over_time`` and ``progress``.

        Raises:
            UsageError: There is no table of the pattern.
        """
        names = filter(self._parsed.in_namespace, self.lake._with_records())
        measured = self.lake._stats(names, exact=exact, over_time=over_time, progress=progress)
        return replace(measured, tables=made_by(self.pattern, measured.tables))

    def _measured(self, on_batch: Callable[[PatternBatch], None]) -> Callable[[PatternBatch], None]:
        """Also report the lag after a micro-batch, under the pattern; its tables' own metrics are theirs."""

        def tell(batch: PatternBatch) -> None:
            """Report a micro-batch, and then call ``on_batch``."""
            if is_measured():
                Telemetry(batch.capture).captured(self.pattern, batch.lag, batch.changed_files)
            on_batch(batch)

        return tell

    def _audit(
        self,
        request: AuditRequest,
        data: Data,
        changed_files: ChangedFiles = "fail",
        *,
        dry_run: bool = False,
    ) -> Audit:
        """The audit of each table; raises as `AuditRequest.of`."""
        audit = request.of_pattern(data, changed_files, dry_run=dry_run)
        return with_share_checks(audit, data, self.lake.warehouse) if request.verify else audit

    def _fan_out(
        self,
        settings: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] | None,
        options: SettingArguments,
        listener: Listener[FanOutResult] | None = None,
    ) -> FanOut:
        """The tables with settings that are the same for all, or a function of a table's name."""
        lake, chosen = self.lake, settings if callable(settings) else lambda _: settings or {}
        return FanOut(
            lake.format,
            self._parsed,
            lambda name: given_settings(chosen(name), options),
            self._max_tables,
            lake.recent_of,
            listener=listener,
        )


shows(PatternTables, lambda tables: [f"tables {tables.pattern} of {tables.lake}"])
