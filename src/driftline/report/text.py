"""What people read of a batch, a schema, a check: lines for a terminal or a log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from driftline.core.changes import AddColumn, Change, RelaxColumn, RewriteColumn, WidenColumn
from driftline.core.schema.naming import MARK, by_key, marked_key, safe, unsafe
from driftline.core.schema.place import Place
from driftline.core.schema.schema_json import outline, type_name
from driftline.core.schema.types import Field, List, Map, Schema, Struct, Type, children, dotted, leaves, peel
from driftline.core.values.counted import counted
from driftline.ingest.result import Result

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from driftline.capture.lost import Lost
    from driftline.operations.doctor import Check
    from driftline.verify import Verdict

LISTED = 12  # of what is plain, as many are named; the rest is counted
SAMPLE = 48  # characters of a sample
LISTED_CHANGES = 12  # that are printed, each with its cause
_LAID = (("partitioned", "partition_by"), ("sorted", "sort_by"))
HINTS, HINT = 10, 500  # that are printed; characters of one


def batch(
    result: Result,
    title: str = "",
    *,
    dry_run: bool = False,
    near: Path | None = None,
    hints_before: set[str] | None = None,
) -> Iterator[RenderableType]:
    """One batch: counts, plain new columns in one line, each conflict with its cause.

    ``near``: files below it are named from there; it is the working directory, if not given.
    ``hints_before``: hints that were given before; those of this batch are added.
    """
    near = near or Path.cwd()
    yield _heading(result, title, dry_run)
    yield from _hints(result.hints, set() if hints_before is None else hints_before)
    if result.layout:
        yield from _layout(result.layout)
    if added := [c for c in result.changes if _plain(c)]:
        yield from _new_columns(added)
    conflicts = [c for c in result.changes if not _plain(c)]
    for change in conflicts[:LISTED_CHANGES]:
        yield from _conflict(change, result.changes, near)
    yield from _more(conflicts, "changes of columns: `driftline history` tells of all")
    for c in result.converted[:LISTED_CHANGES]:
        types = f"{clean(dotted(c.path))}: {short(c.source)} into {short(c.target)}"
        yield _item("converted", types, _seen(c.sample, c.place, near))
    yield from _more(result.converted, "conversions: --json has them")
    if result.untyped:
        paths = list(map(clean, result.untyped[:LISTED]))
        paths += [f"and {len(result.untyped) - LISTED} more"] * (len(result.untyped) > LISTED)
        yield _item("no type yet", ", ".join(paths), "only null, [] or {} so far")
    for name, count in result.dropped_names.items():
        yield _item("dropped", f'{count} values of the name "" in {clean(name) or "the record"}')
    for name, count in result.excluded.items():
        yield _item("excluded", f"{clean(name)}, which {counted(count, 'record')} had")
    yield from _rest("held", "new fields wait in the rest", result.held)
    yield from _rest("rest", "beyond the table's limits", result.rest)
    yield from _set_aside(result, near)


def lost(offsets: Iterable[Lost]) -> Iterator[RenderableType]:
    """What a capture went on without."""
    for one in offsets:
        yield _item(
            "lost", f"{clean(str(one))}, {counted(one.count, 'offset')}", "deleted before they were taken"
        )


def _hints(hints: Sequence[str], before: set[str]) -> Iterator[RenderableType]:
    """Lines to paste, of those that were not told before."""
    new = [hint for hint in hints if hint not in before]
    for hint in new[:HINTS]:
        yield _item("hint", sample(hint, HINT), style="cyan")
    if len(new) > HINTS:
        yield _item("hint", f"and {len(new) - HINTS} more: --json has them", style="cyan")
    before.update(new)


def _layout(layout: Mapping[str, Any]) -> Iterator[RenderableType]:
    """How a table that is made is laid out."""
    keys = [f"{word} by {', '.join(map(clean, layout[key]))}" for word, key in _LAID if layout[key]]
    yield _item("new table", "; ".join([*keys, f"format v{layout['format_version']}"]), style="green")


def _rest(title: str, why: str, waiting: Mapping[str, int | None]) -> Iterator[RenderableType]:
    """What went to the rest, in one line."""
    if waiting:
        known = list(waiting.items())[:LISTED]
        shown = [clean(path) if count is None else f"{clean(path)} × {count}" for path, count in known]
        shown += [f"and {len(waiting) - LISTED} paths more"] * (len(waiting) > LISTED)
        yield _item(title, f"{', '.join(shown)}: {why}", "`driftline promote` makes columns of it")


def schema(name: str, schema: Schema, mark: str = MARK) -> Tree:
    """A schema as a tree: names, types, ids, which field an evolved column holds, docs."""
    count = leaves(schema.struct)
    tree = Tree(
        Text.assemble((clean(name), "bold"), (f"  {count} columns, schema {schema.id}", "dim")),
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


def verdict(result: Verdict, table: str) -> Iterator[RenderableType]:
    """What a check of source against table found."""
    counts = f"{counted(result.records, 'record')}: {result.found} in {table}"
    if result.quarantined:
        counts += f", {result.quarantined} in its quarantine"
    if result.ok:
        fine = "nothing is missing" if result.extra is None else "nothing is missing, nothing is doubled"
        yield Text.assemble((fine, "bold green"), f"  {counts}")
        return
    extra = result.extra or 0
    wrong = [f"{n} {word}" for n, word in ((result.missing, "missing"), (extra, "too many")) if n]
    yield Text.assemble((", ".join(wrong), "bold red"), f"  {counts}")
    for m in result.mismatches:
        yield _item(
            clean(m.path) or "a record", _seen(m.sample, m.place, Path.cwd()), clean(m.why), style="red"
        )
    if result.missing + extra > len(result.mismatches) > 0:
        yield Text("  and more: the first are listed", "dim")


def checks(answers: Sequence[Check], redact: Callable[[str], str]) -> Iterator[RenderableType]:
    """What the doctor found, and what to do."""
    width = max(len(check.name) for check in answers)
    for check in answers:
        word = Text("ok    ", "green") if check.ok else Text("FAILS ", "bold red")
        yield Text.assemble(word, f"{check.name:{width}}  ", redact(check.detail))
        if check.fix:
            yield Hanging(Text(f"what to do: {redact(check.fix)}"), width + 8, width + 8)


def clean(text: str) -> str:
    """Text of data, safe on a terminal and on one line: what does not print is escaped.

    >>> clean("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def sample(text: str, most: int = SAMPLE) -> str:
    """A value from the data, cut where it is longer than ``most`` characters."""
    text = clean(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def short(type_: Type) -> str:
    """A type on little room: a struct's fields by name.

    >>> from driftline.core.schema.types import LONG, STRING
    >>> short(List(Struct((Field("sku", STRING), Field("qty", LONG)))))
    'list<struct<sku, qty>>'
    """
    match type_:
        case Struct(fields):
            names = [clean(f.name) for f in fields[:LISTED]] + ["…"] * (len(fields) > LISTED)
            return f"struct<{', '.join(names)}>"
        case List(element):
            return f"list<{short(element)}>"
        case Map(key, value):
            return f"map<{short(key)}, {short(value)}>"
        case _:
            return type_name(type_)


# One line each
# ------------------------------------------------------------------------------------------------


def _heading(result: Result, title: str, dry_run: bool) -> Text:
    counts = [counted(result.rows_read, "record read", "records read")]
    if dry_run:
        counts.append("a plan: nothing is written")
    else:
        counts.append(f"{result.rows_written} written")
    if result.rows_quarantined:
        counts.append(f"{result.rows_quarantined} in quarantine")
    return Text.assemble(
        (clean(result.table), "bold"), f"  {clean(title)}" if title else "", f"  {', '.join(counts)}"
    )


def _set_aside(result: Result, near: Path) -> Iterator[RenderableType]:
    """What is in quarantine: each conflict with its cause, and what was no record at all."""
    for c in result.conflicts:
        into = "where the table has no column" if c.table_type == "none" else f"into {clean(c.table_type)}"
        types = f"{clean(dotted(c.path))}: {clean(c.incoming_type)} {into}"
        because = ": ".join(filter(None, [_seen(c.sample, c.place, near), clean(c.why)]))
        yield _item("quarantine", types, because, style="yellow")
    for reason in result.malformed:
        yield _item("quarantine", clean(from_folder(reason, near)), style="yellow")
    if not result.conflicts and result.rows_quarantined > len(result.rejected) > 0:
        yield _item("", f"and {result.rows_quarantined - len(result.rejected)} more")


def _more(items: Sequence[object], hint: str) -> Iterator[RenderableType]:
    """What is said of those that are not listed."""
    if len(items) > LISTED_CHANGES:
        yield Text(f"  and {len(items) - LISTED_CHANGES} more {hint}", "yellow")


def _new_columns(added: Sequence[Change]) -> Iterator[RenderableType]:
    """New columns in one item; what comes inside a new struct is named by its struct."""
    top = [c for c in added if not (isinstance(c, AddColumn) and c.within)]
    named = [f"{clean(dotted(c.path))} {short(c.type)}" for c in top[:LISTED]]
    if len(top) > LISTED:
        named.append(f"and {len(top) - LISTED} more")
    count = sum(leaves(c.type) for c in top)
    if named:
        yield _item(f"{counted(count, 'new column')}:", ", ".join(named), style="green")


def _conflict(change: Change, among: Iterable[Change], near: Path) -> Iterator[RenderableType]:
    reason = change.reason
    rule, why = _rule(change, among)
    yield Text.assemble((f"  {_what(change)}", "bold yellow"), f"   {rule}")
    because = [_seen(reason.sample, reason.place, near), clean(why)]
    yield Hanging(Text(": ".join(filter(None, because)), "dim"), 6, 6)


def _what(change: Change) -> str:
    path = clean(dotted(change.path))
    match change:
        case AddColumn():
            return f"{clean(dotted(change.reason.field))} → {path} {short(change.type)}"
        case WidenColumn():
            return f"{path} is now {short(change.type)}"
        case RelaxColumn():
            return f"{path} is now optional"
        case RewriteColumn():
            return f"{path} is rewritten as {short(change.type)}"


def _rule(change: Change, among: Iterable[Change]) -> tuple[str, str]:
    """The rule's name for people, and why it holds."""
    reason = change.reason
    if reason.rule != "first-sight" or not isinstance(change, AddColumn):
        return reason.rule.replace("-", " "), reason.why
    key = reason.field[-1] if reason.field else ""
    natural = (*change.parent, safe(key))
    if any(isinstance(c, AddColumn) and c.path == natural for c in among if c is not change):
        return "several types at first sight", ""
    if change.column.name == safe(key):
        return "safe spelling", f"{_quoted(key)} cannot be a column's name: {unsafe(key)}"
    return "name taken", f"a column has the name {_quoted(safe(key))} already, in this or another letter case"


def _item(title: str, text: str, why: str = "", *, style: str = "") -> RenderableType:
    line = Text.assemble((f"{title:11} ", style), text)
    if why:
        line.append(f"  {why}", "dim")
    return Hanging(line, 2, 6)


@dataclass(frozen=True, slots=True)
class Hanging:
    """Text that is indented, and more so where it goes on in further lines."""

    text: Text
    first: int
    other: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for i, line in enumerate(self.text.wrap(console, max(options.max_width - self.other, 20))):
            line.rstrip()
            yield Text.assemble(" " * (self.other if i else self.first), line)


def _plain(change: Change) -> bool:
    """A new column of the field's own name: nothing to look at twice."""
    plain = isinstance(change, AddColumn) and change.column.doc is None
    return plain and change.reason.rule in ("first-sight", "map")  # a hint tells of maps


def _seen(value: str, place: Place | str | None, near: Path) -> str:
    """A sample and where it stands."""
    at = place.source if isinstance(place, Place) and not place.line else str(place or "")
    where = clean(from_folder(at, near))
    return f"{sample(value)} ({where})" if value and where else sample(value) or where


def from_folder(where: str, near: Path) -> str:
    """A place in a file, named from the folder ``near`` if it is in there."""
    return where.removeprefix("file:").removeprefix(f"{near}{os.sep}")


def _quoted(text: str) -> str:
    return f'"{clean(text)}"'


# Schemas
# ------------------------------------------------------------------------------------------------------


def _grow(tree: Tree, struct: Struct, identifiers: frozenset[int], mark: str) -> None:
    for f in struct.fields:
        inner = _inner(f.type)
        line = Text.assemble((clean(f.name), "bold"), f" {outline(f.type)} ", (f"#{f.id}", "dim"))
        if f.id in identifiers:
            line.append("  identifier", "cyan")
        elif f.required:
            line.append("  required", "cyan")
        if f.initial_default is not None or f.write_default is not None:
            line.append(f"  {_defaults(f)}", "cyan")
        key, doc = marked_key(f.doc, mark), f.doc
        if key is not None:
            line.append(f"  ← {clean(key)}", "yellow")
            doc = (f.doc or "").partition("\n")[2]
        if doc:
            line.append(f"  {clean(doc)}", "italic dim")
        branch = tree.add(line)
        if inner is not None:
            _grow(branch, inner, identifiers, mark)


def _defaults(f: Field) -> str:
    """What records without a value get, and rows older than the column where that is another."""
    new, old = (
        "null" if value is None else clean(str(value)) for value in (f.write_default, f.initial_default)
    )
    return f"default {new}" + (f", in old rows {old}" if old != new else "")


def _inner(type_: Type) -> Struct | None:
    """The struct inside lists and map values."""
    while not isinstance(type_, Struct):
        below = children(type_)
        if not below:
            return None
        type_ = below[-1].type
    return type_


def _families(
    struct: Struct, at: tuple[str, ...], mark: str
) -> Iterator[tuple[tuple[str, ...], list[Field]]]:
    for key, siblings in by_key(struct.fields, mark).items():
        if len(siblings) > 1 or siblings[0].name != key:
            yield (*at, key), siblings
        for f in siblings:
            dim, inner = peel(f.type)
            if isinstance(inner, Struct):
                yield from _families(inner, (*at, f.name, *("element",) * dim), mark)
