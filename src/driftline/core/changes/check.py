"""Checks changes to columns before anything is committed; a refusal gives a reason and a way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from driftline.core.changes.apply import SchemaDraft
from driftline.core.changes.defaults import default_json
from driftline.core.changes.values import (
    AddColumn,
    AddPartitionField,
    ColumnChange,
    DropColumn,
    DropIdentifiers,
    DropPartitionField,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    ReplacePartitionField,
    RequireColumn,
    RewriteColumn,
    SetDefault,
    SetDoc,
    SetIdentifiers,
    SetPartitioning,
    SetSortOrder,
    TableChange,
    Term,
    WidenColumn,
)
from driftline.core.schema.naming import Names, caseless, nearest, safe, unsafe
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import (
    UNKNOWN,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    dotted,
)
from driftline.errors import DataError, UsageError


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
    nested = ((path, f.type) for path, f in Schema(struct).walk() if isinstance(f.type, Struct))
    for parent, type_ in [((), struct), *nested]:
        names: dict[str, list[Field]] = {}
        for f in type_.fields:
            # Engines look names up without case, so two that differ in it alone cannot both be read.
            names.setdefault(caseless(f.name), []).append(f)
        yield from (((*parent, twins[-1].name), twins) for twins in names.values() if len(twins) > 1)


def _listed(schema: Schema) -> str:
    names = [f.name for f in schema.struct.fields]
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def meant(name: str, candidates: Iterable[str], within: Path = ()) -> str | None:
    """The known name that ``name`` means: its own spelling, or the only one in another letter case.

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


WAY_OUT = "add a column that is NOT NULL with a DEFAULT"


@dataclass(frozen=True, slots=True)
class NullCount:
    """The rows in which a column is null, by the statistics, and the ``unknown`` rest.

    Deleted rows that are still in files count too.

    >>> NullCount(1, 2) + NullCount(3)
    NullCount(nulls=4, unknown=2)
    """

    nulls: int = 0
    unknown: int = 0

    def __add__(self, other: NullCount) -> NullCount:
        return NullCount(self.nulls + other.nulls, self.unknown + other.unknown)


NullsOf: TypeAlias = Callable[[Path, Field], NullCount]


def require(path: Path, column: Field, nulls_of: NullsOf | None) -> None:
    """Raise DataError if the column contains nulls, or may."""
    refusal = f"{dotted(path)} is optional, and cannot become required"
    if nulls_of is None:
        raise DataError(refusal, f"existing rows may be null; {WAY_OUT}")
    # Statistics are a proof for the files that they describe, so the commit holds only for these. Structs,
    # lists and maps have none, and are never assumed to have no nulls.
    count = nulls_of(path, column)
    if count.nulls:
        raise DataError(
            f"{refusal}: it is null in {_rows(count.nulls)}", f"give these rows a value, or {WAY_OUT}"
        )
    if count.unknown:
        raise DataError(
            f"{refusal}: whether it is null in {_rows(count.unknown)} is not known, for there are no statistics of it",
            f"rewritten files have them, except inside structs, lists and maps; or {WAY_OUT}",
        )


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"


V3_TYPES = frozenset({"variant", "unknown", "timestamp_ns", "timestamptz_ns", "geometry", "geography"})
UPGRADE = (
    "upgrade the table with --upgrade, or SET TBLPROPERTIES ('format-version'='3'); this cannot be reversed"
)


