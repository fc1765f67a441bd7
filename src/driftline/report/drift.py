"""Text about settled drift: views, resolved fields, the quarantine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from driftline.core.changes import in_words, reportable
from driftline.core.planning.plan import misfit
from driftline.core.schema.text import counted
from driftline.core.schema.types import dotted
from driftline.core.settings.surfaces import Words, in_python
from driftline.report.lines import LISTED, Hanging, clean, sample, short
from driftline.report.text import batch

if TYPE_CHECKING:
    from rich.console import RenderableType

    from driftline.operations.listing import Quarantine, RejectGroup
    from driftline.operations.promote import Promoted
    from driftline.operations.replan import CountedField, Replan
    from driftline.operations.replay import Discarded, Replay
    from driftline.operations.resolve import Resolved
    from driftline.operations.view import View


def view(result: View) -> Iterator[RenderableType]:
    """A created view: the fields that are one column there."""
    head = "view of" if result.in_catalog else f"not created: {result.why}: the statement is below; view of"
    tables = f"{counted(len(result.tables), 'table')}, " if result.tables != (result.table,) else ""
    shown_of = f"{clean(result.table)}, {tables}{_fields(result)}"
    yield Text.assemble((clean(result.name), "bold"), f"  {head} {shown_of}")
    shown = result.fields[: 4 * LISTED]
    wide = max((len(dotted(f.path)) for f in shown), default=0)
    for f in shown:
        columns = ", ".join(dict.fromkeys(clean(c.name) for c in f.columns))
        line = Text.assemble((f"{clean(dotted(f.path)):{wide}}", "bold"), f"   {short(f.type)}")
        line.append(f"   of {columns}", "dim")
        yield Hanging(line, 2, 6)
    if len(result.fields) > len(shown):
        yield Text(f"  and {len(result.fields) - len(shown)} more", "dim")
    if result.not_folded:
        paths = ", ".join(clean(dotted(path)) for path in result.not_folded[: 4 * LISTED])
        yield Hanging(Text(f"inside a text, or beside a map: {paths}", "dim"), 2, 6)
    if result.new:
        yield Hanging(Text(f"new columns: {', '.join(map(clean, result.new))}", "green"), 2, 6)


def _fields(result: View) -> str:
    if not result.drifted:
        return "no field has drifted"
    some = f"{len(result.drifted) - len(result.not_folded)} of " if result.not_folded else ""
    return f"{some}{counted(len(result.drifted), 'drifted field')} as one column each"


def resolved(result: Resolved) -> Iterator[RenderableType]:
    """The outcome of a resolve, done or planned."""
    field = clean(dotted(result.field))
    verb = "would be" if result.dry_run else "is"
    yield Text.assemble((clean(result.table), "bold"), f"  {field} {verb} {short(result.type)}")
    yield Text(
        f"  {result.values - result.rest} of {counted(result.values, 'value')} convert{'' if result.dry_run else 'ed'}"
    )
    for column in result.folded:
        unconverted = f"   {counted(column.rest, 'value')} not converted" if column.rest else ""
        line = Text(f"{clean(dotted(column.path))}   {short(column.type)}")
        line.append(unconverted, "yellow")
        yield Hanging(line, 6, 10)
    if result.rest:
        more = ["…"] if result.is_cut else []
        shown = " · ".join([*map(sample, result.samples), *more])  # numbers may have commas
        columns = ", ".join(clean(dotted(path)) for path in result.kept_in)
        becomes = (
            "would not convert"
            if result.dry_run
            else f"kept in {columns}"
            if columns
            else "dropped; driftline undo restores them"
        )
        yield Hanging(
            Text.assemble((f"{counted(result.rest, 'value')} {becomes}", "yellow"), f": {shown}"), 2, 6
        )
    if result.beside:
        paths = ", ".join(clean(dotted(path)) for path in result.beside)
        yield Hanging(Text(f"unchanged, as none of its values is {short(result.type)}: {paths}", "dim"), 2, 6)
    for note in result.notes:
        yield Hanging(Text(clean(note), "dim"), 2, 6)
    if result.dry_run:
        yield Text("  dry run: nothing is written", "dim")


def promoted(result: Promoted) -> Iterator[RenderableType]:
    """The outcome of a promote, done or planned."""
    verb = "would get columns" if result.dry_run else "got columns"
    total = sum(result.values.values())
    yield Text.assemble((clean(result.table), "bold"), f"  {counted(total, 'value')} {verb}")
    shown = dict(list(result.values.items())[: 2 * LISTED])
    for path, count in shown.items():
        yield Hanging(Text(f"{clean(path)}   {counted(count, 'value')}"), 2, 6)
    if len(result.values) > len(shown):
        yield Text(f"  and {len(result.values) - len(shown)} paths more", "dim")
    changes = [in_words(change) for change in reportable(result.changes)]
    for words in changes[: 2 * LISTED]:
        yield Hanging(Text(clean(words), "green"), 4, 8)
    if len(changes) > 2 * LISTED:
        yield Text(f"    and {len(changes) - 2 * LISTED} more", "dim")
    for note in result.notes:
        yield Hanging(Text(clean(note), "dim"), 2, 6)
    if result.dry_run:
        yield Text("  dry run: nothing is written", "dim")


def replanned(result: Replan) -> Iterator[RenderableType]:
    """The columns that a table would have, had all of it come in one batch, by field."""
    count = len(result.fields)
    verb = "would have" if result.dry_run else "got"
    others = f"{counted(count, 'field')} {verb} other columns" if count else "the same columns"
    records = counted(result.rows, "row")
    if result.quarantined:
        records += f" and {counted(result.quarantined, 'record')} in quarantine"
    had = f", had {records} come in one batch" if result.dry_run or not count else f", of {records}"
    yield Text.assemble((clean(result.table), "bold"), f"  {others}{had}")
    for field in result.fields[: 4 * LISTED]:
        yield from _replanned(field)
    if count > 4 * LISTED:
        yield Text(f"  and {count - 4 * LISTED} fields more", "dim")
    for field in result.stay[:LISTED]:
        then = ", ".join(short(c.type) for c in field.field.then)
        path = clean(dotted(field.field.path))
        yield Hanging(Text(f"{path} stays, not {then}: {field.field.why}", "dim"), 2, 6)
    if len(result.stay) > LISTED:
        yield Text(f"  and {len(result.stay) - LISTED} fields more stay", "dim")
    if result.replayed:
        yield Text(f"  {counted(result.replayed, 'record')} of the quarantine came behind it", "green")
    for note in result.notes:
        yield Hanging(Text(clean(note), "yellow"), 2, 6)


def _replanned(field: CountedField) -> Iterator[RenderableType]:
    columns = zip(field.field.now, field.values, strict=True)
    now = [f"{clean(c.path[-1])} {short(c.type)} × {values}" for c, values in columns]
    if field.waiting:
        now.append(f"in the rest × {field.waiting}")
    then = ", ".join(f"{clean(c.path[-1])} {short(c.type)}" for c in field.field.then)
    line = Text.assemble((clean(dotted(field.field.path)), "bold"), f"   {', '.join(now) or 'waits'}")
    line.append(f" → {then}", "green")
    yield Hanging(line, 2, 6)
    yield Hanging(Text(clean(field.field.why), "dim"), 6, 6)


def quarantine(waiting: Quarantine, words: Words = in_python) -> Iterator[RenderableType]:
    """The waiting records, by reason. ``words``: spells advice."""
    done = f", {waiting.replayed} replayed" if waiting.replayed else ""
    done += f", {waiting.discarded} discarded" if waiting.discarded else ""
    count = (
        f"{counted(waiting.waiting, 'record')} in quarantine" if waiting.waiting else "nothing in quarantine"
    )
    yield Text.assemble((clean(waiting.table), "bold"), f"  {count}{done}")
    for group in waiting.groups:
        yield from _group(group)
    shown = sum(group.count for group in waiting.groups)
    if shown < waiting.waiting:
        yield Text(f"  and {waiting.waiting - shown} more, for other reasons", "dim")
    if waiting.waiting:
        again = "--replay ingests them again, once the policy or the table has changed"
        yield Hanging(Text(words(f"{again}; --discard hides them"), "dim"), 2, 6)


def _group(group: RejectGroup) -> Iterator[RenderableType]:
    line = Text.assemble((f"{group.count:>6}  ", "yellow"))
    if group.path:
        line.append(clean(misfit(group.path, group.incoming_type, group.table_type)), "bold")
        line.append("  ")
    line.append(clean(group.reason))
    yield Hanging(line, 2, 10)
    first, newest = (
        clean(place.removeprefix("file:").removeprefix(f"{Path.cwd()}/"))
        for place in (group.place, group.last_place)
    )
    elsewhere = newest and newest.rpartition(":")[0] != first.rpartition(":")[0]
    where = f" ({first}{f', last {newest}' if elsewhere else ''})" if first else ""
    when = group.first.strftime("%Y-%m-%d %H:%MZ")
    last = group.last.strftime("%Y-%m-%d %H:%MZ")
    when = when if when == last else f"{when} to {last}"
    yield Hanging(Text(f"{sample(group.sample)}{where}  {when}", "dim"), 10, 10)


def replayed(replay: Replay, words: Words = in_python) -> Iterator[RenderableType]:
    """The outcome of a replay. ``words``: spells advice."""
    if not replay.results:
        yield Text.assemble((clean(replay.table), "bold"), "  nothing to replay")
    hints: set[str] = set()
    for result in replay.results:
        yield from batch(
            result, "from quarantine", hints_before=hints, more_hints=words("--json"), words=words
        )
    if replay.stay:
        stay = (
            "stays in quarantine: it is not a valid record"
            if replay.stay == 1
            else "stay in quarantine: they are not valid records"
        )
        advice = words(f"--discard hides {'it' if replay.stay == 1 else 'them'}")
        yield Hanging(Text(f"{replay.stay} {stay}, under any schema; {advice}", "dim"), 2, 6)
    if replay.held:
        yield Text(
            f"  {replay.held} of a capture's batch that has not ended: replay again once the capture has resumed",
            "yellow",
        )


def discarded(result: Discarded, words: Words = in_python) -> Iterator[RenderableType]:
    """The outcome of a discard, or of its opposite. ``words``: spells advice."""
    if not result.records:
        outcome = "nothing to restore" if result.restored else "nothing to discard"
    else:
        records = counted(result.records, "record")
        outcome = (
            f"{records} wait{'s' * (result.records == 1)} again"
            if result.restored
            else f"{records} discarded"
        )
    yield Text.assemble((clean(result.table), "bold"), f"  {outcome}")
    if result.records and not result.restored:
        kept = "it is" if result.records == 1 else "they are"
        advice = words("--restore takes this back")
        yield Hanging(Text(f"{kept} kept, but no longer waiting: {advice}", "dim"), 2, 6)
    if result.held:
        waits = "waits" if result.held == 1 else "wait"
        why = "a capture's batch, or a replay, that has not ended: resume the capture, or replay"
        yield Hanging(Text(f"{result.held} {waits} in {why}", "yellow"), 2, 6)
