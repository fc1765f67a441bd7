"""Rows of v3 tables that only move keep the ids by which others know them again."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from driftline.formats.iceberg.reader import metadata_table
from driftline.lake import Lake, Table
from lake.formats import by_pyiceberg
from lake.proof import proven

pytestmark = pytest.mark.iceberg_only("a DuckLake tells rows apart by their files")

Ids = dict[int, tuple[int, int]]  # by the rows' own id, Iceberg's, and the commit that they are from


def ids(table: Table) -> Ids:
    rows = table.read().select("id", "_row_id", "_last_updated_sequence_number").collect()
    return {row[0]: (row[1], row[2]) for row in rows}


def put(folder: Path, name: str, *records: str) -> Path:
    file = folder / name
    file.write_text("\n".join(records))
    return file


@pytest.mark.nightly
def test_a_resolve_and_a_promotion(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    settings = {"format_version": "3", "partition_by": "bucket(4, id)"}
    files = [
        put(tmp_path, "0.jsonl", '{"id": 1, "n": 4}', '{"id": 2, "n": "5"}', '{"id": 3, "other": "a"}'),
        put(tmp_path, "1.jsonl", '{"id": 4, "n": 6, "new": 7}', '{"id": 5}'),
    ]
    table.ingest(files[0], settings=settings)
    table.ingest(files[1], settings={"new_fields": "hold"})
    before = ids(table)
    assert len({row_id for row_id, _ in before.values()}) == 5

    table.resolve("n", "string")
    after = ids(table)
    assert {n: row_id for n, (row_id, _) in after.items()} == {n: row_id for n, (row_id, _) in before.items()}
    assert {n for n in before if after[n] == before[n]} == {3, 5}  # the others have a value in another column
    assert all(after[n][1] > before[n][1] for n in (1, 2, 4))

    table.promote("new")
    last = ids(table)
    assert {n for n in after if last[n] == after[n]} == {1, 2, 3, 5} and last[4][0] == before[4][0]
    proven(table, files)
    assert sorted(row["id"] for row in by_pyiceberg(table).to_pylist()) == [1, 2, 3, 4, 5]

    table.ingest(put(tmp_path, "2.jsonl", '{"id": 6, "new": "x"}'))
    assert len({row_id for row_id, _ in ids(table).values()}) == 6
    lake.sql(f"delete from lake.{table_name}")
    table.resolve("new", "string")
    assert ids(table) == {}


def test_a_rewrite(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    settings = {"format_version": "3", "policy": "widen", "allow_rewrite": "true"}
    first = put(tmp_path, "0.jsonl", '{"id": 1, "n": 4}', '{"id": 2}', '{"id": 3, "n": 5}')
    table.ingest(first, settings=settings)
    before = ids(table)

    second = put(tmp_path, "1.jsonl", '{"id": 4, "n": 1.5}', '{"id": 5}')
    assert table.ingest(second).rows_written == 2
    after = ids(table)
    assert {n: after[n][0] for n in before} == {n: row_id for n, (row_id, _) in before.items()}
    assert after[2] == before[2] and after[1][1] > before[1][1]
    assert len({row_id for row_id, _ in after.values()}) == 5
    assert after[4][1] == after[5][1] == after[1][1]
    proven(table, [first, second])
    rows = sorted((row["id"], row["n"]) for row in by_pyiceberg(table).to_pylist())
    assert rows == [(1, 4.0), (2, None), (3, 5.0), (4, 1.5), (5, None)]

    # As the format has it: columns of these ids in the data files.
    (path, *_) = [
        row[0] for row in metadata_table(table.format.handle, "files").select("file_path").collect()
    ]
    schema = pq.read_schema(path.removeprefix("file:"))
    assert schema.field("_row_id").metadata[b"PARQUET:field_id"] == b"2147483540"
    assert schema.field("_last_updated_sequence_number").metadata[b"PARQUET:field_id"] == b"2147483539"
