"""A table written anew: all of its rows are replaced in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.errors import DataError
from driftline.formats.base import CatalogTable, State, Transaction
from driftline.formats.retry import Retry, commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Rewrite:
    """A transaction that replaces all rows of a table. ``rows``: those that it began on."""

    table: CatalogTable
    transaction: Transaction
    rows: DataFrame
    replaced: bool = False

    def replace(
        self,
        convert: Callable[[DataFrame], DataFrame],
        summary: Mapping[str, str],
        check: Callable[[DataFrame], None] | None = None,
    ) -> None:
        """Replace the rows by converted ones. Raises DataError if not as many are written as there were.

        ``check``: raises Moved if rows that others append meanwhile cannot be converted like the others.
        Without it, any such row is a conflict.
        """

        def carry(appended: DataFrame) -> DataFrame:
            """Convert rows that others appended meanwhile."""
            assert check is not None
            check(appended)
            return convert(appended)

        written = self.transaction.replace(convert(self.rows), summary, None if check is None else carry)
        expected = self.rows.count()
        if written != expected:
            raise DataError(
                f"{self.table.name}: {expected} rows were there, {written} were written: nothing is changed"
            )
        self.replaced = True


@contextmanager
def rewriting(table: CatalogTable, state: State, retry: Retry) -> Iterator[Rewrite]:
    """Rewrite a table, from the ``state`` that it was loaded in.

    At the end of the block the rows become visible, if it has replaced them; after an error, their files are
    deleted. Raises CommitConflict if the rows are not right for what others have made of the table.
    """
    transaction = table.transaction(state)
    try:
        # Read behind the start of the transaction: what others write from now on is a conflict.
        rewrite = Rewrite(table, transaction, transaction.read())
        yield rewrite
        if rewrite.replaced:
            commit(transaction, table.load, retry)
    except BaseException:
        transaction.abandon()
        raise
    if rewrite.replaced:
        transaction.upkeep()
