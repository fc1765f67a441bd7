"""Changes in words and as `--json` prints them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict

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
from driftline.core.schema.definition import SortKey
from driftline.core.schema.naming import marked_key, unmarked
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Field, Path, dotted


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
