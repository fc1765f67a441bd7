"""Notes on fields that need no column: conversions, untyped values, hints."""

from __future__ import annotations

from collections.abc import Sequence

from driftline.core.planning.contract import Contract, toml_line
from driftline.core.planning.field_plan import FieldDecision
from driftline.core.planning.findings import NOTHING, Findings
from driftline.core.planning.map_hints import map_type
from driftline.core.planning.maps import as_map, entries_of
from driftline.core.planning.routes import Conversion, facet_of
from driftline.core.planning.shape import RECORD, Facet, MapOf, RecordShape
from driftline.core.planning.stubs import stub_of
from driftline.core.schema.types import VARIANT, Path, dotted

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
    verdict, type_ = as_map(entries_of([shape])), map_type(shape)
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
