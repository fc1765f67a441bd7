"""Parses ALTER TABLE statements, in the dialects of Spark, Iceberg, DuckDB and DuckLake.

One small grammar covers them all: general SQL parsers know fewer than half of these clauses, and drop their
position in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from driftline.core.changes import Refused
from driftline.core.changes.defaults import default_json
from driftline.core.changes.text import LayoutReader
from driftline.core.changes.values import (
    AddColumn,
    AddPartitionField,
    DropColumn,
    DropIdentifiers,
    DropPartitionField,
    Literal,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    ReplacePartitionField,
    RequireColumn,
    SetDefault,
    SetDoc,
    SetIdentifiers,
    SetPartitioning,
    SetProperties,
    SetSortOrder,
    TableChange,
    UnsetProperties,
    WidenColumn,
)
from driftline.core.history.entries import in_short
from driftline.core.schema.text import TokenKind, TypeReader, pointed
from driftline.core.schema.types import Field, Path, dotted
from driftline.errors import DataError, DriftlineError, UsageError

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


# The grammar is our own: it covers both dialects, and each error points at its place.
def parse(sql: str) -> list[Statement]:
    """The statements of a text, separated by semicolons. Raises UsageError that points at the place.

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


class StatementReader(TypeReader):
    """A cursor over a statement. Errors are UsageErrors that point at the word they stumble over."""

    def field(self) -> Field:
        """Read a field of a struct, with NOT NULL and COMMENT."""
        field = TypeReader.field(self)
        while True:
            if self.got("NOT", "NULL"):
                field = replace(field, required=True)
            elif self.got("COMMENT"):
                field = replace(field, doc=self.text("a comment"))
            else:
                return field

    def literal(self) -> Literal:
        """Read a literal as a Python value; of a date or a time, its text."""
        for word, value in (("NULL", None), ("TRUE", True), ("FALSE", False)):
            if self.got(word):
                return value
        for word in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NTZ", "TIME", "UUID"):
            if self.sees(word) and self.tokens[self.at + 1].kind is TokenKind.text:
                self.next()
        sign = "-" if self.got("-") else ""
        token = self.now
        if token.kind is TokenKind.number or (token.kind is TokenKind.text and not sign):
            self.next()
            number = token.kind is TokenKind.number
            return _number(sign + token.value) if number else token.value
        if token.kind is TokenKind.bytes and not sign:
            if len(token.value) % 2:
                self.stop("bytes have two digits each")
            return bytes.fromhex(self.next().value)
        if token.kind is TokenKind.quoted:
            self.stop(f"{token.value!r} in these quotes is a name", "a text stands in single quotes")
        return self.stop(
            "a default is a literal", "a number, 'text', TRUE, FALSE, NULL, DATE '2026-01-31', X'00ff'"
        )


def _number(text: str) -> int | Decimal:
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)


_CLAUSES = ("TYPE", "SET", "DROP", "FIRST", "AFTER", "COMMENT")  # of ALTER COLUMN


