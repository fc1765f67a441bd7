"""A table's history for the page and the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driftline.core.changelog.record import Rule
from driftline.core.changes import AddColumn, ColumnChange, in_words, told
from driftline.core.columns.statistics import SeenIn
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import Schema, Struct, dotted
from driftline.operations.history import History
from driftline.stats.model import ChangeText, Event

PLAIN = "first-sight"


def events(history: History, samples: Mapping[int, str]) -> Iterator[Event]:
    """The versions of the schema, oldest first. ``samples``: by column id, a
    value of the batch that brought the column.
    """
    for entry in history.entries:
        rules = {rule.path: rule for rule in entry.record.rules}
        plain: list[ChangeText] = []
        steps: list[ChangeText] = []
        for change in told(entry.changes):
            rule = rules.get(dotted(getattr(change, "path", ())))
            (plain if _is_plain(change, rule) else steps).append(_step(change, rule, samples))
        if plain or steps:
            who = entry.record.batch if entry.by == "batch" else entry.record.text
            version = entry.after.definition.schema.id
            yield Event(entry.at, version, entry.by, who, tuple(plain), tuple(steps), entry.makes_table)


def added(history: History) -> dict[int, tuple[SeenIn | None, Rule | None]]:
    """By column id: the batch that added the column, if one did, and the rule."""
    out: dict[int, tuple[SeenIn | None, Rule | None]] = {}
    for entry in history.entries:
        seen = SeenIn(entry.at, entry.record.batch) if entry.by == "batch" and entry.at is not None else None
        rules = {rule.path: rule for rule in entry.record.rules}
        for change in entry.changes:
            if isinstance(change, AddColumn):
                rule = rules.get(dotted(change.path))
                for path, f in Schema(Struct((change.column,))).walk():
                    out[f.id] = seen, rule if len(path) == 1 else None
    return out


def _step(change: ColumnChange, rule: Rule | None, samples: Mapping[int, str]) -> ChangeText:
    new = isinstance(change, AddColumn)
    return ChangeText(
        f"{dotted(change.path)} {outline(change.type)}"
        if isinstance(change, AddColumn)
        else in_words(change),
        change.action,
        dotted(getattr(change, "path", ())),
        (rule.field or None) if rule else None,
        rule.rule if rule else None,
        (rule.place or None) if rule else None,
        samples.get(change.column.id) if new and isinstance(change, AddColumn) else None,
    )


def _is_plain(change: ColumnChange, rule: Rule | None) -> bool:
    """True for a new column of a new field, under its own name."""
    if not isinstance(change, AddColumn) or change.column.doc:
        return False
    return rule is None or rule.rule == PLAIN
