"""A schema as people read it: a tree, and the fields that have several columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from driftline.core.schema.naming import MARK, by_key, is_metadata, marked_key
from driftline.core.schema.schema_json import outline
from driftline.core.schema.text import counted
from driftline.core.schema.types import Field, Schema, Struct, Type, children, dotted, leaves, peel
from driftline.report.lines import clean, short

if TYPE_CHECKING:
    from rich.console import RenderableType


def schema(name: str, schema: Schema, mark: str = MARK) -> Tree:
    """A schema as a tree: names, types, ids, which field an evolved column holds, docs."""
    count = leaves(schema.struct)
    tree = Tree(
        Text.assemble((clean(name), "bold"), (f"  {counted(count, 'column')}, schema {schema.id}", "dim")),
        guide_style="dim",
    )
    _grow(tree, schema.struct, schema.identifiers, mark)
    return tree


def drifted(schema: Schema, mark: str = MARK) -> Iterator[RenderableType]:
    """The fields that have more than one column, each with its columns."""
    rows: list[tuple[str, str, str]] = []
    for path, siblings in _families(schema.struct, (), mark):
        for i, f in enumerate(siblings):
            rows.append((dotted(path) if i == 0 else "", f.name, short(f.type)))
    wide = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    for field, column, type_ in rows:
        yield Text.assemble(
            f"  {clean(field):{wide[0]}}   ", (f"{clean(column):{wide[1]}}", "bold"), f"   {type_}"
        )


def _grow(tree: Tree, struct: Struct, identifiers: frozenset[int], mark: str) -> None:
    for f in struct.fields:
        nested = _struct_inside(f.type)
        line = Text.assemble((clean(f.name), "bold"), f" {outline(f.type)} ", (f"#{f.id}", "dim"))
        if f.id in identifiers:
            line.append("  identifier", "cyan")
        elif f.required:
            line.append("  required", "cyan")
        if f.initial_default is not None or f.write_default is not None:
            line.append(f"  {_defaults(f)}", "cyan")
        key, doc = None if is_metadata(f.doc) else marked_key(f.doc, mark), f.doc
        if key is not None:
            line.append(f"  ← {clean(key)}", "yellow")
        if key is not None or is_metadata(f.doc):
            doc = (f.doc or "").partition("\n")[2]
        if doc:
            line.append(f"  {clean(doc)}", "italic dim")
        branch = tree.add(line)
        if nested is not None:
            _grow(branch, nested, identifiers, mark)


def _defaults(f: Field) -> str:
    """The default of records without a value, and that of older rows if it differs."""
    new, old = (
        "null" if value is None else clean(str(value)) for value in (f.write_default, f.initial_default)
    )
    return f"default {new}" + (f", in old rows {old}" if old != new else "")


def _struct_inside(type_: Type) -> Struct | None:
    """The struct inside lists and map values."""
    while not isinstance(type_, Struct):
        fields = children(type_)
        if not fields:
            return None
        type_ = fields[-1].type
    return type_


def _families(
    struct: Struct, path: tuple[str, ...], mark: str
) -> Iterator[tuple[tuple[str, ...], list[Field]]]:
    for key, siblings in by_key(struct.fields, mark).items():
        if len(siblings) > 1 or siblings[0].name != key:
            yield (*path, key), siblings
        for f in siblings:
            dim, base = peel(f.type)
            if isinstance(base, Struct):
                yield from _families(base, (*path, f.name, *("element",) * dim), mark)