class ColumnClauseReader(StatementReader):
    """Reads new, dropped, renamed and altered columns; each change comes with the position where it
    begins.
    """

    def add(self) -> Iterator[tuple[TableChange, int]]:
        """Read ADD COLUMN, of one or more columns, with or without brackets."""
        if not self.got("COLUMN"):
            self.got("COLUMNS")
        if_absent = self.got("IF", "NOT", "EXISTS")
        if self.got("("):
            while True:
                yield self.new_column(if_absent)
                if not self.got(","):
                    break
            self.need(")")
            return
        while True:
            yield self.new_column(if_absent)
            if not self.got(","):
                return

    def new_column(self, if_absent: bool) -> tuple[AddColumn, int]:
        """Read a new column: its path, its type, then clauses in any order."""
        start = self.now
        *parent, name = self.path()
        type_ = self.type()
        column, to = Field(name, type_), None
        while True:
            if self.got("NOT", "NULL"):
                column = replace(column, required=True)
            elif self.got("NULL"):
                pass
            elif self.got("DEFAULT"):
                token = self.now
                try:
                    default = default_json(type_, self.literal())
                except DataError as error:
                    self.stop(error.message, error.hint, token)
                column = replace(column, initial_default=default, write_default=default)
            elif self.got("COMMENT"):
                column = replace(column, doc=self.text("a comment"))
            elif (position := self.position(tuple(parent))) is not None:
                to = position
            else:
                return AddColumn(tuple(parent), column, to=to, if_absent=if_absent), start.start

    def position(self, parent: Path) -> Position | None:
        """Read FIRST or AFTER; None if neither is there. The column stays in the struct ``parent``."""
        if self.got("FIRST"):
            return Position()
        if not self.got("AFTER"):
            return None
        token = self.now
        *at, name = self.path()
        if at and tuple(at) != parent:
            self.stop("a column stays in its struct", "AFTER takes a field of the same one", token)
        return Position(name)

    def drop(self) -> Iterator[tuple[TableChange, int]]:
        """Read DROP COLUMN, of one or more columns."""
        if not self.got("COLUMN"):
            self.got("COLUMNS")
        if_exists = self.got("IF", "EXISTS")
        several = self.got("(")
        while True:
            begin = self.now.start
            yield DropColumn(self.path(), if_exists), begin
            if not self.got(","):
                break
        if several:
            self.need(")")

    def rename(self) -> RenameColumn:
        """Read RENAME COLUMN: the column and its new name."""
        path = self.path()
        self.need("TO")
        return RenameColumn(path, self.new_name(path))

    def new_name(self, path: Path) -> str:
        """Read the new name of the column at ``path``; a path is allowed if it stays in the struct."""
        token = self.now
        *at, name = self.path("the new name")
        if at and tuple(at) != path[:-1]:
            self.stop("a rename does not move a column", f"write only its new name: {name}", token)
        return name

    def replacement(self) -> ReplaceColumns:
        """REPLACE COLUMNS, Spark's and Hive's."""
        self.need("(")
        columns: list[Field] = []
        while True:
            token = self.now
            columns.append(self.field())
            if columns[-1].name in {f.name for f in columns[:-1]}:
                self.stop(f"there is a column {columns[-1].name} already", token=token)
            if not self.got(","):
                self.need(")")
                return ReplaceColumns(tuple(columns))

    def change_column(self) -> Iterator[tuple[TableChange, int]]:
        """CHANGE: Hive's, with the new name and the type, or another word for ALTER COLUMN."""
        at, begin = self.at, self.now.start
        path = self.path()
        if any(self.sees(word) for word in _CLAUSES):
            self.at = at
            yield from self.alter_column()
            return
        name = self.new_name(path)
        yield WidenColumn(path, self.exact_type()), begin
        while (change := self.described(path)) is not None:
            yield change, begin
        if name != path[-1]:
            yield RenameColumn(path, name), begin

    def described(self, path: Path) -> TableChange | None:
        """Read the clauses after the type."""
        if self.got("NOT", "NULL"):
            return RequireColumn(path)
        if self.got("COMMENT"):
            return SetDoc(path, self.text("a comment"))
        position = self.position(path[:-1])
        return None if position is None else MoveColumn(path, position)

    def alter_column(self) -> Iterator[tuple[TableChange, int]]:
        """Read ALTER COLUMN, of one or more columns, each with at least one change."""
        while True:
            start = self.now
            path = self.path()
            has_change = False
            while (change := self.column_change(path)) is not None:
                has_change = True
                yield change, start.start
            if not has_change:
                self.stop(
                    f"what about {dotted(path)}?",
                    "TYPE, FIRST, AFTER, SET DEFAULT, DROP DEFAULT, DROP NOT NULL, COMMENT",
                )
            if not self.got(","):
                return

    def column_change(self, path: Path) -> TableChange | None:
        """Read one change to the column at ``path``; None if none is there."""
        if self.got("SET", "DATA", "TYPE") or self.got("SET", "TYPE") or self.got("TYPE"):
            type_ = self.exact_type()
            if self.sees("USING"):
                self.stop("USING would rewrite values", "only types that hold every value are possible")
            return WidenColumn(path, type_)
        if self.got("SET", "DEFAULT"):
            return SetDefault(path, self.literal())
        if self.got("DROP", "DEFAULT"):
            return SetDefault(path, None)
        if self.got("SET", "NOT", "NULL"):
            return RequireColumn(path)
        if self.got("DROP", "NOT", "NULL"):
            return RelaxColumn(path)
        if self.got("COMMENT"):
            return SetDoc(path, None if self.got("NULL") else self.text("a comment"))
        position = self.position(path[:-1])
        return None if position is None else MoveColumn(path, position)


class _Parser(ColumnClauseReader, LayoutReader):
    def statement(self) -> Statement:
        """Read one ALTER TABLE. The values of properties are left out of its text."""
        first = self.now
        if not self.got("ALTER", "TABLE"):
            self.stop(
                f"{first.value!r} is not ALTER TABLE",
                "write ALTER TABLE namespace.table …; comments are set with ALTER COLUMN … COMMENT; "
                "`driftline drop` drops a table, and `Lake.sql` of Python runs other SQL",
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


@dataclass(frozen=True, slots=True)
class AlterRequest:
    """A request to change a table.

    Attributes:
        table: as the statements name it, "" for changes given as values.
        text: to be recorded.
        siblings: the other columns of a field follow a renamed one.
    """

    table: str
    changes: tuple[TableChange, ...]
    text: str
    sql: str = ""
    places: tuple[tuple[int, int], ...] = ()
    if_exists: bool = False
    siblings: bool = False

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
