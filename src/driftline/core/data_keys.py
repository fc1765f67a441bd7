"""Keys that are data: a struct that had better be a map ("Keys that are data")."""

from __future__ import annotations

import re

from driftline.core.conversions import join
from driftline.core.schema_json import type_name
from driftline.core.shape import RecordShape
from driftline.core.types import Primitive, wrap

MANY = 20  # keys that make a struct look so, if they look like ids or dates
_DATA = re.compile(
    r"\d+|\d{4}-\d\d(-\d\d.*)?|[0-9a-f]{8}-[0-9a-f]{4}-.*|(?=.*\d)[0-9a-fA-F]{8,}|[^@\s]+@[^@\s]+|.*\d{4,}.*"
)


def keys_are_data(shape: RecordShape) -> str | None:
    """The map type that a record of this shape could be, where most of its many keys look like ids or dates.

    None where they do not, or where the values are of kinds that no one type of value holds.
    """
    if len(shape.fields) < MANY:
        return None
    if sum(_DATA.fullmatch(key) is not None for key in shape.fields) < 0.8 * len(shape.fields):
        return None
    facets = {facet for field in shape.fields.values() for facet in field.facets}
    if facets and all(not isinstance(f.base, Primitive) for f in facets) and len(facets) == 1:
        (facet,) = facets
        return f"map<string, {facet.spelled()}>"
    bases = [f.base for f in facets if isinstance(f.base, Primitive)]
    common = join(bases)
    if common is None or len(bases) < len(facets):
        return None
    return f"map<string, {type_name(wrap(common, max(f.dim for f in facets)))}>"
