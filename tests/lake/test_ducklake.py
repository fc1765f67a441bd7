"""A batch in a DuckLake: one snapshot, all or nothing, read by DuckDB as Spark reads it."""

from __future__ import annotations

import json
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import driftline.formats.ducklake.deletes as by_key
import driftline.ingest.attempts as road
from driftline.core.history.batch_properties import BatchIsInError, Token
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.formats.base import CommitConflict
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from driftline.sources.json_files import JsonFiles
from lake import test_one_snapshot as one_snapshot
from lake.ducklake_peer import run, same
from lake.formats import database, ducklake_at


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return ducklake_at(spark, CatalogDatabase.of("duckdb", tmp_path / "lake of [*] ü"))


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table("shop.orders")


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake whose catalog several processes may use at once."""
    named = request.getfixturevalue("postgres").database() if request.param == "postgres" else "sqlite"
    return ducklake_at(spark, CatalogDatabase.of(named, tmp_path / "lake"))


def lines(tmp_path: Path, *records: Any, name: str = "in") -> Path:
    file = tmp_path / f"{name}.jsonl"
    file.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records))
    return file


def snapshots(lake: Lake) -> list[tuple[Any, ...]]:
    return database(lake).read(
        lambda c: c.rows(
            "SELECT snapshot_id, changes_made, author, commit_message, commit_extra_info "
            "FROM meta.ducklake_snapshot_changes ORDER BY snapshot_id"
        )
    )


def parquet(lake: Lake) -> set[Path]:
    return set(Path(database(lake).data).rglob("*.parquet"))


def test_a_batch_is_one_snapshot_with_its_quarantine(lake: Lake, table: Table, tmp_path: Path) -> None:
    result = table.ingest(lines(tmp_path, {"a": 1, "o": {"x": 1}}, "broken", {"a": "x"}))
    assert (result.rows_written, result.rows_quarantined, result.snapshot) == (2, 1, 1)
    _, changes, author, message, extra = snapshots(lake)[1]
    assert changes.count("created_table") == 2
    assert author == "driftline"
    assert result.batch in message
    assert "2 rows" in message
    assert json.loads(extra)["driftline.batch"] == result.batch
    assert table.state().properties["driftline.batch"] == result.batch
    table.ingest(lines(tmp_path, {"a": 2, "b": [True]}, "also broken"))
    assert len(snapshots(lake)) == 3
    assert "add b" in snapshots(lake)[2][3]
    assert {r.raw for r in lake.sql("select raw from shop.orders__quarantine").collect()} == {
        "broken",
        "also broken",
    }
    assert len(same(table.format, tmp_path)) == 3


def test_marks_are_comments_nested_ones_too(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": 1, "o": [{"x": 1}]}))
    before = {path: f.id for path, f in table.state().schema.walk()}
    table.ingest(lines(tmp_path, {"a": "x", "o": [{"x": "s"}]}))
    after = dict(table.state().schema.walk())
    assert {path: after[path].id for path in before} == before
    assert after["o", "element", "x_string"].doc == "upsolver_evolved_from:x"
    assert ("upsolver_evolved_from:a",) in run(
        database(lake), "SELECT comment FROM duckdb_columns() WHERE database_name = 'lk'"
    )
    same(table.format, tmp_path)


@pytest.mark.nightly
def test_duckdb_goes_on_with_the_table(lake: Lake, table: Table, tmp_path: Path) -> None:
    """Its own small inserts, which stay in the catalog, and its own ALTERs between ours."""
    table.ingest(lines(tmp_path, {"a": 1, "l": [1], "s": {"x": "p"}}))
    run(database(lake), "INSERT INTO lk.shop.orders VALUES (2, [2], {'x': 'q'})")
    same(table.format, tmp_path)
    table.ingest(lines(tmp_path, {"a": 3, "b": 1.5, "s": {"x": "r", "y": 1}}))
    run(database(lake), "INSERT INTO lk.shop.orders VALUES (4, [4], {'x': 's', 'y': 2}, 2.5)")
    assert len(same(table.format, tmp_path)) == 4
    run(
        database(lake),
        "ALTER TABLE lk.shop.orders RENAME b TO c",
        "ALTER TABLE lk.shop.orders ADD COLUMN s.n INTEGER DEFAULT 7",
        "DELETE FROM lk.shop.orders WHERE a = 3",
        "UPDATE lk.shop.orders SET c = 9 WHERE a = 2",
    )
    table.ingest(lines(tmp_path, {"a": 5, "c": 3, "s": {"n": 8}}))
    rows = same(table.format, tmp_path)
    assert sorted((r["c0"], r["c3"]) for r in rows) == [(1, None), (2, 9.0), (4, 2.5), (5, 3.0)]
    assert run(database(lake), "SELECT min(a), max(a), count(*) FROM lk.shop.orders") == [(1, 5, 4)]
    run(database(lake), "CALL ducklake_flush_inlined_data('lk')", "CALL ducklake_merge_adjacent_files('lk')")
    assert len(same(table.format, tmp_path)) == 4


def test_a_failing_commit_leaves_no_file_and_no_table(
    lake: Lake, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: DuckLakeTransaction) -> None:
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(DuckLakeTransaction, "commit_with", fail)
        with pytest.raises(RuntimeError):
            table.ingest(lines(tmp_path, {"a": 1}, "broken"))
    assert not table.format.load().exists
    assert parquet(lake) == set()
    assert table.ingest(lines(tmp_path, {"a": 1})).rows_written == 1


def test_a_change_by_someone_else_meanwhile_is_planned_anew(
    lake: Lake, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = database(lake)
    table.ingest(lines(tmp_path, {"a": 1}))
    meanwhile = ["ALTER TABLE lk.shop.orders RENAME a TO renamed"]
    write = DuckLakeTransaction.write

    def interrupted(self: DuckLakeTransaction, *args: Any) -> int:
        if meanwhile:
            run(catalog, meanwhile.pop())
        return write(self, *args)

    monkeypatch.setattr(DuckLakeTransaction, "write", interrupted)
    assert table.ingest(lines(tmp_path, {"a": 2, "c": True})).rows_written == 1
    assert [f.name for f in table.state().schema.struct.fields] == ["renamed", "a", "c"]
    assert len(same(table.format, tmp_path)) == 2


def test_rows_by_someone_else_meanwhile_are_no_conflict(
    lake: Lake, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = database(lake)
    table.ingest(lines(tmp_path, {"a": 1}))
    calls: list[int] = []
    write = DuckLakeTransaction.write

    def interrupted(self: DuckLakeTransaction, *args: Any) -> int:
        calls.append(1)
        run(catalog, "INSERT INTO lk.shop.orders SELECT * FROM range(100)")
        return write(self, *args)

    monkeypatch.setattr(DuckLakeTransaction, "write", interrupted)
    table.ingest(lines(tmp_path, {"a": 2, "c": True}))
    assert calls == [1]
    assert len(same(table.format, tmp_path)) == 102


def bring(table: Table, folder: Path, epoch: int, *records: Any) -> None:
    file = lines(folder, *records, name=f"e{epoch}")
    options = road.Options(token=Token("orders", "stream-1", epoch))
    road.ingest(table.format, JsonFiles(spark=table.lake.spark, files=[str(file)]), options)


def test_a_micro_batch_is_in_once(lake: Lake, table: Table, tmp_path: Path) -> None:
    bring(table, tmp_path, 0, {"a": 1}, "broken")
    for _ in range(2):
        with pytest.raises(BatchIsInError):
            bring(table, tmp_path, 0, {"a": 1}, "broken")
    bring(table, tmp_path, 1, {"a": 2})
    run(database(lake), "CALL ducklake_expire_snapshots('lk', older_than => now())")
    with pytest.raises(BatchIsInError):
        bring(table, tmp_path, 1, {"a": 2})
    assert [r["c0"] for r in same(table.format, tmp_path)] == [1, 2]
    assert quarantine.of(table.format).read().count() == 1


def test_a_micro_batch_without_columns_is_in_quarantine_once(table: Table, tmp_path: Path) -> None:
    for _ in range(2):
        bring(table, tmp_path, 0, {}, {})
    assert quarantine.of(table.format).read().count() == 2


@pytest.mark.nightly
def test_a_capture(lake: Lake, table: Table, tmp_path: Path) -> None:
    """A stream goes the same way, and goes on where it was."""
    folder = tmp_path / "incoming"
    folder.mkdir()
    for i in range(2):
        (folder / f"{i}.jsonl").write_text(json.dumps({"id": i, f"c{i}": i}))
        table.capture(folder, name="orders", checkpoint=tmp_path / "checkpoint").awaitTermination()
    assert [r["c0"] for r in same(table.format, tmp_path)] == [0, 1]
    assert table.state().properties["driftline.capture.orders"].endswith(":1")
    assert table.verify([str(f) for f in sorted(folder.iterdir())], "json").ok


def test_nobody_registers_a_file_twice(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": 1}))
    transaction = table.format.transaction(table.format.load())
    transaction.append(table.lake.spark.sql("select 2L as a"), {})
    transaction.commit()
    again = table.format.transaction(table.format.load())
    again._intent.files = list(transaction._intent.files)
    with pytest.raises(DataError, match="is registered already"):
        again.commit()
    assert len(same(table.format, tmp_path)) == 2


def test_undo_and_delete(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": "x"}, {"a": "y"}))
    transaction = table.format.transaction(table.format.load())
    transaction.append(table.lake.spark.sql("select 'z' as a"), {})
    transaction.commit()
    assert len(same(table.format, tmp_path)) == 3
    assert transaction.undo()
    assert not transaction.undo()
    table.format.delete("a", "y")
    assert [r["c0"] for r in same(table.format, tmp_path)] == ["x"]


@pytest.mark.nightly
def test_replacing_all_rows(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": 1}, {"a": 2}))
    run(database(lake), "INSERT INTO lk.shop.orders VALUES (3)", "DELETE FROM lk.shop.orders WHERE a = 1")
    before = table.format.load()
    transaction = table.format.transaction(before)
    assert transaction.replace_all().append(table.read().selectExpr("a * 10 as a"), {}) == 2
    transaction.commit()
    assert [r["c0"] for r in same(table.format, tmp_path)] == [20, 30]
    assert len(same(table.format, tmp_path, before.snapshot)) == 2


def test_a_required_column_without_a_value(spark: SparkSession, table: Table, lake: Lake) -> None:
    database(lake).make()
    run(
        database(lake), "CREATE SCHEMA lk.shop", "CREATE TABLE lk.shop.orders (a INTEGER NOT NULL, b INTEGER)"
    )
    transaction = table.format.transaction(table.format.load())
    with pytest.raises(DataError, match="rows without a value for a, which is required"):
        transaction.append(spark.sql("select cast(null as int) as a, 1 as b"), {})
    transaction.abandon()
    assert parquet(lake) == set()


def test_names_that_differ_in_case(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": 1, "A": 2, "o": {"k": 1, "K": "x"}}))
    assert {f.name for f in table.state().schema.struct.fields} == {"A", "o", "a_long"}
    same(table.format, tmp_path)
    with pytest.raises(DataError, match=r"there is a table shop\.orders"):
        lake.table("shop.Orders").ingest(lines(tmp_path, {"a": 1}))


@pytest.mark.parametrize("name", ["orders", "a.b.c", "a.", ""])
def test_names_that_are_no_table(lake: Lake, name: str) -> None:
    with pytest.raises(UsageError, match=r"namespace\.table"):
        lake.table(name)


def test_hostile_names(lake: Lake, tmp_path: Path) -> None:
    table = lake.table('it\'s; "drop".t`a`/b ü')
    table.ingest(lines(tmp_path, {"it's": {'q"': 1}, "b`c": [{"d'": "x"}], "e;--": 1}))
    table.ingest(lines(tmp_path, {"it's": {'q"': "y"}, "b`c": [{"d'": 1}]}))
    assert len(same(table.format, tmp_path)) == 2
    assert all(Path(database(lake).data) in p.resolve().parents for p in parquet(lake))


@pytest.mark.nightly
def test_two_writers_at_once(shared: Lake, tmp_path: Path) -> None:
    """Nothing lost, nothing doubled, though both also change the schema."""
    table = shared.table("shop.orders")
    table.ingest(lines(tmp_path, {"id": -1}))

    def write(who: int) -> None:
        for i in range(4):
            table = shared.table("shop.orders")
            table.ingest(
                lines(tmp_path, {"id": who * 100 + i, f"w{who}_{i // 2}": i}, "x", name=f"w{who}-{i}")
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    rows = same(table.format, tmp_path)
    assert sorted(r["c0"] for r in rows) == [-1, 0, 1, 2, 3, 100, 101, 102, 103]
    assert quarantine.of(table.format).read().count() == 8


@pytest.mark.nightly
def test_duckdb_reads_and_writes_the_same(shared: Lake, tmp_path: Path) -> None:
    table = shared.table("shop.orders")
    table.ingest(
        lines(
            tmp_path,
            {"a": 1, "s": {"x": [1, 2]}, "t": "2026-01-02T03:04:05Z", "d": 0.5, "b": True, "w": "it's"},
        )
    )
    run(
        database(shared),
        "INSERT INTO lk.shop.orders VALUES (2, {'x': [3]}, '2026-01-02 03:04:05.5+00', 1.5, false, 'ü\"')",
        "INSERT INTO lk.shop.orders VALUES (NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    assert len(same(table.format, tmp_path)) == 3
    table.ingest(lines(tmp_path, {"a": "x", "s": {"y": 1}}))
    run(
        database(shared),
        "INSERT INTO lk.shop.orders (a, s) VALUES (4, {'x': NULL, 'y': 5})",
        "DELETE FROM lk.shop.orders WHERE a = 2",
    )
    assert len(same(table.format, tmp_path)) == 4


@pytest.mark.parametrize("named", ["duckdb", "sqlite"])
def test_a_catalog_of_another_version_or_of_none(spark: SparkSession, tmp_path: Path, named: str) -> None:
    lake = ducklake_at(spark, CatalogDatabase.of(named, tmp_path))
    database(lake).make()
    database(lake).write(
        lambda c: c.execute("UPDATE meta.ducklake_metadata SET value = '1.1' WHERE key = 'version'"),
        lambda _: False,
    )
    with pytest.raises(SetupError, match=r"version 1\.1, not 1\.0"):
        lake.table("a.b").read()
    Path(database(lake).target).write_bytes(b"no database at all" * 100)
    with pytest.raises(SetupError, match="does not respond"):
        lake.table("a.b").read()
    Path(database(lake).target).unlink()
    with pytest.raises(UsageError, match=r"there is no table a\.b"):
        lake.table("a.b").state()


def test_a_server_that_is_away(spark: SparkSession, tmp_path: Path) -> None:
    catalog = CatalogDatabase.of("postgres:host=127.0.0.1 port=1 password=s3cret connect_timeout=2", tmp_path)
    with pytest.raises(SetupError, match="does not respond") as failed:
        ducklake_at(spark, catalog).table("a.b").read()
    assert "s3cret" not in str(failed.value)


def test_a_password_is_in_no_error_behind_the_one_that_python_raises(tmp_path: Path) -> None:
    lake = Lake.open(
        tmp_path, ducklake="postgres:host=127.0.0.1 port=1 password=s3cret connect_timeout=2 dbname=x"
    )
    with pytest.raises(SetupError, match="does not respond") as failed:
        lake.table("a.b").state()
    assert failed.value.__cause__ is not None
    assert "s3cret" not in "".join(traceback.format_exception(failed.value))


def test_statistics_out_of_the_catalog(lake: Lake, table: Table, tmp_path: Path) -> None:
    """As a scan counts them; not known where DuckDB keeps rows in the catalog."""
    table.ingest(lines(tmp_path, {"a": 1, "t": "2026-01-02T03:04:05.5Z"}, {"a": None, "s": {"x": 1.5}}))
    table.ingest(lines(tmp_path, {"a": "x", "d": "2026-01-02", "b": True}, {"a": 7, "l": [1, 2], "b": False}))
    told, counted = table.stats(), table.stats(exact=True)

    def numbers(of: Any) -> dict[str, Any]:
        rows = (c for c in of.columns if "element" not in c.path and c.path != ("l",))
        return {".".join(c.path): (c.numbers.values, c.numbers.low, c.numbers.high) for c in rows}

    def without(found: dict[str, Any], *keys: str) -> dict[str, Any]:
        return {key: value for key, value in found.items() if key not in keys}

    # The catalog has no bounds of floats: the files do not say whether there is a NaN.
    assert without(numbers(told), "s", "s.x") == without(numbers(counted), "s", "s.x")
    assert numbers(told)["s.x"][0] == 1
    assert (told.records, told.batches, told.files) == (4, 2, 2)
    assert [b.id for b in told.recent] == [b.id for b in counted.recent]
    assert None not in [b.id for b in told.recent]
    run(database(lake), "INSERT INTO lk.shop.orders (a) VALUES (5)")
    told = table.stats()
    assert (told.records, numbers(told)["a"][0]) == (5, None)
    run(database(lake), "CALL ducklake_flush_inlined_data('lk')", "DELETE FROM lk.shop.orders WHERE a = 7")
    assert numbers(table.stats())["a"][0] == 3
    assert table.stats().deleted == 1


def test_a_batch_by_key_looks_at_no_file_whose_bounds_rule_its_keys_out(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a micro-batch of new keys would take longer with each one before it."""
    monkeypatch.setattr(by_key, "_MANY", 2)
    looked, find = list[int](), by_key.find_rows

    def noted(context: Any, finder: Any, files: Any, cache: Any = None) -> Any:
        looked.append(len(files))
        return find(context, finder, files, cache)

    monkeypatch.setattr(by_key, "find_rows", noted)
    for first in (0, 10, 20):
        table.ingest([{"id": first + n, "v": "a"} for n in range(3)], settings={"key": "id"})
    for records, files in [  # a file that loses a third of its rows is written anew with the batch
        ([{"id": 11, "v": "b"}, {"id": 25, "v": "b"}], 1),
        ([{"id": 2, "v": "c"}, {"id": "x", "v": "c"}], 3),
        ([{"id": "x", "v": "d"}, {"id": 12, "v": "d"}], None),
    ]:
        table.ingest(records)
        assert looked[-1] == files or files is None, records
    rows = {(row.id if row.id is not None else row.id_string): row.v for row in table.read().collect()}
    assert rows == dict.fromkeys((0, 1, 10, 20, 21, 22), "a") | {11: "b", 25: "b", 2: "c", "x": "d", 12: "d"}
    assert table.read().count() == len(rows)


