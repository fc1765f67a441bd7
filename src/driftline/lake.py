"""What a user holds in Python: a lake, and its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import driftline.report.shown  # noqa: F401  how results print
from driftline.capture import Reading, capture
from driftline.capture import Request as CaptureRequest
from driftline.capture.kafka import TopicReading
from driftline.capture.query import Batch, CaptureQuery
from driftline.core.changes import TableChange
from driftline.core.planning.contract import epoch_units
from driftline.core.planning.exclude import excluded_paths
from driftline.core.planning.rest import rest_column
from driftline.core.schema.naming import is_metadata
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.table_name import QUARANTINE
from driftline.core.schema.types import Schema, Struct, dotted
from driftline.errors import DriftlineError, UsageError, no_table
from driftline.formats.base import Catalog, Orphan, State
from driftline.formats.open import iceberg, located
from driftline.ingest import pipeline
from driftline.ingest.result import Result
from driftline.operations.alter import Altered, Request, alter, local_name
from driftline.operations.history import History, history
from driftline.operations.layout import Layout, layout
from driftline.operations.promote import Promoted, promote
from driftline.operations.replay import Quarantine, Replay, export, listed, replay, waiting
from driftline.operations.resolve import Resolved, resolve
from driftline.operations.undo import Undone, undo
from driftline.operations.view import View, moved, remade, view
from driftline.report import schema_text
from driftline.report.listeners import listeners
from driftline.report.metrics import Telemetry
from driftline.report.notice import Notice
from driftline.runtime import notebook
from driftline.runtime.connect import must_be_classic
from driftline.runtime.read_only import must_read
from driftline.runtime.session import in_store, open_session
from driftline.runtime.shown import Shown, shows
from driftline.runtime.stores import is_stored
from driftline.settings import from_properties
from driftline.source.files import expand
from driftline.source.given import paths_or_rows
from driftline.source.opening import Data, opened
from driftline.source.pipes import spooled
from driftline.source.spool import folder_in, leftovers, place_of, told_where
from driftline.stats import Stats, stats
from driftline.stats.lake import LakeStats
from driftline.verify import PICKLED, Stored, Verdict, pickled, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


DEFAULT = "lake"


class Lake(Shown):
    """A catalog of tables, and the Spark session that reads and writes them."""

    def __init__(self, spark: SparkSession, catalog: str, tables: Catalog | None = None) -> None:
        self.spark = spark
        self.catalog = catalog
        self.format = iceberg(spark, catalog) if tables is None else tables

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = DEFAULT,
        *,
        properties: Mapping[str, str] | None = None,
        ducklake: str | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> Lake:
        """The embedded lake in a folder, made where there is none: Iceberg, its catalog in a SQLite file.

        ``properties``: those of an existing Iceberg catalog, which is then used in place of the
        folder's. A ``path`` like ``s3://bucket/lake`` says where its files are; such a lake has no other
        catalog. ``ducklake``: the lake is a DuckLake with this catalog: ``duckdb``, ``sqlite``,
        either with ``:PATH``, or ``postgres:`` and what libpq takes. Raises SetupError where Java,
        the jars or the folder are not to be had.
        """
        if is_stored(str(path)):
            if ducklake is not None:
                raise UsageError(f"{path}: a DuckLake of driftline's lies in a folder")
            path, properties = DEFAULT, in_store(str(path), properties or {})
        if ducklake is not None:
            location = located("ducklake", ducklake, Path(path))
            session = open_session(Path(path), catalog=None, properties=properties, notify=notify)
            return cls(session, "lake", location.open(session))
        return cls(open_session(Path(path), properties=properties, notify=notify), "lake")

    @classmethod
    def attach(cls, spark: SparkSession, catalog: str = "spark_catalog") -> Lake:
        """A lake on a session of your own, with an Iceberg catalog of this
        name. Raises UsageError for one of Spark Connect.
        """
        must_be_classic(spark)
        return cls(spark, catalog)

    def on(self, spark: SparkSession) -> Lake:
        """The same lake on another session of the same Spark."""
        return Lake(spark, self.catalog, self.format.on(spark))

    @property
    def warehouse(self) -> str | None:
        """The folder of the lake's files; None where the catalog tells none."""
        return self.format.folder

    def tables(self) -> list[Table]:
        """The lake's tables by name, without their quarantines."""
        return [self.table(name) for name in sorted(self.format.tables()) if not name.endswith(QUARANTINE)]

    def stats(self, *, exact: bool = False, progress: Callable[[str], None] = lambda _: None) -> LakeStats:
        """What is in all tables, what drifted lately, and what waits: from metadata, or ``exact`` by scans.

        ``progress`` is told what comes next.
        """
        stats = (table.stats(exact=exact, progress=_about(table.name, progress)) for table in self.tables())
        return LakeStats(self.warehouse or self.catalog, tuple(stats))

    def table(self, name: str) -> Table:
        """A table by ``namespace.table``; it is made on its first ingest."""
        return Table(self, name)

    def alter(self, sql: str, *, upgrade: bool = False) -> Altered:
        """Runs ALTER TABLE statements about one table in one commit, or none of them.

        ``upgrade``: to format v3 as well, where that is needed. Raises UsageError, DataError.
        """
        request = Request.of_sql(sql)
        table = self.table(local_name(request.table, self.catalog))
        if request.if_exists and not table.format.load().exists:
            return Altered(table.name, ())
        return _altered(table, request, upgrade=upgrade)

    def query(self, sql: str) -> DataFrame:
        """Runs SQL that only reads, by the plan that Spark parses it
        into. Raises UsageError for any other.
        """
        must_read(self.spark, sql, self.format.writes)
        return self.sql(sql)

    def sql(self, query: str) -> DataFrame:
        """Runs SQL: any statement of Spark's; on a DuckLake, which Spark's SQL cannot write, one that reads.

        Raises UsageError for another on a DuckLake, and Spark's own errors.
        """
        return self.format.sql(query)

    def clean(self, older_than: float = 24, *, dry_run: bool = False) -> list[Orphan]:
        """Deletes files that no snapshot has, left by batches that died; returns them.

        ``older_than``: hours that nobody has touched them; a younger one may be of a batch that is to commit
        yet. In an Iceberg lake they are those that driftline's own tasks wrote.
        """
        left = leftovers(self.warehouse, older_than * 3600, dry_run=dry_run)
        return [*self.format.clean(older_than * 3600, dry_run=dry_run), *left]


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
        on_change: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Result:
        """Takes what a person has at hand, as one batch: files, or what comes through a pipe (``-``:
        standard input); a DataFrame of Spark, pandas or Polars; a table or reader of Arrow, or what
        gives such a stream; an iterable of dicts.

        Columns keep their types. Of a pandas index, the levels that have a name are columns. ``json_column``:
        the DataFrame's column that holds JSON text, whose records are the rows. ``strings``: CSV cells stay
        text. ``on_change``: a command that is called, or a URL that is posted to, where the batch changed the
        schema or left records in quarantine. ``progress`` is told what comes next; without it, a notebook
        shows that. Raises UsageError, DataError; the table is then as it was.
        """
        spark, shared = self.lake.spark, self.lake.warehouse
        with opened(
            spark, data, format=format, json_column=json_column, strings=strings, shared=shared
        ) as source:
            shown = progress or notebook.progress(self.name)
            options = pipeline.Options(settings, progress=shown, listener=listeners(data))
            result = pipeline.ingest(self.format, source, options, dry_run=dry_run)
        if on_change and not dry_run:
            Notice(on_change).send(result)
        return result

    def alter(self, *changes: TableChange, upgrade: bool = False) -> Altered:
        """Makes the changes, values of `driftline.core.changes`, in one commit, or none of them.

        ``upgrade``: to format v3 as well, where that is needed. Raises UsageError, DataError.
        """
        return _altered(self, Request.of_changes(changes), upgrade=upgrade)

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
        without records that Kafka has deleted before they were taken.

        ``on_batch`` is told of each micro-batch, in another thread. ``on_change``: as with `ingest`. Raises
        UsageError, DataError, SetupError; so does the query's `awaitTermination`.
        """
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
        return done if dry_run else replace(done, notes=(*done.notes, *_view_note(self)))

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
        return done if dry_run else replace(done, notes=(*done.notes, *_view_note(self)))

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

    def verify(self, data: Data, format: str | None = None, *, exactly: bool = False) -> Verdict:  # noqa: A002
        """Whether every record is in the table or its quarantine: an independent check, value by value.

        ``data``: as `ingest` takes them, but for DataFrames of Spark. ``exactly``: and whether nothing else
        is there, so that no record was doubled. ``format``: json, csv, parquet, avro or orc; by default what
        files' endings tell. Raises UsageError where there is no such table.
        """
        state = self.state()
        contract = from_properties(state.properties).contract
        columns = self.format.readable(state.schema).struct.fields
        rest = rest_column(Struct(columns))
        beside = [f.name for f in columns if is_metadata(f.doc) and f is not rest]
        struct = Struct(tuple(f for f in columns if f.name not in beside))
        room = place_of(self.lake.spark, self.lake.warehouse)
        with told_where(self.lake.spark, room), _checked(data, format, room) as (sources, kind, names):
            stored = Stored(
                self.format.read_readable().drop(*beside),
                replace(state.schema, struct=struct),
                waiting(self.format),
                state.properties,
                [_keys(path) for path in excluded_paths(contract)],
                {_keys(path): unit for path, unit in epoch_units(contract)},
                self.format.defaults(),
            )
            return verify(self.lake.spark, stored, sources, kind, exactly=exactly).named(names)


@contextmanager
def _checked(
    data: Data, fmt: str | None, room: Path | None
) -> Iterator[tuple[list[str], str, dict[str, str]]]:
    """The files that are checked, their format, and names for those that are made for it, where there is
    ``room``.
    """
    paths, rows = paths_or_rows(data)
    if rows is not None:
        with folder_in(room) as folder:
            names = pickled(rows, folder)
            yield list(names), PICKLED, names
        return
    kind, files = expand(paths, fmt)
    with spooled(files, kind, room) as (sources, names):
        yield sources, kind, names


def _altered(table: Table, request: Request, *, upgrade: bool) -> Altered:
    """The table altered; its view follows where it gets another name."""
    done = alter(table.format, request, catalog=table.lake.catalog, upgrade=upgrade)
    if done.table == table.name:
        return done
    try:
        view = moved(table.lake.format, table.format, table.lake.format.table(done.table))
    except DriftlineError as error:
        return replace(done, notes=(*done.notes, f"its view is to be made again: {error.message}"))
    return replace(done, notes=(*done.notes, f"its view is {view.name} now")) if view else done


def _view_note(table: Table) -> tuple[str, ...]:
    """The table's view follows it, where there is one; what there is to say of that."""
    try:
        view = remade(table.lake.format, table.format)
    except DriftlineError as error:
        return (f"the view of {table.name} is to be made again: {error.message}",)
    return (f"view {view.name} was made again",) if view else ()


def _about(name: str, progress: Callable[[str], None]) -> Callable[[str], None]:
    return lambda phase: progress(f"{name}: {phase}")


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


def _keys(path: tuple[str, ...]) -> str:
    """A path without its steps into lists."""
    return dotted(tuple(step for step in path if step != "element"))


class TableSchema(Shown):
    """A table's schema; `to_dict` is its Iceberg JSON form."""

    def __init__(self, schema: Schema, table: str) -> None:
        self.schema = schema
        self.table = table

    def to_dict(self) -> dict[str, Any]:
        """The same as `--json` prints it."""
        return to_json(self.schema)


shows(Lake, lambda lake: [f"lake {lake.warehouse or lake.catalog}"])
shows(Table, lambda table: [f"table {table.name}"])
shows(TableSchema, lambda shown: [schema_text.schema(shown.table, shown.schema)])
