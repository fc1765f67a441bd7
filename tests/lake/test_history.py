"""History: who changed a table's definition, when, and by which rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from driftline.core.history import entries
from driftline.errors import UsageError
from driftline.formats.iceberg import alteration
from driftline.formats.iceberg.offline import OfflineIcebergTable
from driftline.lake import Lake, Table


@pytest.fixture
def table(lake: Lake, table_name: str, tmp_path: Path) -> Table:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, '{"id": 1, "name": "a"}'))
    return table


def lines(folder: Path, *records: str) -> Path:
    file = folder / "in.jsonl"
    file.write_text("\n".join(records))
    return file


def told(table: Table) -> list[dict[str, Any]]:
    return [entry.to_dict() for entry in table.history().entries]


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_by_ingest_by_hand_and_from_outside(table: Table, lake: Lake, tmp_path: Path) -> None:
    name = table.format.handle.full_name
    table.ingest(lines(tmp_path, '{"id": 2}'))  # no change
    second = table.ingest(lines(tmp_path, '{"id": "x"}')).batch
    lake.alter(f"ALTER TABLE {table.name} RENAME name TO label")
    lake.sql(f"alter table {name} add column b int")
    lake.sql(f"insert into {name} values (1, 'a', 'b', 3)")
    lake.sql(f"alter table {name} add partition field label")
    lake.alter(
        f"ALTER TABLE {table.name} WRITE ORDERED BY id; ALTER TABLE {table.name} ADD PARTITION FIELD bucket(4, id)"
    )
    lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('x' = 'y')")  # no change of the schema
    table.undo()
    found = told(table)
    assert [e["by"] for e in found] == ["batch", "batch", "alter", "outside", "outside", "alter", "undo"]
    assert [e["schema"] for e in found] == [0, 1, 2, 3, 3, 3, 3]
    assert found[1]["batch"] == second
    assert found[2]["statement"] == f"ALTER TABLE {table.name} RENAME name TO label"
    assert found[2]["changes"] == [
        {"action": "comment", "path": "name", "comment": "upsolver_evolved_from:name"},
        {"action": "rename", "path": "name", "to": "label"},
    ]
    assert found[3]["changes"] == [{"action": "add", "path": "b", "type": "int"}]
    assert (found[4]["partition_before"], found[4]["partition"]) == ([], ["label"])
    assert (found[5]["partition"], found[5]["sort"]) == (["label", "bucket(4, id)"], ["id"])
    assert (found[6]["partition"], found[6]["sort"]) == (["label"], [])
    times = [datetime.fromisoformat(e["at"]) for e in found]
    assert times == sorted(times)
    assert datetime.now(UTC) - times[0] < timedelta(minutes=10)


def test_the_rule_of_a_batch(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"id": "x", "s": {"y": 1}}'))
    (sibling, new) = told(table)[-1]["changes"]
    assert (sibling["path"], sibling["rule"], sibling["field"]) == ("id_string", "sibling", "id")
    assert sibling["seen_in"].endswith("in.jsonl:1")
    assert (new["path"], new["rule"]) == ("s", "first-sight")


def test_differences_between_versions(table: Table, lake: Lake, tmp_path: Path) -> None:
    lake.alter(f"ALTER TABLE {table.name} DROP COLUMN name")
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN n int FIRST")
    history = table.history()
    first, _, last = sorted(history.schemas)
    assert history.diff(first, last).to_dict()["changes"] == [
        {"action": "drop", "path": "name"},
        {"action": "add", "path": "n", "type": "int"},
        {"action": "move", "path": "n", "after": None},
    ]
    assert history.diff(last, last).changes == ()
    assert [c["action"] for c in history.diff(last, first).to_dict()["changes"]] == ["drop", "add"]
    with pytest.raises(UsageError, match="has no schema 99999"):
        history.diff(first, 99999)


def forgetful(table: Table, versions: int = 2) -> None:
    """The log of the table reaches back so few versions, as if there had been a hundred commits."""
    table.lake.alter(
        f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true', "
        f"'write.metadata.previous-versions-max' = '{versions}')"
    )


@pytest.mark.nightly
@pytest.mark.iceberg_only("a DuckLake's log forgets nothing")
@pytest.mark.embedded_only("finds the table in SQLite's file")
def test_changes_that_the_log_has_forgotten(table: Table, lake: Lake, folder: Path, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"id": "x"}'))
    lake.alter(
        f"ALTER TABLE {table.name} RENAME name TO label; ALTER TABLE {table.name} WRITE ORDERED BY label"
    )
    lake.alter(f"ALTER TABLE {table.name} ADD PARTITION FIELD bucket(4, label)")
    table.resolve("id", "string")
    table.undo(yes=True)
    expected, times = told(table), [entry.time for entry in table.history().entries]
    assert [e["by"] for e in expected] == ["batch", "batch", "alter", "alter", "resolve", "undo"]
    forgetful(table)
    for i in range(4):
        table.ingest(lines(tmp_path, f'{{"id": {i}}}'))
    history = table.history()
    assert history.whole
    found = told(table)
    for entry, like in zip(found, expected, strict=True):
        assert {**entry, "at": ""} == {**like, "at": ""}
    for entry, time in zip(history.entries, times, strict=True):
        assert entry.time is not None and time is not None
        assert abs(entry.time - time) < timedelta(minutes=1)
    still = OfflineIcebergTable.of(folder, "lake", table.name)
    assert still is not None and still.versions() == table.format.versions()


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_change_from_outside_that_the_log_has_forgotten(table: Table, lake: Lake) -> None:
    name = table.format.handle.full_name
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN a int")
    lake.sql(f"alter table {name} add column b int")
    lake.sql(f"alter table {name} add column c int")
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN d int")
    lake.sql(f"alter table {name} add partition field id")
    forgetful(table)
    for i in range(3):
        lake.sql(f"insert into {name} values ({i}, 'x', null, null, null, null)")
    found = told(table)
    assert [e["by"] for e in found] == ["batch", "alter", "outside", "alter", "outside"]
    assert [[c["path"] for c in e["changes"]] for e in found[1:]] == [["a"], ["b", "c"], ["d"], []]
    assert (found[4]["partition_before"], found[4]["partition"]) == ([], ["id"])
    assert [e["at"] is None for e in found] == [False, False, True, False, True]
    assert table.history().whole


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_table_of_an_older_release(
    table: Table, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It told of the last change only."""
    lake.sql(f"alter table {table.format.handle.full_name} unset tblproperties ('{entries.LAST_CHANGES}')")
    with monkeypatch.context() as patch:
        patch.setattr(alteration, "with_change", lambda told, *_: dict(told))
        lake.alter(f"ALTER TABLE {table.name} ADD COLUMN a int")
        lake.alter(f"ALTER TABLE {table.name} ADD COLUMN b int")
    assert entries.CHANGE_RECORD in table.state().properties
    assert [e["by"] for e in told(table)] == ["batch", "alter", "alter"]
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN c int")
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN d int")
    assert [e["by"] for e in told(table)] == ["batch", "alter", "alter", "alter", "alter"]
    forgetful(table)
    table.ingest(lines(tmp_path, '{"id": 2}'))
    table.ingest(lines(tmp_path, '{"id": 3}'))
    table.ingest(lines(tmp_path, '{"id": 4}'))
    history = table.history()
    assert not history.whole
    found = told(table)
    assert [e["by"] for e in found] == ["unknown", "unknown", "unknown", "alter", "alter"]
    assert [c["path"] for c in found[1]["changes"]] == ["a"]


@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_a_log_that_ends_in_a_file_that_is_gone(table: Table, lake: Lake, folder: Path) -> None:
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN n int")
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN m int")
    first = min(folder.joinpath(*table.name.split("."), "metadata").glob("00000-*.metadata.json"))
    first.unlink()
    assert [e["by"] for e in told(table)] == ["batch", "alter", "alter"]


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_schemas_that_were_cleaned_away(table: Table, lake: Lake) -> None:
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN a int")
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN b int")
    forgetful(table, 1)
    lake.sql(f"insert into {table.format.handle.full_name} values (2, 'x', null, null)")
    lake.sql(
        f"call lake.system.expire_snapshots(table => '{table.name}', older_than => timestamp '2100-01-01', retain_last => 1, "
        "clean_expired_metadata => true)"
    )
    lake.sql(f"insert into {table.format.handle.full_name} values (3, 'x', null, null)")
    history = table.history()
    assert [e["by"] for e in told(table)] == ["unknown"]
    assert (history.whole, list(history.schemas)) == (False, [2])


def test_a_table_that_is_not_there(lake: Lake) -> None:
    with pytest.raises(UsageError, match="there is no table"):
        lake.table("t.nothing").history()
