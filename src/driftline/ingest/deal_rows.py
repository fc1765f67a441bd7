"""Deals the rows of a batch of columns by table into spool files, from which each table reads its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from driftline.core.schema.types import Path as FieldPath
from driftline.core.schema.types import Primitive, Struct
from driftline.ingest.deal import Share, SpoolSlice, share_of
from driftline.ingest.pattern import Brace, Pattern, Values, of_file, text_of
from driftline.readers.columnar.filled import FilledColumn, cut, filled_fields, whole_fields, with_fields
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.rejects import Reject

Tables = Callable[[Sequence[Values]], Mapping[Values, str]]
# The types whose values name tables.
_NAMING = frozenset({"boolean", "int", "long", "float", "double", "decimal", "string", "date"})
_LINE = "line"  # the last column of a spool file: the row's number in its own file


class SpooledBatch(NamedTuple):
    """A batch of a spool file: of which reader, at which place, with the texts that are no rows."""

    reader: int
    place: int
    rejects: Sequence[Reject]


@dataclass(slots=True)
class RowSpool:
    """Spool files, one for each reader, in a folder.

    Attributes:
        readers: the readers whose rows were dealt.
        aliases: for each of Avro the earlier names of its fields.
        batches: by the numbers of slices.
        shares: of the tables.
    """

    folder: Path
    readers: Sequence[ColumnReader]
    aliases: Sequence[Sequence[Any]] = ()
    batches: list[SpooledBatch] = field(default_factory=list)
    shares: dict[str, Share] = field(default_factory=dict)

    def readers_of(self, slices: Sequence[SpoolSlice]) -> list[DealtRows]:
        """Return readers of the slices of one table."""
        by_reader: dict[int, list[SpoolSlice]] = {}
        for part in slices:
            by_reader.setdefault(self.batches[part.number].reader, []).append(part)
        return [self._reader(number, parts) for number, parts in by_reader.items()]

    def _reader(self, number: int, parts: Sequence[SpoolSlice]) -> DealtRows:
        reader, path = self.readers[number], self._path(number)
        batches = [self.batches[part.number] for part in parts]
        with pa.memory_map(path) as file:
            spooled = pa.ipc.open_file(file)
            columns = [spooled.get_batch(batch.place).columns[:-1] for batch in batches]
            filled = filled_fields(reader.struct, columns)
        # Rows without a single value are records all the same, and a batch needs a column to have rows.
        fields = filled or whole_fields(reader.struct)
        struct = with_fields(reader.struct, fields)
        names = {f.name for f in struct.fields}
        aliases = self.aliases[number] if self.aliases else ()
        earlier = tuple(of_field for of_field in aliases if of_field.name in names)
        return DealtRows(struct, reader.label, path, fields, tuple(parts), tuple(batches), earlier)

    def deal(self, values: RowValues, tables: Tables) -> None:
        """Deal the rows of all readers, whose values name ``tables``."""
        for number, reader in enumerate(self.readers):
            with ExitStack() as stack:
                writer: Any = None
                for place, (table, source, rejects, batch) in enumerate(self._dealt(reader, values, tables)):
                    if writer is None:
                        writer = stack.enter_context(pa.ipc.new_file(self._path(number), batch.schema))
                    writer.write_batch(batch)
                    self.shares[table].slices.append(SpoolSlice(len(self.batches), source, batch.nbytes))
                    self.batches.append(SpooledBatch(number, place, rejects))

    def _dealt(
        self, reader: ColumnReader, values: RowValues, tables: Tables
    ) -> Iterator[tuple[str, str, Sequence[Reject], pa.RecordBatch]]:
        """Yield the rows of a reader by table, with their source and the texts of it that are no rows."""
        for part in range(len(reader.sizes)):
            for rows in reader.rows(part):
                batch = _with_lines(rows)
                for table, places, rejects in self._shares(values, reader.struct, rows, tables):
                    yield table, rows.source, rejects, batch.take(pa.array(places, pa.int64()))

    def _shares(
        self, values: RowValues, struct: Struct, rows: Rows, tables: Tables
    ) -> Iterator[tuple[str, Sequence[int], Sequence[Reject]]]:
        """Yield the tables of some rows, with the places of their rows, and the texts that are no rows."""
        of_rows, of_none = values.of(struct, rows)
        in_order = dict.fromkeys(of_rows)
        if rows.rejects:
            in_order[of_none] = None
        named = tables(list(in_order))
        places: dict[str, list[int]] = {}
        for place, of_row in enumerate(of_rows):
            places.setdefault(named[of_row], []).append(place)
        if rows.rejects:
            places.setdefault(named[of_none], [])
        for of_row in in_order:
            share_of(self.shares, named[of_row], of_row)
        for table, of_table in places.items():
            is_others = bool(rows.rejects) and table == named[of_none]
            yield table, of_table, rows.rejects if is_others else ()

    def _path(self, number: int) -> str:
        return str(self.folder / f"rows-{number}.arrow")


class RowValues:
    """Reads the values of a pattern's braces from rows. ``names``: other names of files."""

    def __init__(self, pattern: Pattern, names: Mapping[str, str]) -> None:
        self._pattern, self._names = pattern, names
        self._paths = [pattern.path(number) for number in range(len(pattern.braces))]
        self._of_table = {piece.number for piece in pattern.parts[-1] if isinstance(piece, Brace)}

    def of(self, struct: Struct, rows: Rows) -> tuple[Sequence[Values], Values]:
        """Return the values of each row, and those of a text beside them that is no row."""
        file, batch = of_file(self._names.get(rows.source, rows.source)), rows.batch
        constant = [file.get(brace) for brace in self._pattern.braces]
        columns = [
            [text] * batch.num_rows if path is None else texts_at(struct, batch, path)
            for path, text in zip(self._paths, constant, strict=True)
        ]
        of_none = tuple(None if n in self._of_table else text for n, text in enumerate(constant))
        return list(zip(*columns, strict=True)), of_none


