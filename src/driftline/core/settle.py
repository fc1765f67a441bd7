"""What of a shape depends on the field's columns, decided: objects as maps, dates, numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driftline.core.policies import preserve
from driftline.core.shape import NUMBER_TEXT, RECORD, Facet, FieldShape, MapOf, Seen
from driftline.core.slots import takes
from driftline.core.types import STRING, Primitive


def settled(seen: FieldShape, columns: Sequence[Facet], policy: str) -> FieldShape:
    """The shape with what depends on the field's columns decided: objects as maps, dates, numbers as text."""
    facets = _objects_as_maps(seen, columns)
    facets = preserve.dates_settled(facets, columns)
    out = FieldShape(seen.place, {}, seen.empty_lists, seen.empty_record, seen.missing, seen.absent)
    for facet, kept in facets.items():
        if facet.base == NUMBER_TEXT:
            facet, kept = Facet(facet.dim, STRING), replace(kept, digits=True)
        if _holds_type(facet, kept) or any(takes(policy, c, facet, kept) for c in columns):
            out.add(facet, kept)
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
    inner = [*(seen.record.fields.values() if seen.record else ()), *([seen.value] if seen.value else ())]
    return any(_holds_type(*item) for field in inner for item in field.facets.items())


def _objects_as_maps(seen: FieldShape, columns: Sequence[Facet]) -> dict[Facet, Seen]:
    """A JSON object is a map where the field has a map column with keys of text ("Maps")."""
    if MapOf(STRING) not in {c.base for c in columns}:
        return dict(seen.facets)
    out: dict[Facet, Seen] = {}
    for facet, kept in seen.facets.items():
        if facet.base == RECORD and not kept.typed and kept.record is not None:
            values = list(kept.record.fields.values())
            value = FieldShape(kept.place)
            for v in values:
                value = value.merge(v)
            facet, kept = Facet(facet.dim, MapOf(STRING)), replace(kept, record=None, value=value)
        out[facet] = out[facet].merge(kept) if facet in out else kept
    return out
