"""The history of a table's schema, layout and key: entries from the versions of its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NotRequired, TypedDict

from driftline.core.changelog.record import ChangeRecord, Rule
from driftline.core.changes import ColumnChange, DropColumn, TableChangeJson, WidenColumn, details, diff
from driftline.core.changes.text import direction
from driftline.core.schema.definition import PATCH, SOFT, Definition, PartitionField, SortExpression, SortKey
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Schema, dotted


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a table: ``at`` in milliseconds, None if unknown; its current snapshot; its author, if
    recorded.
    """

    at: int | None
    definition: Definition
    snapshot: int | None = None
    record: ChangeRecord | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    """The known past of a table.

    ``versions``: one for each change of its definition, oldest first, and the current one; ``schemas``: all
    known ones, by id; ``whole``: the first version is the table's very first.
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
    """One change of a table's definition. ``before`` None: the table was created, or its earlier state is
    unknown.

    ``by``: batch, alter, resolve, promote, undo; outside, if the change has no author; unknown, if only its
    columns are left.
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

    ``versions``: the known ones, oldest first; ``schemas``: all schemas by id; ``complete``: the first known
    version is the table's very first.
    """
    out: list[Entry] = []
    if not complete:
        out += _unknown(versions[0], schemas)
    before: Version | None = None
    for version in versions:
        if before is None:
            if complete:
                out.append(_entry(None, version, is_first=True))
        elif _layout(before) != _layout(version):
            out.append(_entry(before, version))
        before = version
    return out


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
    order = [f"the latest by {order_by}"] if order_by else []
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
