"""The source of one table's share of a batch that was dealt, and how a batch is dealt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from driftline.convert import Converter
from driftline.core.planning.plan import Plan
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.row_key import RowKey
from driftline.core.settings.table import TableSettings
from driftline.core.values import RefusedText
from driftline.errors import UsageError
from driftline.ingest.deal import RecordValues, Share, SpoolSlice, deal
from driftline.ingest.deal_messages import MessageValues, deal_messages
from driftline.ingest.deal_rows import RowSpool, RowValues, Tables
from driftline.ingest.pattern import Pattern
from driftline.observe.json_lines import Why
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.columnar.parquet import FoundReaders, ReaderFinder
from driftline.readers.columnar.rows import has_required
from driftline.readers.json.rows import JsonRows, Run
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.readers.task import TaskReader, in_runs
from driftline.runtime.spark_conf import configured
from driftline.sources.column_files import ColumnFiles
from driftline.sources.files import Stamp
from driftline.sources.frames import TypedFrames
from driftline.sources.json_files import JsonFiles, encoding_notes
from driftline.sources.kafka import KafkaJson
from driftline.sources.kafka_typed import KafkaReader, KafkaTyped, ObservedRecords, observed_together
from driftline.sources.listing import partitioned
from driftline.sources.scan import BatchScan, Observed, Source
from driftline.sources.texts import PlainTexts, TextReader, Texts
from driftline.tasks.written import batches_of
from driftline.write import PartTasks, is_small

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql import SparkSession

    from driftline.ingest.deal_sheets import SheetDeal
    from driftline.ingest.deal_typed import Filled, TypedDeal
    from driftline.readers.csv.sample import CsvFile
    from driftline.readers.kafka.values import Wire
    from driftline.write import Reported, SetAside


Dealable: TypeAlias = JsonFiles | ColumnFiles | TypedFrames | KafkaJson | KafkaTyped


class Spool(Protocol):
    """A batch that was dealt into spool files, with the ``shares`` of the tables."""

    @property
    def shares(self) -> Mapping[str, Share]:
        """The share of each table."""
        ...

    @property
    def nulls(self) -> int:
        """The number of null values of topics that name no table."""
        ...

    def source(self, batch: Dealable, slices: Sequence[SpoolSlice]) -> Source:
        """The slices of a table as a source, of those files of the ``batch`` that they stand in."""
        ...


@dataclass(frozen=True, slots=True)
class TextSpool:
    """Texts in the spool file at ``path``.

    Attributes:
        excluded: counts of documents with values outside their lists of records; the first table tells them.
    """

    path: str
    shares: Mapping[str, Share]
    excluded: Counter[str]
    nulls: int = 0

    def source(self, batch: Dealable, slices: Sequence[SpoolSlice]) -> Dealt:
        """The texts of slices as a source."""
        assert isinstance(batch, JsonFiles)
        first = next(iter(self.shares.values()), None)
        is_first = first is not None and bool(slices) and slices[0] in first.slices
        return Dealt(
            spool=self.path, slices=slices, texts=_texts_of_files, excluded=self.excluded if is_first else Counter(),
            **_of_batch(batch, slices),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SheetSpool:
    """Rows of Excel's sheets in files of a folder."""

    deal: SheetDeal
    nulls: int = 0

    @property
    def shares(self) -> Mapping[str, Share]:
        """The share of each table."""
        return self.deal.shares

    def source(self, batch: Dealable, slices: Sequence[SpoolSlice]) -> JsonFiles:
        """The rows of slices as a source."""
        assert isinstance(batch, JsonFiles)
        sheets = {part.file: [self.deal.splits[part.number]] for part in slices}
        texts = {file: batch.texts[file] for file in sheets if file in batch.texts}
        return JsonFiles(workbooks=True, dealt=sheets, texts=texts, **_of_batch(batch, slices))


@dataclass(frozen=True, slots=True)
class MessageSpool:
    """Messages in the spool file at ``path``."""

    path: str
    shares: Mapping[str, Share]
    nulls: int

    def source(self, batch: Dealable, slices: Sequence[SpoolSlice]) -> Dealt:
        """The messages of slices as a source."""
        assert isinstance(batch, KafkaJson)
        return Dealt(
            spark=batch.spark, spool=self.path, slices=slices, texts=batch.texts.of, columns=batch.columns
        )