@dataclass(frozen=True, slots=True)
class DealtRows:
    """Reads the rows of one table that came from one reader.

    Attributes:
        struct: the columns that have a value among them.
        columns: these, by their places among the reader's.
        slices: the parts; each is one of the ``batches`` of the spool file.
        aliases: of Avro the earlier names of fields.
    """

    struct: Struct
    label: str
    spool: str
    columns: tuple[tuple[int, FilledColumn], ...]
    slices: tuple[SpoolSlice, ...]
    batches: tuple[SpooledBatch, ...]
    aliases: tuple[Any, ...] = ()

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each part."""
        return [part.size for part in self.slices]

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return [part.file for part in self.slices]

    def rows(self, part: int) -> Iterator[Rows]:
        """Yield the rows of a part."""
        batch = self.batches[part]
        with pa.memory_map(self.spool) as file:
            spooled = pa.ipc.open_file(file).get_batch(batch.place)
            arrays = [cut(spooled.column(place), column) for place, column in self.columns]
            if self.aliases:
                from driftline.readers.avro.files import named  # late: with the first such file

                arrays = list(map(named, arrays, (f.type for f in self.struct.fields)))
            lines = spooled.columns[-1]
            yield Rows(
                pa.RecordBatch.from_arrays(arrays, [f.name for f in self.struct.fields]),
                self.slices[part].file,
                batch.rejects,
                lines=None if lines.null_count else lines.to_numpy(),
            )


def _with_lines(rows: Rows) -> pa.RecordBatch:
    """The rows, with the number of each behind its columns; null where it is not known."""
    count = rows.batch.num_rows
    lines = (
        pa.nulls(count, pa.int64()) if rows.lines is None else pa.array(np.asarray(rows.lines), pa.int64())
    )
    names = [*map(str, range(rows.batch.num_columns)), _LINE]
    return pa.RecordBatch.from_arrays([*rows.batch.columns, lines], names)


def texts_at(struct: Struct, batch: pa.RecordBatch, path: FieldPath) -> list[str | None]:
    """The text by which the field at a path names the table of each row; the first of its columns counts."""
    texts: list[str | None] = [None] * batch.num_rows
    for leaf in _leaves(struct, batch.columns, path):
        values = leaf.dictionary_encode()
        spelled = [_text(value) for value in values.dictionary.to_pylist()]
        texts = [
            spelled[number] if text is None and number is not None else text
            for text, number in zip(texts, values.indices.to_pylist(), strict=True)
        ]
    return texts


def _leaves(struct: Struct, arrays: Sequence[pa.Array], path: FieldPath) -> Iterator[pa.Array]:
    """The columns of values at a path."""
    for f, array in zip(struct.fields, arrays, strict=True):
        if f.name != path[0]:
            continue
        if len(path) > 1 and isinstance(f.type, Struct):
            yield from _leaves(f.type, array.flatten(), path[1:])
        elif len(path) == 1 and isinstance(f.type, Primitive) and f.type.name in _NAMING:
            yield array


def _text(value: object) -> str | None:
    if isinstance(value, float):
        return text_of(Decimal(repr(value))) if isfinite(value) else None
    return text_of(value.isoformat() if isinstance(value, date) else value)
