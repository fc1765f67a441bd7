"""Sources and scans: a batch, and all that its records need to be observed and converted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from driftline.convert import Converter
from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict, Plan, lean
from driftline.core.schema.types import Field, Place, Schema, Struct
from driftline.core.settings.row_key import RowKey
from driftline.core.settings.table import Settings
from driftline.errors import DataError
from driftline.observe.expect import expect
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.rejects import REJECTED, Rejects
from driftline.readers.task import AdmissionTerms, TaskReader, dealt, in_runs
from driftline.runtime.spark_conf import FILES
from driftline.runtime.stores import is_stored
from driftline.sources.files import Stamp, stamps
from driftline.write import RowTasks, TaskResult, observed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The table that a batch is opened for, by its schema and its settings.

    ``versions``: the files of the batch on this machine, as they are now; those in a store are checked before
    the commit. ``names``: other names for files, in reports.
    """

    schema: Schema
    settings: Settings
    versions: Mapping[str, Stamp] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def terms(self) -> AdmissionTerms:
        """The terms on which all records are admitted."""
        return AdmissionTerms(expect(self.schema, self.settings), self.settings)


@dataclass(frozen=True, slots=True)
class Observed:
    """An observation of a batch, and the ``scan`` with what was learnt of it, such as its lines' numbers."""

    scan: BatchScan
    observation: Observation

    def tasks(self, plan: Plan, struct: Struct) -> RowTasks:
        """Tasks that make rows of ``struct`` by a plan for this observation."""
        return self.scan.tasks(plan, struct, self.observation)

    def answers(self, request: ScanRequest) -> bool:
        """True if a scan for the request would observe the same."""
        # After a conflict the table may have other columns, and then a refused record may fit.
        return self.scan.request == request and not self.scan.terms.refuse


@dataclass(frozen=True, slots=True)
class BatchScan(ABC):
    """The records of one batch as they are now, with what is needed to observe them and to make rows of them.

    A scan never changes: to refuse records makes another one. Tasks report what they observed while they made
    rows, and `merged` makes one observation of that.
    """

    request: ScanRequest
    terms: AdmissionTerms

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.request.schema

    @property
    def settings(self) -> Settings:
        """The table's settings."""
        return self.request.settings

    @property
    def repeats(self) -> bool:
        """True if the next batch is likely to be like this one, by what its source is."""
        return True

    def guess(self, last: Observation | None) -> Observed | None:
        """A likely observation, by which rows may be made at once; None if observing first is better.

        ``last``: the observation of the last batch for such a table.
        """
        likely = self._guess(last)
        return self._named(likely) if likely is not None and likely.observation.tally.records else None

    def observe(self) -> Observed:
        """Observe every type of every path of every record."""
        parts = [result.observed for result in observed(self._tasks(None))]
        return self._named(self._merged(parts, converted=False))

    def merged(self, results: Sequence[TaskResult[Any]]) -> Observed:
        """The observation of all records by tasks that made rows of them."""
        return self._named(self._merged([result.observed for result in results], converted=True))

    def refusing(
        self, judge: AdmissionCheck, conflicts: Sequence[Conflict], observation: Observation
    ) -> Self:
        """The scan without the records that are not accepted by the ``judge``, or have one of the
        ``conflicts``: they are rejects from now on, and not observed as records.

        ``observation``: of the records so far, those too.
        """
        return replace(self._advised(observation), terms=self.terms.refusing(judge, conflicts))

    def tasks(self, plan: Plan, struct: Struct, observation: Observation) -> RowTasks:
        """Tasks that make rows of ``struct`` by a plan made for ``observation``, and observe all records."""
        return self._tasks(self._conversion(plan, struct, observation))

    def rejects(self, results: Sequence[TaskResult[Any]]) -> Rejects:
        """The lines and rows that tasks set aside, to be called on the scan of their observation."""
        return replace(Rejects.of(results), lines=self._lines(), names=self.request.names)

    def rejected(self, everything: str | None = None) -> DataFrame:
        """The rejected lines and rows, with the columns of `REJECTED`.

        This reads the batch once more. ``everything``: the reason for which all records are rejected.
        """
        from pyspark.sql import functions as F

        frame = self._to_reject().batches(partial(_rejects, everything), REJECTED)
        if not self.request.names:
            return frame
        names = F.create_map(*(F.lit(text) for pair in self.request.names.items() for text in pair))
        source = F.coalesce(F.try_element_at(names, F.col("source")), F.col("source"))
        return frame.withColumn("source", source)

    def notes(self, observation: Observation) -> Sequence[str]:
        """Notes for a person on how the files were read, by their observation."""
        notes = self._notes(observation)
        for path, name in self.request.names.items():
            notes = [note.replace(path, name) for note in notes]
        return notes

    @abstractmethod
    def _guess(self, last: Observation | None) -> Observed | None: ...

    def _conversion(self, plan: Plan, struct: Struct, observation: Observation) -> Any:
        """The conversion to rows; of columns, unless a source has another one."""
        return Converter(struct, lean(plan.route), self.settings)

    @abstractmethod
    def _tasks(self, conversion: Any) -> RowTasks:
        """Tasks that read all records; without a ``conversion`` they only observe them."""

    def _merged(self, parts: Sequence[Any], *, converted: bool) -> Observed:
        """The observation of all records by what each task observed; an `Observation`, unless a source has
        something else. ``converted``: they made rows, too.
        """
        return Observed(self, merge_observations(parts))

    def _to_reject(self) -> RowTasks:
        """Tasks that read the rejects."""
        return self._tasks(None)

    def _lines(self) -> Sequence[int]:
        """The number of lines before each part in its file, if the tasks count from 1 in each."""
        return ()

    def _shares(self, sizes: Sequence[int], tasks: int) -> list[list[int]]:
        """The numbers of the parts that each task reads; in order where a later record counts."""
        return (dealt if self.settings.row_key is None else in_runs)(sizes, tasks)

    def _notes(self, observation: Observation) -> Sequence[str]:
        return ()

    def _advised(self, observation: Observation) -> Self:
        """The scan with its notes on records that are refused next, and so not observed again."""
        return self

    def _named(self, observed: Observed) -> Observed:
        names = self.request.names
        if not names:
            return observed

        def placed(place: Place) -> Place:
            """The place, in the file of another name."""
            return replace(place, source=names.get(place.source, place.source))

        return replace(observed, observation=observed.observation.placed(placed))


