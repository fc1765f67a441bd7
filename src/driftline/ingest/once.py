"""Each file once: a table refuses files that one of its batches has taken already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftline.core.schema.place import name_text
from driftline.core.values.counted import counted
from driftline.errors import DataError
from driftline.formats.base import CatalogTable, State
from driftline.sources.base import Source
from driftline.sources.files import Stamp, fingerprint

_NAMED = 5  # files that an error lists


@dataclass(frozen=True, slots=True)
class Once:
    """The files of a batch, by their fingerprints. ``allowed``: files that the table has are taken again."""

    files: Mapping[int, str] = field(default_factory=dict)
    allowed: bool = False

    @classmethod
    def of(cls, source: Source, stamps: Mapping[str, Stamp], *, allowed: bool) -> Once:
        """The files that a person named: of an archive the archive itself, not its unpacked files."""
        named = stamps if source.originals is None else source.originals
        return cls.stamped(named, allowed=allowed)

    @classmethod
    def stamped(cls, stamps: Mapping[str, Stamp], *, allowed: bool = False) -> Once:
        """Fingerprint the files, by path with the stamp of each."""
        return cls({fingerprint(file, stamp): file for file, stamp in stamps.items()}, allowed)

    def check(self, table: CatalogTable, state: State) -> None:
        """Raise DataError if the table has one of the files."""
        if not self.allowed and (taken := self._taken(table, state)):
            unnamed = len(taken) - _NAMED
            listed = ", ".join(taken[:_NAMED]) + (f", and {unnamed} more" if unnamed > 0 else "")
            raise DataError(
                f"{table.name}: {self._count(taken)} in the table already: {listed}",
                hint=f"leave {'it' if len(taken) == 1 else 'them'} out, or pass --again (again=True in Python) "
                "to ingest again as new rows; a new table takes every file",
            )

    def notes(self, table: CatalogTable, state: State) -> tuple[str, ...]:
        """Notes on the files that the table has, for a plan."""
        taken = self._taken(table, state)
        return (
            (f"{self._count(taken)} in the table already: --again ingests them once more",) if taken else ()
        )

    def _taken(self, table: CatalogTable, state: State) -> list[str]:
        if not (self.files and state.exists):
            return []
        return sorted(name_text(self.files[file]) for file in table.taken(state, self.files.keys()))

    def _count(self, taken: list[str]) -> str:
        if len(self.files) == 1:
            return "the file is"
        return f"{len(taken)} of {counted(len(self.files), 'file')} {'is' if len(taken) == 1 else 'are'}"
