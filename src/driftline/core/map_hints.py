"""The type that a hint would give a struct whose keys are data."""

from __future__ import annotations

from driftline.core.conversions import join
from driftline.core.schema_json import type_name
from driftline.core.shape import RecordShape
from driftline.core.types import Primitive, wrap


def map_type(shape: RecordShape) -> str | None:
    """The map type that records of this shape could have; None where no one type holds all values."""
    facets = {facet for field in shape.fields.values() for facet in field.facets}
    if facets and all(not isinstance(f.base, Primitive) for f in facets) and len(facets) == 1:
        (facet,) = facets
        return f"map<string, {facet.spelled()}>"
    bases = [f.base for f in facets if isinstance(f.base, Primitive)]
    common = join(bases)
    if common is None or len(bases) < len(facets):
        return None
    return f"map<string, {type_name(wrap(common, max(f.dim for f in facets)))}>"
