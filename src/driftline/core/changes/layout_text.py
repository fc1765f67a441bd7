"""Reading partition terms and sort orders, as people write them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from driftline.core.changes.values import SetDistribution, SetSortOrder, SortTerm, TableChange, Term
from driftline.core.schema.definition import COUNTED, IDENTITY, TAKES, TIMES, Transform
from driftline.core.schema.text import TokenKind, TypeReader, quoted
from driftline.core.schema.types import dotted
from driftline.errors import UsageError

# Other names that Iceberg's Spark functions have for them.
_ALIASES = {f"{name}s": name for name in TIMES} | {"date": "day", "date_hour": "hour"}


class LayoutReader(TypeReader):
    """Reads the layout of files."""

    def term(self, or_else: str = "") -> Term:
        """Read a column, or a transform of one. ``or_else``: the end of the hint if it is neither."""
        token = self.now
        path = self.path()
        if not self.got("("):
            return Term(path)
        word = path[0].lower()
        name = _ALIASES.get(word, word)
        if len(path) > 1 or name not in TAKES:
            self.stop(f"there is no transform {dotted(path)}", ", ".join(TAKES) + or_else, token)
        n = None
        if name in COUNTED:
            if self.now.kind is TokenKind.number:  # Iceberg's: bucket(8, id), and also bucket(id, 8)
                n = self.number()
                self.need(",")
                column = self.path()
            else:
                column = self.path()
                self.need(",")
                n = self.number()
        else:
            column = self.path()
        self.need(")")
        return Term(column, Transform(name, n))

    def named_as(self) -> str:
        """Read ``AS`` and a name, if they are there; else ""."""
        return self.name("the partition field's name") if self.got("AS") else ""

    def partition_field(self) -> str | Term:
        """Read a partition field: a name, which may be a field's or a column's, or a term."""
        term = self.term()
        return dotted(term.path) if term.transform == IDENTITY else term

    def write(self) -> Iterator[TableChange]:
        """Read the clauses after ``WRITE`` into a sort order and, if they imply one, a distribution.

        >>> [type(change).__name__ for change in LayoutReader("ORDERED BY id").write()]
        ['SetSortOrder', 'SetDistribution']
        """
        hashed = local = False
        order: tuple[SortTerm, ...] | None = None
        while True:
            if self.got("DISTRIBUTED", "BY", "PARTITION"):
                hashed = True
            elif self.got("UNORDERED"):
                order = ()
            elif self.sees("LOCALLY") or self.sees("ORDERED"):
                local = self.got("LOCALLY")
                self.need("ORDERED", "BY")
                closing = self.got("(")
                order = self.listed(self.sort_term)
                if closing:
                    self.need(")")
            else:
                break
        if order is None and not hashed:
            self.stop("how is it written?", "[LOCALLY] ORDERED BY …, UNORDERED, DISTRIBUTED BY PARTITION")
        yield SetSortOrder(order or ())
        if hashed:
            yield SetDistribution("hash")
        elif not order:
            yield SetDistribution("none")
        elif not local:  # in order within each file, whichever way the rows get there
            yield SetDistribution("range")

    def sort_term(self) -> SortTerm:
        """Read a column or a transform of one, and its direction."""
        return self.directed(self.term("; a DuckLake is sorted by other expressions with SET SORTED BY (…)"))

    def sort_expression(self) -> SortTerm:
        """Read a sort term in brackets: anything but a column or a transform of one is an expression of
        DuckDB's.
        """
        begin = self.at
        with suppress(UsageError):
            term = self.term()
            if self.ends():
                return self.directed(term)
        self.at = begin
        return self.directed(self.expression())

    def expression(self) -> str:
        """Read the text up to its end, with names in backticks quoted as DuckDB does."""
        text, begin, depth = "", self.tokens[self.at].start, 0
        while depth or not self.ends():
            token = self.tokens[self.at]
            if token.kind is TokenKind.end:
                self.stop(") is missing at the end")
            if token.kind is TokenKind.quoted:
                text += self.sql[begin : token.start] + quoted(token.value)
                begin = token.stop
            elif token.kind in (TokenKind.symbol, TokenKind.other):
                depth += (token.value in "([{") - (token.value in ")]}")
            self.at += 1
        if begin == self.tokens[self.at].start and not text:
            self.stop(f"a column or an expression is missing {self.here()}")
        return text + self.sql[begin : max(begin, self.last.stop)]

    def ends(self) -> bool:
        """True at the end of a term: of the text, the list or the statement, or at a direction."""
        at_end = self.tokens[self.at].kind is TokenKind.end
        return at_end or any(self.sees(word) for word in (",", ")", ";", "ASC", "DESC", "NULLS"))

    def directed(self, term: Term | str) -> SortTerm:
        """Read the direction of a term."""
        descending = self.got("DESC")
        if not descending:
            self.got("ASC")
        first = not descending
        if self.got("NULLS"):
            first = self.got("FIRST")
            if not first:
                self.need("LAST")
        return SortTerm(term, descending, first)
