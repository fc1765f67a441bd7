"""The history of a table's definition: recorded changes, their authors, and versions.

The last changes are kept as a property of the table. `history` and `undo` use them where the log of
metadata versions no longer reaches. Each change names the schema, partition spec and sort order before and
after it by their ids, which a table keeps. Changes that nobody recorded show as ids that do not meet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, NotRequired, TypedDict
from uuid import uuid4

from driftline.core.changes import ColumnChange, DropColumn, TableChangeJson, WidenColumn, details, diff
from driftline.core.changes.text import direction, in_words
from driftline.core.changes.values import AddColumn, Change
from driftline.core.schema.definition import (
    DISTRIBUTION,
    KEEP,
    PATCH,
    ROW_KEY,
    SOFT,
    Definition,
    PartitionField,
    SortExpression,
    SortKey,
    known_by,
)
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Schema, dotted
from driftline.core.settings.properties import HINTS, RESOLVED

CHANGE_RECORD = "driftline.change"
BATCH = "driftline.batch"
# How many batches there were whose snapshots were let go
EXPIRED = "driftline.expired"
EXPIRED_COMPACTIONS = "driftline.expired-compactions"  # how many of `COMPACTED` were let go
# The path of the list of files that wait for their deletion
EXPIRING = "driftline.expiring"
# Where the source files are listed that the table has taken
LEDGER = "driftline.files"
# Of the batch's snapshot: how many rows it only rewrote
MOVED = "driftline.moved-rows"
# Of the same: where the first and last batches of the columns of such rows are noted
SEEN = "driftline.seen"
# Of a snapshot that only wrote files anew: how many went
COMPACTED = "driftline.compaction"
# Of the same: some were in files that others wrote
OTHERS = "driftline.moved-from-others"
RECORD_LIMIT = 4000  # characters
STATEMENT = 1000
_SHORTEST = len('["","","",""],')  # characters of a rule in a record, at least


@dataclass(frozen=True, slots=True)
class Rule:
    """The cause of a batch's change to one column."""

    path: str
    rule: str
    field: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A recorded author.

    Attributes:
        by: batch, alter, resolve, promote, replan, split, compact or undo.
        batch: its id, or that of the batch whose rows the undo took back.

    ``text``: the statements, or what the undo took back. ``left_out``: the number of rules that did not fit.
    ``counts``: of a batch of changes by key, its records by what became of them.
    """

    by: str
    text: str = ""
    batch: str = ""
    rules: tuple[Rule, ...] = ()
    left_out: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


def of_batch(
    batch: str, changes: Iterable[Change], counts: Mapping[str, int] | None = None
) -> dict[str, str]:
    """The property that records a batch's changes; none if it made none.

    Samples are data, so they are left out. ``counts``: of changes by key.
    """
    listed = [c for c in changes if not (isinstance(c, AddColumn) and c.within)]
    if not listed:
        return {}
    # Plain rules come last, and are left out first.
    listed.sort(key=lambda c: c.reason.rule == "first-sight")
    rules = [_rule(c) for c in listed[: RECORD_LIMIT // _SHORTEST]]
    count = len(rules)
    # By a quarter each time: catalogs limit a property, and the exact number that fits is not worth a search.
    while len(text := _batch(batch, rules[:count], len(listed) - count, counts or {})) > RECORD_LIMIT:
        count = count * 3 // 4
    return {CHANGE_RECORD: text}


def _rule(change: Change) -> Rule:
    """The cause of a change, without its sample."""
    reason = change.reason
    field = dotted(reason.field) if reason.field and reason.field != change.path else ""
    return Rule(dotted(change.path), reason.rule, field, str(reason.place or ""))


def of_statements(text: str) -> dict[str, str]:
    """The property that records statements of `alter`."""
    return {CHANGE_RECORD: dump_record({"by": "alter", "id": uuid4().hex, "text": cut_statement(text)})}


def of_resolve(text: str) -> dict[str, str]:
    """The property that records a `resolve`, by its arguments."""
    return {CHANGE_RECORD: dump_record({"by": "resolve", "id": uuid4().hex, "text": cut_statement(text)})}


def of_promote(text: str) -> dict[str, str]:
    """The property that records a `promote`, by its paths."""
    return {CHANGE_RECORD: dump_record({"by": "promote", "id": uuid4().hex, "text": cut_statement(text)})}


def of_replan(text: str) -> dict[str, str]:
    """The property that records a `replan`, by the fields that got other columns."""
    return {CHANGE_RECORD: dump_record({"by": "replan", "id": uuid4().hex, "text": cut_statement(text)})}


def of_split(text: str) -> dict[str, str]:
    """The property that records a `split` in a table that it makes, by the table whose rows it has."""
    return {CHANGE_RECORD: dump_record({"by": "split", "id": uuid4().hex, "text": cut_statement(text)})}


def of_compact(text: str) -> dict[str, str]:
    """The property that records the columns that a `compact` drops, by its arguments."""
    return {CHANGE_RECORD: dump_record({"by": "compact", "id": uuid4().hex, "text": cut_statement(text)})}


def of_undo(text: str, batch: str = "") -> dict[str, str]:
    """The property that records an `undo`, by what it took back.

    Args:
        batch: the batch whose rows went with it.
    """
    record = {"by": "undo", "id": uuid4().hex, "text": cut_statement(text)}
    return {CHANGE_RECORD: dump_record({**record, "batch": batch} if batch else record)}


def undone_batch(properties: Mapping[str, str]) -> str:
    """The batch whose rows an `undo` took back, by the property that records it; empty if there is none."""
    record = read_record({CHANGE_RECORD: str(properties.get(CHANGE_RECORD, ""))}, {})
    return record.batch if record is not None and record.by == "undo" else ""


def in_short(changes: Iterable[Any]) -> str:
    """Changes that came as values, as a text to record."""
    return "; ".join(map(in_words, changes))


def read_record(now: Mapping[str, str], before: Mapping[str, str]) -> ChangeRecord | None:
    """The author of the version with the properties ``now``, made from the one with ``before``.

    None: not recorded.

    >>> read_record({"driftline.batch": "b2"}, {"driftline.batch": "b1"}).batch
    'b2'
    """
    text = now.get(CHANGE_RECORD)
    # The property stays until the next change, so only a new text tells of this version.
    if text is not None and text != before.get(CHANGE_RECORD):
        try:
            return record_of_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
    batch = now.get(BATCH)
    return ChangeRecord("batch", batch=batch) if batch and batch != before.get(BATCH) else None


def record_of_json(data: Mapping[str, Any]) -> ChangeRecord:
    """The record that a property holds. Raises ValueError, KeyError, TypeError where it is none."""
    rules = tuple(Rule(*map(str, rule)) for rule in data.get("rules", ()))
    return ChangeRecord(
        str(data["by"]),
        str(data.get("text", "")),
        str(data.get("batch", "")),
        rules,
        int(data.get("left_out", 0)),
        {str(outcome): int(count) for outcome, count in data.get("counts", {}).items()},
    )


def _batch(batch: str, rules: list[Rule], left_out: int, counts: Mapping[str, int]) -> str:
    listed = [[r.path, r.rule, r.field, r.place] for r in rules]
    by_key = {"counts": counts} if counts else {}
    return dump_record({"by": "batch", "batch": batch, "rules": listed, "left_out": left_out, **by_key})


def dump_record(value: Mapping[str, Any]) -> str:
    """Serialise a value for a property."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cut_statement(text: str, most: int = STATEMENT) -> str:
    """Shorten the text to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a table.

    Attributes:
        at: milliseconds; None if unknown.
        snapshot: its current snapshot.
        record: its author, if recorded.
    """

    at: int | None
    definition: Definition
    snapshot: int | None = None
    record: ChangeRecord | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    """The known past of a table.

    Attributes:
        versions: one for each change of its definition, oldest first, and the current one.
        schemas: all known ones, by id.
        whole: the first version is the table's very first.
    """

    versions: tuple[Version, ...]
    schemas: dict[int, Schema]
    whole: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot's id, and the version of the schema that it was written with."""

    id: int
    schema: int


