"""Each file once: a table refuses files that one of its batches has taken already, and tells of those that
look like them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from driftline.core.schema.text import counted
from driftline.core.schema.types import name_text
from driftline.core.settings.properties import readings
from driftline.errors import DataError
from driftline.formats.base import CatalogTable, State
from driftline.sources.files import Stamp, fingerprint, hashed, path_fingerprint, version_fingerprint
from driftline.sources.scan import Source

_NAMED = 5  # files that an error lists


@dataclass(frozen=True, slots=True)
class Once:
    """The files of a batch, by their fingerprints; ``paths``, ``versions``: by those of their location and of
    their version alone. ``again``: files that the table has are taken again; ``dry_run``: they are told.
    """

    files: Mapping[int, str] = field(default_factory=dict)
    paths: Mapping[int, str] = field(default_factory=dict)
    versions: Mapping[int, str] = field(default_factory=dict)
    again: bool = False
    dry_run: bool = False

    @classmethod
    def of(
        cls, source: Source, stamps: Mapping[str, Stamp], *, again: bool = False, dry_run: bool = False
    ) -> Once:
        """The files that a person named: of an archive the archive itself, not its unpacked files."""
        named = stamps if source.originals is None else source.originals
        return replace(cls.stamped(named), again=again, dry_run=dry_run)

    @classmethod
    def stamped(cls, stamps: Mapping[str, Stamp]) -> Once:
        """Fingerprint the files, by path with the stamp of each."""
        return cls(
            {fingerprint(file, stamp): file for file, stamp in stamps.items()},
            {path_fingerprint(file): file for file in stamps},
            # Empty files have no records that could come again.
            {version_fingerprint(stamp): file for file, stamp in stamps.items() if stamp.size},
        )

    def check(self, table: CatalogTable, state: State) -> None:
        """Raise DataError if the table has one of the files."""
        if self.again or self.dry_run:
            return
        if taken := {self.files[number] for number in self._taken(table, state, self.files.keys())}:
            raise DataError(
                f"{table.name}: {self._count(taken)} in the table already: {_listed(taken)}",
                hint=f"leave {'it' if len(taken) == 1 else 'them'} out, or pass --again (again=True in Python) "
                "to ingest again as new rows; a new table takes every file",
            )

    def notes(self, table: CatalogTable, state: State) -> tuple[str, ...]:
        """Notes on files that the table has, has in another version, or has by another name."""
        if self.again and not self.dry_run:
            return ()
        numbers = self._taken(table, state, [*self.files, *self.paths, *self.versions])
        taken, changed, moved = (
            {file for number, file in files.items() if number in numbers}
            for files in (self.files, self.paths, self.versions)
        )
        changed -= taken
        moved -= taken | changed
        notes = []
        if taken:
            notes.append(f"{self._count(taken)} in the table already: --again ingests them once more")
        if changed:
            notes.append(
                f"{_listed(changed)} changed since {_they(changed)} ingested: all is ingested, and what was there "
                "before comes again"
            )
        if moved:
            notes.append(
                f"{_listed(moved)}: size and time are those of a file that was ingested under another name: if "
                f"{_they(moved)} moved or copied, all records come again"
            )
        return tuple(notes)

    def _taken(self, table: CatalogTable, state: State, numbers: Collection[int]) -> Collection[int]:
        return table.taken(state, numbers) if numbers and state.exists else ()

    def _count(self, taken: AbstractSet[str]) -> str:
        if len(self.files) == 1:
            return "the file is"
        return f"{len(taken)} of {counted(len(self.files), 'file')} {'is' if len(taken) == 1 else 'are'}"


def reading_hash(read: Mapping[str, str]) -> int:
    """The number that, mixed with a file's fingerprint, says that the table has read the file so."""
    return hashed(json.dumps(read, sort_keys=True))


def read_by(table: CatalogTable, state: State, files: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """The properties by which the table has read files, by path, as far as it remembers.

    ``files``: by their fingerprints.
    """
    if not (all_readings := readings(state.properties)):
        return {}
    by_reading = {
        number ^ reading_hash(read): (file, read) for number, file in files.items() for read in all_readings
    }
    taken = set(table.taken(state, [*files, *by_reading]))
    # Of files that were taken before the table had a second reading there is no such number.
    latest = {file: all_readings[0] for number, file in files.items() if number in taken}
    return latest | {file: read for number, (file, read) in by_reading.items() if number in taken}


def _they(files: AbstractSet[str]) -> str:
    return "it was" if len(files) == 1 else "they were"


def _listed(files: AbstractSet[str]) -> str:
    unnamed = len(files) - _NAMED
    named = ", ".join(sorted(map(name_text, files))[:_NAMED])
    return named + (f", and {unnamed} more" if unnamed > 0 else "")
