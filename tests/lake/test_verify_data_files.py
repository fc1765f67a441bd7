"""Rows that verify reads out of a table's files by DuckDB are those that Spark reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.core.schema.types import INT, LONG, STRING, Field, List, Map, Struct
from driftline.lake import Lake
from driftline.verify import compared_columns, job
from driftline.verify.data_files import FileRows, UnlikeTable, batches
from driftline.verify.frames import FrameRows, SparkTasks

pytestmark = [
    pytest.mark.usefixtures("columns_first"),
    pytest.mark.embedded_only("files are read on this machine"),
]

# Each file lacks what came later, in structs and in lists of structs, and has earlier types.
BATCHES = [
    [{"id": 1, "n": 1, "who": {"name": "Ada"}, "items": [{"sku": "a"}, None], "day": "2026-01-02"}],
    [
        {"id": 2, "n": 2**40, "who": {"age": 3, "name": None}, "items": [{"n": 2}], "at": "2026-01-02T03:04:05Z"},
        {"id": 3, "who": None, "items": [], "ok": True, "x": -0.0, "late": {"deep": [[1], None, []]}},
    ],
    [{"id": 4, "n": "four", "items": [{"sku": 4}]}],
]  # fmt: skip


def _rows(lake: Lake, name: str) -> tuple[FileRows | None, FrameRows]:
    table = lake.table(name).format
    struct = compared_columns(table.load().schema.struct)
    rows = FileRows.of(SparkTasks(lake.spark), struct, table.whole_files)
    return rows, FrameRows(table.read_readable().select(*(f"`{f.name}`" for f in struct.fields)))


def _written(folder: Path, records_by_batch: Sequence[Sequence[dict[str, Any]]]) -> list[Path]:
    files = [folder / f"{number}.jsonl" for number in range(len(records_by_batch))]
    for file, records in zip(files, records_by_batch, strict=True):
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return files


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each comparison by tasks, True if it read rows of files."""
    seen: list[bool] = []
    of = FileRows.of

    def noted(tasks: Any, *others: Any) -> FileRows | None:
        rows = of(tasks, *others)
        seen.append(rows is not None)
        return rows

    monkeypatch.setattr(FileRows, "of", noted)
    monkeypatch.setattr(job, "HERE", -1)
    return seen


def test_rows_of_files_with_an_earlier_schema_are_those_of_spark(
    lake: Lake, tmp_path: Path, table_name: str, read_here: list[bool]
) -> None:
    table, files = lake.table(table_name), _written(tmp_path, BATCHES)
    for file in files:
        table.ingest(file, audit=True, verify=True)
    assert read_here == [True] * len(files), "rows that are not committed yet, too"
    assert table.verify(files, exactly=True).ok
    lake.alter(f"ALTER TABLE {table_name} RENAME COLUMN who.name TO called")
    in_files, in_spark = _rows(lake, table_name)
    assert in_files is not None
    by_id = itemgetter("id")
    assert sorted(in_files.records().collect(), key=by_id) == sorted(in_spark.records().collect(), key=by_id)
    lost = {**BATCHES[0][0], "who": {"name": "Eve"}}
    verdict = table.verify([lost], exactly=True)
    assert (verdict.missing, verdict.extra) == (1, 4)


@pytest.mark.parametrize("change", ["deleted", "default"])
def test_rows_that_are_not_in_files_alone_are_left_to_spark(
    lake: Lake, tmp_path: Path, table_name: str, change: str
) -> None:
    table, (file,) = lake.table(table_name), _written(tmp_path, [[{"id": i, "n": i} for i in range(1000)]])
    table.ingest(file, settings={"key": "id"})
    assert _rows(lake, table_name)[0] is not None
    if change == "deleted":
        table.ingest([{"id": 1, "n": 3}])
    else:
        lake.alter(f"ALTER TABLE {table_name} ADD COLUMN more int DEFAULT 5")
    assert _rows(lake, table_name)[0] is None


def test_files_that_cannot_be_read_are_read_by_spark(
    lake: Lake, tmp_path: Path, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, (file,) = lake.table(table_name), _written(tmp_path, BATCHES[:1])
    table.ingest(file)
    monkeypatch.setattr(job, "HERE", -1)
    monkeypatch.setattr(
        FileRows, "of", lambda tasks, struct, _: FileRows(tasks, struct, ["/no/such.parquet"])
    )
    assert table.verify(file, exactly=True).ok


@pytest.mark.parametrize("column", [pa.array([1]), pa.array(["1"]), pa.array([[1]])])
def test_file_without_ids_or_with_another_type_is_refused(tmp_path: Path, column: pa.Array) -> None:
    ids = {} if column.type == pa.int64() else {"PARQUET:field_id": "1"}
    written = pa.table([column], schema=pa.schema([pa.field("id", column.type, metadata=ids)]))
    pq.write_table(written, tmp_path / "a.parquet")
    with pytest.raises(UnlikeTable):
        list(batches(Struct((Field("id", LONG, 1),)), [str(tmp_path / "a.parquet")]))


def test_map_of_a_file_is_the_table_s(tmp_path: Path) -> None:
    maps = pa.map_(pa.string(), pa.list_(pa.int64()))
    column = pa.array([[("a", [1, None]), ("b", None)], None, []], maps)
    written = pa.table([column], schema=pa.schema([pa.field("m", maps, metadata={"PARQUET:field_id": "1"})]))
    pq.write_table(written, tmp_path / "a.parquet")
    (batch,) = batches(Struct((Field("m", Map(STRING, List(LONG)), 1),)), [str(tmp_path / "a.parquet")])
    assert batch.column(0).to_pylist() == column.to_pylist()
    with pytest.raises(UnlikeTable):
        list(batches(Struct((Field("m", Map(STRING, List(INT)), 1),)), [str(tmp_path / "a.parquet")]))
