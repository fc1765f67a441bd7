"""The interface of a table format: catalog tables, transactions, and changes to a definition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from driftline.core.changes import Change
from driftline.core.schema.definition import Definition
from driftline.core.schema.types import Field, Path, Primitive, Schema, Struct
from driftline.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.changes import NullCount
    from driftline.core.changes.text import PartsOf
    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.history.entries import Snapshot, Versions
    from driftline.core.schema.definition import Laid
    from driftline.keys.identity import BatchKeys, SoughtKeys
    from driftline.keys.remembered import DeletedKeys
    from driftline.keys.settle import Found
    from driftline.keys.slices import RowsLeft
    from driftline.keys.stored import KeyCache, StoredRows
    from driftline.write import BatchFolder, RowTasks
    from driftline.write.positions import Positions

    Carry: TypeAlias = Callable[[DataFrame], DataFrame]


class CommitConflict(Exception):
    """Someone else changed the table meanwhile: load it again."""


class Moved(CommitConflict):
    """A conflict by which the plan or the rows are no longer right: plan again."""


class UnknownError(SetupError):
    """A commit with an unknown outcome: its files may be the table's, and must stay."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"whether the commit took place is not known: {cause}",
            hint="look at the table once its catalog answers; a capture finds out by itself: start it again. "
            "`driftline clean` deletes the files of the commit if no snapshot has them",
        )


# Properties of single batches: no settings of the table.
_OF_BATCHES = ("driftline.batch", "driftline.expired", "driftline.files", "driftline.thinned")
_CAPTURES = ("driftline.capture.", "driftline.captured.")

REMEMBERED = 40_000  # numbers by which a table knows the source files it has taken, at most four for each


@dataclass(frozen=True, slots=True)
class State:
    """A table as it was loaded.

    ``uuid``: None if it does not exist; ``last_id``: the highest id of all columns that it ever had;
    ``version``: a name of this state.
    """

    schema: Schema
    properties: Mapping[str, str]
    snapshot: int | None
    exists: bool
    uuid: str | None = None
    last_id: int = 0
    version: str = ""

    def fits(self, later: State) -> bool:
        """True if a plan or files made for this state are right for the ``later`` one too."""
        return (self.version != "" and self.version == later.version) or (
            (self.uuid, self.schema, self.last_id) == (later.uuid, later.schema, later.last_id)
            and _settings(self) == _settings(later)
        )


def _settings(state: State) -> dict[str, str]:
    return {k: v for k, v in state.properties.items() if k not in _OF_BATCHES and not k.startswith(_CAPTURES)}


def carried(
    name: str, appended: DataFrame | None, carry: Carry | None, write: Callable[[DataFrame], int]
) -> None:
    """Write rows that others appended to the table ``name``, beside those that replace all others.

    Raises Moved if these rows are unknown, or cannot be carried over.
    """
    if appended is None or carry is None:
        raise Moved(f"the rows of {name} have changed meanwhile")
    written, present = write(carry(appended)), appended.count()
    if written != present:
        raise Moved(f"{name}: others appended {present} rows, {written} were written")


class Added(NamedTuple):
    """Data files that a transaction has written: how many, of how many bytes."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The batch that wrote to a table last, and the snapshot that it made.

    ``added``: the number of its rows; ``removed``: of earlier rows that it removed.
    """

    id: str
    snapshot: int
    added: int
    removed: int


