"""Verifies the tables of a pattern against source data the user still has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.capture.kafka import TopicReading
from driftline.capture.taken import Taken, TopicsAgain
from driftline.core.schema.text import counted
from driftline.core.settings.properties import from_properties
from driftline.core.settings.row_key import RowKey
from driftline.errors import DataError, UsageError
from driftline.formats.base import CatalogTable, State
from driftline.formats.lakes import Catalog
from driftline.ingest.attempts import Audit, Check, DealtShares
from driftline.ingest.pattern import Pattern, is_other
from driftline.ingest.pipeline import Prepared
from driftline.ingest.result import Violation
from driftline.ingest.route import named_values
from driftline.ingest.router import quarantined_alone, tables_of
from driftline.lake.check import (
    SHEET,
    Contents,
    compared,
    keys_of,
    not_found,
    read_as,
)
from driftline.lake.check_sources import SourceFiles, files_of, files_of_batch
from driftline.lake.check_topics import TopicCheck, part_of
from driftline.quarantine.table import with_feed
from driftline.runtime.failure import explained, java_ended
from driftline.runtime.threads import at_once
from driftline.sources.inputs import Data
from driftline.sources.spooled import folder_in, place_of, told_where
from driftline.verify import PatternVerdict, Verdict, dealt_by_table
from driftline.verify.csv import CsvDialect
from driftline.verify.files import Read, SourcePlace
from driftline.verify.routing import OTHER, DealtRecords, LostRecords, TableNames
from driftline.verify.workbooks import ReadBy, as_dealt_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOADED_AT_ONCE = 4


class _Loaded(NamedTuple):
    """A table, and its state. ``named``: the values that named it, if the pattern made it."""

    table: CatalogTable
    state: State
    named: Sequence[Sequence[str | None]] = ()


def checked_topics_of(
    catalog: Catalog, pattern: Pattern, lake: str | None, url: str, reading: TopicReading, *, exactly: bool
) -> PatternVerdict:
    """Check that tables have each message that captures have taken, as `PatternTables.verify` promises."""
    spark = catalog.table(pattern.example).spark
    check = TopicCheck(spark, pattern.text, lake, url, reading, exactly)

    def properties() -> list[Mapping[str, str]]:
        """Those of the tables that the pattern made, and of `_other`."""
        loaded = _loaded_of(spark, catalog, pattern)
        return [table.state.properties for name, table in loaded.items() if table.named or is_other(name)]

    def verdict(again: TopicsAgain, taken: Taken) -> PatternVerdict:
        """Compare the messages with the tables."""
        loaded = _loaded_of(spark, catalog, pattern)
        sheets = _DealtSheets.of(catalog, pattern, loaded)
        with (
            check.messages(again, taken, _row_key(loaded), dealt=True) as (files, gone),
            folder_in(place_of(spark, lake)) as folder,
        ):
            records = _dealt(spark, sheets, files, folder)
            checks = _TableChecks(catalog, files, folder, loaded, exactly, is_part=gone > 0)
            return replace(checks.verdict(pattern, records), gone=gone)

    return check.settled(properties, verdict)


def checked_tables(
    spark: SparkSession,
    catalog: Catalog,
    pattern: Pattern,
    warehouse: str | None,
    data: Data,
    fmt: str | None,
    *,
    exactly: bool,
) -> PatternVerdict:
    """Check that every record of the data is in its table, as `PatternTables.verify` promises.

    ``catalog``: on the session ``spark``; ``warehouse``: the folder of the lake. Raises UsageError for
    records of which there is no table at all.
    """
    pattern.must_be_of_files()
    loaded = _loaded_of(spark, catalog, pattern)
    room, sheets = place_of(spark, warehouse), _DealtSheets.of(catalog, pattern, loaded)
    with (
        told_where(spark, room),
        files_of(data, fmt, room, warehouse, sheets.write, lambda _: {}) as files,
        folder_in(room) as folder,
    ):
        records = _dealt(spark, sheets, files, folder)
        return _TableChecks(catalog, files, folder, loaded, exactly).verdict(pattern, records)


def _loaded_of(spark: SparkSession, catalog: Catalog, pattern: Pattern) -> dict[str, _Loaded]:
    """Load the tables in the namespaces of a pattern, and those that have a quarantine alone."""
    return _loaded(
        spark, catalog, pattern, [*tables_of(catalog, pattern), *quarantined_alone(catalog, pattern)]
    )


def _dealt(
    spark: SparkSession, sheets: _DealtSheets, files: SourceFiles, folder: Path
) -> dict[str, DealtRecords]:
    """The records of files by table. ``folder``: for them."""
    loaded = sheets.loaded
    by_file = _read_by(loaded, files.files, files.names)
    # Files are dealt before a table's own signs count, which a later one may have from the command.
    read = [*by_file.values(), *(table.state.properties for table in loaded.values()), {}]
    signs = list(dict.fromkeys(CsvDialect.of(properties).signs for properties in read))
    tables = replace(sheets.names, files=files.names, signs=signs, of_lines=sheets.of_lines)
    try:
        return dealt_by_table(spark, tables, files.files, files.kind, by_file, folder)
    except (Py4JError, PySparkException) as error:
        message, hint = explained(error)
        raise java_ended(error) or DataError(f"{sheets.names.pattern}: {message}", hint) from error


@dataclass(frozen=True, slots=True)
class _DealtSheets:
    """Writes the rows of workbooks as lines, those of each table as it reads them.

    Attributes:
        names: of the tables.
        of_lines: gets the tables of each file's lines.
    """

    names: TableNames
    loaded: Mapping[str, _Loaded]
    of_lines: dict[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, pattern: Pattern, loaded: Mapping[str, _Loaded]) -> _DealtSheets:
        """The writer for workbooks whose rows go into the tables of a pattern."""
        named = {name: of_name.named for name, of_name in loaded.items()}
        return cls(TableNames(pattern.text, named, {}, catalog.ascii_names), loaded)

    def write(self, file: str, target: Path, _: Mapping[str, str]) -> None:
        """Write lines as `SheetLines`."""
        (first,) = _read_by(self.loaded, [file], ()).values()
        braces = [path[0] for path in self.names.paths.values()]
        self.of_lines[str(target)] = as_dealt_lines(
            file,
            target,
            first.get(SHEET, ""),
            ReadBy(CsvDialect.of(first), braces),
            lambda record: self.names.table_of(Read(SourcePlace(file), record)),
            partial(self._read_by, file),
        )

    def _read_by(self, file: str, name: str) -> ReadBy:
        """The reading of a file by a table; an `_other` that is not there has nothing of its own."""
        if name not in self.loaded:
            return ReadBy(CsvDialect.of({}), ())
        table, state, _ = self.loaded[name]
        read = read_as(table, state, [file]).get(file, {})
        return ReadBy(CsvDialect.of({**state.properties, **read}), keys_of(state))


def _read_by(
    loaded: Mapping[str, _Loaded], files: Sequence[str], names: Collection[str]
) -> dict[str, Mapping[str, str]]:
    """The properties by which each file was read: as a table remembers it, or else those of a table.

    ``names``: files that are copies, which no table knows.
    """
    ours = [(of_name.table, of_name.state) for of_name in loaded.values() if of_name.named]
    usual = ours[0][1].properties if ours else {}
    by_file: dict[str, Mapping[str, str]] = {}
    for table, state in ours:
        unknown = [file for file in files if file not in by_file and file not in names]
        remembered = read_as(table, state, unknown)
        by_file |= {file: {**state.properties, **read} for file, read in remembered.items()}
    return {file: by_file.get(file, usual) for file in files}


def _loaded(
    spark: SparkSession, catalog: Catalog, pattern: Pattern, names: Sequence[str]
) -> dict[str, _Loaded]:
    """Load tables, each with its feed's properties, by name."""

    def load(name: str) -> _Loaded:
        """Load one of them."""
        table = catalog.table(name)
        state = with_feed(table, table.load())
        return _Loaded(table, state, named_values(pattern, state.properties))

    return dict(zip(names, at_once(spark, load, names, _LOADED_AT_ONCE), strict=True))


