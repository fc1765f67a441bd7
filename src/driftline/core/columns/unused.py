"""Columns that are there because of drift, and need not stay once no row has a value in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from driftline.core.planning.maps import MAP, FixedKeys, words_apart
from driftline.core.planning.plan import facet_of
from driftline.core.schema.definition import Definition
from driftline.core.schema.naming import Names, marked_key, safe, struct_by_key, suffix, unmarked
from driftline.core.schema.types import Field, List, Map, Path, Schema, Struct, Type, peel
from driftline.core.settings.fields import PRESERVE, FieldSettings, spelled_path
from driftline.core.settings.table import TableSettings

# Types that keep a column's name when they become wider
_WIDENED = {"long": "int", "double": "float"}
_DECIMAL = re.compile(r"_decimal_\d+_\d+$")
_SIBLING = "a sibling of {}"
_CLOSED = "its struct is closed: a map has the keys of {}"


@dataclass(frozen=True, slots=True)
class DriftColumn:
    """A sibling, or a field of a struct whose keys a map has.

    Attributes:
        why: what it is.
        needed: the reason that it stays even without a value; empty if it may go.
    """

    path: Path
    column: Field
    why: str
    needed: str = ""


def drift_columns(
    definition: Definition, settings: TableSettings, needed: Mapping[int, str]
) -> list[DriftColumn]:
    """Find the columns that are there because of drift, at any depth, parents first.

    Args:
        definition: of the table.
        settings: of the table.
        needed: by column id, reasons for columns to stay.
    """
    walk = _Walk(definition, settings.mark, needed)
    return list(walk.inside(definition.schema.struct, (), (), settings.fields, FixedKeys.none))


def droppable(schema: Schema, columns: Iterable[DriftColumn]) -> list[DriftColumn]:
    """Select the columns without a value that may go together: of each struct at least one field stays.

    A column inside another one goes with it.
    """
    chosen: dict[Path, DriftColumn] = {}
    for column in columns:
        if not column.needed and not any(column.path[:n] in chosen for n in range(1, len(column.path))):
            chosen[column.path] = column
    for parent in {path[:-1] for path in chosen}:
        fields = _fields_at(schema, parent)
        if all(path in chosen for path in fields):
            del chosen[fields[0]]
    return list(chosen.values())


def _fields_at(schema: Schema, parent: Path) -> list[Path]:
    """The paths of the fields of the struct at a path, those that came first before the others."""
    owner = schema.find(parent) if parent else None
    struct = schema.struct if owner is None else owner.type
    assert isinstance(struct, Struct)
    return [(*parent, f.name) for f in sorted(struct.fields, key=lambda f: f.id)]


@dataclass(frozen=True, slots=True)
class _Walk:
    """Walks a table's columns along with the settings of their fields."""

    definition: Definition
    mark: str
    needed: Mapping[int, str]

    def inside(
        self, type_: Type, path: Path, keys: Path, settings: FieldSettings, fixed: FixedKeys
    ) -> Iterator[DriftColumn]:
        """Yield the columns in the structs inside a type; ``fixed``: the keys that these are closed to."""
        match type_:
            case Struct():
                for key, columns in struct_by_key(type_, self.mark).items():
                    yield from self._of_field(columns, path, (*keys, key), settings.of(key), fixed)
            case List(element):
                yield from self.inside(element, (*path, "element"), keys, settings.inside(1), fixed)
            case Map(_, value):
                value_settings = settings.of("value")
                yield from self.inside(value, (*path, "value"), (*keys, "value"), value_settings, fixed)

    def _of_field(
        self, columns: Sequence[Field], parent: Path, keys: Path, settings: FieldSettings, fixed: FixedKeys
    ) -> Iterator[DriftColumn]:
        closed = fixed.holds(keys[-1])
        candidates = columns if closed else self._siblings(columns, keys[-1])
        why = _CLOSED if closed else _SIBLING
        closing = _closing_maps(columns)
        below = _closed_to(columns, settings, self.mark) if closing else FixedKeys.none
        for column in columns:
            path = (*parent, column.name)
            # Once a map, always a map: without it, the struct would be open again.
            if column in candidates and column not in closing:
                named = why.format(spelled_path(keys[:-1] if closed else keys))
                yield DriftColumn(path, column, named, self._needed(column, settings))
            inside = FixedKeys.all if closed else FixedKeys.none if column in closing else below
            yield from self.inside(column.type, path, keys, settings, inside)

    def _siblings(self, columns: Sequence[Field], key: str) -> Sequence[Field]:
        """The further columns of a field, of which one stays in any case."""
        evolved = [column for column in columns if self._is_evolved(column, key)]
        return evolved if len(evolved) < len(columns) else evolved[1:]

    def _is_evolved(self, column: Field, key: str) -> bool:
        """True if a batch named the column by its type: a person may have renamed one that is marked."""
        if marked_key(column.doc, self.mark) != key:
            return False
        return any(_is_named(column.name, safe(key), ending) for ending in _endings(column.type))

    def _needed(self, column: Field, settings: FieldSettings) -> str:
        """The reason that a column stays; empty if there is none."""
        use = self.definition.use_of(column)
        is_declared = settings.declares_fields or (
            settings.hint is not None and facet_of(settings.hint) == facet_of(column.type)
        )
        ids = [f.id for _, f in Schema(Struct((column,))).walk()]
        reasons = {
            "the table knows its rows by it": settings.needed,
            "a hint declares it": is_declared,
            use.why if use else "": use is not None,
            "it is required": column.required,
            "it has a default": (column.initial_default, column.write_default) != (None, None),
            "it has a comment": unmarked(column.doc, self.mark) is not None,
            f"the policy {settings.policy} would not make it again": settings.policy != PRESERVE,
            **{self.needed[id_]: True for id_ in ids if id_ in self.needed},
        }
        return next((reason for reason, holds in reasons.items() if holds), "")


def _closing_maps(columns: Sequence[Field]) -> list[Field]:
    """The maps beside a field's structs, which are closed to their keys."""
    maps = [column for column in columns if facet_of(column.type).base == MAP]
    return maps if any(isinstance(peel(column.type)[1], Struct) for column in columns) else []


def _closed_to(columns: Sequence[Field], settings: FieldSettings, mark: str) -> FixedKeys:
    """The keys to which a field's structs are closed beside a map."""
    types = [column.type for column in columns]
    return FixedKeys.data if words_apart(types, settings, mark) else FixedKeys.all


def _endings(type_: Type) -> Iterator[str]:
    """The suffixes that a column of this type may have got, when it was narrower, too."""
    ending = suffix(type_)
    yield ending
    name = getattr(peel(type_)[1], "name", "")
    if name in _WIDENED:
        yield ending.removesuffix(name) + _WIDENED[name]
    if name == "decimal":
        yield _DECIMAL.sub("_decimal", ending)


def _is_named(name: str, key: str, ending: str) -> bool:
    """True if a name is that of a key with a suffix, and a number where it was taken."""
    digits = r"(_\d+){2,3}" if ending.endswith("_decimal") else r"(_\d+)?"
    return re.fullmatch(re.escape(Names().take(key, ending)) + digits, name) is not None
