"""Verifies a table against source data the user still has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.capture.finding import entry_of
from driftline.core.history.batch_properties import PREFIX as CAPTURE
from driftline.core.planning.own_columns import own_column
from driftline.core.schema.naming import MARK, by_key
from driftline.core.schema.types import Struct
from driftline.core.settings.properties import reading, readings
from driftline.core.settings.row_key import DELETED_KIND
from driftline.errors import DataError, no_table
from driftline.ingest.batch import read_by
from driftline.operations.replay import kept, waiting
from driftline.quarantine.table import with_feed
from driftline.runtime.failure import explained, java_ended
from driftline.runtime.stores import is_stored
from driftline.sources.files import expand, fingerprint, stamps
from driftline.sources.inputs import Data, paths_or_rows
from driftline.sources.spooled import folder_in, place_of, spooled, told_where
from driftline.sql.quoting import name
from driftline.verify import PICKLED, Stored, Verdict, compared_columns, pickled, verify
from driftline.verify.comparison import TEXTS
from driftline.verify.csv import CsvDialect
from driftline.verify.workbooks import as_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.formats.base import CatalogTable, State


def checked(
    table: CatalogTable, warehouse: str | None, data: Data, fmt: str | None, *, exactly: bool
) -> Verdict:
    """Check that every record of the data is in the table or its quarantine, as `Table.verify` promises.

    ``warehouse``: the folder of the table's lake. Raises UsageError for records of which there is no table.
    """
    state, quarantine = with_feed(table, table.load()), waiting(table)
    columns = table.readable(state.schema).struct if state.exists else Struct(())
    struct = compared_columns(columns)
    beside = {f.name for f in columns.fields} - {f.name for f in struct.fields}
    room = place_of(table.spark, warehouse)
    with (
        told_where(table.spark, room),
        _files(data, fmt, room, warehouse, state, partial(_read_by, table, state)) as opened_files,
    ):
        sources, kind, names, by_file = opened_files
        # Where no record has come, or all of them wait, there is no table yet.
        stored = Stored.of(
            _rows(table, columns).drop(*beside) if state.exists else table.spark.range(0).select(),
            replace(state.schema, struct=struct),
            quarantine,
            state.properties,
            table.defaults() if state.exists else {},
        )
        stored = replace(stored, readings=by_file)
        try:
            verdict = verify(table.spark, stored, sources, kind, exactly=exactly, names=names)
            if verdict.missing and (by_file_now := _readings(table.spark, stored, sources, kind)):
                stored = replace(stored, readings=by_file_now)
                verdict = verify(table.spark, stored, sources, kind, exactly=exactly, names=names)
            if verdict.missing and (all_kept := kept(table)) is not None:
                # Discarded records count where something is missing without them; else they are copies.
                stored = replace(stored, quarantine=all_kept)
                again = verify(table.spark, stored, sources, kind, names=names)
                if again.missing < verdict.missing:
                    verdict = replace(again, extra=verdict.extra)
            # A feed makes its table with its first record: before that, nothing can be missing.
            if verdict.records and not state.exists and quarantine is None:
                raise no_table(table.name)
            return verdict.named(names)
        except (Py4JError, PySparkException) as error:
            message, hint = explained(error)
            ended = java_ended(error)
            raise ended or DataError(f"{table.name} cannot be checked: {message}", hint) from error


def _read_by(table: CatalogTable, state: State, files: Sequence[str]) -> dict[str, dict[str, str]]:
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


def _readings(
    spark: SparkSession, stored: Stored, sources: Sequence[str], kind: str
) -> dict[str, Mapping[str, str]]:
    """The readings of the files: for one whose reading the table does not remember, that by which it has most
    of the records, of all readings that it has had.
    """

    def missing(file: str, read: Mapping[str, str]) -> int:
        return verify(spark, replace(stored, readings={file: read}), [file], kind).missing

    had = [_instead(stored.properties, read) for read in readings(stored.properties)]
    unknown = [file for file in sources if file not in stored.readings] if had and kind in TEXTS else []
    nearest = {file: min(had, key=partial(missing, file)) for file in unknown}
    return {**stored.readings, **nearest} if nearest else {}


def _rows(table: CatalogTable, struct: Struct) -> DataFrame:
    """Return the rows of the table, without those that only record a delete."""
    rows, mark = table.read_readable(), own_column(struct, DELETED_KIND)
    return rows if mark is None else rows.where(f"NOT coalesce({name(mark.name)}, false)")


@contextmanager
def _files(
    data: Data,
    fmt: str | None,
    room: Path | None,
    lake: str | None,
    state: State,
    remembered: Callable[[Sequence[str]], dict[str, dict[str, str]]],
) -> Iterator[tuple[list[str], str, dict[str, str], dict[str, dict[str, str]]]]:
    """The files to check, outside the ``lake``, with their format, names for files that were copied, and the
    properties by which the table read them, where it remembers.

    ``room``: a folder for copies; ``state``: the table's.
    """
    paths, rows = paths_or_rows(data)
    if rows is not None:
        with folder_in(room) as folder:
            names = pickled(rows, folder)
            yield list(names), PICKLED, names, {}
        return
    kind, files = expand(paths, fmt, lake)
    with spooled(files, kind, room) as (sources, names):
        by_file = remembered([source for source in sources if source not in names])
        if kind != "excel":
            yield sources, kind, names, by_file
            return
        with folder_in(room) as folder:
            lines = {str(folder / f"{number}.jsonl"): file for number, file in enumerate(sources)}
            keys = list(by_key(state.schema.struct.fields, state.properties.get("driftline.mark", MARK)))
            for target, file in lines.items():
                merged = {**state.properties, **by_file.get(file, {})}
                as_lines(file, Path(target), merged.get("driftline.sheet", ""), CsvDialect.of(merged), keys)
            yield list(lines), "json", {target: names.get(file, file) for target, file in lines.items()}, {}
