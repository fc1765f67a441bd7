"""A change by hand of an Iceberg table: one metadata version, beside other writers, over partitions and sort orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from driftline.core.changes import AddColumn, DropColumn, RenameColumn, SetDefault
from driftline.core.schema.definition import DISTRIBUTION
from driftline.core.schema.types import INT, LONG, Field
from driftline.errors import DataError, UsageError
from driftline.formats.base import CommitConflict
from driftline.formats.iceberg.alteration import IcebergDraft
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from lake.formats import KEEPS_STRUCTS, by_pyiceberg, database


@pytest.fixture
def table(lake: Lake, table_name: str, tmp_path: Path) -> Table:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, '{"id": 1, "name": "a", "s": {"x": 1}}'))
    return table


def lines(folder: Path, *records: str) -> Path:
    file = folder / "in.jsonl"
    file.write_text("\n".join(records))
    return file


def alter(table: Table, *actions: str, upgrade: bool = False) -> None:
    sql = "; ".join(f"ALTER TABLE {table.name} {action}" for action in actions)
    table.lake.alter(sql, upgrade=upgrade)


def versions(table: Table) -> int:
    return table.lake.sql(f"select * from {table.format.handle.full_name}.metadata_log_entries").count()


EVERYTHING = (
    "RENAME id TO name",
    "RENAME name TO id",
    "ADD COLUMN s.y int DEFAULT 3",
    "RENAME s.x TO z",
    "ADD COLUMN s.x string",
    "ADD PARTITION FIELD bucket(4, s.y)",
    "WRITE ORDERED BY s.x",
    "SET TBLPROPERTIES ('commit.retry.num-retries' = '9')",
)


@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_all_of_it_is_one_metadata_version(table: Table) -> None:
    before = versions(table)
    alter(table, *EVERYTHING, upgrade=True)
    assert versions(table) == before + 1
    (row,) = table.read().collect()
    assert row.asDict(recursive=True) == {"name": 1, "id": "a", "s": {"z": 1, "y": 3, "x": None}}
    assert table.state().properties["commit.retry.num-retries"] == "9"


def test_one_that_cannot_be_leaves_all_of_them(table: Table) -> None:
    before = table.state()
    with pytest.raises(UsageError, match="there is no column nowhere"):
        alter(table, *EVERYTHING, "DROP COLUMN nowhere", upgrade=True)
    assert table.state() == before


@pytest.mark.iceberg_only("of what Iceberg's library refuses")
def test_what_iceberg_itself_refuses_leaves_all_of_them(table: Table) -> None:
    before = table.state()
    with pytest.raises(DataError, match=r"refused the change: .*nowhere"):
        alter(
            table, "ADD COLUMN n int", "SET TBLPROPERTIES ('write.metadata.metrics.column.nowhere' = 'full')"
        )
    assert table.state() == before


@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_nothing_to_do_makes_no_version(table: Table) -> None:
    before = versions(table)
    done = table.lake.alter(f"ALTER TABLE {table.name} ADD COLUMN IF NOT EXISTS id long")
    assert done.changes == () and versions(table) == before


def test_values_in_place_of_sql(table: Table) -> None:
    done = table.alter(
        AddColumn(("s",), Field("n", INT)),
        RenameColumn(("s", "n"), "m"),
        SetDefault(("s", "m"), 5),
        upgrade=True,
    )
    assert done.to_dict()["changes"] == [
        {"action": "add", "path": "s.n", "type": "int"},
        {"action": "rename", "path": "s.n", "to": "m"},
        {"action": "default", "path": "s.m", "default": "5"},
    ]
    assert table.state().schema.find(("s", "m")) is not None
    with pytest.raises(UsageError, match="there is no column z"):
        table.alter(DropColumn(("z",)))
    with pytest.raises(UsageError, match="nothing to change"):
        table.alter()


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_faster_writer(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """R93: a stale change loses, and is made anew on what the other left."""
    others = ["add column other int", "rename column s to t"]
    commit = IcebergDraft.commit

    def slow(self: IcebergDraft) -> None:
        if others:
            lake.sql(f"alter table {table.format.handle.full_name} {others.pop(0)}")
        commit(self)

    monkeypatch.setattr(IcebergDraft, "commit", slow)
    alter(table, "ADD COLUMN mine int")
    assert [f.name for f in table.state().schema.struct.fields] == ["id", "name", "t", "other", "mine"]


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_faster_writer_that_took_the_column(
    table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ["drop column name"]
    commit = IcebergDraft.commit

    def slow(self: IcebergDraft) -> None:
        if others:
            lake.sql(f"alter table {table.format.handle.full_name} {others.pop()}")
        commit(self)

    monkeypatch.setattr(IcebergDraft, "commit", slow)
    with pytest.raises(UsageError, match="there is no column name"):
        alter(table, "RENAME name TO n")


@pytest.mark.iceberg_only("of Iceberg's commits")
def test_writers_that_never_stop(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflict(self: IcebergDraft) -> None:
        raise CommitConflict("someone was faster")

    monkeypatch.setattr(IcebergDraft, "commit", conflict)
    monkeypatch.setattr("driftline.formats.commit.PATIENCE", 0.2)
    with pytest.raises(DataError, match="other writers keep changing this table"):
        alter(table, "ADD COLUMN n int")


@pytest.mark.iceberg_only("of Iceberg's own append")
def test_an_append_that_was_prepared_before(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    """R94: a batch between planning and commit goes in, planned anew."""
    from driftline.formats.iceberg.transaction import IcebergTransaction

    write, pending = IcebergTransaction.write, ["RENAME name TO label"]

    def interrupted(self: Any, *args: Any) -> int | None:
        written = write(self, *args)
        if pending:
            alter(table, pending.pop())
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IcebergTransaction, "write", interrupted)
        table.ingest(lines(tmp_path, '{"id": 2, "name": "b"}'))
    assert sorted(map(tuple, table.read().select("id", "label").collect())) == [(1, "a"), (2, "b")]


def test_a_table_with_its_quarantine_gets_another_name(table: Table, lake: Lake, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, "broken"))
    table.view(types={"id": "string"})
    done = lake.alter(f"ALTER TABLE lake.{table.name} RENAME TO {table.name.split('.')[1]}_new")
    renamed = lake.table(done.table)
    assert done.table == f"{table.name}_new"
    assert done.notes == (f"its view is {done.table}_settled now",)
    if database(lake) is None:  # Spark reads no view of a DuckLake
        settled = lake.sql(f"select * from {done.table}_settled")
        assert settled.schema["id"].dataType.simpleString() == "string"
        assert lake.sql(f"show views in lake.t like '{table.name.split('.')[1]}*'").count() == 1
    assert renamed.read().count() == 1
    assert quarantine.of(renamed.format).read().count() == 1
    assert not table.format.load().exists
    renamed.ingest(lines(tmp_path, '{"id": 2}'))
    with pytest.raises(UsageError, match="there is no table"):
        lake.alter(f"ALTER TABLE {table.name} RENAME TO other")
    with pytest.raises(UsageError, match="is its name already"):
        lake.alter(f"ALTER TABLE {renamed.name} RENAME TO {renamed.name}")
    with pytest.raises(UsageError, match="RENAME TO must be the only change"):
        lake.alter(f"ALTER TABLE {renamed.name} ADD COLUMN z int; ALTER TABLE {renamed.name} RENAME TO other")


def test_a_name_that_is_taken(table: Table, lake: Lake, tmp_path: Path) -> None:
    other = lake.table(f"{table.name}_other")
    other.ingest(lines(tmp_path, '{"id": 2}', "broken"))
    with pytest.raises(DataError, match="there is a table"):
        lake.alter(f"ALTER TABLE {other.name} RENAME TO {table.name}")
    assert other.read().count() == 1
    assert quarantine.of(other.format).read().count() == 1


def test_tables_that_are_not_there(lake: Lake, table: Table) -> None:
    with pytest.raises(UsageError, match=r"there is no table t\.nothing"):
        lake.alter("ALTER TABLE t.nothing DROP COLUMN x")
    assert lake.alter("ALTER TABLE IF EXISTS t.nothing DROP COLUMN x").changes == ()
    with pytest.raises(UsageError, match="the statements are about"):
        lake.alter(f"ALTER TABLE {table.name} DROP COLUMN name; ALTER TABLE t.other DROP COLUMN name")
    with pytest.raises(UsageError, match=r"namespace\.table"):
        lake.alter("ALTER TABLE orders DROP COLUMN name")


# Names, and what the next batch does ----------------------------------------------------------------------------


def test_a_renamed_column_goes_on_being_filled(table: Table, tmp_path: Path) -> None:
    alter(table, "RENAME name TO label", "RENAME s.x TO z", "ALTER label COMMENT 'for people'")
    result = table.ingest(lines(tmp_path, '{"id": 2, "name": "b", "s": {"x": 2}}'))
    assert not result.changes
    rows = table.read().select("id", "label", "s.z").collect()
    assert sorted(map(tuple, rows)) == [(1, "a", 1), (2, "b", 2)]
    result = table.ingest(lines(tmp_path, '{"id": 3, "name": 7}'))
    assert not result.changes, "a number is in the string column, by whatever name"


def test_a_dropped_sibling_and_the_next_conflict(table: Table, lake: Lake, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"id": "x"}'))
    assert [f.name for f in table.state().schema.struct.fields] == ["id", "name", "s", "id_string"]
    done = lake.alter(f"ALTER TABLE {table.name} DROP COLUMN id_string")
    assert done.notes == ("the next string of id makes id_string string, empty in the rows before",)
    table.ingest(lines(tmp_path, '{"id": "y"}'))
    rows = table.read().select("id", "id_string").collect()
    assert sorted(map(tuple, rows), key=str) == [(1, None), (None, "y"), (None, None)]


def test_a_dropped_column_whose_values_have_another(table: Table, lake: Lake, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"id": "x"}'))
    done = lake.alter(f"ALTER TABLE {table.name} DROP COLUMN id")
    assert done.notes == ("the next long of id goes to the columns that remain",)
    assert not table.ingest(lines(tmp_path, '{"id": 5}')).changes


# Layout ---------------------------------------------------------------------------------------------------------


def files(table: Table) -> list[Any]:
    return table.lake.sql(f"select * from {table.format.handle.full_name}.files order by file_path").collect()


@pytest.mark.iceberg_only("Iceberg's table of files tells how each is laid out")
def test_old_files_stay_and_new_ones_follow_the_new_layout(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"id": 1, "name": "p"}', '{"id": 2, "name": "q"}'))
    old = {f.file_path for f in files(table)}
    alter(table, "ADD PARTITION FIELD name")
    table.ingest(lines(tmp_path, '{"id": 3, "name": "p"}', '{"id": 4, "name": "q"}'))
    alter(table, "REPLACE PARTITION FIELD name WITH bucket(2, id)")
    table.ingest(lines(tmp_path, *(f'{{"id": {i}, "name": "p"}}' for i in range(5, 15))))
    found = files(table)
    assert old < {f.file_path for f in found}
    by_spec = {spec: [f for f in found if f.spec_id == spec] for spec in (0, 1, 2)}
    assert [len(by_spec[i]) for i in (0, 1, 2)] == [2, 2, 2]
    assert sorted(f.partition.name for f in by_spec[1]) == ["p", "q"]
    assert sorted(f.partition.id_bucket_2 for f in by_spec[2]) == [0, 1]
    assert sorted(r.id for r in table.read().where("name = 'q'").collect()) == [2, 4]
    assert sorted(r.id for r in table.read().where("id = 4 or id = 7").collect()) == [4, 7]
    shown = table.layout().to_dict()
    assert [(g["by"], g["files"], g["records"], g["current"]) for g in shown["partitions"]] == [
        ([], 2, 3, False),
        (["name"], 2, 2, False),
        (["bucket(2, id)"], 2, 10, True),
    ]


@pytest.mark.iceberg_only("Iceberg's own filter tells which files it reads")
def test_a_filter_prunes_in_both_layouts(table: Table, tmp_path: Path) -> None:
    alter(table, "ADD PARTITION FIELD name")
    table.ingest(lines(tmp_path, '{"id": 2, "name": "p"}', '{"id": 3, "name": "q"}'))
    alter(table, "ADD PARTITION FIELD truncate(10, id)")
    table.ingest(
        lines(tmp_path, '{"id": 4, "name": "p"}', '{"id": 30, "name": "p"}', '{"id": 31, "name": "q"}')
    )
    assert len(files(table)) == 6
    java = table.format.handle.java()
    jvm: Any = table.lake.spark._jvm
    expressions = jvm.org.apache.iceberg.expressions.Expressions

    def scanned(filter_: Any) -> int:
        tasks, count = java.newScan().filter(filter_).planFiles().iterator(), 0
        while tasks.hasNext():
            tasks.next()
            count += 1
        return count

    assert scanned(expressions.equal("name", "q")) == 2
    assert scanned(expressions.equal("name", "p")) == 3
    assert scanned(expressions.greaterThanOrEqual("id", 30)) == 2
    assert scanned(expressions.alwaysTrue()) == 6


@pytest.mark.iceberg_only("Iceberg's table of files tells their order")
def test_new_files_are_sorted(table: Table, spark: SparkSession) -> None:
    alter(table, "WRITE ORDERED BY name DESC, id")
    table.ingest(spark.sql("select 100 - id as id, string(id % 7) as name from range(50)"))
    new = [f.file_path for f in files(table) if f.record_count > 1]
    assert new
    for path in new:
        rows = pq.read_table(path.removeprefix("file:"), columns=["id", "name"]).to_pylist()
        assert rows == sorted(sorted(rows, key=lambda r: r["id"]), key=lambda r: r["name"], reverse=True)
    orders = spark.sql(f"select distinct sort_order_id from {table.format.handle.full_name}.files").collect()
    assert sorted(r.sort_order_id for r in orders) == [0, 1]


def test_a_partition_source_is_widened_and_renamed(table: Table, tmp_path: Path) -> None:
    alter(table, "ADD COLUMN n int", "ADD PARTITION FIELD bucket(4, n)", "ADD PARTITION FIELD n")
    table.ingest(lines(tmp_path, '{"id": 2, "n": 5}'))
    alter(table, "ALTER n TYPE bigint", "RENAME n TO m")
    table.ingest(lines(tmp_path, '{"id": 3, "n": 5000000000}'))
    assert table.state().schema.find(("m",)).type == LONG  # type: ignore[union-attr]
    assert [r.id for r in table.read().where("m = 5").collect()] == [2]
    assert [r.id for r in table.read().where("m = 5000000000").collect()] == [3]


def test_a_capture_goes_on_across_changes(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, landing = lake.table(table_name), tmp_path / "landing"
    landing.mkdir()

    def captured(i: int, record: str) -> None:
        (landing / f"{i}.jsonl").write_text(record)
        table.capture(landing, name="orders").awaitTermination()

    captured(1, '{"id": 1, "name": "a", "size": 1}')
    alter(table, "ADD PARTITION FIELD name", "RENAME name TO label")
    captured(2, '{"id": 2, "name": "b", "size": 2}')
    field = "name" if database(lake) is None else "label"  # Iceberg's fields have names of their own
    alter(
        table,
        f"REPLACE PARTITION FIELD {field} WITH bucket(4, id)",
        "DROP COLUMN size",
        "WRITE ORDERED BY id",
    )
    captured(3, '{"id": 3, "name": "c", "size": 3}')
    rows = table.read().select("id", "label", "size").collect()
    assert sorted(map(tuple, rows)) == [(1, "a", None), (2, "b", None), (3, "c", 3)]
    assert [g["files"] for g in table.layout().to_dict()["partitions"]] == [1, 1, 1]


# Independence ---------------------------------------------------------------------------------------------------


@pytest.mark.iceberg_only("of Iceberg's metadata files")
@KEEPS_STRUCTS
def test_changes_do_not_touch_each_other(table: Table, lake: Lake, tmp_path: Path) -> None:
    """The seed's four promises, over data, before and after a compaction, by two readers."""
    alter(table, "ADD COLUMN s.y string", "ADD COLUMN extra string AFTER id", "ALTER s.y FIRST")
    table.ingest(lines(tmp_path, '{"id": 2, "name": "b", "extra": "e", "s": {"x": 20, "y": "t"}}'))
    alter(table, "RENAME name TO extra", "RENAME extra TO name", "DROP COLUMN s.x")
    alter(table, "ADD COLUMN s.x string", "ALTER s.x FIRST", "ALTER name FIRST")
    table.ingest(lines(tmp_path, '{"id": 3, "name": "c", "extra": "f", "s": {"x": "30", "y": "u"}}'))
    expected = [
        {"name": None, "id": 1, "extra": "a", "s": {"x": None, "y": None}},
        {"name": "e", "id": 2, "extra": "b", "s": {"x": None, "y": "t"}},
        {"name": "f", "id": 3, "extra": "c", "s": {"x": "30", "y": "u"}},
    ]
    for _ in range(2):
        assert [row.asDict(recursive=True) for row in table.read().orderBy("id").collect()] == expected
        assert sorted(by_pyiceberg(table).to_pylist(), key=lambda row: int(row["id"])) == expected
        options = "options => map('rewrite-all', 'true')"
        lake.sql(f"call lake.system.rewrite_data_files(table => '{table.name}', {options})")
    assert len(files(table)) == 1


