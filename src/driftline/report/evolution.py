"""Text for people about changes by hand, a table's history, and undos."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from driftline.core.changes import AddColumn, ColumnChange, in_words, reportable
from driftline.core.history.entries import Entry, key_text, partition_text, sort_text
from driftline.core.schema.text import counted, noun
from driftline.core.schema.types import leaves
from driftline.report.lines import LISTED, Hanging, clean, from_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

    from driftline.operations.alter import Altered
    from driftline.operations.history import Difference, History
    from driftline.operations.layout import Layout
    from driftline.operations.undo import Undone, ValueCount


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
        counts = f"{g.files:>6} {files:5}  {g.records:>12} {records:7}  {_size(g.bytes):>9}"
        yield Text.assemble(f"  {name:{width}}  {counts}", ("  new files", "cyan") if g.current else "")


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


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
        case "resolve" | "promote":
            return f"{entry.by} {clean(record.text)}"
        case "undo":
            return f"undo of {clean(record.text)}"
        case "outside":
            return "outside driftline"
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
    return entry.by in ("batch", "unknown") and (rule is None or rule.rule == "first-sight")


def _layout(entry: Entry) -> Iterator[RenderableType]:
    for word, text in (("partitioned", partition_text), ("sorted", sort_text), ("rows known", key_text)):
        now, before = text(entry.after), text(entry.before) if entry.before else []
        if now != before:
            was = f", was by {', '.join(before)}" if before else ""
            yield Hanging(Text(clean(f"{word} by {', '.join(now) or 'nothing'}{was}")), 2, 6)