@dataclass(frozen=True, slots=True)
class TypedSpool:
    """Messages of typed values in the spool file at ``path``. ``filled``: the fields that each table has."""

    path: str
    deal: TypedDeal

    @property
    def shares(self) -> Mapping[str, Share]:
        """The share of each table."""
        return self.deal.shares

    @property
    def nulls(self) -> int:
        """The number of null values that name no table."""
        return self.deal.nulls

    def source(self, batch: Dealable, slices: Sequence[SpoolSlice]) -> DealtValues:
        """The messages of slices as a source."""
        assert isinstance(batch, KafkaTyped)
        first = slices[0] if slices else None
        of_table = (fields for name, fields in self.deal.filled.items() if first in self.shares[name].slices)
        return DealtValues(
            spark=batch.spark, spool=self.path, slices=slices, wire=batch.wire, metadata=batch.metadata,
            filled=next(of_table, {}), columns=batch.columns,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnSpool:
    """Rows in spool files. ``notes``: on how the files were read."""

    rows: RowSpool
    notes: Sequence[str] = ()
    nulls: int = 0

    @property
    def shares(self) -> Mapping[str, Share]:
        """The share of each table."""
        return self.rows.shares

    def source(self, batch: Dealable, slices: Sequence[SpoolSlice]) -> ColumnFiles:
        """The rows of slices as a source."""
        assert not isinstance(batch, KafkaJson | KafkaTyped)
        readers = self.rows.readers_of(slices)
        written = FoundReaders(readers, self.notes)
        finder: FoundReaders | ReaderFinder = written
        if any(reader.aliases for reader in readers):
            from driftline.readers.avro.files import AvroFiles  # late: with the first such file

            finder = AvroFiles(written)
        in_order = batch.in_order or len(readers) < 2
        return ColumnFiles(
            found=finder, in_order=in_order, tells_absent=batch.tells_absent, **_of_batch(batch, slices)
        )


@dataclass(frozen=True, slots=True)
class CsvSpool:
    """Records of CSV ``files`` in the spool file at ``path``."""

    path: str
    files: Sequence[CsvFile]
    shares: Mapping[str, Share]
    nulls: int = 0

    def source(self, batch: Dealable, slices: Sequence[SpoolSlice]) -> ColumnFiles:
        """The records of slices as a source."""
        from driftline.readers.csv.dealt import DealtCsvFiles, DealtStretch  # late: with the first such file

        assert isinstance(batch, ColumnFiles)
        of_files: dict[str, list[SpoolSlice]] = {}
        for part in slices:
            of_files.setdefault(part.file, []).append(part)
        parts = [
            replace(
                file,
                stretches=[
                    DealtStretch(
                        file.path, 0, None, part.size, 0, file.header.lines + 1, file.header.form,
                        spool=self.path, number=part.number,
                    )
                    for part in of_files[file.path]
                ],
            )
            for file in self.files
            if file.path in of_files
        ]  # fmt: skip
        found = DealtCsvFiles(batch.spark, list(of_files), strings=False, parts=parts)
        texts = {file: batch.texts[file] for file in of_files if file in batch.texts}
        return ColumnFiles(found=found, texts=texts, **_of_batch(batch, slices))


def dealable(source: Source, pattern: Pattern, read_by: TableSettings) -> Dealable:
    """Return the source if its records can be dealt. Raises UsageError.

    ``read_by``: the settings by which messages are read.
    """
    if isinstance(source, KafkaTyped):
        row_key = read_by.row_key
        in_envelope = row_key is not None and row_key.envelope and source.reads_messages(row_key)
        return source.as_texts() if in_envelope else source
    if isinstance(source, KafkaJson):
        return source
    pattern.must_be_of_files()
    if isinstance(source, JsonFiles | ColumnFiles | TypedFrames):
        return source
    raise UsageError(
        f"{pattern.text}: JSON in a column of a DataFrame cannot go into the tables of a pattern so far",
        "write it to files, or ingest it table by table",
    )


def spooled(
    source: Dealable, pattern: Pattern, tables: Tables, read_by: TableSettings, folder: Path
) -> Spool:
    """Deal a source into a folder.

    Args:
        source: files, rows in memory, a DataFrame or messages.
        pattern: of the tables.
        tables: the tables of values, which come in the order in which they are first seen.
        read_by: the settings by which its files are read.
        folder: for the spool files.
    """
    if isinstance(source, JsonFiles) and source.workbooks:
        from driftline.ingest.deal_sheets import SheetDeal  # late: with the first file of its kind

        sheets = SheetDeal(folder)
        sheets.deal(source.sheets(read_by), pattern, source.names, tables, read_by)
        return SheetSpool(sheets)
    if isinstance(source, JsonFiles):
        path = folder / "dealt.arrow"
        reader = RecordValues(pattern, source.names)
        excluded: Counter[str] = Counter()
        shares = deal(source.runs(read_by, excluded), reader, tables, path)
        return TextSpool(str(path), shares, excluded)
    if isinstance(source, KafkaJson):
        path, values = folder / "dealt.arrow", MessageValues(pattern, source.texts)
        with configured(source.spark, source.conf):
            shares = deal_messages(source.messages, values, tables, path)
        return MessageSpool(str(path), shares, values.nulls)
    if isinstance(source, KafkaTyped):
        from driftline.ingest.deal_typed import deal_typed  # late: with the first such topic

        path = folder / "dealt.arrow"
        with configured(source.spark, source.conf):
            return TypedSpool(str(path), deal_typed(source, pattern, tables, path))
    if isinstance(source, ColumnFiles) and source.format == "csv":
        return _spooled_csv(source, pattern, tables, read_by, folder)
    rows, notes = _row_spool(source, read_by, folder)
    rows.deal(RowValues(pattern, source.names), tables)
    return ColumnSpool(rows, notes)


def _row_spool(
    source: ColumnFiles | TypedFrames, read_by: TableSettings, folder: Path
) -> tuple[RowSpool, Sequence[str]]:
    """The spool of a source of columns, with notes on how its files were read."""
    if isinstance(source, TypedFrames):
        return RowSpool(folder, source.written(folder, hive=read_by.hive)), ()
    found: Any = source.found
    if callable(found):  # of Avro: each table has its own names for a field that was renamed
        found = found.written
    if not isinstance(found, FoundReaders):
        found = FoundReaders(found)
    readers = partitioned(found.readers, source.texts) if read_by.hive else found.readers
    aliases = [getattr(reader, "aliases", ()) for reader in found.readers]
    return RowSpool(folder, readers, aliases), found.notes


def _spooled_csv(
    source: ColumnFiles, pattern: Pattern, tables: Tables, read_by: TableSettings, folder: Path
) -> CsvSpool:
    from driftline.ingest.deal_csv import CellValues, deal_csv  # late: with the first file of its kind
    from driftline.readers.csv.reader import CsvFiles

    assert isinstance(source.found, CsvFiles)
    path, files = folder / "dealt.arrow", source.found.cut(read_by.csv)
    texts = source.texts if read_by.hive else {}
    reader = CellValues(pattern, read_by.csv, source.names, texts)
    return CsvSpool(str(path), files, deal_csv(files, reader, tables, path))


def _of_batch(batch: JsonFiles | ColumnFiles | TypedFrames, slices: Sequence[SpoolSlice]) -> dict[str, Any]:
    """The attributes that a source of slices has in common with the batch."""
    files = {part.file for part in slices}
    return {
        "spark": batch.spark,
        "files": [file for file in batch.files if file in files],
        "names": batch.names,
        "originals": batch.originals,
        "format": batch.format,
    }


@dataclass(frozen=True, kw_only=True)
class Dealt(Source):
    """The slices of one table, in the ``spool`` file, as a batch.

    Attributes:
        texts: for the key of a table, how it reads them.
        excluded: counts of documents with values that are in no record.
    """

    spark: SparkSession
    spool: str
    slices: Sequence[SpoolSlice]
    texts: Callable[[RowKey | None], Texts]
    excluded: Counter[str] = field(default_factory=Counter)
    as_text: bool = True

    def open(self, schema: Schema, settings: TableSettings, before: BatchScan | None = None) -> DealtScan:
        """Open the slices for the table."""
        request = self.request(schema, settings)
        texts = self.texts(settings.row_key)
        return DealtScan(request, request.terms, self.spark, self.spool, self.slices, texts, self.excluded)

    def size(self, files: Mapping[str, Stamp]) -> int:
        """The number of bytes of the slices."""
        return sum(part.size for part in self.slices)


@dataclass(frozen=True, slots=True)
class DealtScan(BatchScan):
    """The slices of one table, opened for it."""

    spark: SparkSession
    spool: str
    slices: Sequence[SpoolSlice]
    texts: Texts
    excluded: Counter[str]

    def _merged(self, parts: Sequence[Observation], *, converted: bool) -> Observed:
        return Observed(self, merge_observations(parts).with_excluded(self.excluded))

    def _conversion(self, plan: Plan, struct: Struct, observation: Observation) -> JsonRows:
        return JsonRows.of(plan, struct, self.terms, observation)

    def _tasks(self, conversion: JsonRows | None) -> PartTasks:
        texts = self.texts if conversion is None else self.texts.into(conversion.converter.struct)
        return slice_tasks(self.spark, self.spool, self.slices, TextReader(texts, self.terms, conversion))

    def _guess(self, last: Observation | None) -> Observed | None:
        return None if last is None else Observed(self, last)

    def _notes(self, observation: Observation) -> Sequence[str]:
        return [*encoding_notes(observation)]


@dataclass(frozen=True, kw_only=True)
class DealtValues(Source):
    """The messages of one table, of typed values, in the ``spool`` file as a batch.

    Attributes:
        metadata: these go along.
        filled: the fields that have values.
    """

    spark: SparkSession
    spool: str
    slices: Sequence[SpoolSlice]
    wire: Wire
    filled: Filled
    metadata: bool = False

    def open(self, schema: Schema, settings: TableSettings, before: BatchScan | None = None) -> ValueScan:
        """Open the slices for the table."""
        request = self.request(schema, settings)
        return ValueScan(request, request.terms, self)


@dataclass(frozen=True, slots=True)
class ValueScan(BatchScan):
    """The messages of one table, opened for it."""

    source: DealtValues

    def _tasks(self, conversion: Converter | None) -> PartTasks:
        source, row_key = self.source, self.settings.row_key
        reader = KafkaReader(source.wire, self.terms, conversion, source.metadata, source.filled)
        keys = row_key is not None and row_key.reads_messages
        return slice_tasks(source.spark, source.spool, source.slices, reader, () if keys else ("key",))

    def _guess(self, last: Observation | None) -> Observed | None:
        # Its columns say nothing about nulls.
        return None if last is None or has_required(self.schema) else Observed(self, last)

    def _merged(self, parts: Sequence[ObservedRecords], *, converted: bool) -> Observed:
        return Observed(self, observed_together(parts, self.terms))


_FILE = b"file"  # the key of a batch's metadata for the file that its texts stand in


class _NumberedTexts(PlainTexts):
    """Texts of slices, each with its line."""

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a slice as one run."""
        raws, numbers, reasons = (column.to_pylist() for column in batch.columns)
        source = batch.schema.metadata[_FILE].decode(errors="surrogateescape")
        lines = [
            raw if why is None else RefusedText.of(raw, why) for raw, why in zip(raws, reasons, strict=True)
        ]

        def reject(place: int, why: Why) -> Reject:
            """The reject of a text."""
            return Reject(Origin(source, numbers[place]), raws[place], why)

        yield Run(lines, source, numbers, reject, None, Origins(Origin(source), numbers))


def _texts_of_files(_: RowKey | None) -> _NumberedTexts:
    return _NumberedTexts()


def slice_tasks(
    spark: SparkSession,
    spool: str,
    slices: Sequence[SpoolSlice],
    reader: TaskReader[Iterator[pa.RecordBatch], Any, Any, Any],
    without: Sequence[str] = (),
) -> PartTasks:
    """Tasks that read slices. ``without``: columns that are left out."""
    sizes, context = [part.size for part in slices], spark.sparkContext
    # In order, as columns follow the order of the records.
    shares = in_runs(sizes, 1 if is_small(context, sum(sizes)) else context.defaultParallelism)
    of_tasks = tuple(tuple(slices[number] for number in share) for share in shares)
    shared = [sum(part.size for part in share) for share in of_tasks]
    return PartTasks(spark, shared, _SliceReader(reader, spool, of_tasks, without))


@dataclass(frozen=True, slots=True)
class _SliceReader:
    """Reads slices in tasks. ``shares``: those of each task; ``without``: columns that are left out."""

    reader: TaskReader[Iterator[pa.RecordBatch], Any, Any, Any]
    spool: str
    shares: Sequence[Sequence[SpoolSlice]]
    without: Sequence[str] = ()

    def rows(self, number: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[Any]]:
        """Make the rows of a task's share, and report what was observed."""
        return (yield from self.reader.rows(self._batches(number), set_aside))

    def rejects(self, number: int, everything: str | None) -> Iterator[pa.RecordBatch]:
        """Yield the rejects of a task's share."""
        yield from self.reader.rejects(self._batches(number), everything)

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        share = self.shares[number]
        batches = batches_of(self.spool, [part.number for part in share])
        for part, batch in zip(share, batches, strict=True):
            file = part.file.encode(errors="surrogateescape")
            batch = batch.drop_columns(list(self.without)) if self.without else batch
            yield batch.replace_schema_metadata({_FILE: file})
