"""The `preserve` policy: the columns of a field (seed rules 1 to 4, 8, 9, 10; "Planning a field").

Everything here is about one field, level by level: nested fields are planned by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driftline.core.planning.conversions import (
    NARROW,
    ROUTES_TOO,
    exact,
    fits,
    join,
    narrows,
    takes_anything,
    widens_in_place,
    widest,
)
from driftline.core.planning.policies.policy import Decision, Facets, FieldState, New, Retyped
from driftline.core.planning.shape import NUMBER_TEXT, RECORD, Facet, MapOf, Profile
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import (
    BIG_DECIMAL,
    BIG_INTEGER,
    DATE,
    DOUBLE,
    DUCKDB_ALONE,
    FRACTIONS,
    JSON,
    LONG,
    READ_AS_TEXT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    Primitive,
)

# The rule and the reason of a field's first column
FIRST_SIGHT, FIRST_SEEN = "first-sight", "first seen"
DATELIKE = (DATE, TIMESTAMP, TIMESTAMP_NTZ, *map(Primitive, FRACTIONS))


class Preserve:
    """Every type of a field has a column: siblings where one does not fit."""

    name = "preserve"
    keeps_all = True
    makes_columns = True

    def decide(self, field: FieldState) -> Decision:
        """Decide the field by `decide`."""
        return decide(field)

    def takes(self, column: Facet, facet: Facet, profile: Profile) -> bool:
        """True if `routes` sends the facet to the column, whatever its values."""
        return routes(column, facet, profile)

    def accepts(self, column: Facet, facet: Facet, profile: Profile, unit: str) -> bool:
        """True if `accepts` finds each value exact in the column."""
        return accepts(column, facet, profile, unit)

    def keeps_required(self, *, absent: bool) -> str:
        """Never a reason: a required column without a value becomes optional."""
        del absent
        return ""


def decide(field: FieldState) -> Decision:
    """Decide the columns of a field: first widen in place, then add what is missing ("Planning a field").

    Pinned columns are never widened. Maps are not decided here, but by the types of their values.
    """
    facets = {f: profile for f, profile in field.facets.items() if not isinstance(f.base, MapOf)}
    now = list(field.columns)
    changed: list[Retyped | None] = [None] * len(now)
    for i, column in enumerate(field.columns):
        wider = None if field.pinned[i] else widening(column, facets)
        if wider is not None:
            now[i] = Facet(column.dim, wider.base)
            why = f"{wider.spelled()} is wider than {column.spelled()}, which the format widens in place"
            changed[i] = Retyped(now[i], why, facets[wider])
    if not facets:
        return Decision(changed)
    if now:
        return Decision(changed, later(now, facets, field.unit))
    new, first = first_sight(facets)
    return Decision(changed, new, first)


def accepts(column: Facet, facet: Facet, profile: Profile, unit: str) -> bool:
    """True if the column takes every value of the facet exactly."""
    if column.base == JSON:
        return holds_whole(column, facet, profile)
    if column.base == VARIANT:
        return takes(column, facet) and not _beyond_numbers(facet, profile)
    # A long that is routed to a timestamp column is not kept there as a number (seed rule 10).
    return takes(column, facet, routing=False) and (
        not isinstance(facet.base, Primitive)
        or not isinstance(column.base, Primitive)
        or exact(facet.base, column.base, profile, unit)
    )


def takes(column: Facet, facet: Facet, *, routing: bool = True) -> bool:
    """True if values of the facet are routed to the column (seed rule 8).

    The column has their type, at their dimension or a larger one.
    """
    if column.base == VARIANT:
        return not column.dim or facet.dim <= column.dim
    if facet.dim > column.dim:
        return False
    if isinstance(facet.base, Primitive) and isinstance(column.base, Primitive):
        return (
            fits(facet.base, column.base)
            or narrows(facet.base, column.base)
            or (routing and column.base.name in ROUTES_TOO.get(facet.base.name, ()))
        )
    return facet.base == column.base


def routes(column: Facet, facet: Facet, profile: Profile) -> bool:
    """True if values of the facet are sent to the column.

    They are where `takes` says so. Numbers of JSON also go to each column of a narrow number type, which
    takes those that are exact in it. A sibling of the column takes them all, and JSON has one kind of number:
    whether the sibling was there before the batch must not decide what the column gets.
    """
    if takes(column, facet) or holds_whole(column, facet, profile):
        return True
    is_number = facet.base in (LONG, DOUBLE, BIG_INTEGER, BIG_DECIMAL)
    is_narrow = isinstance(column.base, Primitive) and column.base.name in NARROW
    return is_number and is_narrow and not profile.typed and facet.dim <= column.dim


def holds_whole(column: Facet, facet: Facet, profile: Profile) -> bool:
    """True if the column takes values of the facet whole, objects and lists too."""
    if not takes_anything(column.base, typed=profile.typed):
        return False
    return not column.dim or (column.base == VARIANT and facet.dim <= column.dim)


def _beyond_numbers(facet: Facet, profile: Profile) -> bool:
    """True if there is, at any depth, a number that no number type holds."""
    fields = [
        *(profile.record.fields.values() if profile.record else ()),
        *([profile.value] if profile.value else ()),
    ]
    return (
        facet.base == NUMBER_TEXT
        or profile.digits
        or any(_beyond_numbers(*nested) for field in fields for nested in field.facets.items())
    )


def widening(column: Facet, facets: Iterable[Facet]) -> Facet | None:
    """The widest facet of the column's own family that it can become in place; None if none is wider."""
    widest = column
    for facet in facets:
        narrow, wide = widest.base, facet.base
        if (
            facet.dim <= column.dim
            and isinstance(narrow, Primitive)
            and isinstance(wide, Primitive)
            and widens_in_place(narrow, wide)
        ):
            widest = facet
    return None if widest is column else widest


