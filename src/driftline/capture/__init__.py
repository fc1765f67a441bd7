"""Captures: named, checkpointed flows from a source into a table, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from driftline.capture.changed import ChangedFiles
from driftline.capture.checkpoint import Checkpoint, check_name, default_place
from driftline.capture.finding import finder, must_be_there
from driftline.capture.flows import Files, Frames, files
from driftline.capture.folder import FileLog
from driftline.capture.kafka import SCHEME, Kafka, TopicReading, is_kafka, kafka
from driftline.capture.query import CaptureQuery, CaptureRun, StreamSource, start
from driftline.capture.resuming import ResumeFrom, Resumption
from driftline.capture.seeking import Seek, not_begun, parsed
from driftline.capture.status import StatusFile
from driftline.capture.targets import (
    CaptureTarget,
    PatternTarget,
    TableTarget,
    must_be_whole,
    resumption_of,
)
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.row_key import check_kept
from driftline.errors import UsageError
from driftline.ingest.attempts import NO_AUDIT, Audit
from driftline.ingest.batch import Listener
from driftline.ingest.fan_out import FanOut
from driftline.ingest.result import Result
from driftline.keys.stored import KeyCache
from driftline.quarantine.table import with_feed
from driftline.runtime.session import must_be_classic
from driftline.runtime.stores import is_s3, is_stored
from driftline.sources.inputs import column_of_no_frame, given_paths
from driftline.sources.spooled import is_pipe, is_url, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.formats.lakes import Catalog


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options for reading a stream, named as the parameters of `Table.capture`."""

    format: str | None
    json_column: str | None
    strings: bool
    max_files: int
    topics: TopicReading
    notify: str | None = None
    list_every: float | None = None
    changed_files: ChangedFiles = "fail"


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """The target of a capture, its name and its schedule; named as parameters of `Table.capture`.

    Attributes:
        fan_out: the tables, if ``table`` is a pattern.
    """

    table: str
    name: str
    checkpoint: str | os.PathLike[str] | None
    every: float | None
    settings: Mapping[str, str]
    progress: Callable[[str], None]
    on_batch: Callable[[Any], None]  # takes a Batch, of a pattern a PatternBatch
    listener: Listener[Result]
    resume_from: ResumeFrom | None = None
    audit: Audit = NO_AUDIT
    fan_out: FanOut | None = None
    secrets: Sequence[Mapping[str, str]] = ()  # settings that may have some


@dataclass(frozen=True, slots=True)
class SeekRequest:
    """The capture whose position is to change; named as parameters of `Table.seek`.

    Attributes:
        fan_out: the tables, if ``table`` is a pattern.
    """

    table: str
    name: str
    checkpoint: str | os.PathLike[str] | None
    to: str | datetime
    dry_run: bool
    fan_out: FanOut | None = None


def capture(
    catalog: Catalog,
    data: DataFrame | str | os.PathLike[str],
    reading: StreamOptions,
    request: CaptureRequest,
) -> CaptureQuery:
    """Start the capture that `Table.capture` and `PatternTables.capture` promise."""
    catalog.check_writable()
    table, name, fan_out = request.table, request.name, request.fan_out
    if request.resume_from not in (None, *get_args(ResumeFrom)):
        raise UsageError(f"resume_from is {request.resume_from!r}", hint="it is 'table' or 'checkpoint'")
    if reading.changed_files not in get_args(ChangedFiles):
        raise UsageError(
            f"changed_files is {reading.changed_files!r}", hint="it is 'fail', 'skip', 'append' or 'again'"
        )
    mirrored = not hasattr(data, "isStreaming")  # the state of a person's own stream may be large
    place = _checkpoint(catalog, table, name, request.checkpoint, mirrored=mirrored)
    if fan_out is not None:
        is_topic = not hasattr(data, "isStreaming") and os.fspath(cast("str", data)).startswith(SCHEME)
        if not is_topic:
            fan_out.pattern.must_be_of_files()

    status = StatusFile(place.place, (*request.secrets, reading.topics.client, reading.topics.registry))
    run = CaptureRun(
        name,
        partial(_target, catalog, request, place),
        place,
        request.settings,
        request.progress,
        request.on_batch,
        request.listener,
        status,
        request.audit,
    )
    spark = _spark(catalog, request)
    with ExitStack() as stack:
        # Locked before anything is read: another process may move the same checkpoint on.
        stack.enter_context(place.locked())
        with status.failing():
            flow = _flow(catalog, spark, data, reading, place)
            stack.callback(flow.end)
            place.claim(table, flow.name)
            return start(run, flow, request.every, _resumption(catalog, request, place), stack)


def _spark(catalog: Catalog, request: CaptureRequest | SeekRequest) -> SparkSession:
    fan_out = request.fan_out
    return catalog.table(request.table if fan_out is None else fan_out.pattern.example).spark


