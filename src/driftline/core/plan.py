"""`plan`: a schema and a shape in, the changes and the routes out. Pure; the heart of the product.

A plan is made level by level: a record's fields are settled together (they share names), and the records
inside them by the same function again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.changes import AddColumn, Change, Reason, RelaxColumn, WidenColumn, apply
from driftline.core.naming import MARK, Names, mark, marked_key, safe, suffix
from driftline.core.policies import preserve
from driftline.core.shape import NUMBER_TEXT, RECORD, Facet, FieldShape, MapOf, Place, RecordShape, Seen, merge_all
from driftline.core.types import (
    STRING,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    dotted,
    leaves,
    peel,
    wrap,
)
from driftline.errors import DataError


@dataclass(frozen=True, slots=True)
class Settings:
    """What a table's settings say to the planner and the observer.

    ``dates``: "on", "off" or "instant" (rules 2.2). ``epoch_unit``: "s", "ms", "us", "ns", or None where it was
    not set. ``mark``: prefix of an evolved column's doc. ``max_columns``: leaf columns a table may have.
    """

    dates: str = "on"
    epoch_unit: str | None = None
    mark: str = MARK
    max_columns: int = 10_000


@dataclass(frozen=True, slots=True)
class ColumnRoute:
    """How one column is filled: from which facets of its field, and inside it by which routes."""

    name: str
    type: Type
    takes: tuple[Facet, ...]
    record: RecordRoute | None = None
    value: FieldRoute | None = None

    @property
    def facet(self) -> Facet:
        return facet_of(self.type)


@dataclass(frozen=True, slots=True)
class FieldRoute:
    """A field of the data, what was seen of it, and the columns it goes to."""

    key: str
    shape: FieldShape
    columns: tuple[ColumnRoute, ...]


@dataclass(frozen=True, slots=True)
class RecordRoute:
    fields: tuple[FieldRoute, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversion:
    """A type that went into a wider column which was there before."""

    path: Path
    source: Type
    target: Type
    sample: str
    place: Place


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch does to a table: ``changes`` lead from ``before`` to ``schema``; ``route`` fills it."""

    before: Schema
    schema: Schema
    changes: tuple[Change, ...]
    route: RecordRoute
    converted: tuple[Conversion, ...]
    untyped: tuple[Path, ...]
    hints: tuple[str, ...]


def plan(schema: Schema, shape: RecordShape, settings: Settings | None = None) -> Plan:
    """What must change in ``schema`` for a batch of ``shape``, and how each field is routed.

    Raises DataError if the table would pass ``max_columns``.

    >>> from driftline.core.shape import Facet, Place, Seen
    >>> from driftline.core.types import LONG
    >>> size = FieldShape(Place(), {Facet(0, LONG): Seen(Place(), "4")})
    >>> str(plan(Schema(), RecordShape({"size": size})).schema.struct)
    'struct<size: long>'
    """
    planner = _Planner(settings or Settings())
    route = planner.record(schema.struct, shape, (), ()).route
    after = apply(schema, planner.changes)
    _bound(after, planner.changes, planner.settings.max_columns)
    return Plan(
        schema,
        after,
        tuple(planner.changes),
        route,
        tuple(planner.converted),
        tuple(sorted(planner.untyped)),
        tuple(planner.hints),
    )


def facet_of(type_: Type) -> Facet:
    """A column's type as a facet."""
    dim, inner = peel(type_)
    match inner:
        case Struct():
            return Facet(dim, RECORD)
        case Map(key=Primitive() as key):
            return Facet(dim, MapOf(key))
        case Primitive():
            return Facet(dim, inner)
        case _:
            raise DataError(f"a map with keys of type {inner} cannot be filled")


@dataclass(slots=True)
class _Slot:
    """A place that holds a value: a field, or a map's value. Its types, what was seen, the types to be made."""

    types: list[Type]
    shape: FieldShape
    new: list[tuple[Type, Reason]]
    original: Type | None
    value: _Slot | None = None


@dataclass(slots=True)
class _Draft:
    """A column to be made: its type without what is nested, its cause, and the name it got."""

    key: str
    stub: Type
    reason: Reason
    natural: bool
    column: Field = field(default_factory=lambda: Field("", STRING))


