"""Records without a value by which rows are known or ordered (section 11): each is refused."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.core.planning.contract import Contract
from driftline.core.planning.policies.by_kind import KEY, ORDER
from driftline.core.planning.routes import Conflict
from driftline.core.planning.shape import RECORD, Facet, FieldShape, RecordShape
from driftline.core.schema.place import Place
from driftline.core.schema.types import Path


def lacking(shape: RecordShape, contract: Contract, parent: Path = ()) -> Iterator[Conflict]:
    """The refusals of records that lack a key or an order. ``parent``: the path of the records.

    A value of a wrong type is refused by its policy, except where a record should stand.
    """
    if not shape.fields:
        return
    for key, child in contract.fields.items():
        if not child.needed:
            continue
        path, role = (*parent, key), _role(child)
        field = shape.fields.get(key) or FieldShape(Place(), absent=True, missing=True)
        if field.missing or field.empty_lists or field.empty_record or not field.facets:
            # A field that has values somewhere has its place there.
            place = field.place if not field.facets else Place()
            yield Conflict(path, f"the {role}", None, f"{role}: no value", "", place, nan=True)
        if child.role:
            continue
        for facet, profile in field.facets.items():
            if facet == Facet(0, RECORD) and profile.record is not None:
                yield from lacking(profile.record, child, path)
            else:
                yield Conflict(
                    path, f"the {role}", facet, f"{role}: no object", profile.sample, profile.place
                )


def _role(contract: Contract) -> str:
    """The role of the field, or of those below it."""
    if contract.role:
        return contract.role
    return KEY if KEY in map(_role, contract.fields.values()) else ORDER
