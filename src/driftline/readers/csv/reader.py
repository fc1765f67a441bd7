"""Reads CSV files in tasks, with dates and nested texts in their columns.

All files are looked at once, before anything is observed: a column of which every text is of one type is
read as a whole, of others each cell is judged by itself (rules 2.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.convert import arrow_type
from driftline.convert.declared import OVERFLOW, VOID
from driftline.core.schema.text import counted
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    Primitive,
    Struct,
)
from driftline.core.settings.csv import Dialect, Signs
from driftline.core.settings.row_key import KEY
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError
from driftline.files.text import LineRange
from driftline.observe.expect import UNKNOWN, ExpectedField
from driftline.readers.columnar.parquet import FoundReaders
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.columnar.split import SplitColumn, with_split_columns
from driftline.readers.csv.cells import columns, row_lines
from driftline.readers.csv.cut import BACKSLASH
from driftline.readers.csv.open import ANY, Header, Stretch, header_of, stretches_of
from driftline.readers.csv.sample import CsvFile, RowPlaces, empty_rows, looks_at, with_types
from driftline.readers.csv.tally import ColumnTally, Place, by_cells, cell_types, spelling_hints, word_hints
from driftline.readers.csv.types import (
    KINDS,
    NARROW,
    CsvColumn,
    Patterns,
    Types,
    by_kinds,
    dated,
    declared_of,
    folded_structs,
    hint_lines,
    in_order,
    not_met,
    null_notes,
    patterns_of,
    with_offsets,
)
from driftline.readers.rejects import Origin, Reject
from driftline.runtime.failure import explained
from driftline.runtime.stores import mapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Wanted: TypeAlias = tuple[tuple[Struct, Sequence[Types], Sequence[Types]], ...]


def _declared(texts: pa.Array, among: Types, signs: Signs, place: Place) -> Types:
    return declared_of(texts, among, signs)


def _not_met(texts: pa.Array, among: Types, signs: Signs, place: Place) -> Types:
    return not_met(texts, among, signs)


_DATES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_ASKED_FOR = (*NARROW, TIMESTAMP.name)
_RESPELLED = (BOOLEAN, DOUBLE, TIMESTAMP, TIMESTAMP_NTZ)  # 19.90, TRUE, a blank for the T
_MADE = 4  # columns whose names are told of
_STRETCH = 4 * 2**20, 32 * 2**20  # bytes of a stretch, at least and at most


@dataclass(frozen=True, slots=True)
class CsvReader:
    """Files with one header.

    Attributes:
        struct: the types of their columns.
        label: the first of the files.
        escaped: a file in which a backslash may escape quotes.
        numbered: the rows have line numbers.
        nulls: the cells of each text that is null.
        tallies: those of the columns.
        empty: the rows without a value.
    """

    struct: Struct
    label: str
    stretches: Sequence[Stretch]
    escaped: str = ""
    numbered: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)
    tallies: Sequence[ColumnTally] = ()
    empty: int = 0

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each stretch."""
        return [stretch.size for stretch in self.stretches]

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return [stretch.path for stretch in self.stretches]

    def rows(self, part: int) -> Iterator[Rows]:
        """Yield the rows of a stretch, and the records that are none."""
        names = [f.name for f in self.struct.fields]
        types = [arrow_type(f.type) for f in self.struct.fields]
        stretch = self.stretches[part]
        for piece in stretch.pieces():
            arrays, others = columns(piece, types, stretch.form.signs, stretch.form.nulls)
            rejects = [Reject(Origin(stretch.path, no_row.line), no_row.raw, no_row.why) for no_row in others]
            lines = row_lines(piece, len(types), others) if self.numbered else None
            batch = pa.RecordBatch.from_arrays(arrays, names)
            places = RowPlaces(stretch.path, piece, len(types), others)
            origin = places.origin
            if stretch.form.skip_empty and (empty := empty_rows(arrays)).any():
                filled = np.flatnonzero(~empty)
                batch, origin = batch.take(pa.array(filled)), partial(places.origin_among, filled)
                lines = None if lines is None else lines[filled]
            yield Rows(batch, stretch.path, rejects, origin, lines=lines)


