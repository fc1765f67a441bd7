"""Plans: the changes to a table, and the routes that fill each column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from driftline.core.changes import Change, RewriteColumn
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, Profile
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import (
    Map,
    Path,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    Type,
    dotted,
    peel,
    wrap,
)
from driftline.core.settings.fields import FieldSettings, TextReading
from driftline.core.support import pickled_by_fields
from driftline.errors import DataError


def check_declared(table: str, route: RecordRoute, field_settings: FieldSettings, path: Path = ()) -> None:
    """Check that each declared column takes some value of a first batch of typed values.

    Raises DataError for a column that none of the field's values can enter, now or later.
    """
    for of_field in route.fields:
        child, field_path = field_settings.of(of_field.key), (*path, of_field.key)
        # The column would stay null for good, and all values would go to another one.
        if child.hint is not None and (sample := _beside(of_field, child.hint)):
            types = " and ".join(facet.spelled() for facet in of_field.shape.facets)
            raise DataError(
                f"cannot create {table}: {dotted(field_path)} is declared {type_name(child.hint)}, but the batch "
                f"has only {types}, such as {sample!r}",
                "cast the column, or leave the hint out",
            )
        for column in of_field.columns:
            if column.record is not None:
                check_declared(table, column.record, child.inside(column.facet.dim), field_path)


def _beside(field: FieldRoute, hint: Type) -> str:
    """Return a sample of a field's typed values, if all go to other columns than the declared one."""
    samples = [profile.sample for profile in field.shape.facets.values() if profile.typed and profile.sample]
    declared = [column for column in field.columns if column.facet == facet_of(hint)]
    if len(samples) < len(field.shape.facets) or any(column.takes for column in declared):
        return ""
    return next(iter(samples), "") if isinstance(peel(hint)[1], Primitive) and declared else ""


