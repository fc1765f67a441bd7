"""Runs the check over all records, in Spark tasks or, of small data, in this process.

Both sides meet by key; a record without a row is looked up in the quarantine. Rows and records stay in the
tasks; only counts and the few reported differences reach the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.core.planning.own_columns import rest_column
from driftline.core.schema.definition import TRUNCATED_PROPERTY
from driftline.core.schema.naming import MARK, by_key, data_key, is_metadata
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import Schema, Struct, dotted, peel
from driftline.core.settings.condition import EXPECT, Expectation
from driftline.core.settings.fields import epoch_units, excluded_paths, parse_path
from driftline.core.settings.properties import EXPECTED, from_properties, readings
from driftline.core.settings.row_key import RowKey
from driftline.core.support import deep_recursion
from driftline.files.text import LineRange
from driftline.runtime.stores import is_stored
from driftline.verify.beside import Beside
from driftline.verify.change_feeds import plain_value
from driftline.verify.comparison import (
    TEXTS,
    Comparison,
    Terms,
    begin_task,
)
from driftline.verify.conditions import ExpectedRecords
from driftline.verify.csv import CsvDialect
from driftline.verify.data_files import FileRows
from driftline.verify.driver import DriverTasks
from driftline.verify.envelopes import last_truncate, unwrapped
from driftline.verify.files import (
    LONGEST,
    FilePart,
    Read,
    as_part,
    as_read,
    grouped,
    has_packed,
    lines_of_file,
    messages_to_deal,
    parts,
    read,
    size_of,
)
from driftline.verify.fold import KeyedFold
from driftline.verify.frames import FrameRows, SparkTasks
from driftline.verify.in_memory import PICKLED
from driftline.verify.in_memory import read as read_pickled
from driftline.verify.local import LocalRows, LocalTasks
from driftline.verify.messages import MESSAGES
from driftline.verify.moments import takes_offsets, written_dates
from driftline.verify.path_values import path_values, with_values
from driftline.verify.routing import DealtRecords, LostRecords, TableNames, deal, dealt
from driftline.verify.search import RecordSearch
from driftline.verify.typed_files import Renames, earlier_names, floats_in, read_columns, readable
from driftline.verify.typed_messages import as_message, avro_messages
from driftline.verify.values import ValueSettings
from driftline.verify.verdict import Verdict
from driftline.verify.whole_columns import ColumnMatching
from driftline.verify.wire import WIRE, as_wire_read, wire_messages, wire_reads

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

Engine: TypeAlias = SparkTasks | LocalTasks
StoredRows: TypeAlias = FrameRows | FileRows | LocalRows

SMALL = 2**18  # bytes of JSON whose records are compared one by one: to compare columns first is a job more
HERE = 2**18  # bytes of plain files whose records are compared in Spark's driver, if the table is small, too
_FEW_FILES = 64  # which are read one after the other there
_LEVELS = 200  # of records, for which Python's limit of recursion then is above that of a task
_FLOATS = 2  # the result of `floats_in` without a schema


@dataclass(frozen=True, slots=True)
class Stored:
    """A table to be checked: its rows, by its name in Spark, as a frame or read here, and its quarantine's.

    ``properties``: the table's. ``ignore``: excluded key paths, dotted; ``units``: epoch units of such paths.
    Neither has steps for elements of lists. ``defaults``: what a record without a value may have got, by
    column id. ``row_key``: how its rows are known, None where each record is a row. ``readings``: by file the
    properties by which it was read, if those are not the table's. ``expect``: what is expected of records.
    ``files``: lists Parquet files of this machine that together have these rows; none if they have others.
    ``beside``: what else the table has by its key, where the sources are a part of it. ``earlier``: keys with
    changes of before the sources: remembered deletes, or rows where the first record of a key stays.
    ``ranges``: of some sources of JSON, the lines that are compared.
    """

    rows: str | DataFrame | LocalRows
    schema: Schema
    quarantine: str | DataFrame | LocalRows | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    ignore: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[int, Iterable[Any]] = field(default_factory=dict)
    row_key: RowKey | None = None
    readings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    expect: Sequence[Expectation] = ()
    files: Callable[[], Sequence[str]] = tuple
    beside: Beside | None = None
    earlier: DataFrame | None = None
    ranges: Mapping[str, LineRange] = field(default_factory=dict)

    def read_by(self, sources: Sequence[str]) -> dict[str, dict[str, str]]:
        """The properties by which each file was ingested, by which it is judged."""
        return {source: {**self.properties, **self.readings.get(source, {})} for source in sources}

    @classmethod
    def of(
        cls,
        rows: DataFrame | LocalRows,
        schema: Schema,
        quarantine: DataFrame | LocalRows | None,
        properties: Mapping[str, str],
        defaults: Mapping[int, Iterable[Any]] | None = None,
    ) -> Stored:
        """The table whose settings these properties hold."""
        settings = from_properties(properties)
        ignore = [_listless(path) for path in excluded_paths(settings.fields)]
        units = {_listless(path): unit for path, unit in epoch_units(settings.fields)}
        return cls(
            rows,
            schema,
            quarantine,
            properties,
            ignore,
            units,
            defaults or {},
            settings.row_key,
            expect=settings.expect,
        )


def compared_columns(columns: Struct) -> Struct:
    """The columns of a table but for those about its records, such as where they came from."""
    rest = rest_column(columns)
    return Struct(tuple(f for f in columns.fields if f is rest or not is_metadata(f.doc)))


def _listless(path: Sequence[str]) -> str:
    """A path without its steps into lists."""
    return dotted(tuple(step for step in path if step != "element"))


def verify(
    spark: SparkSession | None,
    table: Stored,
    sources: Sequence[str],
    fmt: str,
    *,
    exactly: bool = False,
    names: Mapping[str, str] | None = None,
) -> Verdict:
    """Check that the table or its quarantine has each record of the files ``sources``, equally often.

    Of a table with a key: what the latest record of each key says, where the files came in this order.

    ``spark``: None: in this process, of rows that it reads; ``fmt``: the format of the files; ``exactly``:
    also that there are no other rows; ``names``: other names for files, by path. Raises DataError where
    `KeyedFold.verdict` does, NeedsSpark for files that are not read without.
    """
    sources = _absolute(sources)
    by_file = table.read_by(sources)
    settings, expected = _value_settings(table, by_file, fmt), _expected(table, by_file)
    tasks: Engine = LocalTasks() if spark is None else SparkTasks(spark)
    # Records are compared by recursion, and in this process, too.
    with tasks.session(), deep_recursion(_LEVELS):
        pieces = _pieces(by_file, fmt, table, own_signs=settings.mixed_signs)
        engine, fmt = tasks, _of_values(fmt)
        runs_here = isinstance(tasks, SparkTasks) and tasks.run_here and table.earlier is None
        if isinstance(tasks, SparkTasks) and runs_here and _is_little(sources, fmt, pieces):
            engine = DriverTasks.beside(tasks, table.rows, table.quarantine, _unmet(expected)) or tasks
        files = _SourceFiles(sources, by_file, fmt, grouped(pieces, engine.cores), names or {})
        return _Verification(engine, table, files, settings, expected, exactly).verdict()


def _of_values(fmt: str) -> str:
    """The format of the values in files."""
    return "json" if fmt == MESSAGES else fmt


def _absolute(sources: Sequence[str]) -> list[str]:
    # A task has a working directory of its own.
    return [source if "://" in source else str(Path(source).absolute()) for source in sources]


def dealt_by_table(
    spark: SparkSession,
    names: TableNames,
    sources: Sequence[str],
    fmt: str,
    by_file: Mapping[str, Mapping[str, str]],
    folder: Path,
) -> dict[str, DealtRecords]:
    """Deal the records of the files ``sources`` among the tables ``names`` of a pattern.

    ``by_file``: properties to read each file by; ``folder``: for the dealt records.
    """
    sources = _absolute(sources)
    tasks: Engine = SparkTasks(spark)
    with tasks.session(), deep_recursion(_LEVELS):
        # In braces a header has the case that the pattern has.
        keys = [path[0] for path in names.paths.values()]
        of_files = [_parts(file, fmt, by_file[file]) for file in sources] if fmt in (*TEXTS, MESSAGES) else []
        pieces = [replace(part, keys=keys) for of_file in of_files for part in of_file]
        engine: Engine = LocalTasks() if _is_little(sources, _of_values(fmt), pieces) else tasks
        of_tasks = grouped(pieces, engine.cores)
        if fmt == MESSAGES:
            reads, floats = engine.parallelize(of_tasks).flatMap(_messages_to_deal), 0
        elif fmt == WIRE:
            reads, floats = engine.parallelize(sources).flatMap(wire_messages), _FLOATS
        else:
            reads, floats = _reads(engine, sources, fmt, of_tasks)
        in_paths = _values_in_paths(by_file, names.files, fmt)
        reads = reads.map(partial(with_values, in_paths)) if in_paths else reads
        slices = reads.mapPartitions(partial(deal, names, folder)).collect()
    by_table: dict[str, list[Any]] = {}
    for part in slices:
        by_table.setdefault(part.table, []).append(part)
    return {table: DealtRecords(sources, fmt, floats, parts_) for table, parts_ in by_table.items()}


def verify_dealt(
    spark: SparkSession,
    table: Stored,
    records: DealtRecords,
    *,
    exactly: bool = False,
    names: Mapping[str, str] | None = None,
    lost: LostRecords | None = None,
) -> Verdict:
    """Check as `verify` does that a table has the records that were dealt to it.

    ``lost``: gets the records that it lacks; not those of a table with a key.
    """
    by_file = table.read_by(records.sources)
    settings, expected = _value_settings(table, by_file, records.fmt), _expected(table, by_file)
    tasks = SparkTasks(spark)
    with tasks.session(), deep_recursion(_LEVELS):
        engine: Engine = tasks
        if tasks.run_here and records.size <= HERE and table.earlier is None:
            engine = DriverTasks.beside(tasks, table.rows, table.quarantine, _unmet(expected)) or tasks
        keys = _field_keys(table)
        fmt = _of_values(records.fmt)
        files = _SourceFiles(
            records.sources, by_file, fmt, (), names or {}, records, lost, settings.mixed_signs, keys
        )
        return _Verification(engine, table, files, settings, expected, exactly).verdict()


@dataclass(frozen=True, slots=True)
class _SourceFiles:
    """The files of a source.

    Attributes:
        by_file: the properties by which each is read.
        tasks: the parts of text files that each task reads; none of others.
        names: other names, by path.
        dealt: the records of one table, where they were dealt before.
        lost: gets the records that the table lacks.
        own_signs: numbers in dealt cells are read by the dialect of their file.
        keys: of the table's fields, which headers of dealt cells may fill in another letter case.
    """

    sources: Sequence[str]
    by_file: Mapping[str, Mapping[str, str]]
    fmt: str
    tasks: Sequence[Sequence[FilePart]]
    names: Mapping[str, str]
    dealt: DealtRecords | None = None
    lost: LostRecords | None = None
    own_signs: bool = False
    keys: Sequence[str] = ()

    def reads(self, engine: Engine, row_key: RowKey | None, *, in_messages: bool) -> tuple[RDD[Read], int]:
        """The records, and the number of `floats_in`.

        Args:
            engine: reads them.
            row_key: how the table's rows are known.
            in_messages: they come in envelopes.
        """
        if self.dealt is None:
            return (_messages if in_messages else _reads)(engine, self.sources, self.fmt, self.tasks)
        chosen = frozenset(self.sources)
        reads = engine.parallelize(self.dealt.tasks()).flatMap(dealt)
        reads = reads.filter(lambda read: read.place.file in chosen)
        if self.dealt.fmt in (MESSAGES, WIRE):
            as_read_by = as_read if self.dealt.fmt == MESSAGES else as_wire_read
            keys, nulls = (
                (False, False) if row_key is None else (row_key.reads_messages, row_key.deletes_by_null)
            )
            reads = reads.flatMap(partial(as_read_by, keys=keys, nulls=nulls))
        if self.fmt == "csv":
            dialects = {file: CsvDialect.of(properties) for file, properties in self.by_file.items()}
            reads = reads.map(partial(as_part, dialects, self.keys, own_signs=self.own_signs))
        if in_messages and self.fmt not in (*TEXTS, WIRE):
            return reads.map(as_message), 0
        return reads, self.dealt.floats


def _is_little(sources: Sequence[str], fmt: str, pieces: Sequence[FilePart]) -> bool:
    """True if this process compares the records of the files sooner than tasks begin.

    Args:
        pieces: of text files.
    """
    if len(sources) > _FEW_FILES or fmt not in (*TEXTS, PICKLED, WIRE):
        return False
    # Each look at a file of a store is a request, and tasks make several at a time.
    if any(map(is_stored, sources)):
        return False
    size = sum(part.size for part in pieces) if fmt in TEXTS else sum(map(size_of, sources))
    # Nobody knows beforehand how long a packed text is.
    return size <= HERE and not any(map(has_packed, sources))


@dataclass(frozen=True, slots=True)
class _Verification:
    """The comparison of files with a table; ``exactly``: also that there are no other rows."""

    engine: Engine
    table: Stored
    files: _SourceFiles
    settings: ValueSettings
    expected: ExpectedRecords | None
    exactly: bool

    def verdict(self) -> Verdict:
        """The verdict, by rows out of the table's files where that will do."""
        # Whatever is wrong, Spark says what it is: it may read the rows where this fails, or otherwise.
        with suppress(Exception):
            rows = FileRows.of(self.engine, self.table.schema.struct, self.table.files)
            if rows is not None and (verdict := self._of(rows)).ok:
                return verdict
        stored: Any = self.table.rows  # what the engine reads
        return self._of(self.engine.rows(stored))

    def _of(self, stored: StoredRows) -> Verdict:
        engine, table, files, expected = self.engine, self.table, self.files, self.expected
        properties, fmt, sources = table.properties, files.fmt, files.sources
        in_messages = bool(properties.get("driftline.envelope"))
        reads, floats = files.reads(engine, table.row_key, in_messages=in_messages)
        reads = reads if in_messages or fmt != "avro" else _by_aliases(reads, table, sources)
        extended = _extended(files.by_file, fmt)
        reads = reads.map(partial(_plain, extended)) if extended else reads
        in_paths = _values_in_paths(files.by_file, files.names, fmt)
        reads = reads.map(partial(with_values, in_paths)) if in_paths else reads
        schema, mark = json.dumps(to_json(table.schema)), properties.get("driftline.mark", MARK)
        terms = Terms(
            schema,
            mark,
            floats,
            self.settings,
            fmt,
            tuple(table.ignore),
            table.defaults,
            self.exactly,
            bool(extended),
        )
        comparison = Comparison.by(terms)
        quarantined = _quarantined(engine, table, expected)
        if table.row_key is not None:
            records, truncate = _unwrapped(reads, table.row_key, properties)
            fold = KeyedFold(comparison, table.row_key, _numbered(sources), truncate, table.beside)
            judged, before = _judged(records, comparison, expected), _before(engine, table, fold)
            return fold.verdict(judged, stored.records(), quarantined, before)
        check = RecordSearch(
            engine, comparison, _judged(reads, comparison, expected), quarantined, files.lost
        )
        columns, verdict = comparison.meeting.record.columns, None
        # Whole columns only show that a record is held; a column that Spark cannot read has no fingerprints.
        as_lines = _is_much_json(fmt, files.tasks) and not (in_paths or extended or expected)
        if as_lines and columns and columns.keys() <= set(stored.columns):
            verdict = check.by_columns(ColumnMatching(terms, files.tasks, engine, stored))
        return verdict or check.verdict(check.reads, stored.records())


