"""Sources of files with declared columns, read in tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.convert import Converter
from driftline.core.planning.plan import Plan
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.row_key import RowKey
from driftline.core.settings.table import TableSettings
from driftline.core.support import gc_paused
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.columnar.message_files import MessagesOf, PartMessages, row_messages
from driftline.readers.columnar.parquet import (
    FoundReaders,
    OpenParts,
    PartReader,
    ReaderFinder,
    ReaderPart,
    Seen,
)
from driftline.readers.columnar.rows import ColumnReader, has_required, together
from driftline.readers.columnar.split import with_resolved_texts
from driftline.readers.json.rows import JsonRows
from driftline.readers.task import TaskReader
from driftline.sources.listing import PathTexts, partitioned
from driftline.sources.scan import BatchScan, Observed, Source
from driftline.write import PartTasks, is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The numbers of the parts that each task reads
Shares: TypeAlias = Sequence[Sequence[int]]
_HEADS = 32  # readers of which the first rows are looked at for a guess


@dataclass(frozen=True, kw_only=True)
class ColumnFiles(Source):
    """Files of columns as one batch.

    Attributes:
        found: their readers, or those for a table.
        texts: the texts in the paths of the files.
        messages: reads messages in an envelope, if the files may have such.
    """

    spark: SparkSession
    found: Sequence[ColumnReader] | FoundReaders | ReaderFinder
    texts: PathTexts = field(default_factory=dict)
    messages: MessagesOf | None = None

    def reads_messages(self, row_key: RowKey) -> bool:
        """True if there is a reader of messages; for patches it has to distinguish nulls."""
        return self.messages is not None and not (row_key.patch and self.messages is row_messages)

    def open(
        self, schema: Schema, settings: TableSettings, before: BatchScan | None = None
    ) -> ColumnScan | MessageScan:
        """Find the readers for a table, from what was found ``before``."""
        request = self.request(schema, settings)
        terms = request.terms
        earlier = before.found if isinstance(before, ColumnScan) else None
        found = self.found(terms.expected, settings, earlier) if callable(self.found) else self.found
        if not isinstance(found, FoundReaders):
            found = FoundReaders(found)
        # Texts in paths first: they are columns like others, and resolved like others.
        readers = partitioned(found.readers, self.texts) if settings.hive else found.readers
        readers = [with_resolved_texts(reader, terms) for reader in readers]
        parts = [ReaderPart(i, n, size) for i, r in enumerate(readers) for n, size in enumerate(r.sizes)]
        # A later file counts, whichever reader has it
        if settings.row_key is not None:
            places = {file: place for place, file in enumerate(self.files)}
            paths = [reader.paths for reader in readers]
            # Readers group files by their columns, so their order is not that of the files.
            parts.sort(key=lambda part: places.get(paths[part.reader][part.part], 0))
            if settings.row_key.envelope and self.messages is not None:
                return MessageScan(request, terms, self.spark, readers, parts, self.messages)
        return ColumnScan(request, terms, self.spark, readers, parts, found)


@dataclass(frozen=True, slots=True)
class _PartScan(BatchScan):
    """Readers of files of columns, and all their parts."""

    spark: SparkSession
    readers: Sequence[ColumnReader]
    parts: Sequence[ReaderPart]

    def _part_tasks(
        self, reader_of: Callable[[Shares], TaskReader[int, Any, Any, Any]], *, small: bool
    ) -> PartTasks:
        """Tasks with a share of the parts each.

        Args:
            small: one task reads all of a small batch.
        """
        sizes, context = [part.size for part in self.parts], self.spark.sparkContext
        alone = small and is_small(context, sum(sizes))
        shares = self._shares(sizes, 1 if alone else context.defaultParallelism)
        task_sizes = [sum(sizes[number] for number in share) for share in shares]
        return PartTasks(self.spark, task_sizes, reader_of(shares))


@dataclass(frozen=True, slots=True)
class ColumnScan(_PartScan):
    """Files of columns whose rows are the records."""

    found: FoundReaders

    @property
    def repeats(self) -> bool:
        """False: what the files declare says more than the last batch."""
        return False

    def _tasks(self, conversion: Converter | None) -> PartTasks:
        return self._part_tasks(
            lambda shares: PartReader(self.readers, self.parts, shares, self.terms, conversion),
            small=conversion is None,
        )

    @gc_paused()
    def _guess(self, last: Observation | None) -> Observed | None:
        """Observe the first rows of each reader.

        Returns None if there are too many readers, or required columns.
        """
        # Declared types say nothing about nulls, and a required column depends on them.
        if has_required(self.schema) or len(self.readers) > _HEADS:
            return None
        # A guess observes as a task does, but in this process, over the first batch of each reader.
        heads = OpenParts(PartReader(self.readers, self.parts, (), self.terms), ())
        for number, reader in enumerate(self.readers):
            first = next(reader.rows(0), None) if reader.sizes else None
            if first is not None:
                heads.observer(number).feed(first)
        return self._merged([heads.observed()], converted=False)

    def _merged(self, parts: Sequence[Seen], *, converted: bool) -> Observed:
        by_reader: dict[int, list[Observation]] = {i: [] for i in range(len(self.readers))}
        for part in parts:
            for number, records in part.items():
                by_reader[number].append(records)
        return Observed(
            self,
            merge_observations(
                together(records, self.readers[i].struct, self.readers[i].label, self.terms)
                for i, records in by_reader.items()
            ),
        )

    def _notes(self, observation: Observation) -> Sequence[str]:
        return self.found.notes


@dataclass(frozen=True, slots=True)
class MessageScan(_PartScan):
    """Files of columns whose rows are messages in an envelope."""

    messages: MessagesOf

    def _conversion(self, plan: Plan, struct: Struct, observation: Observation) -> JsonRows:
        return JsonRows.of(plan, struct, self.terms, observation)

    def _tasks(self, conversion: JsonRows | None) -> PartTasks:
        return self._part_tasks(
            lambda shares: PartMessages(
                self.readers, self.parts, shares, self.messages, self.terms, conversion
            ),
            small=True,
        )

    def _guess(self, last: Observation | None) -> Observed | None:
        """The observation of the table's last batch."""
        return Observed(self, last) if last is not None and self.parts else None
