"""A batch into many tables of a DuckLake is one snapshot, with their quarantines."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from driftline.core.history.entries import MOVED
from driftline.formats.ducklake.seen import snapshot_properties
from driftline.formats.ducklake.snapshot import latest
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.ingest.fan_out import FanOutError
from driftline.lake import Lake
from lake.ducklake_peer import run
from lake.test_fan_out import columns, rows

pytestmark = pytest.mark.ducklake_only("one of many tables of Iceberg would be a catalog's")
KINDS = "abcde"


@pytest.fixture
def lake(ducklake: Lake) -> Lake:
    """`space` cleans up in it."""
    return ducklake


def written(tmp_path: Path, number: int, *more: str) -> Path:
    """A record of each kind, whose fields drift."""
    file = tmp_path / f"{number}.jsonl"
    lines = [json.dumps({"kind": kind, "id": number, "v": [number, "x"][number % 2]}) for kind in KINDS]
    file.write_text("\n".join([*lines, *more]) + "\n")
    return file


def snapshots(lake: Lake) -> int:
    return int(lake.format.catalog.read(latest))


def before_commit(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Has somebody change something once, after all tables are written."""
    commit, left = DuckLakeTransaction.commit_with, [change]

    def commit_behind(transaction: DuckLakeTransaction, others: list[DuckLakeTransaction]) -> None:
        if others and left:
            left.pop()()
        commit(transaction, others)

    monkeypatch.setattr(DuckLakeTransaction, "commit_with", commit_behind)


def test_readers_see_all_tables_of_a_batch_or_none_and_each_is_undone_alone(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    tables, names = lake.fan_out(f"{space}.{{kind}}"), [f"{space}.{kind}" for kind in KINDS]
    tables.ingest(written(tmp_path, 0, "broken"))
    before = snapshots(lake)
    result = tables.ingest(written(tmp_path, 1, "broken"))
    assert {of_table.snapshot for of_table in result.results if of_table.rows_written} == {before + 1}
    assert snapshots(lake) == before + 1
    read = " UNION ALL ".join(f"SELECT count(*) FROM lk.{name} AT (VERSION => %d)" for name in names)
    assert [run(lake.format.catalog, read.replace("%d", str(before + ahead))) for ahead in (0, 1)] == [
        [(1,)] * 5, [(2,)] * 5,
    ]  # fmt: skip
    rejected = f"SELECT count(*) FROM lk.{space}._other__quarantine AT (VERSION => %d)"
    assert [run(lake.format.catalog, rejected % (before + ahead)) for ahead in (0, 1)] == [[(1,)], [(2,)]]
    kept = rows(lake.table(names[1]))
    lake.table(names[0]).undo(yes=True)
    assert "v_string" not in str(columns(lake.table(names[0])))
    assert (rows(lake.table(names[1])), len(lake.table(names[1]).history().entries)) == (kept, 2)


def test_each_table_knows_its_own_part_of_the_snapshot(lake: Lake, space: str, tmp_path: Path) -> None:
    tables, (a, b, *_) = lake.fan_out(f"{space}.{{kind}}"), [lake.table(f"{space}.{kind}") for kind in KINDS]
    options: dict[str, Any] = {"key": "kind,id"}
    many = [json.dumps({"kind": kind, "id": number, "v": 0}) for kind in "ab" for number in range(20)]
    tables.ingest(written(tmp_path, 0, *many), **options)
    # Of table a so many rows that its file is written anew.
    changed = [json.dumps({"kind": "a", "id": number, "v": 7}) for number in range(15)]
    tables.ingest(written(tmp_path, 30, *changed), **options)
    ((text,),) = run(
        lake.format.catalog,
        "SELECT commit_extra_info FROM __ducklake_metadata_lk.ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT 1",
    )
    moved = [MOVED in snapshot_properties(text, table.format.load().table.id) for table in (a, b)]
    assert moved == [True, False]
    known = b.format.statistics(b.format.load().schema).counts.snapshots
    assert [(of_batch.batch.records, of_batch.moved) for of_batch in known] == [(20, False), (1, False)]
    assert a.undo(yes=True).batch.removed == 15
    assert {json.loads(row)["v"] for row in rows(a)} == {0}
    assert len(rows(b)) == 21


def test_what_others_did_meanwhile_stays_and_the_batch_is_one_snapshot_all_the_same(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = lake.fan_out(f"{space}.{{kind}}")
    tables.ingest(written(tmp_path, 0))

    def meanwhile() -> None:
        lake.table(f"{space}.b").ingest([{"kind": "b", "id": 7, "v": 7}])
        lake.alter(f"ALTER TABLE {space}.c RENAME COLUMN v TO w")
        lake.table(f"{space}.d").ingest([{"kind": "d", "id": 7, "v": "y"}])

    before_commit(monkeypatch, meanwhile)
    result = tables.ingest(written(tmp_path, 1))
    assert {of_table.snapshot for of_table in result.results} == {snapshots(lake)}
    assert [len(rows(lake.table(f"{space}.{kind}"))) for kind in KINDS] == [2, 3, 2, 3, 2]
    assert {"w", "v_string"} <= {*lake.table(f"{space}.c").read().columns}
    assert {"v", "v_string"} <= {*lake.table(f"{space}.d").read().columns}


def test_a_table_that_refuses_the_batch_meanwhile_keeps_no_other_one_out(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = lake.fan_out(f"{space}.{{kind}}")
    tables.ingest(written(tmp_path, 0))

    def meanwhile() -> None:
        strict = "'driftline.policy' = 'strict', 'driftline.on-conflict' = 'fail'"
        lake.alter(f"ALTER TABLE {space}.b SET TBLPROPERTIES ({strict})")

    before_commit(monkeypatch, meanwhile)
    with pytest.raises(FanOutError, match="1 table did not get") as failed:
        tables.ingest(written(tmp_path, 1))
    results = failed.value.result.results
    assert {of_table.snapshot for of_table in results} == {snapshots(lake)}
    assert [of_table.table for of_table in results] == [f"{space}.{kind}" for kind in "acde"]
    assert [len(rows(lake.table(f"{space}.{kind}"))) for kind in KINDS] == [2, 1, 2, 2, 2]


@pytest.mark.nightly
def test_two_writers_into_the_same_tables_lose_and_double_nothing(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    tables = lake.fan_out(f"{space}.{{kind}}")
    tables.ingest(written(tmp_path, 0))
    before, batches = snapshots(lake), range(1, 5)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda number: tables.ingest(written(tmp_path, number, "broken")), batches))
    of_batches = [{of_table.snapshot for of_table in result.results} - {None} for result in results]
    assert sorted(of_batches, key=str) == sorted(({before + number} for number in batches), key=str)
    for kind in KINDS:
        ids = [row.id for row in lake.table(f"{space}.{kind}").read().collect()]
        assert sorted(ids) == [0, *batches]
    assert lake.table(f"{space}._other").quarantine().waiting == len(batches)
