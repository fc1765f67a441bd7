"""Plans one field: its columns, their names and types, and the values its policy refuses.

The values of a map are planned like a field, by the same function; the fields of records are the planner's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain

from driftline.core.changes import Change, Reason, RewriteColumn, WidenColumn
from driftline.core.planning.conversions import join
from driftline.core.planning.maps import MAP, FixedKeys, MapVerdict, as_map, entries_of, objects_of
from driftline.core.planning.plan import NO_COLUMN, Conflict, Conversion, facet_of, stub_of
from driftline.core.planning.policies import policy_of, preserve, strict
from driftline.core.planning.policies.by_kind import ROLES, ByKind
from driftline.core.planning.policies.policy import Decision, FieldState, New, Policy, Refusal, Retyped
from driftline.core.planning.shape import NUMBER_TEXT, RECORD, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.naming import Names, mark, safe, suffix
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import (
    JSON,
    STRING,
    VARIANT,
    Field,
    Map,
    Path,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    Type,
    dotted,
    hollow,
    inside,
    value_of,
    with_base,
    with_value,
    wrap,
)
from driftline.core.settings.fields import FieldSettings, toml_line
from driftline.core.settings.table import TableSettings


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of one planning step.

    Attributes:
        changes: changes to the schema, a column before its contents.
        conflicts: the refusals of policies.
        untyped: fields without a type so far.
        new_maps: objects that become maps, and the reasons.
        last: for each field, the last type to arrive that had room.
    """

    changes: tuple[Change, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    converted: tuple[Conversion, ...] = ()
    untyped: tuple[Path, ...] = ()
    hints: tuple[str, ...] = ()
    new_maps: tuple[tuple[Path, MapVerdict], ...] = ()
    last: tuple[tuple[Path, Facet], ...] = ()


NOTHING = Findings()
_KINDS = tuple(f.name for f in fields(Findings))


def merge_findings(findings: Iterable[Findings]) -> Findings:
    """Concatenate findings in order."""
    # Most fields find nothing, and a wide table has tens of thousands of fields.
    parts = [part for part in findings if part is not NOTHING]
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    return Findings(*(tuple(chain.from_iterable(getattr(part, kind) for part in parts)) for kind in _KINDS))


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a whole plan.

    Attributes:
        refused: types of fields that get no new column, and the reasons.
        not_rewritten: columns that must not be rewritten.
    """

    settings: TableSettings
    schema: Schema
    refused: Mapping[tuple[Path, Facet], str] = field(default_factory=dict)
    not_rewritten: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of the values of a field or a map: columns of ``types``, at ``paths`` of the schema.

    Attributes:
        data_path: the path of the values in the data.
        is_new: this batch creates the struct or map.
        may_wait: the table lacks the field, so it waits in the rest if new fields are held.
        must_wait: the key is too long for a column's doc.
        never: the key is empty, so the field waits whatever the policy.
    """

    types: tuple[Type, ...]
    paths: tuple[Path, ...]
    data_path: Path
    is_new: bool = False
    may_wait: bool = False
    must_wait: bool = False
    never: bool = False


@dataclass(frozen=True, slots=True)
class FieldDecision:
    """A planned field, or the planned values of a map.

    Attributes:
        types: the types of the existing columns.
        new: the types of the new columns, and their reasons.
        original: the type of the new column that takes the field's own name.
        values: the decisions on the values of the field's maps.
        fixed_keys: the keys of its structs that get no more columns.
        to_rest: types whose values go to the rest.
    """

    types: tuple[Type, ...]
    shape: FieldShape
    settings: FieldSettings
    policy: Policy
    new: tuple[tuple[Type, Reason], ...] = ()
    original: Type | None = None
    values: Mapping[MapOf, FieldDecision] = field(default_factory=dict)
    fixed_keys: FixedKeys = FixedKeys.none
    to_rest: frozenset[Facet] = frozenset()
    findings: Findings = NOTHING

    @property
    def unit(self) -> str:
        """The unit of the field's epoch times, ``ms`` by default."""
        return self.settings.epoch_unit or "ms"

    @property
    def facets(self) -> list[Facet]:
        """The existing columns, as facets."""
        return [facet_of(type_) for type_ in self.types]

    def takes(self, column: Facet, facet: Facet) -> bool:
        """True if values of the facet are routed to the column."""
        return self.policy.takes(column, facet, self.shape.facets[facet])

    def accepts(self, column: Facet, facet: Facet) -> bool:
        """True if the column takes every value of the facet exactly."""
        return self.policy.accepts(column, facet, self.shape.facets[facet], self.unit)

    def sending(self, facets: frozenset[Facet], *, inexact: frozenset[Facet] = frozenset()) -> FieldDecision:
        """Send the values of these types to the rest; for ``inexact`` types only values that do not fit."""
        if not facets and not inexact:
            return self
        return replace(self, shape=without(self.shape, facets), to_rest=self.to_rest | facets | inexact)


def without(shape: FieldShape, facets: frozenset[Facet]) -> FieldShape:
    """Remove these types from the shape."""
    if not facets:
        return shape
    return replace(shape, facets={f: profile for f, profile in shape.facets.items() if f not in facets})


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to be created.

    Attributes:
        stub: its type, without anything nested.
        reason: its cause.
        natural: it has the field's own name.
        comment: its doc.
    """

    key: str
    stub: Type
    reason: Reason
    natural: bool
    comment: str = ""


def in_order(
    shape: RecordShape, field_settings: FieldSettings, *, empty_names: bool = False
) -> list[tuple[str, FieldShape]]:
    """Return the observed fields in the order of the data, then the declared ones.

    Args:
        empty_names: include the field of the empty key.
    """
    fields = shape.kept(empty_names=empty_names)
    shapes = dict(sorted(fields.items(), key=lambda f: (f[1].location, f[0])))
    for key, child in field_settings.fields.items():
        if child.hint is not None and not child.excluded:
            # A declared field gets its column with the first batch, though no record has it yet.
            shapes.setdefault(key, FieldShape(SourceLocation(), absent=True, missing=True))
    return list(shapes.items())


def declared(
    key: str, columns: Sequence[Field], field_settings: FieldSettings, data_path: Path
) -> list[NewColumn]:
    """Draft the column that a hint declares, unless the field has it."""
    hint = field_settings.hint
    if hint is None or facet_of(hint) in [facet_of(c.type) for c in columns]:
        return []
    why = "declared by a hint"
    if columns:
        older = ", ".join(c.name for c in columns)
        # A setting never retypes a column that has values.
        why += f"; older values stay in {older}, until driftline resolve makes one column"
    return [NewColumn(key, hint, Reason("hint", why, data_path), not columns)]


def named_columns(struct: Struct, drafts: Sequence[NewColumn], prefix: str) -> list[Field]:
    """Name the new columns of a struct, in the order of the drafts.

    Natural columns are named first, in code point order (seed rules 4, 5). ``prefix``: of the mark in their
    docs.
    """
    if not drafts:
        return []
    names = Names.of(struct)
    columns: dict[int, Field] = {}
    evolved = []
    # Names follow the keys, not the order of the data, so they do not depend on which record came first.
    for i, draft in sorted(enumerate(drafts), key=lambda item: item[1].key):
        name = safe(draft.key)
        if draft.natural and names.free(name):
            names.take(name)
            lines = ("" if name == draft.key else mark(draft.key, prefix), draft.comment)
            columns[i] = Field(name, draft.stub, doc="\n".join(filter(None, lines)) or None)
        else:
            evolved.append((draft.key, suffix(draft.stub), i))
    for key, ending, i in sorted(evolved, key=lambda item: item[:2]):
        columns[i] = Field(names.take(safe(key), ending), drafts[i].stub, doc=mark(key, prefix))
    return [columns[i] for i in range(len(drafts))]


# Types that are text to a column, or take values of others.
_NOT_PLAIN = (NUMBER_TEXT, VARIANT, JSON)
_ONE_OR_MANY = {Facet(0, RECORD), Facet(1, RECORD)}


def notes_of(field: FieldDecision, columns: Sequence[Facet], data_path: Path) -> Findings:
    """Collect the notes on one field.

    Args:
        columns: its columns before this batch.
    """
    all_columns = [*columns, *(facet_of(t) for t, _ in field.new)]
    converted = _converted(field, columns, all_columns, data_path) if columns else ()
    if field.to_rest or any(c.base in (VARIANT, JSON) and not c.dim for c in all_columns):
        return Findings(converted=converted) if converted else NOTHING  # it holds whatever it is
    untyped = (data_path,) if _is_untyped(field, columns, all_columns) else ()
    hints: tuple[str, ...] = ()
    if len(all_columns) > 1 and set(all_columns) >= _ONE_OR_MANY and not set(columns) >= _ONE_OR_MANY:
        why = f"{dotted(data_path)} is an object or a list of objects: so it would become one"
        hints = (toml_line("hints", data_path, "list<record>", why),)
    if not (converted or untyped or hints):
        return NOTHING
    return Findings(converted=converted, untyped=untyped, hints=hints)


def hint_of_keys(data_path: Path, shape: RecordShape, field_settings: FieldSettings) -> Findings:
    """Point out a growing struct whose keys look like data."""
    if not data_path or field_settings.maps != "hint":
        return NOTHING
    verdict, type_ = as_map(entries_of([shape])), _map_type(shape)
    if verdict is None or verdict.apart or type_ is None:
        return NOTHING
    why = f"makes {dotted(data_path)} a map, {verdict}"
    return Findings(hints=(toml_line("hints", data_path, type_, why),))


def _converted(
    field: FieldDecision, columns: Sequence[Facet], all_columns: Sequence[Facet], data_path: Path
) -> tuple[Conversion, ...]:
    """Return the types without a column of their own that some column takes exactly."""
    out = []
    for facet, profile in field.shape.facets.items():
        if facet not in all_columns:
            column = next((c for c in columns if field.accepts(c, facet)), None)
            if column is not None:
                out.append(
                    Conversion(data_path, stub_of(facet), stub_of(column), profile.sample, profile.place)
                )
    return tuple(out)


def _is_untyped(field: FieldDecision, columns: Sequence[Facet], all_columns: Sequence[Facet]) -> bool:
    """True if the field held only values without a type: null, ``[]`` or ``{}``."""
    shape = field.shape
    nothing = not shape.facets and not columns
    listless = shape.empty_lists > max((c.dim for c in all_columns), default=0)
    recordless = shape.empty_record and not any(
        isinstance(c.base, MapOf) or c.base == RECORD for c in all_columns
    )
    return nothing or listless or recordless


_ALIKE = 3  # paths that differ in one step, from which on one line reports them


def notes_of_maps(maps: Mapping[Path, MapVerdict]) -> list[str]:
    """Name the setting that would keep each new map a struct, and the reason; outermost maps first.

    Paths that differ only in their last but one step share a note.

    >>> verdict = MapVerdict("its keys look like data", ("0", "1"))
    >>> notes_of_maps({("h", name, "values"): verdict for name in "abc"})
    ['maps.h = "off"  # keeps structs: h.*.values are maps (3 paths), its keys look like data: 0, 1']
    """
    groups: dict[tuple[Path, str], list[Path]] = {}
    for path in maps:
        # Settings have no patterns inside paths, and a line that can be pasted beats an exact one.
        groups.setdefault((path[:-2], path[-1]), []).append(path)
    notes: dict[Path, list[str]] = {}
    for (parent, last), paths in groups.items():
        if len(paths) >= _ALIKE and parent:
            pattern = f"{dotted((*parent, '*', last))} are maps ({len(paths)} paths)"
            notes.setdefault(parent, []).append(f"keeps structs: {pattern}, {maps[paths[0]]}")
        else:
            notes |= {path: [_note(maps[path])] for path in paths}
    outermost_first = sorted(notes, key=len)
    return [toml_line("maps", path, "off", "; ".join(notes[path])) for path in outermost_first]


def _note(verdict: MapVerdict) -> str:
    became = "a struct of words and a map of its other keys" if verdict.apart else "a map"
    return f"keeps a struct: it is {became}, {verdict}"


def _map_type(shape: RecordShape) -> str | None:
    """Return the map type that records of this shape could have; None if no one type holds all values."""
    facets = {facet for field in shape.fields.values() for facet in field.facets}
    if facets and all(not isinstance(f.base, Primitive) for f in facets) and len(facets) == 1:
        (facet,) = facets
        return f"map<string, {facet.spelled()}>"
    bases = [f.base for f in facets if isinstance(f.base, Primitive)]
    common = join(bases)
    if common is None or len(bases) < len(facets):
        return None
    return f"map<string, {type_name(wrap(common, max(f.dim for f in facets)))}>"


def normalised(
    shape: FieldShape, columns: Sequence[Facet], policy: Policy, *, empty_names: bool = False
) -> FieldShape:
    """Normalise what depends on the field's columns: dates, numbers as text, objects without values.

    Args:
        empty_names: the value of the empty key counts.
    """
    read = policy.read if isinstance(policy, ByKind) else preserve.dates_normalised
    facets = read(shape.facets, columns)
    out = shape.bare()
    for facet, profile in facets.items():
        if facet.base == NUMBER_TEXT and not isinstance(policy, ByKind):
            facet, profile = Facet(facet.dim, STRING), replace(profile, digits=True)
        if _holds_type(facet, profile, empty_names) or any(policy.takes(c, facet, profile) for c in columns):
            out.add(facet, profile)
        else:
            # An object of nothing but null is as good as {}: a struct without fields cannot be written.
            out.empty_record, out.empty_lists = True, max(out.empty_lists, facet.dim)
    # The order of the data, whatever the order of merging was.
    if len(out.facets) > 1:
        out.facets = dict(
            sorted(out.facets.items(), key=lambda f: (f[1].location, f[1].typed and f[1].digits, str(f[0])))
        )
    return out


def _holds_type(facet: Facet, profile: Profile, empty_names: bool) -> bool:
    """True if the facet holds, at any depth, a value that has a type."""
    if isinstance(facet.base, Primitive):
        return True
    fields = _fields(profile.record, empty_names) if profile.record else ()
    shapes = [*fields, *([profile.value] if profile.value else ())]
    items = (item for field in shapes for item in field.facets.items())
    return any(_holds_type(facet, child, empty_names) for facet, child in items)


def _fields(record: RecordShape, empty_names: bool) -> Iterable[FieldShape]:
    """Yield the fields that may hold a value.

    The empty key counts if it is kept, or if the record may become a map.
    """
    keeps_all = "" in record.fields and as_map(entries_of([record])) is not None
    return record.kept(empty_names=empty_names or keeps_all).values()


def decide_field(
    target: Target, observed: FieldShape, field_settings: FieldSettings, context: Context
) -> FieldDecision:
    """Plan a field, or a map's values, from the observed shape."""
    policy = ROLES.get(field_settings.role) or policy_of(field_settings.policy, new_struct=target.is_new)
    if (short := _of_one_scalar(target, observed, field_settings, policy, context)) is not None:
        return short
    objects = objects_of(observed, target.types, field_settings, policy, context.settings.mark)
    columns_before = [facet_of(t) for t in target.types]
    shape = normalised(objects.shape, columns_before, policy, empty_names=context.settings.keep_empty_names)
    field = FieldDecision(target.types, shape, field_settings, policy, fixed_keys=objects.fixed_keys)
    if target.never:
        field = field.sending(frozenset(shape.facets))
    elif target.must_wait or (target.may_wait and field_settings.new_fields == "hold"):
        field = field.sending(_waiting(shape, field_settings, policy))
    new_maps = ((target.data_path, objects.verdict),) if objects.verdict and not field.to_rest else ()

    state, no_room = _state(field, target, context)
    decision = _decision(field, state, no_room, target, context)
    field, conflicts = _refuse(field, decision, no_room, target, context)
    types, changes = _retype(target, decision)
    plain = [n for n in decision.new if not isinstance(n.facet.base, MapOf)]
    field = replace(
        field,
        types=types,
        new=tuple((stub_of(n.facet), _reason(n.rule, n.why, target.data_path, n.cause)) for n in plain),
        original=stub_of(decision.original) if decision.original and plain else None,
    )
    # If the field exceeds a limit, the type that came last is the one without room (core/planning/limits.py).
    last = ((target.data_path, [*state.facets][-1]),) if state.facets else ()
    field_findings = Findings(changes, conflicts, new_maps=new_maps, last=last)
    columns = field.facets
    field = _with_maps(field, target, objects.verdict, context)
    value_findings = [value.findings for value in field.values.values()]
    return replace(
        field,
        findings=merge_findings(
            [field_findings, *value_findings, notes_of(field, columns, target.data_path)]
        ),
    )


def _of_one_scalar(
    target: Target, observed: FieldShape, field_settings: FieldSettings, policy: Policy, context: Context
) -> FieldDecision | None:
    """Plan a field whose values all have one scalar type, which its only column has too, or that has no room.

    Most fields of a wide table are such, so this is `decide_field` without the steps that do nothing for
    them. Returns None for other fields.
    """
    facet, path = observed.scalar, target.data_path
    waits = target.never or target.must_wait or (target.may_wait and field_settings.new_fields == "hold")
    if facet is None or waits or not isinstance(policy, preserve.Preserve):
        return None
    profile, type_ = observed.facets[facet], facet.base
    assert isinstance(type_, Primitive)
    if type_ in _NOT_PLAIN or type_ in context.settings.as_text:
        return None
    shape = observed.bare()
    if (path, facet) in context.refused:
        if target.types or context.settings.beyond != "rest":
            return None
        return FieldDecision((), shape, field_settings, policy, to_rest=frozenset({facet}))
    new: tuple[tuple[Type, Reason], ...] = ()
    if not target.types:
        new = ((type_, _reason(preserve.FIRST_SIGHT, preserve.FIRST_SEEN, path, profile)),)
    elif target.types != (type_,) or not preserve.accepts(
        facet, facet, profile, field_settings.epoch_unit or "ms"
    ):
        return None
    shape.facets[facet] = profile
    return FieldDecision(
        target.types,
        shape,
        field_settings,
        policy,
        new,
        original=type_ if new else None,
        findings=Findings(last=((path, facet),)),
    )


def _waiting(shape: FieldShape, field_settings: FieldSettings, policy: Policy) -> frozenset[Facet]:
    """Return the types of a new field that wait in the rest; a type that a hint declares does not wait."""
    if not policy.keeps_all or field_settings.hint is not None:
        return frozenset()
    return frozenset(
        f for f in shape.facets if not (field_settings.declares_fields and f.base in (RECORD, MAP))
    )


def _state(field: FieldDecision, target: Target, context: Context) -> tuple[FieldState, frozenset[Facet]]:
    """Return the policy's view of the types that have room in the table, and the types without room."""
    path = target.data_path
    no_room = frozenset(f for f in field.shape.facets if (path, f) in context.refused)
    state = FieldState(
        field.facets,
        without(field.shape, no_room).facets,
        pinned=[t == field.settings.hint for t in field.types],
        unit=field.unit,
        rewrite=context.settings.allow_rewrite,
        # A list or map that is fixed is so with what is inside it.
        fixed=any(p[: len(fixed)] == fixed for p in target.paths for fixed in context.not_rewritten),
        reserved=path[-1].startswith("_") and bool(context.schema.struct.fields),
    )
    return state, no_room


def _decision(
    field: FieldDecision, state: FieldState, no_room: frozenset[Facet], target: Target, context: Context
) -> Decision:
    """Return the policy's decision, and refuse each type without room that no column takes."""
    decision = _with_text(field.policy.decide(state), context.settings.as_text)
    if not no_room:
        return decision
    now = [
        column if change is None else change.facet
        for column, change in zip(state.columns, decision.columns, strict=True)
    ]
    columns = [*now, *(n.facet for n in decision.new)]
    refusals = [
        refusal
        for facet, profile in field.shape.facets.items()
        if facet in no_room
        for refusal in strict.decide(
            replace(state, columns=columns, facets={facet: profile}),
            context.refused[target.data_path, facet],
            field.policy,
        ).refused
    ]
    return replace(decision, refused=(*decision.refused, *refusals))


def _with_text(decision: Decision, as_text: frozenset[Primitive]) -> Decision:
    """Replace the columns of types that the table's format lacks by text columns."""
    if not (as_text and any(n.facet.base in as_text for n in decision.new)):
        return decision

    def column(facet: Facet) -> Facet:
        return Facet(facet.dim, STRING) if facet.base in as_text else facet

    new: dict[Facet, New] = {}
    for n in decision.new:
        # Two types of one field may both become text, in one column.
        new.setdefault(column(n.facet), replace(n, facet=column(n.facet)))
    original = None if decision.original is None else column(decision.original)
    return replace(decision, new=tuple(new.values()), original=original)


def _refuse(
    field: FieldDecision, decision: Decision, no_room: frozenset[Facet], target: Target, context: Context
) -> tuple[FieldDecision, tuple[Conflict, ...]]:
    """Remove refused values from the field, or send those without room to the rest, if it takes them."""
    if not decision.refused:
        return field, ()
    # Only types without room may wait in the rest. What a policy refuses, it refuses with its record.
    to_rest = no_room if context.settings.beyond == "rest" and field.policy.keeps_all else frozenset()
    columns = [*field.facets, *(n.facet for n in decision.new)]
    conflicts = tuple(
        _conflict(field, refusal, columns, target.data_path, limit=refusal.facet in no_room)
        for refusal in decision.refused
        if refusal.facet not in to_rest
    )
    refused = frozenset(r.facet for r in decision.refused if r.inexact is None)
    inexact = frozenset(r.facet for r in decision.refused if r.inexact is not None)
    field = replace(field, shape=without(field.shape, refused - to_rest)) if refused - to_rest else field
    return field.sending(refused & to_rest, inexact=inexact & to_rest), conflicts


def _conflict(
    field: FieldDecision, refusal: Refusal, columns: Sequence[Facet], data_path: Path, *, limit: bool
) -> Conflict:
    profile = field.shape.facets[refusal.facet]
    table_type = ", ".join(c.spelled() for c in columns) or NO_COLUMN
    return Conflict(
        data_path,
        table_type,
        refusal.facet,
        refusal.why,
        profile.sample,
        profile.location,
        refusal.inexact,
        field.unit,
        limit,
    )


def _retype(target: Target, decision: Decision) -> tuple[tuple[Type, ...], tuple[Change, ...]]:
    """Return the new column types, and the changes that lead to them."""
    types, changes = list(target.types), []
    for i, retyped in enumerate(decision.columns):
        if retyped is not None:
            types[i], change = _retyped(target, i, retyped)
            changes.append(change)
    return tuple(types), tuple(changes)


def _reason(rule: str, why: str, path: Path, cause: Profile) -> Reason:
    return Reason(rule, why, path, cause.sample, cause.location, cause.sampled)


def _retyped(target: Target, i: int, retyped: Retyped) -> tuple[Type, Change]:
    base, path, type_ = retyped.facet.base, target.paths[i], target.types[i]
    assert isinstance(base, Primitive), base
    wider = with_base(type_, base)
    rule = "rewrite" if retyped.rewrite else "widen-in-place"
    reason = _reason(rule, retyped.why, target.data_path, retyped.cause)
    if retyped.rewrite:
        return wider, RewriteColumn(path, wider, reason)
    return wider, WidenColumn(inside(path, type_), base, reason)


def _with_maps(
    field: FieldDecision, target: Target, verdict: MapVerdict | None, context: Context
) -> FieldDecision:
    """Add the field's map columns, by type of key, at the largest dimension of such maps."""
    columns = field.facets
    dims = _dimensions(field, columns)
    for base in sorted(dims, key=lambda b: (dims[b], str(b))):
        field = _with_map(field, Facet(dims[base], base), target, verdict, context)
    return field


def _dimensions(field: FieldDecision, columns: Sequence[Facet]) -> dict[MapOf, int]:
    """Return the kinds of maps the field has, each with its largest dimension."""
    dims: dict[MapOf, int] = {}
    for facet, profile in field.shape.facets.items():
        if isinstance(facet.base, MapOf) and not any(
            preserve.holds_whole(c, facet, profile) for c in columns
        ):
            dims[facet.base] = max(facet.dim, dims.get(facet.base, 0))
    for type_, column in zip(field.types, columns, strict=True):
        if isinstance(column.base, MapOf) and hollow(type_):
            # A declared map gets its values' settings, seen or not
            dims.setdefault(column.base, column.dim)
    return dims


def _with_map(
    field: FieldDecision, map_facet: Facet, target: Target, verdict: MapVerdict | None, context: Context
) -> FieldDecision:
    """Add the field's maps of one kind: a new column for their values is a new map here."""
    dim, base = map_facet.dim, map_facet.base
    assert isinstance(base, MapOf)
    columns = field.facets
    holding = [i for i, c in enumerate(columns) if c.base == base and c.dim >= dim]
    # The values of all map columns of one kind are planned as one field, since each fills all that it fits.
    values = Target(
        tuple(value_of(field.types[i]) for i in holding),
        tuple((*inside(target.paths[i], field.types[i]), "value") for i in holding),
        (*target.data_path, "value"),
        target.is_new or not holding,
    )
    field_settings = field.settings.inside(dim).of("value")
    value = decide_field(values, _shape_of_values(field.shape, base), field_settings, context)
    if value.to_rest and not (holding or value.new):
        field = field.sending(frozenset(f for f in field.shape.facets if f.base == base))
    types = list(field.types)
    for i, type_ in zip(holding, value.types, strict=True):
        types[i] = with_value(types[i], type_)
    new, original = list(field.new), field.original
    for stub, reason in value.new:
        if types and not holding:
            reason = replace(reason, rule="sibling", why=preserve.unfit(map_facet, columns))
        elif verdict is not None:
            reason = replace(reason, rule="map", why=str(verdict))
        map_type = wrap(Map(base.key, stub), dim)
        new.append((map_type, replace(reason, field=target.data_path)))
        has_record = original is not None and facet_of(original).base == RECORD
        if not types and not has_record and stub == value.original:
            original = map_type
    return replace(
        field, types=tuple(types), new=tuple(new), original=original, values={**field.values, base: value}
    )


def _shape_of_values(shape: FieldShape, base: MapOf) -> FieldShape:
    """Return the observed shape of the values in the maps of one kind."""
    merged = FieldShape(shape.location)
    for facet, profile in shape.facets.items():
        merged = merged.merge(profile.value) if facet.base == base and profile.value else merged
    return merged