def csv_readers(
    spark: SparkSession,
    files: Sequence[str],
    dialect: Dialect = ANY,
    *,
    strings: bool,
    ranges: Mapping[str, LineRange] | None = None,
) -> list[CsvReader]:
    """Find the readers of CSV files with a header line each; equal headers share a reader.

    Args:
        dialect: the known part of the dialect.
        strings: every cell stays text.
        ranges: the lines to read of some files, by path.

    Raises DataError for a file that cannot be read.
    """
    return _readers(spark, cut_files(spark, files, dialect, ranges), strings=strings)


def cut_files(
    spark: SparkSession,
    files: Sequence[str],
    dialect: Dialect = ANY,
    ranges: Mapping[str, LineRange] | None = None,
) -> list[CsvFile]:
    """Read the headers of files, and cut their rows into stretches; the arguments are those of `csv_readers`.

    A file without a line has none. Raises DataError for a header that cannot be read.
    """
    ranges = ranges or {}

    def header(file: str) -> Header | None:
        return header_of(file, dialect, ranges[file].end if file in ranges else None)

    by_file = zip(files, mapped(header, files), strict=True)
    headers = {file: header for file, header in by_file if header is not None}
    share = sum(header.length for header in headers.values()) // (2 * spark.sparkContext.defaultParallelism)
    size = min(max(share, _STRETCH[0]), _STRETCH[1])
    return [
        CsvFile(file, header, stretches_of(file, header, size, ranges.get(file)))
        for file, header in headers.items()
    ]


def _readers(spark: SparkSession, cut: Sequence[CsvFile], *, strings: bool) -> list[CsvReader]:
    """Find the types of columns, and the readers; equal headers share one."""
    groups: dict[tuple[CsvColumn, ...], list[CsvFile]] = {}
    for file in with_types(spark, cut, strings=strings):
        groups.setdefault(file.header.columns, []).append(file)
    return [_reader(group, strings=strings) for group in groups.values()]


def _reader(files: Sequence[CsvFile], *, strings: bool) -> CsvReader:
    """Build a reader of files with one header."""
    by_column = zip(*(file.tallies for file in files), strict=True)
    tallies = [reduce(ColumnTally.merge, parts) for parts in by_column]
    types = [STRING if strings else tally.type for tally in tallies]
    names = files[0].header.columns
    fields = (
        Field(name, type_, doc=reason or None) for (name, reason), type_ in zip(names, types, strict=True)
    )
    struct = Struct(tuple(fields))
    stretches = [stretch for file in files for stretch in file.stretches]
    escaped = next((file.path for file in files if file.escaped), "")
    nulls = sum((Counter(file.nulls) for file in files), Counter[str]())
    empty = sum(file.empty for file in files)
    return CsvReader(struct, files[0].path, stretches, escaped, nulls=nulls, tallies=tallies, empty=empty)


@dataclass(frozen=True, slots=True)
class FoundCsv(FoundReaders):
    """The readers of CSV files for a table.

    Attributes:
        written: readers by the files alone, read by the ``dialect``.
        wanted: the types of their columns, those that the table or its settings ask for, and all that the
            table has for them.
        patterns: date patterns, by column.
        keys: columns whose cells count by their own types.
    """

    dialect: Dialect = ANY
    written: Sequence[CsvReader] = ()
    wanted: Wanted = ()
    patterns: Patterns = field(default_factory=dict)
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """Finds the readers of CSV files.

    Attributes:
        strings: every cell stays text.
        ranges: the lines to read of some files, by path.
    """

    spark: SparkSession
    files: Sequence[str]
    strings: bool
    ranges: Mapping[str, LineRange] = field(default_factory=dict)

    def cut(self, dialect: Dialect) -> list[CsvFile]:
        """The files in stretches. Raises DataError for a header that cannot be read."""
        return cut_files(self.spark, self.files, dialect, self.ranges)

    def __call__(
        self, expected: ExpectedField, settings: TableSettings, before: FoundReaders | None = None
    ) -> FoundCsv:
        """Find the readers for a table. Raises the errors of `csv_readers`."""
        if not isinstance(before, FoundCsv) or before.dialect != settings.csv:
            try:
                written = _readers(self.spark, self.cut(settings.csv), strings=self.strings)
            except (PySparkException, Py4JError, OSError) as error:
                raise DataError(*explained(error)) from error
            before = FoundCsv(written, (), settings.csv, written)
        numbered = "line" in settings.metadata
        if any(reader.numbered != numbered for reader in before.written):
            written = [replace(reader, numbered=numbered) for reader in before.written]
            before = replace(before, readers=written, written=written, wanted=())
        on_names: list[str] = []
        structs = folded_structs(
            ((reader.struct, reader.stretches[0].line - 1) for reader in before.written),
            expected.fields,
            settings.csv,
            on_names,
        )
        # Not for good: for the next schema of the table, the files' own names count.
        read = [replace(r, struct=struct) for r, struct in zip(before.written, structs, strict=True)]
        notes = [*_notes(read, settings), *on_names]
        if self.strings:
            return replace(before, readers=read, notes=notes)
        found = fitted(self.spark, replace(before, written=read), expected, settings)
        hints = (
            *_kept_as_text(read, expected, settings),
            *chain.from_iterable(_on_cells(reader, expected, settings) for reader in read),
        )
        return replace(found, written=before.written, notes=list(dict.fromkeys((*notes, *hints))))