@pytest.mark.parametrize("mode", [None, "range"])
@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_write_clauses_do_as_icebergs_own_extension(lake: Lake, table_name: str, mode: str | None) -> None:
    """Each leaves the same sort order and distribution mode as the extension, whatever was there before."""
    properties = "" if mode is None else f"tblproperties ('write.distribution-mode' = '{mode}')"
    twins = [lake.table(f"{table_name}_{who}") for who in ("iceberg", "ours")]
    lake.sql("create namespace if not exists lake.t")
    for one in twins:
        lake.sql(f"create table {one.format.handle.full_name} (a int, b int) using iceberg {properties}")
    for clause in (
        "LOCALLY ORDERED BY a DESC",
        "DISTRIBUTED BY PARTITION LOCALLY ORDERED BY b",
        "ORDERED BY bucket(4, a), b NULLS LAST",
        "DISTRIBUTED BY PARTITION",
        "LOCALLY ORDERED BY b",
        "UNORDERED",
    ):
        lake.sql(f"alter table {twins[0].format.handle.full_name} write {clause}")
        alter(twins[1], f"WRITE {clause}")
        left = [one.format.alteration().before for one in twins]
        assert left[0].sort == left[1].sort, clause
        assert left[0].properties.get(DISTRIBUTION) == left[1].properties.get(DISTRIBUTION), clause


def test_siblings_follow_a_rename_where_the_request_says_so(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, '{"amount": 1, "s": {"x": 1}}'))
    table.ingest(lines(tmp_path, '{"amount": "a", "s": {"x": "b"}}'), again=True)
    done = lake.alter(
        f"ALTER TABLE {table_name} RENAME amount TO eur; ALTER TABLE {table_name} RENAME s.x TO y",
        siblings=True,
    )
    assert not [note for note in done.notes if "can follow" in note]
    names = [path for path, _ in table.schema().schema.walk()]
    assert names == [("eur",), ("s",), ("s", "y"), ("s", "y_string"), ("eur_string",)]
    text = table.history().entries[-1].record.text
    assert text.endswith("; RENAME amount_string TO eur_string; RENAME s.x_string TO y_string")
    report = table.ingest(lines(tmp_path, '{"amount": "c", "s": {"x": 2}}'), again=True)
    assert report.changes == ()