@dataclass(slots=True)
class Checker:
    """Checks one change after another against the draft, which has the changes before it."""

    draft: SchemaDraft
    format_version: int
    nulls_of: NullsOf | None = None

    def check(self, change: ColumnChange) -> ColumnChange | None:
        """Complete a change; None if there is nothing to do. Raises UsageError, DataError."""
        match change:
            case AddColumn():
                return self.add(change)
            case DropColumn():
                return self.drop(change)
            case RenameColumn(path, name):
                self.member(path, "renamed")
                named(name)
                return change
            case MoveColumn(path, to):
                self.member(path, "moved")
                self.position(path[:-1], to, path[-1])
                return change
            case SetIdentifiers(paths):
                for path in paths:
                    self.identifier(path)
                return change
            case DropIdentifiers(paths):
                for path in paths:
                    if self.at(path).id not in self.draft.schema.identifiers:
                        raise UsageError(f"{dotted(path)} is not an identifier field")
                return change
            case _:
                return self.altered(change)

    def altered(self, change: ColumnChange) -> ColumnChange | None:
        """Complete a change to one column itself."""
        match change:
            case WidenColumn(path, type_):
                return self.widen(change, self.at(path).type, type_)
            case RelaxColumn(path):
                column = self.at(path)
                self.not_identifier(column, path, "be optional")
                return replace(change, type=column.type) if column.required else None
            case RequireColumn(path):
                column = self.at(path)
                if column.required:
                    return None
                require(path, column, self.nulls_of)
                return change
            case SetDefault(path, value):
                column = self.member(path, "given a default")
                default = default_json(column.type, value)
                self.default_allowed(default is not None)
                return change
            case SetDoc(path):
                self.member(path, "commented")
                return change
            case RewriteColumn(path):
                raise DataError(f"{dotted(path)}: only the widen policy with allow_rewrite rewrites columns")
            case _:
                raise AssertionError(change)

    def add(self, change: AddColumn) -> AddColumn | None:
        """Check a new column; None if it exists and may. Raises UsageError, DataError."""
        parent = self.at(change.parent) if change.parent else Field("", self.draft.schema.struct)
        name, column = change.column.name, change.column
        if not isinstance(parent.type, Struct):
            raise DataError(
                f"{dotted(change.parent)} is {type_name(parent.type)}: a field can be added to a struct only",
                _inside(change.parent, parent.type, name),
            )
        if change.if_absent and not Names.of(parent.type).free(name):
            return None
        named(name)
        self.type_allowed(change.path, column.type)
        if column.required and column.initial_default is None:
            raise DataError(
                f"{dotted(change.path)} cannot be NOT NULL: existing rows have no value",
                "add a DEFAULT, or leave out NOT NULL",
            )
        self.default_allowed(column.initial_default is not None)
        if change.to:
            self.position(change.parent, change.to, name)
        return change

    def drop(self, change: DropColumn) -> DropColumn | None:
        """Check that a column can be dropped; None if it is absent and may be. Raises UsageError, DataError.

        A struct keeps at least one field, and the columns of a row's key stay.
        """
        try:
            self.draft.find(change.path)
        except KeyError:
            if change.if_exists:
                return None
        column = self.member(change.path, "dropped")
        self.not_identifier(column, change.path, "be dropped")
        siblings = self.draft.find(change.path[:-1]).type
        if len(change.path) > 1 and isinstance(siblings, Struct) and len(siblings.fields) == 1:
            raise DataError(
                f"{dotted(change.path)} is the only field of {dotted(change.path[:-1])}, and engines cannot write empty structs",
                f"drop {dotted(self._droppable(change.path[:-1]))}",
            )
        return change

    def _droppable(self, path: Path) -> Path:
        """The field around this one that can be dropped: no element or value, nor all that a struct has."""
        while len(path) > 1:
            parent = self.draft.find(path[:-1]).type
            if isinstance(parent, Struct) and len(parent.fields) > 1:
                break
            path = path[:-1]
        return path

    def widen(self, change: WidenColumn, old: Type, new: Type) -> WidenColumn | None:
        """The change; None if the type stays. Raises DataError for a type that is not wider."""
        if old == new:
            return None
        refusal = f"{dotted(change.path)}: {type_name(old)} cannot become {type_name(new)}"
        if not (isinstance(old, Primitive) and isinstance(new, Primitive)):
            raise DataError(refusal, _another(old))
        if not promotes(old, new):
            if (old.name, new.name) in (("date", "timestamp_ntz"), ("unknown", new.name)):
                why = "format v3 allows it, but Iceberg's library refuses it: "
            else:
                why = "values would be lost: " if promotes(new, old) else ""
            raise DataError(refusal, why + _another(old))
        return change

    def identifier(self, path: Path) -> None:
        """Raise DataError if the column cannot be part of a row's key."""
        column = self.at(path)
        ancestors = [self.draft.find(path[:i]) for i in range(1, len(path))]
        why = ""
        if not isinstance(column.type, Primitive) or column.type.name in ("float", "double"):
            why = f"is {type_name(column.type)}: no struct, list, map, float or double can be one"
        elif any(not isinstance(f.type, Struct) for f in ancestors):
            why = "is inside a list or a map"
        elif not column.required:
            why = "is optional"
        elif any(not f.required for f in ancestors):
            why = "is inside an optional struct"
        if why:
            raise DataError(f"{dotted(path)} cannot be an identifier field: it {why}")

    def at(self, path: Path) -> Field:
        """The field at a path, if it may be changed. Raises UsageError with the nearest name."""
        try:
            column = self.draft.find(path)
        except KeyError:
            raise missing(self.draft.schema, path) from None
        for i in range(len(path)):
            if isinstance(self.draft.find(path[:i]).type, Map) and path[i] == "key":
                raise DataError(
                    f"{dotted(path)}: the keys of a map cannot change", "its values can: m.value, m.value.x"
                )
        return column

    def member(self, path: Path, action: str) -> Field:
        """A field of a struct: elements, keys and values have no name, place or comment of their own."""
        column = self.at(path)
        if not isinstance(self.draft.find(path[:-1]).type, Struct):
            hint = f"drop {dotted(self._droppable(path))}" if action == "dropped" else None
            raise DataError(
                f"{dotted(path)} cannot be {action}: it is what {dotted(path[:-1])} consists of", hint
            )
        return column

    def position(self, parent: Path, to: Position, name: str) -> None:
        """Raise if the field cannot stand there: DataError after itself, UsageError after a missing one."""
        if to.after is None:
            return
        if to.after == name:
            raise DataError(f"{name} cannot be placed after itself")
        struct = self.draft.find(parent).type
        if not any(f.name == to.after for f in children(struct)):
            where = f"in {dotted(parent)}" if parent else "at the top level"
            raise UsageError(
                f"there is no {to.after} {where} to be placed after",
                nearest(to.after, [f.name for f in children(struct)]) or "a column stays in its struct",
            )

    def not_identifier(self, column: Field, path: Path, action: str) -> None:
        """Raise DataError if the column is part of a row's key, or contains one that is."""
        inside = {f.id for _, f in Schema(Struct((column,))).walk()}
        if inside & self.draft.schema.identifiers:
            whose = "is" if column.id in self.draft.schema.identifiers else "holds"
            raise DataError(
                f"{dotted(path)} cannot {action}: it {whose} an identifier field",
                "DROP IDENTIFIER FIELDS first",
            )

    def default_allowed(self, has_default: bool) -> None:
        """Raise DataError if a column has a default, and the table's format has none."""
        if has_default and self.format_version < 3:
            raise DataError(f"a table of format v{self.format_version} has no defaults, v3 has them", UPGRADE)

    def type_allowed(self, path: Path, type_: Type) -> None:
        """Raise DataError if the table cannot have a column of the type."""
        match type_:
            case Primitive(name):
                if name in V3_TYPES and self.format_version < 3:
                    raise DataError(f"{dotted(path)}: {name} is of format v3", UPGRADE)
            case Struct(fields):
                if not fields:
                    raise DataError(f"{dotted(path)}: engines cannot write empty structs")
                names = Names()
                for f in fields:
                    named(f.name)
                    if not names.free(f.name):
                        raise DataError(f"{dotted(path)} has {f.name} twice, in this or another letter case")
                    names.take(f.name)
                    self.type_allowed((*path, f.name), f.type)
            case List() | Map():
                for f in children(type_):
                    if f.type == UNKNOWN:
                        raise DataError(f"{dotted(path)}: engines cannot write {type_name(type_)}")
                    self.type_allowed((*path, f.name), f.type)


