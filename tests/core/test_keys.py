"""Rows by key: identity, order and what becomes of changes, against a dictionary."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.convert.types import FIELD_ID
from driftline.core.schema.types import Field, Primitive, Struct
from driftline.keys.identity import (
    BatchKeys,
    FieldColumns,
    KeyFold,
    SoughtKeys,
    number_text,
    orders,
    plain_text,
)
from driftline.keys.remembered import KeysAndOlder, MemoryFile, Tidying, key_texts, name_of, nested, only
from driftline.keys.settle import Latest, settle
from driftline.keys.stored import KeyFile, KeyFinder

LONG, DOUBLE, TEXT = Primitive("long"), Primitive("double"), Primitive("string")


def fields(*types: str) -> FieldColumns:
    return FieldColumns.of((i, Primitive(*_type(t))) for i, t in enumerate(types, 1))


def _type(text: str) -> tuple[Any, ...]:
    name, _, args = text.partition("(")
    return (name, tuple(int(a) for a in args.rstrip(")").split(","))) if args else (name,)


def rows(*columns: pa.Array) -> pa.Table:
    return pa.table({str(i): column for i, column in enumerate(columns, 1)})


# Identity


@pytest.mark.parametrize(
    ("type_", "column", "other_type", "other"),
    [
        ("int", pa.array([7], pa.int32()), "double", pa.array([7.0])),
        ("long", pa.array([7]), "decimal(38,18)", pa.array([Decimal("7.00")], pa.decimal128(38, 18))),
        ("long", pa.array([0]), "double", pa.array([-0.0])),
        ("double", pa.array([0.5]), "decimal(9,2)", pa.array([Decimal("0.50")], pa.decimal128(9, 2))),
        ("double", pa.array([1e20]), "decimal(38,0)", pa.array([Decimal(10**20)], pa.decimal128(38, 0))),
        (
            "long",
            pa.array([2**63 - 1]),
            "decimal(38,0)",
            pa.array([Decimal(2**63 - 1)], pa.decimal128(38, 0)),
        ),
        ("long", pa.array([-(2**63)]), "decimal(38,0)", pa.array([Decimal(-(2**63))], pa.decimal128(38, 0))),
        ("long", pa.array([4611686018427388000]), "double", pa.array([2.0**62])),  # as its text has it
        ("float", pa.array([1.5], pa.float32()), "double", pa.array([1.5])),
        ("date", pa.array([dt.date(2026, 1, 2)]), "string", pa.array(["2026-01-02"])),
        (
            "timestamp",
            pa.array([dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
            "string",
            pa.array(["2026-01-02T03:00:00Z"]),
        ),
        (
            "uuid",
            pa.array([bytes(16)], pa.binary(16)),
            "string",
            pa.array(["00000000-0000-0000-0000-000000000000"]),
        ),
        ("fixed(2)", pa.array([b"ab"], pa.binary(2)), "binary", pa.array([b"ab"])),
    ],
)
def test_values_are_one_key_whatever_the_width_of_their_columns(type_, column, other_type, other) -> None:
    columns = fields(type_, other_type)
    keys = BatchKeys([columns], rows(column, pa.nulls(1, other.type)))

    assert keys.codes(rows(pa.nulls(1, column.type), other)).to_pylist() == [0]


@pytest.mark.parametrize(
    ("type_", "column", "other_type", "other"),
    [
        ("long", pa.array([7]), "string", pa.array(["7"])),
        ("boolean", pa.array([True]), "long", pa.array([1])),
        ("boolean", pa.array([True]), "string", pa.array(["true"])),
        ("long", pa.array([2**53]), "double", pa.array([2.0**53 + 2])),
        ("long", pa.array([2**62]), "double", pa.array([2.0**62])),
        ("long", pa.array([2**63 - 1]), "double", pa.array([2.0**63])),
        ("long", pa.array([2**63 - 1]), "decimal(38,0)", pa.array([Decimal(2**63)], pa.decimal128(38, 0))),
        ("binary", pa.array([b"a"]), "string", pa.array(["a"])),
        ("double", pa.array([float("nan")]), "double", pa.array([float("nan")])),
    ],
)
def test_values_of_two_kinds_are_two_keys(type_, column, other_type, other) -> None:
    keys = BatchKeys([fields(type_, other_type)], rows(column, pa.nulls(1, other.type)))

    assert keys.codes(rows(pa.nulls(1, column.type), other)).to_pylist() == [None]


def test_what_a_wider_column_holds_beside_a_narrower_one_is_a_conversion() -> None:
    columns = fields("long", "string")
    keys = BatchKeys([columns], rows(pa.array([7, None]), pa.array(["7", "7"])))

    assert keys.own.to_pylist() == [0, 1]


def test_keys_of_several_fields_are_not_joined_texts() -> None:
    columns = [FieldColumns(((1, TEXT),)), FieldColumns(((2, TEXT),))]
    table = rows(pa.array(["a", "ab", "a", "a"]), pa.array(["bc", "c", "bc", None]))

    assert BatchKeys(columns, table).own.to_pylist() == [0, 1, 0, None]


# Order


@given(
    st.lists(
        st.one_of(st.integers(-(10**37), 10**37), st.floats(allow_nan=False), st.decimals(allow_nan=False))
    )
)
def test_texts_of_numbers_sort_as_the_numbers_do(numbers) -> None:
    exact = [n if isinstance(n, Decimal) else Decimal(repr(n)) for n in numbers]

    by_text = sorted(exact, key=lambda n: number_text(n) or "")

    assert by_text == sorted(exact)
    assert len({number_text(n) for n in exact}) == len(set(exact))


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers())))
def test_texts_of_several_parts_sort_as_their_parts_do(parts) -> None:
    def encoded(part: tuple[str, int]) -> bytes:
        return f"{plain_text(part[0])} {number_text(part[1])}".encode()

    assert sorted(parts, key=encoded) == sorted(parts, key=lambda part: (part[0].encode(), part[1]))


def test_a_moment_and_a_date_are_of_one_order() -> None:
    day, moment = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 0, 0, 1, tzinfo=dt.UTC)
    columns = fields("date", "timestamp")
    table = rows(pa.array([day, None]), pa.array([None, moment], pa.timestamp("us", "UTC")))

    earlier, later = orders(table, [columns]).to_pylist()

    assert earlier < later


def test_whole_columns_and_single_numbers_have_the_same_texts() -> None:
    numbers = [0, 1, 10, 11, -1, -10, 2**63 - 1, -(2**63), None]

    texts = orders(rows(pa.array(numbers, pa.int64())), [fields("long")]).to_pylist()

    assert texts == [None if n is None else f"000000 {number_text(n)}" for n in numbers]


# What becomes of a batch


@dataclass
class Table:
    """A table of Parquet files with positions that are dead, and the deletes that it remembers."""

    folder: Path
    dead: dict[str, set[int]] = field(default_factory=dict)
    remembered: list[str] = field(default_factory=list)

    schema = pa.schema(
        [
            pa.field(name, type_, metadata={FIELD_ID: str(id_)})
            for id_, (name, type_) in enumerate(
                [("k", pa.int64()), ("k_double", pa.float64()), ("k_string", pa.string()), ("seq", pa.int64()),
                 ("_order", pa.string()), ("v", pa.int64())], 1,
            )
        ]
    )  # fmt: skip
    key = FieldColumns.of([(1, LONG), (2, DOUBLE), (3, TEXT)])

    def take(self, batch: list[dict[str, Any]], *, ordered: bool) -> Any:
        rows = [
            {
                "k": e["k"] if isinstance(e["k"], int) else None,
                "k_double": e["k"] if isinstance(e["k"], float) else None,
                "k_string": e["k"] if isinstance(e["k"], str) else None,
                "seq": e["seq"],
                "v": e["v"],
            }
            for e in batch
        ]
        table = pa.Table.from_pylist(rows, schema=self.schema)
        by_id = table.rename_columns([str(i) for i in range(1, 7)])
        order = orders(by_id, [FieldColumns(((4, LONG),))]) if ordered else None
        table = table.set_column(
            4, self.schema.field(4), pa.nulls(len(table), pa.string()) if order is None else order
        )
        keys = BatchKeys([self.key], by_id)
        latest = Latest.of(keys.own, order, np.array([e["op"] == "d" for e in batch]))
        finder = KeyFinder(keys, 5, pa.OSFile)
        found = [
            hits.only(np.array([p not in self.dead[hits.file] for p in hits.positions], np.bool_))
            for hits in finder.find(map(KeyFile, self.dead))
        ]
        settled = settle(latest, found, finder.find(map(KeyFile, self.remembered)))
        for file, positions in settled.dead.items():
            assert not self.dead[file] & set(positions.tolist())
            self.dead[file] |= set(positions.tolist())
        if len(settled.live):
            self.dead[self._write(table.take(settled.live.rows), "data")] = set()
        if len(settled.gone):
            self.remembered.append(self._write(table.take(settled.gone), "gone"))
        return settled.counts

    def _write(self, rows: pa.Table, what: str) -> str:
        path = str(self.folder / f"{what}-{len(self.dead) + len(self.remembered):05d}.parquet")
        pq.write_table(rows, path, row_group_size=3)
        return path

    def rows(self) -> dict[Any, int]:
        out: dict[Any, int] = {}
        for path, dead in self.dead.items():
            for place, row in enumerate(pq.read_table(path).to_pylist()):
                if place not in dead:
                    key = next(row[c] for c in ("k", "k_double", "k_string") if row[c] is not None)
                    assert identity(key) not in out
                    out[identity(key)] = row["v"]
        return out


def identity(key: Any) -> tuple[bool, Any]:
    return isinstance(key, str), key


def random_batches(random_: random.Random, count: int) -> list[list[dict[str, Any]]]:
    keys = [*range(12), *map(str, range(12)), *(float(n) for n in range(6)), 0.5, "0.5"]
    events = [
        {"k": random_.choice(keys), "seq": max(0, n + random_.choice([0, 0, 0, -40])), "v": n, "op": random_.choice("uuud")}
        for n in range(count)
    ]  # fmt: skip
    events = [e for e in events for _ in range(1 + (random_.random() < 0.05))]
    out = []
    while events:
        size = random_.choice([1, 2, 7, 60])
        out.append(events[:size])
        events = events[size:]
    return out


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_table_is_what_a_dictionary_of_the_changes_says(tmp_path: Path, seed: int, ordered: bool) -> None:
    table, oracle = Table(tmp_path), {}
    taken = 0
    for batch in random_batches(random.Random(seed), 400):
        counts = table.take(batch, ordered=ordered)
        assert counts.total == len(batch)
        taken += counts.inserted - counts.deleted
        for event in batch:
            key = identity(event["k"])
            if not ordered or key not in oracle or event["seq"] >= oracle[key]["seq"]:
                oracle[key] = event

        assert table.rows() == {key: e["v"] for key, e in oracle.items() if e["op"] != "d"}
        assert taken == len(table.rows())


def test_files_without_a_key_of_the_batch_are_not_read_beyond_their_footers(tmp_path: Path) -> None:
    column = pa.field("k", pa.int64(), metadata={FIELD_ID: "1"})
    pq.write_table(
        pa.table([pa.array(range(100))], schema=pa.schema([column])), tmp_path / "f", row_group_size=10
    )
    keys = BatchKeys([fields("long")], rows(pa.array([5, 42])))
    finder = KeyFinder(keys, None, pa.OSFile)

    read = [begin for begin, _ in finder._read(KeyFile(str(tmp_path / "f")))]

    assert read == [0, 40]
    assert [hits.positions.tolist() for hits in finder.find([KeyFile(str(tmp_path / "f"))])] == [[5], [42]]


@pytest.mark.parametrize(
    ("type_", "stored", "sought", "candidates"),
    [
        ("long", pa.array([-5, 2, 3, 9, 2**62]), [9, -5, 4, 10], [0, 3]),
        ("long", pa.array([1, 2, 3], pa.int32()), [3, 2**40], [2]),
        ("long", pa.array([], pa.int64()), [3], []),
        ("long", pa.array([2, 2, 3]), [2], None),
        ("long", pa.array([3, 2]), [2], None),
        ("long", pa.array([1, None, 3]), [3], None),
        ("double", pa.array([1.0, 2.0]), [2], None),
        ("string", pa.array(["1", "2"]), ["2"], None),
    ],
)
def test_keys_in_order_are_found_by_a_few_steps_and_others_by_each_row(
    type_: str, stored: pa.Array, sought: list[Any], candidates: list[int] | None
) -> None:
    keys = BatchKeys([fields(type_)], rows(pa.array(sought)))
    found = keys.candidates(rows(stored))
    assert (None if found is None else found.tolist()) == candidates
    if candidates is not None:
        assert np.flatnonzero(keys.codes(rows(stored)).is_valid()).tolist() == candidates


def test_rows_are_found_where_files_share_orders_and_where_each_has_its_own(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), metadata={FIELD_ID: "1"}),
            pa.field("o", pa.string(), metadata={FIELD_ID: "5"}),
        ]
    )
    files = {"shared": ["b"] * 100, "own": [f"order {n}" for n in range(100)], "none": [None] * 100}
    for name, texts in files.items():
        pq.write_table(pa.table([pa.array(range(100)), pa.array(texts)], schema=schema), tmp_path / name)
    keys = BatchKeys([fields("long")], rows(pa.array([98, 7])))

    def found(sought: SoughtKeys) -> list[tuple[list[int], list[str | None]]]:
        finder = KeyFinder(sought, 5, pa.OSFile)
        found = finder.find([KeyFile(str(tmp_path / name)) for name in files])
        return [(hits.positions.tolist(), hits.orders.to_pylist()) for hits in found]

    assert found(keys) == [([7, 98], ["b", "b"]), ([7, 98], ["order 7", "order 98"]), ([7, 98], [None, None])]
    older = found(KeysAndOlder(keys, 5, "c", pa.array([True, True])))
    assert [positions for positions, _ in older] == [[*range(100)], [7, 98], [7, 98]]


def test_a_column_that_a_file_lacks_holds_its_default(tmp_path: Path) -> None:
    column = pa.field("other", pa.int64(), metadata={FIELD_ID: "9"})
    pq.write_table(pa.table([pa.array([1, 2])], schema=pa.schema([column])), tmp_path / "f")
    finder = KeyFinder(BatchKeys([fields("long")], rows(pa.array([3]))), None, pa.OSFile)

    assert finder.find([KeyFile(str(tmp_path / "f"))]) == []
    (found,) = finder.find([KeyFile(str(tmp_path / "f"), {1: pa.scalar(3)})])
    assert found.positions.tolist() == [0, 1]


# Remembered deletes


def test_keys_as_texts_keep_fields_and_kinds_apart_and_no_widths() -> None:
    wide = fields("long", "string", "double", "binary", "boolean")
    ids = [7, None, None, None, None, None]
    texts = [None, "7", '7"], ["', None, None, None]
    numbers = [None, None, None, 7.0, None, None]
    columns = rows(
        pa.array(ids),
        pa.array(texts),
        pa.array(numbers),
        pa.array([None] * 4 + [b"7", None]),
        pa.array([None] * 5 + [True]),
    )
    keys = key_texts([wide], columns).to_pylist()

    assert keys[0] == keys[3] == '[["number", "7"]]'
    assert len(set(keys)) == 5
    two = key_texts(
        [fields("string"), FieldColumns.of([(2, TEXT)])], rows(pa.array(["a", "b"]), pa.array(["b", "a"]))
    )
    assert two.to_pylist() == ['[["text", "a"], ["text", "b"]]', '[["text", "b"], ["text", "a"]]']


def test_the_rows_of_all_keys_come_in_the_order_of_their_codes() -> None:
    columns = rows(pa.array([3, 1, 3, 2, 1]))
    keys = BatchKeys([fields("long")], columns)
    distinct = keys.distinct()

    assert keys.codes(distinct).to_pylist() == [0, 1, 2]
    texts = pa.table({"1": key_texts(keys.fields, distinct)})
    assert BatchKeys([fields("string")], texts).codes(texts).to_pylist() == [0, 1, 2]


def test_leaves_become_the_rows_of_structs_again() -> None:
    inner = Struct((Field("id", LONG, 2), Field("name", TEXT, 3)))
    struct = only(Struct((Field("a", inner, 1), Field("b", TEXT, 4), Field("c", TEXT, 5))), {2, 5})

    assert nested(struct, pa.table({"2": pa.array([7, None], pa.int32())})).to_pylist() == [
        {"a": {"id": 7}, "c": None},
        {"a": {"id": None}, "c": None},
    ]


def test_old_files_of_deletes_go_and_small_ones_are_gathered_by_their_time() -> None:
    day = 86_400
    now = 100.0 * day + 5
    ages = {8: 1, 7: 1, 3: 2, 2: 1, 0: 15}
    files = [MemoryFile.of(f"/x/{name_of(now - age * day)}", 10) for age, n in ages.items() for _ in range(n)]
    tidying = Tidying.of([*files, MemoryFile("large", 2**30, now)], now, 7 * day)

    assert {round((now - f.since) / day) for f in tidying.outdated} == {8}
    assert [[round((now - f.since) / day) for f in group] for group in tidying.groups] == [[3, 3]]
    more = Tidying.of([*files, MemoryFile("one more", 10, now)], now, 7 * day)
    assert sorted(map(len, more.groups)) == [2, 16]


@pytest.mark.parametrize(
    ("to", "kept"),
    [
        (LONG, {2: [2.5, float("inf")], 3: [Decimal("0.1")]}),
        (DOUBLE, {1: [2**60 + 1]}),
        (Primitive("float"), {1: [2**60 + 1], 3: [Decimal("0.1")]}),
        (Primitive("decimal", (38, 1)), {2: [float("inf")]}),
        (Primitive("decimal", (3, 1)), {1: [2**60 + 1], 2: [float("inf")]}),
    ],
)
def test_keys_in_one_column_are_the_same_keys(to: Primitive, kept: dict[int, list[Any]]) -> None:
    columns = FieldColumns.of([(3, Primitive("decimal", (9, 1))), (1, LONG), (2, DOUBLE)])
    rows = pa.table(
        {
            "1": pa.array([7, 2**60 + 1, None, None, None, None, None], pa.int64()),
            "2": pa.array([None, None, 2.5, float("inf"), 7.0, None, float("nan")]),
            "3": pa.array([None, None, None, None, None, Decimal("0.1"), None], pa.decimal128(9, 1)),
        }
    )
    fold = KeyFold(columns, to)
    assert sorted(set(fold.kept(rows)) - {2}) == sorted(set(kept) - {2})
    takers = [(id_, id_ + 10) for id_ in fold.kept(rows)]
    folded = fold.folded(rows, 9, takers)

    for id_, taker in takers:
        assert [v for v in folded[str(taker)].to_pylist() if v is not None and v == v] == kept.get(id_, [])
    types = dict(columns.columns)
    after = FieldColumns.of([(9, to), *((taker, types[id_]) for id_, taker in takers)])
    assert key_texts([after], folded).to_pylist() == key_texts([columns], rows).to_pylist()
