"""The column `_source`: off by default, the batch and its time of each row where the setting asks for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def batches(table: Table, key: str = "id") -> dict[Any, str | None]:
    """The batch that each row names."""
    return {row[key]: row["_source"] and row["_source"]["batch"] for row in table.read().collect()}


def test_every_kind_of_source_names_its_batch(table: Table, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [3]}), tmp_path / "c.parquet")
    sources = [
        write(tmp_path / "a.jsonl", '{"id": 1}\n'),
        write(tmp_path / "b.csv", "id\n2\n"),
        tmp_path / "c.parquet",
        [{"id": 4}],
        table.format.spark.sql("select 5L as id"),
    ]

    ids = [table.ingest(source, settings={"metadata": "batch"}).batch for source in sources]

    assert batches(table) == dict(enumerate(ids, 1))
    assert all(table.verify(source).ok for source in sources[:4])


def test_it_begins_and_ends_with_the_setting(table: Table, tmp_path: Path) -> None:
    table.ingest(write(tmp_path / "a.jsonl", '{"id": 1}\n'))
    assert "_source" not in table.read().columns
    begin = datetime.now(UTC).timestamp()
    on = table.ingest(write(tmp_path / "b.jsonl", '{"id": 2}\n'), settings={"metadata": "batch"}).batch
    both = table.ingest(write(tmp_path / "c.jsonl", '{"id": 3}\n'), settings={"metadata": "batch,time"}).batch
    table.ingest(write(tmp_path / "d.jsonl", '{"id": 4}\n'), settings={"metadata": ""})

    assert batches(table) == {1: None, 2: on, 3: both, 4: None}
    seconds = table.read().selectExpr("id", "cast(_source.time as double) t").collect()
    times = {row["id"]: row["t"] for row in seconds}
    assert begin <= times.pop(3) <= datetime.now(UTC).timestamp()
    assert times == {1: None, 2: None, 4: None}
    assert table.verify(sorted(tmp_path.glob("*.jsonl")), exactly=True).ok


def test_a_field_of_this_name_keeps_its_values(table: Table, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"id": 1, "_source": "web"}\n')
    batch = table.ingest(file, settings={"metadata": "batch"}).batch
    later = write(tmp_path / "b.jsonl", '{"id": 2, "_source": "app"}\n')
    table.ingest(later)

    rows = {row["id"]: row.asDict(recursive=True) for row in table.read().collect()}
    assert [rows[1]["_source"], rows[2]["_source"]] == ["web", "app"]
    assert {"batch": batch} in rows[1].values()
    assert table.verify([file, later]).ok


@pytest.mark.parametrize("merge", ["replace", "patch"])
def test_a_row_by_key_names_the_batch_that_last_wrote_it(table: Table, tmp_path: Path, merge: str) -> None:
    settings = {"key": "id", "merge": merge, "metadata": "batch"}
    first = write(tmp_path / "a.jsonl", '{"id": 1, "v": 1}\n{"id": 2, "v": 1}\n')
    second = write(tmp_path / "b.jsonl", '{"id": 2, "v": 2}\n')

    ids = [table.ingest(file, settings=settings).batch for file in (first, second)]

    assert batches(table) == {1: ids[0], 2: ids[1]}
    assert table.verify([first, second]).ok


def test_undo_takes_the_column_back_where_one_says_so(table: Table, tmp_path: Path) -> None:
    table.ingest(write(tmp_path / "a.jsonl", '{"id": 1}\n'))
    table.ingest(write(tmp_path / "b.jsonl", '{"id": 2}\n'), settings={"metadata": "batch,time"})

    with pytest.raises(DataError, match="would hide values: 1 of _source"):
        table.undo()
    table.undo(yes=True)

    assert table.read().columns == ["id"]


def test_an_unknown_name_is_refused(table: Table) -> None:
    with pytest.raises(UsageError, match="metadata: there is no metadata 'bacth': name some of batch, time"):
        table.ingest([{"id": 1}], settings={"metadata": "bacth"})


def test_a_replayed_record_names_the_batch_of_its_replay(table: Table, tmp_path: Path) -> None:
    settings = {"policy": "strict", "hints": {"id": "long"}, "metadata": "batch"}
    first = table.ingest(write(tmp_path / "a.jsonl", '{"id": 1}\n{"id": 2, "n": 1}\n'), settings=settings)
    assert (first.rows_written, first.rows_quarantined) == (1, 1)

    table.replay(settings={"policy": "preserve"})

    named = batches(table)
    assert named[1] == first.batch
    assert named[2] not in (None, first.batch)
    assert table.verify(tmp_path / "a.jsonl").ok


def test_rows_of_a_rewrite_keep_theirs_and_partitions_have_theirs(table: Table, tmp_path: Path) -> None:
    settings = {"policy": "widen", "allow_rewrite": "true", "metadata": "batch", "partition_by": "p"}
    texts = '{"id": 1, "p": "a", "n": 1}\n', '{"id": 2, "p": "b", "n": "x"}\n'
    files = [write(tmp_path / f"{n}.jsonl", text) for n, text in enumerate(texts)]

    ids = [table.ingest(file, settings=settings).batch for file in files]

    assert batches(table) == {1: ids[0], 2: ids[1]}
    assert table.verify(files, exactly=True).ok
