"""Text about tables: schemas as trees, history, differences and layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from driftline.core.changes import AddColumn, ColumnChange, in_words, reportable
from driftline.core.history.entries import Entry, key_text, partition_text, sort_text
from driftline.core.schema.naming import MARK, by_key, is_metadata, marked_key
from driftline.core.schema.schema_json import outline, type_name
from driftline.core.schema.text import counted, noun
from driftline.core.schema.types import Field, Schema, Struct, Type, children, dotted, leaves, peel
from driftline.report.lines import LISTED, Hanging, clean, from_folder, short, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from driftline.operations.alter import Altered
    from driftline.operations.compact import Compacted
    from driftline.operations.drop import Dropped
    from driftline.operations.erase import Erased
    from driftline.operations.expire import Expired
    from driftline.operations.history import Difference, History
    from driftline.operations.layout import Layout
    from driftline.operations.undo import Undone
    from driftline.operations.value_counts import ValueCount


def altered(result: Altered) -> Iterator[RenderableType]:
    """The outcome of an `alter`."""
    if not result.changes:
        yield Text.assemble((clean(result.table), "bold"), "  nothing to change")
        return
    schema = "" if result.schema is None else f"  schema {result.schema}"
    yield Text.assemble((clean(result.table), "bold"), schema)
    for change in result.changes:
        yield Hanging(Text(clean(in_words(change))), 2, 6)
    for note in result.notes:
        yield Hanging(Text(clean(note), "dim"), 6, 6)


def history(changes: History) -> Iterator[RenderableType]:
    """A table's changes, oldest first: when, by whom, what, for which rule."""
    if not changes.whole:
        yield Text("the metadata of the oldest versions were cleaned away", "yellow")
    for entry in changes.entries:
        when = entry.time.strftime("%Y-%m-%d %H:%M:%SZ") if entry.time else "some time before"
        head = Text.assemble(
            (f"schema {entry.after.definition.schema.id:<4}", "bold"), f" {when}  ", (_who(entry), "cyan")
        )
        yield Hanging(head, 0, 6)
        yield from _columns(entry)
        yield from _layout(entry)


def difference(result: Difference) -> Iterator[RenderableType]:
    """The changes from one schema version to another."""
    yield Text.assemble((clean(result.table), "bold"), f"  schema {result.one} → schema {result.other}")
    for change in reportable(result.changes):
        yield Hanging(Text(clean(in_words(change))), 2, 6)
    if not result.changes:
        yield Text("  no difference")


def dropped(result: Dropped) -> Iterator[RenderableType]:
    """The outcome of a `drop`: what left the catalog, and what becomes of the files."""
    verb = "dropped" if result.is_done else "to drop"
    for name in filter(None, (*result.tables, result.view)):
        yield Text.assemble(f"{verb}  ", (clean(name), "bold"))
    for name in result.captures:
        yield Text(clean(f"capture {name} finds no table at its next start"), "yellow")
    for folder in result.folders:
        yield Text(clean(f"files  {folder}"))
    future = "deleted" if result.is_done else "to delete"
    yield Text(
        f"{counted(result.files, 'file')}, {result.size:,} bytes {future if result.is_purged else 'stay'}"
        + ("" if result.is_done else ": dry run, nothing is changed")
    )


def erased(result: Erased) -> Iterator[RenderableType]:
    """The outcome of an `erase`: what is gone, the proof of it, and what it does not reach."""
    verb = "erased" if result.is_done else "to erase"
    yield Text.assemble(f"{verb}  ", (clean(result.table), "bold"))
    yield Text(f"  {counted(result.rows, 'row')}, {counted(result.quarantined, 'record')} in quarantine")
    of_lake = ", of all tables of the lake" if result.of_lake else ""
    verb = "ended" if result.is_done else "to end"
    yield Text(f"  {counted(result.snapshots, 'older snapshot')} {verb}{of_lake}")
    if result.is_done:
        yield Text(f"  {counted(result.files, 'file')} deleted")
    if result.is_proved:
        yield Text("  proved: no file in the table's folders has such a row", "green")
    if result.remaining:
        text = f"{counted(result.remaining, 'row')} written meanwhile: erase them again"
        yield Hanging(Text(text, "yellow"), 2, 6)
    if result.unnamed:
        text = f"{counted(len(result.unnamed), 'file')} of no snapshot, of a batch under way or a failed one"
        yield Hanging(Text(f"{text}: driftline clean deletes them once nothing writes", "yellow"), 2, 6)
        for path in result.unnamed:
            yield Hanging(Text(clean(path), "yellow"), 4, 8)
    for place in result.not_reached:
        yield Hanging(Text(clean(f"not reached: {place}"), "dim"), 2, 6)
    if not result.is_done:
        yield Text("dry run: nothing is changed")


