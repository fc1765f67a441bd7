"""Upkeep of a table, which lets go of no data, nothing that somebody refers to, nothing that history and undo need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from driftline.core.history import entries
from driftline.core.history.entries import Ids, Step
from driftline.core.history.retention import BEHIND, MAX_AGE, MIN_SNAPSHOTS
from driftline.formats.iceberg import commit
from driftline.formats.iceberg.commit import Dispensable, dispensable
from driftline.formats.iceberg.offline import OfflineIcebergTable
from driftline.lake import Lake, Table
from lake.test_outcome import attached
from servers.rest import Rest

pytestmark = pytest.mark.iceberg_only("of Iceberg's snapshots and metadata files")

SCHEMA = {
    "schema-id": 0, "type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]
}  # fmt: skip


# What can go ----------------------------------------------------------------------------------------------------


def metadata(*operations: str, schemas: int = 1, **more: Any) -> dict[str, Any]:
    """A table's, whose snapshots are 1, 2, 3 …; an operation in capitals is of somebody else."""
    snapshots = [
        {
            "snapshot-id": i,
            **({"parent-snapshot-id": i - 1} if i > 1 else {}),
            "timestamp-ms": i * 1000,
            "schema-id": 0,
            "summary": {
                "operation": operation.lower(),
                **({entries.BATCH: f"b{i}"} if operation.islower() else {}),
            },
        }
        for i, operation in enumerate(operations, 1)
    ]
    return {
        "properties": {},
        "snapshots": snapshots,
        "current-snapshot-id": len(snapshots) or -1,
        "schemas": [{**SCHEMA, "schema-id": i} for i in range(schemas)],
        "current-schema-id": schemas - 1,
        "last-column-id": 1,
        **more,
    }


def remembered(*steps: tuple[int, int]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for before, after in steps:
        step = Step(Ids(before, 0, 0), Ids(after, 0, 0), None)
        properties |= entries.with_change(entries.of_statements("x"), step, properties, properties)
    return properties


def test_schemas_that_nothing_needs() -> None:
    assert dispensable(metadata(schemas=200), 0) == Dispensable()
    of = metadata("APPEND", "APPEND", schemas=201, properties=remembered((150, 160), (160, 199), (199, 200)))
    of["snapshots"][1]["schema-id"] = 7
    assert set(dispensable(of, 0).schemas) == set(range(201)) - {0, 7, 150, 160, 199, 200}


def test_fewer_schemas_of_a_wide_table() -> None:
    of = metadata(schemas=30, properties=remembered(*((i, i + 1) for i in range(29))))
    assert dispensable(of, 0) == Dispensable()
    of["last-column-id"] = 10_000
    assert set(dispensable(of, 0).schemas) == set(range(19))


def test_the_widest_type_of_a_column_stays() -> None:
    """An undo to the first schema brings column 2 back, as wide as files may have it."""
    of = metadata("APPEND", schemas=250)
    column = {"id": 2, "name": "b", "required": False, "type": "int"}
    for id_, type_ in enumerate(["int", "int", "long"]):
        of["schemas"][id_] = {
            **of["schemas"][id_], "fields": [*SCHEMA["fields"], {**column, "type": type_}]
        }  # fmt: skip
    assert set(dispensable(of, 0).schemas) == set(range(3, 249)) | {1}


# In a lake -------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return upkept(lake, table_name)


def upkept(lake: Lake, table_name: str) -> Table:
    """A table that keeps three snapshots."""
    table = lake.table(table_name)
    batches(table, 0, 1)
    lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{MIN_SNAPSHOTS}' = '3', '{MAX_AGE}' = '1')")
    return table


def batches(table: Table, first: int, last: int) -> None:
    for i in range(first, last):
        table.ingest([{"id": i, "name": "x"}])


def snapshots(table: Table) -> list[int]:
    rows = table.lake.sql(
        f"select snapshot_id from {table.format.handle.full_name}.snapshots order by committed_at"
    )
    return [row.snapshot_id for row in rows.collect()]


def numbers(table: Table, where: str = "") -> list[int]:
    rows = table.lake.sql(f"select id from {table.format.handle.full_name} {where}").collect()
    return sorted(row.id for row in rows)


@pytest.mark.nightly
def test_old_snapshots_of_a_table_with_a_key_go_and_clean_takes_their_delete_files(
    lake: Lake, table_name: str, folder: Path
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "n": 0} for i in range(9)], settings={"key": "id"})
    lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{MIN_SNAPSHOTS}' = '3', '{MAX_AGE}' = '1')")
    for n in range(1, 13):
        table.ingest([{"id": n % 3, "n": n}])

    expected = {(0, 12), (1, 10), (2, 11), *((i, 0) for i in range(3, 9))}
    assert len(snapshots(table)) == 3
    assert {(row.id, row.n) for row in table.read().collect()} == expected
    assert stored(table, folder, "metadata", "*-m*.avro") == referred(table, "path", "all_manifests")
    assert any(orphan.path.endswith(".puffin") for orphan in lake.clean(0))
    files = stored(table, folder, "data", "*.parquet") | stored(table, folder, "data", "*.puffin")
    assert files == referred(table, "file_path", "all_files")
    assert {(row.id, row.n) for row in table.read().collect()} == expected


