"""The interface of a table format: a catalog's table, its transactions, and changes of its definition."""

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

    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.changelog.entries import Snapshot, Versions
    from driftline.core.changes import NullCount
    from driftline.core.changes.sort import PartsOf
    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.schema.partitioning import Laid
    from driftline.write import BatchFolder, RowTasks

    Carry: TypeAlias = Callable[[DataFrame], DataFrame]


class CommitConflict(Exception):
    """Someone else changed the table meanwhile: load it again."""


class Moved(CommitConflict):
    """And so that what was planned or written is no longer right: plan anew."""


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
_CAPTURE = "driftline.capture."

REMEMBERED = 10_000  # source files that a table knows it has taken


@dataclass(frozen=True, slots=True)
class State:
    """A table as it was loaded. ``uuid``: None where it does not exist; ``last_id``: the highest of all
    columns that it ever had; ``version``: names this state of it.
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
    return {k: v for k, v in state.properties.items() if k not in _OF_BATCHES and not k.startswith(_CAPTURE)}


def carried(
    name: str, appended: DataFrame | None, carry: Carry | None, write: Callable[[DataFrame], int]
) -> None:
    """Writes rows that others have appended to the table ``name`` beside those that replace all others.

    Raises Moved where they cannot be told, or not be carried over.
    """
    if appended is None or carry is None:
        raise Moved(f"the rows of {name} have changed meanwhile")
    written, there = write(carry(appended)), appended.count()
    if written != there:
        raise Moved(f"{name}: others appended {there} rows, {written} were written")


class Added(NamedTuple):
    """Data files that a transaction has written: how many, of how many bytes."""

    files: int = 0
    bytes: int = 0


class Transaction(Protocol):
    """Changes of one batch, visible together when committed.

    ``committed``: they are visible; ``uncommitted``: they certainly are not. Neither holds while a commit is
    under way, nor after one whose outcome nobody can tell.
    """

    committed: bool
    uncommitted: bool

    @property
    def base(self) -> State | None:
        """The table as the transaction began on it; None where it makes the table."""
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
        """The snapshot that the transaction makes, as far as it is known."""
        ...

    @property
    def added(self) -> Added:
        """The data files that it has written."""
        ...

    def evolve(self, changes: Iterable[Change], after: int = 0) -> None:
        """Applies the changes; new columns get ids beyond ``after``.
        Raises DataError where the format refuses one.
        """
        ...

    def append(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Writes the frame's rows, whose columns are those of `row`; returns how many were written."""
        ...

    @property
    def home(self) -> str:
        """The table's own folder, by which others know it: a path or URI."""
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

    def write(self, tasks: RowTasks, folder: BatchFolder | None, summary: Mapping[str, str]) -> int:
        """Has tasks write their rows, whose columns are those of `row`; returns how many
        were written. ``folder``: for files of this batch alone, at the `location` where that
        is on a disk; None where tasks see none.
        """
        ...

    def read(self) -> DataFrame:
        """The table's rows as the transaction began on them, whatever others do meanwhile."""
        ...

    def replace(self, frame: DataFrame, summary: Mapping[str, str], carry: Carry | None = None) -> int:
        """Writes the frame's rows in place of all that the table holds; returns how many were
        written. The transaction must be pinned.

        ``carry``: makes such rows of those that others append meanwhile, which `again` then writes too. It
        raises Moved where that takes another plan.
        """
        ...

    def set(self, properties: Mapping[str, str]) -> None:
        """Sets table properties."""
        ...

    def remember(self, files: Sequence[int]) -> None:
        """Has the table know from the commit on that it has taken these source files, by their fingerprints.
        Asked for between `write` and `set`.
        """
        ...

    def include(self, other: Self) -> bool:
        """Has another transaction of the same lake become visible with this one. False: the format cannot,
        and the other is to be committed by itself.
        """
        ...

    def commit(self) -> None:
        """Makes everything visible at once. Raises CommitConflict where someone else was faster."""
        ...

    def again(self, now: State) -> None:
        """After a conflict: takes the same changes and rows, not written anew, to the table as it is
        ``now``, for which the same was planned; with what others have appended where all rows are
        replaced. Raises Moved where the rows are not right there; CommitConflict where it is no longer so.
        """
        ...

    def abandon(self) -> None:
        """Deletes the files that were written, unless they are the table's, or may be."""
        ...

    def read_written(self) -> DataFrame | None:
        """The rows that it has written, once it is committed; None
        where they cannot be read by themselves.
        """
        ...

    def upkeep(self) -> None:
        """Once it is committed: lets go of what the table's metadata
        keep of batches long past. Never fails.
        """
        ...

    def undo(self) -> bool:
        """Takes the rows of a committed transaction out again; False
        where they can no longer be told apart.
        """
        ...


