"""The `widen` policy: one column a field, which grows by the matrix of
stream captures ("Widening Column Types").

What the matrix marks X, and what is not in it, is refused; so is a
value that is not exact in the cell's type.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftline.core.planning.conversions import widens_in_place
from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.decision import Decision, Facets, New, Refusal, Retyped
from driftline.core.planning.policies.preserve import DATELIKE
from driftline.core.planning.shape import Facet, Seen
from driftline.core.schema.types import BIG_DECIMAL, BIG_INTEGER, BINARY, STRING, VARIANT, Primitive

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


def takes(column: Facet, facet: Facet, seen: Seen) -> bool:
    """Whether values of the facet are stored in the column as it is."""
    if column.base == VARIANT:
        return preserve.accepts(column, facet, seen, "ms")
    if seen.ragged or column.dim != facet.dim:
        return False
    if column.base == facet.base or _json_text(column, facet, seen):
        return True
    return _cell(column, facet) == column


def accepts(column: Facet, facet: Facet, seen: Seen, unit: str) -> bool:
    """Whether the column stores every value of the facet exactly."""
    del unit
    return takes(column, facet, seen) and _exact(column, facet, seen)


def decide(
    columns: Sequence[Facet], pinned: Sequence[bool], facets: Facets, *, rewrite: bool, kept: bool = False
) -> Decision:
    """The columns that a field gets. ``pinned``: columns that never change; ``rewrite``: a cell may be one
    that the format reaches only by writing the column anew, unless it is ``kept`` as it is. At first sight
    the facet that comes first is the column's.
    """
    now = list(columns)
    fixed = list(pinned)
    changed: list[Retyped | None] = [None] * len(columns)
    refused: dict[Facet, Refusal] = {}
    first = next(iter(facets), None)
    if not columns and first is not None:
        now, fixed, changed = [first], [False], [None]
    for facet, seen in facets.items():
        if any(takes(c, facet, seen) for c in now):
            continue
        i, wider = _target(now, fixed, facet, seen)
        if wider is None or not ((rewrite and not kept) or _in_place(now[i], wider)):
            refused[facet] = Refusal(facet, _why(facet, seen, now, wider, kept=rewrite and kept))
        else:
            written = (changed[i] is not None and changed[i].rewrite) or not _in_place(now[i], wider)  # type: ignore[union-attr]
            why = f"{facet.spelled()} into {now[i].spelled()} gives {wider.spelled()}"
            now[i], changed[i] = wider, Retyped(wider, why, seen, written)
    for facet, seen in facets.items():
        if facet not in refused and not any(accepts(c, facet, seen, "") for c in now):
            holder = next(c for c in now if takes(c, facet, seen))
            why = f"a value of {facet.spelled()} is not exact in {holder.spelled()}"
            refused[facet] = Refusal(facet, why, holder)
    if columns or first is None:
        return Decision(changed, refused=tuple(refused.values()))
    new = New(now[0], "first-sight", "first seen", facets[first])
    return Decision((), (new,), now[0], tuple(refused.values()))


def _target(
    columns: Sequence[Facet], pinned: Sequence[bool], facet: Facet, seen: Seen
) -> tuple[int, Facet | None]:
    """The column that the facet would change, and what it would become."""
    for i, column in enumerate(columns):
        if not pinned[i] and not seen.ragged and column.dim == facet.dim:
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


def _json_text(column: Facet, facet: Facet, seen: Seen) -> bool:
    """JSON has one kind of text and one of number: what looks like a date, or is too large for a long,
    is no type of its own to a column of text.
    """
    if seen.typed:
        return False
    if facet.base in (BIG_INTEGER, BIG_DECIMAL):
        return column.base == STRING
    return facet.base in DATELIKE and column.base in (STRING, BINARY)


def _exact(column: Facet, facet: Facet, seen: Seen) -> bool:
    if not (isinstance(column.base, Primitive) and isinstance(facet.base, Primitive)):
        return True
    match facet.base.name, column.base.name:
        case "int" | "long", "float":
            return seen.typed and not seen.lossy
        case "long", "double":
            return not seen.wide
        case "binary", "string":
            return not seen.lossy
        case _:
            return True


def _why(facet: Facet, seen: Seen, columns: Sequence[Facet], wider: Facet | None, *, kept: bool) -> str:
    if seen.ragged:
        return f"{facet.spelled()} of mixed depth changes the structure"
    told = ", ".join(c.spelled() for c in columns)
    if wider is not None:
        way = "set allow_rewrite = true"
        if kept:
            way = "values that are there would change, or the table is laid out by the column"
        return f"{facet.spelled()} makes {told} a {wider.spelled()}, which takes a rewrite: {way}"
    return f"{facet.spelled()} is incompatible with {told}"
