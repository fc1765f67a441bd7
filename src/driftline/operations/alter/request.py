"""A request: changes to one table, and the text that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driftline.core.changelog.record import in_short
from driftline.core.changes import Refused, RenameTable, TableChange
from driftline.core.schema.words import pointed
from driftline.errors import DriftlineError, UsageError
from driftline.operations.alter.parse import Statement, parse


@dataclass(frozen=True, slots=True)
class AlterRequest:
    """A request. ``table``: as the statements name it, "" for changes given as values; ``text``: to be
    recorded.
    """

    table: str
    changes: tuple[TableChange, ...]
    text: str
    sql: str = ""
    places: tuple[tuple[int, int], ...] = ()
    if_exists: bool = False

    @classmethod
    def of_sql(cls, sql: str) -> AlterRequest:
        """Statements, all about one table. Raises UsageError."""
        statements = parse(sql)
        tables = {s.table for s in statements}
        if len(tables) > 1:
            other = next(s for s in statements if s.table != statements[0].table)
            raise UsageError(
                f"the statements are about {' and '.join(sorted(tables))}\n"
                f"{pointed(sql, other.table_start, other.table_stop)}",
                "one commit changes one table: run alter for each",
            )
        return _of_statements(sql, statements)

    @classmethod
    def of_changes(cls, changes: Sequence[TableChange]) -> AlterRequest:
        """Request ``changes`` given as values, recorded in short. Raises UsageError if there are none."""
        if not changes:
            raise UsageError("nothing to change")
        return cls("", tuple(changes), in_short(changes))

    @property
    def new_name(self) -> str | None:
        """The new name of a RENAME TO. Raises UsageError if it is not the only change."""
        renames = [i for i, c in enumerate(self.changes) if isinstance(c, RenameTable)]
        if renames and len(self.changes) > 1:
            raise self.explained(
                Refused(
                    renames[0],
                    UsageError(
                        "RENAME TO must be the only change",
                        "the name belongs to the catalog and changes in a commit of its own",
                    ),
                )
            )
        change = self.changes[0]
        return change.name if isinstance(change, RenameTable) else None

    def explained(self, refused: Refused) -> DriftlineError:
        """The error with the statement that it is about."""
        error = refused.error
        if not self.places:
            return error
        start, stop = self.places[refused.step]
        return type(error)(f"{error.message}\n{pointed(self.sql, start, stop)}", error.hint)


def _of_statements(sql: str, statements: Sequence[Statement]) -> AlterRequest:
    clauses = [clause for s in statements for clause in s.clauses]
    return AlterRequest(
        statements[0].table,
        tuple(c.change for c in clauses),
        "; ".join(s.text for s in statements),
        sql,
        tuple((c.start, c.stop) for c in clauses),
        all(s.if_exists for s in statements),
    )