def collapse(facets: Facets) -> dict[Facet, Profile]:
    """The facets, each with the widest type of its family that a column of its dimension would get."""
    out: dict[Facet, Profile] = {}
    for facet, profile in facets.items():
        wide = Facet(facet.dim, (widening(facet, facets) or facet).base)
        out[wide] = out[wide].merge(profile) if wide in out else profile
    return out


def first_sight(facets: Facets) -> tuple[list[New], Facet]:
    """The columns of a field that has none yet, and the one with the original name (seed rules 1, 4, 9)."""
    facets = drop_longs(collapse(facets)) if len(facets) > 1 else facets
    new = [New(facet, FIRST_SIGHT, FIRST_SEEN, profile) for facet, profile in facets.items()]
    common = common_denominator(facets) if len(facets) > 1 else None
    if common is not None and common not in facets:
        last = max((s for f, s in facets.items() if isinstance(f.base, Primitive)), key=lambda s: s.location)
        new.append(
            New(common, "common-denominator", f"holds every type of the field: {_listed(facets)}", last)
        )
    # Values that the type could not hold have text in a column next to it.
    # The declared type keeps the name whichever came first, against rule 4: what people declared is what they
    # look for.
    plain = [n.facet for n in new if not (n.cause.typed and n.cause.digits)]
    return new, original(plain or [n.facet for n in new])


def drop_longs(facets: dict[Facet, Profile]) -> dict[Facet, Profile]:
    """Drop the longs that doubles of the same dimension hold exactly (seed rule 9)."""
    out = dict(facets)
    for facet, profile in facets.items():
        double = Facet(facet.dim, DOUBLE)
        if facet.base == LONG and double in out and not profile.wide:
            out[double] = out[double].merge(out.pop(facet))
    return out


def later(columns: Sequence[Facet], facets: Facets, unit: str) -> list[New]:
    """The columns that a field with ``columns`` gets for ``facets``: those that fit none, and the join."""
    facets = collapse(facets)
    missing = [f for f, profile in facets.items() if not any(accepts(c, f, profile, unit) for c in columns)]
    if not missing:
        return []
    new = [New(f, "sibling", unfit(f, columns), facets[f]) for f in missing]
    common = common_denominator([*columns, *facets])
    if common is not None and common not in columns and common not in missing:
        why = f"holds every type of the field: {_listed([*columns, *facets])}"
        new.append(New(common, "common-denominator", why, facets[missing[-1]]))
    return new


def unfit(facet: Facet, columns: Sequence[Facet]) -> str:
    """The reason a facet needs a column of its own."""
    return f"{facet.spelled()} does not fit the field's columns: {', '.join(map(_column_text, columns))}"


def _column_text(column: Facet) -> str:
    """A column's type as people read it; with the reason if no value of a batch goes there.

    >>> _column_text(Facet(1, Primitive("int128")))
    'list<HUGEINT>, which only DuckDB writes and reads'
    """
    if isinstance(column.base, Primitive) and column.base.name in DUCKDB_ALONE:
        theirs = Facet(column.dim, Primitive(READ_AS_TEXT[column.base.name]))
        return f"{theirs.spelled()}, which only DuckDB writes and reads"
    return column.spelled()


def common_denominator(facets: Iterable[Facet]) -> Facet | None:
    """The join of the primitives among the facets, at their largest dimension."""
    joinable = [f for f in facets if isinstance(f.base, Primitive) and join([f.base])]
    base = join(f.base for f in joinable if isinstance(f.base, Primitive))
    return Facet(max(f.dim for f in joinable), base) if base else None


def original(columns: Sequence[Facet]) -> Facet:
    """The new column that takes the original name (seed rule 4). Maps are not among them."""
    records = [f for f in columns if f.base == RECORD]
    if records:
        return max(records, key=lambda f: f.dim)
    dim = max(f.dim for f in columns)
    return Facet(dim, widest(f.base for f in columns if f.dim == dim and isinstance(f.base, Primitive)))


def dates_normalised(facets: Facets, columns: Sequence[Facet]) -> dict[Facet, Profile]:
    """Count dates and timestamps as strings if the field has other strings (2.2).

    They stay dates if the field has a column of dates.
    """
    has_dates = any(c.base in DATELIKE for c in columns)
    if has_dates or not any(f.base == STRING for f in facets):
        return dict(facets)
    return dates_as_text(facets)


def dates_as_text(facets: Facets) -> dict[Facet, Profile]:
    """Count dates and timestamps as strings, unless the source declares them."""
    out: dict[Facet, Profile] = {}
    for facet, profile in facets.items():
        guessed = facet.base in DATELIKE and not profile.typed
        target = Facet(facet.dim, STRING) if guessed else facet
        out[target] = out[target].merge(profile) if target in out else profile
    return out


def _listed(facets: Iterable[Facet]) -> str:
    return ", ".join(sorted({type_name(f.base) for f in facets if isinstance(f.base, Primitive)}))