def with_share_checks(audit: Audit, data: Data, warehouse: str | None) -> Audit:
    """The audit that also verifies what each table of a pattern is to get of its source, or of ``data``."""
    return replace(audit, of_shares=partial(_share_checks, data, warehouse))


@contextmanager
def _share_checks(data: Data, warehouse: str | None, shares: DealtShares) -> Iterator[Check]:
    """Deal the records of a batch by a reading of the pattern of its own; yields a check of a table."""
    catalog, pattern = shares.catalog, shares.pattern
    spark = catalog.table(pattern.example).spark
    written = {
        prepared.planned.batch.table.name: _as_written(pattern, prepared) for prepared in shares.prepared
    }
    names = tables_of(catalog, pattern)
    others = _loaded(spark, catalog, pattern, [name for name in names if name not in written])
    # In the catalog's order: by the first table a file is read that none remembers.
    loaded = {name: written[name] if name in written else others[name] for name in names} | written
    room, sheets = place_of(spark, warehouse), _DealtSheets.of(catalog, pattern, loaded)
    with (
        told_where(spark, room),
        files_of_batch(
            shares.source, data, room, warehouse, sheets.write, _row_key(loaded), dealt=True
        ) as files,
        folder_in(room) as folder,
    ):
        records = _dealt(spark, sheets, files, folder)
        with_share = {*written, *shares.elsewhere}
        # What has no share of its own is in `_other`, which a table that was made meanwhile does not change.
        for name in {*records} - with_share:
            beside = _other_of(name)
            slices = records[beside].slices if beside in records and beside != name else ()
            records[beside] = replace(records[name], slices=[*slices, *records[name].slices])
        first = next(iter(written))
        astray = sum(
            part.records
            for name, of in records.items()
            if name not in with_share and is_other(name)
            for part in of.slices
        )

        def check(prepared: Prepared) -> list[Violation]:
            """Look for the records of a table's share."""
            planned = prepared.planned
            name = planned.batch.table.name
            violations = (
                [Violation("verify", f"{counted(astray, 'record')} of the batch in no table")]
                if astray and name == first
                else []
            )
            if (of_table := records.get(name)) is None:
                return violations
            share = files._replace(files=of_table.sources, by_file={}, dealt=of_table)
            return violations + not_found(Contents.with_batch(prepared), share, must_exist=False)

        yield check


