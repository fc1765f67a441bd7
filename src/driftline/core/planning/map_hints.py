"""Hints to a person about objects whose keys are data."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.core.planning.contract import toml_line
from driftline.core.planning.conversions import join
from driftline.core.planning.maps import MapVerdict
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Path, Primitive, dotted, wrap

_ALIKE = 3  # paths that differ in one step, from which on one line reports them


def notes_of_maps(maps: Mapping[Path, MapVerdict]) -> list[str]:
    """For each object that became a map, the setting that would keep it a struct, and the reason; outermost
    first.

    Paths that differ only in their last but one step share one.

    >>> verdict = MapVerdict("its keys look like data", ("0", "1"))
    >>> notes_of_maps({("h", name, "values"): verdict for name in "abc"})
    ['maps.h = "off"  # keeps structs: h.*.values are maps (3 paths), its keys look like data: 0, 1']
    """
    groups: dict[tuple[Path, str], list[Path]] = {}
    for path in maps:
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
