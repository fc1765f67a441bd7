"""What of a shape depends on the field's columns, decided: dates, numbers as text, objects of nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from driftline.core.planning.maps import as_map, entries_of
from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.policy import Policy
from driftline.core.planning.shape import NUMBER_TEXT, Facet, FieldShape, RecordShape, Seen
from driftline.core.schema.types import STRING, Primitive


def settled(seen: FieldShape, columns: Sequence[Facet], policy: Policy) -> FieldShape:
    """The shape with what depends on the field's columns decided:
    dates, numbers as text, objects of nothing.
    """
    facets = preserve.dates_settled(seen.facets, columns)
    out = seen.bare()
    for facet, shown in facets.items():
        if facet.base == NUMBER_TEXT:
            facet, shown = Facet(facet.dim, STRING), replace(shown, digits=True)
        if _holds_type(facet, shown) or any(policy.takes(c, facet, shown) for c in columns):
            out.add(facet, shown)
        else:
            # An object of nothing but null is as good as {}: a struct without fields cannot be written.
            out.empty_record, out.empty_lists = True, max(out.empty_lists, facet.dim)
    # The order of the data, whatever the order of merging was.
    out.facets = dict(
        sorted(out.facets.items(), key=lambda f: (f[1].place, f[1].typed and f[1].digits, str(f[0])))
    )
    return out


def _holds_type(facet: Facet, seen: Seen) -> bool:
    """Whether the facet holds, at any depth, a value that has a type."""
    if isinstance(facet.base, Primitive):
        return True
    inner = [*(_fields(seen.record) if seen.record else ()), *([seen.value] if seen.value else ())]
    return any(_holds_type(*item) for field in inner for item in field.facets.items())


def _fields(record: RecordShape) -> Iterable[FieldShape]:
    """The fields that may hold a value: the empty key does where the record may become a map."""
    keeps_all = "" in record.fields and as_map(entries_of([record])) is not None
    return (record.fields if keeps_all else record.named()).values()
