"""`plan`: a schema and a shape in, the changes and the routes out. Pure; the heart of the product.

A plan is made level by level: a record's fields are settled together (they share names), and the records
inside them by the same function again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.changes import AddColumn, Change, Reason, RelaxColumn, WidenColumn, apply
from driftline.core.naming import Names, mark, marked_key, safe, suffix
from driftline.core.policies import preserve
from driftline.core.routes import (
    ColumnRoute,
    Conversion,
    FieldRoute,
    Plan,
    RecordRoute,
    Settings,
    facet_of,
)
from driftline.core.settle import settled
from driftline.core.shape import (
    RECORD,
    Facet,
    FieldShape,
    MapOf,
    Place,
    RecordShape,
    Seen,
    merge_all,
)
from driftline.core.types import (
    STRING,
    VARIANT,
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
    leaves,
    peel,
    with_child,
    wrap,
)
from driftline.errors import DataError


def plan(schema: Schema, shape: RecordShape, settings: Settings | None = None) -> Plan:
    """What must change in ``schema`` for a batch of ``shape``, and how each field is routed.

    Raises DataError if the table would pass ``max_columns``.

    >>> from driftline.core.shape import Facet, Place, Seen
    >>> from driftline.core.types import LONG
    >>> size = FieldShape(Place(), {Facet(0, LONG): Seen(Place(), "4")})
    >>> str(plan(Schema(), RecordShape({"size": size})).schema.struct)
    'struct<size: long>'
    """
    planner = _Planner(settings or Settings(), schema.identifiers)
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


@dataclass(slots=True)
class _Slot:
    """A place that holds a value: a field, or a map's value. Its types, what was seen, the types to be made."""

    types: list[Type]
    shape: FieldShape
    new: list[tuple[Type, Reason]]
    original: Type | None
    values: dict[MapOf, _Slot] = field(default_factory=dict)


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
    identifiers: frozenset[int]
    changes: list[Change] = field(default_factory=list)
    converted: list[Conversion] = field(default_factory=list)
    untyped: set[Path] = field(default_factory=set)
    hints: list[str] = field(default_factory=list)

    def record(
        self, struct: Struct, shape: RecordShape, at: Path, keys: Path, within: bool = False
    ) -> _Record:
        """One record, level by level: decide each field, name the new columns, then go into each.

        ``at`` is the path in the schema, ``keys`` the path in the data; ``within`` a struct that is itself new.
        """
        here = len(self.changes)
        known: dict[str, list[Field]] = {}
        for column in struct.fields:
            marked = marked_key(column.doc, self.settings.mark)
            known.setdefault(column.name if marked is None else marked, []).append(column)
        slots: dict[str, _Slot] = {}
        drafts: dict[str, list[_Draft]] = {}
        for key, seen in sorted(shape.fields.items(), key=lambda f: (f[1].place, f[0])):
            paths = [(*at, c.name) for c in known.get(key, [])]
            slots[key] = self.slot([c.type for c in known.get(key, [])], seen, paths, (*keys, key))
            drafts[key] = [_Draft(key, stub, r, stub == slots[key].original) for stub, r in slots[key].new]
        new = [draft for made in drafts.values() for draft in made]
        _name(struct, new, self.settings.mark)

        fields = {column.name: column for column in struct.fields}
        routes = []
        for key, slot in slots.items():
            columns = [replace(c, type=t) for c, t in zip(known.get(key, []), slot.types, strict=True)]
            columns += [draft.column for draft in drafts[key]]
            places = [(c.type, (*at, c.name), within or c.name not in fields) for c in columns]
            filled = self.fill(slot, places, (*keys, key))
            for column, route in zip(columns, filled, strict=True):
                fields[column.name] = replace(column, type=route.type)
            routes.append(FieldRoute(key, slot.shape, tuple(filled)))
        ways = {column.name: (route, column) for route in routes for column in route.columns}
        for column in struct.fields if not within else ():
            fields[column.name] = self.relaxed(fields[column.name], (*at, column.name), ways.get(column.name))

        new.sort(key=lambda d: d.reason.place or Place())
        for draft in new:
            fields[draft.column.name] = fields.pop(draft.column.name)
        # A column is listed before what is inside it.
        self.changes[here:here] = [AddColumn(at, fields[d.column.name], d.reason, within) for d in new]
        return _Record(Struct(tuple(fields.values())), RecordRoute(tuple(routes)))

    def slot(self, types: list[Type], seen: FieldShape, paths: list[Path], keys: Path) -> _Slot:
        """What one field needs: ``types`` are its columns', at ``paths``."""
        columns = [facet_of(t) for t in types]
        seen = settled(seen, columns)
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
        slot.new = [(_stub(n.facet), _reason(n.rule, n.why, keys, n.cause)) for n in new]
        slot.original = _stub(first) if first else None
        self.maps(slot, columns, paths, keys)
        self.note(slot, columns, keys)
        return slot

    def maps(self, slot: _Slot, columns: Sequence[Facet], paths: list[Path], keys: Path) -> None:
        """The map columns of a field, by type of key, for the largest dimension of such maps.

        The values are a slot of their own; what is a new column there is a new map here.
        """
        dims: dict[MapOf, int] = {}
        for facet in slot.shape.facets:
            if isinstance(facet.base, MapOf) and not any(
                c.base == VARIANT and preserve.takes(c, facet) for c in columns
            ):
                dims[facet.base] = max(facet.dim, dims.get(facet.base, 0))
        for base in sorted(dims, key=lambda b: (dims[b], str(b))):
            seen = FieldShape(slot.shape.place)
            for facet, kept in slot.shape.facets.items():
                seen = seen.merge(kept.value) if facet.base == base and kept.value else seen
            mine = [i for i, c in enumerate(columns) if c.base == base and c.dim >= dims[base]]
            inner = [_value(slot.types[i]) for i in mine]
            at = [(*_inside(paths[i], slot.types[i]), "value") for i in mine]
            value = slot.values[base] = self.slot(inner, seen, at, (*keys, "value"))
            for i, value_type in zip(mine, value.types, strict=True):
                slot.types[i] = _with_value(slot.types[i], value_type)
            for stub, reason in value.new:
                made = wrap(Map(base.key, stub), dims[base])
                if slot.types and not mine:
                    why = preserve.unfit(Facet(dims[base], base), columns)
                    reason = replace(reason, rule="sibling", why=why)
                slot.new.append((made, replace(reason, field=keys)))
                record = slot.original is not None and facet_of(slot.original).base == RECORD
                if not slot.types and not record and stub == value.original:
                    slot.original = made

    def fill(self, slot: _Slot, columns: Sequence[tuple[Type, Path, bool]], keys: Path) -> list[ColumnRoute]:
        """The routes of a slot's columns, each given with its path and whether it is new."""
        facets = [facet_of(t) for t, _, _ in columns]
        largest = max((f.dim for f in facets if f.base == RECORD), default=0)
        values: dict[int, FieldRoute] = {}
        for base, inside in slot.values.items():
            at = [i for i, f in enumerate(facets) if f.base == base]
            inner = [
                (_value(type_), (*_inside(path, type_), "value"), new)
                for type_, path, new in (columns[i] for i in at)
            ]
            filled = self.fill(inside, inner, (*keys, "value"))
            values |= {
                i: FieldRoute("value", inside.shape, (way,)) for i, way in zip(at, filled, strict=True)
            }
        out = []
        for i, (type_, path, new) in enumerate(columns):
            facet = facets[i]
            takes = tuple(
                f
                for f in slot.shape.facets
                if preserve.takes(facet, f) and (facet.base != RECORD or facet.dim in (largest, f.dim))
            )
            record = None
            if not new and (slot.shape.empty_lists or any(f.dim or isinstance(f.base, MapOf) for f in takes)):
                type_ = self.opened(type_, path, slot.shape.place)
            if facet.base == RECORD and (takes or slot.shape.empty_record):
                shape = merge_all(r for f in takes if (r := slot.shape.facets[f].record) is not None)
                inner_struct = peel(type_)[1]
                assert isinstance(inner_struct, Struct)
                made = self.record(inner_struct, shape, _inside(path, type_), _inside(keys, type_), new)
                type_, record = _with_inner(type_, made.struct), made.route
            elif i in values:
                type_ = _with_value(type_, values[i].columns[0].type)
            out.append(ColumnRoute(path[-1], type_, takes, record, values.get(i)))
        return out

    def widen(self, type_: Type, path: Path, seen: FieldShape, keys: Path) -> Type:
        """The type, widened in place where width within one family is all that is in the way."""
        column = facet_of(type_)
        cause = preserve.widening(column, seen.facets)
        if cause is None:
            return type_
        wider = _primitive(cause)
        why = f"{cause.spelled()} is wider than {column.spelled()}, which the format widens in place"
        self.changes.append(
            WidenColumn(_inside(path, type_), wider, _reason("widen-in-place", why, keys, seen.facets[cause]))
        )
        return _with_inner(type_, wider)

    def relaxed(self, column: Field, path: Path, way: tuple[FieldRoute, ColumnRoute] | None) -> Field:
        """The column, made optional if it is required and some record has no value for it.

        Not so identifier fields and what they are in: records without a value there go to quarantine.
        """
        if not column.required or (way is not None and self.always(*way)):
            return column
        if any(f.id in self.identifiers for _, f in Schema(Struct((column,))).walk()):
            return column
        place = way[0].shape.place if way else None
        self.changes.append(
            RelaxColumn(
                path, column.type, Reason("relax", "some record has no value for it", path, "", place)
            )
        )
        return replace(column, required=False)

    def always(self, field: FieldRoute, column: ColumnRoute) -> bool:
        """Whether every record has a value of the field that the column holds."""
        shape, facet = field.shape, column.facet
        seen = shape.facets or shape.empty_lists or shape.empty_record
        return (
            bool(seen)
            and not shape.missing
            and shape.empty_lists <= facet.dim
            and not (shape.empty_record and isinstance(facet.base, Primitive))
            and all(
                f in column.takes and preserve.accepts(facet, f, s, self.unit)
                for f, s in shape.facets.items()
            )
        )

    def opened(self, type_: Type, path: Path, place: Place) -> Type:
        """A list or map column with elements or values that may be null: the data's own, and what does not fit."""
        if not isinstance(type_, List | Map):
            return type_
        child = children(type_)[-1]
        below = (*path, child.name)
        if child.required:
            why = "a list or map of the data may hold null, or what does not fit"
            self.changes.append(RelaxColumn(below, child.type, Reason("relax", why, below, "", place)))
        inner = self.opened(child.type, below, place) if isinstance(type_, List) else child.type
        return with_child(type_, child.name, replace(child, type=inner, required=False))

    def note(self, slot: _Slot, columns: Sequence[Facet], keys: Path) -> None:
        """What a person should know of a field that needs no column: conversions, untyped values, hints."""
        made = [*columns, *(facet_of(t) for t, _ in slot.new)]
        for facet, seen in slot.shape.facets.items():
            if columns and facet not in made:
                target = next((c for c in columns if preserve.accepts(c, facet, seen, self.unit)), None)
                if target is not None:
                    self.converted.append(
                        Conversion(keys, _stub(facet), _stub(target), seen.sample, seen.place)
                    )
        shape = slot.shape
        nothing = not shape.facets and not columns
        listless = shape.empty_lists > max((c.dim for c in made), default=0)
        recordless = shape.empty_record and not any(
            isinstance(c.base, MapOf) or c.base == RECORD for c in made
        )
        if nothing or listless or recordless:
            self.untyped.add(keys)
        one_or_many = {Facet(0, RECORD), Facet(1, RECORD)}
        if one_or_many <= {*columns, *made} and not one_or_many <= set(columns):
            path = dotted(keys)
            self.hints.append(
                f'{path} is an object or a list of objects: {path} = "list<record>" makes it one'
            )

    @property
    def unit(self) -> str:
        return self.settings.epoch_unit or "ms"


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
            evolved.append((draft, name, suffix(draft.stub)))
    for draft, name, behind in sorted(evolved, key=lambda e: (e[0].key, e[2])):
        draft.column = Field(names.take(name, behind), draft.stub, doc=mark(draft.key, prefix))


def _stub(facet: Facet) -> Type:
    """The facet as a type, empty where it will be filled."""
    match facet.base:
        case Primitive() as inner:
            return wrap(inner, facet.dim)
        case MapOf(key):
            return wrap(Map(key, Primitive("unknown")), facet.dim)
        case _:
            return wrap(Struct(), facet.dim)


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
    (worst, most), *_ = Counter(c.parent for c in added).most_common(1)
    raise DataError(
        f"the batch would give the table {total} columns, more than max_columns = {limit}; "
        f"most of them in {dotted(worst) or 'the record itself'} ({most} new)",
        hint="keys that are data belong in a map: declare it, or raise max_columns",
    )