NO_COLUMN = "none"  # in place of the table's type
NOTHING = "nothing"  # in place of the type of a value that is missing
NOWHERE = "where the table has no such column"


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class ColumnRoute:
    """The route of one column: the facets of its field that fill it, and the routes inside it.

    Attributes:
        unit: the field's epoch unit, None if unset.
    """

    name: str
    type: Type
    takes: tuple[Facet, ...]
    record: RecordRoute | None = None
    value: FieldRoute | None = None
    unit: str | None = None

    @property
    def facet(self) -> Facet:
        """The column's type as a facet."""
        return facet_of(self.type)


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class FieldRoute:
    """A field of the data, its observed facets, and the columns that they go to.

    Attributes:
        elsewhere: a map next to the struct around this field holds all its values, even those that no column
            here takes.
        left_out: for a map's values, the excluded keys.
        no_words: for a map's values, words are in a struct next to it.
        to_rest: types whose values go to the rest if no column here takes them.
        texts: reads the texts of a field that a person has folded into one type.
    """

    key: str
    shape: FieldShape
    columns: tuple[ColumnRoute, ...]
    elsewhere: bool = False
    left_out: frozenset[str] = frozenset()
    no_words: bool = False
    to_rest: frozenset[Facet] = frozenset()
    texts: TextReading | None = None

    @property
    def has_rest(self) -> bool:
        """True if any value here, at any depth, goes to the rest."""
        return bool(self.to_rest) or any(
            (column.record is not None and column.record.has_rest)
            or (column.value is not None and column.value.has_rest)
            for column in self.columns
        )

    @property
    def waiting_maps(self) -> frozenset[int]:
        """The dimensions of the maps that no column takes."""
        taken = {facet for column in self.columns for facet in column.takes}
        # A map that is planned for by its values alone may have no column for its dimension.
        facets = self.to_rest | self.shape.facets.keys()
        return frozenset(facet.dim for facet in facets - taken if isinstance(facet.base, MapOf))

    def rest_paths(self, path: Path) -> Iterator[Path]:
        """Yield the paths of fields here and below whose values go to the rest.

        Args:
            path: of this field.
        """
        if self.to_rest:
            yield path
        for column in self.columns:
            inside = (*path, *("element",) * column.facet.dim)
            for child in column.record.fields if column.record is not None else ():
                yield from child.rest_paths((*inside, child.key))
            if column.value is not None:
                yield from column.value.rest_paths((*inside, "value"))

    def has_columns(self, path: Path) -> bool:
        """True if the field at a path below has a column; steps into lists are named ``element``."""
        path = tuple(step for step in path if step != "element")
        if not path or not self.columns:
            return bool(self.columns)
        fields = [
            f for c in self.columns if c.record is not None for f in c.record.fields if f.key == path[0]
        ]
        fields += [column.value for column in self.columns if column.value is not None]
        return any(field.has_columns(path[1:]) for field in fields)


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class RecordRoute:
    fields: tuple[FieldRoute, ...] = ()

    @property
    def has_rest(self) -> bool:
        """True if any value of such a record, at any depth, goes to the rest."""
        return any(field.has_rest for field in self.fields)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A type whose values went into an existing, wider column."""

    path: Path
    source: Type
    target: Type
    sample: str
    location: SourceLocation


def misfit(path: str, incoming_type: str, table_type: str) -> str:
    """Describe a value that does not fit, and the type that it does not fit.

    >>> misfit("n", "string", "long"), misfit("n", "string", NO_COLUMN)
    ('n: string into long', 'n: string where the table has no such column')
    >>> misfit("n", NOTHING, "long"), misfit("n", NOTHING, "the key")
    ('no value for required column n', 'no value for key column n')
    """
    if incoming_type == NOTHING:
        role = table_type.removeprefix("the ")
        return f"no value for {role if role != table_type else 'required'} column {path}"
    into = NOWHERE if table_type == NO_COLUMN else f"into {table_type}"
    return f"{path}: {incoming_type} {into}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A refusal of the values of ``facet`` at ``path``, a path of the data.

    Attributes:
        facet: the type of the values; None refuses records without a value there.
        inexact: set to refuse only values that are not exact in this column.
        unit: the epoch unit by which exactness is judged.
        limit: the table has no room for the values.
        nan: for ``facet`` None, NaN counts as no value.
        elsewhere: the first places in further files with such values; few of them, if there are many.
    """

    path: Path
    table_type: str
    facet: Facet | None
    why: str
    sample: str = ""
    location: SourceLocation = field(default_factory=SourceLocation)
    inexact: Facet | None = None
    unit: str | None = None
    limit: bool = False
    nan: bool = False
    elsewhere: tuple[SourceLocation, ...] = ()

    @property
    def refuses(self) -> tuple[Path, Facet | None]:
        """The path and the type of the refused values, by which records are distinguished."""
        return self.path, self.facet

    @property
    def incoming_type(self) -> str:
        """The refused type, as people write it."""
        return NOTHING if self.facet is None else self.facet.spelled()

    @property
    def in_words(self) -> str:
        """The path, the refused type and the table's type."""
        return misfit(dotted(self.path), self.incoming_type, self.table_type)

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.why}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch's effect on a table: ``changes`` lead from ``before`` to ``schema``, and ``route`` fills it.

    ``conflicts`` are the refusals. A plan that has any cannot be carried out; its ``schema`` shows which
    records can be accepted.
    """

    before: Schema
    schema: Schema
    changes: tuple[Change, ...]
    route: RecordRoute
    converted: tuple[Conversion, ...]
    untyped: tuple[Path, ...]
    hints: tuple[str, ...]
    conflicts: tuple[Conflict, ...] = ()

    @property
    def rewrites(self) -> list[RewriteColumn]:
        """The changes that need the table's rows to be rewritten."""
        return [change for change in self.changes if isinstance(change, RewriteColumn)]


def facet_of(type_: Type) -> Facet:
    """Return a column's type as a facet."""
    dim, base = peel(type_)
    match base:
        case Struct():
            return Facet(dim, RECORD)
        case Map(key=Primitive() as key):
            return Facet(dim, MapOf(key))
        case Primitive():
            return Facet(dim, base)
        case _:
            raise DataError(f"a map with keys of type {base} cannot be filled")


def stub_of(facet: Facet) -> Type:
    """Return the facet as a type, empty where it will be filled."""
    match facet.base:
        case Primitive() as inner:
            return wrap(inner, facet.dim)
        case MapOf(key):
            return wrap(Map(key, Primitive("unknown")), facet.dim)
        case _:
            return wrap(Struct(), facet.dim)