# What a type may become in metadata; the narrow integers are DuckLake's, and only its tables have them.
WIDER = {
    "int": ("long",),
    "float": ("double",),
    "int8": ("int16", "int", "long"),
    "int16": ("int", "long"),
    "uint8": ("uint16", "uint32", "uint64"),
    "uint16": ("uint32", "uint64"),
    "uint32": ("uint64",),
}


def promotes(old: Primitive, new: Primitive) -> bool:
    """True if the formats widen the type in metadata, without loss.

    >>> from driftline.core.schema.types import INT, LONG, DOUBLE
    >>> promotes(INT, LONG), promotes(LONG, DOUBLE)
    (True, False)
    """
    if old.name == new.name == "decimal":
        return new.args[0] > old.args[0] and new.args[1] == old.args[1]
    return new.name in WIDER.get(old.name, ())


def _inside(path: Path, type_: Type, name: str) -> str | None:
    """A hint at the path of the struct that was meant."""
    steps = list(path)
    while isinstance(type_, List | Map):
        steps.append("element" if isinstance(type_, List) else "value")
        type_ = children(type_)[-1].type
    return f"did you mean {dotted((*steps, name))}?" if isinstance(type_, Struct) else None


def _another(old: Type) -> str:
    wider = {**WIDER, "decimal": ("more digits, with the same scale",)}
    can = wider.get(old.name, ()) if isinstance(old, Primitive) else ()
    return (
        f"{type_name(old)} can become {' or '.join(can)}"
        if can
        else "`driftline resolve` changes the type with the values; or add a column of the other type beside it"
    )
