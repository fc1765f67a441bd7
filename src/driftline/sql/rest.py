"""What stands in the rest of some rows, path by path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftline.core.planning.rest import TYPE_KEY, rest_column
from driftline.core.schema.types import Schema
from driftline.sql.quoting import name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST = 1_000  # paths
_SAMPLE = 200  # characters
# A place in a list, not in a quoted key: an even number of backticks is behind it.
_PLACE = r"\\[[0-9]+\\](?=(?:[^`]*`[^`]*`)*[^`]*$)"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Values that wait at one ``path``, elements of lists as steps of that
    name; ``sample``: one of them, as JSON text.
    """

    path: str
    values: int
    sample: str

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, "values": self.values, "sample": self.sample}


def waiting(rows: DataFrame, schema: Schema) -> tuple[Waiting, ...]:
    """What waits in rows of a table, at most `MOST` paths, those of most values first."""
    column = rest_column(schema.struct)
    if column is None or column.name not in rows.columns:
        return ()
    entries = rows.selectExpr(f"explode({name(column.name)}) as (path, text)")
    values = entries.where(f"path not like '%{TYPE_KEY}'").selectExpr(
        f"regexp_replace(path, '{_PLACE}', '.element') as path", f"left(text, {_SAMPLE}) as text"
    )
    counted = values.groupBy("path").agg({"*": "count", "text": "min"}).toDF("path", "n", "sample")
    rows_of_paths = (
        counted.orderBy("n", "path", ascending=[False, True]).limit(MOST).collect()
    )  # one row a path
    return tuple(Waiting(row["path"], row["n"], row["sample"]) for row in rows_of_paths)
