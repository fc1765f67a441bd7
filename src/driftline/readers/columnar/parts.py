"""Files of columns, read in tasks part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple, Protocol, TypeAlias

from driftline.convert import Converter
from driftline.core.planning.plan import Settings
from driftline.observe.expect import ExpectedField
from driftline.observe.observation import Observation
from driftline.readers.columnar.rows import (
    AcceptedRows,
    ColumnGroup,
    ColumnReader,
    OpenRows,
    RowsObserver,
    small_together,
)
from driftline.readers.task import TaskReader
from driftline.readers.terms import AdmissionTerms


@dataclass(frozen=True, slots=True)
class FoundReaders:
    """Readers of files. ``notes``: for a person, on how the files are read."""

    readers: Sequence[ColumnReader]
    notes: Sequence[str] = ()


class ReaderFinder(Protocol):
    """Finds the readers of files for a table of which so much is known, by its settings."""

    def __call__(
        self, expected: ExpectedField, settings: Settings, before: FoundReaders | None
    ) -> FoundReaders:
        """Find the readers; ``before``: those of an earlier state of the table."""
        ...


class ReaderPart(NamedTuple):
    """A part of one of the readers."""

    reader: int
    part: int
    size: int


Seen: TypeAlias = Mapping[int, Observation]  # what was observed, by the number of the reader


@dataclass(frozen=True, slots=True)
class PartReader(TaskReader[int, ColumnGroup, AcceptedRows, Seen]):
    """Reads parts of files of columns.

    ``parts``: all of them; ``shares``: the numbers of those of each task.
    """

    readers: Sequence[ColumnReader]
    parts: Sequence[ReaderPart]
    shares: Sequence[Sequence[int]]
    terms: AdmissionTerms
    converter: Converter | None = None

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.converter is not None

    def open(self, share: int) -> OpenParts:
        """Open the parts of one task."""
        return OpenParts(self, self.shares[share])


class OpenParts(OpenRows):
    """The parts of one task."""

    def __init__(self, reader: PartReader, share: Sequence[int]) -> None:
        super().__init__(reader.terms, reader.converter)
        self._reader, self._share = reader, share
        self._observers: dict[int, RowsObserver] = {}

    def groups(self) -> Iterator[ColumnGroup]:
        """Read the rows; small parts of one reader together."""
        reader = self._reader
        for number, parts in groupby(self._share, lambda part: reader.parts[part].reader):
            rows = chain.from_iterable(reader.readers[number].rows(reader.parts[part].part) for part in parts)
            for group in small_together(rows):
                yield ColumnGroup(self.observer(number), group)

    def observer(self, number: int) -> RowsObserver:
        """The observer for the rows of a reader."""
        if number not in self._observers:
            reader = self._reader.readers[number]
            self._observers[number] = RowsObserver(reader.struct, reader.label, self._reader.terms)
        return self._observers[number]

    def observed(self) -> Seen:
        """The observations by reader."""
        return {number: observer.result() for number, observer in self._observers.items()}