def by_name(old: Struct, new: Struct) -> RecordRoute:
    """Route each column of a struct into the column of the same name."""
    fields = []
    for f in old.fields:
        column = new.get(f.name)
        assert column is not None, f.name
        shape = FieldShape(SourceLocation(), {facet_of(f.type): Profile(SourceLocation(), typed=True)})
        fields.append(FieldRoute(f.name, shape, (_into(f.name, f.type, column.type),)))
    return RecordRoute(tuple(fields))


def _into(column: str, old: Type, new: Type) -> ColumnRoute:
    record = value = None
    match peel(old)[1], peel(new)[1]:
        case Struct() as was, Struct() as becomes:
            record = by_name(was, becomes)
        case Map() as was, Map() as becomes:
            shape = FieldShape(SourceLocation(), {facet_of(was.value): Profile(SourceLocation(), typed=True)})
            value = FieldRoute("value", shape, (_into("value", was.value, becomes.value),))
    return ColumnRoute(column, new, (facet_of(old),), record, value)


def lean(route: RecordRoute) -> RecordRoute:
    """Drop the shapes below a route's facets, so that it is small enough to be sent.

    The routes below repeat them.
    """
    return RecordRoute(tuple(_lean_field(f) for f in route.fields))


def _lean_field(field: FieldRoute) -> FieldRoute:
    nested = any(p.record is not None or p.value is not None for p in field.shape.facets.values())
    if not nested and all(c.record is None and c.value is None for c in field.columns):
        return field
    facets = {
        facet: replace(profile, record=None, value=None) for facet, profile in field.shape.facets.items()
    }
    columns = (
        replace(
            c,
            record=None if c.record is None else lean(c.record),
            value=None if c.value is None else _lean_field(c.value),
        )
        for c in field.columns
    )
    return replace(field, shape=replace(field.shape, facets=facets), columns=tuple(columns))


def same_rows(route: RecordRoute, guess: RecordRoute) -> bool:
    """True if ``guess`` makes the same rows in the same columns as ``route``. It may provide for more."""
    guessed = {f.key: f for f in guess.fields}
    return all(f.key in guessed and _same_field(f, guessed[f.key]) for f in route.fields)


def _same_field(field: FieldRoute, guess: FieldRoute) -> bool:
    facets, guessed = frozenset(field.shape.facets), {c.name: c for c in guess.columns}
    if not field.to_rest <= guess.to_rest:
        return False
    return len(field.columns) == len(guessed) and all(
        c.name in guessed and _same_column(c, guessed[c.name], facets) for c in field.columns
    )


def _same_column(column: ColumnRoute, guess: ColumnRoute, facets: frozenset[Facet]) -> bool:
    """Compare two columns.

    Args:
        facets: the field's observed types.
    """
    if (column.type, column.unit) != (guess.type, guess.unit):
        return False
    # A guess may take more types than came; only for those that came do both have to agree.
    if frozenset(column.takes) != facets.intersection(guess.takes):
        return False
    record, value = column.record, column.value
    return (record is None or (guess.record is not None and same_rows(record, guess.record))) and (
        value is None or (guess.value is not None and _same_field(value, guess.value))
    )


def lost_names(route: RecordRoute, names: Mapping[Path, int]) -> Counter[Path]:
    """Count the records with the empty key, by path; a map keeps that key, so it is not counted there.

    Args:
        names: counts as observed, before all maps were known: their paths contain the maps' keys.
    """
    lost: Counter[Path] = Counter()
    for path, count in names.items():
        keys = _without_keys(route, path)
        if keys is not None:
            lost[keys] += count
    return lost


def _without_keys(route: RecordRoute, path: Path) -> Path | None:
    """Replace the keys of maps in the path by ``value``; None if the path leads to a map."""
    steps: list[str] = []
    records: list[RecordRoute] = [route]
    maps: list[FieldRoute] = []
    for step in path:
        steps.append("value" if maps else step)
        fields = maps or [f for record in records for f in record.fields if f.key == step]
        columns = [column for f in fields for column in f.columns]
        records = [column.record for column in columns if column.record is not None]
        maps = [column.value for column in columns if column.value is not None]
    return None if maps else tuple(steps)
