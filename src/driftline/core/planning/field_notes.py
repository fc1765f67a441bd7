"""Notes to a person on fields: conversions, untyped values, hints, keys that are data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driftline.core.planning.conversions import join
from driftline.core.planning.field_plan import FieldDecision
from driftline.core.planning.findings import NOTHING, Findings
from driftline.core.planning.maps import MapVerdict, as_map, entries_of
from driftline.core.planning.routes import Conversion, facet_of, stub_of
from driftline.core.planning.shape import RECORD, Facet, MapOf, RecordShape
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import VARIANT, Path, Primitive, dotted, wrap
from driftline.core.settings.fields import Contract, toml_line

_ONE_OR_MANY = {Facet(0, RECORD), Facet(1, RECORD)}


def notes_of(field: FieldDecision, columns: Sequence[Facet], data_path: Path) -> Findings:
    """The notes of one field. ``columns``: those it had before."""
    all_columns = [*columns, *(facet_of(t) for t, _ in field.new)]
    converted = _converted(field, columns, all_columns, data_path) if columns else ()
    if field.to_rest or any(c.base == VARIANT and not c.dim for c in all_columns):
        return Findings(converted=converted) if converted else NOTHING  # it holds whatever it is
    untyped = (data_path,) if _is_untyped(field, columns, all_columns) else ()
    hints: tuple[str, ...] = ()
    if set(all_columns) >= _ONE_OR_MANY and not set(columns) >= _ONE_OR_MANY:
        why = f"{dotted(data_path)} is an object or a list of objects: so it would become one"
        hints = (toml_line("hints", data_path, "list<record>", why),)
    if not (converted or untyped or hints):
        return NOTHING
    return Findings(converted=converted, untyped=untyped, hints=hints)


def hint_of_keys(data_path: Path, shape: RecordShape, contract: Contract) -> Findings:
    """Point out a growing struct whose keys look like data."""
    if not data_path or contract.maps != "hint":
        return NOTHING
    verdict, type_ = as_map(entries_of([shape])), _map_type(shape)
    if verdict is None or verdict.apart or type_ is None:
        return NOTHING
    why = f"makes {dotted(data_path)} a map, {verdict}"
    return Findings(hints=(toml_line("hints", data_path, type_, why),))


def _converted(
    field: FieldDecision, columns: Sequence[Facet], all_columns: Sequence[Facet], data_path: Path
) -> tuple[Conversion, ...]:
    """The types without a column of their own that some column takes exactly."""
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
    """True if the field held only values of no known type: null, ``[]`` or ``{}``."""
    shape = field.shape
    nothing = not shape.facets and not columns
    listless = shape.empty_lists > max((c.dim for c in all_columns), default=0)
    recordless = shape.empty_record and not any(
        isinstance(c.base, MapOf) or c.base == RECORD for c in all_columns
    )
    return nothing or listless or recordless


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


def _map_type(shape: RecordShape) -> str | None:
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