def stored(table: Table, folder: Path, kind: str, pattern: str) -> set[str]:
    return {p.name for p in folder.joinpath(*table.name.split("."), kind).glob(pattern)}


def referred(table: Table, what: str, metadata_table: str) -> set[str]:
    rows = table.lake.sql(
        f"select {what} as path from {table.format.handle.full_name}.{metadata_table}"
    ).collect()
    return {Path(row.path).name for row in rows}


@pytest.mark.nightly
def test_old_snapshots_go_and_no_data(table: Table, folder: Path) -> None:
    batches(table, 1, 12)
    before = snapshots(table)
    assert len(before) == 12
    files = stored(table, folder, "data", "*.parquet")
    batches(table, 12, 13)
    assert snapshots(table)[:2] == before[10:]
    assert len(snapshots(table)) == 3
    assert numbers(table) == list(range(13))
    assert len(stored(table, folder, "data", "*.parquet") - files) == 1
    assert files <= stored(table, folder, "data", "*.parquet")
    assert stored(table, folder, "metadata", "snap-*.avro") == referred(table, "manifest_list", "snapshots")
    manifests = stored(table, folder, "metadata", "*-m*.avro")
    assert manifests == referred(table, "path", "all_manifests")


@pytest.mark.nightly
def test_a_table_with_gaps_is_a_table(
    table: Table, lake: Lake, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three stays: all that reads the table, goes back in it or cleans it up does so as after Iceberg's expiry."""
    name = table.format.handle.full_name
    lake.alter(f"ALTER TABLE {table.name} UNSET TBLPROPERTIES ('{MAX_AGE}')")
    with monkeypatch.context() as patch:
        patch.setattr(
            "driftline.core.history.retention._thinned",
            lambda branch, least, *_: {s["snapshot-id"] for s in branch[least::3]},
        )
        batches(table, 1, 19)
    before = snapshots(table)
    assert len(before) < 14
    behind = table.state().properties[BEHIND].split()
    assert len(behind) > 2
    assert set(map(int, behind)) <= set(before)
    assert table.stats().batches == 19
    for id_ in (before[0], before[2], before[-1]):
        rows = numbers(table, f"version as of {id_}")
        assert rows == list(range(len(rows)))
    assert len(rows) == 19
    assert lake.sql(f"select * from {name}.history").count() >= 3
    assert lake.sql(f"select * from {name}.snapshots").count() == len(before)
    options = {"start-snapshot-id": str(before[-3]), "end-snapshot-id": str(before[-1])}
    assert sorted(row.id for row in spark.read.format("iceberg").options(**options).load(name).collect()) == [
        17,
        18,
    ]
    with pytest.raises(Exception, match="ancestor"):
        spark.read.format("iceberg").option("start-snapshot-id", behind[-1]).load(name).count()
    file = str(table.format.handle.java().operations().current().metadataFileLocation())
    others = StaticTable.from_metadata(file)
    assert others.scan().count() == 19
    assert others.scan(snapshot_id=before[0]).count() == len(numbers(table, f"version as of {before[0]}"))
    assert len(others.inspect.snapshots()) == len(before)
    stored_manifests = stored(table, folder, "metadata", "*-m*.avro")
    assert stored_manifests == referred(table, "path", "all_manifests")
    lake.sql(f"call lake.system.set_current_snapshot('{table.name}', {behind[1]})")
    batches(table, 100, 101)
    assert 100 in numbers(table)
    lake.sql(f"call lake.system.rollback_to_snapshot('{table.name}', {behind[1]})")
    lake.sql(f"call lake.system.set_current_snapshot('{table.name}', {before[-1]})")
    batches(table, 19, 35)
    left = snapshots(table)
    assert len([s for s in left if str(s) in behind]) <= 2, "they go over gaps, once they are too old"
    assert numbers(table) == list(range(35))
    lake.sql(
        f"call lake.system.expire_snapshots(table => '{table.name}', older_than => timestamp'2100-01-01')"
    )
    assert numbers(table) == list(range(35))


@pytest.mark.nightly
def test_a_branch_keeps_what_it_says(table: Table, lake: Lake) -> None:
    name = table.format.handle.full_name
    batches(table, 1, 6)
    lake.sql(f"alter table {name} create branch audit with snapshot retention 4 snapshots")
    lake.sql(f"alter table {name} create tag kept as of version {snapshots(table)[0]}")
    held = snapshots(table)
    batches(table, 6, 20)
    assert snapshots(table)[:-3][:5] == [held[0], *held[2:]]
    lake.sql(f"alter table {name} create or replace branch main with snapshot retention 12 snapshots")
    batches(table, 20, 50)
    left = snapshots(table)
    assert len(left) - 5 >= 12
    assert numbers(table) == list(range(50))
    lake.sql(f"call lake.system.expire_snapshots(table => '{table.name}')")
    assert set(snapshots(table)) <= set(left)
    assert set(snapshots(table)) >= {held[0], *held[2:], *left[-12:]}, "no other than Iceberg's own expiry"


@pytest.mark.nightly
def test_changes_by_hand_let_go_of_schemas(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "SCHEMAS", 3)
    monkeypatch.setattr(commit, "FEW", 2)

    def schemas() -> int:
        return int(table.format.handle.java().schemas().size())

    for i in range(9):
        lake.alter(f"ALTER TABLE {table.name} ADD COLUMN c{i} int")
        assert schemas() <= 7
    for _ in range(4):
        table.undo()
        assert schemas() <= 7
    assert numbers(table) == [0]


@pytest.mark.nightly
def test_what_others_hold_is_left_alone(table: Table, lake: Lake) -> None:
    name = table.format.handle.full_name
    batches(table, 1, 3)
    lake.sql(f"alter table {name} create tag kept")
    batches(table, 3, 5)
    lake.sql(f"alter table {name} create branch audit")
    lake.sql(f"insert into {name}.branch_audit values (100, 'b')")
    batches(table, 5, 7)
    lake.sql(f"insert into {name} values (101, 'c')")
    batches(table, 7, 9)
    lake.sql(f"delete from {name} where id = 7")
    before = snapshots(table)
    times = {number: lake.sql(f"select id from {name} version as of {number}").count() for number in before}
    batches(table, 9, 25)
    left = snapshots(table)
    # of the tag, the branch (three of it) and where it left, of others, and what was before rows were deleted
    assert set(before) & set(left) == {before[i] for i in (2, 3, 4, 5, 8, 10, 11)}
    assert {n: lake.sql(f"select id from {name} version as of {n}").count() for n in left if n in times} == {
        n: times[n] for n in left if n in times
    }
    assert numbers(table, "version as of 'kept'") == [0, 1, 2]
    assert numbers(table, "version as of 'audit'") == [0, 1, 2, 3, 4, 100]
    assert numbers(table) == [0, 1, 2, 3, 4, 5, 6, 8, *range(9, 25), 101]


def test_somebody_is_faster(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    others_are_faster(table, monkeypatch)


def test_somebody_is_faster_in_a_rest_catalog(
    spark: SparkSession, rest: Rest, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a catalog would remove snapshots from a table that others have changed meanwhile."""
    others_are_faster(
        upkept(attached(spark, "upkeep", {"type": "rest", "uri": rest.uri}), table_name), monkeypatch
    )


def others_are_faster(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    look, others = commit.dispensable, [100]

    def slow(metadata: Any, now: int) -> Dispensable:
        if others:
            table.lake.sql(f"insert into {table.format.handle.full_name} values ({others.pop()}, 'x')")
        return look(metadata, now)

    monkeypatch.setattr(commit, "dispensable", slow)
    batches(table, 1, 13)
    assert not others
    assert len(snapshots(table)) == 14, "nothing is done this time"
    batches(table, 13, 14)
    assert len(snapshots(table)) == 3
    assert numbers(table) == [*range(14), 100]


@pytest.mark.nightly
def test_it_dies_on_the_way(table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "_delete_manifests", fail)
        batches(table, 1, 13)
    assert len(snapshots(table)) == 3
    batches(table, 13, 24)
    assert len(snapshots(table)) == 4
    assert numbers(table) == list(range(24))
    assert stored(table, folder, "metadata", "snap-*.avro") > referred(table, "manifest_list", "snapshots")


def test_two_do_it(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    look = commit.dispensable
    twin = lake.table(table.name).format.handle
    nested = []

    def both(metadata: Any, now: int) -> Dispensable:
        if not nested:
            nested.append(True)
            commit.upkeep(twin, twin.java())
        return look(metadata, now)

    monkeypatch.setattr(commit, "dispensable", both)
    batches(table, 1, 13)
    assert len(snapshots(table)) == 3
    assert numbers(table) == list(range(13))


@pytest.mark.nightly
@pytest.mark.embedded_only("finds the table in SQLite's file")
def test_history_and_undo_go_on(
    table: Table, lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "SCHEMAS", 3)
    monkeypatch.setattr(commit, "FEW", 2)
    monkeypatch.setattr("driftline.core.history.retention.FEW", 2)
    lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')")
    for i in range(8):
        table.ingest([{"id": i, f"c{i}": "v"}])
    lake.alter(f"ALTER TABLE {table.name} DROP COLUMN c6")
    batches(table, 8, 12)
    history = table.history()
    assert len(history.schemas) < 9, "schemas have gone"
    assert len(snapshots(table)) < 10
    told = [e for e in history.entries if e.by != "unknown"]
    assert [e.by for e in told][-3:] == ["batch", "batch", "alter"]
    assert [c.path for e in told[-3:] for c in e.changes] == [("c6",), ("c7",), ("c6",)]
    still = OfflineIcebergTable.of(folder, "lake", table.name)
    assert still is not None and still.versions() == table.format.versions()
    rows = numbers(table)
    assert table.undo().to_dict()["back"] == {"c6": 1}
    assert numbers(table) == rows
    assert table.history().entries[-1].by == "undo"


@pytest.mark.nightly
def test_statistics_and_resolve_after_it(table: Table, lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    for i in range(1, 14):
        late = {"late": i} if i > 7 else {}
        file.write_text(json.dumps({"id": i, "name": "x", "v": i if i % 5 else f"n{i}", **late}))
        table.ingest(file)
    assert len(snapshots(table)) < 10
    told = {c["path"]: c for c in table.stats().to_dict()["columns"]}
    assert table.stats().batches == 14
    assert {path: c["values"] for path, c in told.items()} == {
        "id": 14, "name": 14, "v": 11, "v_string": 9, "late": 6
    }  # fmt: skip
    (v,) = table.stats().to_dict()["drifted"]
    assert [(t["type"], t["records"]) for t in v["types"]] == [("long", 11), ("string", 2)]
    assert table.resolve("v", "string").values == 13
    assert numbers(table) == list(range(14))
    table.undo(yes=True)
    assert table.read().where("v is not null").count() == 11


@pytest.mark.nightly
def test_a_capture_brings_nothing_again(table: Table, tmp_path: Path) -> None:
    for start, end in ((1, 14), (14, 17)):
        for i in range(start, end):
            (tmp_path / f"{i}.json").write_text(json.dumps({"id": i, "name": "x"}))
        table.capture(tmp_path, name="files", max_files=1).awaitTermination()
    assert len(snapshots(table)) < 10
    assert numbers(table) == list(range(17))
    assert table.verify([*map(str, tmp_path.glob("*.json"))], "json").ok