class Draft(Protocol):
    """A table as it would be: nobody sees it before `commit`."""

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
        """Make the draft the table. Raises CommitConflict if the definition was changed meanwhile."""
        ...


class Alteration(Protocol):
    """One change of a table's definition, from the version that was loaded."""

    @property
    def before(self) -> Definition:
        """The definition of the loaded version."""
        ...

    def nulls(self, path: Path, column: Field) -> NullCount:
        """In how many rows the column is null; the commit fails where others have written since."""
        ...

    def change(self, after: Definition, record: Mapping[str, str]) -> Draft:
        """The table as ``after`` says, in one version that tells of
        ``record``. Raises DataError where it cannot be so.
        """
        ...

    def restore(self, after: Definition, record: Mapping[str, str]) -> Draft:
        """The same; columns that were dropped have their old ids, and so their values."""
        ...


class CatalogTable(Protocol):
    """One table of one catalog. Nothing is made before the first commit."""

    spark: SparkSession
    name: str

    @property
    def blank(self) -> Definition:
        """The definition of a new table without columns in this format."""
        ...

    @property
    def as_text(self) -> frozenset[Primitive]:
        """Types of values that the format has no columns for: they become text."""
        ...

    @property
    def parts_of(self) -> PartsOf | None:
        """Reads a sort expression; None where the format has none."""
        ...

    def load(self) -> State:
        """The table as it is now; an empty schema where it does not exist."""
        ...

    def taken(self, state: State, files: Collection[int]) -> Collection[int]:
        """Which of these source files, by their fingerprints, are among the last `REMEMBERED` that the
        table has taken as it was loaded; those of a batch that was rolled back are not.
        """
        ...

    def definition(self) -> Definition:
        """The table's present definition. Raises UsageError if there is no table."""
        ...

    def read(self, snapshot: int | None = None) -> DataFrame:
        """The table's rows, as they are now, or were in a snapshot."""
        ...

    def row_ids(self, changed: str) -> list[str]:
        """SQL of what readers know a row again by, to be selected behind its columns for
        `Transaction.replace`; empty where the table has nothing of the kind.

        ``changed``: SQL, whether the row's values will be others.
        """
        return []

    @property
    def new_row_ids(self) -> str | None:
        """A sentence for people, where rows that are written anew do not keep the ids that they have."""
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

    def transaction(
        self, state: State, made_as: Definition | None = None, *, pinned: bool = False
    ) -> Transaction:
        """A transaction on the table; one that does not exist is made as its definition says.

        ``pinned``: it commits only if nobody has changed the table since. Raises CommitConflict where
        the table is no longer as ``state`` says.
        """
        ...

    def alteration(self) -> Alteration:
        """A change of the table's definition. Raises UsageError where there is no table."""
        ...

    def versions(self) -> Versions:
        """The known past of the table. Raises UsageError if there is no table."""
        ...

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, as far as they are there."""
        ...

    def branches(self) -> Mapping[str, set[int]]:
        """By branch, the ids of the columns that its snapshot was written with."""
        ...

    def laid(self) -> Sequence[Laid]:
        """The table's data files, by the partition spec that they follow."""
        ...

    def rename(self, name: str) -> None:
        """Gives the table another name, ``namespace.table``. Raises UsageError, DataError."""
        ...

    def statistics(self, schema: Schema) -> TableStatistics:
        """The statistics of the columns of ``schema``, by metadata. Raises UsageError without a table."""
        ...

    def read_appended(self, after: int, snapshot: int) -> DataFrame | None:
        """The rows that a snapshot added to those of snapshot
        ``after``; None where only all rows are to be had.
        """
        ...

    def appended(self, before: State, now: State) -> DataFrame | None:
        """The rows that others have appended between two states of the table, of one schema; None
        where they did more, or that cannot be told.
        """
        ...

    def defaults(self) -> Mapping[int, frozenset[Any]]:
        """The defaults that each column has had, by its id, as far as
        they are known; none where it had none.
        """
        ...

    def delete(self, column: str, value: str) -> None:
        """Deletes the rows whose ``column`` holds this text."""
        ...

    def sibling(self, name: str) -> Self:
        """Another table of the same catalog."""
        ...