def _before(engine: Any, table: Stored, fold: KeyedFold) -> RDD[dict[str, Any]] | None:
    """The keys of before the sources, with the orders of their changes; None if they are not looked up."""
    if table.earlier is None:
        return None
    needed = fold.columns_of_keys()
    others = [column for column in table.earlier.columns if column not in needed]
    rows: StoredRows = engine.rows(table.earlier.drop(*others))
    return rows.records()


def _numbered(sources: Sequence[str]) -> dict[str, int]:
    return {source: number for number, source in enumerate(sources)}


def _quarantined(
    engine: Any, table: Stored, expected: ExpectedRecords | None
) -> RDD[tuple[bytes, bool]] | None:
    """The table's quarantined records, each with a flag if it waits for an expectation."""
    quarantine = table.quarantine
    return None if quarantine is None else engine.quarantined(quarantine, _unmet(expected))


def _unmet(expected: ExpectedRecords | None) -> str:
    """The beginning of each reason to wait that an expectation is; empty without expectations."""
    return "" if expected is None else EXPECT


def _value_settings(table: Stored, by_file: Mapping[str, Mapping[str, str]], fmt: str) -> ValueSettings:
    """The settings by which values are read.

    Args:
        by_file: the properties by which each file is.
    """
    properties, signs = table.properties, {CsvDialect.of(merged).signs for merged in by_file.values()}
    is_resolved = any(key.startswith("driftline.resolved.") for key in properties)
    if is_resolved:  # `resolve` reads texts by the table's signs, whatever their files had
        signs.add(CsvDialect.of(properties).signs)
    comma, thousands = next(iter(signs)) if len(signs) == 1 else CsvDialect.of(properties).signs
    return ValueSettings(
        properties.get("driftline.epoch-unit"),
        takes_offsets(properties),
        table.units,
        is_resolved,
        comma,
        properties.get("driftline.empty-names") == "keep",
        thousands,
        written_dates(properties),
        mixed_signs=len(signs) > 1 and fmt == "csv",
    )


