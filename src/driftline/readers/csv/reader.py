"""Reads CSV files in tasks, with dates and nested texts in their columns.

Columns get types only if every text allows it (rules 2.3): all files are looked at once, before anything is
observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.convert import arrow_type
from driftline.convert.declared import OVERFLOW, VOID
from driftline.convert.json_values import spelled
from driftline.convert.kernels import dates_of
from driftline.core.schema.date_pattern import DatePattern
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
from driftline.core.settings.fields import TextReading
from driftline.core.settings.row_key import KEY
from driftline.core.settings.table import TableSettings
from driftline.core.support import gc_paused
from driftline.errors import DataError
from driftline.files.text import LineRange
from driftline.observe.expect import UNKNOWN, ExpectedField
from driftline.readers.columnar.parquet import FoundReaders
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.csv.cells import columns, row_lines
from driftline.readers.csv.cut import BACKSLASH, OpenEndError, TooLongError, count_lines, is_escaped
from driftline.readers.csv.open import ANY, CsvColumn, Header, Stretch, Wrong, header_of, stretches_of, whole
from driftline.readers.csv.types import (
    ALL,
    KINDS,
    NARROW,
    Patterns,
    Types,
    declared_of,
    hint_lines,
    in_order,
    not_met,
    null_notes,
    patterns_of,
    type_of,
    types_of,
    values_of,
    with_offsets,
)
from driftline.readers.rejects import Origin, Reject
from driftline.readers.task import AdmissionTerms, assign_parts
from driftline.runtime.failure import explained
from driftline.runtime.stores import mapped
from driftline.write import is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dated(reader: ColumnReader, patterns: Patterns) -> ColumnReader:
    """Read the dates of text columns that have a pattern; other texts become a second field."""
    return _with_split_columns(
        reader,
        {
            f.name: SplitColumn(
                (replace(f, type=patterns[f.name].type), Field(f.name, STRING, doc=OVERFLOW)),
                partial(_by_pattern, patterns[f.name]),
            )
            for f in reader.struct.fields
            if f.type == STRING and f.name in patterns
        },
    )


def by_kinds(reader: ColumnReader, types: Mapping[str, Sequence[Primitive]], signs: Signs) -> ColumnReader:
    """Read the cells of some text columns by their own types.

    Args:
        reader: the reader.
        types: the types of each column, by name.
        signs: the signs in numbers.
    """
    return _with_split_columns(
        reader,
        {
            f.name: SplitColumn(
                tuple(replace(f, type=type_) for type_ in types[f.name]),
                partial(_by_type, types[f.name], signs),
            )
            for f in reader.struct.fields
            if f.name in types
        },
    )


def _by_pattern(pattern: DatePattern, texts: pa.Array) -> Sequence[pa.Array]:
    dates = dates_of(texts, pattern)
    return dates, pc.if_else(dates.is_valid(), pa.scalar(None, pa.string()), texts)


def _by_type(types: Sequence[Primitive], signs: Signs, texts: pa.Array) -> Sequence[pa.Array]:
    values = values_of(texts, signs)
    return [values[type_] for type_ in types]


def _with_split_columns(reader: ColumnReader, columns: Mapping[str, SplitColumn]) -> ColumnReader:
    return SplitTexts(reader, columns) if columns else reader


class SplitColumn(NamedTuple):
    """The ``fields`` of a text column, and ``read``, which converts the texts to their values.

    A value is null if its text belongs to another field.
    """

    fields: Sequence[Field]
    read: Callable[[pa.Array], Sequence[pa.Array]]


def split_struct(struct: Struct, columns: Mapping[str, SplitColumn]) -> Struct:
    """Return the struct with the fields of split columns."""
    fields: list[Field] = []
    for f in struct.fields:
        split = columns.get(f.name)
        fields += [f] if split is None else split.fields
    return Struct(tuple(fields))


def split_texts(rows: Rows, struct: Struct, columns: Mapping[str, SplitColumn]) -> Rows:
    """Split the texts of some columns of rows, which have the fields of ``struct``."""
    arrays: list[pa.Array] = []
    for f, array in zip(struct.fields, rows.batch.columns, strict=True):
        split = columns.get(f.name)
        arrays += [array] if split is None else split.read(array)
    names = [f.name for f in split_struct(struct, columns).fields]
    return replace(rows, batch=pa.RecordBatch.from_arrays(arrays, names))


def with_resolved_texts(reader: ColumnReader, terms: AdmissionTerms) -> ColumnReader:
    """Read the texts of fields that a person has folded into one type as what they spell."""
    return _with_split_columns(reader, resolved_columns(reader.struct, terms))


def read_resolved(rows: Rows, struct: Struct, terms: AdmissionTerms) -> tuple[Rows, Struct]:
    """Read the texts of such fields in rows with the fields of ``struct``; returns the fields, too."""
    columns = resolved_columns(struct, terms)
    return (split_texts(rows, struct, columns), split_struct(struct, columns)) if columns else (rows, struct)


def resolved_columns(struct: Struct, terms: AdmissionTerms) -> Mapping[str, SplitColumn]:
    """Split the text columns of fields that a person has folded into one type, where texts spell its values.

    Where the table has a column of the field's texts, it keeps them all as they are written.
    """
    names = Counter(f.name for f in struct.fields)
    columns = {}
    for f in struct.fields:
        reading = terms.settings.fields.of(f.name).texts
        if reading is None or reading.type == STRING or f.type != STRING or names[f.name] > 1:
            continue
        typed = replace(f, type=reading.type)
        keeps_all = STRING in terms.expected.fields.get(f.name, UNKNOWN).types
        # Of two fields that have a value, the first one counts in a column that takes both.
        fields = (f, typed) if keeps_all else (typed, Field(f.name, STRING, doc=OVERFLOW))
        columns[f.name] = SplitColumn(fields, partial(_by_reading, reading, terms.settings.dates, keeps_all))
    return columns


def _by_reading(reading: TextReading, dates: str, keeps_all: bool, texts: pa.Array) -> Sequence[pa.Array]:
    values = spelled(texts, reading, dates)
    if keeps_all:
        return texts, values
    return values, pc.if_else(values.is_valid(), pa.scalar(None, pa.string()), texts)


@dataclass(frozen=True)
class SplitTexts:
    """Reads the rows of another reader, with some ``columns`` split into fields of the same name."""

    texts: ColumnReader
    columns: Mapping[str, SplitColumn]

    @property
    def label(self) -> str:
        """The name of the files in reports."""
        return self.texts.label

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each part."""
        return self.texts.sizes

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return self.texts.paths

    @cached_property
    def struct(self) -> Struct:
        """The types of the columns, and of the fields of split ones."""
        return split_struct(self.texts.struct, self.columns)

    def rows(self, part: int) -> Iterator[Rows]:
        """Yield the rows of a part."""
        for rows in self.texts.rows(part):
            yield split_texts(rows, self.texts.struct, self.columns)


