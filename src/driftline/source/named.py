"""A source whose files have other names in reports: those that a person used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.routes import Conflict, Plan, Settings
from driftline.core.schema.place import Place
from driftline.core.schema.types import Field, Schema, Struct
from driftline.observe.observation import Observation
from driftline.source.base import Source
from driftline.source.files import Stamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.source.set_aside import Rejects
    from driftline.write import RowTasks


def named(source: Source, names: Mapping[str, str], originals: Mapping[str, Stamp] | None = None) -> Source:
    """The source, with these names for its files in all reports.

    ``originals``: the versions of files that are copied or unpacked before they are read.
    """
    if not names:
        return source
    return Named(source, names, originals or {})


@dataclass(slots=True)
class Named:
    """Another source, with ``names`` for its files' paths in reports."""

    source: Source
    names: Mapping[str, str]
    originals: Mapping[str, Stamp] = field(default_factory=dict)
    conf: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.conf = self.source.conf

    @property
    def files(self) -> Sequence[str]:
        """Its files, where they are."""
        files: Sequence[str] = getattr(self.source, "files", ())
        return files

    @property
    def columns(self) -> Sequence[Field]:
        """The columns that the source fills itself."""
        columns: Sequence[Field] = getattr(self.source, "columns", ())
        return columns

    @property
    def notes(self) -> Sequence[str]:
        """The source's notes, with the names of the files."""
        notes: Sequence[str] = getattr(self.source, "notes", ())
        for path, name in self.names.items():
            notes = [note.replace(path, name) for note in notes]
        return notes

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """The source's guess, with the names of the files."""
        seen = self.source.guess(schema, settings)
        return None if seen is None else seen.placed(self._named)

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        """The source's observation, with the names of the files."""
        return self.source.observe(schema, settings).placed(self._named)

    def refuse(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> None:
        """Have the source reject records."""
        self.source.refuse(judge, conflicts)

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> RowTasks:
        """The source's tasks."""
        return self.source.tasks(plan, struct, settings)

    def set_aside(self) -> Rejects | None:
        """The lines and rows that the source set aside, with the names of the files."""
        rejects = self.source.set_aside()
        return None if rejects is None else rejects.named(self.names)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        """The source's rejected records, with the names of the files."""
        from pyspark.sql import functions as F

        frame = self.source.rejected(everything)
        if frame is None:
            return None
        names = F.create_map(*(F.lit(text) for pair in self.names.items() for text in pair))
        return frame.withColumn(
            "source", F.coalesce(F.try_element_at(names, F.col("source")), F.col("source"))
        )

    def _named(self, place: Place) -> Place:
        return replace(place, source=self.names.get(place.source, place.source))