def _unwrapped(reads: RDD[Read], row_key: RowKey, properties: Mapping[str, str]) -> tuple[RDD[Read], str]:
    """The records of a source, and the position of the last truncate in it, if the table knows of one."""
    truncated = TRUNCATED_PROPERTY in properties
    # The source is read twice only here: which rows a truncate removes is known once its last one is.
    truncate = last_truncate(reads, row_key) if truncated else ""
    return unwrapped(reads, row_key, truncated=truncated), truncate


def _expected(table: Stored, by_file: Mapping[str, Mapping[str, str]]) -> ExpectedRecords | None:
    """The expectations that set records aside, and the files held against them; None without any.

    Args:
        by_file: the properties by which each file was read.
    """
    expectations = [expectation for expectation in table.expect if expectation.action == "quarantine"]
    if not expectations:
        return None
    now = _stated(table.properties)
    # A file that the table does not remember may be older than an expectation.
    has_changed = any(_stated(read) != now for read in readings(table.properties))
    files = (file for file, properties in by_file.items() if _stated(properties) == now)
    return ExpectedRecords(
        expectations, frozenset(file for file in files if file in table.readings or not has_changed)
    )


def _stated(properties: Mapping[str, str]) -> dict[str, str]:
    """The expectations among properties."""
    return {name: text for name, text in properties.items() if name.startswith(EXPECTED) and text}