@dataclass(slots=True)
class _Planner:
    settings: Settings
    changes: list[Change] = field(default_factory=list)
    converted: list[Conversion] = field(default_factory=list)
    untyped: set[Path] = field(default_factory=set)
    hints: list[str] = field(default_factory=list)

    def record(self, struct: Struct, shape: RecordShape, at: Path, keys: Path, within: bool = False) -> _Record:
        """One record, level by level: decide each field, name the new columns, then go into each.

        ``at`` is the path in the schema, ``keys`` the path in the data; ``within`` a struct that is itself new.
        """
        here = len(self.changes)
        known: dict[str, list[Field]] = {}
        for column in struct.fields:
            marked = marked_key(column.doc, self.settings.mark)
            known.setdefault(column.name if marked is None else marked, []).append(column)
        slots, drafts = {}, []
        for key, seen in shape.fields.items():
            paths = [(*at, c.name) for c in known.get(key, [])]
            slots[key] = self.slot([c.type for c in known.get(key, [])], seen, paths, (*keys, key))
            drafts += [_Draft(key, stub, r, stub == slots[key].original) for stub, r in slots[key].new]
        _name(struct, drafts, self.settings.mark)

        fields = {column.name: column for column in struct.fields}
        routes = []
        for key, slot in slots.items():
            columns = [replace(c, type=t) for c, t in zip(known.get(key, []), slot.types, strict=True)]
            columns += [d.column for d in drafts if d.key == key]
            inside = [within or c.name not in fields for c in columns]
            filled = self.fill(slot, [(c.type, (*at, c.name), i) for c, i in zip(columns, inside, strict=True)],
                               (*keys, key))  # fmt: skip
            for column, route in zip(columns, filled, strict=True):
                fields[column.name] = replace(column, type=route.type)
            routes.append(FieldRoute(key, slot.shape, tuple(filled)))
        for column in struct.fields if not within else ():
            self.relax(fields[column.name], (*at, column.name), routes)

        drafts.sort(key=lambda d: d.reason.place or Place())
        for draft in drafts:
            fields[draft.column.name] = fields.pop(draft.column.name)
        # A column is listed before what is inside it.
        self.changes[here:here] = [AddColumn(at, fields[d.column.name], d.reason, within) for d in drafts]
        return _Record(Struct(tuple(fields.values())), RecordRoute(tuple(routes)))

    def slot(self, types: list[Type], seen: FieldShape, paths: list[Path], keys: Path) -> _Slot:
        """What one field needs: ``types`` are its columns', at ``paths``."""
        columns = [facet_of(t) for t in types]
        seen = _settled(seen, columns)
        types = [self.widen(t, p, seen, keys) for t, p in zip(types, paths, strict=True)]
        columns = [facet_of(t) for t in types]
        plain = {f: s for f, s in seen.facets.items() if not isinstance(f.base, MapOf)}
        slot = _Slot(types, seen, [], None)
        new: list[preserve.New] = []
        first: Facet | None = None
        if plain and types:
            new = preserve.later(columns, plain, self.unit)
        elif plain:
            new, first = preserve.first_sight(plain)
        slot.new = [(_stub(n.facet), self.reason(n, seen.facets, keys)) for n in new]
        slot.original = first and _stub(first)
        self.maps(slot, paths, keys)
        self.note(slot, columns, {n.cause for n in new}, keys)
        return slot

    def maps(self, slot: _Slot, paths: list[Path], keys: Path) -> None:
        """The map columns of a field: their values are a slot of their own, a new type of value is a new map."""
        facets = {f: s for f, s in slot.shape.facets.items() if isinstance(f.base, MapOf)}
        if not facets:
            return
        # Maps of one field have one type of key, or the text of it.
        base = min((f.base for f in facets), key=str)
        values = [s.value for s in facets.values() if s.value is not None]
        mine = [i for i, t in enumerate(slot.types) if facet_of(t).base == base]
        inner = [_value(slot.types[i]) for i in mine]
        seen = values[0]
        for value in values[1:]:
            seen = seen.merge(value)
        slot.value = self.slot(inner, seen, [(*_inside(paths[i], slot.types[i]), "value") for i in mine],
                               (*keys, "value"))  # fmt: skip
        for i, value_type in zip(mine, slot.value.types, strict=True):
            slot.types[i] = _with_value(slot.types[i], value_type)
        assert isinstance(base, MapOf)
        dim = max(f.dim for f in facets)
        for stub, reason in slot.value.new:
            made = wrap(Map(base.key, stub), dim)
            slot.new.append((made, replace(reason, field=keys)))
            if not slot.types and stub == slot.value.original and not (
                slot.original and facet_of(slot.original).base == RECORD
            ):
                slot.original = made

    def fill(self, slot: _Slot, columns: Sequence[tuple[Type, Path, bool]], keys: Path) -> list[ColumnRoute]:
        """The routes of a slot's columns, each given with its path and whether it is new."""
        facets = [facet_of(t) for t, _, _ in columns]
        largest = max((f.dim for f in facets if f.base == RECORD), default=0)
        values: dict[int, ColumnRoute] = {}
        if slot.value is not None:
            at = [i for i, f in enumerate(facets) if isinstance(f.base, MapOf)]
            inner = [(_value(columns[i][0]), (*_inside(columns[i][1], columns[i][0]), "value"), columns[i][2])
                     for i in at]  # fmt: skip
            values = dict(zip(at, self.fill(slot.value, inner, (*keys, "value")), strict=True))
        out = []
        for i, (type_, path, new) in enumerate(columns):
            facet = facets[i]
            takes = tuple(
                f
                for f in slot.shape.facets
                if preserve.takes(facet, f) and (f.base != RECORD or facet.dim == largest or f.dim == facet.dim)
            )
            record = value = None
            if facet.base == RECORD:
                shape = merge_all(r for f in takes if (r := slot.shape.facets[f].record) is not None)
                inner_struct = peel(type_)[1]
                assert isinstance(inner_struct, Struct)
                made = self.record(inner_struct, shape, _inside(path, type_), _inside(keys, type_), new)
                type_, record = _with_inner(type_, made.struct), made.route
            elif i in values and slot.value is not None:
                type_ = _with_value(type_, values[i].type)
                value = FieldRoute("value", slot.value.shape, (values[i],))
            out.append(ColumnRoute(path[-1], type_, takes, record, value))
        return out

    def widen(self, type_: Type, path: Path, seen: FieldShape, keys: Path) -> Type:
        """The type, widened in place where width within one family is all that is in the way."""
        column = facet_of(type_)
        wider = preserve.widened(column, seen.facets)
        if wider is None:
            return type_
        cause = next(f for f in seen.facets if f.base == wider)
        why = f"{cause} is wider than {column}, which the format widens in place"
        self.changes.append(WidenColumn(_inside(path, type_), wider, _reason("widen-in-place", why, keys, seen.facets[cause])))
        return _with_inner(type_, wider)

    def relax(self, column: Field, path: Path, routes: Iterable[FieldRoute]) -> None:
        """A required column that some record has no value for becomes optional."""
        route = next((r for r in routes for c in r.columns if c.name == column.name), None)
        mine = next((c for c in route.columns if c.name == column.name), None) if route else None
        lacking = route is None or mine is None or route.shape.missing or set(mine.takes) != set(route.shape.facets)
        if column.required and lacking:
            place = route.shape.place if route else None
            self.changes.append(
                RelaxColumn(path, column.type, Reason("relax", "some record has no value for it", path, "", place))
            )

    def note(self, slot: _Slot, columns: Sequence[Facet], missing: set[Facet], keys: Path) -> None:
        """What a person should know of a field that needs no column: conversions, untyped values, hints."""
        made = [*columns, *(facet_of(t) for t, _ in slot.new)]
        for facet, seen in slot.shape.facets.items():
            if columns and facet not in made and facet not in missing:
                target = next((c for c in columns if preserve.accepts(c, facet, seen, self.unit)), None)
                if target is not None:
                    self.converted.append(Conversion(keys, _stub(facet), _stub(target), seen.sample, seen.place))
        shape = slot.shape
        nothing = not shape.facets and not columns
        listless = shape.empty_lists > max((c.dim for c in made), default=0)
        recordless = shape.empty_record and not any(isinstance(c.base, MapOf) or c.base == RECORD for c in made)
        if nothing or listless or recordless:
            self.untyped.add(keys)
        if {Facet(0, RECORD), Facet(1, RECORD)} <= set(shape.facets):
            self.hints.append(f"{dotted(keys)} is an object or a list of objects: {keys[-1]} = \"list<record>\" makes it one")

    @property
    def unit(self) -> str:
        return self.settings.epoch_unit or "ms"

    def reason(self, new: preserve.New, facets: dict[Facet, Seen], keys: Path) -> Reason:
        return _reason(new.rule, new.why, keys, facets[new.cause])


