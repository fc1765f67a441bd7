"""Deals the texts of a batch by table into a spool file, from which each table reads its share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from driftline.core.schema.types import Path as FieldPath
from driftline.core.values import MAX_DEPTH, Malformed, Number, UnlistedDocument, parse, raw_members, reason
from driftline.ingest.pattern import Brace, Pattern, Values, is_other, of_file, text_of
from driftline.ingest.route import SPELLINGS
from driftline.observe.decoder import REFUSED
from driftline.readers.json.rows import Run

SPOOL = pa.schema([("text", pa.large_binary()), ("line", pa.int64()), ("why", pa.string())])
RUN = 32 * 2**20  # bytes that are sorted by table at a time


@dataclass(frozen=True, slots=True)
class SpoolSlice:
    """Texts of one table.

    Attributes:
        number: of the spool's batch that holds them.
        file: the file that they stand in.
        size: their bytes.
    """

    number: int
    file: str
    size: int


@dataclass(slots=True)
class Share:
    """The share of one table: its slices in the order of the source, and the values that named it."""

    slices: list[SpoolSlice] = field(default_factory=list)
    values: dict[Values, None] = field(default_factory=dict)

    @property
    def spellings(self) -> tuple[str, ...]:
        """The values that named the table, if they did, for a person."""
        return tuple(", ".join(filter(None, values)) for values in self.values)


def share_of(shares: dict[str, Share], table: str, values: Values) -> Share:
    """Return the share of a table that these values named, and keep them with it."""
    share = shares.setdefault(table, Share())
    # Of `_other` they may be as many as there are records, and do not name it.
    if not is_other(table) and len(share.values) < SPELLINGS:
        share.values[values] = None
    return share


def deal(
    runs: Iterable[Run],
    reader: RecordValues,
    tables: Callable[[Sequence[Values]], Mapping[Values, str]],
    spool: Path,
) -> dict[str, Share]:
    """Deal texts into a ``spool`` file; returns the share of each table.

    Args:
        runs: the texts, in the order of the source.
        reader: reads the values that name a table.
        tables: the tables of values, which come in the order in which they are first seen.
        spool: the file.
    """
    shares: dict[str, Share] = {}
    with pa.OSFile(str(spool), "wb") as file, pa.ipc.new_file(file, SPOOL) as writer:
        dealt = _Spool(writer, shares)
        for run in runs:
            values = reader.values(run)
            named = tables(list(dict.fromkeys(values[place] for place in values)))
            for place, of_text in values.items():
                dealt.add(named[of_text], of_text, run, place)
        dealt.flush()
    return shares


class _Spool:
    """The spool as it is written: a batch of each table's texts in a file, for each run of some bytes."""

    def __init__(self, writer: Any, shares: dict[str, Share]) -> None:
        self._writer, self._shares = writer, shares
        self._texts: dict[tuple[str, str], list[tuple[bytes, int, str | None]]] = {}
        self._size = self._written = 0

    def add(self, table: str, values: Values, run: Run, place: int) -> None:
        """Add a text of a run."""
        text, line = run.lines[place], run.line
        number = line + place if isinstance(line, int) else line[place]
        raw = text.document if isinstance(text, UnlistedDocument) else bytes(text)
        # Its class says why such a text is no record.
        why = None if type(text) is bytes else reason(text)
        self._texts.setdefault((table, run.source), []).append((raw, number, why))
        share_of(self._shares, table, values)
        self._size += len(raw)
        if self._size > RUN:
            self.flush()

    def flush(self) -> None:
        """Write the texts that are held."""
        for (table, file), texts in self._texts.items():
            columns = zip(*texts, strict=True)
            arrays = [pa.array(column, f.type) for column, f in zip(columns, SPOOL, strict=True)]
            self._writer.write_batch(pa.record_batch(arrays, schema=SPOOL))
            self._shares[table].slices.append(
                SpoolSlice(self._written, file, sum(len(text) for text, *_ in texts))
            )
            self._written += 1
        self._texts.clear()
        self._size = 0


