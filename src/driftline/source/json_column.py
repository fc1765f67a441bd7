"""A DataFrame's string column of JSON text; each text is a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driftline.runtime.spark_conf import CASE, FILES
from driftline.source.json_frame import JsonFrame, PlainTexts
from driftline.source.json_rows import Run
from driftline.source.rejects import Origin, Reject
from driftline.sql.quoting import name
from driftline.write.frame import numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def json_column(frame: DataFrame, column: str) -> JsonFrame:
    """The records of the frame's ``column``."""
    # The frame's own plan runs under these settings too: it keeps its way with case.
    conf = {**FILES, CASE: str(frame.sparkSession.conf.get(CASE))}
    return JsonFrame(frame=numbered(frame.select(name(column))), texts=_TextColumn(column), conf=conf)


@dataclass(slots=True)
class _TextColumn(PlainTexts):
    """``line``: how many texts of its partition were read before, and one."""

    column: str
    line: int = field(default=1)

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a batch as one run; null and blank ones are no records."""
        lines = [b"" if text is None else text.encode() for text in batch.column(0).to_pylist()]
        origin = Origin(self.column)
        yield Run(lines, self.column, self.line, lambda at, why: Reject(origin, lines[at], why))
        self.line += len(lines)