def test_a_commit_behind_many_has_duckdb_write_a_small_part_of_its_tables_anew(
    lake: Lake, table: Table
) -> None:
    table.ingest([{"id": 1}])
    changes = "ducklake_snapshot_changes"
    database(lake).write(
        lambda c: c.execute(
            f"INSERT INTO meta.{changes} SELECT -1 - i, 'x', 'x', 'x', '{{}}' FROM range(30_000) r(i)"
        ),
        lambda _: False,
    )
    table.ingest([{"id": 2}])
    ((most,),) = database(lake).read(
        lambda c: c.rows(f"SELECT max(count) FROM pragma_storage_info('meta.{changes}')")
    )
    assert most <= 8192


def test_a_folder_that_cannot_be_written(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": 1}))
    before = table.format.load()
    folder = Path(database(lake).data, "shop")
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("a file")
    with pytest.raises(DriftlineError):
        table.ingest(lines(tmp_path, {"b": 2}, "bad"))
    assert table.format.load() == before
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    table.ingest(lines(tmp_path, {"b": 2}))
    assert len(same(table.format, tmp_path)) == 2


def test_a_lake_that_was_made_anew_is_another_one(lake: Lake, table: Table, tmp_path: Path) -> None:
    """It counts its snapshots from 0 again: the number alone does not say that nothing has changed."""
    table.ingest([str(lines(tmp_path, {"id": 1}))])
    state = table.format.load()
    Path(database(lake).target).unlink()
    database(lake).make()
    table.ingest([str(lines(tmp_path, {"id": 1}))])
    assert table.format.load().snapshot == state.snapshot
    with pytest.raises(CommitConflict, match="changed by another writer"):
        table.format.transaction(state)


def test_a_batch_into_many_tables_is_one_snapshot_of_a_catalog_that_another_writes_to(
    shared: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = shared.fan_out("s.{kind}")
    tables.ingest(one_snapshot.written(tmp_path, 0, "broken"))
    one_snapshot.before_commit(
        monkeypatch, lambda: shared.table("s.b").ingest([{"kind": "b", "id": 7, "v": 7}])
    )
    result = tables.ingest(one_snapshot.written(tmp_path, 1, "broken"))
    last = one_snapshot.snapshots(shared)
    assert {of_table.snapshot for of_table in result.results if of_table.rows_written} == {last}
    counts = [shared.table(f"s.{kind}").read().count() for kind in one_snapshot.KINDS]
    assert counts == [2, 3, 2, 2, 2]
    verdict = tables.verify(tmp_path / "[01].jsonl")
    assert (verdict.ok, verdict.records, verdict.found, verdict.quarantined) == (True, 12, 10, 2)
