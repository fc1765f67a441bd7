"""What a table lets go of: no data, nothing that somebody refers to, nothing that history and undo need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.core import changelog, record
from driftline.core.changelog import Ids, Step
from driftline.formats.iceberg import upkeep
from driftline.formats.iceberg.still import StillTable
from driftline.formats.iceberg.upkeep import KEEP, MAX_AGE, MIN_SNAPSHOTS, Dispensable, dispensable
from driftline.lake import Lake, Table

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
                **({record.BATCH: f"b{i}"} if operation.islower() else {}),
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


def gone(of: dict[str, Any], now: int = 10**9) -> set[int]:
    return set(dispensable(of, now).snapshots)


def test_the_oldest_go_once_they_are_as_many_as_stay() -> None:
    assert gone(metadata(*["append"] * (2 * KEEP - 1))) == set()
    assert gone(metadata(*["append"] * (2 * KEEP))) == set(range(1, KEEP + 1))
    assert gone(metadata()) == set()


def test_as_many_stay_as_the_table_says() -> None:
    few = {"properties": {MIN_SNAPSHOTS: "3"}}
    assert gone(metadata(*["append"] * 12, **few)) == set(), "not worth a commit"
    assert gone(metadata(*["append"] * 13, **few)) == set(range(1, 11))
    assert gone(metadata(*["append"] * 13, properties={MIN_SNAPSHOTS: "0"})) == set(range(1, 13))
    old = {"properties": {MIN_SNAPSHOTS: "3", MAX_AGE: "5000"}}
    assert gone(metadata(*["append"] * 20, **old), 21_000) == set(range(1, 17))
    assert gone(metadata(*["append"] * 20, **old), 10_000) == set()
    assert gone(metadata(*["append"] * 20, properties={MIN_SNAPSHOTS: "3", "gc.enabled": "False"})) == set()


FEW = {MIN_SNAPSHOTS: "2"}
MANY = ["append"] * 12


def test_those_of_others_stay_and_those_before_what_takes_files_away() -> None:
    operations = ["append", "APPEND", "append", "OVERWRITE", "append", "delete", "append", "REPLACE", *MANY]
    of = metadata(*operations, properties=FEW)
    # 3, 5 and 7 have files that 4, 6 and 8 have not.
    assert gone(of) == {1, *range(9, 19)}


def test_what_is_referred_to_stays() -> None:
    of = metadata(*MANY, *MANY, properties=FEW)
    of["refs"] = {
        "main": {"snapshot-id": 24, "type": "branch"},
        "kept": {"snapshot-id": 3, "type": "tag"},
        "audit": {"snapshot-id": 100, "type": "branch"},
    }
    of["snapshots"].append({**of["snapshots"][0], "snapshot-id": 100, "parent-snapshot-id": 5})
    of["statistics"] = [{"snapshot-id": 7}]
    of["partition-statistics"] = [{"snapshot-id": 9}]
    assert gone(of) == set(range(1, 23)) - {3, 5, 7, 9}


def test_snapshots_that_tell_nothing_stay() -> None:
    of = metadata(*MANY, *MANY, properties=FEW)
    for snapshot in of["snapshots"][:4]:
        del snapshot["summary"]
    assert gone(of) == set(range(5, 23))


def remembered(*steps: tuple[int, int]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for before, after in steps:
        step = Step(Ids(before, 0, 0), Ids(after, 0, 0), None)
        properties |= changelog.noted(record.of_statements("x"), step, properties, properties)
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
def table(lake: Lake, table_name: str, spark: SparkSession) -> Iterator[Table]:
    table = lake.table(table_name)
    batches(table, 0, 1)
    lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{MIN_SNAPSHOTS}' = '3')")
    return table


def batches(table: Table, first: int, last: int) -> None:
    for i in range(first, last):
        table.ingest(table.lake.spark.sql(f"select {i} as id, 'x' as name"))


def snapshots(table: Table) -> list[int]:
    rows = table.lake.sql(f"select snapshot_id from {table.format.full_name}.snapshots order by committed_at")
    return [row.snapshot_id for row in rows.collect()]


def numbers(table: Table, where: str = "") -> list[int]:
    rows = table.lake.sql(f"select id from {table.format.full_name} {where}").collect()
    return sorted(row.id for row in rows)


def stored(table: Table, folder: Path, kind: str, pattern: str) -> set[str]:
    return {p.name for p in folder.joinpath(*table.name.split("."), kind).glob(pattern)}


def referred(table: Table, what: str, metadata_table: str) -> set[str]:
    rows = table.lake.sql(f"select {what} as path from {table.format.full_name}.{metadata_table}").collect()
    return {Path(row.path).name for row in rows}


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


def test_what_others_hold_is_left_alone(table: Table, lake: Lake, spark: SparkSession) -> None:
    name = table.format.full_name
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
    # of the tag, the branch and where it left, of others, and what was before rows were deleted
    assert set(before) & set(left) == {before[i] for i in (2, 4, 5, 8, 10, 11)}
    assert {n: lake.sql(f"select id from {name} version as of {n}").count() for n in left if n in times} == {
        n: times[n] for n in left if n in times
    }
    assert numbers(table, "version as of 'kept'") == [0, 1, 2]
    assert numbers(table, "version as of 'audit'") == [0, 1, 2, 3, 4, 100]
    assert numbers(table) == [0, 1, 2, 3, 4, 5, 6, 8, *range(9, 25), 101]


def test_somebody_is_faster(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    look, others = upkeep.dispensable, [100]

    def slow(metadata: Any, now: int) -> Dispensable:
        if others:
            lake.sql(f"insert into {table.format.full_name} values ({others.pop()}, 'x')")
        return look(metadata, now)

    monkeypatch.setattr(upkeep, "dispensable", slow)
    batches(table, 1, 13)
    assert not others
    assert len(snapshots(table)) == 14, "nothing is done this time"
    batches(table, 13, 14)
    assert len(snapshots(table)) == 3
    assert numbers(table) == [*range(14), 100]


def test_it_dies_on_the_way(table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "_delete_manifests", fail)
        batches(table, 1, 13)
    assert len(snapshots(table)) == 3
    batches(table, 13, 24)
    assert len(snapshots(table)) == 4
    assert numbers(table) == list(range(24))
    assert stored(table, folder, "metadata", "snap-*.avro") > referred(table, "manifest_list", "snapshots")


def test_two_do_it(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    look = upkeep.dispensable
    twin = lake.table(table.name).format
    nested = []

    def both(metadata: Any, now: int) -> Dispensable:
        if not nested:
            nested.append(True)
            upkeep.upkeep(twin, twin.java())
        return look(metadata, now)

    monkeypatch.setattr(upkeep, "dispensable", both)
    batches(table, 1, 13)
    assert len(snapshots(table)) == 3
    assert numbers(table) == list(range(13))


def test_history_and_undo_go_on(
    table: Table, lake: Lake, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SCHEMAS", 3)
    monkeypatch.setattr(upkeep, "_FEW", 2)
    lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')")
    for i in range(8):
        table.ingest(spark.sql(f"select {i} as id, 'v' as c{i}"))
    lake.alter(f"ALTER TABLE {table.name} DROP COLUMN c6")
    batches(table, 8, 12)
    history = table.history()
    assert len(history.schemas) < 9, "schemas have gone"
    assert len(snapshots(table)) < 10
    told = [e for e in history.entries if e.by != "unknown"]
    assert [e.by for e in told][-3:] == ["batch", "batch", "alter"]
    assert [c.path for e in told[-3:] for c in e.changes] == [("c6",), ("c7",), ("c6",)]
    still = StillTable.of(folder, "lake", table.name)
    assert still is not None and still.versions() == table.format.versions()
    rows = numbers(table)
    assert table.undo().to_dict()["back"] == {"c6": 1}
    assert numbers(table) == rows
    assert table.history().entries[-1].by == "undo"


def test_statistics_and_resolve_after_it(table: Table, lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    for i in range(1, 26):
        late = {"late": i} if i > 7 else {}
        file.write_text(json.dumps({"id": i, "name": "x", "v": i if i % 5 else f"n{i}", **late}))
        table.ingest(file)
    assert len(snapshots(table)) < 20
    told = {c["path"]: c for c in table.stats().to_dict()["columns"]}
    assert table.stats().batches == 26
    assert {path: c["values"] for path, c in told.items()} == {
        "id": 26, "name": 26, "v": 20, "v_string": 21, "late": 18
    }  # fmt: skip
    (v,) = table.stats().to_dict()["drifted"]
    assert [(t["type"], t["records"]) for t in v["types"]] == [("long", 20), ("string", 5)]
    assert table.resolve("v", "string").values == 25
    assert numbers(table) == list(range(26))
    table.undo(yes=True)
    assert table.read().where("v is not null").count() == 20


def test_a_capture_brings_nothing_again(table: Table, tmp_path: Path) -> None:
    for start in (1, 15):
        for i in range(start, start + 14):
            (tmp_path / f"{i}.json").write_text(json.dumps({"id": i, "name": "x"}))
        table.capture(tmp_path, name="files", max_files=1).awaitTermination()
    assert len(snapshots(table)) < 20
    assert numbers(table) == list(range(29))
    assert table.verify([*map(str, tmp_path.glob("*.json"))], "json").ok
