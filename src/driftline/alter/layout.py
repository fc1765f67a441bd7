"""Reading partition terms and sort orders."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.alter.reader import Reader
from driftline.core.changes.values import SetDistribution, SetSortOrder, SortTerm, TableChange, Term
from driftline.core.layout import COUNTED, IDENTITY, TAKES, TIMES, Transform
from driftline.core.types import dotted
from driftline.core.words import Kind

# Other names that Iceberg's Spark functions have for them.
_ALIASES = {f"{name}s": name for name in TIMES} | {"date": "day", "date_hour": "hour"}


class LayoutReader(Reader):
    """A reader that knows how files are laid out."""

    def term(self, or_else: str = "") -> Term:
        """A column, or a transform of one. ``or_else``: the end of the hint where it is neither."""
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
            if self.now.kind is Kind.number:  # Iceberg's: bucket(8, id), and also bucket(id, 8)
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
        return self.name("the partition field's name") if self.got("AS") else ""

    def partition_field(self) -> str | Term:
        term = self.term()
        return dotted(term.path) if term.transform == IDENTITY else term

    def write(self) -> Iterator[TableChange]:
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
        term = self.term("; by another expression a DuckLake is sorted with DuckDB's own SET SORTED BY")
        descending = self.got("DESC")
        if not descending:
            self.got("ASC")
        first = not descending
        if self.got("NULLS"):
            first = self.got("FIRST")
            if not first:
                self.need("LAST")
        return SortTerm(term, descending, first)
