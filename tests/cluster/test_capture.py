"""Captures on a real cluster: the same ones as on a laptop, on a JDBC and on a REST catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drifting_data import REAL, needs_real_data
from driftline.capture.targets import Batch
from driftline.lake import Lake, Table
from servers.kafka import Kafka

from .proof import lines, proven, versions


def captured(table: Table, data: Any, checkpoint: Path, **options: Any) -> list[Batch]:
    batches: list[Batch] = []
    query = table.capture(data, name="orders", checkpoint=checkpoint, on_batch=batches.append, **options)
    assert query.awaitTermination(120)
    return batches


# One catalog for each source: a batch of a capture commits as any other does, which test_batches tries on both.
on_jdbc = pytest.mark.parametrize("lake", ["jdbc"], indirect=True)
on_rest = pytest.mark.parametrize("lake", ["rest"], indirect=True)


@on_rest
def test_each_file_once_and_one_version_a_batch(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, folder, checkpoint = lake.table(table_name), tmp_path / "in", tmp_path / "checkpoint"
    lines(folder, "1.jsonl", *({"id": i, "at": "2026-03-02T04:05:06Z"} for i in range(500)))
    lines(folder, "2.jsonl", *({"id": f"u-{i}", "item": {"n": i}} for i in range(500)))
    (folder / "3.jsonl").write_bytes(b'{"id": 1\n{"id": [1]}\n{"id": "\xff"}\n')
    batches = captured(table, folder, checkpoint, max_files=1)
    assert [(b.result.rows_written, b.result.rows_quarantined) for b in batches] == [
        (500, 0),
        (500, 0),
        (1, 2),
    ]
    assert versions(table) == 3
    assert captured(table, folder, checkpoint) == []
    lines(folder, "4.jsonl", {"id": 7})
    assert [b.epoch for b in captured(table, folder, checkpoint)] == [3]
    assert versions(table) == 4
    proven(table, folder)


@on_jdbc
def test_kafka(lake: Lake, table_name: str, tmp_path: Path, kafka: Kafka) -> None:
    table, topic = lake.table(table_name), f"{lake.catalog}-{table_name}"
    plain = [json.dumps({"id": i, "item": {"n": i / 2}}).encode() for i in range(600)]
    kafka.send(topic, [*plain, b'{"id": "x"}', b"\xff", (b"key", None), b'{"item": [1]}'], partition=0)
    url, checkpoint = f"kafka://{kafka.address}/{topic}", tmp_path / "checkpoint"
    batches = captured(table, url, checkpoint, max_records=400)
    assert [b.result.rows_written for b in batches] == [400, 202]
    assert table.read().count() == 602
    assert sum(b.result.rows_quarantined for b in batches) == 1
    assert sum(b.tombstones for b in batches) == 1
    assert captured(table, url, checkpoint) == []
    assert table.read().where("id is not null").select("id").distinct().count() == 600
    assert {"id_string", "item_array_long"} <= set(table.read().columns)


@on_rest
def test_two_captures_at_once(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    for side in ("a", "b"):
        for i in range(3):
            lines(
                tmp_path / side,
                f"{i}.jsonl",
                {"id": i, side: i},
                {"id": f"{side}{i}" if i else 0, f"new{i}": 1.5},
            )
    running = [
        table.capture(tmp_path / side, name=side, checkpoint=tmp_path / f"{side}-checkpoint", max_files=1)
        for side in ("a", "b")
    ]
    for query in running:
        assert query.awaitTermination(120)
    assert table.read().count() == 12
    assert sorted(table.read().columns) == sorted(["id", "id_string", "a", "b", "new0", "new1", "new2"])
    proven(table, tmp_path / "a")
    proven(table, tmp_path / "b")


@on_jdbc
def test_any_streaming_dataframe(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, folder = lake.table(table_name), tmp_path / "in"
    for _ in range(3):
        part = lake.spark.range(100).selectExpr("id", "named_struct('n', id) as s")
        part.write.mode("append").parquet(str(folder))
    stream = lake.spark.readStream.schema("id bigint, s struct<n bigint>").parquet(str(folder))
    captured(table, stream, tmp_path / "checkpoint")
    captured(table, stream, tmp_path / "checkpoint")
    assert table.read().count() == 300


@needs_real_data
@pytest.mark.parametrize(
    ("lake", "name"), [("jdbc", "github-webhooks"), ("rest", "movies")], indirect=["lake"]
)
def test_real_data(lake: Lake, table_name: str, tmp_path: Path, name: str) -> None:
    table, folder = lake.table(table_name), tmp_path / "in"
    folder.mkdir()
    records = (REAL / f"{name}.jsonl").read_text().splitlines(keepends=True)
    for i in range(3):
        (folder / f"{i}.jsonl").write_text("".join(records[i::3]))
    batches = captured(table, folder, tmp_path / "checkpoint", max_files=1)
    assert sum(b.result.rows_written for b in batches) == table.read().count() == len(records)
    proven(table, folder)