class HeldBatches:
    """Rows on their way into a spool file: a batch of each table's rows of a file, for a run of some bytes.

    Args:
        path: of the spool file.
        stack: closes it.
        shares: those of the tables, which get their slices.
    """

    def __init__(self, path: Path, stack: ExitStack, shares: dict[str, Share]) -> None:
        self._path, self._stack, self._shares = path, stack, shares
        self._writer: Any = None
        self._held: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        self._size = self._written = 0

    def add(
        self,
        batch: pa.RecordBatch,
        values: Sequence[Values | None],
        named: Mapping[Values, str],
        file: str = "",
    ) -> None:
        """Add rows of a file to the tables of their values; rows without any are no records."""
        places: dict[str, list[int]] = {}
        for place, of_row in enumerate(values):
            if of_row is not None:
                places.setdefault(named[of_row], []).append(place)
        for of_row in dict.fromkeys(values):
            if of_row is not None:
                share_of(self._shares, named[of_row], of_row)
        for table, of_table in places.items():
            self._held.setdefault((table, file), []).append(batch.take(pa.array(of_table, pa.int64())))
        self._size += batch.nbytes
        if self._size > RUN:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are held."""
        for (table, file), batches in self._held.items():
            (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
            if self._writer is None:
                self._writer = self._stack.enter_context(pa.ipc.new_file(str(self._path), batch.schema))
            self._writer.write_batch(batch)
            self._shares[table].slices.append(SpoolSlice(self._written, file, batch.nbytes))
            self._written += 1
        self._held.clear()
        self._size = 0


class RecordValues:
    """Reads the values of a pattern's braces from texts of JSON. ``names``: other names of files."""

    def __init__(self, pattern: Pattern, names: Mapping[str, str]) -> None:
        self._pattern, self._names = pattern, names
        self._paths = [pattern.path(number) for number in range(len(pattern.braces))]
        self._of_table = {piece.number for piece in pattern.parts[-1] if isinstance(piece, Brace)}
        keys = dict.fromkeys(path[0] for path in self._paths if path is not None)
        self._fields = {key: f"field_{number}" for number, key in enumerate(keys)}
        members = [
            (name, msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=key))
            for key, name in self._fields.items()
        ]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Routed", members)).decode

    def values(self, run: Run) -> dict[int, Values]:
        """The values of the texts of a run, by place; without blank texts, which are no records."""
        file = of_file(self._names.get(run.source, run.source))
        constant = [file.get(brace) for brace in self._pattern.braces]
        return {place: self.of_text(text, constant) for place, text in enumerate(run.lines) if text.strip()}

    def of_text(self, text: bytes, constant: Sequence[str | None]) -> Values:
        """The values of a text; of what cannot be read, those that name its namespace.

        Args:
            text: of a record.
            constant: what is beside it, by braces; None for paths of the record.
        """
        nothing = tuple(None if number in self._of_table else text for number, text in enumerate(constant))
        if type(text) is not bytes:
            return nothing
        try:
            record = self._decode(text)
            if not _is_readable(text):
                return nothing
        except REFUSED:
            try:
                # It takes what the decoder does not.
                parsed = parse(text)
            except Malformed:
                return nothing
            return self._filled(constant, lambda path: text_at(parsed, path))
        return self._filled(
            constant, lambda path: _of_raw(bytes(getattr(record, self._fields[path[0]])), path[1:])
        )

    def _filled(self, constant: Sequence[str | None], read: Callable[[FieldPath], str | None]) -> Values:
        pairs = zip(self._paths, constant, strict=True)
        return tuple(text if path is None else read(path) for path, text in pairs)


def _is_readable(text: bytes) -> bool:
    """True if a text that the decoder takes is a record: it passes over what it does not look for."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
    return text.count(b"{") + text.count(b"[") <= MAX_DEPTH or reason(text) is None


def _of_raw(raw: bytes, path: FieldPath) -> str | None:
    """The text of a value as it is written, or of one inside of it."""
    if path:
        return _of_raw(bytes(raw_members(raw).get(path[0], b"")), path[1:]) if raw[:1] == b"{" else None
    if raw[:1] in b"{[n":  # or absent
        return None
    return text_of(Decimal(raw.decode()) if raw[:1] in b"-0123456789" else msgspec.json.decode(raw))


def text_at(record: object, path: FieldPath) -> str | None:
    """The text by which a value in parsed JSON names a table; None for one that names none."""
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return text_of(Decimal(record) if isinstance(record, Number) else record)
