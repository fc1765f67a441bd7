"""Changes as text: in words, as `--json` prints them, and layouts parsed from SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NotRequired, TypeAlias, TypedDict

from driftline.core.changes.defaults import shown
from driftline.core.changes.values import (
    AddColumn,
    AddPartitionField,
    Change,
    ColumnChange,
    DropColumn,
    DropIdentifiers,
    DropPartitionField,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    ReplacePartitionField,
    RequireColumn,
    RewriteColumn,
    SetDefault,
    SetDistribution,
    SetDoc,
    SetIdentifiers,
    SetPartitioning,
    SetProperties,
    SetSortOrder,
    SortTerm,
    TableChange,
    Term,
    UnsetProperties,
    WidenColumn,
)
from driftline.core.schema.definition import (
    COUNTED,
    IDENTITY,
    TAKES,
    TIMES,
    SortExpression,
    SortField,
    SortKey,
    Transform,
)
from driftline.core.schema.naming import marked_key, unmarked
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.text import TokenKind, TypeReader, quoted
from driftline.core.schema.types import Field, Path, Schema, dotted
from driftline.errors import DataError, UsageError


class ChangeJson(TypedDict):
    """A change of the schema that a batch made."""

    action: str
    path: str
    field: str
    type: str
    rule: str
    why: str
    sample: str
    seen_in: str


_Was = TypedDict("_Was", {"from": NotRequired[str | None]})


class ChangeDetails(_Was, total=False):
    """The details of a change, by its action; and the rule by which a batch made it."""

    path: str
    type: str
    default: Any
    to: str
    after: str | None
    comment: str | None
    paths: list[str]
    by: list[str]
    keys: list[str]
    text: str
    rule: str
    field: str
    seen_in: str


class TableChangeJson(ChangeDetails):
    """A change of a table's definition."""

    action: str


def to_dict(change: Change) -> ChangeJson:
    """The change as `ingest --json` prints it."""
    reason = change.reason
    return {
        "action": change.action,
        "path": dotted(change.path),
        "field": dotted(reason.field or change.path),
        "type": type_name(change.type),
        "rule": reason.rule,
        "why": reason.why,
        "sample": reason.sample,
        "seen_in": str(reason.place or ""),
    }


def in_words(change: TableChange) -> str:
    """The change in as few words as possible.

    >>> in_words(RenameColumn(("a", "b"), "c")), in_words(DropColumn(("a",)))
    ('a.b is now c', 'a dropped')
    """
    match change:
        case AddColumn(_, column):
            return f"new {dotted(change.path)} {type_name(column.type)}{_in_old_rows(column)}"
        case DropColumn(path):
            return f"{dotted(path)} dropped"
        case RenameColumn(path, name):
            return f"{dotted(path)} is now {name}"
        case MoveColumn(path, to):
            return f"{dotted(path)} stands {_at(to)}"
        case SetIdentifiers(paths):
            return f"identifier fields {_listed(paths) or 'none'}"
        case DropIdentifiers(paths):
            return f"no identifier fields any longer: {_listed(paths)}"
        case ReplaceColumns(columns):
            return f"the columns are {', '.join(f.name for f in columns)}"
        case RenameTable(name):
            return f"table renamed to {name}"
        case _:
            return _column_in_words(change)


def _in_old_rows(column: Field) -> str:
    return "" if column.initial_default is None else f", {_json(column.initial_default)} in old rows"


def _at(position: Position) -> str:
    return f"after {position.after}" if position.after else "first"


def _column_in_words(change: TableChange) -> str:
    match change:
        case WidenColumn(path, type_):
            return f"{dotted(path)} is now {type_name(type_)}"
        case RewriteColumn(path, type_):
            return f"{dotted(path)} is rewritten as {type_name(type_)}"
        case RelaxColumn(path):
            return f"{dotted(path)} is now optional"
        case RequireColumn(path):
            return f"{dotted(path)} is now required"
        case SetDefault(path, value):
            return f"{dotted(path)} {f'gets {shown(value)} by default' if value is not None else 'has no default'}"
        case SetDoc(path, doc):
            key, comment = marked_key(doc), unmarked(doc)
            filled = [f"is filled from {key}"] if key is not None else []
            comments = [f"comment {_quoted(comment)}"] if comment or not filled else []
            return f"{dotted(path)} {', '.join([*filled, *comments])}"
        case _:
            return _layout_in_words(change)


def reportable(changes: Iterable[ColumnChange]) -> list[ColumnChange]:
    """The changes worth reporting: neither the position of a new column nor the mark that a rename leaves."""
    changes = list(changes)
    new = {c.path for c in changes if isinstance(c, AddColumn)}
    renamed = {c.path for c in changes if isinstance(c, RenameColumn)}
    out: list[ColumnChange] = []
    for change in changes:
        if isinstance(change, SetDoc) and change.path in renamed:
            comment = unmarked(change.doc)
            if comment != unmarked(change.before):
                out.append(SetDoc(change.path, comment))
        elif not (isinstance(change, MoveColumn) and change.path in new):
            out.append(change)
    return out


