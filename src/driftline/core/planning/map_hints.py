"""What a person is told of objects whose keys are data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driftline.core.planning.conversions import join
from driftline.core.planning.maps import Verdict
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Path, Primitive, dotted, wrap

_ALIKE = 3  # paths that differ in one step, from which on they are told in one line


def notes_of_maps(maps: Mapping[Path, Verdict]) -> Iterator[str]:
    """A line for each object that became a map, and how to say no; one for paths that differ in their last but one step.

    >>> list(notes_of_maps({("h", name, "values"): Verdict("its keys look like data", ("0", "1")) for name in "abc"}))
    ['h.*.values are maps (3 paths), its keys look like data: 0, 1; maps.h.a.values = "off" keeps a struct, and so on']
    """
    groups: dict[tuple[Path, str], list[Path]] = {}
    for path in maps:
        groups.setdefault((path[:-2], path[-1]), []).append(path)
    for (above, last), paths in groups.items():
        if len(paths) >= _ALIKE and len(paths[0]) > 1:
            pattern = f"{dotted((*above, '*', last))} are maps ({len(paths)} paths)"
            yield f'{pattern}, {maps[paths[0]]}; maps.{dotted(paths[0])} = "off" keeps a struct, and so on'
            continue
        for path in paths:
            is_what = "a struct of words and a map of its other keys" if maps[path].apart else "a map"
            yield f'{dotted(path)} is {is_what}, {maps[path]}; maps.{dotted(path)} = "off" keeps a struct'


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
