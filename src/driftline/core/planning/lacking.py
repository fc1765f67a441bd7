"""Records without a value by which rows are known or ordered (section 11): each is refused."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.core.planning.contract import Contract
from driftline.core.planning.policies.by_kind import KEY, ORDER
from driftline.core.planning.routes import Conflict
from driftline.core.planning.shape import RECORD, Facet, FieldShape, RecordShape
from driftline.core.schema.place import Place
from driftline.core.schema.types import Path


def lacking(shape: RecordShape, contract: Contract, at: Path = ()) -> Iterator[Conflict]:
    """The refusals of records that lack a key or an order. ``at``: the path of the records.

    A value of a wrong type is refused by its policy, except where a record should stand.
    """
    if not shape.fields:
        return
    for key, below in contract.fields.items():
        if not below.needed:
            continue
        path, role = (*at, key), _role(below)
        field = shape.fields.get(key) or FieldShape(Place(), absent=True, missing=True)
        if field.missing or field.empty_lists or field.empty_record or not field.facets:
            # A field that has values somewhere has its place there.
            place = field.place if not field.facets else Place()
            yield Conflict(path, f"the {role}", None, f"{role}: no value", "", place)
        if below.role:
            continue
        for facet, seen in field.facets.items():
            if facet == Facet(0, RECORD) and seen.record is not None:
                yield from lacking(seen.record, below, path)
            else:
                yield Conflict(path, f"the {role}", facet, f"{role}: no object", seen.sample, seen.place)


def _role(contract: Contract) -> str:
    """The role of the field, or of those below it."""
    if contract.role:
        return contract.role
    return KEY if KEY in map(_role, contract.fields.values()) else ORDER
