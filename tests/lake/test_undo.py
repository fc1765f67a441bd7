"""Undo: back in metadata, values included; and what it will not do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.errors import DataError, UsageError
from driftline.formats.iceberg.alteration import IcebergDraft
from driftline.lake import Lake, Table
from lake.ducklake_peer import run
from lake.formats import by_pyiceberg, database

START = """
    select 1 as id, 'a' as name, struct(2 as x, 'b' as y) as s, array(struct(3 as p, 'c' as q)) as l,
        map('k', struct(4 as v, 'd' as w)) as m, 0.5f as f
"""
ROW = {
    "id": 1,
    "name": "a",
    "s": {"x": 2, "y": "b"},
    "l": [{"p": 3, "q": "c"}],
    "m": {"k": {"v": 4, "w": "d"}},
    "f": 0.5,
}


@pytest.fixture
def table(lake: Lake, table_name: str, spark: SparkSession) -> Table:
    table = lake.table(table_name)
    table.ingest(spark.sql(START))
    return table


def alter(table: Table, *actions: str) -> None:
    table.lake.alter("; ".join(f"ALTER TABLE {table.name} {action}" for action in actions))


def rows(table: Table) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.read().orderBy("id").collect()]


def by_another(table: Table) -> list[dict[str, Any]]:
    """The rows, as pyiceberg reads them, or DuckDB."""
    if (ducklake := database(table.lake)) is not None:
        place = ".".join(["lk", *table.name.split(".")])
        (texts,) = zip(*run(ducklake, f"SELECT to_json(t) FROM {place} t ORDER BY id"), strict=True)
        return [json.loads(text) for text in texts]
    found: list[dict[str, Any]] = by_pyiceberg(table).to_pylist()
    for row in found:  # null lists and maps of structs come as empty ones
        row["m"] = dict(row["m"]) if row.get("m") else None
        row["l"] = row.get("l") or None
    return sorted(found, key=lambda row: row["id"])


BACK_AND_FORTH = [
    ["DROP COLUMN name"],
    ["DROP COLUMN s"],
    ["DROP COLUMN s.x"],
    ["DROP COLUMN l.element.q"],
    ["DROP COLUMN m.value.v"],
    ["RENAME name TO label", "RENAME s.x TO z", "RENAME l.element.p TO o"],
    ["RENAME s.x TO y", "RENAME s.y TO x"],
    ["ALTER name FIRST", "ALTER s.y FIRST"],
    ["ALTER name COMMENT 'x'"],
    ["DROP COLUMN name", "ADD COLUMN name long", "DROP COLUMN s.x", "ADD COLUMN s.x string"],
    ["ADD COLUMN n int", "ADD PARTITION FIELD bucket(4, n)", "WRITE ORDERED BY n"],
    ["ADD PARTITION FIELD name", "WRITE ORDERED BY id DESC"],
]


@pytest.mark.nightly
def test_back_and_forth(table: Table) -> None:
    """One table goes through all, as each ends where it began."""
    before = table.state()
    for actions in BACK_AND_FORTH:
        try:
            alter(table, *actions)
            after = table.state()
            table.undo()
            assert table.state().schema.struct == before.schema.struct
            assert rows(table) == by_another(table) == [ROW]
            assert table.layout().to_dict()["sort"] == []
            assert [g["by"] for g in table.layout().to_dict()["partitions"] if g["current"]] == [[]]
            table.undo(yes=True)
            assert table.state().schema.struct == after.schema.struct
            table.undo()
            assert table.state().schema.struct == before.schema.struct
            assert rows(table) == [ROW]
        except Exception as error:
            error.add_note(f"at {'; '.join(actions)}")
            raise


def test_it_says_what_comes_back(table: Table) -> None:
    alter(table, "DROP COLUMN name", "DROP COLUMN l.element.q")
    told = table.undo().to_dict()
    assert told["back"] == {"name": 1, "l.element.q": 1}
    assert (told["hidden"], told["lost"]) == ({}, {})


def test_values_that_would_be_hidden(table: Table, spark: SparkSession) -> None:
    alter(table, "ADD COLUMN n int", "ADD COLUMN m.value.z int", "ADD COLUMN l.element.z int")
    table.ingest(
        spark.sql("select 2 as id, 7 as n, map('a', struct(1 as z), 'b', struct(2 as z), 'c', null) as m, "
                  "array(struct(null as p, 5 as z), struct(1 as p, null as z)) as l")
    )  # fmt: skip
    before = table.state()
    with pytest.raises(
        DataError, match=r"would hide values: 1 of l.element.z, 2 of m.value.z, 1 of n"
    ) as caught:
        table.undo()
    assert caught.value.hint == "pass yes=True to do it; undo the undo to bring them back"
    assert table.state() == before
    assert table.undo(yes=True).to_dict()["hidden"] == {"n": 1, "m.value.z": 2, "l.element.z": 1}
    assert [row["id"] for row in rows(table)] == [1, 2]
    assert "n" not in rows(table)[0]
    assert table.undo().to_dict()["back"] == {"n": 1, "m.value.z": 2, "l.element.z": 1}
    assert rows(table)[1]["n"] == 7


def test_a_batch_that_evolved_the_table(table: Table, spark: SparkSession) -> None:
    table.ingest(spark.sql("select 2 as id, 7 as name, 'new' as extra"))
    told = table.undo(yes=True)
    assert {v.path: v.count for v in told.hidden} == {"extra": 1}
    assert [row["name"] for row in rows(table)] == ["a", "7"], "a value in a column that was there stays"


# What does not go back ------------------------------------------------------------------------------------------


def test_across_a_widening(table: Table, spark: SparkSession) -> None:
    alter(table, "DROP COLUMN name", "ALTER id TYPE bigint", "ALTER s.x TYPE bigint", "ALTER f TYPE double")
    table.ingest(spark.sql("select 5000000000 as id, struct(5000000000 as x) as s, 1e300 as f"))
    told = table.undo()
    assert told.stays == (
        "id stays long: files may hold values that int cannot",
        "s.x stays long: files may hold values that int cannot",
        "f stays double: files may hold values that float cannot",
    )
    found = rows(table)
    assert found == by_another(table)
    assert [(row["id"], row["name"], row["s"]["x"], row["f"]) for row in found] == [
        (1, "a", 2, 0.5),
        (5000000000, None, 5000000000, 1e300),
    ]


def test_nothing_but_a_widening(table: Table) -> None:
    alter(table, "ALTER id TYPE bigint")
    before = table.state()
    with pytest.raises(DataError, match=r"cannot undo \"id is now long\" \(alter\)") as caught:
        table.undo()
    assert caught.value.hint == "id stays long: files may hold values that int cannot"
    assert table.state() == before


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_to_a_required_column(lake: Lake, table_name: str) -> None:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(
        f"create table lake.{table_name} (id int not null, k int not null, m map<string, int>) using iceberg"
    )
    table = lake.table(table_name)
    lake.sql(f"insert into lake.{table_name} values (1, 10, null)")
    alter(table, "ALTER k DROP NOT NULL", "ALTER m COMMENT 'x'")
    lake.sql(f"insert into lake.{table_name} values (2, null, null)")
    told = table.undo()
    assert told.stays == ("k stays optional: existing rows may be null",)
    assert [row["k"] for row in rows(table)] == [row["k"] for row in by_another(table)] == [10, None]
    alter(table, "DROP COLUMN id")
    lake.sql(f"insert into lake.{table_name} values (30, null)")
    assert table.undo().stays == ("id stays optional: existing rows may be null",)
    assert [row["id"] for row in rows(table)] == [None, 1, 2]


@pytest.mark.iceberg_only("by Iceberg's procedures")
def test_values_that_a_rewrite_dropped(table: Table, lake: Lake, spark: SparkSession) -> None:
    table.ingest(spark.sql("select 2 as id, 'z' as name"))
    alter(table, "DROP COLUMN name")
    lake.sql(
        f"call lake.system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))"
    )
    told = table.undo().to_dict()
    assert told["back"] == {"name": 0}
    assert told["lost"] == {"name": 2}
    assert [row["name"] for row in rows(table)] == [None, None]


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_rows_that_were_deleted(table: Table, lake: Lake, spark: SparkSession) -> None:
    table.ingest(spark.sql("select 2 as id, 'z' as name"))
    alter(table, "DROP COLUMN name")
    lake.sql(f"delete from {table.format.handle.full_name} where id = 2")
    told = table.undo().to_dict()
    assert (told["back"], told["lost"]) == ({"name": 1}, {"name": 1})


# Versions -------------------------------------------------------------------------------------------------------


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_to_a_version(table: Table, lake: Lake) -> None:
    alter(table, "DROP COLUMN name")
    alter(table, "ADD COLUMN n int")
    lake.sql(f"alter table {table.format.handle.full_name} rename column s to t")
    told = table.undo(to=0)
    assert told.undone == "all since schema 0"
    assert rows(table) == [ROW]
    assert table.state().schema.id == 0
    assert table.undo(yes=True).to_dict()["changes"], "and back"
    assert "t" in rows(table)[0]
    with pytest.raises(UsageError, match="has no schema 99"):
        table.undo(to=99)
    with pytest.raises(DataError, match="cannot undo"):
        table.undo(to=table.state().schema.id)


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_change_from_outside_is_taken_back_too(table: Table, lake: Lake) -> None:
    lake.sql(f"alter table {table.format.handle.full_name} drop column name")
    assert '"name dropped" (outside)' in table.undo().undone
    assert rows(table) == [ROW]


def test_the_first_version(table: Table) -> None:
    with pytest.raises(DataError, match="has not changed since it was created"):
        table.undo()


def test_new_columns_get_new_ids(table: Table, spark: SparkSession) -> None:
    alter(table, "ADD COLUMN n int")
    with_n = table.state().schema.id
    table.ingest(spark.sql("select 2 as id, 7 as n"))
    table.undo(yes=True)
    alter(table, "ADD COLUMN n int")
    assert [row["n"] for row in rows(table)] == [None, None]
    table.ingest(spark.sql("select 3 as id, 8 as n"))
    table.undo(to=with_n, yes=True)
    assert [row["n"] for row in rows(table)] == [None, 7, None], "the first of that name, with its values"


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_faster_writer(table: Table, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    alter(table, "DROP COLUMN name")
    others = [f"insert into {table.format.handle.full_name} values (2, null, null, null, null)"]
    commit = IcebergDraft.commit

    def slow(self: IcebergDraft) -> None:
        if others:
            lake.sql(others.pop())
        commit(self)

    monkeypatch.setattr(IcebergDraft, "commit", slow)
    table.undo()
    assert [(row["id"], row["name"]) for row in rows(table)] == [(1, "a"), (2, None)]


# What the log has forgotten -------------------------------------------------------------------------------------


def forget(table: Table, lake: Lake) -> None:
    alter(table, "SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')")
    nulls = ", null" * (len(table.read().columns) - 1)
    for _ in range(2):
        lake.sql(f"insert into {table.format.handle.full_name} values (2{nulls})")


@pytest.mark.parametrize(
    "actions",
    [
        ["DROP COLUMN name", "ALTER s.x TYPE bigint"],
        ["RENAME name TO label", "ADD PARTITION FIELD id", "WRITE ORDERED BY id DESC"],
    ],
    ids="; ".join,
)
@pytest.mark.iceberg_only("a DuckLake's log forgets nothing")
def test_back_beyond_the_log(table: Table, lake: Lake, actions: list[str]) -> None:
    before = {f.id: path for path, f in table.state().schema.walk()}
    alter(table, *actions)
    forget(table, lake)
    table.undo(yes=True)
    assert {f.id: path for path, f in table.state().schema.walk()} == before
    assert table.layout().to_dict()["sort"] == []
    assert [g["by"] for g in table.layout().to_dict()["partitions"] if g["current"]] == [[]]
    assert rows(table)[0] == ROW
    assert table.history().entries[-1].by == "undo"


def test_the_second_resolve_of_a_field(table: Table, spark: SparkSession) -> None:
    table.ingest(spark.sql("select '01.02.2026' as id"))
    table.resolve("id", "string")
    before = table.state()
    table.resolve("id", "date('dd.MM.yyyy')")
    assert table.state().properties["driftline.hints.id"] == "date('dd.MM.yyyy')"
    table.undo(yes=True)
    after = table.state()
    assert after.schema.struct == before.schema.struct
    names = ("driftline.hints.id", "driftline.resolved.id")
    assert (
        [after.properties.get(name) for name in names]
        == [before.properties[name] for name in names]
        == ["string"] * 2
    )


@pytest.mark.nightly
@pytest.mark.iceberg_only("a DuckLake's log forgets nothing")
def test_a_resolve_beyond_the_log(table: Table, lake: Lake, spark: SparkSession) -> None:
    table.ingest(spark.sql("select 'x' as id"))
    before = table.state()
    table.resolve("id", "string")
    assert table.state().properties["driftline.hints.id"] == "string"
    forget(table, lake)
    table.undo(yes=True)
    after = table.state()
    assert after.schema.struct == before.schema.struct
    assert not {
        key for key in after.properties if key.startswith(("driftline.hints.", "driftline.resolved."))
    }
    assert {(row["id"], row["id_string"]) for row in rows(table)} == {(1, None), (None, "x"), (None, None)}


# Refused --------------------------------------------------------------------------------------------------------


@pytest.mark.iceberg_only("by Iceberg's procedures")
def test_metadata_that_were_cleaned_away(table: Table, lake: Lake) -> None:
    alter(table, "DROP COLUMN name")
    alter(
        table,
        "SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '1')",
    )
    alter(table, "SET TBLPROPERTIES ('x' = 'y')")
    lake.sql(f"insert into {table.format.handle.full_name} values (2, null, null, null, null)")
    lake.sql(
        f"call lake.system.expire_snapshots(table => '{table.name}', older_than => timestamp '2100-01-01', retain_last => 1, "
        "clean_expired_metadata => true)"
    )
    alter(table, "SET TBLPROPERTIES ('x' = 'z')")
    before = table.state()
    with pytest.raises(DataError, match="the earlier metadata was cleaned up"):
        table.undo()
    with pytest.raises(UsageError, match=r"has no schema 0, or it was cleaned up"):
        table.undo(to=0)
    assert table.state() == before


@pytest.mark.iceberg_only("a DuckLake has no branches")
def test_a_branch_that_has_the_column(table: Table, lake: Lake) -> None:
    alter(table, "ADD COLUMN n int")
    name = table.format.handle.full_name
    lake.sql(f"alter table {name} create branch audit")
    lake.sql(f"insert into {name}.branch_audit values (2, null, null, null, null, null, 7)")
    with pytest.raises(DataError, match="branch audit was written with n"):
        table.undo(yes=True)
    lake.sql(f"alter table {name} drop branch audit")
    table.undo()
    assert rows(table) == [ROW]


@pytest.mark.iceberg_only("a DuckLake has no branches")
def test_a_tag_goes_on_reading_its_own_schema(table: Table, lake: Lake) -> None:
    """R91, and R92: going back to a snapshot is no undo of the schema."""
    alter(table, "ADD COLUMN n int")
    name = table.format.handle.full_name
    lake.sql(f"insert into {name} values (2, null, null, null, null, null, 7)")
    lake.sql(f"alter table {name} create tag kept")
    table.undo(yes=True)
    assert sorted(map(tuple, lake.sql(f"select id, n from {name} version as of 'kept'").collect())) == [
        (1, None),
        (2, 7),
    ]
    assert "n" not in rows(table)[0]
    first = lake.sql(f"select snapshot_id from {name}.snapshots order by committed_at").head()
    assert first is not None
    alter(table, "DROP COLUMN name")
    lake.sql(f"call lake.system.rollback_to_snapshot('{table.name}', {first.snapshot_id})")
    assert "name" not in rows(table)[0]
    table.undo()
    assert rows(table) == [ROW]


def test_a_partition_made_of_the_column(table: Table) -> None:
    first = table.state().schema.id
    alter(table, "ADD COLUMN n int")
    alter(table, "ADD PARTITION FIELD bucket(4, n)")
    with pytest.raises(DataError, match="n cannot be hidden: the partition field n_bucket_4 is made of it"):
        table.undo(to=first)
    table.undo()
    table.undo(to=first)
    assert rows(table) == [ROW]
