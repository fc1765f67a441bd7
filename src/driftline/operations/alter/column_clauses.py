"""Reading what statements say of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from driftline.core.changes.defaults import default_json
from driftline.core.changes.values import (
    AddColumn,
    DropColumn,
    Literal,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    ReplaceColumns,
    RequireColumn,
    SetDefault,
    SetDoc,
    TableChange,
    WidenColumn,
)
from driftline.core.schema.type_text import TypeReader
from driftline.core.schema.types import Field, Path, dotted
from driftline.core.schema.words import TokenKind
from driftline.errors import DataError


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
