"""The interface of a table format: catalog tables, transactions, and changes to a definition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from driftline.core.changes import Change
from driftline.core.schema.definition import Definition
from driftline.core.schema.types import Field, Path, Primitive, Schema, Struct
from driftline.errors import SetupError, UsageError
from driftline.files.whole import InWholeFiles, StagedRows

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.changes import NullCount
    from driftline.core.changes.text import PartsOf
    from driftline.core.columns.statistics import SeenNote, TableStatistics
    from driftline.core.history.entries import Snapshot, Versions
    from driftline.core.schema.definition import Laid
    from driftline.keys.anew import RewriteCandidate, RowsLeft
    from driftline.keys.identity import BatchKeys, SoughtKeys
    from driftline.keys.remembered import DeletedKeys
    from driftline.keys.settle import Found
    from driftline.keys.stored import KeyCache, StoredRows
    from driftline.write import BatchFolder, RowTasks
    from driftline.write.positions import Positions

    Carry: TypeAlias = Callable[[DataFrame], DataFrame]


class CommitConflict(Exception):
    """Another writer has changed ``tables`` meanwhile; load them again."""

    def __init__(self, message: str, *tables: str) -> None:
        super().__init__(message)
        self.tables = tables


class Moved(CommitConflict):
    """A conflict that invalidates the plan or the written rows; plan the batch again."""


class UnknownError(SetupError):
    """A commit with an unknown outcome: its files may belong to the table, and must stay."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"whether the commit took place is not known: {cause}",
            hint="look at the table once its catalog answers; a capture finds out by itself: start it again. "
            "`driftline clean` deletes the files of the commit if no snapshot has them",
        )


# Properties of single batches: no settings of the table.
_OF_BATCHES = (
    "driftline.batch", "driftline.expired", "driftline.expiring", "driftline.files", "driftline.seen",
    "driftline.thinned",
)  # fmt: skip
_CAPTURES = ("driftline.capture.", "driftline.captured.")

# Numbers by which a table knows the source files it has taken, at most four for each
REMEMBERED = 40_000


@dataclass(frozen=True, slots=True)
class State:
    """A table as it was loaded.

    Attributes:
        uuid: None if the table does not exist.
        last_id: the highest id that any of its columns ever had.
        version: a name of this state.
    """

    schema: Schema
    properties: Mapping[str, str]
    snapshot: int | None
    exists: bool
    uuid: str | None = None
    last_id: int = 0
    version: str = ""

    def fits(self, later: State) -> bool:
        """True if a plan or files for this state are also right for the ``later`` one."""
        return (self.version != "" and self.version == later.version) or (
            (self.uuid, self.schema, self.last_id) == (later.uuid, later.schema, later.last_id)
            and _settings(self) == _settings(later)
        )


def _settings(state: State) -> dict[str, str]:
    return {k: v for k, v in state.properties.items() if k not in _OF_BATCHES and not k.startswith(_CAPTURES)}


def carried(
    name: str, appended: DataFrame | None, carry: Carry | None, write: Callable[[DataFrame], int]
) -> None:
    """Write rows that other writers appended to the table ``name``, along with those that replace all rows.

    Raises Moved if these rows are unknown, or cannot be carried over.
    """
    if appended is None or carry is None:
        raise Moved(f"the rows of {name} have changed meanwhile")
    written, present = write(carry(appended)), appended.count()
    # A conversion that drops a row would lose it here unnoticed.
    if written != present:
        raise Moved(f"{name}: others appended {present} rows, {written} were written")


class Added(NamedTuple):
    """The number of data files that a transaction has written, and their bytes.

    ``total``: the number of the table's data files with them; 0 if unknown.
    """

    files: int = 0
    bytes: int = 0
    total: int = 0

    def passes(self, number: int) -> bool:
        """True if with these files the table's number of files has come to the next multiple of ``number``.

        >>> [Added(files, 0, total).passes(8) for files, total in ((1, 7), (1, 8), (3, 10), (2, 10), (1, 0))]
        [False, True, True, False, False]
        """
        # By multiples, each of which is met once, however many files a batch adds.
        return self.total // number > max(self.total - self.files, 0) // number


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The batch that wrote to a table last, and the snapshot that it made.

    ``added``, ``removed``: numbers of rows; ``behind``: the snapshots behind it, which changed no row.
    """

    id: str
    snapshot: int
    added: int
    removed: int
    behind: tuple[int, ...] = ()

    def made(self, snapshot: int | None) -> bool:
        """True if a snapshot has the table's rows as the batch left them."""
        return snapshot == self.snapshot or snapshot in self.behind


