"""A table without an engine, which takes steps by the real plan and the real conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from core.held_values import record_of
from core.random_steps import Change, Json, Promote, Step, Typed
from driftline.convert import Converter, arrow_schema
from driftline.convert.promoter import Promoter, Selection, parts_of
from driftline.core.changes import AddColumn, apply
from driftline.core.planning.own_columns import REST, keys_of, rest_column, steps
from driftline.core.planning.plan import Plan, by_name
from driftline.core.planning.planner import plan
from driftline.core.schema.types import List, Map, Schema, Struct, Type
from driftline.core.settings.table import TableSettings
from driftline.core.values import parse
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation
from driftline.operations.promote import SelectedValues, plans, seen_in, unlimited
from driftline.readers.columnar.rows import Rows
from driftline.readers.columnar.split import read_resolved
from driftline.readers.json.rows import JsonRows
from driftline.readers.task import AdmissionTerms
from driftline.verify import json_texts as texts
from driftline.verify.values import Pairs


class Source(NamedTuple):
    """A record as `held_values` reads it, maps as dicts, and as ``verify`` does."""

    record: Any
    for_verify: Any


@dataclass
class TableInMemory:
    """``sources``: the records as they came, one a row."""

    settings: TableSettings = field(default_factory=TableSettings)
    schema: Schema = field(default_factory=Schema)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)

    def take(self, step: Step) -> None:
        match step:
            case Change(settings):
                self.settings = settings
            case Json():
                self._json(step)
            case Typed():
                self._typed(step)
            case Promote(part):
                self._promote(part)

    def _json(self, batch: Json) -> None:
        lines, known = batch.lines, expect(self.schema, self.settings)
        observer = JsonObserver(known, self.settings)
        observer.feed(lines, "batch", 1)
        seen = observer.result()
        planned = self._planned(seen)
        if planned.schema.struct.fields:
            rows = Converter(planned.schema.struct, planned.route, self.settings).of_json(
                [*map(parse, lines)]
            )
            in_tasks = JsonRows.of(planned, planned.schema.struct, AdmissionTerms(known, self.settings), seen)
            by_columns = by_whole_columns(in_tasks, lines, plain_rows)
            assert valued(by_columns) == valued(plain_rows(rows)), "two roads"
            self._append(planned, rows, [Source(record_of(line), texts.parse(line)) for line in lines])

    def _typed(self, batch: Typed) -> None:
        values = [paired(record, batch.struct, lambda m: [*m.items()]) for record in batch.records]
        columns = pa.RecordBatch.from_pylist(values, arrow_schema(batch.struct))
        known, empty_names = expect(self.schema, self.settings), self.settings.keep_empty_names
        read, struct = read_resolved(
            Rows(columns, "batch"), batch.struct, AdmissionTerms(known, self.settings)
        )
        observer = ArrowObserver(struct, known, "batch", empty_names=empty_names)
        observer.feed(read.batch)
        planned = self._planned(observer.result())
        converter = Converter(planned.schema.struct, planned.route, self.settings)
        rows = converter.of_arrow(read.batch, struct, json=False)
        pairs = [paired(record, batch.struct, Pairs) for record in batch.records]
        self._append(planned, rows, [*map(Source, batch.records, pairs)])

    def _planned(self, seen: Observation) -> Plan:
        planned = plan(self.schema, seen.shape, self.settings)
        assert planned.conflicts == ()
        return planned

    def _append(self, planned: Plan, rows: pa.RecordBatch, sources: Sequence[Source]) -> None:
        rows.validate(full=True)
        before, struct = self.schema.struct, planned.schema.struct
        older = Converter(struct, by_name(before, struct), self.settings)
        self.rows = [older.of_arrow(batch, before, json=False) for batch in self.rows] + [rows]
        self.schema = planned.schema
        self.sources += sources

    def _promote(self, part: int | None) -> None:
        rest = rest_column(self.schema.struct)
        if rest is None:
            return
        waiting = [
            path
            for rows in self.rows
            for entries in rows.column(rest.name).to_pylist()
            for path, _ in entries or ()
        ]
        paths = sorted({keys_of(steps(path)) for path in waiting if not path.endswith(" type")})
        if not paths:
            return
        selection = Selection(() if part is None else (paths[part % len(paths)],))
        parts = [
            parts_of(rows, self.schema.struct, rest.name, selection, self.settings.mark) for rows in self.rows
        ]

        def look(known: Schema) -> SelectedValues:
            return seen_in(parts, expect(known, self.settings), self.settings.dates)

        free = unlimited(self.settings)
        planned = plans(self.schema, look(self.schema), look, free)
        new_rest = AddColumn((), replace(REST, name="new rest", doc=rest.doc))
        between = apply(planned.schema, [new_rest])
        promoter = Promoter.of(planned, between.struct, free, selection, rest.name, "new rest")
        self.rows = [_with_rest(promoter.rows(rows), rest.name) for rows in self.rows]
        fields = [f for f in between.struct.fields if f.name != rest.name]
        struct = Struct(tuple(replace(f, name=rest.name) if f.name == "new rest" else f for f in fields))
        self.schema = replace(between, struct=struct)
        for rows in self.rows:
            rows.validate(full=True)


def _with_rest(rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    rows = rows.drop_columns([name])
    return rows.rename_columns([name if old == "new rest" else old for old in rows.schema.names])


def by_whole_columns(rows: JsonRows, lines: Sequence[bytes], shown: Callable[[Any], list[Any]]) -> list[Any]:
    """The rows as a task makes them, of lines whose usual types it knows; each as it is ``shown``."""
    watching = rows.observer()
    watching.feed(lines, "batch", 1)
    looked = watching.feed(lines, "batch", 1 + len(lines))
    by_line: dict[int, Any] = {}
    for batch, places in rows.of_lines(lines, looked, watching.fields):
        batch.validate(full=True)
        by_line |= zip(places, shown(batch), strict=True)
    return [by_line[place] for place in range(len(lines))]


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows with maps as dicts."""
    return rows.to_pylist(maps_as_pydicts="strict")


def valued(value: Any) -> Any:
    """The value with null for what has no value inside: which form that has depends on the road."""
    if isinstance(value, dict):
        value = {key: valued(item) for key, item in value.items()}
        return value if any(item is not None for item in value.values()) else None
    if isinstance(value, list):
        value = [valued(item) for item in value]
        return value if any(item is not None for item in value) else None
    return value


def paired(value: Any, type_: Type, of_map: Callable[[dict[str, Any]], Any]) -> Any:
    """A value with its maps in another form."""
    match type_:
        case _ if value is None:
            return None
        case Struct(fields):
            return {f.name: paired(value.get(f.name), f.type, of_map) for f in fields}
        case List(element):
            return [paired(item, element, of_map) for item in value]
        case Map(value=item):
            return of_map({key: paired(v, item, of_map) for key, v in value.items()})
        case _:
            return value
