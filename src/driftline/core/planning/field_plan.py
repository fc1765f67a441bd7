"""The question and the answer about one field, and the names of its new columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.changes import Reason
from driftline.core.planning.findings import NOTHING, Findings
from driftline.core.planning.objects import FixedKeys
from driftline.core.planning.policies.policy import Policy
from driftline.core.planning.routes import Settings, facet_of
from driftline.core.planning.shape import Facet, FieldShape, MapOf, RecordShape
from driftline.core.schema.naming import Names, mark, safe, suffix
from driftline.core.schema.types import Field, Path, Place, Schema, Struct, Type
from driftline.core.settings.fields import Contract


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a whole plan. ``refused``: types of fields that get no new column, and why;
    ``not_rewritten``: columns that must not be rewritten.
    """

    settings: Settings
    schema: Schema
    refused: Mapping[tuple[Path, Facet], str] = field(default_factory=dict)
    not_rewritten: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a field's or a map's values: columns of ``types``, at ``paths`` of the schema.

    ``data_path``: the values' path in the data; ``is_new``: the struct or map is created by this batch;
    ``may_wait``: the table lacks the field, so it waits in the rest where new fields are held; ``must_wait``:
    its key is too long for a column's doc; ``never``: its key is empty, so it waits whatever the policy.
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
    """A decided field, or a map's decided values: the ``types`` of the existing columns, and the new ones.

    ``original``: the type of the new column that takes the field's own name. ``values``: of its maps.
    ``fixed_keys``: the keys of its structs that get no more columns. ``to_rest``: types whose values go to
    the rest.
    """

    types: tuple[Type, ...]
    shape: FieldShape
    contract: Contract
    policy: Policy
    new: tuple[tuple[Type, Reason], ...] = ()
    original: Type | None = None
    values: Mapping[MapOf, FieldDecision] = field(default_factory=dict)
    fixed_keys: FixedKeys = FixedKeys.none
    to_rest: frozenset[Facet] = frozenset()
    findings: Findings = NOTHING

    @property
    def unit(self) -> str:
        """The unit of its epoch times; ``ms`` by default."""
        return self.contract.epoch_unit or "ms"

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
        """Send the values of these types to the rest; of ``inexact`` types only those that do not fit."""
        if not facets and not inexact:
            return self
        return replace(self, shape=without(self.shape, facets), to_rest=self.to_rest | facets | inexact)


def without(shape: FieldShape, facets: frozenset[Facet]) -> FieldShape:
    """The shape without these types."""
    if not facets:
        return shape
    return replace(shape, facets={f: profile for f, profile in shape.facets.items() if f not in facets})


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to be made: its type without anything nested, and its cause. ``natural``: it has the field's
    own name; ``comment``: its doc.
    """

    key: str
    stub: Type
    reason: Reason
    natural: bool
    comment: str = ""


def in_order(
    shape: RecordShape, contract: Contract, *, empty_names: bool = False
) -> list[tuple[str, FieldShape]]:
    """The observed fields in the order of the data, then the declared ones.

    ``empty_names``: that of the empty key too.
    """
    fields = shape.kept(empty_names=empty_names)
    shapes = dict(sorted(fields.items(), key=lambda f: (f[1].place, f[0])))
    for key, child in contract.fields.items():
        if child.hint is not None and not child.excluded:
            shapes.setdefault(key, FieldShape(Place(), absent=True, missing=True))
    return list(shapes.items())


def declared(key: str, columns: Sequence[Field], contract: Contract, data_path: Path) -> list[NewColumn]:
    """The column that a hint declares, unless the field has it."""
    hint = contract.hint
    if hint is None or facet_of(hint) in [facet_of(c.type) for c in columns]:
        return []
    why = "declared by a hint"
    if columns:
        older = ", ".join(c.name for c in columns)
        why += f"; older values stay in {older}, until driftline resolve makes one column"
    return [NewColumn(key, hint, Reason("hint", why, data_path), not columns)]


def named_columns(struct: Struct, drafts: Sequence[NewColumn], prefix: str) -> list[Field]:
    """The new columns of a struct, in the order of the drafts.

    Names are given to natural columns first, in code point order (seed rules 4, 5). ``prefix``: of the mark
    in their docs.
    """
    if not drafts:
        return []
    names = Names.of(struct)
    columns: dict[int, Field] = {}
    evolved = []
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