def expired(result: Expired) -> Iterator[RenderableType]:
    """The outcome of an `expire`: what ended, what stays and why, and what is lost."""
    verb = "expired" if result.is_done else "to expire"
    yield Text.assemble(f"{verb}  ", (clean(result.table), "bold"))
    of_lake = ", of all tables of the lake" if result.of_lake else ""
    verb = "ended" if result.is_done else "to end"
    yield Text(f"  {counted(result.snapshots, 'older snapshot')} {verb}{of_lake}")
    if result.is_done:
        yield Text(f"  {counted(result.files, 'file')} deleted")
    since = "" if result.since is None else f", all since {result.since}"
    yield Hanging(Text(f"kept: {counted(result.remaining, 'snapshot')}{since}"), 2, 6)
    for reason in result.keeps:
        yield Hanging(Text(clean(f"kept: {reason}")), 2, 6)
    for loss in result.loses:
        yield Hanging(Text(clean(f"lost: {loss}"), "yellow"), 2, 6)
    for place in result.not_reached:
        yield Hanging(Text(clean(f"not reached: {place}"), "dim"), 2, 6)
    if not result.is_done:
        yield Text("dry run: nothing is changed")


def compacted(result: Compacted) -> Iterator[RenderableType]:
    """The outcome of a `compact`: the files before and after, and those that stay, with the reason."""
    verb, about = ("compacted", "") if result.is_done else ("to compact", "about ")
    yield Text.assemble(f"{verb}  ", (clean(result.table), "bold"))
    yield Text(f"  {counted(result.files_before, 'file')}, {size(result.bytes_before)}, before")
    yield Text(f"  {about}{counted(result.files_after, 'file')}, {size(result.bytes_after)}, after")
    moved, commits = counted(result.rows, "row"), counted(result.commits, "commit")
    yield Text(f"  {counted(result.written_anew, 'file')} with {moved} written anew, in {commits}")
    for reason, count in result.left.items():
        yield Hanging(Text(clean(f"left: {counted(count, 'file')}: {reason}"), "dim"), 2, 6)
    verb = "dropped" if result.is_done else "to drop"
    for column in result.unused.dropped:
        named = f"{verb}: {dotted(column.path)} {type_name(column.type)}: no row has a value; {column.why}"
        yield Hanging(Text(clean(named)), 2, 6)
        yield Hanging(Text(clean(column.then), "dim"), 6, 6)
    if result.unused.asked and not (result.unused.dropped or result.unused.kept):
        yield Hanging(Text(clean(f"no column to drop: {_in_use(result.unused.in_use)}"), "dim"), 2, 6)
    for path, reason in result.unused.kept.items():
        yield Hanging(Text(clean(f"kept: {dotted(path)}, without a value: {reason}"), "dim"), 2, 6)
    if count := result.unused.forgotten:
        verb = "forgotten" if result.is_done else "to forget"
        yield Hanging(Text(f"{verb}: {counted(count, 'delete')} remembered for longer than its time"), 2, 6)
    for note in result.notes:
        yield Hanging(Text(clean(note)), 2, 6)
    if not result.is_done:
        yield Text("dry run: nothing is changed")


def _in_use(columns: Sequence[tuple[str, ...]]) -> str:
    """The columns that came with drift and have values, as words."""
    if not columns:
        return "none came with drift"
    more = f" and {len(columns) - LISTED} more" if len(columns) > LISTED else ""
    return f"those that came with drift have values: {', '.join(map(dotted, columns[:LISTED]))}{more}"


