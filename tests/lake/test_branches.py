"""Branches are not written yet: what would write to one is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.errors import UsageError
from driftline.lake import Lake

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
    with pytest.raises(UsageError, match=f"{table_name}.files is what Iceberg tells of {table_name}"):
        lake.table(f"{table_name}.files").ingest(lake.spark.range(1))
    assert lake.query(f"select file_path from {table_name}.files").count() == 1


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