def _rejects(
    everything: str | None, reader: TaskReader[Any, Any, Any, Any], given: Any
) -> Iterator[pa.RecordBatch]:
    yield from reader.rejects(given, everything)


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """The place of one batch of records, and how they are read; nothing of it changes.

    ``files``: theirs, where they are; ``names``: the names of files that were copied or unpacked before, as a
    person used them, and ``originals``: the versions of those. ``columns``: those that the source fills
    itself. ``in_order``: tasks make the rows in the order of the records. ``tells_absent``: a record that
    lacks a field is told from one that has null there. ``as_text``: records are texts of JSON, which may be
    messages in an envelope. ``conf``: settings of the Spark session that reading
    it needs.
    """

    files: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    originals: Mapping[str, Stamp] | None = None
    columns: Sequence[Field] = ()
    in_order: bool = True
    tells_absent: bool = True
    as_text: bool = False
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    @abstractmethod
    def open(self, schema: Schema, settings: Settings, before: BatchScan | None = None) -> BatchScan:
        """Open the batch, as it is now, for a table.

        ``before``: a scan of the batch for an earlier state of the table, which may know the files already.
        """

    def reads_messages(self, row_key: RowKey) -> bool:
        """True if the records may be messages in an envelope, of a table whose rows are known so."""
        return self.as_text

    def at_fault(self) -> str | None:
        """The file, and its column, that cannot be read; None if all can, or tasks say it themselves."""
        return None

    def request(self, schema: Schema, settings: Settings) -> ScanRequest:
        """The request for a scan of the files as they are now.

        Raises DataError for columns where the table reads messages in an envelope.
        """
        row_key = settings.row_key
        if row_key is not None and row_key.envelope and not self.reads_messages(row_key):
            merge = ", and merge = 'patch', which needs absent fields told from null ones" * row_key.patch
            raise DataError(
                f"the table has envelope = {row_key.envelope!r}{merge}, and these records come as columns",
                "an envelope is read of JSON, Avro and dicts, and, for merge = replace, of Parquet, Protobuf, Arrow "
                "tables and DataFrames",
            )
        versions = stamps(file for file in self.files if not is_stored(file))
        return ScanRequest(schema, settings, versions, self.names)
