"""Text about a batch, a schema or a check, for a terminal or a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.text import Text

from driftline.core.changes import AddColumn, Change, RelaxColumn, RewriteColumn, WidenColumn
from driftline.core.planning.own_columns import field_of
from driftline.core.schema.naming import safe, unsafe
from driftline.core.schema.text import counted
from driftline.core.schema.types import SourceLocation, dotted, leaves
from driftline.core.settings.declarations import property_of
from driftline.core.settings.properties import of_one_batch
from driftline.core.settings.surfaces import Words, in_python
from driftline.ingest.result import Result
from driftline.report.lines import LISTED, Hanging, clean, from_folder, sample, short

if TYPE_CHECKING:
    from rich.console import RenderableType

    from driftline.capture.kafka_client import LostOffsets
    from driftline.operations.doctor import Check
    from driftline.verify import PatternVerdict, Verdict

LISTED_CHANGES = 12  # that are printed, each with its cause; of more, half as many
_PATH = 200  # characters of a path
_LAID = (("partitioned", "partition_by"), ("sorted", "sort_by"))
_PROMOTED = "`driftline promote` turns it into columns"
T = TypeVar("T")
_OTHER = "none of the records is valid JSON; if the data has another format, pass --format (files) or --value-format (a topic)"
HINTS, HINT = 10, 500  # printed hints, half as many if there are more; characters of a hint
NAMED_FILES = 2  # besides the first, where the same is refused in several
MAP_HINTS = 2  # printed hints at maps; if there are more, one line counts them
NAMED_MAPS = 3  # names in that line
_MAPS = "maps."  # begins the hint at an object that became a map: the setting that keeps it a struct


def batch(
    result: Result,
    title: str = "",
    *,
    near: Path | None = None,
    hints_before: set[str] | None = None,
    more_hints: str | None = "the result's `hints`",
    words: Words = in_python,
) -> Iterator[RenderableType]:
    """One batch: counts, records and values without a column, then each conflict with its cause, and hints.

    ``near``: files below it are named from there; it is the working directory, if not given.
    ``hints_before``: hints that were given before; those of this batch are added. ``more_hints``: where a
    reader finds those that are not listed; None lists all. ``words``: spells hints.
    """
    near = near or Path.cwd()
    yield _heading(result, title)
    yield from _set_aside(result, near, words)
    for violation in _first(result.audit, LISTED_CHANGES):
        yield _item("audit", clean(str(violation)), style="red")
    yield from _more(result.audit, "violations: see --json")
    for name, count in result.dropped_names.items():
        yield _item("dropped", f"{counted(count, 'value')} with an empty key in {_owner(name)}")
    nameless = {path: count for path, count in result.rest.items() if "" in field_of(path)}
    beyond = {path: count for path, count in result.rest.items() if path not in nameless}
    yield from _rest("held", "new fields go into the rest", result.held, _PROMOTED)
    yield from _rest("rest", "beyond the table's limits", beyond, _PROMOTED)
    yield from _rest("rest", "an empty key gets no column", nameless)
    if result.layout:
        yield from _layout(result.layout)
    if added := [c for c in result.changes if _plain(c)]:
        yield from _new_columns(added)
    conflicts = [c for c in result.changes if not _plain(c)]
    for change in _first(conflicts, LISTED_CHANGES):
        yield from _conflict(change, result.changes, near)
    yield from _more(conflicts, "column changes: see `driftline history`")
    for c in _first(result.converted, LISTED_CHANGES):
        types = f"{clean(dotted(c.path))}: {short(c.source)} into {short(c.target)}"
        yield _item("converted", types, _seen(c.sample, c.location, near))
    yield from _more(result.converted, "conversions: see --json")
    if result.untyped:
        paths = list(map(clean, result.untyped[:LISTED]))
        paths += [f"and {len(result.untyped) - LISTED} more"] * (len(result.untyped) > LISTED)
        yield _item("no column yet", ", ".join(paths), "only null, [] or {} so far")
    for name, count in result.excluded.items():
        yield _item("excluded", f"{clean(name)}, which {counted(count, 'record')} had")
    yield from _control_messages(result.marks)
    yield from _kept(result, words)
    yield from _hints(result.hints, set() if hints_before is None else hints_before, more_hints, words)


def _control_messages(marks: Mapping[str, int]) -> Iterator[RenderableType]:
    """The messages in envelopes that say nothing of a single row."""
    for kind, count in marks.items():
        if kind == "truncate":
            yield _item(kind, f"{counted(count, 'truncate')} of the source's table: older rows go")
        elif kind == "complete snapshot":
            yield _item("snapshot", f"{counted(count, kind)}: older rows, which are not in it, go")
        else:
            yield _item("no change", f"{counted(count, kind)}, left out")


def _kept(result: Result, words: Words) -> Iterator[RenderableType]:
    """The settings that later batches get because of this one."""
    for name, value in result.settings.items():
        kept = f"{clean(name)} = {json.dumps(value, ensure_ascii=False)}" if value else f"no {clean(name)}"
        alone = words("; --no-keep: for one alone") if of_one_batch({property_of(name): value}) else ""
        yield _item("setting kept", sample(kept, _PATH), f"for every later batch of {result.table}{alone}")


def _owner(name: str) -> str:
    """The object of a key that is empty, whose path ends in ``""``."""
    return clean(name.removesuffix('""').removesuffix(".")) or "the record"


def lost(offsets: Iterable[LostOffsets]) -> Iterator[RenderableType]:
    """The lost records that a capture went on without."""
    for interval in offsets:
        yield _item(
            "lost",
            f"{clean(str(interval))}, {counted(interval.count, 'offset')}",
            "deleted before they were ingested",
        )


def _hints(
    hints: Sequence[str], before: set[str], more: str | None, words: Words
) -> Iterator[RenderableType]:
    """Lines to paste, without those that were printed before; of many about maps their number alone."""
    new = list(dict.fromkeys(hint for hint in hints if hint not in before))
    before.update(new)
    maps = [hint for hint in new if hint.startswith(_MAPS)]
    if more is None or len(maps) <= MAP_HINTS:
        maps = []
    others = [hint for hint in new if hint not in maps]
    shown = others if more is None else _first(others, HINTS)
    for hint in shown:
        yield _item("hint", sample(words(hint), HINT), style="cyan")
    if len(others) > len(shown):
        yield _item("hint", f"and {len(others) - len(shown)} more: see {more}", style="cyan")
    if maps:
        paths = [sample(hint.removeprefix(_MAPS).partition(" = ")[0], _PATH) for hint in maps[:NAMED_MAPS]]
        named = ", ".join(paths) + (", …" if len(maps) > len(paths) else "")
        yield _item(
            "hint", f"{len(maps)} hints at objects that became maps: {named}; see {more}", style="cyan"
        )


def _layout(layout: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The layout of a table that is created."""
    keys = [f"{word} by {', '.join(map(clean, layout[key]))}" for word, key in _LAID if layout[key]]
    yield _item("new table", "; ".join([*keys, f"format v{layout['format_version']}"]), style="green")


