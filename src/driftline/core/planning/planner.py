"""The planner: one batch's shape against a schema, level by level.

A record's fields are settled together (they share names), and the
records inside them by the same function again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.changes import AddColumn, Change, Reason, RewriteColumn, WidenColumn
from driftline.core.planning.contract import Contract, toml_line
from driftline.core.planning.field_plan import Draft, Slot, declared, in_order, name_drafts
from driftline.core.planning.limits import without_column
from driftline.core.planning.map_hints import map_type
from driftline.core.planning.maps import Verdict, as_map, entries_of
from driftline.core.planning.normalise import settled
from driftline.core.planning.nulls import Nulls
from driftline.core.planning.objects import Closed, closed_contract, closed_route, objects_of
from driftline.core.planning.policies import preserve, strict, widen
from driftline.core.planning.policies.decision import Decision, Facets, Refusal, Retyped
from driftline.core.planning.routes import (
    ColumnRoute,
    Conflict,
    Conversion,
    FieldRoute,
    RecordRoute,
    Settings,
    facet_of,
)
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, RecordShape, merge_all
from driftline.core.planning.stubs import hollow, inside, stub_of, value_of, with_inner, with_value
from driftline.core.schema.naming import by_key, is_metadata
from driftline.core.schema.place import Place
from driftline.core.schema.types import (
    VARIANT,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    dotted,
    peel,
    wrap,
)


@dataclass(frozen=True, slots=True)
class Record:
    """A record planned: its struct, and the routes that fill it."""

    struct: Struct
    route: RecordRoute


@dataclass(slots=True)
class Planner:
    """``refused``: types of fields that get no new column, and why; ``not_rewritten``: columns
    that are not rewritten. What it finds is in the lists; ``last``: the type of each field
    that was seen last, of those not refused.
    """

    settings: Settings
    schema: Schema
    refused: Mapping[tuple[Path, Facet], str] = field(default_factory=dict)
    not_rewritten: frozenset[Path] = frozenset()
    changes: list[Change] = field(default_factory=list)
    converted: list[Conversion] = field(default_factory=list)
    untyped: set[Path] = field(default_factory=set)
    hints: list[str] = field(default_factory=list)
    new_maps: dict[Path, Verdict] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    last: dict[Path, Facet] = field(default_factory=dict)

    @property
    def nulls(self) -> Nulls:
        return Nulls(self.schema, self.changes, self.conflicts)

    def record(
        self,
        struct: Struct,
        shape: RecordShape,
        contract: Contract,
        at: Path = (),
        keys: Path = (),
        within: bool = False,
    ) -> Record:
        """One record, level by level: decide each field, name the new columns, then go into each.

        ``at`` is the path in the schema, ``keys`` the path in the
        data; ``within`` a struct that is itself new.
        """
        here = len(self.changes)
        known = by_key(struct.fields, self.settings.mark)
        slots: dict[str, Slot] = {}
        drafts: dict[str, list[Draft]] = {}
        for key, seen in in_order(shape, contract):
            mine, of = known.get(key, []), contract.of(key)
            drafts[key] = declared(key, mine, of, (*keys, key))
            paths = [(*at, c.name) for c in mine] + [(*at, key)] * len(drafts[key])
            types = [c.type for c in mine] + [draft.stub for draft in drafts[key]]
            new_here = not types and (contract.declares_fields or not within)
            waits = new_here and bool(self.schema.struct.fields)
            slot = slots[key] = self.slot(types, seen, paths, (*keys, key), of, within, waits)
            drafts[key] += [Draft(key, stub, r, stub == slot.original) for stub, r in slot.new]
        new = [draft for made in drafts.values() for draft in made]
        name_drafts(struct, new, self.settings.mark)

        fields = {column.name: column for column in struct.fields}
        routes = []
        for key, slot in slots.items():
            columns = known.get(key, []) + [draft.column for draft in drafts[key]]
            types = [*slot.types, *(stub for stub, _ in slot.new)]
            places = [
                (t, (*at, c.name), within or c.name not in fields)
                for t, c in zip(types, columns, strict=True)
            ]
            filled = []
            for column, route in zip(columns, self.fill(slot, places, (*keys, key)), strict=True):
                if hollow(route.type):  # its fields are still to come, or have no room
                    new = [draft for draft in new if draft.column.name != column.name]
                    slot.beyond |= without_column(route)
                    continue
                fields[column.name] = replace(column, type=route.type)
                filled.append(route)
            routes.append(FieldRoute(key, slot.shape, tuple(filled), beyond=slot.beyond))
        ways = {column.name: (slots[r.key], r, column) for r in routes for column in r.columns}
        if not within and (at or shape.fields):
            for column in struct.fields:
                if not is_metadata(column.doc):
                    way = ways.get(column.name)
                    below = (*keys, way[1].key if way else column.name)
                    fields[column.name] = self.nulls.relaxed(
                        fields[column.name], (*at, column.name), below, way, contract
                    )

        new.sort(key=lambda d: d.reason.place or Place())
        for draft in new:
            fields[draft.column.name] = fields.pop(draft.column.name)
        # A column is listed before what is inside it.
        self.changes[here:here] = [AddColumn(at, fields[d.column.name], d.reason, within) for d in new]
        self.hint_of_keys(keys, shape, contract, len(new))
        return Record(Struct(tuple(fields.values())), RecordRoute(tuple(routes)))

    def slot(
        self,
        types: list[Type],
        seen: FieldShape,
        paths: list[Path],
        keys: Path,
        contract: Contract,
        within: bool,
        waits: bool = False,
    ) -> Slot:
        """What one field needs: ``types`` are its columns', at ``paths``;
        ``waits``: it does where new fields are held.
        """
        columns = [facet_of(t) for t in types]
        # What is frozen inside a struct that is itself new is frozen as its first batch makes it.
        policy = "preserve" if within and contract.policy == "strict" else contract.policy
        objects = objects_of(seen, types, contract, policy, self.settings.mark)
        slot = Slot(types, settled(objects.shape, columns, policy), contract, policy)
        slot.verdict, slot.closed = objects.verdict, objects.closed
        if waits:
            slot.hold()
        if objects.verdict is not None and not slot.beyond:
            self.new_maps[keys] = objects.verdict
        decision = self.decide(slot, columns, paths, keys)
        have = [*columns, *(n.facet for n in decision.new)]
        for refusal in decision.refused:
            if refusal.facet in slot.no_room and self.settings.beyond == "rest" and policy == "preserve":
                slot.set_aside(refusal)
            else:
                self.refuse(slot, refusal, have, keys)
        slot.types = [
            t if change is None else self.retyped(t, path, change, keys)
            for t, path, change in zip(types, paths, decision.columns, strict=True)
        ]
        columns = [facet_of(t) for t in slot.types]
        plain = [n for n in decision.new if not isinstance(n.facet.base, MapOf)]
        slot.new = [
            (stub_of(n.facet), Reason(n.rule, n.why, keys, n.cause.sample, n.cause.place)) for n in plain
        ]
        slot.original = stub_of(decision.original) if decision.original and plain else None
        self.maps(slot, columns, paths, keys, within)
        self.note(slot, columns, keys)
        return slot

    def decide(self, slot: Slot, columns: list[Facet], paths: list[Path], keys: Path) -> Decision:
        """What the field's policy says of the types that have room in the table."""
        no_room = {f: s for f, s in slot.shape.facets.items() if (keys, f) in self.refused}
        slot.no_room = frozenset(no_room)
        facets = {f: s for f, s in slot.shape.facets.items() if f not in no_room}
        if facets:
            self.last[keys] = next(reversed(facets))
        decision = self.by_policy(slot, facets, columns, paths, keys)
        if not no_room:
            return decision
        now = [
            c if change is None else change.facet for c, change in zip(columns, decision.columns, strict=True)
        ]
        have = [*now, *(n.facet for n in decision.new)]
        more = [
            refusal
            for facet, seen in no_room.items()
            for refusal in strict.decide(have, {facet: seen}, slot.unit, self.refused[keys, facet]).refused
        ]
        return replace(decision, refused=(*decision.refused, *more))

    def by_policy(
        self, slot: Slot, facets: Facets, columns: list[Facet], paths: list[Path], keys: Path
    ) -> Decision:
        """What the field's policy says."""
        pinned = [t == slot.contract.hint for t in slot.types]
        if slot.policy == "strict":
            return strict.decide(columns, facets, slot.unit)
        if slot.policy == "preserve":
            plain = {f: s for f, s in facets.items() if not isinstance(f.base, MapOf)}
            return preserve.decide(columns, pinned, plain, slot.unit)
        if not columns and keys[-1].startswith("_") and self.schema.struct.fields:
            why = "names that begin with _ are for the table's first batch"
            return Decision((), refused=[Refusal(facet, why) for facet in facets])
        # A list or map that is kept is kept with what is inside it.
        kept = any(path[: len(k)] == k for path in paths for k in self.not_rewritten)
        return widen.decide(columns, pinned, facets, rewrite=self.settings.allow_rewrite, kept=kept)

    def refuse(self, slot: Slot, refusal: Refusal, columns: Sequence[Facet], keys: Path) -> None:
        """Takes a facet, or its inexact values, out of the plan."""
        seen = slot.shape.facets[refusal.facet]
        told = ", ".join(c.spelled() for c in columns) or "none"
        self.conflicts.append(
            Conflict(
                keys,
                told,
                refusal.facet,
                refusal.why,
                seen.sample,
                seen.place,
                refusal.inexact,
                slot.unit,
                refusal.facet in slot.no_room,
            )
        )
        if refusal.inexact is None:
            del slot.shape.facets[refusal.facet]

    def retyped(self, type_: Type, path: Path, change: Retyped, keys: Path) -> Type:
        """The column's type after the change, which is noted."""
        base = change.facet.base
        assert isinstance(base, Primitive), base
        made = with_inner(type_, base)
        if change.rewrite:
            reason = Reason("rewrite", change.why, keys, change.cause.sample, change.cause.place)
            self.changes.append(RewriteColumn(path, made, reason))
        else:
            reason = Reason("widen-in-place", change.why, keys, change.cause.sample, change.cause.place)
            self.changes.append(WidenColumn(inside(path, type_), base, reason))
        return made

    def maps(self, slot: Slot, columns: Sequence[Facet], paths: list[Path], keys: Path, within: bool) -> None:
        """The map columns of a field, by type of key, for the largest dimension of such maps.

        The values are a slot of their own; what is a new column there is a new map here.
        """
        dims: dict[MapOf, int] = {}
        for facet in slot.shape.facets:
            if isinstance(facet.base, MapOf) and not any(
                c.base == VARIANT and preserve.takes(c, facet) for c in columns
            ):
                dims[facet.base] = max(facet.dim, dims.get(facet.base, 0))
        for i, column in enumerate(columns):  # a declared map gets its values' contract, seen or not
            if isinstance(column.base, MapOf) and hollow(slot.types[i]):
                dims.setdefault(column.base, column.dim)
        for base in sorted(dims, key=lambda b: (dims[b], str(b))):
            seen = FieldShape(slot.shape.place)
            for facet, facet_seen in slot.shape.facets.items():
                seen = seen.merge(facet_seen.value) if facet.base == base and facet_seen.value else seen
            mine = [i for i, c in enumerate(columns) if c.base == base and c.dim >= dims[base]]
            inner = [value_of(slot.types[i]) for i in mine]
            at = [(*inside(paths[i], slot.types[i]), "value") for i in mine]
            of = slot.contract.inside(dims[base]).of("value")
            value = slot.values[base] = self.slot(inner, seen, at, (*keys, "value"), of, within or not mine)
            if not (mine or value.new) and value.beyond:
                slot.set_aside_maps(base)
            for i, value_type in zip(mine, value.types, strict=True):
                slot.types[i] = with_value(slot.types[i], value_type)
            for stub, reason in value.new:
                made = wrap(Map(base.key, stub), dims[base])
                if slot.types and not mine:
                    why = preserve.unfit(Facet(dims[base], base), columns)
                    reason = replace(reason, rule="sibling", why=why)
                elif slot.verdict is not None:
                    reason = replace(reason, rule="map", why=str(slot.verdict))
                slot.new.append((made, replace(reason, field=keys)))
                record = slot.original is not None and facet_of(slot.original).base == RECORD
                if not slot.types and not record and stub == value.original:
                    slot.original = made

    def fill(self, slot: Slot, columns: Sequence[tuple[Type, Path, bool]], keys: Path) -> list[ColumnRoute]:
        """The routes of a slot's columns, each given with its path and whether it is new."""
        facets = [facet_of(t) for t, _, _ in columns]
        largest = max((f.dim for f in facets if f.base == RECORD), default=0)
        values: dict[int, FieldRoute] = {}
        for base, below in slot.values.items():
            at = [i for i, f in enumerate(facets) if f.base == base]
            inner = [
                (value_of(type_), (*inside(path, type_), "value"), new)
                for type_, path, new in (columns[i] for i in at)
            ]
            filled = self.fill(below, inner, (*keys, "value"))
            left_out = slot.contract.inside(max(facets[i].dim for i in at)).excluded_keys
            no_words = slot.closed is Closed.data
            values |= {
                i: FieldRoute(
                    "value", below.shape, (way,), left_out=left_out, no_words=no_words, beyond=below.beyond
                )
                for i, way in zip(at, filled, strict=True)
            }
        out = []
        for i, (type_, path, new) in enumerate(columns):
            facet = facets[i]
            takes = tuple(
                f
                for f in slot.shape.facets
                if slot.takes(facet, f) and (facet.base != RECORD or facet.dim in (largest, f.dim))
            )
            record = None
            if not new and (slot.shape.empty_lists or any(f.dim or isinstance(f.base, MapOf) for f in takes)):
                type_ = self.nulls.opened(type_, path, slot.shape.place)
            if facet.base == RECORD and (takes or slot.shape.empty_record or hollow(type_)):
                shape = merge_all(r for f in takes if (r := slot.shape.facets[f].record) is not None)
                dim, struct = peel(type_)
                assert isinstance(struct, Struct)
                of = slot.contract.inside(dim)
                of = closed_contract(of, slot.closed, shape.fields)
                made = self.record(struct, shape, of, inside(path, type_), inside(keys, type_), new)
                type_ = with_inner(type_, made.struct)
                record = closed_route(made.route, slot.closed)
            elif i in values:
                type_ = with_value(type_, values[i].columns[0].type)
            out.append(ColumnRoute(path[-1], type_, takes, record, values.get(i), slot.contract.epoch_unit))
        return out

    def note(self, slot: Slot, columns: Sequence[Facet], keys: Path) -> None:
        """What a person should know of a field that needs no column: conversions, untyped values, hints."""
        made = [*columns, *(facet_of(t) for t, _ in slot.new)]
        for facet, seen in slot.shape.facets.items():
            if columns and facet not in made:
                target = next((c for c in columns if slot.accepts(c, facet)), None)
                if target is not None:
                    self.converted.append(
                        Conversion(keys, stub_of(facet), stub_of(target), seen.sample, seen.place)
                    )
        shape = slot.shape
        if slot.beyond or any(c.base == VARIANT and not c.dim for c in made):
            return  # which holds whatever it is
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
                toml_line(
                    "hints",
                    keys,
                    "list<record>",
                    f"{path} is an object or a list of objects: this makes it one",
                )
            )

    def hint_of_keys(self, keys: Path, shape: RecordShape, contract: Contract, new: int) -> None:
        """Points at a struct whose keys look like data, while it grows."""
        if not (new and keys) or contract.maps != "hint":
            return
        verdict, type_ = as_map(entries_of([shape])), map_type(shape)
        if verdict is not None and not verdict.apart and type_ is not None:
            why = f"makes {dotted(keys)} a map, {verdict}"
            self.hints.append(toml_line("hints", keys, type_, why))
