"""The `widen` policy: one column per field, which grows by the matrix "Widening Column Types".

Whatever the matrix marks X or omits is refused, and so is a value that is not exact in the cell's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driftline.core.planning.conversions import exact, narrows, widens_in_place
from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.policy import Decision, FieldState, New, Refusal, Retyped
from driftline.core.planning.policies.preserve import DATELIKE
from driftline.core.planning.shape import Facet, Profile
from driftline.core.schema.types import (
    BIG_DECIMAL,
    BIG_INTEGER,
    BINARY,
    JSON,
    STRING,
    UUID,
    VARIANT,
    WIDER,
    Primitive,
)

X = None
# Incoming type: the table's type afterwards, by the table's type now.
MATRIX: dict[str, dict[str, str | None]] = {
    "int": {"int": "int", "long": "long", "float": "float", "double": "double", "string": "string", "binary": X},
    "long": {"int": "long", "long": "long", "float": "float", "double": "double", "string": "string", "binary": X},
    "float": {"int": "float", "long": "float", "float": "float", "double": "double", "string": "string", "binary": X},
    "double": {"int": "double", "long": "double", "float": "double", "double": "double", "string": "string", "binary": X},
    "string": {"int": "string", "long": "string", "float": "string", "double": "string", "string": "string", "binary": "binary"},
    "binary": {"int": X, "long": X, "float": X, "double": X, "string": "string", "binary": "binary"},
}  # fmt: skip


class Widen:
    """One column for each field, which grows by the matrix; values that it does not take are refused."""

    name = "widen"
    keeps_all = False
    makes_columns = True

    def decide(self, field: FieldState) -> Decision:
        """Decide the field by `decide`; refuse a new field with a reserved name."""
        if field.reserved and not field.columns:
            why = "names that begin with _ are only possible in the table's first batch"
            return Decision((), refused=[Refusal(facet, why) for facet in field.facets])
        return decide(field)

    def takes(self, column: Facet, facet: Facet, profile: Profile) -> bool:
        """True if `takes` allows it by the matrix, for the values as observed."""
        return takes(column, facet, profile)

    def accepts(self, column: Facet, facet: Facet, profile: Profile, unit: str) -> bool:
        """True if `accepts` finds each value exact in the column; the epoch unit does not matter."""
        del unit
        return accepts(column, facet, profile)

    def keeps_required(self, *, absent: bool) -> str:
        """The reason to refuse records if all lack the key; otherwise the column becomes optional."""
        return "a required column that no record of the batch has" if absent else ""


def takes(column: Facet, facet: Facet, profile: Profile) -> bool:
    """True if the column stores values of the facet as it is."""
    if column.base in (VARIANT, JSON):
        return preserve.accepts(column, facet, profile, "ms")
    if profile.ragged or column.dim != facet.dim:
        return False
    if column.base == facet.base or _json_text(column, facet, profile) or _narrows(column, facet):
        return True
    if (facet.base, column.base) == (UUID, STRING):  # all that a DuckLake has for it
        return True
    return _cell(column, facet) == column


def accepts(column: Facet, facet: Facet, profile: Profile) -> bool:
    """True if the column stores every value of the facet exactly."""
    return takes(column, facet, profile) and _exact(column, facet, profile)


def decide(field: FieldState) -> Decision:
    """Decide the columns of a field.

    Pinned columns never change. A cell may need a rewrite of the column, where that is allowed. At
    first sight the facet that comes first is the column's.
    """
    # Later types of the same batch are judged as those of a later batch, so the size of batches decides
    # nothing.
    # So `1` followed by `2.5` needs `allow_rewrite` or a hint even in a table's first batch.
    first = next(iter(field.facets), None)
    if field.columns or first is None:
        _, changed, refused = _widened(field)
        return Decision(changed, refused=refused)
    (column,), _, refused = _widened(replace(field, columns=[first], pinned=[False]))
    return Decision((), (New(column, "first-sight", "first seen", field.facets[first]),), column, refused)


def _widened(field: FieldState) -> tuple[list[Facet], list[Retyped | None], list[Refusal]]:
    """The field's final columns, the change of each, and the refusals."""
    now = list(field.columns)
    changed: list[Retyped | None] = [None] * len(now)
    refused: dict[Facet, Refusal] = {}
    for facet, profile in field.facets.items():
        if any(takes(column, facet, profile) for column in now):
            continue
        i, wider = _target(now, field.pinned, facet, profile)
        if wider is None or not ((field.rewrite and not field.fixed) or _in_place(now[i], wider)):
            why = _why(facet, profile, now, wider, is_fixed=field.rewrite and field.fixed)
            refused[facet] = Refusal(facet, why)
        else:
            before = changed[i]
            # One step of a batch that needs a rewrite makes the whole change one.
            written = (before is not None and before.rewrite) or not _in_place(now[i], wider)
            why = f"{facet.spelled()} into {now[i].spelled()} gives {wider.spelled()}"
            now[i], changed[i] = wider, Retyped(wider, why, profile, written)
    inexact = [_inexact(now, f, profile) for f, profile in field.facets.items() if f not in refused]
    return now, changed, [*refused.values(), *(refusal for refusal in inexact if refusal is not None)]


