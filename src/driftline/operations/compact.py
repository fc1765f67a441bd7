"""Compacts a table: writes small and worn files anew, drops unused columns, and changes no row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict

from driftline.core.schema.types import dotted
from driftline.core.support import as_json
from driftline.errors import no_table
from driftline.formats.base import Moved
from driftline.formats.commit import Retry
from driftline.ingest.compaction import file_transaction, write_anew
from driftline.operations.drop_unused import Unused, UnusedColumnJson
from driftline.operations.drop_unused import drop_unused as drop_unused_columns
from driftline.operations.replay import explaining
from driftline.runtime.shown import Shown

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable, Rewritable
    from driftline.keys.anew import RewriteCandidate


class CompactedJson(TypedDict):
    """A `Compacted`, in JSON. ``left``: the number of files that stay as they are, by the reason.

    ``kept``: the reasons for columns without a value to stay, by path; ``in_use``: the columns that came with
    drift and have values, if unused ones were to go; ``forgotten_deletes``: the number of remembered deletes
    that were past their time.
    """

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    written_anew: int
    commits: int
    left: dict[str, int]
    dropped: list[UnusedColumnJson]
    kept: dict[str, str]
    in_use: list[str]
    forgotten_deletes: int
    notes: list[str]
    done: bool


@dataclass(frozen=True, slots=True, repr=False)
class Compacted(Shown):
    """The files of a table, before and after a compaction.

    Attributes:
        rows: the number of rows that moved.
        written_anew: the number of files that went.
        commits: the number of snapshots.
        left: the number of files that stay as they are, by the reason.
        is_done: False of a dry run, whose numbers of afterwards are estimates.
        unused: the columns without a value, if these were to go.
    """

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    is_done: bool
    left: Mapping[str, int]
    rows: int = 0
    written_anew: int = 0
    commits: int = 0
    unused: Unused = field(default_factory=Unused)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, chosen: Rewritable, *, is_done: bool) -> Compacted:
        """The files of a table, of which none is written anew yet."""
        return cls(name, *(chosen.files,) * 2, *(chosen.size,) * 2, is_done, dict(chosen.left))

    def having(self, group: Sequence[RewriteCandidate], files: int, size: int) -> Compacted:
        """With files of these bytes in place of a group."""
        return replace(
            self,
            files_after=self.files_after + files - len(group),
            bytes_after=self.bytes_after + size - sum(file.size for file in group),
            rows=self.rows + sum(file.left for file in group),
            written_anew=self.written_anew + len(group),
            commits=self.commits + 1,
        )

    def leaving(self, group: Sequence[RewriteCandidate], reason: str) -> Compacted:
        """With a group as it was."""
        return replace(self, left={**self.left, reason: self.left.get(reason, 0) + len(group)})

    def to_dict(self) -> CompactedJson:
        """The form that JSON output has."""
        return as_json(
            CompactedJson,
            self,
            left=dict(self.left),
            dropped=self.unused.dropped,
            kept={dotted(path): reason for path, reason in self.unused.kept.items()},
            in_use=[dotted(path) for path in self.unused.in_use],
            forgotten_deletes=self.unused.forgotten,
            done=self.is_done,
        )


def compact(
    table: CatalogTable,
    *,
    sort: bool,
    drop_unused: bool,
    dry_run: bool,
    progress: Callable[[str], None],
) -> Compacted:
    """Write small and worn files anew, each group of a partition in a commit of its own.

    A group whose files another writer changes meanwhile is left, and no writer waits for one.

    Args:
        table: its table.
        sort: write files anew, too, that are not sorted by the table's order.
        drop_unused: drop the columns, too, that came with drift and in which no row has a value.
        dry_run: only tell what would be written.
        progress: called with the name of each step.

    Raises:
        UsageError: there is no such table, its format has no such files, or it has no order to sort by.
        DataError: its rows cannot be written anew as they are.
    """
    if not table.load().exists:
        raise no_table(table.name)
    progress("choosing files")
    with explaining(table.name):
        transaction = file_transaction(table, Retry(table.name, progress))
        chosen = transaction.rewritable(sort=sort)
    outcome = Compacted.of(table.name, chosen, is_done=not dry_run)
    for number, group in enumerate(chosen.groups, 1):
        if dry_run:
            size = sum(file.bytes_left for file in group)
            outcome = outcome.having(group, -(-size // max(chosen.target, 1)), size)
            continue
        progress(f"group {number} of {len(chosen.groups)}")
        retry = Retry(table.name, progress)
        try:
            with explaining(table.name):
                transaction = transaction if number == 1 else file_transaction(table, retry)
                added = write_anew(transaction, table, group, retry)
        except Moved as reason:
            outcome = outcome.leaving(group, str(reason))
        else:
            outcome = outcome.having(group, added.files, added.bytes)
    if not drop_unused:
        return outcome
    progress("looking for columns without a value")
    # Behind the files: these have lost their deleted rows, so metadata tell more of what is in them.
    return replace(outcome, unused=drop_unused_columns(table, dry_run=dry_run, progress=progress))
