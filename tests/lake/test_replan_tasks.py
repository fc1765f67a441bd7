"""`replan --apply` by tasks that read a table's files, and by Spark where these do not tell its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftline.formats.ducklake import transaction as ducklake
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.lake import Lake, Table
from lake.ducklake_peer import run, same
from lake.formats import database
from lake.test_keyed import SETTINGS, put

CHANGES = [
    [{"id": n, "seq": 1, "v": f"v{n % 2}", "size": n, "by": [{"n": n}]} for n in range(6)],
    [{"id": 1, "seq": 2, "v": "v1", "size": 1.5}, {"id": 2, "seq": 2, "op": "d"}, {"id": 7, "seq": 1, "v": "v0"}],
    [{"id": 3, "seq": 3, "v": "v0", "by": [{"n": "x"}, None]}],
]  # fmt: skip


@pytest.fixture
def no_spark_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Spark's own writer fail."""

    def refused(*_: object) -> None:
        raise AssertionError("Spark writes rows")

    monkeypatch.setattr(IcebergTransaction, "_files_of", refused)
    monkeypatch.setattr(ducklake, "write", refused)


def ids(table: Table) -> dict[int, tuple[int, int]]:
    """The rows' ids and the numbers of their last changes, by key; none where Spark sees no such ids."""
    if database(table.lake) is not None:
        return {}
    read = table.read().select("id", "_row_id", "_last_updated_sequence_number").collect()
    return {row[0]: (row[1], row[2]) for row in read}


def values(table: Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in table.read().selectExpr(*columns).collect()), key=str)


@pytest.mark.usefixtures("no_spark_writer")
def test_replan_applied_by_tasks_leaves_deleted_rows_out_and_moves_unchanged_rows_with_their_ids(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    for n, batch in enumerate(CHANGES):
        file = put(tmp_path / f"{n}.jsonl", batch)
        table.ingest(file, settings={**SETTINGS, "partition_by": "v"} if n == 0 else {})
    before = ids(table)
    applied = table.replan(apply=True)
    assert {field.field.path for field in applied.fields} == {("size",), ("by", "n")}
    assert values(table, "id", "size", "by.n") == [
        (0, 0.0, ["0"]), (1, 1.5, None), (3, None, ["x", None]), (4, 4.0, ["4"]), (5, 5.0, ["5"]), (7, None, None),
    ]  # fmt: skip
    after = ids(table)
    assert {key: row_id for key, (row_id, _) in after.items()} == {
        key: row_id for key, (row_id, _) in before.items()
    }
    assert {key for key in after if after[key] == before[key]} == ({7} if before else set())
    if database(lake) is not None:
        same(table.format, tmp_path)
    table.ingest(
        put(tmp_path / "last.jsonl", [{"id": 4, "seq": 4, "size": "big"}, {"id": 0, "seq": 4, "op": "d"}])
    )
    assert values(table, "id", "size_string") == [(1, None), (3, None), (4, "big"), (5, None), (7, None)]
    table.undo(yes=True)
    table.undo(yes=True)
    assert values(table, "id", "size", "size_double") == [
        (0, 0, None), (1, None, 1.5), (3, None, None), (4, 4, None), (5, 5, None), (7, None, None),
    ]  # fmt: skip


def test_replan_applied_to_rows_that_no_file_of_the_table_tells_goes_through_spark(
    lake: Lake, table_name: str
) -> None:
    table, catalog = lake.table(table_name), database(lake)
    table.ingest([{"id": 1, "n": 1}])
    if catalog is None:
        lake.alter(f"ALTER TABLE {table_name} SET TBLPROPERTIES ('write.format.default' = 'orc')")
        table.ingest([{"id": 2, "n": 2.5}])
        lake.alter(f"ALTER TABLE {table_name} UNSET TBLPROPERTIES ('write.format.default')")
    else:
        namespace, name = table_name.split(".")
        limit = f"'data_inlining_row_limit', 9, schema => '{namespace}', table_name => '{name}'"
        table.ingest([{"id": 3, "n": 2.5}])
        run(catalog, f"CALL lk.set_option({limit})", f"INSERT INTO lk.{table_name} (id, n_double) VALUES (2, 2.5)",
            f"DELETE FROM lk.{table_name} WHERE id = 3")  # fmt: skip
    assert len(table.replan(apply=True).fields) == 1
    assert values(table, "id", "n") == [(1, 1.0), (2, 2.5)]