def _inexact(columns: Sequence[Facet], facet: Facet, profile: Profile) -> Refusal | None:
    """Refuse the values that are not exact in the column that takes the facet."""
    if any(accepts(column, facet, profile) for column in columns):
        return None
    holder = next(column for column in columns if takes(column, facet, profile))
    return Refusal(facet, f"a value of {facet.spelled()} is not exact in {holder.spelled()}", holder)


def _target(
    columns: Sequence[Facet], pinned: Sequence[bool], facet: Facet, profile: Profile
) -> tuple[int, Facet | None]:
    """The column that the facet would change, and its new type."""
    for i, column in enumerate(columns):
        if not pinned[i] and not profile.ragged and column.dim == facet.dim:
            wider = _cell(column, facet)
            if wider is not None:
                return i, wider
    return 0, None


def _cell(column: Facet, facet: Facet) -> Facet | None:
    if not (isinstance(column.base, Primitive) and isinstance(facet.base, Primitive)):
        return None
    name = MATRIX.get(facet.base.name, {}).get(column.base.name)
    return None if name is None else Facet(column.dim, Primitive(name))


def _in_place(column: Facet, wider: Facet) -> bool:
    return (
        isinstance(column.base, Primitive)
        and isinstance(wider.base, Primitive)
        and (column == wider or widens_in_place(column.base, wider.base))
    )


def _narrows(column: Facet, facet: Facet) -> bool:
    is_plain = isinstance(column.base, Primitive) and isinstance(facet.base, Primitive)
    return is_plain and narrows(facet.base, column.base)  # type: ignore[arg-type]


def _json_text(column: Facet, facet: Facet, profile: Profile) -> bool:
    """True for JSON text or numbers in a column of text.

    JSON has one kind of text and one of number: a text like a date, or a number too large for a long, is no
    type of its own there.
    """
    if profile.typed:
        return False
    # JSON has one kind of number, so only text takes one that is too large.
    if facet.base in (BIG_INTEGER, BIG_DECIMAL):
        return column.base == STRING
    return facet.base in DATELIKE and column.base in (STRING, BINARY)


def _exact(column: Facet, facet: Facet, profile: Profile) -> bool:
    if not (isinstance(column.base, Primitive) and isinstance(facet.base, Primitive)):
        return True
    match facet.base.name, column.base.name:
        case "int" | "long", "float":
            return profile.typed and not profile.lossy
        case "long", "double":
            return not profile.wide
        case "binary", "string":
            return not profile.lossy
        case _ if column.base.name in WIDER:
            return exact(facet.base, column.base, profile)
        case _:
            return True


def _why(
    facet: Facet, profile: Profile, columns: Sequence[Facet], wider: Facet | None, *, is_fixed: bool
) -> str:
    if profile.ragged:
        return f"{facet.spelled()} of mixed depth changes the structure"
    types = ", ".join(c.spelled() for c in columns)
    if wider is not None:
        remedy = "set allow_rewrite = true"
        if is_fixed:
            remedy = "values that are there would change, or the table is laid out by the column"
        return f"{facet.spelled()} makes {types} a {wider.spelled()}, which takes a rewrite: {remedy}"
    return f"{facet.spelled()} is incompatible with {types}"
