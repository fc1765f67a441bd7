"""Batches of changes by key, from their lines to a table of Parquet files, against a dictionary, without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from core.test_convert_rules import Lines, expected_lines
from driftline.convert import arrow_schema
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.fields import excluded_paths
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches
from driftline.ingest.upsert import Changes
from driftline.keys.anew import RewriteBudget, RewriteCandidate, RowsLeft, choose
from driftline.keys.identity import BatchKeys
from driftline.keys.remembered import DeletedKeys, LastTruncate, nested, only
from driftline.keys.settle import Found, KeyCounts
from driftline.keys.slices import RowSlice, Slices
from driftline.keys.stored import KeyCache, KeyFile, KeyFinder, StoredRows
from driftline.observe.expect import expect
from driftline.readers.deletes import DeleteFilter
from driftline.readers.envelopes.unwrap import Unwrapper
from driftline.readers.json.rows import JsonRows, LineTask, Run
from driftline.readers.rejects import Origin, Reject
from driftline.readers.task import AdmissionTerms
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
    memory: list[str] = field(default_factory=list)
    batches: int = 0
    moved: int = 0
    cache: KeyCache | None = None
    truncated: tuple[int, str] = 0, ""

    def find_deletes(self, keys: BatchKeys, order: int) -> list[Found]:
        return KeyFinder(keys, order, pa.OSFile).find(map(KeyFile, self.memory))

    def remember_deletes(self, deletes: DeletedKeys) -> None:
        columns = deletes.columns
        struct = only(self.schema.struct, set(map(int, columns.column_names)))
        self.memory.append(str(self.folder / f"deletes{len(self.memory)}.parquet"))
        pq.write_table(pa.Table.from_batches([nested(struct, columns)]), self.memory[-1])

    def find(
        self, keys: BatchKeys, order: int | None, deleted: int | None = None, cache: KeyCache | None = None
    ) -> list[Found]:
        found = KeyFinder(keys, order, pa.OSFile, deleted).find(map(KeyFile, self.files), cache)
        return [
            hits.only(np.array([at not in self.dead.get(hits.file, ()) for at in hits.positions], np.bool_))
            for hits in found
        ]

    @property
    def row_type(self) -> Struct:
        return self.schema.struct

    def stored(self) -> StoredRows:
        return StoredRows(self.row_type, pa.OSFile)

    def remove(self, rows: dict[str, Any], size: int) -> RowsLeft | None:
        for file, positions in rows.items():
            self.dead.setdefault(file, set()).update(positions.tolist())
        files = (
            RewriteCandidate(file, pq.read_metadata(file).num_rows, 1, BitMap64(self.dead[file]))
            for file in rows
        )
        groups = choose(files, RewriteBudget.of_batch(size), self.stored().can_move)
        gone = [file for group in groups for file in group]
        for file in gone:
            self.files.remove(file.path)
            self.moved += file.left
        return RowsLeft(self.stored(), gone, with_ids=False) if gone else None

    def write(self, tasks: Any, folder: BatchFolder, summary: object, *, with_ids: bool) -> int:
        assert not with_ids
        rows = [b for n in range(len(tasks.sizes)) for b in tasks.maker.rows(n, lambda _: None)]
        if rows:
            self.files.append(str(self.folder / f"{self.batches}.parquet"))
            schema = arrow_schema(self.schema.struct)
            pq.write_table(pa.Table.from_batches(rows).cast(schema), self.files[-1], row_group_size=7)
        return sum(map(len, rows))

    def ingest(self, batch: Sequence[Event], settings: TableSettings) -> tuple[KeyCounts, int]:
        return self.ingest_lines([json.dumps(event).encode() for event in batch], settings)

    def ingest_lines(self, texts: Sequence[bytes], settings: TableSettings) -> tuple[KeyCounts, int]:
        assert settings.row_key is not None
        terms = AdmissionTerms(expect(self.schema, settings), settings)
        deletes = DeleteFilter.of(terms)
        unwrapper = Unwrapper.of(settings.row_key)
        records = texts if unwrapper is None else unwrapper.records(texts)[0]
        records, flags = (records, None) if deletes is None else deletes.lines(records)
        scan: Any = Lines(expected_lines(records, settings, flags)[0], self.schema, settings)
        observed, planned = accepted(scan, RecentBatches(), lambda _: None)
        terms = replace(terms, check=observed.scan.check)  # type: ignore[attr-defined]
        self.schema, struct = planned.schema, planned.schema.struct
        make = JsonRows.of(planned, struct, terms, observed.observation)
        folder = self.folder / f"batch{self.batches}"
        folder.mkdir()
        self.batches += 1
        parts, malformed = [], 0
        task, reject = LineTask(make.observer(), make, terms), partial(Reject, Origin("batch"), b"")
        for number, lines in enumerate((texts[:5], texts[5:])):
            some, rejects = task.observe([Run(lines, "batch", 1 + 5 * number, lambda _, why: reject(why))])
            malformed += 0 if rejects is None else len(rejects)
            batches = [rows for rows, _ in task.convert(some) if len(rows)]
            if batches:
                parts.append(RowSlice(f"{number}.arrow", sum(map(len, batches)), 1))
                with pa.ipc.new_file(str(folder / parts[-1].name), batches[0].schema) as file:
                    for rows in batches:
                        file.write(rows)
        slices = Slices(BatchFolder(str(folder)), parts)
        excluded = list(excluded_paths(settings.fields))
        sent = settings.row_key.epoch, "" if unwrapper is None else unwrapper.truncated
        last = LastTruncate.of(self.truncated, sent, updates=settings.row_key.reconciles)
        self.truncated = last.epoch, last.position
        changes = Changes("t", slices, struct, settings.row_key, settings.mark, excluded, self.cache, last)
        return changes.settle(None, self, {}), malformed  # type: ignore[arg-type]

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
    """A dictionary that takes the events, and counts how each ended.

    With ``soft`` changes count one by one, and a deleted row stays as it was ``written``; its ``seq`` here is
    that of its delete.
    """

    def __init__(self, *, ordered: bool, soft: bool = False) -> None:
        self.rows: dict[Key, Event] = {}
        self.deletes: dict[Key, Event] = {}  # the last ones, which are remembered where there is an order
        self.ordered, self.soft = ordered, soft

    def take(self, batch: Sequence[Event]) -> KeyCounts:
        counts = dict.fromkeys(("inserted", "updated", "deleted", "superseded", "late", "ignored"), 0)
        latest: dict[Key, Event] = {}
        for event in batch:
            key = same_key(event["id"])
            counts["superseded"] += key in latest
            if key not in latest or not self.ordered or event["seq"] >= latest[key]["seq"]:
                latest[key] = event
        before, deletes = dict(self.rows), dict(self.deletes)
        for event in batch if self.soft else latest.values():
            self._apply(same_key(event["id"]), event)
        for key, event in latest.items():
            known, last = before.get(key), before.get(key, deletes.get(key))
            if self.ordered and last is not None and last["seq"] > event["seq"]:
                counts["late"] += 1
            elif event.get("op") == "d":
                ignored = known is None if not self.soft else known == self.rows.get(key)
                counts["ignored" if ignored else "deleted"] += 1
            else:
                counts["inserted" if known is None else "updated"] += 1
        return KeyCounts(**counts)

    def _apply(self, key: Key, event: Event) -> None:
        known, last = self.rows.get(key), self.rows.get(key, self.deletes.get(key))
        if self.ordered and last is not None and last["seq"] > event["seq"]:
            return
        if event.get("op") != "d":
            self.rows[key] = event
        elif not self.soft:
            self.rows.pop(key, None)
            self.deletes[key] = event
        elif known is not None or self.ordered:
            kept = known or {"n": None, "seq": event["seq"]}
            order = {"seq": event["seq"]} if self.ordered else {}
            self.rows[key] = {"written": kept["seq"], **kept, **order, "gone": True}

    def seqs(self) -> dict[Key, Key]:
        """The value of ``seq`` that each row of the table has."""
        return {key: same_key(event.get("written", event["seq"])) for key, event in self.rows.items()}


def first_of(stream: Sequence[Event], *, ordered: bool) -> dict[Key, int]:
    """The rows where the first record of each key stays, each by the number of its event."""
    rows: dict[Key, Event] = {}
    for event in stream:
        known = rows.setdefault(same_key(event["id"]), event)
        if ordered and event["seq"] < known["seq"]:
            rows[same_key(event["id"])] = event
    return {key: event["n"] for key, event in rows.items()}


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
    chance, table = random.Random(seed), FilesTable(tmp_path, cache=KeyCache() if seed % 2 else None)
    oracle = Oracle(ordered=ordered, soft=deletes == "soft")
    given = {"key": "id", "delete_when": "op = 'd'", "deletes": deletes}
    given |= {"key_cache": "1kb"} if seed == 3 else {}  # which some of the files have room in
    given |= {"order_by": "seq"} if ordered else {}
    settings = from_properties(as_properties(given))
    stream = events(chance, 200)
    while stream:
        batch, stream = stream[: (size := chance.randrange(1, 60))], stream[size:]
        bad = [{"id": chance.choice(BAD), "seq": 1, "n": -1}] if chance.random() < 0.3 else []
        counts, malformed = table.ingest([*bad, *batch], settings)
        assert counts == oracle.take(batch)
        assert (malformed, counts.total) == (len(bad), len(batch))

    assert table.moved
    held = {key_of(row): (row["n"], row.get("_is_deleted", False)) for row in table.rows()}
    assert len(held) == len(table.rows())
    assert held == {key: (event["n"], event.get("gone", False)) for key, event in oracle.rows.items()}
    assert {key_of(row): key_of(row, "seq") for row in table.rows()} == oracle.seqs()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they come"])
def test_first_record_of_a_key_stays_wherever_batches_are_cut(
    tmp_path: Path, seed: int, ordered: bool
) -> None:
    chance, table = random.Random(seed), FilesTable(tmp_path, cache=KeyCache() if seed % 2 else None)
    settings = from_properties(
        as_properties({"key": "id", "merge": "keep", "order_by": "seq" if ordered else ""})
    )
    records = [{**event, "op": None} for event in events(chance, 200)]
    first = first_of(records, ordered=ordered)
    total = KeyCounts()
    while records:
        batch, records = records[: (size := chance.randrange(1, 60))], records[size:]
        before = {key_of(row) for row in table.rows()}
        counts, _ = table.ingest(batch, settings)
        assert counts.inserted == len({same_key(record["id"]) for record in batch} - before)
        assert counts.total == len(batch)
        total = replace(
            total, updated=total.updated + counts.updated, duplicate=total.duplicate + counts.duplicate
        )

    assert {key_of(row): row["n"] for row in table.rows()} == first
    assert len(table.rows()) == len(first)
    assert total.duplicate and bool(total.updated) == ordered


@pytest.mark.parametrize("cut", range(4))
def test_record_of_the_lowest_order_stays_and_of_equal_ones_the_first_to_come(
    tmp_path: Path, cut: int
) -> None:
    table, settings = FilesTable(tmp_path), {"key": "id", "order_by": "seq", "merge": "keep"}
    batch = [{"id": 1, "seq": 5, "n": 1}, {"id": 1, "seq": 3, "n": 2}, {"id": 1, "seq": 3, "n": 3}]
    for part in filter(None, (batch[:cut], batch[cut:])):
        table.ingest(part, from_properties(as_properties(settings)))

    assert [(row["seq"], row["n"]) for row in table.rows()] == [(3, 2)]


@pytest.mark.parametrize("cut", range(3))
def test_remembered_delete_counts_before_soft_deletes_wherever_batches_are_cut(
    tmp_path: Path, cut: int
) -> None:
    table, given = FilesTable(tmp_path), {"key": "id", "order_by": "seq", "delete_when": "op = 'd'"}
    table.ingest(
        [{"id": 2, "seq": 1, "v": "other"}, {"id": 1, "seq": 25, "op": "d"}],
        from_properties(as_properties(given)),
    )
    late = [{"id": 1, "seq": 20, "v": "late"}, {"id": 1, "seq": 22, "op": "d"}]
    batch = [*late, {"id": 1, "seq": 30, "op": "d"}]
    for part in filter(None, (batch[:cut], batch[cut:])):
        table.ingest(part, from_properties(as_properties({**given, "deletes": "soft"})))

    [row] = [row for row in table.rows() if row["id"] == 1]
    assert (row["seq"], row["v"], row["_is_deleted"]) == (30, None, True)


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


def test_what_has_neither_key_nor_order_waits(tmp_path: Path) -> None:
    table = FilesTable(tmp_path)
    settings = from_properties(as_properties({"key": "id", "order_by": "seq"}))
    table.ingest([{"id": 1, "seq": 1, "v": "a"}], settings)
    counts, malformed = table.ingest([{"id": 1, "seq": 2, "v": "b"}, {"v": "c"}], settings)

    assert (counts, malformed) == (KeyCounts(updated=1), 1)
    assert [row["v"] for row in table.rows()] == ["b"]


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
        ({"b": 1, "a": {"op": "d"}}, {"max_columns": 2}),
        ({"a": {"op": "d"}}, {"new_fields": {"a": "hold"}}),
        ({"a": {"op": "d"}}, {"exclude": ["a"]}),
        ({"a": {"op": "d", **{f"2026-01-{day:02}": "d" for day in range(1, 32)}}}, {"maps": "auto"}),
    ],
    ids=["beyond a limit", "held", "excluded", "in a map"],
)
def test_a_record_deletes_whatever_column_its_fields_have(
    tmp_path: Path, record: Event, more: dict[str, object]
) -> None:
    table = FilesTable(tmp_path)
    settings = from_properties(
        as_properties({"key": "id", "delete_when": "a.op = 'd'", "beyond": "rest", **more})
    )
    table.ingest([{"id": 1}, {"id": 2}], settings)
    counts, malformed = table.ingest([{"id": 1, **record}, {"id": 2, "a": [{"op": "d"}]}], settings)

    assert (counts, malformed) == (KeyCounts(updated=1, deleted=1), 0)


def test_conditions_compare_by_kind_where_a_field_became_a_text(tmp_path: Path) -> None:
    table = FilesTable(tmp_path)
    settings = from_properties(as_properties({"key": "id", "delete_when": "op = 1 or gone = 'true'"}))
    first = [{"id": id_, "op": "x", "gone": "x"} for id_ in range(4)]
    table.ingest(first, settings)
    counts, _ = table.ingest(
        [{"id": 0, "op": "1"}, {"id": 1, "op": 1.0}, {"id": 2, "gone": True}, {"id": 3, "gone": "true"}],
        settings,
    )

    assert counts == KeyCounts(updated=2, deleted=2)
    assert sorted(row["id"] for row in table.rows()) == [0, 2]


HOSTILE = [[1], {"x": {"y": 1}}, "text", 1e300, True, "2026-01-01", 2**70, {}]


def test_of_a_delete_only_key_and_order_are_read(tmp_path: Path) -> None:
    table = FilesTable(tmp_path)
    given = {"key": "id, k.b", "order_by": "k.at", "delete_when": "not (op != 'd')"}
    settings = from_properties(as_properties(given))
    made = [{"id": n, "k": {"b": "x", "at": n}, "n": n, "op": "c"} for n in range(len(HOSTILE) + 1)]
    table.ingest(made, settings)
    before = table.schema
    deletes = [
        {"id": n, "k": {"b": "x", "at": n, "n": bad, f"new{n}": 1}, "n": bad, f"new{n}": bad, "op": "d"}
        for n, bad in enumerate(HOSTILE)
    ]
    counts, malformed = table.ingest(deletes, settings)

    assert (counts, malformed) == (KeyCounts(deleted=len(HOSTILE)), 0)
    assert table.schema == before
    assert [row["id"] for row in table.rows()] == [len(HOSTILE)]


def _struct(table: FilesTable) -> Struct:
    return table.schema.struct