def _notes(readers: Sequence[CsvReader], settings: TableSettings) -> Sequence[str]:
    """Return notes on the detected dialect of the files, and hints at their dates."""
    dialect = settings.csv
    forms = {part.form: reader for reader in readers for part in reader.stretches}
    on_marks = (note for form, reader in forms.items() for note in form.notes(dialect, reader.label))
    escaped = () if dialect.escape else map(_escaped, readers)
    dates = (
        note for form, reader in forms.items() for note in hint_lines(form.dates, reader.struct, settings)
    )
    others = chain.from_iterable((*map(_made_names, readers), *escaped))
    counts = sum((Counter(reader.nulls) for reader in readers), Counter[str]())
    empty = _on_empty_rows(readers, dialect)
    return list(dict.fromkeys([*null_notes(counts), *on_marks, *empty, *others, *dates]))


def _on_empty_rows(readers: Sequence[CsvReader], dialect: Dialect) -> Iterator[str]:
    """Yield the count of rows without a value, and the flag that leaves them out."""
    if dialect.skip_empty == "true":
        if count := sum(reader.empty for reader in readers):
            yield f"left out: {counted(count, 'row')} without a value (--skip-empty)"
    # Of one column, a blank line is a row.
    elif count := sum(reader.empty for reader in readers if len(reader.struct.fields) > 1):
        yield f"{counted(count, 'row has', 'rows have')} no value: --skip-empty leaves them out"


def _kept_as_text(
    readers: Sequence[CsvReader], expected: ExpectedField, settings: TableSettings
) -> Iterator[str]:
    """Yield notes on columns that stay text in this table, whatever the settings say."""
    kept: dict[str, dict[str, None]] = {"double": {}, "timestamptz": {}}
    for reader in readers:
        fields, has_signs = reader.struct.fields, settings.csv.signs != Signs()
        dates = chain.from_iterable(part.form.dates for part in reader.stretches)
        instants = with_offsets(dates, reader.struct) if settings.dates == "instant" else ()
        kept["double"] |= {f.name: None for f in fields if has_signs and f.type == DOUBLE}
        kept["timestamptz"] |= dict.fromkeys(instants)
    for type_, names in kept.items():
        if texts := [name for name in names if expected.fields.get(name, UNKNOWN).types == {STRING}]:
            yield f"{', '.join(texts)}: text, as the table has it, until driftline resolve --as {type_}"


def _on_cells(reader: CsvReader, expected: ExpectedField, settings: TableSettings) -> Iterator[str]:
    """Yield hints at columns whose cells differ in type."""
    mixed = {}
    for f, tally in zip(reader.struct.fields, reader.tallies, strict=True):
        table_types = expected.fields.get(f.name, UNKNOWN).types
        is_settled = table_types == {STRING} or settings.fields.of(f.name).pattern is not None
        if f.type == STRING and tally.most is not None and not is_settled:
            mixed[f.name] = (tally, table_types)
    yield from word_hints({name: tally for name, (tally, _) in mixed.items()}, settings.csv)
    commas = " ".join(hint for part in reader.stretches for hint in part.form.hints if "numeric" in hint)
    new = {
        name: tally for name, (tally, table_types) in mixed.items() if not table_types and name not in commas
    }
    yield from spelling_hints(new)


