"""The rows of a table as one Arrow table, for work in the same process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from driftline.errors import DataError, UsageError
from driftline.runtime.failure import explained
from driftline.runtime.spark_version import as_arrow
from driftline.sql.quoting import name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def rows_in_arrow(frame: DataFrame, columns: Sequence[str] | None, where: str | None) -> pa.Table:
    """Collect a frame's rows.

    Args:
        frame: The table's rows.
        columns: Columns by name or path; None: all of them.
        where: A condition in SQL, of columns that need not be among ``columns``.

    Raises:
        UsageError: There is no such column, or the condition is no SQL.
        DataError: Arrow has no type for a column.
    """
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        rows = frame if where is None else frame.where(where)
        if columns is not None:
            rows = rows.select([_column(frame, column) for column in columns])
        return as_arrow(rows)
    except (AnalysisException, ParseException) as error:
        message, hint = explained(error)
        raise UsageError(message, hint) from error
    except PySparkException as error:
        message, hint = explained(error)
        raise DataError(message, hint) from error


def _column(frame: DataFrame, path: str) -> str:
    """The quoted column of a path; a name that holds dots goes before a path."""
    return name(path) if path in frame.columns else ".".join(map(name, path.split(".")))
