"""Column policy for key and order fields (section 11): values of one kind share a column.

The kinds of a key are numbers, texts, booleans and bytes. Each has columns of its own, since 7 and "7" are
two keys. The kinds of an order are numbers, moments and texts, of which a table has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from driftline.core.planning.conversions import NUMBERS, exact
from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.policy import Decision, Facets, FieldState, New, Refusal, Retyped
from driftline.core.planning.shape import Facet, Profile
from driftline.core.schema.types import STRING, Primitive
from driftline.core.settings.row_key import KEY, ORDER

MOMENTS = ("date", "timestamp", "timestamp_ntz")


def key_kind(type_: Primitive) -> str | None:
    """The kind of key that values of a type are; None: no key.

    >>> from driftline.core.schema.types import DATE, DOUBLE, LONG, VARIANT
    >>> [key_kind(t) for t in (LONG, DOUBLE, DATE, STRING, VARIANT)]
    ['number', 'number', 'text', 'text', None]
    """
    if type_.name in NUMBERS:
        return "number"
    if type_.name in ("boolean", "binary"):
        return type_.name
    if type_.name == "fixed":
        return "binary"
    return "text" if type_.name in ("string", "uuid", "time", *MOMENTS) else None


def order_kind(type_: Primitive) -> str | None:
    """The kind of order that values of a type have; None: no order.

    >>> from driftline.core.schema.types import BOOLEAN, DATE, LONG
    >>> [order_kind(t) for t in (LONG, DATE, STRING, BOOLEAN)]
    ['number', 'moment', 'text', None]
    """
    if type_.name in NUMBERS:
        return "number"
    if type_.name in MOMENTS:
        return "moment"
    return "text" if type_.name in ("string", "time", "uuid") else None


@dataclass(frozen=True, slots=True)
class ByKind:
    """Columns for values of each ``kind``; with ``one`` of a single kind.

    Attributes:
        role: of the field.
    """

    role: str
    kind: Callable[[Primitive], str | None]
    one: bool = False
    name = "by kind"
    keeps_all = False
    makes_columns = True

    def read(self, facets: Facets, columns: Sequence[Facet]) -> dict[Facet, Profile]:
        """The types of the values as they count here: texts of a key are no dates, whatever the batch has.

        Those of an order are moments where the table is ordered by moments, or by nothing yet.
        """
        if self.one and (not columns or any(c.base in preserve.DATELIKE for c in columns)):
            return preserve.dates_normalised(facets, columns)
        return preserve.dates_as_text(facets)

    def decide(self, field: FieldState) -> Decision:
        """Give the values of each kind columns of their own; refuse those of no kind, or of another one."""
        kinds = self._kinds(field)
        changed: list[Retyped | None] = [None] * len(field.columns)
        new: list[New] = []
        for kind in kinds:
            places, decision = self._of_kind(field, kind)
            for place, retyped in zip(places, decision.columns, strict=True):
                changed[place] = retyped
            new += [_beside(n, field.columns) for n in decision.new if self._kind_of(n.facet) == kind]
        refused = tuple(self._refused(field.facets, kinds))
        original = preserve.original([n.facet for n in new]) if new and not field.columns else None
        return Decision(changed, tuple(new), original, refused)

    def _kinds(self, field: FieldState) -> list[str]:
        """The kinds that the field has columns for, or gets them."""
        facets = (*field.columns, *field.facets)
        # The table's columns come first: the order that it has decides, and in a new table the first value.
        kinds = list(dict.fromkeys(kind for f in facets if (kind := self._kind_of(f)) is not None))
        return kinds[:1] if self.one else kinds

    def _of_kind(self, field: FieldState, kind: str) -> tuple[list[int], Decision]:
        """The places of the columns of a kind, and the decision about its values."""
        places = [i for i, column in enumerate(field.columns) if self._kind_of(column) == kind]
        part = replace(
            field,
            columns=[field.columns[i] for i in places],
            pinned=[field.pinned[i] for i in places],
            facets={
                facet: profile for facet, profile in field.facets.items() if self._kind_of(facet) == kind
            },
        )
        # Of numbers one column may hold another's values exactly, so the usual rules choose the columns.
        if kind == "number":
            return places, preserve.decide(part)
        return places, Decision([None] * len(places), tuple(self._missing(part)))

    def _missing(self, field: FieldState) -> Iterator[New]:
        """A column for each type that no column takes."""
        for facet, profile in field.facets.items():
            if not any(self.accepts(column, facet, profile, field.unit) for column in field.columns):
                yield New(facet, "first-sight", "first seen", profile)

    def _refused(self, facets: Facets, kinds: Sequence[str]) -> Iterator[Refusal]:
        for facet in facets:
            kind = self._kind_of(facet)
            if kind is None:
                yield Refusal(facet, f"{self.role}: a {facet.spelled()} is no {self.role}")
            elif kind not in kinds:
                yield Refusal(facet, f"{self.role}: a {kind}, and the table is ordered by a {kinds[0]}")

    def takes(self, column: Facet, facet: Facet, profile: Profile) -> bool:
        """True if the column has values of this kind, and the facet's are exact in it as a rule."""
        del profile
        kind = self._kind_of(facet)
        if kind is None or kind != self._kind_of(column):
            return False
        if kind in ("number", "moment"):
            return preserve.takes(column, facet, routing=False)
        return column.base in (facet.base, STRING) or kind == "binary"

    def accepts(self, column: Facet, facet: Facet, profile: Profile, unit: str) -> bool:
        """True if the column takes every value of the facet exactly."""
        return (
            self.takes(column, facet, profile)
            and isinstance(facet.base, Primitive)
            and isinstance(column.base, Primitive)
            and exact(facet.base, column.base, profile, unit)
        )

    def keeps_required(self, *, absent: bool) -> str:
        """The reason to refuse records without a value."""
        del absent
        return f"{self.role}: no value"

    def _kind_of(self, facet: Facet) -> str | None:
        return self.kind(facet.base) if not facet.dim and isinstance(facet.base, Primitive) else None


def _beside(new: New, columns: Sequence[Facet]) -> New:
    """The new column, as a sibling if the field has columns already."""
    return replace(new, rule="sibling", why=preserve.unfit(new.facet, columns)) if columns else new


ROLES = {KEY: ByKind(KEY, key_kind), ORDER: ByKind(ORDER, order_kind, one=True)}
