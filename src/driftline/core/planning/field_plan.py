"""What a planner holds of a record while it settles it: the places for
values, the columns to be made, their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from driftline.core.changes import Reason
from driftline.core.planning.contract import Contract
from driftline.core.planning.maps import Verdict
from driftline.core.planning.objects import Closed
from driftline.core.planning.policies import preserve, widen
from driftline.core.planning.policies.decision import Refusal
from driftline.core.planning.routes import facet_of
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, RecordShape, Seen
from driftline.core.schema.naming import Names, mark, safe, suffix
from driftline.core.schema.place import Place
from driftline.core.schema.types import STRING, Field, Path, Struct, Type

_MAP = MapOf(STRING)


@dataclass(slots=True)
class Slot:
    """A place that holds a value: a field, or a map's value. Its types, what was seen, the types to be made.

    ``verdict``: why its objects become a map now; ``closed``: which keys of its structs get no more columns.
    ``beyond``: types whose values go to the rest; ``no_room``: types that are beyond the table's limits.
    """

    types: list[Type]
    shape: FieldShape
    contract: Contract
    policy: str
    new: list[tuple[Type, Reason]] = field(default_factory=list)
    original: Type | None = None
    values: dict[MapOf, Slot] = field(default_factory=dict)
    verdict: Verdict | None = None
    closed: Closed = Closed.none
    beyond: frozenset[Facet] = frozenset()
    no_room: frozenset[Facet] = frozenset()

    def hold(self) -> None:
        """Sends a field that the table does not have to the rest, where new
        fields wait; what a hint declares does not.
        """
        contract = self.contract
        if contract.new_fields != "hold" or self.policy != "preserve" or contract.hint is not None:
            return
        for facet in list(self.shape.facets):
            if not (contract.declares_fields and facet.base in (RECORD, _MAP)):
                self._send(facet)

    def set_aside(self, refusal: Refusal) -> None:
        """Sends values that have no room in the table to the rest."""
        if refusal.inexact is None:
            self._send(refusal.facet)
        else:
            self.beyond |= {refusal.facet}

    def set_aside_maps(self, base: MapOf) -> None:
        """Sends maps to the rest, none of whose values has a column."""
        for facet in [f for f in self.shape.facets if f.base == base]:
            self._send(facet)

    def _send(self, facet: Facet) -> None:
        self.beyond |= {facet}
        del self.shape.facets[facet]

    @property
    def unit(self) -> str:
        return self.contract.epoch_unit or "ms"

    def takes(self, column: Facet, facet: Facet) -> bool:
        """Whether values of the facet are routed to the column."""
        return takes(self.policy, column, facet, self.shape.facets[facet])

    def accepts(self, column: Facet, facet: Facet) -> bool:
        """Whether the column takes every value of the facet, exactly."""
        by = widen.accepts if self.policy == "widen" else preserve.accepts
        return by(column, facet, self.shape.facets[facet], self.unit)


def takes(policy: str, column: Facet, facet: Facet, seen: Seen) -> bool:
    """Whether, under the policy, a field's values of the facet are routed to the column."""
    return widen.takes(column, facet, seen) if policy == "widen" else preserve.takes(column, facet)


@dataclass(slots=True)
class Draft:
    """A column to be made: its type without what is nested, its cause, and the name it got."""

    key: str
    stub: Type
    reason: Reason
    natural: bool
    column: Field = field(default_factory=lambda: Field("", STRING))


def in_order(shape: RecordShape, contract: Contract) -> list[tuple[str, FieldShape]]:
    """The fields that were seen, in the order of the data, and those that are declared."""
    fields = dict(sorted(shape.named().items(), key=lambda f: (f[1].place, f[0])))
    for key, of in contract.fields.items():
        if of.hint is not None and not of.excluded:
            fields.setdefault(key, FieldShape(Place(), absent=True, missing=True))
    return list(fields.items())


def declared(key: str, columns: Sequence[Field], contract: Contract, keys: Path) -> list[Draft]:
    """The column that a hint declares, unless the field has it."""
    hint = contract.hint
    if hint is None or facet_of(hint) in [facet_of(c.type) for c in columns]:
        return []
    return [Draft(key, hint, Reason("hint", "declared by a hint", keys), not columns)]


def name_drafts(struct: Struct, drafts: list[Draft], prefix: str) -> None:
    """Gives the new columns of a struct their names: natural ones
    first, in code point order (seed rules 4, 5).
    """
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