@dataclass(frozen=True, slots=True)
class _Record:
    struct: Struct
    route: RecordRoute


def _reason(rule: str, why: str, keys: Path, seen: Seen) -> Reason:
    return Reason(rule, why, keys, seen.sample, seen.place)


def _name(struct: Struct, drafts: list[_Draft], prefix: str) -> None:
    """Gives the new columns of a struct their names: natural ones first, in code point order (seed rules 4, 5)."""
    names = Names.of(struct)
    evolved = []
    for draft in sorted(drafts, key=lambda d: d.key):
        name = safe(draft.key)
        if draft.natural and names.free(name):
            names.take(name)
            doc = None if name == draft.key else mark(draft.key, prefix)
            draft.column = Field(name, draft.stub, doc=doc)
        else:
            evolved.append((draft, name + suffix(draft.stub)))
    for draft, name in sorted(evolved, key=lambda e: (e[0].key, e[1])):
        draft.column = Field(names.take(name), draft.stub, doc=mark(draft.key, prefix))


def _settled(seen: FieldShape, columns: Sequence[Facet]) -> FieldShape:
    """The shape with what depends on the field's columns decided: objects as maps, dates, numbers as text."""
    facets = _objects_as_maps(seen, columns)
    facets = preserve.dates_settled(facets, columns)
    out = FieldShape(seen.place, {}, seen.empty_lists, seen.empty_record, seen.missing)
    for facet, kept in facets.items():
        out.add(Facet(facet.dim, STRING) if facet.base == NUMBER_TEXT else facet, kept)
    return out


