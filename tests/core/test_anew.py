"""Which data files are written anew, and what moves out of them: rows, their ids, values of every type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from driftline.convert import arrow_schema
from driftline.core.schema.types import DOUBLE, LONG, STRING, TIMESTAMP, Field, List, Struct, Type, decimal
from driftline.keys.anew import RewriteBudget, RewriteCandidate, RowsLeft, choose
from driftline.keys.stored import StoredRows
from driftline.write.positions import CHANGED, CHANGED_COLUMN, ROW_ID, ROW_ID_COLUMN

MB = 2**20


def file(path: str, rows: int, dead: int, size: int = 3, spec: int = 0) -> RewriteCandidate:
    return RewriteCandidate(path, rows, size, BitMap64(range(dead)), spec=spec)


def of_batch(
    files: list[RewriteCandidate], size: int = 0, *, can_move: bool = True
) -> list[RewriteCandidate]:
    groups = choose(files, RewriteBudget.of_batch(size), lambda _: can_move)
    return groups[0] if groups else []


@pytest.mark.parametrize(
    ("rows", "dead", "is_worn"),
    [(3, 1, True), (4, 1, False), (300, 99, False), (300, 100, True), (1, 1, True), (9, 9, True)],
)
def test_a_file_is_worn_once_a_third_is_gone(rows: int, dead: int, is_worn: bool) -> None:
    assert bool(of_batch([file("f", rows, dead)])) is is_worn


def test_a_batch_moves_about_its_own_bytes_and_64_mb() -> None:
    files = [file("half", 10, 5, 100 * MB), file("third", 9, 3, 45 * MB), file("most", 10, 9, 100 * MB)]
    files.append(file("all", 10, 10, 1000 * MB))

    def taken(size: int) -> list[str]:
        return [f.path for f in of_batch(files, size)]

    assert taken(0) == ["all", "most", "half"]  # nothing, 10 and 50 MB are left; 30 MB more would be too much
    assert taken(30 * MB) == ["all", "most", "half", "third"]


@pytest.mark.parametrize(
    ("paths", "size", "taken"),
    [
        ([f"p/{n}" for n in range(8)], 2**20 - 1, 8),
        ([f"p/{n}" for n in range(7)], 2**20 - 1, 0),
        ([f"p/{n}" for n in range(8)], 2**20, 0),
        ([f"p{n}/f" for n in range(8)], 9, 0),  # of other partitions
    ],
)
def test_many_small_files_of_a_folder_become_one(paths: list[str], size: int, taken: int) -> None:
    assert len(of_batch([file(path, 100, 1, size) for path in paths])) == taken


def test_a_file_whose_values_cannot_move_stays_unless_none_is_left() -> None:
    files = [file("f", 3, 2), file("all", 3, 3)]
    assert [f.path for f in of_batch(files, can_move=False)] == ["all"]


SMALL = 32 * MB - 1  # under a quarter of the target
FILES = {
    "eight small": [file(f"p/{n}", 9, 0, SMALL) for n in range(8)],
    "seven small": [file(f"p/{n}", 9, 0, MB) for n in range(7)],
    "four small": [file(f"p/{n}", 9, 0, 31 * MB) for n in range(4)],
    "five small, together a target": [file(f"p/{n}", 9, 0, 31 * MB) for n in range(5)],
    "eight, one a quarter": [file(f"p/{n}", 9, 0, 32 * MB if n == 7 else 1) for n in range(8)],
    "eight of two partitions": [file(f"p{n // 4}/{n}", 9, 0, 1) for n in range(8)],
    "eight of two specs": [file(f"p/{n}", 9, 0, 1, spec=n // 4) for n in range(8)],
    "one worn": [file("p/a", 9, 3, 100 * MB), file("p/b", 9, 2, 100 * MB)],
    "worn beyond a group": [file(f"p/{n}", 9, 3, 300 * MB) for n in range(4)],
    "one small left over": [file("p/a", 9, 3, 750 * MB), *(file(f"p/{n}", 9, 0, 20 * MB) for n in range(8))],
}
GROUPS = {
    "eight small": [8],
    "five small, together a target": [5],
    "eight of two specs": [4],
    "one worn": [1],
    "worn beyond a group": [2, 2],
    "one small left over": [1, 8],
}


@pytest.mark.parametrize("name", FILES)
def test_a_compaction_takes_groups_of_one_partition_up_to_512_mb(name: str) -> None:
    groups = choose(FILES[name], RewriteBudget.of_compaction(128 * MB, spec=0))
    assert [len(group) for group in groups] == GROUPS.get(name, [])
    assert choose(FILES[name], RewriteBudget.of_compaction(128 * MB, 0, sort_order=1)), (
        "none is known as sorted"
    )
    sorted_ = [replace(file, sort_order=1) for file in FILES[name]]
    assert [len(group) for group in choose(sorted_, RewriteBudget.of_compaction(128 * MB, 0, 1))] == [
        len(group) for group in groups
    ]


@pytest.mark.parametrize(("rows", "level"), [(0, 0), (1, 0), (7, 0), (8, 1), (63, 1), (64, 2), (4096, 4)])
def test_a_file_has_the_level_of_its_rows_that_are_left(rows: int, level: int) -> None:
    assert file("p/a", rows, 0, 1).level == level
    assert file("p/a", rows + 3, 3, 1).level == level


LEVELS = {
    "eight of a row each": [file(f"p/{n}", 1, 0, 1) for n in range(8)],
    "eight of two levels": [file(f"p/{n}", 7 + n % 2, 0, 1) for n in range(8)],
    "eight of each of two levels": [file(f"p/{n}", 7 + n % 2, 0, 1) for n in range(16)],
    "eight of one level once their dead rows are left out": [
        file(f"p/{n}", 8, 2 * (n % 2), 1) for n in range(16)
    ],
    "eight, of which one is large": [file(f"p/{n}", 9, 0, 8 * MB if n == 7 else 1) for n in range(8)],
    "sixteen that are more than a batch may write": [file(f"p/{n}", 9, 0, 7 * MB) for n in range(16)],
    "one worn": [file("p/a", 9, 3, MB)],
}
TAKEN = {
    "eight of a row each": [8],
    "eight of each of two levels": [8, 8],
    "eight of one level once their dead rows are left out": [8, 8],
    "sixteen that are more than a batch may write": [9, 7],
}


@pytest.mark.parametrize("name", LEVELS)
def test_behind_a_batch_eight_small_files_of_one_level_become_one(name: str) -> None:
    groups = choose(LEVELS[name], RewriteBudget.behind_batch())
    assert [len(group) for group in groups] == TAKEN.get(name, [])
    assert choose(LEVELS[name], RewriteBudget.behind_batch(), lambda path: path == "p/0") == []


def test_rows_move_with_what_the_table_gave_them(tmp_path: Path) -> None:
    fields = (Field("a", LONG, 1), Field(ROW_ID, LONG, ROW_ID_COLUMN), Field(CHANGED, LONG, CHANGED_COLUMN))
    path = str(tmp_path / "f.parquet")
    rows = pa.table({"a": range(9), ROW_ID: [None, 70, *[None] * 7], CHANGED: [None, 2, *[None] * 7]})
    pq.write_table(rows.cast(arrow_schema(Struct(fields))), path, row_group_size=4)
    dead = BitMap64([0, 2, 3, 4, 5, 6, 7])
    stored = StoredRows(Struct(fields), pa.OSFile)
    left = RowsLeft(stored, [RewriteCandidate(path, 9, 100, dead, 500, 3)], with_ids=True)

    moved = pa.Table.from_batches(left.read()).to_pylist()
    assert moved == [{"a": 1, ROW_ID: 70, CHANGED: 2}, {"a": 8, ROW_ID: 508, CHANGED: 3}]
    assert len(left) == 2
    assert [len(share) for share in left.shares(2)] == [2, 0]


def test_a_large_file_is_cut_at_its_row_groups_for_several_tasks(tmp_path: Path) -> None:
    fields = (Field("a", LONG, 1), Field(ROW_ID, LONG, ROW_ID_COLUMN))
    path, dead = str(tmp_path / "f.parquet"), BitMap64([5])
    rows = pa.table({"a": range(10), ROW_ID: pa.nulls(10)}).cast(arrow_schema(Struct(fields)))
    pq.write_table(rows, path, row_group_size=4)

    def shares(size: int, count: int) -> list[list[tuple[int, int]]]:
        """The rows of each share, with their ids."""
        stored = StoredRows(Struct(fields), pa.OSFile)
        left = RowsLeft(stored, [RewriteCandidate(path, 10, size, dead, 500)], with_ids=True)
        batches = [pa.Table.from_batches(share.read()) for share in left.shares(count) if share.files]
        return [list(zip(*batch.to_pydict().values(), strict=True)) for batch in batches]

    whole = [(n, 500 + n) for n in range(10) if n != 5]
    assert shares(30 * MB, 2) == [whole[:7], whole[7:]]
    assert shares(30 * MB, 9) == [whole[:4], whole[4:7], whole[7:]]
    assert shares(8 * MB, 2) == [whole]


def test_rows_of_a_file_that_has_none_of_the_columns_are_as_many(tmp_path: Path) -> None:
    path = str(tmp_path / "f.parquet")
    gone = pa.field("gone", pa.int64(), metadata={"PARQUET:field_id": "9"})
    pq.write_table(pa.table([pa.array(range(5))], pa.schema([gone])), path)
    (rows,) = StoredRows(Struct((Field("a", LONG, 1),)), pa.OSFile).of(path, np.array([0, 3]))
    assert rows.to_pylist() == [{"a": None}, {"a": None}]


INT, NANOS = pa.int32(), pa.timestamp("ns", "UTC")
TYPES: list[tuple[pa.DataType, Type, bool]] = [
    (INT, LONG, True),
    (pa.int64(), LONG, True),
    (pa.uint32(), LONG, False),
    (pa.float32(), DOUBLE, True),
    (INT, DOUBLE, False),
    (pa.decimal128(9, 2), decimal(12, 2), True),
    (pa.decimal128(9, 3), decimal(12, 2), False),
    (pa.string(), STRING, True),
    (pa.binary(16), STRING, False),
    (INT, STRING, False),
    (pa.timestamp("us", "UTC"), TIMESTAMP, True),
    (NANOS, TIMESTAMP, False),
    (pa.list_(INT), List(LONG), True),
    (pa.list_(NANOS), List(TIMESTAMP), False),
    (pa.struct([pa.field("b", INT, metadata={"PARQUET:field_id": "2"})]), Struct((Field("b", LONG, 2),)), True),
    (
        pa.struct([pa.field("b", NANOS, metadata={"PARQUET:field_id": "2"})]),
        Struct((Field("b", TIMESTAMP, 2),)),
        False,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "type_", "can"), TYPES, ids=str)
def test_values_move_as_they_are_or_not_at_all(
    tmp_path: Path, stored: pa.DataType, type_: Any, can: bool
) -> None:
    path = str(tmp_path / "f.parquet")
    column = pa.field("a", stored, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.schema([column]).empty_table(), path, version="2.6", store_schema=False)
    assert StoredRows(Struct((Field("a", type_, 1),)), pa.OSFile).can_move(path) is can
    assert StoredRows(Struct((Field("new", LONG, 3),)), pa.OSFile).can_move(path)