def _made_names(reader: CsvReader) -> Iterator[str]:
    """Yield notes on column names that are not from the file."""
    made_names = [f"{f.doc}: it is {f.name}" for f in reader.struct.fields if f.doc and f.type != VOID]
    and_others = f"; and {len(made_names) - _MADE} more" if len(made_names) > _MADE else ""
    if made_names:
        yield f"{reader.label}: {'; '.join(made_names[:_MADE])}{and_others}"


def _escaped(reader: CsvReader) -> Iterator[str]:
    """Yield the flag that reads quotes after backslashes."""
    if reader.escaped:
        flags = Dialect(escape=BACKSLASH.decode()).flags
        yield f"{reader.escaped} has quotes behind backslashes in quoted cells: {flags} reads them"


def fitted(
    spark: SparkSession, current: FoundCsv, expected: ExpectedField, settings: TableSettings
) -> FoundCsv:
    """Adapt the readers to the number types that a table declares, and to the dates of its ``settings``.

    A text that is a number goes into such a column as it would come from JSON, if the column holds all texts
    of its field exactly. If the table has only a string column, a text stays as written. ``expected``: the
    table's fields.
    """
    patterns, dates = patterns_of(settings.fields), settings.dates
    keys = _keys(expected, settings)
    readers = [_with_texts(reader, expected, patterns, settings) for reader in current.written]
    types = [[_wanted(f, expected, patterns, dates) for f in reader.struct.fields] for reader in readers]
    table_types = [[_known(f, expected, settings) for f in reader.struct.fields] for reader in readers]
    structs = [reader.struct for reader in readers]
    wanted_types = tuple(zip(structs, types, table_types, strict=True))
    # The table asks for nothing new, so the files need not be looked at again.
    if (wanted_types, patterns, keys) == (current.wanted, current.patterns, current.keys):
        return current
    work = [
        (part, column_types)
        for reader, column_types in zip(readers, types, strict=True)
        if any(column_types)
        for part in reader.stretches
    ]
    looks = iter(looks_at(spark, work, _declared))
    fitting = [
        _with_types(reader, [next(looks).columns for _ in reader.stretches]) if any(column_types) else reader
        for reader, column_types in zip(readers, types, strict=True)
    ]
    cells = [_by_cells(reader, types, settings) for reader, types in zip(fitting, table_types, strict=True)]
    fitting = [_as_texts(reader, columns) for reader, columns in zip(fitting, cells, strict=True)]
    by_pattern = [dated(reader, patterns) for reader in fitting]
    split = [_split(spark, *both, keys - patterns.keys()) for both in zip(fitting, by_pattern, strict=True)]
    split = [with_split_columns(*both) for both in zip(split, cells, strict=True)]
    return replace(current, readers=split, wanted=wanted_types, patterns=patterns, keys=keys)


def _known(f: Field, expected: ExpectedField, settings: TableSettings) -> Types:
    """Return the types of the table's columns for a field whose cells may be judged one by one.

    Cells of a key, of a pattern and of a field that a person has folded into one type are judged elsewhere:
    here they count as text alone. Before it has a column, an order has one kind.
    """
    of_field = settings.fields.of(f.name)
    types = expected.fields.get(f.name, UNKNOWN).types
    is_apart = of_field.pattern is not None or of_field.texts is not None
    is_whole = of_field.role == KEY or is_apart or (of_field.role and not types)
    return frozenset((STRING,)) if is_whole else types


