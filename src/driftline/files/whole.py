"""Files that say by themselves what the rows of a table are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class InWholeFiles(Protocol):
    """The rows of a table, or of a transaction as its commit leaves them."""

    def whole_files(self) -> Sequence[str]:
        """Return the Parquet files of this machine that alone say what the rows are.

        Empty if a row is elsewhere or deleted, or a column's values are not in the files, by its id.
        """
        return ()
