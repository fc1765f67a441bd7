"""Tables in S3: tasks write their files themselves, and what goes wrong leaves no row twice, and none behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.errors import DataError, DriftlineError
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.reader import metadata_table
from driftline.lake import Lake, Table
from driftline.runtime.session import catalog_settings
from driftline.write import STAGED, WRITTEN
from servers.lakehouse import Lakehouse
from servers.proxy import Answer, Proxy, Request

from .proof import lines, proven

pytestmark = pytest.mark.parametrize("lake", ["rest"], indirect=True)
BUSY = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
)


def objects(table: Table) -> list[str]:
    """All that lies where the table has its data files."""
    java = table.format.handle.java()
    return [str(file.location()) for file in items(java.io().listPrefix(f"{java.location()}/data/"))]


def data_files(table: Table) -> set[str]:
    return {row[0] for row in metadata_table(table.format.handle, "all_files").select("file_path").collect()}


def drifting(folder: Path, count: int = 4) -> Path:
    for i in range(count):
        lines(folder, f"{i}.jsonl", {"id": i, "kind": "a/b c%"}, {"id": f"u{i}", "kind": None})
    (folder / "broken.jsonl").write_text("{\n")
    return folder


@pytest.fixture
def proxy(lakehouse: Lakehouse) -> Iterator[Proxy]:
    with Proxy(lakehouse.s3.endpoint) as running:
        yield running


def another(lake: Lake, lakehouse: Lakehouse, name: str, **given: str) -> Lake:
    """The same catalog under another name, with other properties."""
    settings = {"type": "rest", "uri": lakehouse.rest.uri, **lakehouse.reach, **given}
    for key, value in catalog_settings(Path(), name, settings).items():
        if key.startswith("spark.sql.catalog."):
            lake.spark.conf.set(key, value)
    return Lake.attach(lake.spark, name)


@pytest.mark.parametrize(
    "layout",
    ["", "partitioned by (kind)", "tblproperties ('write.object-storage.enabled' = 'true')"],
    ids=["plain", "partitioned", "hashed"],
)
def test_tasks_write_the_files(lake: Lake, table_name: str, tmp_path: Path, layout: str) -> None:
    table = lake.table(table_name)
    lake.sql(f"create namespace if not exists rest.{table_name.partition('.')[0]}")
    lake.sql(f"create table rest.{table_name} (id bigint, kind string) using iceberg {layout}")
    done = table.ingest(drifting(tmp_path / "in"))
    assert (done.rows_written, done.rows_quarantined) == (8, 1)
    proven(table, tmp_path / "in")
    assert all(WRITTEN.search(path) for path in data_files(table))
    assert {path for path in objects(table) if path.endswith((".parquet", ".arrow"))} == data_files(table)


def test_after_a_failure_nothing_is_left(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, "0.jsonl", {"id": 0}))
    before = data_files(table)
    with pytest.raises(DataError):
        table.ingest(drifting(tmp_path / "in"), settings={"on_conflict": "fail"})
    assert {path for path in objects(table) if path.endswith((".parquet", ".arrow"))} == before


def test_what_killed_processes_leave_is_cleaned(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(drifting(tmp_path / "in"))
    java = table.format.handle.java()
    hex_ = "0123456789abcdef" * 2
    left = [f"{hex_}-00000-7-00001.parquet", f"{hex_}/00000-7-0.arrow", "theirs.parquet"]
    for name in left:
        java.io().newOutputFile(f"{java.location()}/data/{name}").create().close()
    assert WRITTEN.search(f"/{left[0]}") and STAGED.search(f"/{left[1]}")
    found = {orphan.path for orphan in lake.clean(0) if f"/{table_name.partition('.')[2]}/" in orphan.path}
    assert found == {f"{java.location()}/data/{name}" for name in left[:2]}
    assert {path for path in objects(table) if path.endswith((".parquet", ".arrow"))} == {
        *data_files(table),
        f"{java.location()}/data/{left[2]}",
    }
    proven(table, tmp_path / "in")


def test_a_store_that_is_busy_is_asked_again(
    lake: Lake, lakehouse: Lakehouse, proxy: Proxy, table_name: str, tmp_path: Path
) -> None:
    refused: list[Request] = []

    def busy(request: Request) -> Answer | None:
        if request.method not in ("PUT", "POST") or "/data/" not in request.path or len(refused) > 5:
            return None
        refused.append(request)
        return Answer(503, BUSY)

    proxy.instead = busy
    table = another(lake, lakehouse, "busy", **{"s3.endpoint": proxy.url}).table(table_name)
    table.ingest(drifting(tmp_path / "in"))
    assert len(refused) > 5
    proven(table, tmp_path / "in")


def test_keys_that_the_store_does_not_know(
    lake: Lake, lakehouse: Lakehouse, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    table.ingest(lines(tmp_path, "0.jsonl", {"id": 0}))
    secret = "a-wrong-secret"
    denied = another(lake, lakehouse, "denied", **{"s3.secret-access-key": secret}).table(table_name)
    with pytest.raises(DriftlineError) as failed:
        denied.ingest(lines(tmp_path, "1.jsonl", {"id": 1}))
    assert "\n" not in failed.value.message and secret not in str(failed.value)
    assert table.read().count() == 1


def test_keys_that_the_catalog_hands_out(
    lake: Lake, lakehouse: Lakehouse, table_name: str, tmp_path: Path
) -> None:
    handed = {key: value for key, value in lakehouse.reach.items() if "key" in key}
    own = {key: value for key, value in lakehouse.reach.items() if key not in handed}

    def vending(request: Request, answer: Answer) -> Answer:
        told = json.loads(answer.body) if answer.body.startswith(b"{") else {}
        if "metadata" not in told:
            return answer
        credentials = [{"prefix": "s3://lake/", "config": handed}]
        return Answer(answer.status, json.dumps({**told, "storage-credentials": credentials}).encode())

    with Proxy(lakehouse.rest.uri) as catalog:
        catalog.changed = vending
        settings = catalog_settings(Path(), "vended", {"type": "rest", "uri": catalog.url, **own})
        for key, value in settings.items():
            if key.startswith("spark.sql.catalog."):
                lake.spark.conf.set(key, value)
        table = Lake.attach(lake.spark, "vended").table(table_name)
        table.ingest(drifting(tmp_path / "in"))
        secret = handed["s3.secret-access-key"]
        handed["s3.secret-access-key"] = "expired"
        with pytest.raises(DriftlineError):
            table.ingest(lines(tmp_path, "in/later.jsonl", {"id": 9}))
        handed["s3.secret-access-key"] = secret
        table.ingest(tmp_path / "in" / "later.jsonl")
        proven(table, tmp_path / "in")
    assert all(WRITTEN.search(path) for path in data_files(table))


def test_all_that_else_is_done_with_a_table(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(drifting(tmp_path / "in"))
    assert table.stats().to_dict()
    assert table.history().to_dict()
    lake.alter(f"alter table {table_name} add column extra int")
    table.undo(yes=True)
    table.resolve("id", "string")
    assert sorted(row.id for row in table.read().collect()) == sorted([*"0123", "u0", "u1", "u2", "u3"])
    lake.sql(f"call rest.system.rewrite_data_files(table => '{table_name}')")
    assert table.quarantine().to_dict()


def test_files_written_anew_and_a_replan_have_each_row_once_and_leave_no_object(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    for number in range(9):
        size = number if number < 5 else number + 0.5
        table.ingest(lines(tmp_path, f"in/{number}.jsonl", {"id": number, "size": size}))
    compacted = table.compact()
    assert (compacted.written_anew, compacted.files_after) == (9, 1)
    proven(table, tmp_path / "in")
    assert [field.field.path for field in table.replan(apply=True).fields] == [("size",)]
    assert sorted(row.size for row in table.read().collect())[::8] == [0.0, 8.5]
    proven(table, tmp_path / "in")
    table.undo(yes=True)
    assert "size_double" in str(table.schema())
    proven(table, tmp_path / "in")
    assert {path for path in objects(table) if path.endswith((".parquet", ".arrow"))} == data_files(table)


def test_no_secret_is_written(lake: Lake, lakehouse: Lakehouse, table_name: str, tmp_path: Path) -> None:
    lake.table(table_name).ingest(drifting(tmp_path / "in"))
    secret = lakehouse.s3.secret_key.encode()
    files = [path for path in lakehouse.s3.folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if secret in path.read_bytes()] == []
