"""Branches are not written yet: what would write to one is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.core.changes import AddColumn
from driftline.core.schema.types import LONG, Field
from driftline.errors import DataError, UsageError
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.table import IcebergTable
from driftline.lake import Lake
from driftline.runtime.spark_version import java_type

pytestmark = pytest.mark.iceberg_only("a DuckLake has no branches")


@pytest.mark.parametrize("selector", ["branch_b1", "tag_x", "at_timestamp_1700000000000", "snapshot_id_7"])
def test_a_part_of_a_tables_history_is_no_table(lake: Lake, table_name: str, selector: str) -> None:
    """Not even while the table is not there: a table of that name would hide the part, once it is."""
    for act in (
        lambda: lake.table(f"{table_name}.{selector}").ingest(lake.spark.range(1)),
        lambda: lake.alter(f"alter table {table_name}.{selector} add column a int"),
        lambda: lake.alter(f"alter table {table_name} rename to {table_name}.{selector}"),
    ):
        with pytest.raises(UsageError, match=f"{selector}' is not a table name: to Spark it is the"):
            act()


def test_what_iceberg_tells_of_a_table_is_no_table(lake: Lake, table_name: str) -> None:
    lake.table(table_name).ingest(lake.spark.range(1))
    with pytest.raises(UsageError, match=f"{table_name}.files is metadata of {table_name}"):
        lake.table(f"{table_name}.files").ingest(lake.spark.range(1))
    assert lake.query(f"select file_path from {table_name}.files").count() == 1


@pytest.mark.nightly
@pytest.mark.parametrize("key", ["spark.wap.branch", "spark.wap.id"])
@pytest.mark.parametrize("enabled", ["true", "false"])
def test_what_would_be_written_unseen_is_refused(
    lake: Lake, folder: Path, table_name: str, tmp_path: Path, key: str, enabled: str
) -> None:
    table = lake.table(table_name)
    (tmp_path / "in.json").write_text('{"id": 1, "price": 1}\nbad\n{"id": 2, "price": "x"}\n')
    table.ingest(tmp_path / "in.json")
    table.lake.sql(f"alter table {table_name} set tblproperties ('write.wap.enabled' = '{enabled}')")

    def files() -> list[Path]:
        return sorted(folder.rglob("*.parquet"))

    state, before = table.state(), files()
    lake.spark.conf.set(key, "audit")
    try:
        for act in (
            lambda: table.ingest(tmp_path / "in.json", again=True),
            lambda: table.resolve("price", "string"),
            lambda: table.capture(tmp_path, name="c").awaitTermination(),
            table.replay,
            lambda: lake.table(f"{table_name}_new").ingest(tmp_path / "in.json"),
        ):
            with pytest.raises(UsageError, match=f"{key} is 'audit' in this Spark session") as told:
                act()
            assert told.value.hint == f'take it back first: spark.conf.unset("{key}")'
        assert table.ingest(tmp_path / "in.json", dry_run=True).rows_read == 3
        assert table.state() == state and files() == before
        assert not lake.table(f"{table_name}_new").format.load().exists
    finally:
        lake.spark.conf.unset(key)
    assert table.ingest(tmp_path / "in.json", again=True).rows_written == 2


def branch_with_column(lake: Lake, name: str, *, staged: bool = False) -> None:
    """Make a branch b1 of the table with a column b of its own, and a row in it; or ``staged`` as w1."""
    other = lake.table(f"{name}_other")
    other.ingest([{"id": 2, "a": "y"}])
    other.ingest([{"id": 3, "a": "z", "b": 5}])
    table, source = lake.table(name).format, other.format
    assert isinstance(table, IcebergTable) and isinstance(source, IcebergTable)
    handle = table.handle
    files = [task.file() for task in items(source.handle.existing().newScan().planFiles())]
    newest = max(files, key=lambda file: int(file.dataSequenceNumber()))
    transaction = handle.existing().newTransaction()
    base = transaction.startMetadata()
    transaction.updateSchema().addColumn(
        "b", java_type(handle.jvm, "org.apache.iceberg.types.Types$LongType").get()
    ).commit()
    if staged:
        transaction.newAppend().appendFile(newest).set("wap.id", "w1").stageOnly().commit()
    else:
        transaction.manageSnapshots().createBranch("b1", base.currentSnapshot().snapshotId()).commit()
        transaction.newAppend().appendFile(newest).toBranch("b1").commit()
    operations = transaction.table().operations()
    now = operations.current()
    builder = java_type(handle.jvm, "org.apache.iceberg.TableMetadata").buildFrom(now)
    operations.commit(now, builder.setCurrentSchema(base.currentSchemaId()).build())
    transaction.commitTransaction()


@pytest.mark.parametrize("staged", [False, True])
def test_rows_of_a_branch_without_their_columns_are_told_before_anything_is_written(
    lake: Lake, table_name: str, tmp_path: Path, staged: bool
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "a": "x"}])
    branch_with_column(lake, table_name, staged=staged)
    if staged:
        table.ingest([{"id": 8, "a": "m"}])  # what is staged is published under a new id then
    call = (
        f"publish_changes('{table_name}', 'w1')" if staged else f"fast_forward('{table_name}', 'main', 'b1')"
    )
    lake.sql(f"call {lake.catalog}.system.{call}")
    (tmp_path / "a.jsonl").write_text('{"id": 9, "b": 7}')
    for act in (
        lambda: table.ingest([{"id": 9, "a": "q", "b": 7}]),
        lambda: table.alter(AddColumn((), Field("b", LONG))),
        lambda: table.capture(tmp_path, name="c").awaitTermination(),
    ):
        with pytest.raises(
            DataError, match=r"its newest rows came from a branch.*without their columns: b;"
        ) as told:
            act()
    assert told.value.hint is not None and "Table.undo(to=1)" in told.value.hint

    table.undo(to=1)
    table.ingest([{"id": 9, "a": "q", "b": 7}])

    assert {row.id: row.b for row in table.read().collect() if row.b} == {3: 5, 9: 7}


def test_table_whose_newest_rows_have_a_dropped_column_takes_the_next_ones(
    lake: Lake, table_name: str
) -> None:
    """Iceberg makes the earlier equal schema current again, as it was before the column."""
    table = lake.table(table_name)
    table.ingest([{"id": 1, "a": "x"}])
    table.ingest([{"id": 2, "a": "y", "b": 5}])
    lake.sql(f"alter table {table_name} drop column b")
    table.ingest([{"id": 3, "a": "z"}])
    assert table.read().count() == 3


@pytest.mark.parametrize("act", ["resolve", "replan"])
def test_columns_that_a_branch_was_written_with_stay_and_that_is_told(
    lake: Lake, table_name: str, tmp_path: Path, act: str
) -> None:
    table = lake.table(table_name)
    for number, price in enumerate((1, '"x"')):
        (tmp_path / f"{number}.json").write_text(f'{{"id": {number}, "price": {price}}}\n')
        table.ingest(tmp_path / f"{number}.json")
    table.lake.sql(f"alter table {table_name} create branch audit")
    before = table.state()
    acts = {"resolve": lambda: table.resolve("price", "string"), "replan": lambda: table.replan(apply=True)}
    with pytest.raises(DataError, match="branch audit was written with price"):
        acts[act]()
    assert table.state() == before
    table.lake.sql(f"alter table {table_name} drop branch audit")
    acts[act]()
    assert table.state() != before
