"""Files that say by themselves what the rows of a table are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class InWholeFiles(Protocol):
    """The rows of a table."""

    def whole_files(self) -> Sequence[str]:
        """Return the Parquet files of this machine that alone say what the rows are.

        Empty if a row is elsewhere or deleted, or a column's values are not in the files, by its id.
        """
        return ()


class StagedRows(NamedTuple):
    """Rows as a commit would leave them.

    Attributes:
        files: returns those of these rows, as `InWholeFiles.whole_files` does.
        earlier: the number of rows from before among them, where all were written anew; None otherwise.
    """

    frame: DataFrame
    files: Callable[[], Sequence[str]]
    earlier: int | None = None