def _objects_as_maps(seen: FieldShape, columns: Sequence[Facet]) -> dict[Facet, Seen]:
    """A JSON object is a map where the field has a map column with keys of text ("Maps")."""
    if Facet(0, MapOf(STRING)).base not in {c.base for c in columns}:
        return dict(seen.facets)
    out: dict[Facet, Seen] = {}
    for facet, kept in seen.facets.items():
        if facet.base == RECORD and kept.open and kept.record is not None:
            values = list(kept.record.fields.values())
            value = FieldShape(kept.place)
            for v in values:
                value = value.merge(v)
            facet, kept = Facet(facet.dim, MapOf(STRING)), replace(kept, record=None, value=value)
        out[facet] = out[facet].merge(kept) if facet in out else kept
    return out


def _stub(facet: Facet) -> Type:
    """The facet as a type, empty where it will be filled."""
    return wrap(Struct() if facet.base == RECORD else _primitive(facet), facet.dim)


def _primitive(facet: Facet) -> Primitive:
    assert isinstance(facet.base, Primitive), facet
    return facet.base


def _inside(path: Path, type_: Type) -> Path:
    return path + ("element",) * peel(type_)[0]


def _with_inner(type_: Type, inner: Type) -> Type:
    return replace(type_, element=_with_inner(type_.element, inner)) if isinstance(type_, List) else inner


def _value(type_: Type) -> Type:
    inner = peel(type_)[1]
    assert isinstance(inner, Map)
    return inner.value


def _with_value(type_: Type, value: Type) -> Type:
    inner = peel(type_)[1]
    assert isinstance(inner, Map)
    return _with_inner(type_, replace(inner, value=value))


def _bound(after: Schema, changes: Iterable[Change], limit: int) -> None:
    total = leaves(after.struct)
    added = [c for c in changes if isinstance(c, AddColumn)]
    if total <= limit or not added:
        return
    parents = [c.parent for c in added]
    worst = max(set(parents), key=parents.count)
    raise DataError(
        f"the batch would give the table {total} columns, more than max_columns = {limit}; "
        f"most of them in {dotted(worst) or 'the record itself'} ({parents.count(worst)} new)",
        hint="keys that are data belong in a map: declare it, or raise max_columns",
    )