def _judged(reads: RDD[Read], comparison: Comparison, expected: ExpectedRecords | None) -> RDD[Read]:
    return reads if expected is None else reads.mapPartitions(partial(_held_against, expected, comparison))


def _held_against(expected: ExpectedRecords, comparison: Comparison, reads: Iterable[Read]) -> Iterator[Read]:
    return expected.judged(comparison.meeting, reads)


def _pieces(
    by_file: Mapping[str, Mapping[str, str]],
    fmt: str,
    table: Stored,
    *,
    own_signs: bool,
) -> list[FilePart]:
    """The parts of text files, in order; none of others.

    Args:
        by_file: properties to read by.
        table: has the fields that headers of CSV may fill.
    """
    if fmt == MESSAGES:
        return parts(list(by_file), fmt)
    if fmt not in TEXTS:
        return []
    ranges = dict(zip(_absolute([*table.ranges]), table.ranges.values(), strict=True))
    pieces = [
        part
        for file, properties in by_file.items()
        for part in _parts(file, fmt, properties, ranges.get(file))
    ]
    if fmt == "csv":
        pieces = [replace(part, own_signs=own_signs, keys=_field_keys(table)) for part in pieces]
    return pieces


def _field_keys(table: Stored) -> list[str]:
    """The keys of a table's fields."""
    return list(by_key(table.schema.struct.fields, table.properties.get("driftline.mark", MARK)))