def _layout_in_words(change: TableChange) -> str:
    match change:
        case AddPartitionField(term, name):
            return f"partitioned by {_named(term, name)} too"
        case DropPartitionField(old):
            return f"no longer partitioned by {_ref(old)}"
        case ReplacePartitionField(old, term, name):
            return f"partitioned by {_named(term, name)} in place of {_ref(old)}"
        case SetPartitioning(terms):
            return f"partitioned by {', '.join(map(_term, terms))}" if terms else "no longer partitioned"
        case SetSortOrder(terms):
            return f"sorted by {', '.join(map(sort_term, terms))}" if terms else "no longer sorted"
        case SetDistribution(mode):
            return f"rows go to writers by {mode}"
        case _:
            return _properties_in_words(change)


def _properties_in_words(change: TableChange) -> str:
    match change:
        case SetProperties(properties):
            return f"set {', '.join(properties)}"
        case UnsetProperties(keys):
            return f"unset {', '.join(keys)}"
        case _:
            raise AssertionError(change)


def details(change: TableChange) -> TableChangeJson:
    """The change as `history --json` prints it."""
    path = getattr(change, "path", None)
    location: ChangeDetails = {} if path is None else {"path": dotted(path)}
    return {"action": change.action, **location, **_details(change)}


def _details(change: TableChange) -> ChangeDetails:
    match change:
        case AddColumn(_, column):
            default: ChangeDetails = (
                {} if column.initial_default is None else {"default": column.initial_default}
            )
            return {"type": type_name(column.type), **default}
        case WidenColumn(type=type_) | RewriteColumn(type=type_):
            return {"type": type_name(type_)}
        case RenameColumn(name=name) | RenameTable(name=name):
            return {"to": name}
        case MoveColumn(_, to):
            return {"after": to.after}
        case SetDefault(_, value):
            return {"default": None if value is None else shown(value)}
        case SetDoc(_, doc):
            return {"comment": doc}
        case SetIdentifiers(paths=paths) | DropIdentifiers(paths=paths):
            return {"paths": [*map(dotted, paths)]}
        case _:
            return _layout_details(change)


def _layout_details(change: TableChange) -> ChangeDetails:
    match change:
        case SetPartitioning(terms):
            return {"by": [*map(_term, terms)]}
        case SetSortOrder(terms):
            return {"by": [*map(sort_term, terms)]}
        case SetProperties(properties):
            return {"keys": list(properties)}
        case UnsetProperties(keys):
            return {"keys": list(keys)}
        case AddPartitionField() | DropPartitionField() | ReplacePartitionField() | SetDistribution():
            return {"text": in_words(change)}
        case _:
            return {}


def sort_term(term: SortTerm) -> str:
    """A sort term as SQL has it; what is Iceberg's default is left out."""
    return f"{_ref(term.term)}{direction(term)}"


def direction(key: SortTerm | SortKey) -> str:
    """The direction after a sort key: its order, and the place of nulls unless that is usual."""
    order = " desc" if key.descending else ""
    nulls = (
        "" if key.nulls_first is not key.descending else f" nulls {'first' if key.nulls_first else 'last'}"
    )
    return order + nulls


def _named(term: Term, name: str | None) -> str:
    return f"{_term(term)} as {name}" if name else _term(term)


def _term(term: Term) -> str:
    return term.transform.of(dotted(term.path))


def _ref(old: str | Term) -> str:
    return old if isinstance(old, str) else _term(old)


def _listed(paths: tuple[Path, ...]) -> str:
    return ", ".join(map(dotted, paths))


def _quoted(text: str | None) -> str:
    return '"' + text.replace("\n", " ") + '"' if text else "removed"


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Other names that Iceberg's Spark functions have for them.
_ALIASES = {f"{name}s": name for name in TIMES} | {"date": "day", "date_hour": "hour"}


class LayoutReader(TypeReader):
    """Reads the layout of files."""

    def term(self, or_else: str = "") -> Term:
        """Read a column, or a transform of one.

        Args:
            or_else: the end of the hint if it is neither.
        """
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
            # Iceberg's: bucket(8, id), and also bucket(id, 8)
            if self.now.kind is TokenKind.number:
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
        """Read a sort term in brackets.

        What is neither a column nor a transform of one is an expression of DuckDB's.
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


# The parts of a SortExpression, out of its text and the columns that there are.
PartsOf: TypeAlias = Callable[[str, Schema], tuple[str | int, ...]]


def sort_key(
    sort_term: SortTerm, schema: Schema, source_of: Callable[[Term], int], parts_of: PartsOf | None
) -> SortKey:
    """The sort key of a term; in a format with expressions a transform is the function of that name.

    Args:
        source_of: the id of a term's column.
        parts_of: None if the format has no expressions.

    Raises DataError, UsageError for a term the table cannot be sorted by.
    """
    term = sort_term.term
    if isinstance(term, Term) and (parts_of is None or term.transform == IDENTITY):
        return SortField(source_of(term), term.transform, sort_term.descending, sort_term.nulls_first)
    if parts_of is None:
        raise DataError(
            f"an Iceberg table is sorted by columns and transforms of them, not by {term}",
            f"transforms are {', '.join(TAKES)}",
        )
    text = term if isinstance(term, str) else term.transform.of(".".join(map(quoted, term.path)))
    return SortExpression(parts_of(text, schema), sort_term.descending, sort_term.nulls_first)
