"""Gives values their tables, as they are seen: those that are there, and new ones while there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.schema.naming import QUARANTINE
from driftline.formats.lakes import Catalog
from driftline.ingest.assignment import Assignment
from driftline.ingest.pattern import Pattern, Values
from driftline.ingest.route import named_values

_REMEMBERED = 100_000  # values whose tables are known, between two groups of records


@dataclass(slots=True)
class Router:
    """Gives values their tables, in the order in which they are seen.

    Attributes:
        names: of the tables in the pattern's namespaces.
        settled: the assignment is that of an earlier attempt, and stays.
        counted: it is known how many of them the pattern made; until then each may be one of them.
    """

    catalog: Catalog
    assignment: Assignment
    max_tables: int
    names: frozenset[str] = frozenset()
    settled: bool = False
    counted: bool = False
    _loaded: dict[str, Sequence[Values] | None] = field(default_factory=dict)
    _named: dict[Values, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, catalog: Catalog, pattern: Pattern, max_tables: int, assigned: Assignment | None = None
    ) -> Router:
        """A router with no table yet, or with those that an earlier attempt has ``assigned``."""
        if assigned is not None:
            # Tables that were made or dropped since would give values others, which double or lose records.
            return cls(catalog, assigned, max_tables, settled=True)
        names = frozenset(tables_of(catalog, pattern))
        room = max(0, max_tables - len(names))
        assignment = Assignment(pattern, room=room, ascii_only=catalog.ascii_names)
        return cls(catalog, assignment, max_tables, names)

    def tables(self, values: Sequence[Values]) -> Mapping[Values, str]:
        """The table of each of the values."""
        if len(self._named) > _REMEMBERED:
            self._named.clear()
        new = [of_record for of_record in values if of_record not in self._named]
        if new and not self.settled:
            assigned = self.assignment.with_new(new, self._named_by)
            if not assigned.room and not self.counted:
                count = sum(bool(self._named_by(name)) for name in self.names)
                self.counted = True
                spent = sum(name not in self.names for name in set(self.assignment.tables.values()))
                room = max(0, self.max_tables - count - spent)
                assigned = replace(self.assignment, room=room).with_new(new, self._named_by)
            self.assignment = assigned
        self._named |= {of_record: self.assignment.table(of_record) for of_record in new}
        return self._named

    def _named_by(self, name: str) -> Sequence[Values] | None:
        """The values that named a table that is there; none if the pattern did not make it."""
        if name not in self.names:
            return None
        if name not in self._loaded:
            properties = self.catalog.table(name).load().properties
            self._loaded[name] = named_values(self.assignment.pattern, properties)
        return self._loaded[name]


def tables_of(catalog: Catalog, pattern: Pattern) -> list[str]:
    """The names of the tables that are in the pattern's namespaces."""
    return [name for name in catalog.tables() if pattern.in_namespace(name) and not name.endswith(QUARANTINE)]


def quarantined_alone(catalog: Catalog, pattern: Pattern) -> list[str]:
    """The names in the pattern's namespaces that have a quarantine, and no table yet."""
    names = {name for name in catalog.tables() if pattern.in_namespace(name)}
    tables = (name.removesuffix(QUARANTINE) for name in names if name.endswith(QUARANTINE))
    return sorted(name for name in tables if name not in names)
