"""What a policy refuses, in rows that have types: a predicate for each conflict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from driftline.core.routes import Conflict, facet_of
from driftline.core.types import List, Map, Path, Primitive, Struct, Type, dotted, peel
from driftline.route.convert import convert
from driftline.route.sql import literal, name, variable
from driftline.source.base import rejected_columns
from driftline.source.files import ROW_FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def accepted_rows(frame: DataFrame, struct: Struct, conflicts: Sequence[Conflict]) -> DataFrame:
    """The rows without a conflict."""
    offences = [sql for sql, _ in _offences(struct, conflicts)]
    return frame.where(f"not ({' or '.join(offences)})") if offences else frame


def rejected_rows(
    frame: DataFrame, struct: Struct, conflicts: Sequence[Conflict], label: str
) -> DataFrame | None:
    """The rows that have a conflict, with the columns of `REJECTED`; None where none can have one."""
    from pyspark.sql import functions as F

    offences = _offences(struct, conflicts)
    if not offences:
        return None

    def told(texts: Sequence[str]) -> str:
        cases = (f"when {sql} then {literal(text)}" for (sql, _), text in zip(offences, texts, strict=True))
        return f"case {' '.join(cases)} end"

    found = [conflict for _, conflict in offences]
    return frame.where(" or ".join(sql for sql, _ in offences)).select(
        *rejected_columns(
            raw=F.to_json(F.struct("*")),
            reason=F.expr(told([c.why for c in found])),
            path=F.expr(told([dotted(c.path) for c in found])),
            table_type=F.expr(told([c.table_type for c in found])),
            incoming_type=F.expr(told([c.incoming_type for c in found])),
            source=F.expr(ROW_FILE if label else "null"),
        )
    )


def has_value(struct: Struct, path: Path) -> str:
    """Whether a row has a value at the path, of whatever type."""
    sql = _offence(struct, "", path, None)
    return "false" if sql is None else f"coalesce({sql}, false)"


def offends(struct: Struct, conflict: Conflict) -> str:
    """Whether a row has the conflict."""
    sql = _offence(struct, "", conflict.path, conflict)
    return "false" if sql is None else f"coalesce({sql}, false)"


def _offences(struct: Struct, conflicts: Sequence[Conflict]) -> list[tuple[str, Conflict]]:
    found = ((offends(struct, conflict), conflict) for conflict in conflicts)
    return [(sql, conflict) for sql, conflict in found if sql != "false"]


def _offence(type_: Type, x: str, path: Path, conflict: Conflict | None) -> str | None:
    """Whether a value at the path offends; any value, without a ``conflict``. Steps of lists count only where the data
    has a list."""
    if not path or (path == ("element",) * len(path) and not isinstance(type_, Struct)):
        return _leaf(type_, x, conflict)
    match type_:
        case List(element):
            v = variable()
            inner = _offence(element, v, path[1:] if path[0] == "element" else path, conflict)
            return None if inner is None else f"exists({x}, {v} -> {inner})"
        case Map(_, value) if path[0] == "value":
            v = variable()
            inner = _offence(value, v, path[1:], conflict)
            return None if inner is None else f"exists(map_values({x}), {v} -> {inner})"
        case Struct():
            field = type_.get(path[0])
            if field is None and path[0] == "element":
                return _offence(type_, x, path[1:], conflict)
            if field is None:
                return "true" if conflict is not None and conflict.facet is None else None
            return _offence(field.type, f"{x}.{name(path[0])}" if x else name(path[0]), path[1:], conflict)
        case _:
            return None


def _leaf(type_: Type, x: str, conflict: Conflict | None) -> str | None:
    if conflict is not None and conflict.facet is None:
        return f"{x} is null"
    dim, inner = peel(type_)
    if isinstance(inner, Primitive) and inner.name == "void":
        return None
    if conflict is not None and facet_of(type_) != conflict.facet:
        return None
    return _any(x, dim, inner, conflict)


def _any(x: str, dim: int, inner: Type, conflict: Conflict | None) -> str:
    if dim:
        v = variable()
        return f"exists({x}, {v} -> {_any(v, dim - 1, inner, conflict)})"
    if conflict is None or conflict.inexact is None or not isinstance(inner, Primitive):
        return f"{x} is not null"
    assert isinstance(conflict.inexact.base, Primitive)
    return f"({x} is not null and {convert(x, inner, conflict.inexact.base, conflict.unit)} is null)"
