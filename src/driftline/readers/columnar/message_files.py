"""Reads messages in columnar files as JSON texts, in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.rest import row_texts
from driftline.core.schema.types import Struct
from driftline.core.values import RefusedText
from driftline.observe.json_lines import Why
from driftline.observe.observation import Observation
from driftline.readers.columnar.parquet import ReaderPart
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.envelopes.messages import AROUND
from driftline.readers.json.rows import AcceptedLines, JsonRows, LineTask, Run
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.readers.task import AdmissionTerms, TaskReader

MessagesOf: TypeAlias = "Callable[[ColumnReader, int], Iterator[Run]]"  # in a part of a reader


def row_messages(reader: ColumnReader, part: int) -> Iterator[Run]:
    """The rows of a part as texts, which lack the fields that are null."""
    for rows in reader.rows(part):
        yield message_run(_texts(rows, reader.struct), rows.source, rows.lines, rows.rejects)


def message_run(
    texts: Sequence[bytes],
    source: str,
    numbers: NDArray[np.int64] | None,
    rejects: Sequence[Reject] = (),
) -> Run:
    """Build the run of some texts of a file, and of ``rejects`` among them.

    Args:
        numbers: the texts' numbers in their file, if known.
    """
    origin = Origin(source or None)
    lines = [0] * len(texts) if numbers is None else numbers.tolist()
    all_lines = np.array([*lines, *(reject.origin.line or 0 for reject in rejects)], np.int64)
    # Rejects go back to their places among the texts: a later change of a row has to come later.
    order = np.arange(len(all_lines)) if numbers is None else np.argsort(all_lines, kind="stable")
    in_order: list[int] = all_lines[order].tolist()
    all_texts = [*texts, *(RefusedText.of(reject.raw or b"", str(reject.why)) for reject in rejects)]

    def reject(at: int, why: Why) -> Reject:
        """The reject of a text."""
        place = int(order[at])
        if place >= len(texts):
            return rejects[place - len(texts)]
        return Reject(origin._replace(line=in_order[at] or None), texts[place], why)

    origins = Origins(origin, None if numbers is None else in_order)
    return Run([all_texts[place] for place in order.tolist()], source, in_order, reject, None, origins)


def _texts(rows: Rows, struct: Struct) -> list[bytes]:
    """Return rows as texts. If each has a key, a null value is reported: it is a tombstone."""
    texts = row_texts(rows.batch, struct, points=True)
    names = [f.name for f in struct.fields]
    if not {"key", "value"} <= set(names) <= AROUND:
        return texts
    key, value = (rows.batch.column(names.index(name)) for name in ("key", "value"))
    # A null value next to a key deletes the row, so it is written out; other nulls of columns are left out.
    tombstones = pc.and_(key.is_valid(), value.is_null()).to_pylist()
    return [
        text[:-1] + b',"value":null}' if is_tombstone else text
        for text, is_tombstone in zip(texts, tombstones, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class PartMessages(TaskReader[int, "Sequence[Run]", AcceptedLines, Observation]):
    """Reads messages in parts of files of columns.

    Attributes:
        parts: all of them.
        shares: the numbers of those of each task.
        messages: reads a part.
    """

    readers: Sequence[ColumnReader]
    parts: Sequence[ReaderPart]
    shares: Sequence[Sequence[int]]
    messages: MessagesOf
    terms: AdmissionTerms
    make: JsonRows | None = None

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.make is not None

    def open(self, share: int) -> OpenMessages:
        """Open the parts of one task."""
        return OpenMessages(self, self.shares[share])


class OpenMessages:
    """The messages of one task."""

    def __init__(self, reader: PartMessages, share: Sequence[int]) -> None:
        self._reader, self._share = reader, share
        self._lines = LineTask.of(reader.terms, reader.make)

    def groups(self) -> Iterator[Sequence[Run]]:
        """Read the messages, part by part."""
        reader = self._reader
        for number in self._share:
            part = reader.parts[number]
            for run in reader.messages(reader.readers[part.reader], part.part):
                yield [run]

    def observe(
        self, group: Sequence[Run], everything: str | None
    ) -> tuple[AcceptedLines, pa.RecordBatch | None]:
        """Observe the records in some messages."""
        return self._lines.observe(group, everything)

    def convert(self, accepted: AcceptedLines) -> Iterator[pa.RecordBatch]:
        """Make rows of the records."""
        return (rows for rows, _ in self._lines.convert(accepted))

    def observed(self) -> Observation:
        """The observation of all records."""
        return self._lines.observed()
