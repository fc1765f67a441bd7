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
from driftline.core.schema.words import Kind
from driftline.operations.alter.column_clauses import ColumnReader

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
    """One ALTER TABLE. ``text`` is as it was written, but for the
    values of properties, which may be secrets.
    """

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


class _Parser(ColumnReader, LayoutReader):
    def statement(self) -> Statement:
        first = self.now
        if not self.got("ALTER", "TABLE"):
            self.stop(
                f"{first.value!r} is not ALTER TABLE",
                "other SQL runs with `driftline query`; comments are set with ALTER COLUMN … COMMENT",
            )
        if_exists = self.got("IF", "EXISTS")
        start = self.now.start
        table = dotted(self.path("a table"))
        stop = self.last.stop
        clauses = []
        for made in self.action():
            change, begin = made
            clauses.append(Clause(change, begin, self.last.stop))
        text = self.sql[first.start : self.last.stop]
        if isinstance(clauses[-1].change, SetProperties):
            keys = ", ".join(f"'{key}'" for key in clauses[-1].change.properties)
            text = f"{self.sql[first.start : stop]} SET TBLPROPERTIES ({keys})"
        return Statement(table, tuple(clauses), text, start, stop, if_exists)

    def action(self) -> Iterator[tuple[TableChange, int]]:
        """The changes of one statement, each with where it begins."""
        begin = self.now.start
        if self.got("ADD", "PARTITION", "FIELD"):
            term = self.term()
            yield AddPartitionField(term, self.named_as()), begin
        elif self.got("DROP", "PARTITION", "FIELD"):
            yield DropPartitionField(self.partition_field()), begin
        elif self.got("REPLACE", "PARTITION", "FIELD"):
            old = self.partition_field()
            self.need("WITH")
            term = self.term()
            yield ReplacePartitionField(old, term, self.named_as()), begin
        elif self.got("SET", "IDENTIFIER", "FIELDS"):
            yield SetIdentifiers(self.listed(self.path)), begin
        elif self.got("DROP", "IDENTIFIER", "FIELDS"):
            yield DropIdentifiers(self.listed(self.path)), begin
        elif self.got("SET", "TBLPROPERTIES"):
            self.need("(")
            yield SetProperties(dict(self.enclosed(self.property))), begin
        elif self.got("UNSET", "TBLPROPERTIES"):
            if_exists = self.got("IF", "EXISTS")
            self.need("(")
            yield UnsetProperties(self.enclosed(self.key), if_exists), begin
        elif self.got("SET", "PARTITIONED", "BY"):
            self.need("(")
            yield SetPartitioning(self.enclosed(self.term)), begin
        elif self.got("RESET", "PARTITIONED", "BY"):
            yield SetPartitioning(), begin
        elif self.got("SET", "SORTED", "BY"):
            self.need("(")
            yield SetSortOrder(self.enclosed(self.sort_expression)), begin
        elif self.got("RESET", "SORTED", "BY"):
            yield SetSortOrder(), begin
        elif self.got("WRITE"):
            yield from ((change, begin) for change in self.write())
        elif self.got("RENAME", "TO"):
            yield RenameTable(dotted(self.path("a table"))), begin
        elif self.got("RENAME"):
            self.got("COLUMN")
            yield self.rename(), begin
        elif self.got("ADD"):
            yield from self.add()
        elif self.got("DROP"):
            yield from self.drop()
        elif self.got("REPLACE", "COLUMNS"):
            yield self.replacement(), begin
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

    # Properties
    # -----------------------------------------------------------------------------------------------

    def property(self) -> tuple[str, str]:
        key = self.key()
        self.got("=")
        for word in ("TRUE", "FALSE"):
            if self.got(word):
                return key, word.lower()
        if self.now.kind not in (Kind.text, Kind.number, Kind.quoted):
            self.stop(f"a value for {key} is missing {self.here()}")
        return key, self.next().value

    def key(self) -> str:
        if self.now.kind is Kind.text:
            return self.next().value
        out = self.name("a property")
        while self.sees(".") or self.sees("-"):
            out += self.next().value + self.name("a property")
        return out
