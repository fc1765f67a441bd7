"""ALTER TABLE statements, in Spark's and Iceberg's words or in DuckDB's and DuckLake's, as changes.

One small grammar for both: general SQL parsers know less than half of these
clauses, and none of the others' places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from driftline.core.changes.layout_text import LayoutReader
from driftline.core.changes.values import (
    AddPartitionField,
    DropIdentifiers,
    DropPartitionField,
    RenameTable,
    ReplacePartitionField,
    SetIdentifiers,
    SetPartitioning,
    SetProperties,
    SetSortOrder,
    TableChange,
    UnsetProperties,
)
from driftline.core.schema.types import dotted
from driftline.core.schema.words import TokenKind
from driftline.operations.alter.column_clauses import ColumnClauseReader

CLAUSES = (
    "ADD, DROP, RENAME, ALTER COLUMN, CHANGE, REPLACE COLUMNS, ADD/DROP/REPLACE PARTITION FIELD, WRITE …, SET/DROP IDENTIFIER FIELDS, "
    "SET/UNSET TBLPROPERTIES"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """One change, and where in the text it stands."""

    change: TableChange
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Statement:
    """One ALTER TABLE. ``text`` is as written, without the values of properties, which may be secrets."""

    table: str
    clauses: tuple[Clause, ...]
    text: str
    table_start: int
    table_stop: int
    if_exists: bool = False


def parse(sql: str) -> list[Statement]:
    """The statements of a text, parted by semicolons. Raises UsageError that points at the place.

    >>> [clause.change for clause in parse("ALTER TABLE shop.orders RENAME a.b TO c")[0].clauses]
    [RenameColumn(path=('a', 'b'), name='c')]
    """
    reader = _Parser(sql)
    out = []
    while not reader.done:
        if reader.got(";"):
            continue
        out.append(reader.statement())
        if not reader.done:
            reader.need(";")
    if not out:
        reader.stop("there is no statement", f"write ALTER TABLE namespace.table …: {CLAUSES}")
    return out


class _Parser(ColumnClauseReader, LayoutReader):
    def statement(self) -> Statement:
        """Read one ALTER TABLE. The values of properties are left out of its text."""
        first = self.now
        if not self.got("ALTER", "TABLE"):
            self.stop(
                f"{first.value!r} is not ALTER TABLE",
                "write ALTER TABLE namespace.table …; comments are set with ALTER COLUMN … COMMENT",
            )
        if_exists = self.got("IF", "EXISTS")
        start = self.now.start
        table = dotted(self.path("a table"))
        stop = self.last.stop
        clauses = []
        for change, begin in self.action():
            clauses.append(Clause(change, begin, self.last.stop))
        text = self.sql[first.start : self.last.stop]
        if isinstance(clauses[-1].change, SetProperties):
            keys = ", ".join(f"'{key}'" for key in clauses[-1].change.properties)
            text = f"{self.sql[first.start : stop]} SET TBLPROPERTIES ({keys})"
        return Statement(table, tuple(clauses), text, start, stop, if_exists)

    def action(self) -> Iterator[tuple[TableChange, int]]:
        """Read the changes of one statement, each with the position where it begins."""
        begin = self.now.start
        change = self.layout() or self.definition()
        if change is not None:
            yield change, begin
        elif self.got("WRITE"):
            yield from ((change, begin) for change in self.write())
        elif self.got("ADD"):
            yield from self.add()
        elif self.got("DROP"):
            yield from self.drop()
        elif self.got("ALTER"):
            self.got("COLUMN")
            yield from self.alter_column()
        elif self.got("CHANGE"):
            self.got("COLUMN")
            yield from self.change_column()
        else:
            self.stop(
                f"{self.now.value!r} is no change of a table" if self.now.value else "nothing to change",
                CLAUSES,
            )

    def layout(self) -> TableChange | None:
        """A change of how files are laid out, if one stands here."""
        if self.got("ADD", "PARTITION", "FIELD"):
            return AddPartitionField(self.term(), self.named_as())
        if self.got("DROP", "PARTITION", "FIELD"):
            return DropPartitionField(self.partition_field())
        if self.got("REPLACE", "PARTITION", "FIELD"):
            old = self.partition_field()
            self.need("WITH")
            return ReplacePartitionField(old, self.term(), self.named_as())
        if self.got("SET", "PARTITIONED", "BY"):
            self.need("(")
            return SetPartitioning(self.enclosed(self.term))
        if self.got("RESET", "PARTITIONED", "BY"):
            return SetPartitioning()
        if self.got("SET", "SORTED", "BY"):
            self.need("(")
            return SetSortOrder(self.enclosed(self.sort_expression))
        if self.got("RESET", "SORTED", "BY"):
            return SetSortOrder()
        return None

    def definition(self) -> TableChange | None:
        """A change of names, identifiers, properties or all columns, if one stands here."""
        if self.got("RENAME", "TO"):
            return RenameTable(dotted(self.path("a table")))
        if self.got("RENAME"):
            self.got("COLUMN")
            return self.rename()
        if self.got("REPLACE", "COLUMNS"):
            return self.replacement()
        if self.got("SET", "IDENTIFIER", "FIELDS"):
            return SetIdentifiers(self.listed(self.path))
        if self.got("DROP", "IDENTIFIER", "FIELDS"):
            return DropIdentifiers(self.listed(self.path))
        if self.got("SET", "TBLPROPERTIES"):
            self.need("(")
            return SetProperties(dict(self.enclosed(self.property)))
        if self.got("UNSET", "TBLPROPERTIES"):
            if_exists = self.got("IF", "EXISTS")
            self.need("(")
            return UnsetProperties(self.enclosed(self.key), if_exists)
        return None

    # Properties
    # -----------------------------------------------------------------------------------------------

    def property(self) -> tuple[str, str]:
        """Read a property's key and value; the equals sign is optional."""
        key = self.key()
        self.got("=")
        for word in ("TRUE", "FALSE"):
            if self.got(word):
                return key, word.lower()
        if self.now.kind not in (TokenKind.text, TokenKind.number, TokenKind.quoted):
            self.stop(f"a value for {key} is missing {self.here()}")
        return key, self.next().value

    def key(self) -> str:
        """Read a property's key: text, or names joined by dots and hyphens."""
        if self.now.kind is TokenKind.text:
            return self.next().value
        out = self.name("a property")
        while self.sees(".") or self.sees("-"):
            out += self.next().value + self.name("a property")
        return out