# Of a column's texts, for some types, with the signs in numbers.
Test: TypeAlias = "Callable[[pa.Array, Types, Signs], Types]"
Work: TypeAlias = tuple[Stretch, Sequence[Types]]
Wanted: TypeAlias = tuple[tuple[Struct, Sequence[Types]], ...]


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A file with its header, in stretches.

    Attributes:
        types: the possible types of each column, once it was looked at.
        escaped: a backslash may escape its quotes.
        nulls: the cells of each text that is null.
    """

    path: str
    header: Header
    stretches: Sequence[Stretch]
    types: Sequence[Types] = ()
    escaped: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CsvSample:
    """The observation of a stretch.

    Attributes:
        types: the possible types of each column.
        lines: their number.
        open_end: the stretch is cut off within a cell, or begins there.
        wrong: the text that cannot be read, with its line, counted in the stretch.
        escaped: cells may close only where a backslash escapes quotes.
        nulls: the cells of each text that is null.
    """

    types: Sequence[Types]
    lines: int
    open_end: bool = False
    wrong: Wrong | None = None
    escaped: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)


@gc_paused()
def sample_stretch(stretch: Stretch, types: Sequence[Types], test: Test) -> CsvSample:
    """Observe the rows of a stretch.

    Args:
        stretch: the stretch.
        types: the candidate types of each column.
        test: finds the types that fit.
    """
    lines, escaped, form = 0, False, stretch.form
    nulls: Counter[str] = Counter()
    try:
        for piece in stretch.at_line(1).pieces():
            escaped = escaped or (not piece.plain and is_escaped(piece.text, piece.marks))
            # Only a check: ASCII is UTF-8, and is found faster.
            if not piece.text.isascii():
                piece.text.decode()
            lines += count_lines(piece.text)
            if any(types) or form.nulls:
                texts, _ = columns(piece, [pa.string()] * len(types))
                texts = [_without(column, form.nulls, nulls) for column in texts] if form.nulls else texts
                types = [test(column, among, form.signs) for column, among in zip(texts, types, strict=True)]
    except OpenEndError:
        return CsvSample(types, lines, open_end=True)
    except UnicodeDecodeError as error:
        before = count_lines(error.object[: error.start])
        return CsvSample(types, lines, wrong=Wrong.byte(lines + before + 1, error, stretch.form))
    except TooLongError as error:
        return CsvSample(types, lines, wrong=Wrong.length(error.line))
    return CsvSample(types, lines, escaped=escaped, nulls=nulls)


def _without(texts: pa.Array, nulls: Sequence[str], counts: Counter[str]) -> pa.Array:
    """The texts without those that are null, which are counted."""
    chosen = pc.is_in(texts, value_set=pa.array(nulls, pa.string()))
    if not pc.any(chosen).as_py():
        return texts
    for count in pc.value_counts(texts.filter(chosen)).to_pylist():
        counts[count["values"]] += count["counts"]
    return pc.if_else(chosen, pa.scalar(None, pa.string()), texts)


def with_types(spark: SparkSession, files: Sequence[CsvFile], *, strings: bool) -> list[CsvFile]:
    """Find the possible types of the files' columns, none if all are ``strings``.

    The files' stretches then begin and end with whole records, numbered by lines. Raises DataError for a
    byte that is not UTF-8, and for a record that is too long.
    """
    types: Types = frozenset() if strings else ALL
    finished: dict[int, CsvFile] = {}
    todo = dict(enumerate(files))
    while todo:
        work = [
            (part, [types] * len(file.header.columns)) for file in todo.values() for part in file.stretches
        ]
        looks = iter(looks_at(spark, work, types_of))
        again = {}
        for number, file in todo.items():
            typed = _with_looks(file, [next(looks) for _ in file.stretches])
            if typed is None:
                # A cut fell into a quoted cell. One wrong cut makes all later ones doubtful, so the file is
                # read in one.
                again[number] = replace(file, stretches=[whole(file.stretches)])
            else:
                finished[number] = typed
        todo = again
    return [finished[number] for number in range(len(files))]


def looks_at(spark: SparkSession, work: Sequence[Work], test: Test) -> list[CsvSample]:
    """Look at stretches, in order: in this process if there is little to read, else in tasks."""
    sizes, context = [stretch.size for stretch, _ in work], spark.sparkContext
    if is_small(context, sum(sizes)):
        return [sample_stretch(stretch, types, test) for stretch, types in work]
    shares = [
        [(number, *work[number]) for number in share]
        for share in assign_parts(sizes, context.defaultParallelism)
    ]
    looks = context.parallelize(shares, len(shares)).flatMap(partial(_look_share, test)).collect()
    by_number = dict(looks)
    return [by_number[number] for number in range(len(work))]


def _look_share(
    test: Test, share: Iterable[tuple[int, Stretch, Sequence[Types]]]
) -> list[tuple[int, CsvSample]]:
    return [(number, sample_stretch(stretch, types, test)) for number, stretch, types in share]


def _with_looks(file: CsvFile, looks: Sequence[CsvSample]) -> CsvFile | None:
    """Return the file as it was seen; None if it cannot be read in these stretches."""
    if any(look.open_end for look in looks):
        return None
    line, stretches = file.stretches[0].line, []
    for stretch, stretch_look in zip(file.stretches, looks, strict=True):
        if stretch_look.wrong is not None:
            raise stretch_look.wrong.below(line - 1).of(file.path)
        # Lines are counted from 1 in each stretch; here they get their numbers in the file.
        stretches.append(stretch.at_line(line))
        line += stretch_look.lines
    types = [
        frozenset.intersection(*column_types)
        for column_types in zip(*(stretch_look.types for stretch_look in looks), strict=True)
    ]
    nulls = sum((Counter(look.nulls) for look in looks), Counter[str]())
    escaped = any(look.escaped for look in looks)
    return replace(file, stretches=stretches, types=types, escaped=escaped, nulls=nulls)


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
    """

    struct: Struct
    label: str
    stretches: Sequence[Stretch]
    escaped: str = ""
    numbered: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)

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
            yield Rows(pa.RecordBatch.from_arrays(arrays, names), stretch.path, rejects, lines=lines)


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
    ranges = ranges or {}

    def header(file: str) -> Header | None:
        return header_of(file, dialect, ranges[file].end if file in ranges else None)

    by_file = zip(files, mapped(header, files), strict=True)
    headers = {file: header for file, header in by_file if header is not None}
    share = sum(header.length for header in headers.values()) // (2 * spark.sparkContext.defaultParallelism)
    size = min(max(share, _STRETCH[0]), _STRETCH[1])
    cut = [
        CsvFile(file, header, stretches_of(file, header, size, ranges.get(file)))
        for file, header in headers.items()
    ]
    groups: dict[tuple[CsvColumn, ...], list[CsvFile]] = {}
    for file in with_types(spark, cut, strings=strings):
        groups.setdefault(file.header.columns, []).append(file)
    return [_reader(group, strings=strings) for group in groups.values()]


