"""Divides the values of a drifted field by the types in which they came.

A value is in the column of its own type, and in every wider column that existed: so a column's own values are
those that no narrower column beside it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from driftline.core.columns.siblings import drifted_fields
from driftline.core.planning.plan import facet_of
from driftline.core.planning.policies.preserve import takes
from driftline.core.schema.types import Field, Map, Path, Primitive, Schema, Struct, peel


@dataclass(frozen=True, slots=True)
class Siblings:
    """A field's columns in one struct, narrow before wide. ``path``: of the struct, and the field's key;
    ``keys``: by keys of the data.
    """

    path: Path
    columns: tuple[Field, ...]
    keys: Path = ()

    @property
    def places(self) -> tuple[Path, ...]:
        """The paths of the columns."""
        return tuple((*self.path[:-1], c.name) for c in self.columns)

    def below(self, column: Field) -> list[Field]:
        """The columns whose values go into ``column``, too, or may."""
        return [
            c
            for c in self.columns
            if c is not column and (goes(c, column, self.columns) or may_go(c, column))
        ]

    @property
    def groups(self) -> list[tuple[Field, ...]]:
        """Each column alone, followed by each pair with an earlier column if each takes the other's
        values.
        """
        out: list[tuple[Field, ...]] = []
        for i, column in enumerate(self.columns):
            twins = [c for c in self.columns[:i] if c in self.below(column) and column in self.below(c)]
            out += [(column,), *((twin, column) for twin in twins)]
        return out


def drifted(schema: Schema, mark: str) -> Iterator[Siblings]:
    """The fields that have several columns, parents first."""
    for place in drifted_fields(schema, mark):
        yield Siblings(place.path, narrow_first(place.columns), place.keys)


def narrow_first(columns: Sequence[Field]) -> tuple[Field, ...]:
    """Order the columns so that each follows those whose values it takes too."""
    count = [sum(goes(column, c, columns) for column in columns if column is not c) for c in columns]
    order = sorted(range(len(columns)), key=lambda i: (count[i], i))
    return tuple(columns[i] for i in order)


def goes(column: Field, target: Field, among: Sequence[Field]) -> bool:
    """True if values of one column's type are in the other column too."""
    if any(
        isinstance(m := peel(c.type)[1], Map) and not isinstance(m.key, Primitive) for c in (column, target)
    ):
        return False
    narrow, wide = facet_of(column.type), facet_of(target.type)
    if not isinstance(peel(target.type)[1], Struct):
        return takes(wide, narrow)
    # All records are in the record column of the largest dimension; another one has those of its own only.
    largest = max(peel(c.type)[0] for c in among if isinstance(peel(c.type)[1], Struct))
    return wide.dim == largest and takes(wide, narrow)


def may_go(column: Field, target: Field) -> bool:
    """True if numbers of one column are in the other too, where they came as JSON's and are exact in both."""
    narrow, wide = facet_of(column.type), facet_of(target.type)
    bases = [base.name if isinstance(base := facet.base, Primitive) else "" for facet in (narrow, wide)]
    by_value = bases[0] in ("float", "decimal") and bases[1] in ("long", "double")
    return by_value and narrow.dim <= wide.dim and not (takes(wide, narrow) or takes(narrow, wide))


@dataclass(frozen=True, slots=True)
class Own:
    """Values that came in the type of these columns: more than one where each takes the other's values."""

    columns: tuple[Field, ...]
    values: int | None
    about: bool = False


def own_values(siblings: Siblings, values: Mapping[int, int | None]) -> list[Own]:
    """The own values of each column in files that have the columns
    ``values``, which counts all values by column id.

    >>> from driftline.core.schema.types import LONG, STRING
    >>> both = Siblings(("a",), (Field("a", LONG, 1), Field("a_string", STRING, 2)))
    >>> [(o.columns[0].name, o.values) for o in own_values(both, {1: 3, 2: 5})]
    [('a', 3), ('a_string', 2)]
    """
    out: list[Own] = []
    present = [c for c in siblings.columns if c.id in values]
    twins = {
        group[0].id: group
        for group in siblings.groups
        if len(group) == 2 and all(c in present for c in group)
    }
    paired = {c.id for group in twins.values() for c in group}
    for column in present:
        if column.id in twins:
            out += _twins(*twins[column.id], values)
        elif column.id not in paired:
            lower = [o for o in out if all(goes(c, column, siblings.columns) for c in o.columns)]
            # How many numbers are in both columns, their counts do not tell.
            shared = values[column.id] != 0 and any(values[c.id] != 0 for c in present if may_go(c, column))
            out.append(Own((column,), None) if shared else _less(column, values[column.id], lower))
    return out


def rewritten_values(siblings: Siblings, values: Mapping[int, int | None]) -> list[Own]:
    """A column's own values in rewritten files.

    Their rows may be older than a column, or folded into one since: a column's values are certainly its own
    only if no column beside it has values that go there.
    """
    present = [c for c in siblings.columns if c.id in values]
    return [
        Own((c,), None if any(values.get(b.id, 0) != 0 for b in siblings.below(c)) else values[c.id])
        for c in present
    ]


def _less(column: Field, values: int | None, lower: Sequence[Own]) -> Own:
    if values is None or any(o.values is None for o in lower):
        return Own((column,), None)
    lower_values = sum(o.values or 0 for o in lower)
    # A value that is not exact in the wider column is not in it: then there are more than what is left.
    inexact = any(o.about or _inexact(c, column) for o in lower for c in o.columns if o.values)
    return Own((column,), max(values - lower_values, 0), inexact)


def _inexact(narrow: Field, wide: Field) -> bool:
    names = [t.name if isinstance(t := peel(c.type)[1], Primitive) else "" for c in (narrow, wide)]
    return names[1] in ("long", "double") and names[0] not in ("boolean", "int", "float", names[1])


def _twins(first: Field, second: Field, values: Mapping[int, int | None]) -> list[Own]:
    """Timestamps and longs, say: a value may be in both columns, whichever it was."""
    a, b = values[first.id], values[second.id]
    if a is None or b is None:
        return [Own((first,), None), Own((second,), None)]
    both = min(a, b)
    shares = [
        Own((first,), a - both, bool(both)),
        Own((second,), b - both, bool(both)),
        Own((first, second), both, True),
    ]
    return [o for o in shares if o.values]
