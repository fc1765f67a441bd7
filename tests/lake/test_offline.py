"""A table's metadata files tell what the catalog tells, and no Java is asked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.cli import grouped
from driftline.formats.iceberg import offline
from driftline.formats.iceberg.offline import OfflineIcebergTable
from driftline.lake import Lake, Table
from driftline.stats.build import stats, waiting_alone

pytestmark = [
    pytest.mark.iceberg_only("reads Iceberg's metadata files"),
    pytest.mark.embedded_only("finds tables in SQLite's file"),
]


def ingested(lake: Lake, name: str, file: Path) -> Table:
    table = lake.table(name)
    for batch in ({"a": 1, "b": {"c": "x"}}, {"a": "x", "d": [1]}):
        file.write_text(json.dumps(batch))
        table.ingest(file)
    lake.alter(f"alter table {name} add column e int; alter table {name} add partition field bucket(4, a)")
    lake.alter(f"alter table {name} write ordered by e desc nulls last")
    return table


@pytest.mark.parametrize("packed", [False, True])
def test_state_and_versions(lake: Lake, folder: Path, table_name: str, tmp_path: Path, packed: bool) -> None:
    if packed:
        lake.sql(f"create namespace if not exists lake.{table_name.split('.', maxsplit=1)[0]}")
        lake.sql(
            f"create table lake.{table_name} (a bigint) using iceberg "
            "tblproperties ('write.metadata.compression-codec' = 'gzip')"
        )
    table = ingested(lake, table_name, tmp_path / "in.jsonl")
    found = OfflineIcebergTable.of(folder, "lake", table_name)
    assert found is not None
    assert found.load() == table.state()
    assert found.versions() == table.format.versions()


def test_what_is_not_there(lake: Lake, folder: Path, table_name: str, tmp_path: Path) -> None:
    ingested(lake, table_name, tmp_path / "in.jsonl")
    namespace, _, name = table_name.rpartition(".")
    assert OfflineIcebergTable.of(folder, "lake", f"{table_name}x") is None
    assert OfflineIcebergTable.of(folder, "other", table_name) is None
    assert OfflineIcebergTable.of(folder, "lake", f"{namespace}' or '1'='1.{name}") is None
    assert OfflineIcebergTable.of(tmp_path / "a #?% folder", "lake", table_name) is None


def test_a_log_that_was_cleaned(
    lake: Lake, folder: Path, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingested(lake, table_name, tmp_path / "in.jsonl")
    oldest = sorted((folder / table_name.replace(".", "/") / "metadata").glob("00000-*.metadata.json"))
    oldest[0].unlink()
    found = OfflineIcebergTable.of(folder, "lake", table_name)
    assert found is not None
    past = found.versions()
    assert past == table.format.versions()
    assert past.whole, "the table remembers its changes"
    monkeypatch.setattr(offline, "_read", lambda _: None)  # the current one is gone, too
    assert OfflineIcebergTable.of(folder, "lake", table_name) is None


@pytest.mark.nightly
def test_the_numbers_of_tables(lake: Lake, folder: Path, table_name: str, tmp_path: Path) -> None:
    table = ingested(lake, table_name, tmp_path / "in.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"a": 2}\nno record\n')
    table.ingest(tmp_path / "bad.jsonl")
    found = OfflineIcebergTable.of(folder, "lake", table_name)
    assert found is not None
    short, whole = stats(found, in_short=True), table.stats()
    assert short is not None and stats(found) is None, "the reasons of quarantined records take Spark"
    for number in ("records", "leaves", "quarantined", "waiting_values"):
        assert getattr(short, number) == getattr(whole, number), number
    assert len(short.drifted) == len(whole.drifted) == 1


def test_a_feed_that_failed_whole(lake: Lake, folder: Path, table_name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("no record\nno record either\n")
    lake.table(table_name).ingest(tmp_path / "bad.jsonl")
    quarantine = OfflineIcebergTable.of(folder, "lake", f"{table_name}__quarantine")
    assert quarantine is not None
    short, whole = waiting_alone(table_name, quarantine), lake.table(table_name).stats()
    assert short is not None
    assert (short.records, short.quarantined) == (whole.records, whole.quarantined) == (0, 2)


def test_the_shell_completes_tables_columns_and_settings(
    lake: Lake, folder: Path, table_name: str, tmp_path: Path
) -> None:
    ingested(lake, table_name, tmp_path / "in.jsonl")
    context: Any = SimpleNamespace(
        parent=SimpleNamespace(params={"lake": str(folder), "config": None}),
        params={"table": table_name},
        args=[],
    )
    assert table_name in grouped.tables(context, table_name[:3])
    assert list(grouped.tables(context, "nothing")) == []
    assert list(grouped.fields(context, "b")) == ["b", "b.c"]
    context.params["table"] = "no.such"
    assert list(grouped.fields(context, "")) == []
    assert list(grouped.settings("on_")) == ["on_conflict=", "on_table_error=", "on_snapshot="]
    assert list(grouped.settings("on_c")) == ["on_conflict=fail", "on_conflict=quarantine"]
    assert list(grouped.settings("on_conflict=f")) == ["on_conflict=fail"]