def _is_much_json(fmt: str, tasks: Sequence[Sequence[FilePart]]) -> bool:
    """True for lines of JSON of which enough are there to compare their columns first."""
    size = sum(part.size for task in tasks for part in task)
    return fmt == "json" and size > SMALL and not any(part.records for task in tasks for part in task)


def _parts(
    source: str, fmt: str, properties: Mapping[str, str], lines: LineRange | None = None
) -> list[FilePart]:
    """The parts of a text file, or of some of its ``lines``, read as the properties say."""
    longest = int(properties.get("driftline.max-record-bytes") or LONGEST)
    if lines is not None:
        return lines_of_file(source, lines.start, lines.end, longest)
    listed = properties.get("driftline.records", "")
    records = parse_path(listed) if listed else ()
    return parts([source], fmt, longest, CsvDialect.of(properties), records)


def _by_aliases(reads: RDD[Read], table: Stored, sources: Sequence[str]) -> RDD[Read]:
    """The records of Avro files, whose renamed fields may be in the columns of their earlier names."""
    keys = _keys(table.schema.struct, table.properties.get("driftline.mark", MARK))
    names = {source: of_file for source in sources if (of_file := earlier_names(source, keys))}
    return reads.map(partial(_renamed, names)) if names else reads


def _keys(struct: Struct, mark: str) -> dict[str, Any]:
    """The fields that the columns have, each with those of its records."""
    keys: dict[str, Any] = {}
    for f in struct.fields:
        inside = keys.setdefault(data_key(f, mark), {})
        if isinstance(leaf := peel(f.type)[1], Struct):
            inside |= _keys(leaf, mark)
    return keys