class Transaction(Protocol):
    """The changes of one batch, visible together when committed.

    ``committed``: they are visible; ``uncommitted``: they certainly are not. Neither is true during a commit,
    or after one with an unknown outcome.
    """

    committed: bool
    uncommitted: bool

    @property
    def base(self) -> State | None:
        """The table that the transaction began on; None if it creates the table."""
        ...

    @property
    def schema(self) -> Schema:
        """The schema inside the transaction."""
        ...

    @property
    def row(self) -> Struct:
        """The struct of the rows that `append` takes: the columns that Spark has values for."""
        ...

    @property
    def snapshot(self) -> int | None:
        """The snapshot that the transaction makes, by its id; None if there is none yet."""
        ...

    @property
    def added(self) -> Added:
        """The data files that the transaction has written."""
        ...

    def evolve(self, changes: Iterable[Change], after: int = 0) -> None:
        """Apply the changes; new columns get ids beyond ``after``. Raises DataError for an impossible one."""
        ...

    def append(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Write the frame's rows, with the columns of `row`; returns their number."""
        ...

    @property
    def home(self) -> str:
        """The table's own folder, by which others identify it: a path or URI."""
        ...

    @property
    def durable(self) -> bool:
        """False if the lake's files are written without syncs."""
        ...

    @property
    def location(self) -> str:
        """The folder of the table's data files: a path or URI."""
        ...

    def reached_with(self) -> Mapping[str, str] | None:
        """The options of `stores.filesystem` with which tasks reach the store of the `location`.

        None if it is in no store, or if tasks cannot reach it.
        """
        ...

    def write(
        self,
        tasks: RowTasks,
        folder: BatchFolder | None,
        summary: Mapping[str, str],
        *,
        with_ids: bool = False,
    ) -> int:
        """Have tasks write their rows, with the columns of `row`; returns their number.

        ``folder``: for files of this batch alone, at the `location` if that is on a disk; None if tasks see
        none. ``with_ids``: behind the columns the rows have their ids, as `find` has found them, and the
        sequence numbers of their last changes.
        """
        ...

    def find(
        self, keys: SoughtKeys, order: int | None, deleted: int | None = None, cache: KeyCache | None = None
    ) -> Sequence[Found]:
        """Find the rows of the table that the transaction began on which have a key of the batch.

        ``order``: the id of the column with a row's order; ``deleted``: of that with the mark of a delete;
        ``cache``: of keys that batches before have read.
        From now on the transaction commits only to that table: after a conflict, `again` raises Moved. Raises
        DataError where rows cannot be found by key.
        """
        ...

    def stored(self) -> StoredRows:
        """A reader of the rows that `find` has found, with the columns of `row`."""
        ...

    def remove(self, rows: Mapping[str, Positions], size: int) -> RowsLeft | None:
        """Remove rows that `find` has found, by the file and their positions; to be called before `write`.

        Files that are worn then leave the table, as `keys.slices` says for a batch of ``size`` bytes: returns
        their rows that are left, which `write` is to write too; None if none leaves.
        """
        ...

    def find_deletes(self, keys: BatchKeys, order: int) -> Sequence[Found]:
        """Find the deletes that the table remembers of keys of the batch, as `find` finds rows.

        Raises DataError where there is no place to remember them.
        """
        ...

    def remember_deletes(self, deletes: DeletedKeys) -> None:
        """Remember deletes, in the same commit; those that are older than their span may go.

        To be called between `find_deletes` and `write`, without any deletes too.
        """
        ...

    def remembered(self, ids: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
        """The deletes that the table remembers, by file: those of its columns with these ids, named by them.

        Empty where they have the keys otherwise than in the table's columns.
        """
        ...

    def rewrite_deletes(self, files: Iterable[tuple[str, pa.Table]]) -> None:
        """Have remembered deletes, as `remembered` has them by file, in other columns of the present schema.

        From now on the transaction commits only to the table that it began on.
        """
        ...

    def read(self) -> DataFrame:
        """The rows of the table that the transaction began on, whatever others do meanwhile."""
        ...

    def replace(self, frame: DataFrame, summary: Mapping[str, str], carry: Carry | None = None) -> int:
        """Replace all rows of the table by those of the frame; returns their number.

        ``carry``: converts rows that others append meanwhile, which `again`
        then writes too. It raises Moved if they need another plan.
        """
        ...

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        ...

    def remember(self, files: Sequence[int]) -> None:
        """Record that the table takes these source files, by their fingerprints, once it is committed.

        To be called between `write` and `set`.
        """
        ...

    def include(self, transaction: Self) -> bool:
        """Commit another transaction of the same lake with this one.

        Returns False if the format cannot: the other is then to be committed by itself.
        """
        ...

    def commit(self) -> None:
        """Make everything visible at once. Raises CommitConflict if someone else was faster."""
        ...

    def again(self, now: State) -> None:
        """After a conflict, apply the same changes and files to the table as it is ``now``.

        The same must have been planned for it. If all rows are replaced, rows that others appended are
        carried over. Raises Moved if the rows are not right for it; CommitConflict if it has changed once
        more.
        """
        ...

    def abandon(self) -> None:
        """Delete the files that were written, unless they are the table's, or may be."""
        ...

    def read_written(self) -> DataFrame | None:
        """The rows that the committed transaction wrote; None if they cannot be read by themselves."""
        ...

    def upkeep(self) -> None:
        """After the commit, drop metadata of batches long past. Never fails."""
        ...

    def undo(self) -> bool:
        """Remove the rows of a committed transaction; False if they can no longer be told from others."""
        ...


class Draft(Protocol):
    """A table as it would be, invisible to others before `commit`."""

    @property
    def definition(self) -> Definition:
        """The table's future definition, with the ids that it assigns; after the commit, its present one."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Consequences for readers of the table, as sentences."""
        ...

    def read(self) -> DataFrame:
        """The present rows, as they would read."""
        ...

    def commit(self) -> None:
        """Make the draft the table. Raises CommitConflict if the definition was changed by another writer."""
        ...


class Alteration(Protocol):
    """One change of a table's definition, from the version that was loaded."""

    @property
    def before(self) -> Definition:
        """The definition of the loaded version."""
        ...

    def nulls(self, path: Path, column: Field) -> NullCount:
        """The number of rows in which the column is null; the commit fails if others write meanwhile."""
        ...

    def change(self, after: Definition, record: Mapping[str, str]) -> Draft:
        """Draft the table by ``after``, in a version with the ``record``. Raises DataError if impossible."""
        ...

    def restore(self, after: Definition, record: Mapping[str, str]) -> Draft:
        """Draft as `change` does; dropped columns return with their old ids, and so with their values."""
        ...

    def revert(self, batch: LastBatch, after: Definition, record: Mapping[str, str]) -> Draft:
        """Draft as `restore` does, with the rows that there were before the batch.

        Raises DataError if these are gone, CommitConflict if the batch is not the last any more.
        """
        ...


class AlterableTable(Protocol):
    """One table of one catalog, as far as changes of its definition go, which need no Spark."""

    name: str

    @property
    def parts_of(self) -> PartsOf | None:
        """The function that parses a sort expression; None if the format has none."""
        ...

    def with_rows(self) -> CatalogTable:
        """The table with its rows. Raises NeedsSpark if it was opened without Spark."""
        ...

    def load(self) -> State:
        """The present state of the table; its schema is empty if it does not exist."""
        ...

    def definition(self) -> Definition:
        """The table's present definition. Raises UsageError if there is no table."""
        ...

    def alteration(self) -> Alteration:
        """A change of the table's definition. Raises UsageError if there is no table."""
        ...

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        ...

    def sibling(self, name: str) -> Self:
        """Another table of the same catalog."""
        ...


class CatalogTable(AlterableTable, Protocol):
    """One table of one catalog. Nothing is created before the first commit."""

    spark: SparkSession

    def with_rows(self) -> CatalogTable:
        """The table itself."""
        return self

    @property
    def blank(self) -> Definition:
        """The definition of a new table without columns in this format."""
        ...

    @property
    def as_text(self) -> frozenset[Primitive]:
        """The types of values for which the format has no columns: they become text."""
        ...

    def taken(self, state: State, files: Collection[int]) -> Collection[int]:
        """The source files among these, by fingerprint, that are of the last `REMEMBERED` the table has
        taken.

        Files of a batch that was rolled back are not among them.
        """
        ...

    def read(self, snapshot: int | None = None) -> DataFrame:
        """The rows of the table, now or at a snapshot."""
        ...

    def row_ids(self, changed: str) -> list[str]:
        """SQL of the ids by which readers identify rows, empty if the format has none.

        It is selected behind the table's columns, for `Transaction.replace`.
        """
        return []

    @property
    def new_row_ids(self) -> str | None:
        """A sentence for people if rewritten rows do not keep their ids."""
        return None

    def fillable(self, schema: Schema) -> Schema:
        """The schema without the columns that Spark cannot write."""
        ...

    def readable(self, schema: Schema) -> Schema:
        """The schema without the columns that Spark cannot read."""
        ...

    def read_readable(self) -> DataFrame:
        """The table's rows as they are now, without the columns that Spark cannot read."""
        ...

    def transaction(self, state: State, made_as: Definition | None = None) -> Transaction:
        """A transaction on the table, which is created by its definition if it does not exist.

        It commits only if nobody has changed the table since, even by rows alone: a resolve leaves other
        columns, and new rows would go to the old ones. Raises CommitConflict if the table is no longer in
        this ``state``.
        """
        ...

    def versions(self) -> Versions:
        """The known past of the table. Raises UsageError if there is no table."""
        ...

    def last_batch(self) -> LastBatch | None:
        """The batch that changed the table's rows last, whatever batches without rows came since; None if
        somebody else did, or if it wrote rows anew.
        """
        ...

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """A snapshot and its known ancestors."""
        ...

    def branches(self) -> Mapping[str, set[int]]:
        """The branches, each with the ids of the columns that its snapshot was written with."""
        ...

    def laid(self) -> Sequence[Laid]:
        """The table's data files, by the partition spec that they follow."""
        ...

    def statistics(self, schema: Schema) -> TableStatistics:
        """The statistics of the columns of ``schema``, by metadata. Raises UsageError without a table."""
        ...

    def read_appended(self, after: int, snapshot: int) -> DataFrame | None:
        """The rows that a snapshot added since snapshot ``after``; None if they cannot be read alone."""
        ...

    def appended(self, before: State, now: State) -> DataFrame | None:
        """The rows that others appended between two states of the table, of one schema.

        None if others did more than append, or if that is unknown.
        """
        ...

    def defaults(self) -> Mapping[int, frozenset[Any]]:
        """The known defaults that columns have had, by column id."""
        ...

    def delete(self, column: str, value: str) -> None:
        """Delete the rows whose ``column`` holds this text."""
        ...