def _rest(
    title: str, why: str, waiting: Mapping[str, int | None], later: str = ""
) -> Iterator[RenderableType]:
    """The values that went to the rest, in one line; ``later``: what can become of them."""
    if waiting:
        listed = list(waiting.items())[:LISTED]
        shown = [sample(path, _PATH) + (f" × {count}" if count is not None else "") for path, count in listed]
        shown += [f"and {len(waiting) - LISTED} paths more"] * (len(waiting) > LISTED)
        yield _item(title, f"{', '.join(shown)}: {why}", later)


def verdict(result: Verdict, table: str) -> Iterator[RenderableType]:
    """The outcome of a check of source against table."""
    counts = f"{result.found} in {table}"
    if result.deleted:
        counts += f", {result.deleted} deleted"
    if result.overtaken:
        counts += f", {result.overtaken} superseded by other records"
    if result.quarantined:
        counts += f", {result.quarantined} in its quarantine"
    counts += _gone(result.gone)
    if result.ok:
        fine = "nothing is missing" if result.extra is None else "nothing is missing, nothing is doubled"
        yield Text.assemble((fine, "bold green"), f"  {counted(result.records, 'record')}: {counts}")
        return
    extra = result.extra or 0
    wrong = [f"{result.missing} of {counted(result.records, 'record')} not found"] * bool(result.missing)
    wrong += [f"{counted(extra, 'row')} too many"] * bool(extra)
    yield Text.assemble((", ".join(wrong), "bold red"), f"  {counts}")
    for m in result.mismatches:
        yield _item(
            clean(m.path) or "a record", _seen(m.sample, m.place, Path.cwd()), clean(m.why), style="red"
        )
    if result.missing + extra > len(result.mismatches) > 0:
        yield Text("  and more; only the first are listed", "dim")


def pattern_verdict(result: PatternVerdict) -> Iterator[RenderableType]:
    """The outcome of a check of many tables: sums, then the tables with differences."""
    counts = (
        f"{counted(result.records, 'record')}: {result.found} in {counted(len(result.verdicts), 'table')}"
    )
    if result.quarantined:
        counts += f", {result.quarantined} in quarantine"
    counts += _gone(result.gone)
    if result.ok:
        fine = "nothing is missing" if result.extra is None else "nothing is missing, nothing is doubled"
        yield Text.assemble((clean(result.pattern), "bold"), "  ", (fine, "bold green"), f"  {counts}")
        return
    wrong = [f"{result.missing} not found"] * bool(result.missing)
    wrong += [f"{counted(result.extra or 0, 'row')} too many"] * bool(result.extra)
    yield Text.assemble((clean(result.pattern), "bold"), "  ", (", ".join(wrong), "bold red"), f"  {counts}")
    for table, of_table in result.verdicts.items():
        if not of_table.ok:
            yield from verdict(of_table, table)


def _gone(offsets: int | None) -> str:
    """The offsets of topics that could not be compared, in words."""
    return f"; not compared: {counted(offsets, 'offset')} that Kafka no longer has" if offsets else ""