def _renamed(names: Mapping[str, Renames], read: Read) -> Read:
    of_file = names.get(read.place.file)
    if read.record is None or of_file is None:
        return read
    return replace(read, record=_with_names(read.record, of_file))


def _with_names(value: Any, names: Renames) -> Any:
    if not names or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_with_names(item, names) for item in value]
    columns = {key: names.get(key, (key, {})) for key in value}
    return {column: _with_names(value[key], inside) for key, (column, inside) in columns.items()}


def _extended(by_file: Mapping[str, Mapping[str, str]], fmt: str) -> frozenset[str]:
    """The files whose records are read as Extended JSON, by the properties to read them by."""
    return frozenset(
        file
        for file, properties in by_file.items()
        if fmt in ("json", PICKLED)
        and properties.get("driftline.extended-json") == "true"
        and not properties.get("driftline.envelope")
    )


def _plain(extended: frozenset[str], read: Read) -> Read:
    """The record with the values that its objects of Extended JSON stand for."""
    if read.record is None or read.place.file not in extended:
        return read
    return replace(read, record={key: plain_value(value) for key, value in read.record.items()})


def _values_in_paths(
    by_file: Mapping[str, Mapping[str, str]], names: Mapping[str, str], fmt: str
) -> Mapping[str, Any]:
    """The values in the paths of the sources (Hive's partitions); empty if there are none.

    Args:
        by_file: properties to read by.
    """
    if fmt == PICKLED:
        return {}
    on = [
        file
        for file, properties in by_file.items()
        if properties.get("driftline.hive") != "off" and not properties.get("driftline.envelope")
    ]
    values = path_values({file: names.get(file, file) for file in on}, fmt)
    return values if any(values.values()) else {}


def _reads(
    engine: Engine, sources: Sequence[str], fmt: str, tasks: Sequence[Sequence[FilePart]]
) -> tuple[RDD[Read], int]:
    if fmt == PICKLED:
        return engine.parallelize(sources).flatMap(read_pickled), _FLOATS
    if fmt == WIRE:
        return engine.parallelize(sources).flatMap(wire_reads), _FLOATS
    if all(readable(source, fmt) for source in sources):
        floats = max((floats_in(source, fmt) for source in sources), default=0)
        return engine.parallelize(sources).flatMap(partial(read_columns, fmt=fmt)), floats
    if fmt not in TEXTS:
        return engine.typed(sources, fmt)
    return engine.parallelize(tasks).flatMap(_read), 0


def _messages(
    engine: Engine, sources: Sequence[str], fmt: str, tasks: Sequence[Sequence[FilePart]]
) -> tuple[RDD[Read], int]:
    """The messages of a source; of columns, with values as JSON has them."""
    if fmt == "avro":
        return engine.parallelize(sources).flatMap(avro_messages), 0
    reads, floats = _reads(engine, sources, fmt, tasks)
    return (reads, floats) if fmt in (*TEXTS, WIRE) else (reads.map(as_message), 0)


def _read(task: Sequence[FilePart]) -> Iterator[Read]:
    begin_task()
    return chain.from_iterable(map(read, task))


def _messages_to_deal(task: Sequence[FilePart]) -> Iterator[Read]:
    begin_task()
    return chain.from_iterable(map(messages_to_deal, task))
