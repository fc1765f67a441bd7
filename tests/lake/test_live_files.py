"""Files that are read from manifests here, against those that Java plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftline.formats.iceberg.live_files import live_files
from driftline.formats.iceberg.row_delta import KeyFiles
from driftline.lake import Lake, Table
from driftline.runtime.disk import on_disk

SHARED = (
    "spec-id", "content", "file-path", "file-format", "partition", "record-count", "file-size-in-bytes",
    "first-row-id", "referenced-data-file", "content-offset", "content-size-in-bytes",
)  # fmt: skip
STATISTICS = ("column-sizes", "value-counts", "null-value-counts", "lower-bounds", "upper-bounds")


def both(table: Table, ids: list[int]) -> tuple[Any, Any]:
    """The table's files as they are read here, None if they are not, and as Java plans them."""
    handle, tasks = table.format.handle, dict[str, Any]()
    java = handle.existing()
    manifest_list = str(java.currentSnapshot().manifestListLocation())
    if on_disk(manifest_list) is None:
        pytest.skip("the lake is in a store, where Java plans")
    planned = list(KeyFiles(handle.spark, java.newTransaction(), "t", []).planned(java.newScan(), ids, tasks))
    for file in planned:
        java_file = tasks[file["file-path"]].file()
        file["manifest"] = java_file.manifestLocation()
        file["data-sequence-number"] = java_file.dataSequenceNumber()
        file["file-sequence-number"] = java_file.fileSequenceNumber()
    read = live_files(manifest_list, ids)
    return read and sorted(map(comparable, read), key=path), sorted(map(comparable, planned), key=path)


def path(file: dict[str, Any]) -> str:
    return str(file["file-path"])


def comparable(file: dict[str, Any]) -> dict[str, Any]:
    numbers = ("manifest", "data-sequence-number", "file-sequence-number")
    statistics = {name: file.get(name) or {"keys": [], "values": []} for name in STATISTICS}
    return {
        **{name: file.get(name) for name in (*SHARED, *numbers)},
        **{name: dict(zip(pairs["keys"], map(lowered, pairs["values"]), strict=True)) for name, pairs in statistics.items()},
        "deletes": sorted(
            ({name: delete.get(name) for name in SHARED} for delete in file["deletes"]),
            key=lambda delete: (delete["file-path"], delete["content-offset"] or 0),
        ),
    }  # fmt: skip


def lowered(statistic: Any) -> Any:
    return statistic.lower() if isinstance(statistic, str) else statistic


@pytest.mark.parametrize(
    ("version", "partition_by"), [("2", None), ("3", "city"), ("3", "day(at), truncate(2, city)")]
)
def test_files_read_here_after_updates_merged_manifests_and_an_upgrade_are_those_that_java_plans(
    iceberg: Lake, version: str, partition_by: str | None, tmp_path: Path
) -> None:
    table = iceberg.table(f"live_files.t_{version}_{len(partition_by or '')}")
    layout = {} if partition_by is None else {"partition_by": partition_by}
    rows = [
        {"id": i, "city": ("Köln", None)[i % 2], "at": f"2024-01-0{1 + i % 3}T00:00:00Z"} for i in range(40)
    ]
    settings = {"key": "id", "order_by": "seq", "format_version": version, **layout}
    table.ingest([{**row, "seq": 0} for row in rows], settings=settings)
    seen_deletes = 0
    for seq in range(1, 6):
        if seq == 3:  # from here on manifests are merged, and the table is of the newest version
            name = table.format.handle.full_name
            iceberg.sql(
                f"alter table {name} set tblproperties "
                "('commit.manifest.min-count-to-merge'='2', 'format-version'='3')"
            )
        table.ingest([{**row, "seq": seq} for row in rows[seq::20]])
        read, planned = both(table, [1, 3])
        assert read == planned
        seen_deletes += sum(len(file["deletes"]) for file in planned)
    assert seen_deletes


def test_files_of_a_table_with_deletes_by_partition_are_left_to_java(iceberg: Lake) -> None:
    table = iceberg.table("live_files.of_spark")
    table.ingest([{"id": i, "seq": 0} for i in range(40)], settings={"format_version": "2"})
    name = table.format.handle.full_name
    properties = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"
    iceberg.sql(f"alter table {name} set tblproperties ({properties})")
    iceberg.sql(f"delete from {name} where id % 2 = 0")
    assert both(table, [1])[0] is None
