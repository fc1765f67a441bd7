"""Reads records of CSV files that were dealt by table into a spool file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.settings.csv import Dialect
from driftline.readers.csv.cut import Piece
from driftline.readers.csv.open import Stretch
from driftline.readers.csv.reader import CsvFiles
from driftline.readers.csv.sample import CsvFile

# A record with its line end; its line, counted from its file's first row; and if its piece was plain.
RECORDS = pa.schema([("record", pa.large_binary()), ("line", pa.int64()), ("plain", pa.bool_())])


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtStretch(Stretch):
    """Records of a file that stand in the ``spool`` file, as the batch of this ``number``."""

    spool: str
    number: int

    def pieces(self) -> Iterator[Piece]:
        """Yield the records as one piece."""
        with pa.memory_map(self.spool) as file:
            records, lines, plain = pa.ipc.open_file(file).get_batch(self.number).columns
            _, offsets, text = records.buffers()
            begins = np.frombuffer(offsets, np.int64)[: len(records)]
            numbers = lines.to_numpy() + (self.line - 1)
            is_plain = pc.all(plain).as_py()
            yield Piece(text.to_pybytes(), self.line, is_plain, self.form.marks, (begins, numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtCsvFiles(CsvFiles):
    """The records of one table. ``parts``: the files that they are from, with stretches of the spool."""

    parts: Sequence[CsvFile]

    def cut(self, dialect: Dialect) -> list[CsvFile]:
        """The files, with the table's own signs in numbers and texts that are null."""
        return [_of_table(file, dialect) for file in self.parts]


def _of_table(file: CsvFile, dialect: Dialect) -> CsvFile:
    form = replace(
        file.header.form,
        signs=dialect.signs,
        nulls=dialect.null_texts,
        skip_empty=dialect.skip_empty == "true",
    )
    stretches = [replace(part, form=form) for part in file.stretches]
    return replace(file, header=replace(file.header, form=form), stretches=stretches)
