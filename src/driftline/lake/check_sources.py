"""The records to check, as files: those of a source, and messages of topics, which are read once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from driftline.core.settings.row_key import RowKey
from driftline.files.text import LineRange
from driftline.readers.kafka.values import Wire
from driftline.readers.kafka.wire import UnreadableError
from driftline.sources.files import expand
from driftline.sources.inputs import Data, paths_or_rows
from driftline.sources.json_files import JsonFiles
from driftline.sources.kafka import KafkaJson
from driftline.sources.kafka_typed import KafkaTyped
from driftline.sources.spooled import folder_in, spooled
from driftline.verify import (
    MESSAGES,
    PICKLED,
    Stored,
    Verdict,
    pickled,
    verify,
    verify_dealt,
    written_messages,
)
from driftline.verify.routing import DealtRecords, LostRecords
from driftline.verify.wire import WIRE, RegisteredText, write_schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.sources.scan import Source


class SourceFiles(NamedTuple):
    """The files to check, names of copies, and the properties by which the table read some.

    Attributes:
        dealt: the records of the files that are the table's; None: all.
        lost: gets those that it lacks.
        waiting: SQL of the quarantined records that may be of the files; empty: all.
        ranges: the lines to read of some files of JSON.
    """

    files: Sequence[str]
    kind: str
    names: Mapping[str, str]
    by_file: Mapping[str, Mapping[str, str]]
    dealt: DealtRecords | None = None
    lost: LostRecords | None = None
    waiting: str = ""
    ranges: Mapping[str, LineRange] = MappingProxyType({})

    def verdict(self, spark: SparkSession, stored: Stored, *, exactly: bool = False) -> Verdict:
        """Compare the records with a table."""
        if self.dealt is None:
            stored = replace(stored, ranges=self.ranges)
            return verify(spark, stored, self.files, self.kind, exactly=exactly, names=self.names)
        records = replace(self.dealt, sources=self.files)
        return verify_dealt(spark, stored, records, exactly=exactly, names=self.names, lost=self.lost)


# Writes the rows of a workbook as lines into a file, by the properties with which the table read it.
SheetLines: TypeAlias = Callable[[str, Path, Mapping[str, str]], None]


def files_of_batch(
    source: Source,
    data: Data,
    room: Path | None,
    warehouse: str | None,
    write_lines: SheetLines,
    row_key: RowKey | None,
    *,
    dealt: bool = False,
) -> AbstractContextManager[SourceFiles]:
    """The files of a batch's source, as `files_of`; of its ``data``, if it has none.

    ``row_key``, ``dealt``: as of `messages_of`.
    """
    if isinstance(source, KafkaJson | KafkaTyped):
        return messages_of(source, room, row_key, dealt=dealt)
    if source.format:
        ranges = source.ranges if isinstance(source, JsonFiles) else {}
        return _read(source.format, source.files, source.names, room, write_lines, {}, ranges)
    return files_of(data, None, room, warehouse, write_lines, lambda _: {})


@contextmanager
def files_of(
    data: Data,
    fmt: str | None,
    room: Path | None,
    lake: str | None,
    write_lines: SheetLines,
    remembered: Callable[[Sequence[str]], dict[str, dict[str, str]]],
) -> Iterator[SourceFiles]:
    """The files to check, outside the ``lake``.

    ``room``: a folder for copies; ``write_lines``: for workbooks; ``remembered``: returns the properties by
    which the table read files, where it remembers.
    """
    paths, rows = paths_or_rows(data)
    if rows is not None:
        with folder_in(room) as folder:
            names = pickled(rows, folder)
            yield SourceFiles(list(names), PICKLED, names, {})
        return
    kind, files = expand(paths, fmt, lake)
    with spooled(files, kind, room) as (sources, names):
        by_file = remembered([source for source in sources if source not in names])
        with _read(kind, sources, names, room, write_lines, by_file) as read:
            yield read


@contextmanager
def messages_of(
    source: KafkaJson | KafkaTyped, room: Path | None, row_key: RowKey | None, *, dealt: bool = False
) -> Iterator[SourceFiles]:
    """Messages, read from their topics once more; typed ones with their schemas.

    Args:
        source: of the messages.
        room: a folder for the files.
        row_key: how the table's rows are known, which says what is read of a message; None: its value alone.
        dealt: many tables get them, so all of a message is read.
    """
    keys, nulls = (True, True) if dealt else (False, False)
    if row_key is not None and not dealt:
        keys, nulls = row_key.reads_messages, row_key.deletes_by_null
    wire = source.wire if isinstance(source, KafkaTyped) else source.texts.wire
    has_schemas = isinstance(source, KafkaJson) and source.texts.schemas
    with folder_in(room) as folder:
        names, numbers = written_messages(
            source.frame, folder, keys=keys, nulls=nulls, has_schemas=has_schemas
        )
        if wire is None:
            yield SourceFiles(list(names), MESSAGES, names, {})
            return
        schemas = {number: _registered(wire, number) for number in sorted(numbers)}
        write_schemas(folder, wire.format, schemas, in_envelopes=_in_envelopes(source, row_key))
        yield SourceFiles(list(names), WIRE, names, {})


def _in_envelopes(source: KafkaJson | KafkaTyped, row_key: RowKey | None) -> bool:
    """True for typed values that are read as the JSON they stand for."""
    if isinstance(source, KafkaJson):
        return True
    return row_key is not None and bool(row_key.envelope) and source.reads_messages(row_key)


def _registered(wire: Wire, number: int) -> RegisteredText | None:
    """A schema of the registry; None if it has none of this number and format."""
    try:
        schema = wire.schema(number)
    except UnreadableError:
        return None
    references = {name_: reference.text for name_, reference in schema.references.items()}
    return RegisteredText(schema.text, references)


@contextmanager
def _read(
    kind: str,
    files: Sequence[str],
    names: Mapping[str, str],
    room: Path | None,
    write_lines: SheetLines,
    by_file: Mapping[str, Mapping[str, str]],
    ranges: Mapping[str, LineRange] | None = None,
) -> Iterator[SourceFiles]:
    """The files as the check reads them: workbooks as lines in copies; of some the lines in ``ranges``."""
    if kind != "excel":
        yield SourceFiles(files, kind, names, by_file, ranges=ranges or {})
        return
    with folder_in(room) as folder:
        lines = {str(folder / f"{number}.jsonl"): file for number, file in enumerate(files)}
        for target, file in lines.items():
            write_lines(file, Path(target), by_file.get(file, {}))
        yield SourceFiles(
            list(lines), "json", {target: names.get(file, file) for target, file in lines.items()}, {}
        )
