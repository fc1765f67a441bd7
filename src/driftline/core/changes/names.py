"""Names that a person gives columns: if they are valid, and which one was meant."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.core.schema.naming import caseless, nearest, safe, unsafe
from driftline.core.schema.types import Field, Path, Schema, Struct, dotted
from driftline.errors import UsageError


def named(name: str) -> None:
    """Raise UsageError for a name that some engine could not give a column."""
    if why := unsafe(name):
        raise UsageError(
            f"{name!r} cannot be a column's name: {why}", f"name it {safe(name)!r}" if name else None
        )


def missing(schema: Schema, path: Path) -> UsageError:
    """The error for a missing column, with the nearest existing one."""
    name = dotted(path)
    columns = [(dotted(p), p) for p, _ in schema.walk()]
    twin = next((p for text, p in columns if text == name), None)
    if twin is not None:  # one name with a dot in it
        return UsageError(f"there is no column {name}", f"write {'.'.join(f'`{s}`' for s in twin)}")
    loose = [text for text, p in columns if [s for s in p if s not in ("element", "value")] == list(path)]
    hint = f"did you mean {loose[0]}?" if loose else nearest(name, [text for text, _ in columns])
    return UsageError(f"there is no column {name}", hint or f"columns are {_listed(schema)}")


def clashes(struct: Struct) -> Iterator[tuple[Path, list[Field]]]:
    """The fields of one struct that share a name, in any letter case."""
    nested = ((path, f.type) for path, f in Schema(struct).walk())
    for parent, type_ in [((), struct), *nested]:
        names: dict[str, list[Field]] = {}
        for f in type_.fields if isinstance(type_, Struct) else ():
            names.setdefault(caseless(f.name), []).append(f)
        yield from (((*parent, twins[-1].name), twins) for twins in names.values() if len(twins) > 1)


def _listed(schema: Schema) -> str:
    names = [f.name for f in schema.struct.fields]
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