class EntryJson(TypedDict):
    """One change of a table's definition. ``at`` null: not known."""

    at: str | None
    by: str
    batch: str | None
    records: NotRequired[dict[str, int]]
    statement: str | None
    schema_before: int | None
    schema: int
    changes: list[TableChangeJson]
    rules_left_out: int
    partition_before: list[str] | None
    partition: list[str]
    sort_before: list[str] | None
    sort: list[str]
    key_before: list[str] | None
    key: list[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a table's definition.

    Attributes:
        by: batch, alter, resolve, promote, split, compact, undo; outside, if the change has no author;
            unknown, if only its columns are left.
        before: None if the table was created, or its earlier state is unknown.
    """

    at: int | None
    by: str
    before: Version | None
    after: Version
    changes: tuple[ColumnChange, ...]
    record: ChangeRecord = field(default_factory=lambda: ChangeRecord(""))
    makes_table: bool = False

    @property
    def time(self) -> datetime | None:
        """The time in UTC; None if unknown."""
        return None if self.at is None else datetime.fromtimestamp(self.at / 1000, UTC)

    def rule_of(self, change: ColumnChange) -> Rule | None:
        """The rule by which a batch made the change."""
        path = dotted(getattr(change, "path", ()))
        return next((r for r in self.record.rules if r.path == path), None)

    def to_dict(self) -> EntryJson:
        """The entry as `--json` prints it."""
        before, after = self.before, self.after
        out: EntryJson = {
            "at": self.time.isoformat() if self.time else None,
            "by": self.by,
            "batch": self.record.batch or None,
            "statement": self.record.text or None,
            "schema_before": before.definition.schema.id if before else None,
            "schema": after.definition.schema.id,
            "changes": [self._change(change) for change in self.changes],
            "rules_left_out": self.record.left_out,
            "partition_before": partition_text(before) if before else None,
            "partition": partition_text(after),
            "sort_before": sort_text(before) if before else None,
            "sort": sort_text(after),
            "key_before": key_text(before) if before else None,
            "key": key_text(after),
        }
        if self.record.counts:
            out["records"] = dict(self.record.counts)
        return out

    def _change(self, change: ColumnChange) -> TableChangeJson:
        out = details(change)
        if self.before and isinstance(change, DropColumn | WidenColumn):
            was = self.before.definition.schema.find(change.path)
            out["from"] = type_name(was.type) if was else None
        rule = self.rule_of(change)
        if rule is not None:
            out["rule"], out["field"], out["seen_in"] = rule.rule, rule.field or rule.path, rule.place
        return out


def entries(versions: Sequence[Version], schemas: Mapping[int, Schema], *, complete: bool) -> list[Entry]:
    """The changes, oldest first.

    Args:
        versions: the known ones, oldest first.
        schemas: all schemas by id.
        complete: the first known version is the table's very first.
    """
    out: list[Entry] = []
    if not complete:
        out += _unknown(versions[0], schemas)
    before: Version | None = None
    for version in versions:
        if before is None:
            if complete:
                out.append(_entry(None, version, is_first=True))
        # Most versions bring rows and change nothing that is told.
        elif _layout(before) != _layout(version):
            out.append(_entry(before, version))
        before = version
    return out


def standing(entries: Sequence[Entry]) -> Entry:
    """The last change that stands: neither of a batch that was taken back with its rows, nor the undo of one.

    An undo of a definition alone stands: another undo takes it back.
    """
    left, undone = list(entries), set[str]()
    # From the end: an undo stands behind the batch that it took back.
    while len(left) > 1 and (batch := left[-1].record.batch):
        if left[-1].by == "undo":
            undone.add(batch)
        elif batch in undone:
            undone.remove(batch)
        else:
            break
        left.pop()
    return left[-1]


def _entry(before: Version | None, after: Version, *, is_first: bool = False) -> Entry:
    old = before.definition if before else Definition()
    changes = diff(old.schema, after.definition.schema)
    by = after.record.by if after.record else "outside"
    return Entry(after.at, by, before, after, changes, after.record or ChangeRecord(""), is_first)


def _unknown(first: Version, schemas: Mapping[int, Schema]) -> Iterator[Entry]:
    """The schemas before the first known version, in the order of their ids."""
    before: Version | None = None
    for id_ in sorted(i for i in schemas if i <= first.definition.schema.id):
        version = Version(0, Definition(schemas[id_], first.definition.partition, first.definition.sort))
        changes = diff(before.definition.schema if before else Schema(), schemas[id_])
        yield Entry(None, "unknown", before, version, changes)
        before = version


def _layout(version: Version) -> tuple[object, ...]:
    definition = version.definition
    return definition.schema, definition.partition, definition.sort, definition.known_by


def partition_text(version: Version) -> list[str]:
    """The partition fields, as SQL has them."""
    return [partition_field(version.definition, f) for f in version.definition.partition]


def sort_text(version: Version) -> list[str]:
    """The sort order, as SQL has it."""
    return [sort_key(version.definition, key) for key in version.definition.sort]


def key_text(version: Version) -> list[str]:
    """The fields by which the table knows and orders its rows."""
    key, order_by, deletes, merge, envelope = version.definition.known_by
    if not key:
        return []
    counts = "first" if merge == KEEP else "latest"
    order = [f"the {counts} by {order_by}"] if order_by else ["the first"] if merge == KEEP else []
    return [
        key,
        *order,
        *(["soft deletes"] if deletes == SOFT else []),
        *(["patches"] if merge == PATCH else []),
        *([f"envelope {envelope}"] if envelope else []),
    ]


def partition_field(definition: Definition, f: PartitionField) -> str:
    """A partition field in SQL, with its name if that is not the usual one."""
    column = definition.name_of(f.source)
    shown = f.transform.of(column)
    return shown if f.name == f.transform.field_name(column) else f"{shown} as {f.name}"


def sort_key(definition: Definition, key: SortKey) -> str:
    """A sort key in SQL, with its direction."""
    if isinstance(key, SortExpression):
        text = key.text(definition.name_of)
    else:
        text = key.transform.of(definition.name_of(key.source))
    return f"{text}{direction(key)}"


LAST_CHANGES = "driftline.changes"
# The log of versions that Iceberg keeps ends after 100 commits, and a capture makes those in an hour.
LAST_CHANGES_LIMIT = 32_000  # characters in all
SHORT = 1_000  # of a change that is not the last one
CHANGES = 100


class Ids(NamedTuple):
    """The ids of a table's definition."""

    schema: int
    spec: int
    order: int


@dataclass(frozen=True, slots=True)
class Step:
    """A step from one definition of a table to the next.

    ``before`` None: the table was created; ``snapshot``: the one after it; ``sequence``: the first sequence
    number of files that follow it.
    """

    before: Ids | None
    after: Ids
    snapshot: int | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class PastChange:
    """A recorded change.

    Attributes:
        at: milliseconds, by the author's clock.

    ``was``: the former values of properties that belong to columns, the sort order or the key; None: none.
    """

    at: int
    step: Step
    record: ChangeRecord
    was: Mapping[str, str | None] = field(default_factory=dict)

    def properties_before(self, after: Mapping[str, str]) -> dict[str, str]:
        """The table's properties before the change, from those after it."""
        unchanged = {key: value for key, value in after.items() if key not in self.was}
        return unchanged | {key: value for key, value in self.was.items() if value is not None}


def with_change(
    recorded: Mapping[str, str], step: Step, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """The property that a commit sets in place of the record of its change.

    It is empty if the commit changes neither a definition nor a key.

    Args:
        recorded: the properties with the record.
        step: the definitions before and after.
        before: the table's properties before the commit.
        after: the table's properties after it.
    """
    if CHANGE_RECORD not in recorded or (step.before == step.after and known_by(before) == known_by(after)):
        return {}
    was = {key: before.get(key) for key in {*before, *after} if _belongs(key)}
    entry = {
        "at": time.time_ns() // 1_000_000,
        "from": step.before,
        "to": step.after,
        "snapshot": step.snapshot,
        "sequence": step.sequence,
        "was": {key: value for key, value in sorted(was.items()) if value != after.get(key)},
        **json.loads(recorded[CHANGE_RECORD]),
    }
    # Only the last change keeps its full text, so one long statement does not push the others out.
    older = [_shortened(change) for change in (_load(before) if last_changes(before) else [])]
    return {LAST_CHANGES: _joined([dump_record(change) for change in (*older, entry)][-CHANGES:])}


def last_changes(properties: Mapping[str, str]) -> tuple[PastChange, ...]:
    """The changes that a table remembers, oldest first."""
    try:
        # Anyone can write a property: one that does not read counts as no history, and no error.
        return tuple(map(_change, _load(properties)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def is_noted(now: Mapping[str, str], drafted: Mapping[str, str]) -> bool:
    """True if the last change in the properties ``drafted`` is among those in ``now``."""
    return any(
        _entry_key(change) == _entry_key(last) for last in _load(drafted)[-1:] for change in _load(now)
    )


def _entry_key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """The entries of a change that identify it, and never change while it is remembered."""
    return tuple(entry.get(key) for key in ("at", "by", "id", "batch"))


def author_of(now: Mapping[str, str], before: Mapping[str, str]) -> ChangeRecord | None:
    """The author of the version with the properties ``now``, made from the one with ``before``.

    None: not recorded.
    """
    if now.get(LAST_CHANGES) != before.get(LAST_CHANGES) and (changes := last_changes(now)):
        return changes[-1].record
    return read_record(now, before)


def written_with(changes: Sequence[PastChange], schema: int) -> list[tuple[int, int | None]]:
    """For each schema, oldest first, the sequence number from which files were written with it.

    The schema is None where others may have changed it. ``schema``: the current one.
    """
    then = [None if change.step.before is None else change.step.before.schema for change in changes]
    return [
        (change.step.sequence, after if (after := change.step.after.schema) == next_ else None)
        for change, next_ in zip(changes, [*then, schema][1:], strict=False)
    ]


def _belongs(key: str) -> bool:
    return key == DISTRIBUTION or key in ROW_KEY or key.startswith((HINTS, RESOLVED))


def _joined(texts: list[str]) -> str:
    """The newest texts as one list, as far as there is room."""
    room, first = LAST_CHANGES_LIMIT - 1, len(texts)
    while first and (room := room - len(texts[first - 1]) - 1) >= 0:
        first -= 1
    return f"[{','.join(texts[first:])}]"


def _load(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        entries = json.loads(properties.get(LAST_CHANGES, "[]"))
    except ValueError:
        return []
    return entries if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) else []


def _change(entry: Mapping[str, Any]) -> PastChange:
    before, snapshot = entry["from"], entry["snapshot"]
    step = Step(
        None if before is None else _ids(before),
        _ids(entry["to"]),
        None if snapshot is None else int(snapshot),
        int(entry["sequence"]),
    )
    return PastChange(int(entry["at"]), step, record_of_json(entry), dict(entry.get("was", {})))


def _ids(values: Iterable[Any]) -> Ids:
    return Ids(*map(int, values))


def _shortened(entry: dict[str, Any]) -> dict[str, Any]:
    """Shorten an entry to about `SHORT` characters of its text, or to as many of its rules as fit."""
    if "text" in entry:
        return {**entry, "text": cut_statement(entry["text"], SHORT // 2)}
    rules, left_out = entry.get("rules", []), entry.get("left_out", 0)
    count = len(rules)
    while count and len(dump_record(entry)) > SHORT:
        count = count * 3 // 4
        entry = {**entry, "rules": rules[:count], "left_out": left_out + len(rules) - count}
    return entry
