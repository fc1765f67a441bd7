"""Batches on a real cluster: the same tables, the same proof, whatever the catalog and the session."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.lake import Lake, Table

from .proof import lines, proven, versions


def done_by_executors(spark: SparkSession) -> dict[str, int]:
    """The number of tasks that each executor has finished."""
    found = spark._jsc.sc().statusStore().executorList(True)
    each = [found.apply(i) for i in range(found.size())]
    return {one.id(): one.completedTasks() for one in each if one.id() != "driver"}


def test_drifting_files_are_taken_by_both_executors_in_one_version_a_batch(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    before = done_by_executors(lake.spark)
    for day in range(3):
        for part in range(4):
            drift = (
                [{"id": f"u-{part}", "item": [{"n": 1}]}] if day == 1 else [{"id": part, "at": "2026-03-02"}]
            )
            plain = ({"id": i, "item": {"n": i, "price": i / 4}} for i in range(500))
            lines(tmp_path, f"{day}/{part}.jsonl", *plain, *drift)
        done = table.ingest(tmp_path / str(day))
        assert (done.rows_read, done.rows_written) == (2004, 2004)
        assert bool(done.changes) == (day < 2)
        assert versions(table) == day + 1
    proven(table, tmp_path)
    assert {"id", "id_string", "item", "item_array_record", "at"} <= set(table.read().columns)
    after = done_by_executors(lake.spark)
    assert len(after) == 2
    assert all(after[each] > before.get(each, 0) for each in after)


def test_changes_by_key(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    for part in range(4):
        lines(tmp_path, f"0/{part}.jsonl", *({"id": 4 * i + part, "seq": 1} for i in range(250)))
        lines(
            tmp_path, f"1/{part}.jsonl",
            *({"id": 4 * i + part, "seq": 2, "v": part} for i in range(100)),
            {"id": 900 + part, "seq": 2, "op": "d"}, {"id": f"{part}", "seq": 0}, {"id": part, "seq": 0}, {"seq": 2},
        )  # fmt: skip
    table.ingest(tmp_path / "0", settings={"key": "id", "order_by": "seq", "delete_when": "op = 'd'"})
    done = table.ingest(tmp_path / "1")
    counts = {name: done.to_dict()[name] for name in ("inserted", "updated", "deleted", "superseded")}
    assert counts == {"inserted": 4, "updated": 400, "deleted": 4, "superseded": 4}
    assert done.rows_quarantined == 4
    rows = table.read().collect()
    assert len({(row.id, row.id_string) for row in rows}) == len(rows) == 1000
    assert {row.id: row.v for row in rows if row.v is not None} == {i: i % 4 for i in range(400)}


def test_what_is_no_record_goes_to_quarantine(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    lines(tmp_path, "1.jsonl", {"a": 1, "n": 0.5})
    (tmp_path / "2.jsonl").write_bytes(
        b'{"a": "x", "n": 12345678901234567890123}\n{"a": 1\n{"a": "\xff"}\n[1]\n'
    )
    (tmp_path / "3.json").write_text('[{"a": 3},\n {"a": [4]}]')
    done = table.ingest(tmp_path)
    assert (done.rows_written, done.rows_quarantined) == (4, 3)
    kept = lake.table(f"{table_name}__quarantine").read()
    assert {Path(row.source).name for row in kept.collect()} == {"2.jsonl"}
    proven(table, tmp_path)


@pytest.mark.parametrize("lake", ["rest"], indirect=True)
def test_nothing_but_malformed_lines(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, "1.jsonl", {"a": 1}))
    for name in ("2.jsonl", "3.jsonl"):
        (tmp_path / name).write_text("nothing\n")
        assert table.ingest(tmp_path / name).rows_quarantined == 1
    proven(table, tmp_path)


@pytest.mark.parametrize("lake", ["jdbc"], indirect=True)
def test_a_dataframe(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    spark = lake.spark
    table.ingest(spark.range(1000, numPartitions=4).selectExpr("id", "named_struct('n', id) as s"))
    table.ingest(spark.range(10).selectExpr("cast(id as string) as id", "named_struct('n', 0.5d) as s"))
    assert table.read().where("id_string is not null").count() == 10
    assert table.read().where("s.n is not null").count() == 1000


@pytest.mark.parametrize("lake", ["jdbc"], indirect=True)
def test_json_text_in_a_column(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    texts = [(json.dumps({"id": i if i % 3 else f"{i}"}),) for i in range(30)]
    frame = lake.spark.createDataFrame([*texts, ("{",)], "text string")
    done = table.ingest(frame, json_column="text")
    assert (done.rows_written, done.rows_quarantined) == (30, 1)
    assert table.read().where("id_long is not null").count() == 20


@pytest.mark.parametrize("lake", ["jdbc"], indirect=True)
@pytest.mark.parametrize("fmt", ["csv", "parquet", "avro", "orc"])
def test_other_formats(lake: Lake, table_name: str, tmp_path: Path, fmt: str) -> None:
    table = lake.table(table_name)
    files = tmp_path / "files"
    for i, (id_, at) in enumerate((("1L", "'2026-03-02 04:05:06Z'"), ("'x'", "'2026-03-03 04:05:06Z'"))):
        frame = lake.spark.sql(f"select {id_} as id, timestamp{at} as at")
        options = {"header": "true", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ssXXX"}
        frame.write.format(fmt).options(**options).save(str(files / str(i)))
        assert table.ingest(files / str(i)).rows_written == 1
    proven(table, files, fmt)
    seconds = table.read().selectExpr("unix_seconds(cast(at as timestamp)) as at").collect()
    assert sorted(row.at for row in seconds) == [1772424306, 1772510706]


SESSION = {
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.storeAssignmentPolicy": "STRICT",
}


@contextmanager
def session(spark: SparkSession) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in SESSION}
    for key, value in SESSION.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


@pytest.mark.parametrize("lake", ["rest"], indirect=True)
def test_settings_of_the_session_change_nothing(lake: Lake, table_name: str, tmp_path: Path) -> None:
    one = {
        "id": 1,
        "Id": "twin",
        "at": "2026-03-02T04:05:06Z",
        "day": "2026-03-02",
        "n": 0.1,
        "s": {"x": [1, None]},
    }
    two = {"id": "2", "at": "2026-03-02 04:05:06", "day": 3, "n": 9223372036854775808, "s": {"x": {"y": 1}}}
    files = [lines(tmp_path, "1.jsonl", one), lines(tmp_path, "2.jsonl", two, one)]
    usual, other = lake.table(table_name), lake.table(f"{table_name}_other")
    for file in files:
        usual.ingest(file)
    with session(lake.spark):
        for file in files:
            other.ingest(file)
        proven(other, tmp_path)
    assert other.schema().to_dict() == usual.schema().to_dict()
    assert text(other) == text(usual)


def text(table: Table) -> list[str]:
    return sorted(row.text for row in table.read().selectExpr("to_json(struct(*)) as text").collect())


def test_paths_are_the_drivers(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(tmp_path, "in/ä %20 1.jsonl", {"a": 1}, {"a": "x"})
    monkeypatch.chdir(tmp_path)
    table = lake.table(table_name)
    assert table.ingest("in").rows_written == 2
    assert table.verify(["in/ä %20 1.jsonl"], "json").ok


# Other writers: at the last moment, when the batch is planned and about to be written. ---------------------


def meanwhile(act: Callable[[], object]) -> Callable[[str], None]:
    todo = [act]

    def progress(phase: str) -> None:
        if phase == "writing" and todo:
            todo.pop()()

    return progress


def test_a_column_added_by_hand_meanwhile(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, "1.jsonl", {"id": 1}))
    alter = f"alter table {table.format.handle.full_name} add columns (extra bigint, drift string)"
    file = lines(tmp_path, "2.jsonl", {"id": "x", "drift": 1.5, "extra": 7})
    done = table.ingest(file, progress=meanwhile(lambda: lake.spark.newSession().sql(alter)))
    assert done.rows_written == 1
    assert table.read().count() == 2
    assert table.read().where("extra = 7").count() == 1
    assert [c for c in table.read().columns if c.startswith("extra")] == ["extra"]
    proven(table, tmp_path)


def test_two_batches_with_the_same_new_column(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, other = (
        lake.table(table_name),
        Lake.attach(lake.spark.newSession(), lake.catalog).table(table_name),
    )
    table.ingest(lines(tmp_path, "1.jsonl", {"id": 1}))
    theirs = lines(tmp_path, "2.jsonl", {"id": 2, "new": "a"})
    ours = lines(tmp_path, "3.jsonl", {"id": 3, "new": "b"}, {"id": "x"})
    done = table.ingest(ours, progress=meanwhile(lambda: other.ingest(theirs)))
    assert done.rows_written == 2
    assert table.read().columns == ["id", "new", "id_string"]
    proven(table, tmp_path)


def test_a_table_made_meanwhile(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    theirs, ours = lines(tmp_path, "1.jsonl", {"id": 1}), lines(tmp_path, "2.jsonl", {"id": "x"})
    table.ingest(ours, progress=meanwhile(lambda: lake.table(table_name).ingest(theirs)))
    assert table.read().count() == 2
    proven(table, tmp_path)


@pytest.mark.parametrize("lake", ["jdbc"], indirect=True)
def test_rows_of_python_and_archives_lie_where_all_workers_see_them(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the lake's folder: this machine's own is one that no other has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nobody"))
    table = lake.table(table_name)
    rows = [{"id": i, "at": "2026-03-02"} for i in range(1000)]
    assert table.ingest(iter(rows)).rows_written == 1000
    archive = tmp_path / "in.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for part in range(3):
            packed.writestr(f"{part}.jsonl", json.dumps({"id": str(part)}) + "\n")
    assert table.ingest(archive).rows_written == 3
    assert table.verify(rows).ok
    assert table.verify([str(archive)]).ok
    assert lake.warehouse is not None
    assert list(Path(lake.warehouse.removeprefix("file:")).glob("driftline-spool-*")) == []