def checks(answers: Sequence[Check], redact: Callable[[str], str]) -> Iterator[RenderableType]:
    """The doctor's findings, and what to do."""
    width = max(len(check.name) for check in answers)
    for check in answers:
        word = Text("ok    ", "green") if check.ok else Text("FAILS ", "bold red")
        yield Text.assemble(word, f"{check.name:{width}}  ", redact(check.detail))
        if check.fix:
            yield Hanging(Text(f"what to do: {redact(check.fix)}"), width + 8, width + 8)


def _heading(result: Result, title: str) -> Text:
    counts = [counted(result.rows_read, "record read", "records read")]
    if result.dry_run:
        counts.append("dry run: nothing is written")
    else:
        counts += result.outcomes_in_words
    if result.rows_quarantined:
        counts.append(f"{result.rows_quarantined} in quarantine")
    return Text.assemble(
        (clean(result.table), "bold"), f"  {clean(title)}" if title else "", f"  {', '.join(counts)}"
    )


def _set_aside(result: Result, near: Path, words: Words) -> Iterator[RenderableType]:
    """The records in quarantine: each conflict with its cause, and lines that are no records."""
    for c in result.conflicts:
        example = f"{_seen(c.sample, c.location, near)}{_also(c.elsewhere, near)}"
        # Of a value that the key lacks, the words say all.
        because = ": ".join(filter(None, [example, "" if c.nan else clean(c.why)]))
        yield _item("quarantine", clean(c.in_words), because, style="yellow")
    for reason in result.malformed:
        yield _item("quarantine", clean(from_folder(reason, near)), style="yellow")
    unreadable = result.rows_quarantined - result.unexpected
    if not result.conflicts and unreadable > len(result.rejected) > 0:
        yield _item("", f"and {unreadable - len(result.rejected)} more")
    yield from _unexpected(result, near)
    if _is_no_json(result):
        yield _item("hint", words(_OTHER), style="cyan")


def _unexpected(result: Result, near: Path) -> Iterator[RenderableType]:
    """The expectations that records do not meet, each with the first of them."""
    for name, outcome in result.expect.items():
        if (violations := outcome.violations) is not None:
            words = f"expect {clean(name)}: {counted(violations.count, 'record')} not as expected"
            label = "quarantine" if outcome.action == "quarantine" else "warning"
            yield _item(label, words, _seen(violations.sample, violations.location, near), style="yellow")


def _also(places: Sequence[SourceLocation], near: Path) -> str:
    """Further files, each with its first place; of many the first."""
    named = ", ".join(clean(from_folder(str(location), near)) for location in places[:NAMED_FILES])
    more = " and in further files" if len(places) > NAMED_FILES else ""
    return f", also at {named}{more}" if named else ""


def _is_no_json(result: Result) -> bool:
    """True if no record of the batch is JSON, so that it may be in another format."""
    reasons = result.malformed
    set_aside = max(result.rows_quarantined, len(result.rejected))  # a plan sets nothing aside
    nothing = result.rows_read == set_aside and not result.conflicts
    return nothing and bool(reasons) and all(": invalid JSON: " in reason for reason in reasons)


def _first(items: Sequence[T], most: int) -> Sequence[T]:
    """The items to list: all, or so few that a long report fits a screen."""
    return items if len(items) <= most else items[: most // 2]


def _more(items: Sequence[object], hint: str) -> Iterator[RenderableType]:
    """A line about the items that are not listed."""
    if hidden := len(items) - len(_first(items, LISTED_CHANGES)):
        yield Text(f"  and {hidden} more {hint}", "yellow")


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
    yield Hanging(Text.assemble((_what(change), "bold yellow"), f"   {rule}"), 2, 6)
    if because := list(filter(None, [_seen(reason.sample, reason.place, near), clean(why)])):
        yield Hanging(Text(": ".join(because), "dim"), 6, 6)


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
        return "several types in one batch", ""
    if change.column.name == safe(key):
        return "safe spelling", f"{_quoted(key)} cannot be a column's name: {unsafe(key)}"
    return "name taken", f"a column has the name {_quoted(safe(key))} already, in this or another letter case"


def _item(title: str, text: str, why: str = "", *, style: str = "") -> RenderableType:
    line = Text.assemble((f"{title:11} ", style), text)
    if why:
        line.append(f"  {why}", "dim")
    return Hanging(line, 2, 6)


def _plain(change: Change) -> bool:
    """A new column of the field's own name: nothing to look at twice."""
    plain = isinstance(change, AddColumn) and change.is_plain
    return plain and change.reason.rule in ("first-sight", "map")  # a hint reports maps


def _seen(value: str, place: SourceLocation | str | None, near: Path) -> str:
    """A sample and its place."""
    source = place.source if isinstance(place, SourceLocation) and not place.line else str(place or "")
    where = clean(from_folder(source, near))
    return f"{sample(value)} ({where})" if value and where else sample(value) or where


def _quoted(text: str) -> str:
    return f'"{clean(text)}"'