def _by_cells(
    reader: CsvReader, table_types: Sequence[Types], settings: TableSettings
) -> Mapping[str, SplitColumn]:
    """Return the columns whose cells are judged one by one."""
    signs, instants = reader.stretches[0].form.signs, settings.dates == "instant"
    columns = {}
    for f, tally, types in zip(reader.struct.fields, reader.tallies, table_types, strict=True):
        among = cell_types(f.type, tally, types, settings.dates) if isinstance(f.type, Primitive) else ()
        if among:
            # Which of the types that the table has for the field are in this batch, its values tell.
            fields = [Field(f.name, type_, doc=OVERFLOW) for type_ in among]
            first = fields[0] if types else replace(f, type=among[0])
            read = partial(by_cells, among, signs, instants=instants)
            columns[f.name] = SplitColumn((first, *fields[1:]), read)
    return columns


def _as_texts(reader: CsvReader, names: Collection[str]) -> CsvReader:
    """Read these columns as text."""
    fields = (replace(f, type=STRING) if f.name in names else f for f in reader.struct.fields)
    return replace(reader, struct=Struct(tuple(fields)))


def _keys(expected: ExpectedField, settings: TableSettings) -> frozenset[str]:
    """Return the key fields for which the table has more than a text column."""
    keys = (name for name, field_settings in settings.fields.fields.items() if field_settings.role == KEY)
    return frozenset(n for n in keys if not expected.fields.get(n, UNKNOWN).types <= {STRING})


def _split(
    spark: SparkSession, texts: CsvReader, reader: ColumnReader, keys: Collection[str]
) -> ColumnReader:
    """Read cells of the text columns of ``keys`` by their own types."""
    fields = texts.struct.fields
    among = [KINDS if f.name in keys and f.type == STRING else frozenset() for f in fields]
    if not any(among):
        return reader
    looks = looks_at(spark, [(part, among) for part in texts.stretches], _not_met)
    missing = [
        frozenset.intersection(*types) for types in zip(*(look.columns for look in looks), strict=True)
    ]
    met = zip(fields, among, missing, strict=True)
    types = {f.name: in_order(possible - without) for f, possible, without in met if possible}
    return by_kinds(reader, types, texts.stretches[0].form.signs)


def _with_texts(
    reader: CsvReader, expected: ExpectedField, patterns: Patterns, settings: TableSettings
) -> CsvReader:
    """Keep text for fields that have only string columns in the table.

    That applies to values that print otherwise than written, to all values of a key, to columns with a date
    pattern, and without ``dates`` to all dates.
    """

    grouped = any(stretch.form.signs.thousands for stretch in reader.stretches)

    def fitting(f: Field) -> Field:
        alone = expected.fields.get(f.name, UNKNOWN).types == {STRING}
        # The cells of a key count one by one. Else it would depend on the other cells of its file whether `7`
        # is a number.
        is_key = settings.fields.of(f.name).role == KEY and f.type != VOID
        is_respelled = f.type in _RESPELLED or (f.type == LONG and grouped)
        is_text = (alone and (is_respelled or is_key)) or (f.name in patterns and f.type != VOID)
        is_text = is_text or (settings.dates == "off" and f.type in _DATES)
        return replace(f, type=STRING) if is_text and f.type != STRING else f

    return replace(reader, struct=Struct(tuple(map(fitting, reader.struct.fields))))


def _wanted(f: Field, expected: ExpectedField, patterns: Patterns, dates: str) -> Types:
    """Return types that texts alone do not show: numbers of the field's columns, instants by a setting."""
    types = expected.fields.get(f.name, UNKNOWN).types
    if dates == "instant" and f.type == STRING and types != {STRING} and f.name not in patterns:
        types |= {TIMESTAMP}
    declared = frozenset(t for t in types if t.name in NARROW or (t == TIMESTAMP and dates == "instant"))
    return declared if f.type in (LONG, DOUBLE, STRING) and f.type not in types else frozenset()


def _with_types(reader: CsvReader, parts: Sequence[Sequence[Types]]) -> CsvReader:
    """Give each column the narrowest type that every part can have, if there is one."""
    fields = []
    for f, column_types in zip(reader.struct.fields, zip(*parts, strict=True), strict=True):
        common = sorted(
            frozenset.intersection(*column_types), key=lambda t: (_ASKED_FOR.index(t.name), t.args)
        )
        fields.append(replace(f, type=common[0]) if common else f)
    return replace(reader, struct=Struct(tuple(fields)))
