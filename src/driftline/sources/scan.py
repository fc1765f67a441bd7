"""Sources and scans: a batch, and all that its records need to be observed and converted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from driftline.convert import Converter
from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict, Plan, lean
from driftline.core.schema.types import Field, Schema, SourceLocation, Struct
from driftline.core.settings.row_key import RowKey
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError
from driftline.observe.expect import expect, with_declared_values
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.rejects import REJECTED, Rejects
from driftline.readers.task import AdmissionTerms, TaskReader, assign_parts, in_runs
from driftline.runtime.spark_conf import FILES
from driftline.runtime.stores import is_stored
from driftline.sources.files import Stamp, stamps
from driftline.write import RowTasks, TaskResult, observed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The table that a batch is opened for, by its schema and settings.

    Attributes:
        versions: the present versions of the batch's files on this machine; those in a store are checked
            before the commit.
        names: other names for files, in reports.
    """

    schema: Schema
    settings: TableSettings
    versions: Mapping[str, Stamp] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def terms(self) -> AdmissionTerms:
        """The terms by which the table admits records."""
        return AdmissionTerms(expect(self.schema, self.settings), self.settings)


@dataclass(frozen=True, slots=True)
class Observed:
    """An observation of a batch, and a ``scan`` that keeps what it learnt, such as line numbers."""

    scan: BatchScan
    observation: Observation

    def tasks(self, plan: Plan, struct: Struct) -> RowTasks:
        """Return tasks that make rows of ``struct`` by a plan for this observation."""
        return self.scan.tasks(plan, struct, self.observation)

    def answers(self, request: ScanRequest) -> bool:
        """True if a scan for the request would observe the same."""
        # After a conflict the table may have other columns, and then a refused record may fit.
        return self.scan.request == request and not self.scan.terms.refuse


@dataclass(frozen=True, slots=True)
class BatchScan(ABC):
    """A batch in its present state, opened to observe its records and to make rows of them.

    A scan never changes: refusing records makes another one. Tasks report what they observe while they make
    rows, and `merged` makes one observation of their reports.
    """

    request: ScanRequest
    terms: AdmissionTerms

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.request.schema

    @property
    def settings(self) -> TableSettings:
        """The table's settings."""
        return self.request.settings

    @property
    def repeats(self) -> bool:
        """True if the source makes it likely that the next batch resembles this one."""
        return True

    def guess(self, last: Observation | None) -> Observed | None:
        """Guess an observation, so that the first read can make rows; None if observing first is better.

        Args:
            last: the observation of the last batch for the same schema and settings.
        """
        # A guess of no records would plan a table without columns.
        likely = self._guess(last)
        return self._named(likely) if likely is not None and likely.observation.tally.records else None

    def observe(self) -> Observed:
        """Observe every type of every path of every record."""
        parts = [result.observed for result in observed(self._tasks(None))]
        return self._named(self._merged(parts, converted=False))

    def merged(self, results: Sequence[TaskResult[Any]]) -> Observed:
        """Merge the observations of tasks that made rows of all records."""
        return self._named(self._merged([result.observed for result in results], converted=True))

    def refusing(
        self, check: AdmissionCheck, conflicts: Sequence[Conflict], observation: Observation
    ) -> Self:
        """Return a scan that rejects more records, and no longer observes them as records.

        Args:
            check: rejects the records that it does not accept.
            conflicts: records with one of these are rejected.
            observation: of the batch so far, including these records.
        """
        return replace(self._advised(observation), terms=self.terms.refusing(check, conflicts))

    def with_declared_values(self, schema: Schema) -> Self | None:
        """Return a scan that observes the values of new maps by the hints inside of them.

        Args:
            schema: the table as it was planned.

        Returns:
            None if this scan does so, or there are no such maps.
        """
        expected = with_declared_values(self.terms.expected, schema.struct, self.settings)
        # It is the same object where nothing is declared: to compare two takes long in a wide table.
        if expected is self.terms.expected:
            return None
        return replace(self, terms=replace(self.terms, expected=expected))

    def tasks(self, plan: Plan, struct: Struct, observation: Observation) -> RowTasks:
        """Return tasks that observe all records, and make rows of ``struct`` by the ``plan``."""
        return self._tasks(self._conversion(plan, struct, observation))

    def rejects(self, results: Sequence[TaskResult[Any]]) -> Rejects:
        """Return the lines and rows that tasks set aside; call it on the scan of their observation."""
        # Tasks count lines from 1 in each part; where a part begins is known only now.
        return replace(Rejects.of(results), lines=self._lines(), names=self.request.names)

    def rejected(self, everything: str | None = None) -> DataFrame:
        """Read the batch once more for its rejected lines and rows, with the columns of `REJECTED`.

        Args:
            everything: the reason to reject all records, if there is one.
        """
        from pyspark.sql import functions as F

        frame = self._to_reject().batches(partial(_rejects, everything), REJECTED)
        if not self.request.names:
            return frame
        names = F.create_map(*(F.lit(text) for pair in self.request.names.items() for text in pair))
        source = F.coalesce(F.try_element_at(names, F.col("source")), F.col("source"))
        return frame.withColumn("source", source)

    def notes(self, observation: Observation) -> Sequence[str]:
        """Return notes for a person on how the files were read."""
        notes = self._notes(observation)
        for path, name in self.request.names.items():
            notes = [note.replace(path, name) for note in notes]
        return notes

    @abstractmethod
    def _guess(self, last: Observation | None) -> Observed | None: ...

    def _conversion(self, plan: Plan, struct: Struct, observation: Observation) -> Any:
        """Return the conversion to rows: of columns, unless a source overrides it."""
        return Converter(struct, lean(plan.route), self.settings)

    @abstractmethod
    def _tasks(self, conversion: Any) -> RowTasks:
        """Return tasks that read all records; without a ``conversion`` they only observe."""

    def _merged(self, parts: Sequence[Any], *, converted: bool) -> Observed:
        """Merge the observations of all tasks.

        Args:
            parts: one for each task; an `Observation`, unless a source has its own type.
            converted: the tasks made rows, too.
        """
        return Observed(self, merge_observations(parts))

    def _to_reject(self) -> RowTasks:
        """Return tasks that read the rejects."""
        return self._tasks(None)

    def _lines(self) -> Sequence[int]:
        """Return the number of lines before each part in its file, if tasks count from 1 in each part."""
        return ()

    def _shares(self, sizes: Sequence[int], tasks: int) -> list[list[int]]:
        """Assign the parts to tasks, by number; in order if a later record can override an earlier one."""
        return (assign_parts if self.settings.row_key is None else in_runs)(sizes, tasks)

    def _notes(self, observation: Observation) -> Sequence[str]:
        return ()

    def _advised(self, observation: Observation) -> Self:
        """Return the scan with notes on records that are refused next, and so not observed again."""
        return self

    def _named(self, observed: Observed) -> Observed:
        names = self.request.names
        if not names:
            return observed

        def placed(location: SourceLocation) -> SourceLocation:
            """The place, in the file of another name."""
            return replace(location, source=names.get(location.source, location.source))

        return replace(observed, observation=observed.observation.placed(placed))