def undone(result: Undone) -> Iterator[RenderableType]:
    """The outcome of an `undo`, and what readers see now."""
    yield Text.assemble((clean(result.table), "bold"), f"  schema {result.schema}")
    yield Hanging(Text(clean(f"taken back: {result.undone}")), 2, 6)
    for change in reportable(result.changes):
        yield Hanging(Text(clean(in_words(change))), 2, 6)
    for line in result.layout:
        yield Hanging(Text(clean(line)), 2, 6)
    if result.batch is not None:
        rows = (
            f"{counted(result.batch.added, 'row')} removed, {counted(result.batch.removed, 'row')} restored"
        )
        yield Hanging(Text(rows), 2, 6)
    for values in result.back:
        yield Hanging(Text(clean(_comes_back(values)), "green"), 6, 6)
    for values in result.hidden:
        if not values.count:
            continue
        yield Hanging(
            Text(clean(f"hidden: {_values(values)}; undo brings them back"), "yellow"),
            6,
            6,
        )
    for line in result.stays:
        yield Hanging(Text(clean(line), "dim"), 6, 6)


def _comes_back(values: ValueCount) -> str:
    text = f"back: {_values(values)}"
    lost = (values.before or 0) - values.count
    if lost > 0:
        text += f"; {lost} more were in files that were written anew since, or in rows deleted since, and are gone"
    return text


def layout(result: Layout) -> Iterator[RenderableType]:
    """The data files by the partitioning they follow."""
    yield Text.assemble(
        (clean(result.table), "bold"), f"  sorted by {clean(', '.join(result.sort))}" * bool(result.sort)
    )
    names = [clean(", ".join(g.by)) or "not partitioned" for g in result.groups]
    width = max(map(len, names), default=0)
    for name, g in zip(names, result.groups, strict=True):
        files, records = noun(g.files, "file"), noun(g.records, "record")
        counts = f"{g.files:>6} {files:5}  {g.records:>12} {records:7}  {size(g.bytes):>9}"
        yield Text.assemble(f"  {name:{width}}  {counts}", ("  new files", "cyan") if g.current else "")


def _values(values: ValueCount) -> str:
    return f"{counted(values.count, 'value')} of {values.path}"


def _who(entry: Entry) -> str:
    record = entry.record
    match entry.by:
        case "batch":
            counts = [f"{count} {outcome}" for outcome, count in record.counts.items() if count]
            return f"batch {record.batch}" + (f"  {', '.join(counts)}" if counts else "")
        case "alter":
            return clean(record.text)
        case "resolve" | "promote" | "replan" | "split" | "compact":
            return f"{entry.by} {clean(record.text)}"
        case "undo":
            return f"undo of {clean(record.text)}"
        case "outside":
            return "SQL, or another engine"
        case _:
            return "unknown: its metadata were cleaned away"


def _columns(entry: Entry) -> Iterator[RenderableType]:
    """The changes of columns; what is plain in one line."""
    plain = [c for c in entry.changes if isinstance(c, AddColumn) and _is_plain(entry, c)]
    if plain:
        named = [clean(in_words(c).removeprefix("new ")) for c in plain[:LISTED]]
        and_others = f", and {len(plain) - LISTED} more" if len(plain) > LISTED else ""
        count = sum(leaves(c.type) for c in plain)
        yield Hanging(Text(f"{counted(count, 'new column')}: {', '.join(named)}{and_others}"), 2, 6)
    for change in reportable(entry.changes):
        if change not in plain:
            rule = entry.rule_of(change)
            line = Text(clean(in_words(change)))
            if rule is not None:
                field = f" of {rule.field}" if rule.field else ""
                place = f" ({from_folder(rule.place, Path.cwd())})" if rule.place else ""
                line.append(f"   {rule.rule.replace('-', ' ')}{clean(field)}{clean(place)}", "dim")
            yield Hanging(line, 2, 6)


def _is_plain(entry: Entry, change: ColumnChange) -> bool:
    rule = entry.rule_of(change)
    return entry.by in ("batch", "split", "unknown") and (rule is None or rule.rule == "first-sight")


def _layout(entry: Entry) -> Iterator[RenderableType]:
    for word, text in (("partitioned", partition_text), ("sorted", sort_text), ("rows known", key_text)):
        now, before = text(entry.after), text(entry.before) if entry.before else []
        if now != before:
            was = f", was by {', '.join(before)}" if before else ""
            yield Hanging(Text(clean(f"{word} by {', '.join(now) or 'nothing'}{was}")), 2, 6)


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