def _row_key(loaded: Mapping[str, _Loaded]) -> RowKey | None:
    """The key of the tables that the pattern made: messages are read once, and alike for all."""
    keys = (from_properties(table.state.properties).row_key for table in loaded.values() if table.named)
    return next((row_key for row_key in keys if row_key is not None), None)


def _as_written(pattern: Pattern, prepared: Prepared) -> _Loaded:
    """A table with the properties that it gets with a batch."""
    batch, state = prepared.planned.batch, prepared.planned.state
    properties = {**state.properties, **batch.table_properties(state), **batch.alone}
    state = replace(state, properties=properties)
    return _Loaded(batch.table, state, named_values(pattern, properties))


@dataclass(frozen=True, slots=True)
class _TableChecks:
    """Checks tables, each against its share of the files.

    Attributes:
        loaded: the tables that are there.
        is_part: the tables have got more than the files have.
        moved: by the name of an `_other`, records that tables lack, and the verdicts on them there.
    """

    catalog: Catalog
    files: SourceFiles
    folder: Path
    loaded: dict[str, _Loaded]
    exactly: bool
    is_part: bool = False
    moved: dict[str, list[tuple[DealtRecords, Verdict]]] = field(default_factory=dict)

    def verdict(self, pattern: Pattern, records: Mapping[str, DealtRecords]) -> PatternVerdict:
        """The verdict on dealt records. Raises UsageError if there is no table for any of them."""
        others = {name for name in {*records, *self.loaded} if _other_of(name) == name}
        of_pattern = {name for name, of_name in self.loaded.items() if of_name.named}
        verdicts: dict[str, Verdict] = {}
        # What tables lack is looked for in `_other`, whose own check comes behind them.
        for name in sorted({*records} - others | (of_pattern if self.exactly else set())):
            verdicts[name] = self._of_table(name, records.get(name))
        for name in sorted(others & {*records} | (others & {*self.loaded} if self.exactly else set())):
            verdicts[name] = self._of_other(name, records.get(name))
        verdict = PatternVerdict(pattern.text, verdicts)
        if verdict.records and not self.loaded and not verdict.quarantined:
            raise UsageError(
                f"there is no table of {pattern.text}", "`driftline tables` lists the tables that exist"
            )
        return verdict

    def _of_table(self, name: str, records: DealtRecords | None) -> Verdict:
        lost = LostRecords(self.folder)
        verdict = self._compared(name, records, lost, exactly=self.exactly)
        beside = _other_of(name)
        if records is None or not lost.slices or not verdict.missing:
            return verdict
        missing = replace(records, slices=lost.slices)
        in_other = self._compared(beside, missing)
        self.moved.setdefault(beside, []).append((missing, in_other))
        return verdict.with_others(in_other)

    def _of_other(self, name: str, records: DealtRecords | None) -> Verdict:
        """The verdict on an `_other`, whose rows are also those of records that tables lack."""
        moved = self.moved.get(name, ()) if self.exactly else ()
        for of_table, _ in moved:
            slices = () if records is None else records.slices
            records = replace(of_table, slices=[*slices, *of_table.slices])
        verdict = self._compared(name, records, exactly=self.exactly)
        for _, in_other in moved:
            verdict = verdict.without(in_other)
        return verdict

    def _compared(
        self,
        name: str,
        records: DealtRecords | None,
        lost: LostRecords | None = None,
        *,
        exactly: bool = False,
    ) -> Verdict:
        """Compare a table, which need not exist, with records; None for no records."""
        table, state, _ = self._load(name)
        dealt = records or DealtRecords(self.files.files, self.files.kind, 0, ())
        sources = dealt.sources
        by_file = read_as(table, state, [file for file in sources if file not in self.files.names])
        files = self.files._replace(files=sources, by_file=by_file, dealt=dealt, lost=lost)
        defaults = table.defaults() if state.exists else {}
        contents = Contents.of(table, state)
        if self.is_part:
            contents = part_of(contents, from_properties(state.properties).row_key)
        return compared(contents, files, defaults, exactly=exactly, must_exist=False)

    def _load(self, name: str) -> _Loaded:
        if name in self.loaded:
            return self.loaded[name]
        table = self.catalog.table(name)
        return _Loaded(table, with_feed(table, table.load()))


def _other_of(name: str) -> str:
    return f"{name.rpartition('.')[0]}.{OTHER}"