def _rejects(
    everything: str | None, reader: TaskReader[Any, Any, Any, Any], task_input: Any
) -> Iterator[pa.RecordBatch]:
    yield from reader.rejects(task_input, everything)


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A batch's source: the place of its records, and how they are read. Immutable.

    Attributes:
        files: the files' present paths.
        names: the original names of files that were copied or unpacked.
        originals: the versions of the files that a person named, if they were copied or unpacked.
        format: that of the files; empty if the records are in none that a person named.
        columns: the columns that the source fills itself.
        in_order: tasks make rows in the order of the records.
        tells_absent: an absent field can be distinguished from a null.
        as_text: records are JSON texts, which may be messages in an envelope.
        conf: settings of the Spark session, needed to read the source.
    """

    files: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    originals: Mapping[str, Stamp] | None = None
    format: str = ""
    columns: Sequence[Field] = ()
    in_order: bool = True
    tells_absent: bool = True
    as_text: bool = False
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    @abstractmethod
    def open(self, schema: Schema, settings: TableSettings, before: BatchScan | None = None) -> BatchScan:
        """Open the batch in its present state for a table.

        Args:
            schema: the table's schema.
            settings: the table's settings.
            before: a scan of the batch for an earlier table state, which may know the files already.
        """

    def reads_messages(self, row_key: RowKey) -> bool:
        """True if the records of a table with this key may be messages in an envelope."""
        return self.as_text

    def at_fault(self) -> str | None:
        """Return the file and column that cannot be read; None if there are none, or tasks report them."""
        return None

    def size(self, files: Mapping[str, Stamp]) -> int:
        """The number of bytes that the batch has in these ``files``."""
        return sum(stamp.size for stamp in files.values())

    def request(self, schema: Schema, settings: TableSettings) -> ScanRequest:
        """Build the request for a scan of the files in their present state.

        Raises DataError for columns if the table reads messages in an envelope.
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
