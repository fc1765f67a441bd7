"""One table of a lake, as a user holds it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.capture import Reading, capture
from driftline.capture import Request as CaptureRequest
from driftline.capture.kafka import TopicReading
from driftline.capture.query import Batch, CaptureQuery
from driftline.core.changes import TableChange
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.table_name import must_take_records
from driftline.core.schema.types import Schema
from driftline.errors import no_table
from driftline.formats.base import State
from driftline.ingest import pipeline
from driftline.ingest.result import Result
from driftline.lake.arrow_rows import rows_in_arrow
from driftline.lake.check import checked
from driftline.lake.view_follows import altered, view_note
from driftline.operations.alter import Altered, Request
from driftline.operations.history import History, history
from driftline.operations.layout import Layout, layout
from driftline.operations.promote import Promoted, promote
from driftline.operations.replay import Quarantine, Replay, export, listed, replay
from driftline.operations.resolve import Resolved, resolve
from driftline.operations.undo import Undone, undo
from driftline.operations.view import View, view
from driftline.report import schema_text
from driftline.report.listeners import listeners
from driftline.report.metrics import Telemetry
from driftline.report.notice import Notice
from driftline.runtime import notebook
from driftline.runtime.shown import Shown, shows
from driftline.source.opening import Data, opened
from driftline.stats import Stats, stats
from driftline.verify import Verdict

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from driftline.lake import Lake


class Table(Shown):
    """One table of a lake."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.lake = lake
        self.name = name
        self.format = lake.format.table(name)

    def ingest(
        self,
        data: Data,
        *,
        format: str | None = None,  # noqa: A002  the word that Spark's users know
        json_column: str | None = None,
        strings: bool = False,
        settings: Mapping[str, str] | None = None,
        dry_run: bool = False,
        again: bool = False,
        on_change: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Result:
        """Takes what a person has at hand, as one batch: files, or what comes through a pipe (``-``:
        standard input); a DataFrame of Spark, pandas or Polars; a table or reader of Arrow, or what
        gives such a stream; an iterable of dicts.

        Columns keep their types. Of a pandas index, the levels that have a name are columns. ``json_column``:
        the DataFrame's column that holds JSON text, whose records are the rows. ``strings``: CSV cells stay
        text. ``again``: files that the table has taken before are ingested once more, not refused.
        ``on_change``: a command that is called, or a URL that is posted to, where the batch changed the
        schema or left records in quarantine. ``progress`` is told what comes next; without it, a notebook
        shows that. Raises UsageError, DataError; the table is then as it was. Raises SetupError where Java, a
        store or the catalog fails, which says so where it is not known whether the batch is in.
        """
        must_take_records(self.name)
        spark, shared = self.lake.spark, self.lake.warehouse
        with opened(
            spark, data, format=format, json_column=json_column, strings=strings, shared=shared
        ) as source:
            shown = progress or notebook.progress(self.name)
            options = pipeline.Options(settings, again=again, progress=shown, listener=listeners(data))
            result = pipeline.ingest(self.format, source, options, dry_run=dry_run)
        if on_change and not dry_run:
            Notice(on_change).send(result)
        return result

    def alter(self, *changes: TableChange, upgrade: bool = False) -> Altered:
        """Makes the changes, values of `driftline.core.changes`, in one commit, or none of them.

        ``upgrade``: to format v3 as well, where that is needed. Raises UsageError, DataError.
        """
        return altered(self, Request.of_changes(changes), upgrade=upgrade)

    def capture(
        self,
        data: DataFrame | str | os.PathLike[str],
        *,
        name: str,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float | None = None,
        format: str | None = None,  # noqa: A002
        json_column: str | None = None,
        strings: bool = False,
        max_files: int = 1000,
        notify: str | None = None,
        list_every: float | None = None,
        kafka: Mapping[str, str] | None = None,
        start: str | datetime = "earliest",
        value_format: str = "json",
        registry: str | Mapping[str, str] | None = None,
        metadata: bool = False,
        max_records: int | None = None,
        skip_lost: bool = False,
        settings: Mapping[str, str] | None = None,
        progress: Callable[[str], None] = lambda _: None,
        on_batch: Callable[[Batch], None] = lambda _: None,
        on_change: str | None = None,
    ) -> CaptureQuery:
        """Takes a stream into the table, each record once, and returns Spark's StreamingQuery of it.

        ``data``: a streaming DataFrame; a folder or glob whose new files are taken once each, ``max_files``
        at a time; or kafka://HOST:PORT/TOPIC, ``max_records`` at a time. ``name``: what the capture goes on
        as after its end, or its death. ``checkpoint``: the folder of what it remembers; by default in the
        lake. ``every``: seconds between micro-batches; None: it ends when it has caught up. ``json_column``:
        the DataFrame's column that holds JSON text, whose records are the rows.

        Of a folder in S3: ``notify``: the URL of an SQS queue to which the bucket's notifications go, or a
        file of them, one a line, or a folder of such. ``list_every``: everything is listed only each so many
        seconds (with ``notify``, 900); in between, what they name is taken, or what sorts behind the last.

        Of Kafka: ``kafka``: settings of the client, in librdkafka's words or Java's. ``start``: where the
        capture begins when it first runs: ``earliest``, ``latest``, or a time. ``value_format``: ``json``,
        ``avro``, ``protobuf`` or ``json-schema``, these with ids of schemas of a ``registry``: its URL, or
        settings, as confluent-kafka's client takes them. ``metadata``: key, topic,
        partition, offset, timestamp and headers go along, in a column of their own. ``skip_lost``: goes on
        without records that Kafka has deleted before they were taken, and with all of a topic that was
        made again.

        ``on_batch`` is told of each micro-batch, in another thread. ``on_change``: as with `ingest`. Raises
        UsageError, DataError, SetupError; so does the query's `awaitTermination`.
        """
        must_take_records(self.name)
        settings_of = {"url": registry} if isinstance(registry, str) else registry or {}
        topics = TopicReading(kafka or {}, start, metadata, max_records, skip_lost, value_format, settings_of)
        reading = Reading(format, json_column, strings, max_files, topics, notify, list_every)
        request = CaptureRequest(
            self.name,
            name,
            checkpoint,
            every,
            settings or {},
            progress,
            _noticed(on_change, on_batch),
            listeners(data, name),
        )
        return capture(self.lake.format, data, reading, request)

    def history(self) -> History:
        """What happened to the table's schema, partitioning and sort
        order, and by whom. Raises UsageError.
        """
        return history(self.format)

    def layout(self) -> Layout:
        """Which files follow which partitioning. Raises UsageError."""
        return layout(self.format)

    def undo(self, *, to: int | None = None, yes: bool = False) -> Undone:
        """Takes the last change of the table's definition back, or all since
        schema version ``to``, in metadata only.

        ``yes``: also where that hides values. Raises UsageError, DataError with the reason.
        """
        return undo(self.format, to=to, yes=yes)

    def view(
        self, name: str | None = None, *, types: Mapping[str, str] | None = None, make: bool = True
    ) -> View:
        """Makes a view that gives each drifted field as one column; made again, it shows what is new since.

        ``name``: of the view, by default the table's with ``_settled`` behind it. ``types``:
        of single fields, by path; by default the widest of their columns. ``make`` False:
        only says how. Raises UsageError, DataError.
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
        """Folds the columns of a drifted field into one of this type,
        in one commit; captures may run meanwhile.

        A value converts exactly or not at all; what does not stays in a column beside it, or goes with
        ``drop_rest``. ``dry_run``: only says how many would. Raises UsageError, DataError.
        """
        done = resolve(self.format, field, type, dry_run=dry_run, drop_rest=drop_rest, progress=progress)
        return done if dry_run else replace(done, notes=(*done.notes, *view_note(self)))

    def promote(
        self,
        *paths: str,
        everything: bool = False,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Promoted:
        """Makes columns of what waits in the rest at or below the paths, or of
        ``everything``; in old rows too, in one commit.

        The limits of the table do not count here. ``dry_run``: only says what would
        come to be. Raises UsageError, DataError.
        """
        done = promote(self.format, paths, everything=everything, dry_run=dry_run, progress=progress)
        return done if dry_run else replace(done, notes=(*done.notes, *view_note(self)))

    def quarantine(self) -> Quarantine:
        """What could not be accepted and waits, by reason. Raises UsageError where there is no such table."""
        return listed(self.format)

    def export_quarantine(self, file: str | os.PathLike[str]) -> int:
        """Writes what waits in quarantine as JSON lines, each record with its reason; returns how many."""
        return export(self.format, Path(file))

    def replay(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Replay:
        """Sends what waits in quarantine through again, each record
        once, as the table and its settings are now.
        """
        return replay(self.format, settings=settings, progress=progress)

    def stats(self, *, exact: bool = False, progress: Callable[[str], None] = lambda _: None) -> Stats:
        """What is in the table, column by column, and what drifted: from metadata, or ``exact`` by a scan.

        ``progress`` is told what comes next. Raises UsageError where the table does not exist.
        """
        return stats(self.format, exact=exact, progress=progress)

    def schema(self) -> TableSchema:
        """The schema: ids, types, docs. Raises UsageError where the table does not exist."""
        return TableSchema(self.state().schema, self.name)

    def state(self) -> State:
        """The table as it is now: schema, properties, snapshot. Raises UsageError where it does not exist."""
        state: State = self.format.load()
        if not state.exists:
            raise no_table(self.name)
        return state

    def read(self) -> DataFrame:
        """The table's rows.

        Raises UsageError where it does not exist, DataError where it has a column that Spark cannot read.
        """
        frame: DataFrame = self.format.read()
        return frame

    def to_arrow(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> pa.Table:
        """Return the table's rows as an Arrow table, in this process's memory.

        Args:
            columns: Columns by name, nested ones by path (``customer.zip``); None: all of them.
            where: A condition in SQL (``total > 5``); None: all rows.

        Raises:
            UsageError: The table does not exist, or has no such column.
            DataError: It has a column that Spark or Arrow cannot read.
        """
        return rows_in_arrow(self.read(), columns, where)

    def to_pandas(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> pd.DataFrame:
        """Return the rows as `to_arrow` does, as a pandas DataFrame of Arrow's types.

        Integers beside nulls stay integers, decimals keep their digits.
        """
        import pandas as pd

        return self.to_arrow(columns, where=where).to_pandas(types_mapper=pd.ArrowDtype)

    def to_polars(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> pl.DataFrame:
        """Return the rows as `to_arrow` does, as a Polars DataFrame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow(columns, where=where))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def verify(self, data: Data, format: str | None = None, *, exactly: bool = False) -> Verdict:  # noqa: A002
        """Whether every record is in the table or its quarantine: an independent check, value by value.

        ``data``: as `ingest` takes them, but for DataFrames of Spark. ``exactly``: and whether nothing else
        is there, so that no record was doubled. ``format``: json, csv, parquet, avro or orc; by default what
        files' endings tell. Raises UsageError where there is neither such a table nor its quarantine.
        """
        return checked(self, data, format, exactly=exactly)


def _noticed(on_change: str | None, on_batch: Callable[[Batch], None]) -> Callable[[Batch], None]:
    """Tells of a micro-batch there too, and of the lag after it."""
    notice = Notice(on_change) if on_change else None

    def tell(batch: Batch) -> None:
        if Telemetry.wanted() and batch.lag is not None:
            Telemetry(batch.capture).lag(batch.result.table, batch.lag)
        if notice is not None:
            notice.send(batch.result, {"capture": batch.capture, "epoch": batch.epoch})
        on_batch(batch)

    return tell


class TableSchema(Shown):
    """A table's schema; `to_dict` is its Iceberg JSON form."""

    def __init__(self, schema: Schema, table: str) -> None:
        self.schema = schema
        self.table = table

    def to_dict(self) -> dict[str, Any]:
        """The same as `--json` prints it."""
        return to_json(self.schema)


shows(Table, lambda table: [f"table {table.name}"])
shows(TableSchema, lambda shown: [schema_text.schema(shown.table, shown.schema)])