@dataclass(frozen=True, slots=True)
class Rewritable:
    """The data files of a table that are worth writing anew.

    Attributes:
        groups: of files, each for one commit.
        left: the number of other files, by the reason.
        files: the number of all files; ``size``: their bytes.
        target: bytes that a file should have.
    """

    groups: Sequence[Sequence[RewriteCandidate]] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    size: int = 0
    target: int = 0


class RowTransaction(Protocol):
    """The changes of one batch, visible together when committed: what each format implements.

    Attributes:
        visible: True once they are committed, False while they certainly are not; None during a commit, and
            after one with an unknown outcome.
    """

    visible: bool | None

    @property
    def base(self) -> State | None:
        """The table state that the transaction began on; None if it creates the table."""
        ...

    @property
    def schema(self) -> Schema:
        """The schema inside the transaction."""
        ...

    @property
    def snapshot(self) -> int | None:
        """The id of the snapshot that the transaction makes; None if there is none yet."""
        ...

    @property
    def location(self) -> str:
        """The folder of the table's data files: a path or URI."""
        ...

    def evolve(self, changes: Iterable[Change], after: int = 0) -> None:
        """Apply the changes; new columns get ids above ``after``. Raises DataError if one is impossible."""
        ...

    def append(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Write the frame's rows, with the columns of `row_type`; returns their number."""
        ...

    def write(self, tasks: RowTasks, folder: BatchFolder | None, summary: Mapping[str, str]) -> int:
        """Have tasks write their rows, with the columns of `row_type`; returns their number.

        Args:
            tasks: the tasks.
            folder: for files of this batch alone, at the `location` if that is on a disk; None if tasks see
                none.
            summary: the properties of the snapshot.
        """
        ...

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        ...

    def remember(self, files: Sequence[int]) -> None:
        """Record, for the commit, that the table has these source files, by fingerprint.

        Call it between `write` and `set`.
        """
        ...

    def commit(self) -> None:
        """Make everything visible at once. Raises CommitConflict if another writer was faster."""
        ...

    def abandon(self) -> None:
        """Delete the written files, unless they belong to the table, or may."""
        ...


class UpkeepTransaction(Protocol):
    """The members of a transaction beyond adding rows, each with a default for a format to inherit."""

    commits_together: bool = False  # `commit_with` takes other transactions of the lake

    @property
    def row_type(self: RowTransaction) -> Struct:
        """The struct of the rows that `append` takes: the columns that Spark can represent."""
        return self.schema.struct

    @property
    def written(self) -> Added:
        """The data files that the transaction has written; none if the format does not count them."""
        return Added()

    @property
    def table_location(self: RowTransaction) -> str:
        """The table's own folder, by which others identify it: a path or URI."""
        return self.location

    @property
    def durable(self) -> bool:
        """False if the lake's files are written without syncs."""
        return True

    def reached_with(self) -> Mapping[str, str] | None:
        """Return the options of `stores.filesystem` with which tasks reach the store of the `location`.

        None if it is in no store, or if tasks cannot reach it.
        """
        return None

    def commit_with(self, others: Sequence[Self]) -> None:
        """Commit with others at once, as `commit` does; a conflict names the tables that have changed."""
        assert self.commits_together

    def rebase(self: RowTransaction, now: State) -> None:
        """Apply the same changes and files to the table's state ``now``, after a conflict.

        The same must have been planned for it. If all rows are replaced, rows that others appended are
        carried over.

        Raises:
            Moved: the rows are not right for the new state.
            CommitConflict: the table has changed once more.
        """
        raise Moved(f"the table at {self.location} has changed since the batch was planned")

    def read(self: RowTransaction) -> DataFrame:
        """Return the rows of the table state that the transaction began on, whatever others do meanwhile.

        Raises UsageError if the format cannot replace rows.
        """
        raise _only_adds(self)

    def live_rows(self) -> RowsLeft | None:
        """Return the rows of `read`, for tasks to read and write again; None if Spark alone can."""
        return None

    def replace_all(
        self: RowTransaction, carry: Carry | None = None, note: Callable[[], SeenNote] | None = None
    ) -> FileTransaction:
        """Return the transaction, whose next `append` or `write` replaces all rows of the table.

        Args:
            carry: converts rows that other writers append meanwhile, which `rebase` then writes too. It
                raises Moved if they need another plan.
            note: returns the batches that brought the rows' values; it is asked again after a conflict.

        Raises:
            UsageError: the format cannot.
        """
        raise _only_adds(self)

    def staged(self: RowTransaction, *, whole: bool = True) -> StagedRows:
        """Return the rows that the table has once this is committed, as far as Spark can read them.

        Those alone that this appends unless they are ``whole``. Raises UsageError if the format cannot show
        them, CommitConflict if the table has changed since the transaction began.
        """
        raise UsageError(
            f"the format of the table at {self.location} cannot show a batch before its commit",
            "audit it without --verify",
        )

    def by_key(self: RowTransaction) -> KeyedTransaction:
        """Return the transaction, to change rows by key. Raises UsageError if the format cannot."""
        raise _only_adds(self)

    def by_file(self: RowTransaction) -> FileTransaction:
        """Return the transaction, to write files anew. Raises UsageError if the format cannot."""
        raise UsageError(
            f"the table at {self.location} is not compacted: files of its format are not written anew",
            "compact it with the engine that writes it",
        )

    def read_written(self) -> DataFrame | None:
        """Return the rows that the committed transaction wrote; None if they cannot be read separately."""
        return None

    def upkeep(self) -> None:
        """Drop metadata of old batches after the commit. Never fails."""
        return

    def undo(self) -> bool:
        """Remove the rows of a committed transaction; False if they can no longer be distinguished."""
        return False


def _only_adds(transaction: RowTransaction) -> UsageError:
    return UsageError(
        f"the format of the table at {transaction.location} can only add rows, and this would change some",
        'make it in another format, or without a key and with allow_rewrite = "false"',
    )


class Transaction(RowTransaction, UpkeepTransaction, Protocol):
    """A transaction of any format."""


class FileTransaction(Transaction, Protocol):
    """A transaction that writes files anew, and changes no row."""

    def rewritable(self, *, behind_batch: bool = False, sort: bool = False) -> Rewritable:
        """Choose the files that are worth writing anew.

        Args:
            behind_batch: only small ones, as few as a batch may be followed by.
            sort: those too that are not sorted by the table's order. Raises UsageError if it has none.
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
        """Have tasks write their rows, as `KeyedTransaction.write` does."""
        ...

    def rewrite_files(self, group: Sequence[RewriteCandidate]) -> RowsLeft:
        """Take files out of the table; returns their rows, which `write` has to write.

        Raises Moved if the table has these files no longer, or other rows of them are deleted.
        """
        ...


class KeyedTransaction(Transaction, Protocol):
    """A transaction that changes rows by key, and remembers the keys of those that it deletes."""

    def write(
        self,
        tasks: RowTasks,
        folder: BatchFolder | None,
        summary: Mapping[str, str],
        *,
        with_ids: bool = False,
    ) -> int:
        """Have tasks write their rows, as `RowTransaction.write` does.

        Args:
            tasks: the tasks.
            folder: for files of this batch alone.
            summary: the properties of the snapshot.
            with_ids: after the columns, the rows have their ids, as `find` has found them, and the sequence
                numbers of their last changes.
        """
        ...

    def find(
        self, keys: SoughtKeys, order: int | None, deleted: int | None = None, cache: KeyCache | None = None
    ) -> Sequence[Found]:
        """Find rows with a key of the batch, in the table state that the transaction began on.

        From now on the transaction commits only to that state: after a conflict, `rebase` raises Moved.

        Args:
            keys: the keys.
            order: the id of the column with a row's order.
            deleted: the id of the column that marks a deleted row.
            cache: keys that previous batches have read.

        Raises:
            DataError: rows cannot be found by key.
        """
        ...

    def stored(self) -> StoredRows:
        """Return a reader of the rows that `find` has found, with the columns of `row_type`."""
        ...

    def remove(self, rows: Mapping[str, Positions], size: int) -> RowsLeft | None:
        """Remove rows that `find` has found; call it before `write`.

        Rewritten files leave the table, as `keys.anew` decides for the size of the batch.

        Args:
            rows: positions by file.
            size: bytes of the batch.

        Returns:
            The remaining rows of rewritten files, which `write` has to write too; None if no file leaves.
        """
        ...

    def find_deletes(self, keys: BatchKeys, order: int) -> Sequence[Found]:
        """Find remembered deletes of the batch's keys, as `find` finds rows.

        Raises DataError if there is no place to remember them.
        """
        ...

    def remember_deletes(self, deletes: DeletedKeys) -> None:
        """Remember deletes in the same commit; deletes older than their span may be dropped.

        Call it between `find_deletes` and `write`, even without any deletes.
        """
        ...

    def remembered(self, ids: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the remembered deletes by file: their columns with these ids, named by the ids.

        Yields nothing if they do not store keys in the table's columns.
        """
        ...

    def rewrite_deletes(self, files: Iterable[tuple[str, pa.Table]]) -> None:
        """Replace remembered deletes, as `remembered` yields them, by ones in columns of the present schema.

        From now on the transaction commits only to the table state that it began on.
        """
        ...


class Draft(Protocol):
    """A future table, invisible to others before `commit`."""

    @property
    def definition(self) -> Definition:
        """The future definition, with the ids that the table assigns; after the commit, the present one."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Consequences for readers of the table, as sentences."""
        ...

    def read(self) -> DataFrame:
        """Return the present rows as readers of the draft would see them."""
        ...

    def commit(self) -> None:
        """Make the draft the table. Raises CommitConflict if another writer has changed the definition."""
        ...


class Alteration(Protocol):
    """One change to a table's definition, starting from the loaded version."""

    @property
    def before(self) -> Definition:
        """The definition of the loaded version."""
        ...

    def nulls(self, path: Path, column: Field) -> NullCount:
        """Count the rows in which the column is null; the commit fails if others write meanwhile."""
        ...

    def outdated_deletes(self, span: int) -> int:
        """Count the deletes that the table has remembered for longer than ``span`` seconds."""
        ...

    def change(
        self, after: Definition, record: Mapping[str, str], *, pinned: bool = False, span: int | None = None
    ) -> Draft:
        """Draft the table with the definition ``after``, and store the ``record`` in it.

        ``pinned``: it commits only if nobody has changed the table since, even by rows alone. ``span``:
        deletes that it has remembered for more seconds are forgotten. Raises DataError if that is impossible.
        """
        ...

    def restore(self, after: Definition, record: Mapping[str, str]) -> Draft:
        """Draft as `change` does; dropped columns return with their old ids, and so with their values."""
        ...

    def revert(self, batch: LastBatch, after: Definition, record: Mapping[str, str]) -> Draft:
        """Draft as `restore` does, with the rows from before the batch.

        Raises:
            DataError: these rows are gone.
            CommitConflict: the batch is no longer the last one.
        """
        ...


class AlterableTable(Protocol):
    """A table of a catalog, for changes to its definition, which need no Spark."""

    name: str

    @property
    def parts_of(self) -> PartsOf | None:
        """The function that parses a sort expression; None if the format has none."""
        ...

    def with_rows(self) -> CatalogTable:
        """Return the table with its rows. Raises NeedsSpark if it was opened without Spark."""
        ...

    def load(self) -> State:
        """Load the present state of the table; its schema is empty if the table does not exist."""
        ...

    def definition(self) -> Definition:
        """Return the present definition. Raises UsageError if there is no table."""
        ...

    def alteration(self) -> Alteration:
        """Begin a change to the table's definition. Raises UsageError if there is no table."""
        ...

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        ...

    def other_table(self, name: str) -> Self:
        """Return another table of the same catalog."""
        ...


class CatalogTable(AlterableTable, InWholeFiles, Protocol):
    """A table of a catalog, with its rows. Nothing is created before the first commit.

    A batch asks for the members before `with_rows`; for those after it, and from `versions` on, other
    operations ask.
    """

    @property
    def spark(self) -> SparkSession:
        """The Spark session that reads and writes the rows."""
        ...

    @property
    def blank(self) -> Definition:
        """The definition of a new table without columns in this format."""
        ...

    def ingested_files(self, state: State, files: Collection[int]) -> Collection[int]:
        """Select the source files, by fingerprint, that the table has among its last `REMEMBERED` ones.

        Files of a batch that was rolled back are not among them.
        """
        ...

    def read(self, snapshot: int | None = None) -> DataFrame:
        """Return the rows of the table, now or at a snapshot."""
        ...

    def transaction(self, state: State, new_definition: Definition | None = None) -> Transaction:
        """Begin a transaction on the table; it creates one that does not exist, as ``new_definition``.

        It commits only if nobody has changed the table since, even by rows alone: a resolve leaves other
        columns, and new rows would go to the old ones. Raises CommitConflict if the table is no longer in
        this ``state``.
        """
        ...

    def delete(self, column: str, value: str) -> None:
        """Delete the rows whose ``column`` holds this text."""
        ...

    def with_rows(self) -> CatalogTable:
        """Return the table itself."""
        return self

    @property
    def can_compact(self) -> bool:
        """True if files of the format are written anew behind batches of captures."""
        return False

    @property
    def as_text(self) -> frozenset[Primitive]:
        """The types for which the format has no columns: their values become text."""
        return frozenset()

    def fillable(self, schema: Schema) -> Schema:
        """Return the schema without the columns that Spark cannot write."""
        return schema

    def readable(self, schema: Schema) -> Schema:
        """Return the schema without the columns that Spark cannot read."""
        return schema

    def read_readable(self) -> DataFrame:
        """Return the table's present rows, without the columns that Spark cannot read."""
        return self.read()

    def remembered_deletes(self, order: str) -> DataFrame | None:
        """Return the deletes that the table remembers: keys, or one `KEY_TEXT` each, and their ``order``."""
        return None

    def row_ids(self, changed: str) -> list[str]:
        """Return SQL for the ids of rows, behind the columns of rows that replace all others."""
        return []

    @property
    def new_row_ids(self) -> str | None:
        """A sentence for people if rewritten rows lose their ids."""
        return None

    def read_appended(self, after: int, snapshot: int) -> DataFrame | None:
        """Return the rows added since snapshot ``after``; None if they cannot be read alone."""
        return None

    def appended(self, before: State, now: State) -> DataFrame | None:
        """Return the rows that others appended between two states of one schema; None if that is unknown."""
        return None

    def branches(self) -> Mapping[str, set[int]]:
        """Return the branches, each with the column ids that its snapshot was written with."""
        return {}

    def versions(self) -> Versions:
        """Return the known past of the table. Raises UsageError if there is no table."""
        ...

    def last_batch(self) -> LastBatch | None:
        """Return the batch that last changed the table's rows; later batches without rows do not count.

        None if another writer changed them, or if the batch rewrote rows.
        """
        ...

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """Yield a snapshot and its known ancestors."""
        ...

    def laid(self) -> Sequence[Laid]:
        """Return the table's data files by partition spec."""
        ...

    def statistics(self, schema: Schema, watched: frozenset[int] = frozenset()) -> TableStatistics:
        """Read column statistics of ``schema`` from metadata, those ``watched`` by period, too.

        Raises UsageError if there is no table.
        """
        ...

    def defaults(self) -> Mapping[int, frozenset[Any]]:
        """Return the known defaults that columns have had, by column id."""
        ...
