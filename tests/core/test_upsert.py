"""Batches of changes by key, from their lines to a table of Parquet files, against a dictionary, without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.test_convert_rules import Lines
from driftline.convert import Converter, arrow_schema
from driftline.core.planning.routes import Settings
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import DataError
from driftline.ingest.accept import accepted
from driftline.ingest.batch import Planned
from driftline.ingest.recent import RecentBatches
from driftline.ingest.upsert import Changes, check_possible
from driftline.keys.finder import KeyFile, KeyFinder
from driftline.keys.identity import BatchKeys
from driftline.keys.settle import Found, KeyCounts
from driftline.keys.slices import RowSlice, Slices
from driftline.keys.stored import StoredRows
from driftline.settings import as_properties, from_properties
from driftline.write import BatchFolder

Event = dict[str, Any]
Key = tuple[str, object]


@dataclass
class FilesTable:
    """A table that is Parquet files and positions of them: what formats make of `find`, `remove` and `write`."""

    folder: Path
    schema: Schema = field(default_factory=Schema)
    files: list[str] = field(default_factory=list)
    dead: dict[str, set[int]] = field(default_factory=dict)
    batches: int = 0

    def find(self, keys: BatchKeys, order: int | None, deleted: int | None = None) -> list[Found]:
        found = KeyFinder(keys, order, pa.OSFile, deleted).find(map(KeyFile, self.files))
        return [
            hits.only(np.array([at not in self.dead.get(hits.file, ()) for at in hits.positions], np.bool_))
            for hits in found
        ]

    @property
    def row(self) -> Struct:
        return self.schema.struct

    def stored(self) -> StoredRows:
        return StoredRows(self.row, pa.OSFile)

    def remove(self, rows: dict[str, Any]) -> None:
        for file, positions in rows.items():
            self.dead.setdefault(file, set()).update(positions.tolist())

    def write(self, tasks: Any, folder: BatchFolder, summary: object, *, with_ids: bool) -> int:
        assert not with_ids
        rows = [b for n in range(len(tasks.sizes)) for b in tasks.maker.rows(n, lambda _: None)]
        if rows:
            self.files.append(str(self.folder / f"{len(self.files)}.parquet"))
            schema = arrow_schema(self.schema.struct)
            pq.write_table(pa.Table.from_batches(rows).cast(schema), self.files[-1], row_group_size=7)
        return sum(map(len, rows))

    def ingest(self, batch: Sequence[Event], settings: Settings) -> tuple[KeyCounts, int]:
        texts = [json.dumps(event).encode() for event in batch]
        scan: Any = Lines(texts, self.schema, settings)
        observed, planned = accepted(scan, RecentBatches(), lambda _: None)
        scan, self.schema, struct = observed.scan, planned.schema, planned.schema.struct
        kept, refused = scan.records()
        folder = self.folder / f"batch{self.batches}"
        folder.mkdir()
        self.batches += 1
        parts = []
        for number, some in enumerate((kept[:5], kept[5:])):
            rows = Converter(struct, planned.route, settings).of_json(some)
            if len(rows):
                parts.append(RowSlice(f"{number}.arrow", len(rows), rows.nbytes))
                with pa.ipc.new_file(str(folder / parts[-1].name), rows.schema) as file:
                    file.write(rows)
        assert settings.row_key is not None
        slices = Slices(BatchFolder(str(folder)), parts)
        changes = Changes("t", slices, struct, settings.row_key, settings.mark)
        return changes.settle(None, self, {}), len(refused)  # type: ignore[arg-type]

    def rows(self) -> list[Event]:
        out = []
        for file in self.files:
            rows = pq.read_table(file).to_pylist()
            out += [row for at, row in enumerate(rows) if at not in self.dead.get(file, ())]
        return out


def same_key(value: object) -> Key:
    if isinstance(value, bool):
        return "boolean", value
    return ("text", value) if isinstance(value, str) else ("number", Decimal(repr(value)).normalize())


def key_of(row: Event, name: str = "id") -> Key:
    """The key of a row: the narrowest column that is not null has it."""
    values = [
        value for column, value in row.items() if column.partition("_")[0] == name and value is not None
    ]
    return same_key(min(values, key=lambda v: (isinstance(v, (str, Decimal)), isinstance(v, float))))


class Oracle:
    """What a dictionary says of events, and how many of them had what end.

    With ``soft`` changes count one by one, and a deleted row stays, with the order of its delete.
    """

    def __init__(self, *, ordered: bool, soft: bool = False) -> None:
        self.rows: dict[Key, Event] = {}
        self.ordered, self.soft = ordered, soft

    def take(self, batch: Sequence[Event]) -> KeyCounts:
        counts = dict.fromkeys(("inserted", "updated", "deleted", "superseded", "late", "ignored"), 0)
        latest: dict[Key, Event] = {}
        for event in batch:
            key = same_key(event["id"])
            counts["superseded"] += key in latest
            if key not in latest or not self.ordered or event["seq"] >= latest[key]["seq"]:
                latest[key] = event
        before = dict(self.rows)
        for event in batch if self.soft else latest.values():
            self._apply(same_key(event["id"]), event)
        for key, event in latest.items():
            known = before.get(key)
            if self.ordered and known is not None and known["seq"] > event["seq"]:
                counts["late"] += 1
            elif event.get("op") == "d":
                ignored = known is None if not self.soft else known == self.rows.get(key)
                counts["ignored" if ignored else "deleted"] += 1
            else:
                counts["inserted" if known is None else "updated"] += 1
        return KeyCounts(**counts)

    def _apply(self, key: Key, event: Event) -> None:
        known = self.rows.get(key)
        if self.ordered and known is not None and known["seq"] > event["seq"]:
            return
        if event.get("op") != "d":
            self.rows[key] = event
        elif not self.soft:
            self.rows.pop(key, None)
        elif known is not None or self.ordered:
            kept = known or {"n": None}
            order = {"seq": event["seq"]} if self.ordered else {}
            self.rows[key] = {**kept, **order, "gone": True}


KEYS = [*range(12), *map(str, range(6)), 2.5, 2**60, 2**60 + 1, True, "true", "2026-01-01", "x"]
VALUES = [1, 2.5, "text", True, {"a": 1}, [1, 2], None, "2026-01-01"]
BAD = [None, [], {"a": 1}]


def events(chance: random.Random, count: int) -> list[Event]:
    made: list[Event] = []
    for number in range(count):
        late = chance.random() < 0.2
        key, seq = chance.choice(KEYS), chance.randrange(number + 1) if late else number
        if chance.random() < 0.3 and type(key) is int and key < 99:
            key = float(key)
        event = {"id": key, "seq": float(seq) if chance.random() < 0.1 else seq, "n": number}
        if chance.random() < 0.2:
            event["op"] = "d"
        else:
            event |= {"op": "u", "v": chance.choice(VALUES)}
        made += [event] * (2 if chance.random() < 0.05 else 1)
    return made


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they come"])
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_table_is_what_a_dictionary_says(tmp_path: Path, seed: int, ordered: bool, deletes: str) -> None:
    chance, table = random.Random(seed), FilesTable(tmp_path)
    oracle = Oracle(ordered=ordered, soft=deletes == "soft")
    given = {"key": "id", "delete_when": "op = 'd'", "deletes": deletes}
    given |= {"order_by": "seq"} if ordered else {}
    settings = from_properties(as_properties(given))
    stream = events(chance, 200)
    while stream:
        batch, stream = stream[: (size := chance.randrange(1, 60))], stream[size:]
        bad = [{"id": chance.choice(BAD), "seq": 1, "n": -1}] if chance.random() < 0.3 else []
        counts, malformed = table.ingest([*bad, *batch], settings)
        assert counts == oracle.take(batch)
        assert (malformed, counts.total) == (len(bad), len(batch))

    held = {key_of(row): (row["n"], row.get("_is_deleted", False)) for row in table.rows()}
    assert len(held) == len(table.rows())
    assert held == {key: (event["n"], event.get("gone", False)) for key, event in oracle.rows.items()}


def test_keys_of_several_fields_in_objects(tmp_path: Path) -> None:
    table = FilesTable(tmp_path)
    settings = from_properties(as_properties({"key": "a.id, b"}))
    table.ingest([{"a": {"id": 1}, "b": "x", "n": 1}, {"a": {"id": "1"}, "b": "x", "n": 2}], settings)
    counts, malformed = table.ingest(
        [{"a": {"id": 1.0}, "b": "x", "n": 3}, {"a": {"id": 1}, "b": "y", "n": 4}, {"a": [1], "b": "x"}],
        settings,
    )

    assert (counts, malformed) == (KeyCounts(inserted=1, updated=1), 1)
    assert sorted(row["n"] for row in table.rows()) == [2, 3, 4]


def test_a_key_that_is_not_a_number_is_no_silent_loss(tmp_path: Path) -> None:
    table = FilesTable(tmp_path)
    settings = from_properties(as_properties({"key": "id"}))
    table.ingest([{"id": 0.5, "n": 1}], settings)
    (tmp_path / "nan").mkdir()
    rows = pa.RecordBatch.from_pylist(
        [{"id": 1.5, "n": 1}, {"id": float("nan"), "n": 2}], arrow_schema(_struct(table))
    )
    with pa.ipc.new_file(str(tmp_path / "nan" / "0.arrow"), rows.schema) as file:
        file.write(rows)
    slices = Slices(BatchFolder(str(tmp_path / "nan")), [RowSlice("0.arrow", 2, 1)])
    assert settings.row_key is not None
    changes = Changes("t", slices, _struct(table), settings.row_key, settings.mark)

    with pytest.raises(DataError, match="1 records have no key in id, the first of them is record 2"):
        changes.settle(None, table, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "more"),
    [
        ({"id": 1, "b": 1, "a": {"op": "d"}}, {"max_columns": 2}),
        ({"id": 1, "a": {"op": "d"}}, {"new_fields": {"a": "hold"}}),
        ({"id": 1, "a": [{"op": "d"}]}, {}),
        ({"id": 1, "a": {f"2026-01-{day:02}": "d" for day in range(1, 32)}}, {"maps": "auto"}),
    ],
    ids=["beyond a limit", "held", "in a list", "in a map"],
)
def test_what_deletes_is_not_looked_for_in_vain(record: Event, more: dict[str, object]) -> None:
    deletes = {"key": "id", "delete_when": "a.op = 'd' or a.op is null"}
    settings = from_properties(as_properties({**deletes, "beyond": "rest", **more}))
    table = Schema(Struct((Field("id", LONG, 1),)))
    scan: Any = Lines([json.dumps(record).encode()], table, settings)
    observed, planned = accepted(scan, RecentBatches(), lambda _: None)
    batch: Any = SimpleNamespace(table=SimpleNamespace(name="t"), source=SimpleNamespace(in_order=True))
    state: Any = None

    with pytest.raises(DataError, match=r"t: delete_when needs a\.op, and values of it have no column"):
        check_possible(Planned(batch, state, observed, planned))


def _struct(table: FilesTable) -> Struct:
    return table.schema.struct
