"""One table of a lake, for users."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from driftline.capture import CaptureRequest, SeekRequest, StreamOptions, capture, seek
from driftline.capture.changed import ChangedFiles
from driftline.capture.checkpoint import captures_of
from driftline.capture.folder import MAX_FILES
from driftline.capture.kafka import TopicReading, ValueFormat
from driftline.capture.query import CaptureQuery
from driftline.capture.resuming import ResumeFrom
from driftline.capture.seeking import Seek
from driftline.capture.targets import Batch
from driftline.core.changes import TableChange
from driftline.core.schema.definition import ENVELOPE_PROPERTY
from driftline.core.schema.naming import caseless, must_take_records, table_parts
from driftline.core.schema.schema_json import SchemaJson, to_json
from driftline.core.schema.types import Schema
from driftline.core.settings.declarations import SettingArguments
from driftline.errors import NeedsSpark, SetupError, no_table
from driftline.files.endings import FileFormat
from driftline.formats.base import CatalogTable, State
from driftline.formats.lakes import OfflineTable
from driftline.ingest import attempts
from driftline.ingest.result import Result
from driftline.lake.check import AuditRequest, checked
from driftline.lake.check_topics import checked_topics
from driftline.operations import listing
from driftline.operations.alter import Altered, AlterRequest
from driftline.operations.arrow_rows import ChosenRows, by_duckdb, by_spark
from driftline.operations.compact import Compacted, compact
from driftline.operations.drop import Dropped, drop
from driftline.operations.erase import Erased, erase
from driftline.operations.expire import Expired, expire, limit_of
from driftline.operations.history import History, history
from driftline.operations.layout import Layout, layout
from driftline.operations.listing import Quarantine
from driftline.operations.promote import Promoted, promote
from driftline.operations.replan import Replan, replan
from driftline.operations.replay import Discarded, Replay, discard, export, listed, replay
from driftline.operations.resolve import Resolved, resolve
from driftline.operations.undo import Undone, undo
from driftline.operations.view import View, view, view_note
from driftline.report import tables
from driftline.report.listeners import Notice, listeners, noticed
from driftline.runtime.front import front
from driftline.runtime.shown import Shown, notebook_progress, shows
from driftline.sources.files import expand, topics_in
from driftline.sources.frames import core_struct
from driftline.sources.inputs import Data, given_paths, is_table
from driftline.sources.opening import Messages, opened
from driftline.stats import Stats
from driftline.ui.notebook import NotebookPage
from driftline.verify import Verdict
from driftline.verify.embedded import check_small

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from driftline.lake import Lake

_Changed = TypeVar("_Changed", Resolved, Promoted, Replan, Compacted)


@front
class Table(Shown):
    """One table of a lake."""

    def __init__(self, lake: Lake, name: str) -> None:
        embedded = lake.embedded
        table_parts(name, two=embedded is not None and embedded.ducklake is not None)
        self.lake = lake
        self.name: str = name
        if embedded is None:
            _ = self.format  # its catalog may refuse the name

    @property
    def _java(self) -> Popen[Any] | None:
        return self.lake._java

    @property
    def _configured(self) -> tuple[Mapping[str, str], ...]:
        return self.lake._configured

    @cached_property
    def format(self) -> CatalogTable:
        """The table in its catalog, on the lake's Spark session."""
        return self.lake.format.table(self.name)

    def _offline(self) -> OfflineTable | None:
        """The table read from its metadata, without Spark; None if that is impossible, as of a view.

        Raises UsageError if it does not exist, as far as that is known without Spark.
        """
        embedded = self.lake.embedded
        if embedded is None:
            return None
        table = embedded.table(self.name)
        names = embedded.names(views=True) if table is None else None
        if names is not None and caseless(self.name) not in map(caseless, names):
            raise no_table(self.name)
        return table

    def ingest(
        self,
        data: Data,
        *,
        format: FileFormat | None = None,  # noqa: A002  the word that Spark's users know
        json_column: str | None = None,
        strings: bool = False,
        settings: Mapping[str, Any] | None = None,
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
    ) -> Result:
        """Ingest data as one batch.

        ``data``: files; ``-`` for standard input, or another pipe; a Spark, pandas or Polars DataFrame; an
        Arrow table, reader or anything with an Arrow stream; an iterable of dicts. Columns keep their types.
        Levels of a pandas index that hold values are columns.

        Args:
            data: The records.
            format: json, csv, parquet, avro, orc or excel; by default from the files' endings.
            json_column: The DataFrame's column of JSON text, whose records are the rows.
            strings: Keep CSV cells as text.
            settings: Settings of the table, kept with it.
            dry_run: Plan only; write nothing.
            again: Ingest files that the table has taken before once more, instead of refusing them.
            keep: False: settings that say how to read files, and hints, count for this batch alone.
            audit: Check the batch before its commit; if it fails, nothing of it is kept.
            fail_on: The findings for which it fails, of the kinds of `driftline plan --fail-on`.
            at_most: It fails if there are more violations of expectations.
            verify: It fails unless each of its records is in the table, or its quarantine.
            on_change: A command to call, or a URL to post to, if the batch changed the schema or left records
                in quarantine.
            progress: Called with the name of each step; without it, a notebook shows the steps.
            options: The same settings as arguments: ``policy="strict"``, ``hints={"total": "double"}``.

        Raises:
            UsageError, DataError: The table is then as it was.
            AuditError: The batch fails its audit; ``result`` says what it would have been.
            SetupError: Java, a store or the catalog fails; the error says so if nobody can tell whether
                the batch is in.
        """
        must_take_records(self.name)
        shared = self.lake.warehouse
        checks = AuditRequest(audit, fail_on, at_most, verify).of(data, shared, dry_run=dry_run)
        chosen, spark = given_settings(settings, options), self.lake.spark
        with opened(
            spark, Messages(data) if self._are_messages(data, chosen) else data, format=format,
            json_column=json_column, strings=strings, shared=shared,
        ) as source:  # fmt: skip
            shown = progress or notebook_progress(self.name)
            run = attempts.Options(
                chosen, reingest=again, progress=shown, listener=listeners(data), recent=self.lake.recent,
                keep=keep, audit=checks,
            )  # fmt: skip
            result = attempts.ingest(self.format, source, run, dry_run=dry_run)
        if on_change and not dry_run:
            Notice(on_change).send(result)
        return result

    def _are_messages(self, data: Data, settings: Mapping[str, str]) -> bool:
        """True for records of Python in an envelope, by the settings of a batch or of the table."""
        if hasattr(data, "selectExpr") or is_table(data) or given_paths(data):
            return False
        return bool(settings.get("envelope") or self.format.load().properties.get(ENVELOPE_PROPERTY))

    def alter(self, *changes: TableChange, upgrade: bool = False, siblings: bool = False) -> Altered:
        """Make the changes, values of `driftline.core.changes`, in one commit, or none of them.

        ``upgrade``: also to format v3, if that is needed. ``siblings``: the other columns of a field follow a
        renamed one. Raises UsageError, DataError.
        """
        request = replace(AlterRequest.of_changes(changes), siblings=siblings)
        return self.lake.altered(self.name, request, upgrade=upgrade)

    def capture(
        self,
        data: DataFrame | str | os.PathLike[str],
        *,
        name: str,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float | None = None,
        format: FileFormat | None = None,  # noqa: A002
        json_column: str | None = None,
        strings: bool = False,
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
        resume_from: ResumeFrom | None = None,
        settings: Mapping[str, Any] | None = None,
        audit: bool = False,
        fail_on: str | Sequence[str] = (),
        at_most: int | None = None,
        verify: bool = False,
        on_audit: attempts.OnAudit = "stop",
        progress: Callable[[str], None] = lambda _: None,
        on_batch: Callable[[Batch], None] = lambda _: None,
        on_change: str | None = None,
        **options: Unpack[SettingArguments],
    ) -> CaptureQuery:
        """Capture a stream into the table, each record once; returns Spark's StreamingQuery.

        Args:
            data: A streaming DataFrame; a folder or glob, whose new files are taken once each; or
                ``kafka://HOST:PORT/TOPIC``.
            name: The capture's name, under which it continues after its end, or its death.
            checkpoint: The folder of its state; by default in the lake.
            every: Seconds between micro-batches; None: it ends when it has caught up.
            format: That of the files; by default from their endings.
            json_column: The DataFrame's column of JSON text, whose records are the rows.
            strings: Keep CSV cells as text.
            max_files: The number of files in one micro-batch.
            notify: For a folder in S3: the URL of an SQS queue that gets the bucket's notifications, a file
                of them, one on each line, or a folder of such files.
            list_every: For a folder in S3: seconds between complete listings (with ``notify``, 900). In
                between, the files that notifications name are taken, or those that sort behind the last one.
            changed_files: The fate of a file that changed after it was taken: ``fail``, ``skip``, ``append``
                (only the lines behind those taken come), or ``again`` (all of it comes).
            kafka: Settings of the client, in librdkafka's words or Java's.
            start: Where the first run begins: ``earliest``, ``latest``, or a time.
            value_format: ``json``, or with ids in a ``registry`` ``avro``, ``protobuf`` or ``json-schema``.
            registry: Its URL, or settings as confluent-kafka's client takes them.
            kafka_metadata: Add a column ``_kafka``: key, topic, partition, offset, timestamp and headers.
            max_records: The number of records in one micro-batch.
            skip_lost: Go on without records that Kafka has deleted, and with all of a recreated topic.
            resume_from: ``table`` or ``checkpoint``: which counts where they differ, as one was restored.
            settings: Settings of the table, kept with it.
            audit: Check each micro-batch before its commit.
            fail_on: As for `ingest`; so are ``at_most`` and ``verify``.
            on_audit: ``stop`` before a micro-batch that fails; ``quarantine``: its records wait there, whole.
            progress: Called with the name of each step.
            on_batch: Called with each micro-batch, in another thread.
            on_change: As for `ingest`.
            options: The same settings as arguments, as for `ingest`.

        Raises:
            UsageError, DataError, SetupError: Also raised by the query's `awaitTermination`.
        """
        must_take_records(self.name)
        audited = AuditRequest(audit, fail_on, at_most, verify, on_audit)
        checks = audited.of(data, self.lake.warehouse)
        own, registry = kafka_metadata or _is_switch(options), with_url(registry)
        topics = TopicReading(kafka or {}, start, own, max_records, skip_lost, value_format, registry)
        reading = StreamOptions(
            format, json_column, strings, max_files, topics, notify, list_every, changed_files
        )
        kept, on_batch = given_settings(settings, _without_switch(options)), noticed(on_change, on_batch)
        return capture(self.lake.format, data, reading, CaptureRequest(
            self.name, name, checkpoint, every, kept, progress, on_batch, listeners(data, name), resume_from, checks, secrets=self._configured,
        ))  # fmt: skip

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
        """Change the position at which a capture goes on with its next start.

        What is taken again comes into the table once more: delete its rows first, if the table has no key.
        What is passed over is not taken, unless the position changes again.

        Args:
            source: The folder, glob or ``kafka://HOST:PORT/TOPIC`` that the capture reads.
            name: The capture's name.
            to: ``earliest``, which takes everything again; ``latest``, which takes only what comes from now
                on; or a time: of files that of their last change, of Kafka that of the records.
            checkpoint: As for `capture`.
            format: That of the files, as for `capture`.
            kafka: Settings of the client, as for `capture`.
            dry_run: Only report; the capture goes on where it was.

        Raises:
            UsageError, DataError, SetupError: The capture runs, has not begun, or differs from its table.
        """
        reading = StreamOptions(format, None, False, MAX_FILES, TopicReading(kafka or {}))
        request = SeekRequest(self.name, name, checkpoint, to, dry_run)
        return seek(self.lake.format, os.fspath(source), reading, request)

    def history(self) -> History:
        """The history of the table's schema, partitioning and sort order, with the author of each change.

        Raises UsageError.
        """
        return history(self._offline() or self.format)

    def layout(self) -> Layout:
        """The data files by the partitioning they follow. Raises UsageError."""
        return layout(self.format)

    def undo(self, *, to: int | None = None, yes: bool = False) -> Undone:
        """Take back the last change of the table's definition, or all since schema version ``to``, in
        metadata only. Of a table with a key, the last batch goes with its rows; the next call takes back
        what was before it.

        ``yes``: even if that hides values, or rows. Raises UsageError, DataError with the reason.
        """
        return undo(self.format, to=to, yes=yes)

    def drop(self, *, purge: bool = False, dry_run: bool = False) -> Dropped:
        """Take the table, its quarantine and its view out of the catalog.

        Args:
            purge: Delete all files below the table's own location, too; not of a DuckLake, whose older
                snapshots have them.
            dry_run: Tell what would be dropped; change nothing.

        Raises:
            UsageError: There is no such table, or with ``purge``, another table may have files in its folder.
        """
        captures = captures_of(self.lake.warehouse, self.name)
        return drop(self.lake.format, self.format, captures, purge=purge, dry_run=dry_run)

    def erase(
        self, where: str, *, dry_run: bool = False, progress: Callable[[str], None] = lambda _: None
    ) -> Erased:
        """Erase rows for good: from the table, its quarantine and its past, with all files that have them.

        The table is written anew, and its older snapshots end: neither time travel nor `undo` goes back
        behind it. In a DuckLake those of all tables end. The next erase finishes one that was broken off.

        Args:
            where: A condition in Spark's SQL, as for `to_arrow`.
            dry_run: Only count; change nothing.
            progress: Called with the name of each step.

        Raises:
            UsageError: There is no such table or column, or a branch or tag holds older rows.
            DataError: A column cannot be read, so its rows cannot be written anew.
        """
        captures = captures_of(self.lake.warehouse, self.name)
        return erase(self.lake.format, self.format, where, captures, dry_run=dry_run, progress=progress)

    def expire(
        self,
        older_than: timedelta | datetime,
        *,
        retain_last: int = 1,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Expired:
        """End older snapshots of the table and its quarantine, and delete the files that only they have.

        Snapshots that a branch or tag needs stay. In a DuckLake the older snapshots of all tables end. The
        next expiry finishes one that was broken off.

        Args:
            older_than: An age, or a time, which without a zone is in UTC.
            retain_last: The number of snapshots that stay at any age, the last ones.
            dry_run: Tell what would end; change nothing.
            progress: Called with the name of each step.

        Raises:
            UsageError: There is no such table, or its files are not to be deleted.
        """
        limit = limit_of(older_than, retain_last)
        captures = captures_of(self.lake.warehouse, self.name)
        return expire(self.lake.format, self.format, limit, captures, dry_run=dry_run, progress=progress)

    def compact(
        self,
        *,
        sort: bool = False,
        drop_unused: bool = False,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Compacted:
        """Write small and worn files of the table anew; rows, their ids and the history stay.

        Files whose rows another writer changes meanwhile are left.

        Args:
            sort: Also write files anew that are not sorted by the table's order.
            drop_unused: Also drop columns that came with drift and in which no row has a value, in one
                commit that `undo` takes back.
            dry_run: Tell what would be written; change nothing.
            progress: Called with the name of each step.

        Raises:
            UsageError: There is no such table, or it has no order to sort by.
            DataError: Its rows cannot be written anew as they are.
        """
        compacted = compact(
            self.format, sort=sort, drop_unused=drop_unused, dry_run=dry_run, progress=progress
        )
        return self._with_view(compacted) if compacted.unused.dropped and not dry_run else compacted

    def view(
        self, name: str | None = None, *, types: Mapping[str, str] | None = None, make: bool = True
    ) -> View:
        """Create a view that shows each drifted field as one column. Created again, it also shows newer
        columns.

        Args:
            name: The view's name; by default the table's with ``_settled`` appended.
            types: Types of single fields, by path; by default the widest of their columns.
            make: False: only return the statement.

        Raises:
            UsageError, DataError: The view cannot be created.
        """
        return view(self.lake.format, self.format, view_name=name, types=types, make=make)

    def resolve(
        self,
        field: str,
        type: str,  # noqa: A002
        *,
        dry_run: bool = False,
        drop_rest: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Resolved:
        """Fold the columns of a drifted field into one of this type, in one commit; captures may go on
        meanwhile.

        A value converts exactly or not at all. Values that do not convert stay in a column beside it, or are
        dropped with ``drop_rest``. ``dry_run``: only count them. Raises UsageError, DataError.
        """
        result = resolve(self.format, field, type, dry_run=dry_run, drop_rest=drop_rest, progress=progress)
        return result if dry_run else self._with_view(result)

    def promote(
        self,
        *paths: str,
        everything: bool = False,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Promoted:
        """Make columns of the values that wait in the rest at or below the paths, or of ``everything``, in
        one commit.

        Old rows get them too, and the limits of the table do not count. ``dry_run``: only report the columns.
        Raises UsageError, DataError.
        """
        result = promote(self.format, paths, everything=everything, dry_run=dry_run, progress=progress)
        return result if dry_run else self._with_view(result)

    def replan(
        self,
        *paths: str,
        narrow: bool = False,
        apply: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Replan:
        """Find the columns that the table would have, had all of it come in one batch.

        Its rows, what waits in the rest, and what waits in quarantine are planned again, by the rules and
        settings of today. ``paths``: the fields that may get other columns, with all below them. ``narrow``:
        types may become narrower. ``apply``: give the table these columns, in one commit, and replay its
        quarantine behind it. Raises UsageError, DataError.
        """
        result = replan(self.format, paths, narrow=narrow, apply=apply, progress=progress)
        return self._with_view(result) if apply and result.fields else result

    def _with_view(self, result: _Changed) -> _Changed:
        """The result, with a note on the table's view, which is made again."""
        return replace(result, notes=(*result.notes, *view_note(self.lake.format, self.format)))

    def quarantine(self) -> Quarantine:
        """The records that were not accepted and wait, by reason. DuckDB, where it is installed, lists them
        without Java.

        Raises UsageError if there is no such table.
        """
        embedded = self.lake.embedded
        waiting = None if embedded is None else listing.by_duckdb(embedded, self.name)
        return listed(self.format) if waiting is None else waiting

    def export_quarantine(self, file: str | os.PathLike[str]) -> int:
        """Write the waiting records of the quarantine as JSON lines, each with its reason; returns their
        number.
        """
        return export(self.format, Path(file))

    def replay(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Replay:
        """Ingest the waiting records of the quarantine again, each once, under the table's present schema and
        settings.
        """
        return replay(self.format, settings=settings, progress=progress)

    def discard_quarantine(self, source: str | Sequence[str] | None = None) -> Discarded:
        """End the wait of the records in quarantine, or of those of one file or topic or of several, that
        nobody will replay. They stay there, and `restore_quarantine` lets them wait again.

        Raises UsageError if there is no such table, or a source has no waiting record.
        """
        return discard(self.format, source)

    def restore_quarantine(self, source: str | Sequence[str] | None = None) -> Discarded:
        """Let the records wait again that `discard_quarantine` took. Raises UsageError as that does."""
        return discard(self.format, source, restore=True)

    def stats(
        self,
        *paths: str,
        exact: bool = False,
        over_time: bool = True,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Stats:
        """The contents of the table, column by column, and its drift: from metadata, or ``exact`` by a scan.

        ``paths``: only columns whose path contains one of these; `*` matches any text. ``over_time``: with
        what the page shows by batch and date. ``progress`` is called with the name of each step.
        Raises UsageError if the table does not exist.
        """
        measured = self.lake._stats_of(self, exact, over_time, progress, names_split=True)
        return measured.only(*paths) if paths else measured

    def schema(self) -> TableSchema:
        """The schema: ids, types, docs. Raises UsageError if the table does not exist."""
        return TableSchema(self.state().schema, self.name)

    def state(self) -> State:
        """The present state of the table: schema, properties, snapshot.

        Raises UsageError if it does not exist.
        """
        state = (self._offline() or self.format).load()
        if not state.exists:
            raise no_table(self.name)
        return state

    def read(self) -> DataFrame:
        """The table's rows.

        Raises UsageError if it does not exist, DataError if it has a column that Spark cannot read.
        """
        return self.format.read()

    def to_arrow(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> pa.Table:
        """Return the table's rows as an Arrow table, in this process's memory.

        DuckDB reads a lake in a folder, without Java: `pip install 'driftline[duckdb]'`. Spark reads the
        rest: other catalogs, a VARIANT, a condition that calculates. Rows and types are the same.

        Args:
            columns: Columns by name, nested ones by path (``customer.zip``), under which they come; None: all
                of them.
            where: A condition in Spark's SQL (``total > 5``); None: all rows. Times without a zone are UTC.

        Raises:
            UsageError: The table does not exist, or has no such column.
            DataError: It has a column that Spark or Arrow cannot read.
        """
        embedded, offline = self.lake.embedded, self._offline()
        if embedded and offline:
            rows = by_duckdb(embedded, ChosenRows.of(self.name, offline.load().schema, columns, where))
            if rows is not None:
                return rows
        frame, state = self.read(), self.format.load()
        schema = state.schema if state.exists else Schema(core_struct(frame.schema))  # of a view
        return by_spark(frame, ChosenRows.of(self.name, schema, columns, where))

    def to_pandas(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> pd.DataFrame:
        """Return the rows as `to_arrow` does, as a pandas DataFrame of Arrow's types.

        Integers beside nulls stay integers, decimals keep their digits, timestamps may be in any year.
        Raises SetupError without pandas.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise _not_installed("pandas") from error
        return self.to_arrow(columns, where=where).to_pandas(types_mapper=pd.ArrowDtype)

    def to_polars(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> pl.DataFrame:
        """Return the rows as `to_arrow` does, as a Polars DataFrame. Raises SetupError without Polars."""
        try:
            import polars as pl
        except ImportError as error:
            raise _not_installed("polars") from error
        frame = pl.from_arrow(self.to_arrow(columns, where=where))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def ui(self, *, allow_writes: bool = False) -> NotebookPage:
        """Serve the table's page to a browser of this machine, as `Lake.ui` does, by the same server.

        Raises UsageError if there is neither such a table nor its quarantine.
        """
        return self.lake._page(self.name, allow_writes=allow_writes)

    def verify(
        self,
        data: Data,
        format: FileFormat | None = None,  # noqa: A002
        *,
        exactly: bool = False,
        kafka: Mapping[str, str] | None = None,
        value_format: ValueFormat = "json",
        registry: str | Mapping[str, str] | None = None,
    ) -> Verdict:
        """Check independently, value by value, that every record is in the table or its quarantine.

        ``data``: as `ingest` takes them, except Spark DataFrames; or ``kafka://HOST:PORT/TOPIC``: what
        captures have taken of it, as far as Kafka has it. ``exactly``: also check that nothing else is
        there, so that no record was doubled. ``format``: as for `ingest`; the other arguments as for
        `capture`. Small files and a small table of a lake in a folder are compared without Java, unless Spark
        has started.
        Raises UsageError if there is neither such a table nor its quarantine.
        """
        if (url := topics_in(given_paths(data))) is not None:
            topics = TopicReading(kafka or {}, value_format=value_format, registry=with_url(registry))
            return checked_topics(self.format, self.lake.warehouse, url, topics, exactly=exactly)
        embedded, paths = self.lake._without_spark, given_paths(data)
        if embedded is not None and paths:
            kind, files = expand(paths, format, self.lake.warehouse)
            with suppress(NeedsSpark):
                return check_small(embedded, self.name, files, kind, exactly=exactly)
        return checked(self.format, self.lake.warehouse, data, format, exactly=exactly)


def given_settings(settings: Mapping[str, Any] | None, arguments: SettingArguments) -> dict[str, Any]:
    """Settings of a table given as a mapping, and those given as arguments, which count before them.

    One that is None is not given.
    """
    return {**(settings or {}), **{name: value for name, value in arguments.items() if value is not None}}


def _is_switch(arguments: Mapping[str, object]) -> bool:
    """True for ``metadata=True``, as `Table.capture` had its ``kafka_metadata`` before."""
    # `metadata` means `_source` in every command, and `kafka_metadata` switches `_kafka` on. The switch
    # alone did so in earlier versions of captures, whose scripts go on.
    return arguments.get("metadata") is True


def _without_switch(arguments: SettingArguments) -> SettingArguments:
    """The settings of a capture whose ``metadata`` may be that switch."""
    return {**arguments, "metadata": None} if _is_switch(arguments) else arguments  # type: ignore[typeddict-item]


def _not_installed(package: str) -> SetupError:
    return SetupError(f"{package} is not installed", f"pip install {package}; `to_arrow` does without")


def with_url(registry: str | Mapping[str, str] | None) -> Mapping[str, str]:
    """The settings of a registry that may be given by its URL alone."""
    return {"url": registry} if isinstance(registry, str) else registry or {}


class TableSchema(Shown):
    """A table's schema; `to_dict` is its Iceberg JSON form."""

    def __init__(self, schema: Schema, table: str) -> None:
        self.schema = schema
        self.table = table

    def to_dict(self) -> SchemaJson:
        """The form that `--json` prints."""
        return to_json(self.schema)


shows(Table, lambda table: [f"table {table.name}"])
shows(TableSchema, lambda shown: [tables.schema(shown.table, shown.schema)])
