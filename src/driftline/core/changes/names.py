"""Names that a person gives columns: if they are valid, and which column each means.

Letter case is free where it is unambiguous, as in Spark and DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from driftline.core.changes.apply import SchemaDraft
from driftline.core.changes.values import (
    AddColumn,
    AddPartitionField,
    DropColumn,
    DropIdentifiers,
    DropPartitionField,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    ReplacePartitionField,
    RequireColumn,
    SetDefault,
    SetDoc,
    SetIdentifiers,
    SetPartitioning,
    SetSortOrder,
    TableChange,
    Term,
    WidenColumn,
)
from driftline.core.schema.naming import caseless, nearest, safe, unsafe
from driftline.core.schema.types import Field, Path, Schema, Struct, Type, children, dotted
from driftline.errors import UsageError


def named(name: str) -> None:
    """Raise UsageError for a name that some engine could not give a column."""
    if why := unsafe(name):
        raise UsageError(
            f"{name!r} cannot be a column's name: {why}", f"name it {safe(name)!r}" if name else None
        )


def missing(schema: Schema, path: Path) -> UsageError:
    """The error for a missing column, with the nearest existing one."""
    name = dotted(path)
    columns = [(dotted(p), p) for p, _ in schema.walk()]
    twin = next((p for text, p in columns if text == name), None)
    if twin is not None:  # one name with a dot in it
        return UsageError(f"there is no column {name}", f"write {'.'.join(f'`{s}`' for s in twin)}")
    loose = [text for text, p in columns if [s for s in p if s not in ("element", "value")] == list(path)]
    hint = f"did you mean {loose[0]}?" if loose else nearest(name, [text for text, _ in columns])
    return UsageError(f"there is no column {name}", hint or f"columns are {_listed(schema)}")


def clashes(struct: Struct) -> Iterator[tuple[Path, list[Field]]]:
    """The fields of one struct that share a name, in any letter case."""
    nested = ((path, f.type) for path, f in Schema(struct).walk())
    for parent, type_ in [((), struct), *nested]:
        names: dict[str, list[Field]] = {}
        for f in type_.fields if isinstance(type_, Struct) else ():
            names.setdefault(caseless(f.name), []).append(f)
        yield from (((*parent, twins[-1].name), twins) for twins in names.values() if len(twins) > 1)


def _listed(schema: Schema) -> str:
    names = [f.name for f in schema.struct.fields]
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def meant(name: str, candidates: Iterable[str], within: Path = ()) -> str | None:
    """The known name that ``name`` means: this spelling, else the only one that differs in letter
    case alone.

    >>> meant("ID", ["id", "at"]), meant("x", ["id"])
    ('id', None)

    Raises UsageError where several differ so. ``within``: the path of what has these names.
    """
    candidates = list(dict.fromkeys(candidates))
    if name in candidates:
        return name
    alike = [candidate for candidate in candidates if caseless(candidate) == caseless(name)]
    if len(alike) > 1:
        names = " and ".join(dotted((*within, candidate)) for candidate in alike)
        raise UsageError(f"{dotted((*within, name))} could be {names}", "write it as the table has it")
    return alike[0] if alike else None


def _spelled_path(draft: SchemaDraft, path: Path) -> Path:
    """The path with each name as the table has it; from the first missing one on, as it is."""
    spelled: Path = ()
    for i, step in enumerate(path):
        parent: Type = draft.find(spelled).type
        name = meant(step, (f.name for f in children(parent)), spelled)
        if name is None:
            return (*spelled, *path[i:])
        spelled = (*spelled, name)
    return spelled


def spelled(draft: SchemaDraft, change: TableChange) -> TableChange:
    """The change with each name as the table has it. Raises UsageError for an ambiguous one."""

    def position(parent: Path, to: Position | None) -> Position | None:
        if to is None or to.after is None:
            return to
        return Position(_spelled_path(draft, (*parent, to.after))[-1])

    match change:
        case AddColumn(parent, to=to):
            parent = _spelled_path(draft, parent)
            return replace(change, parent=parent, to=position(parent, to))
        case MoveColumn(path, to):
            path = _spelled_path(draft, path)
            return replace(change, path=path, to=position(path[:-1], to) or to)
        case (
            DropColumn()
            | RenameColumn()
            | WidenColumn()
            | RelaxColumn()
            | RequireColumn()
            | SetDefault()
            | SetDoc()
        ):
            return replace(change, path=_spelled_path(draft, change.path))
        case SetIdentifiers(paths) | DropIdentifiers(paths):
            return replace(change, paths=tuple(_spelled_path(draft, path) for path in paths))
        case _:
            return _spelled_layout(draft, change)


def _spelled_layout(draft: SchemaDraft, change: TableChange) -> TableChange:
    def term(original: Term) -> Term:
        return replace(original, path=_spelled_path(draft, original.path))

    def old(field: str | Term) -> str | Term:
        return term(field) if isinstance(field, Term) else field

    match change:
        case AddPartitionField():
            return replace(change, term=term(change.term))
        case DropPartitionField():
            return replace(change, field=old(change.field))
        case ReplacePartitionField():
            return replace(change, old=old(change.old), term=term(change.term))
        case SetPartitioning(terms):
            return replace(change, terms=tuple(map(term, terms)))
        case SetSortOrder(sorts):
            return replace(change, terms=tuple(replace(s, term=old(s.term)) for s in sorts))
        case _:
            return change
