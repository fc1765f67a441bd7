"""`history`: the changes of a table, and their authors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypedDict

from driftline.core.changes import ColumnChange, TableChangeJson, details, diff
from driftline.core.history.entries import Entry, EntryJson, Versions, entries
from driftline.core.schema.types import Schema
from driftline.core.support import as_json
from driftline.errors import UsageError
from driftline.runtime.shown import Shown


class HistoryJson(TypedDict):
    """The changes of a table, oldest first."""

    table: str
    whole: bool
    changes: list[EntryJson]


_Ends = TypedDict("_Ends", {"from": int, "to": int})


class DifferenceJson(_Ends):
    """The changes from one schema version to another."""

    table: str
    changes: list[TableChangeJson]


@dataclass(frozen=True, slots=True, repr=False)
class History(Shown):
    """A table's history. ``entries``: oldest first; ``whole``: nothing of it is gone."""

    table: str
    entries: tuple[Entry, ...]
    schemas: dict[int, Schema]
    whole: bool

    def to_dict(self) -> HistoryJson:
        """The form that `--json` prints."""
        return as_json(HistoryJson, self, changes=self.entries)

    def schema(self, version: int) -> Schema:
        """The schema of a version. Raises UsageError if there is none."""
        if version not in self.schemas:
            versions = ", ".join(map(str, sorted(self.schemas)))
            raise UsageError(
                f"{self.table} has no schema {version}, or it was cleaned up",
                f"available schema versions: {versions}",
            )
        return self.schemas[version]

    def diff(self, one: int, other: int) -> Difference:
        """The changes from one schema version to another."""
        return Difference(self.table, one, other, diff(self.schema(one), self.schema(other)))


@dataclass(frozen=True, slots=True, repr=False)
class Difference(Shown):
    table: str
    one: int
    other: int
    changes: tuple[ColumnChange, ...]

    def to_dict(self) -> DifferenceJson:
        """The form that `--json` prints."""
        return {
            "table": self.table,
            "from": self.one,
            "to": self.other,
            "changes": [details(change) for change in self.changes],
        }


class Versioned(Protocol):
    """A table whose versions can be read."""

    @property
    def name(self) -> str:
        """The table's name, ``namespace.table``."""
        ...

    def versions(self) -> Versions:
        """The known past of the table. Raises UsageError if there is no table."""
        ...


def history(table: Versioned) -> History:
    """A table's history, as far as its metadata reach. Raises UsageError if there is no table."""
    return of(table.name, table.versions())


def of(name: str, versions: Versions) -> History:
    """The history that a table's ``versions`` show."""
    changes = entries(versions.versions, versions.schemas, complete=versions.whole)
    return History(name, tuple(changes), versions.schemas, versions.whole)