def _reader(files: Sequence[CsvFile], *, strings: bool) -> CsvReader:
    """Build a reader of files with one header."""
    by_column = zip(*(file.types for file in files), strict=True)
    types = [STRING if strings else type_of(parts) for parts in by_column]
    names = files[0].header.columns
    fields = (
        Field(name, type_, doc=reason or None) for (name, reason), type_ in zip(names, types, strict=True)
    )
    struct = Struct(tuple(fields))
    stretches = [stretch for file in files for stretch in file.stretches]
    escaped = next((file.path for file in files if file.escaped), "")
    nulls = sum((Counter(file.nulls) for file in files), Counter[str]())
    return CsvReader(struct, files[0].path, stretches, escaped, nulls=nulls)


@dataclass(frozen=True, slots=True)
class FoundCsv(FoundReaders):
    """The readers of CSV files for a table.

    Attributes:
        written: readers by the files alone, read by the ``dialect``.
        wanted: the types of their columns, and those that the table or its settings have for them.
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

    def __call__(
        self, expected: ExpectedField, settings: TableSettings, before: FoundReaders | None = None
    ) -> FoundCsv:
        """Find the readers for a table. Raises the errors of `csv_readers`."""
        if not isinstance(before, FoundCsv) or before.dialect != settings.csv:
            try:
                written = csv_readers(
                    self.spark, self.files, settings.csv, strings=self.strings, ranges=self.ranges
                )
            except (PySparkException, Py4JError, OSError) as error:
                raise DataError(*explained(error)) from error
            before = FoundCsv(written, (), settings.csv, written)
        numbered = "line" in settings.metadata
        if any(reader.numbered != numbered for reader in before.written):
            written = [replace(reader, numbered=numbered) for reader in before.written]
            before = replace(before, readers=written, written=written, wanted=())
        notes = _notes(before.written, settings)
        if self.strings:
            return replace(before, notes=notes)
        found = fitted(self.spark, before, expected, settings)
        return replace(found, notes=[*notes, *_kept_as_text(before.written, expected, settings)])


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
    return list(dict.fromkeys([*null_notes(counts), *on_marks, *others, *dates]))


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
    wanted_types = tuple(
        (reader.struct, column_types) for reader, column_types in zip(readers, types, strict=True)
    )
    # The table asks for nothing new, so the files need not be looked at again.
    if (wanted_types, patterns, keys) == (current.wanted, current.patterns, current.keys):
        return current
    work = [
        (part, column_types)
        for reader, column_types in zip(readers, types, strict=True)
        if any(column_types)
        for part in reader.stretches
    ]
    looks = iter(looks_at(spark, work, declared_of))
    fitting = [
        _with_types(reader, [next(looks).types for _ in reader.stretches]) if any(column_types) else reader
        for reader, column_types in zip(readers, types, strict=True)
    ]
    by_pattern = [dated(reader, patterns) for reader in fitting]
    split = [_split(spark, *both, keys - patterns.keys()) for both in zip(fitting, by_pattern, strict=True)]
    return replace(current, readers=split, wanted=wanted_types, patterns=patterns, keys=keys)


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
    looks = looks_at(spark, [(part, among) for part in texts.stretches], not_met)
    missing = [frozenset.intersection(*types) for types in zip(*(look.types for look in looks), strict=True)]
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
        return replace(f, type=STRING) if is_text else f

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
