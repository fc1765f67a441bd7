"""What the schema of typed rows does not tell is asked of the rows, in one pass, and only where it matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from driftline.core.exclude import excluded_paths
from driftline.core.naming import marked_key
from driftline.core.routes import Conflict, Settings
from driftline.core.shape import RECORD, Facet, FieldShape, RecordShape, Seen
from driftline.core.types import (
    BINARY,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    Field,
    Primitive,
    Schema,
    Struct,
    dotted,
    peel,
)
from driftline.observe.numbers import EXACT
from driftline.observe.observation import Tally
from driftline.route.convert import convert
from driftline.route.sql import name, variable
from driftline.source.typed_conflicts import accepted_rows, has_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INSTANTS = ("date", "timestamp", "timestamp_ntz")


def look(
    frame: DataFrame,
    struct: Struct,
    shape: RecordShape,
    schema: Schema,
    settings: Settings,
    conflicts: Sequence[Conflict],
) -> Tally:
    """Counts rows, accepted, refused, and those with a value at an excluded path; marks in ``shape`` longs beyond ±2^53,
    fine and far instants, what is not exact in a float or text column, missing required values."""
    asked = [
        (sql, way) for way, sql in _questions(struct, shape, schema.struct, settings, "", lambda body: body)
    ]
    left_out = list(excluded_paths(settings.contract))
    good = accepted_rows(frame, struct, conflicts)
    row = good.selectExpr(
        "count(1)",
        *(f"coalesce(bool_or({sql}), false) as {name(f'q{i}')}" for i, (sql, _) in enumerate(asked)),
        *(f"count_if({has_value(struct, path)}) as {name(f'x{i}')}" for i, path in enumerate(left_out)),
    ).head()
    assert row is not None
    for answer, (_, mark) in zip(row[1 : 1 + len(asked)], asked, strict=True):
        if answer:
            mark()
    refused = 0 if good is frame else frame.count() - int(row[0])
    counts = Counter({dotted(p): int(n) for p, n in zip(left_out, row[1 + len(asked) :], strict=True) if n})
    return Tally(records=int(row[0]), malformed=refused, excluded=counts)


def _questions(
    struct: Struct, shape: RecordShape, table: Struct, settings: Settings, prefix: str, around: Any
) -> Iterator[tuple[Any, str]]:
    known: dict[str, list[Field]] = {}
    for column in table.fields:
        marked = marked_key(column.doc, settings.mark)
        known.setdefault(column.name if marked is None else marked, []).append(column)
    for f in struct.fields:
        seen_field = shape.fields.get(f.name)
        if seen_field is None:
            continue
        columns = known.get(f.name, [])
        x = f"{prefix}{name(f.name)}"
        if any(c.required for c in columns):
            yield _marker(seen_field, "missing"), around(f"{x} is null")
        dim, inner = peel(f.type)
        bases = {peel(c.type)[1] for c in columns} | {facet.base for facet in seen_field.facets}
        inside = _exists(dim, around)
        if isinstance(inner, Primitive):
            seen = seen_field.facets.get(Facet(dim, inner))
            if seen is not None and inner == LONG and DOUBLE in bases:
                yield _marker(seen, "wide"), inside(x, lambda v: f"abs(cast({v} as decimal(20,0))) > {EXACT}")
            if seen is not None and inner.name in ("int", "long") and FLOAT in bases:
                yield _marker(seen, "lossy"), inside(x, lambda v, t=inner: _inexact(v, t, FLOAT))
            if seen is not None and inner == BINARY and STRING in bases:
                yield _marker(seen, "lossy"), inside(x, lambda v: _inexact(v, BINARY, STRING))
            if seen is not None and inner.name in _INSTANTS and bases & {LONG, DOUBLE}:
                yield _marker(seen, "far"), inside(x, lambda v: f"year({v}) not between 1970 and 2199")
                if inner.name != "date":
                    for digits, unit in ((6, 1_000), (3, 1_000_000)):
                        micros = "cast(date_format({}, 'SSSSSS') as int)"
                        yield (_marker(seen, "fraction", digits),
                               inside(x, lambda v, u=unit, m=micros: f"{m.format(v)} % {u} <> 0"))  # fmt: skip
        elif isinstance(inner, Struct):
            seen = seen_field.facets.get(Facet(dim, RECORD))
            structs = [s for c in columns if isinstance(s := peel(c.type)[1], Struct)]
            if seen is not None and seen.record is not None:
                below = Struct(tuple(g for s in structs for g in s.fields))
                if dim:
                    v = variable()
                    yield from _questions(inner, seen.record, below, settings, f"{v}.",
                                          lambda body, x=x, v=v, d=dim: around(_nested(x, v, d, body)))  # fmt: skip
                else:
                    yield from _questions(inner, seen.record, below, settings, f"{x}.", around)


def _inexact(v: str, t: Primitive, u: Primitive) -> str:
    return f"({v} is not null and {convert(v, t, u, None)} is null)"


def _exists(dim: int, around: Any) -> Any:
    def ask(x: str, body: Any) -> str:
        if not dim:
            return str(around(body(x)))
        v = variable()
        return str(around(_nested(x, v, dim, body(v))))

    return ask


def _nested(x: str, v: str, dim: int, body: str) -> str:
    """``body`` of ``v`` for any element at depth ``dim``."""
    if dim == 1:
        return f"exists({x}, {v} -> {body})"
    outer = variable()
    return f"exists({x}, {outer} -> {_nested(outer, v, dim - 1, body)})"


def _marker(target: Seen | FieldShape, attribute: str, value: Any = True) -> Any:
    def mark() -> None:
        setattr(target, attribute, max(getattr(target, attribute), value))

    return mark