def _resumption(catalog: Catalog, request: CaptureRequest | SeekRequest, place: Checkpoint) -> Resumption:
    """The point that the capture goes on from. Raises DataError if table and checkpoint differ about it."""
    if request.fan_out is not None:
        return resumption_of(request.name, request.fan_out, place)
    table = catalog.table(request.table)
    chosen = request.resume_from if isinstance(request, CaptureRequest) else None
    resumption = Resumption(request.name, table, table.load(), place, chosen)
    resumption.check()
    if isinstance(request, CaptureRequest):
        _check_settings(resumption, request.settings)
    return resumption


def _check_settings(resumption: Resumption, settings: Mapping[str, str]) -> None:
    """Raise UsageError for settings that each batch would refuse."""
    table, requested = resumption.table, as_properties(settings)
    state = with_feed(table, resumption.state)
    if state.exists:
        check_kept(table.name, state.properties, requested)
    from_properties({**state.properties, **requested})


def _target(
    catalog: Catalog, request: CaptureRequest, place: Checkpoint, spark: SparkSession
) -> CaptureTarget:
    """Open the target in the stream's own session."""
    there, fan_out = catalog.on(spark), request.fan_out
    if fan_out is None:
        return TableTarget(there.table(request.table), place)
    of_capture = replace(fan_out, catalog=there, recent={}, keys=KeyCache())
    return PatternTarget(of_capture, place, catalog.folder)


def seek(catalog: Catalog, source: str, reading: StreamOptions, request: SeekRequest) -> Seek:
    """Change the position of a capture, as `Table.seek` promises."""
    catalog.check_writable()
    table, name, to = request.table, request.name, parsed(request.to)
    place = _checkpoint(catalog, table, name, request.checkpoint)
    if not place.has_begun:
        raise not_begun(name)
    with ExitStack() as stack:
        stack.enter_context(place.locked())
        flow = _flow(catalog, _spark(catalog, request), source, reading, place)
        stack.callback(flow.end)
        place.claim(table, flow.name)
        resumption = _resumption(catalog, request, place)
        if request.fan_out is not None:
            must_be_whole(resumption)
        assert isinstance(flow, Files | Kafka), "the source is a path or URL"
        again, passed = flow.seek(resumption, to, dry_run=request.dry_run)
        place.keep()
    return Seek(table, name, to, tuple(again), tuple(passed), not request.dry_run)


def _checkpoint(
    catalog: Catalog, table: str, name: str, named: str | os.PathLike[str] | None, *, mirrored: bool = True
) -> Checkpoint:
    """The checkpoint of a capture.

    Args:
        named: its folder, as a person gave it.
    """
    default = default_place(catalog.folder, table, name, named=named is not None)
    chosen = default if named is None else os.fspath(named)
    return Checkpoint(chosen, name, mirrored=mirrored, durable=catalog.durable)


def check(source: str, name: str) -> None:
    """Raise, without Spark, for what is wrong with a capture's source or name."""
    check_name(name)
    _must_be_followed(source)
    if not (is_stored(source) or source.startswith(SCHEME)):
        must_be_there(str(Path(*given_paths(source)).absolute()))


def _must_be_followed(source: str) -> None:
    if is_pipe(source) or is_url(source):
        raise UsageError(
            f"{shown(source)}: a pipe or standard input cannot be captured",
            hint="ingest it as one batch: driftline ingest",
        )


def _flow(
    catalog: Catalog,
    spark: SparkSession,
    data: DataFrame | str | os.PathLike[str],
    reading: StreamOptions,
    place: Checkpoint,
) -> StreamSource:
    """Open ``data`` as a flow. Raises UsageError for data that is not a stream."""
    if reading.notify or reading.list_every:
        _must_be_in_s3(data)
    if isinstance(data, (str, os.PathLike)):
        _must_be_followed(os.fspath(data))
    if hasattr(data, "isStreaming"):
        must_be_classic(data)
        frame = cast("DataFrame", data)
        if not frame.isStreaming:
            raise UsageError("this DataFrame is not a stream", hint="ingest it as one batch: Table.ingest")
        typed = reading.topics.value_format != "json"
        if (typed or reading.json_column == "value") and is_kafka(frame):
            return Kafka(frame, "a DataFrame", reading.topics.values())
        return Frames(frame, reading.json_column)
    if reading.json_column is not None:
        raise column_of_no_frame()
    if str(data).startswith(SCHEME):
        return kafka(spark, str(data), reading.topics, place)
    assert place.local is not None, "a checkpoint in a store is mirrored"
    (text,) = given_paths(data)
    source, folder = (
        text.rstrip("/") if is_stored(text) else os.path.realpath(text),
        place.local / "files",
    )
    found_by = finder(source, folder, reading.notify, reading.list_every, catalog.folder)
    log = FileLog(
        found_by,
        folder,
        reading.format,
        reading.max_files,
        catalog.durable,
        on_change=reading.changed_files,
    )
    return files(spark, log, place, strings=reading.strings)


def _must_be_in_s3(data: DataFrame | str | os.PathLike[str]) -> None:
    if hasattr(data, "isStreaming") or not is_s3(os.fspath(data)):
        raise UsageError(
            "notify and list_every are only for folders of S3",
            hint="leave them out: new files are found anyway",
        )
