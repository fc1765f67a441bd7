"""Sources in a bucket: every kind of file as from a folder, and what a store does to readers."""

import io
import json
import zipfile
from collections import Counter
from contextlib import suppress
from itertools import count

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook
from pyarrow import csv, orc

from driftline.capture import lease
from driftline.capture.lease import Lease
from driftline.capture.targets import Batch
from driftline.errors import DataError, SetupError, UsageError
from driftline.runtime import stores
from driftline.sources.files import expand, stamps
from servers.proxy import Proxy

_COUNT = count()
ROWS = [{"id": n, "name": f"n{n}"} for n in range(5)]
TABLE = pa.Table.from_pylist(ROWS)


@pytest.fixture
def bucket(s3, monkeypatch) -> str:
    monkeypatch.setattr(stores, "_configured", {})
    stores.configure("s3", s3.options)
    return s3.bucket(f"bucket-{next(_COUNT)}")


def lines(rows=ROWS) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("one.json", lines(ROWS[:2]))
        archive.writestr("two.json", lines(ROWS[2:]))
    return file.getvalue()


def _avro() -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, ROWS)
    return file.getvalue()


def _written(write) -> bytes:
    file = io.BytesIO()
    write(TABLE, file)
    return file.getvalue()


def _parquet(rows) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def _workbook() -> bytes:
    book, file = Workbook(), io.BytesIO()
    book.active.append(["id", "name"])
    for row in ROWS:
        book.active.append(list(row.values()))
    book.save(file)
    return file.getvalue()


FILES = {
    "a b%20.json": lines,
    "a.json.gz": lambda: pa.compress(lines(), "gzip", asbytes=True),
    "a.csv": lambda: _written(csv.write_csv),
    "a.parquet": lambda: _parquet(ROWS),
    "a.avro": _avro,
    "a.orc": lambda: _written(orc.write_table),
    "a.zip": _zip,
    "a.xlsx": _workbook,
}


@pytest.mark.iceberg_only("of the source alone")
def test_a_small_object_is_asked_for_a_few_times(lake, bucket, s3, table_name):
    """Arrow asks for the size of each object that it opens."""
    columns = [("json", lambda n: b'{"id": %d}\n' % n), ("csv", b"id,x\n%d,1\n".__mod__)]
    for fmt, made in [*columns, ("parquet", lambda n: _parquet([{"id": n}]))]:
        for n in range(12):
            s3.put(f"{bucket}/{fmt}/{n:02}.{fmt}", made(n))
    with Proxy(s3.endpoint) as proxy:
        stores.configure("s3", {**s3.options, "endpoint": proxy.url})
        table = lake.table(table_name)
        for fmt, heads, gets in ("json", 5, 3), ("csv", 6, 4), ("parquet", 5, 5):
            proxy.requests.clear()
            table.ingest(f"{bucket}/{fmt}")
            of_each = [
                Counter(r.method for r in proxy.requests if f"/{n:02}.{fmt}" in r.path) for n in range(12)
            ]
            assert max(asked["HEAD"] for asked in of_each) <= heads
            assert max(asked["GET"] for asked in of_each) <= gets
            assert sum("list-type" in r.path for r in proxy.requests) <= 2
        proxy.requests.clear()
        assert table.verify(f"{bucket}/json").ok
        assert len(proxy.requests) <= 12 * 4 + 3


@pytest.mark.parametrize("name", FILES)
@pytest.mark.iceberg_only("of the source alone")
def test_each_kind_of_file(name, lake, bucket, s3, table_name):
    uri = f"{bucket}/in/{name}"
    s3.put(uri, FILES[name]())
    table = lake.table(table_name)
    result = table.ingest(f"{bucket}/in/")

    assert (result.rows_read, result.rows_written) == (5, 5)
    assert {row.id for row in table.read().collect()} == set(range(5))
    assert table.verify(uri, exactly=True).ok
    # As the user wrote it, and of an archive, which file in it.
    assert all(change["seen_in"].startswith(uri) for change in result.to_dict()["changes"])


def test_a_large_object_is_read_in_ranges_by_tasks(lake, bucket, s3, table_name):
    rows = [{"id": n, "text": "x" * 100} for n in range(200_000)]
    s3.put(f"{bucket}/a.jsonl", lines(rows) + b'{"id": "late"}\n{"id"')
    table = lake.table(table_name)
    result = table.ingest(f"{bucket.replace('s3://', 's3a://')}/a.jsonl")

    assert (result.rows_written, result.rows_quarantined) == (200_001, 1)
    assert result.to_dict()["changes"][-1]["seen_in"] == f"{bucket.replace('s3://', 's3a://')}/a.jsonl:200001"
    assert table.verify(f"{bucket}/a.jsonl", exactly=True).ok


@pytest.mark.parametrize("spoil", ["overwrite", "delete"])
@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
def test_an_object_that_changes_while_it_is_read_is_not_taken(
    spoil, name, lake, bucket, s3, table_name, monkeypatch
):
    uri = f"{bucket}/{name}"
    data, other = (lines(rows) if name.endswith("json") else _parquet(rows) for rows in (ROWS, ROWS[::-1]))
    s3.put(uri, data)
    table = lake.table(table_name)

    def progress(phase: str) -> None:
        if phase == "writing" and spoil == "overwrite":
            s3.put(uri, other)  # as many rows, in the same second
        elif phase == "writing":
            s3.system().delete_file(uri.partition("://")[2])

    with pytest.raises(
        DataError, match=f"{uri}(:| was deleted| changed) (the file no longer exists|while it was read)"
    ):
        table.ingest(uri, progress=progress)
    assert not table.format.load().exists


def test_folders_and_globs_name_what_they_would_here(bucket, s3):
    keys = [
        "in/a.json",
        "in/_b.json",
        "in/.c.json",
        "in/d/e.json",
        "in/_f/g.json",
        "in/h.txt",
        "in/x[1].json",
    ]
    for key in keys:
        s3.put(f"{bucket}/{key}", b"{}\n")

    def found(pattern: str) -> list[str]:
        return [file.removeprefix(f"{bucket}/") for file in expand([f"{bucket}/{pattern}"], "json")[1]]

    assert expand([f"{bucket}/in"])[1] == [
        f"{bucket}/{key}" for key in ("in/a.json", "in/d/e.json", "in/x[1].json")
    ]
    assert found("in/*.json") == ["in/_b.json", "in/a.json", "in/x[1].json"]
    assert found("in/**/*.json") == ["in/_b.json", "in/_f/g.json", "in/a.json", "in/d/e.json", "in/x[1].json"]
    assert found("*/?/*") == ["in/d/e.json"]
    assert found("in/x[1].json") == ["in/x[1].json"]
    with pytest.raises(UsageError, match=f"{bucket}/on: no such file, folder or glob"):
        found("on")


def test_stamps_tell_two_versions_of_the_same_size_and_second(bucket, s3):
    uri = f"{bucket}/a.json"
    s3.put(uri, b'{"a": 1}')
    before = stamps([uri])
    s3.put(uri, b'{"a": 2}')

    assert stamps([uri]) != before
    assert stamps([f"{bucket}/none.json"]) == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"secret_key": "wrong-hush"}, "the store does not accept these keys|the store denies access"),
        ({"access_key": "wrong-hush"}, "the store does not accept these keys|the store denies access"),
    ],
)
def test_wrong_keys_are_one_sentence(options, sentence, bucket, s3):
    s3.put(f"{bucket}/a.json", b"{}")
    stores.configure("s3", {**s3.options, **options})

    with pytest.raises(SetupError, match=sentence) as raised:
        expand([f"{bucket}/a.json"])
    assert "hush" not in str(raised.value) and s3.secret_key not in str(raised.value)


def test_a_bucket_that_is_away_is_one_sentence(bucket):
    with pytest.raises((UsageError, SetupError), match=r"s3://nowhere.*no such"):
        expand(["s3://nowhere/in/"])


# Captures ---------------------------------------------------------------------------------------------------


def capture(table, source: str, **more) -> list[Batch]:
    """Captures what is there now; what the batches were."""
    batches: list[Batch] = []
    table.capture(source, name="c", on_batch=batches.append, **more).awaitTermination()
    return batches


class Died(Exception):
    """As a process does."""


def ids(table) -> list[int]:
    return sorted(row.id for row in table.read().collect())


@pytest.mark.parametrize("place", ["lake", "bucket"])
def test_a_bucket_is_captured_and_each_object_taken_once(place, lake, bucket, s3, table_name):
    more = {"checkpoint": f"{bucket}/checkpoint"} if place == "bucket" else {}
    table = lake.table(table_name)
    s3.put(f"{bucket}/in/a.json", b'{"id": 1}\n')
    s3.put(f"{bucket}/in/b b%.json", b'{"id": 2, "x": {"y": 1}}\n')
    first = capture(table, f"{bucket}/in/", **more)
    again = capture(table, f"{bucket}/in", **more)
    s3.put(f"{bucket}/in/d/c.json", b'{"id": "3"}\n{"id": 4}\nno json\n')
    later = capture(table, f"{bucket}/in", max_files=1, **more)

    assert [(b.epoch, b.result.rows_written) for b in first + later] == [(0, 2), (1, 2)] and again == []
    assert later[0].result.rows_quarantined == 1
    assert table.verify(f"{bucket}/in", exactly=True).ok
    s3.put(f"{bucket}/in/a.json", b'{"id": 5}\n\n')
    with pytest.raises(
        DataError, match=f"{bucket}/in/a.json changed since it was ingested: 10 bytes then, 11 now"
    ):
        capture(table, f"{bucket}/in", **more)


@pytest.mark.parametrize("phase", ["writing", "committing", "committed"])
def test_a_capture_that_dies_goes_on_from_a_checkpoint_in_a_bucket(phase, lake, bucket, s3, table_name):
    table = lake.table(table_name)

    def die(now: str) -> None:
        if now == phase:
            raise Died

    for number in range(3):
        s3.put(f"{bucket}/in/{number}.json", b'{"id": %d}\n' % number)
        with pytest.raises(Died):
            capture(table, f"{bucket}/in", checkpoint=f"{bucket}/c", progress=die)
    s3.put(f"{bucket}/in/late.json", b'{"id": 3}\n')
    capture(table, f"{bucket}/in", checkpoint=f"{bucket}/c")

    assert ids(table) == [0, 1, 2, 3]


@pytest.mark.iceberg_only("of the source alone")
def test_a_topic_goes_on_from_a_checkpoint_in_a_bucket(lake, bucket, kafka, table_name):
    table = lake.table(table_name)

    def die(now: str) -> None:
        if now == "committed":
            raise Died

    for number, progress in enumerate([lambda _: None, die, die, lambda _: None]):
        kafka.send(f"bucket-{table_name}", [b'{"id": %d}' % number])
        with suppress(Died):
            capture(
                table,
                f"kafka://{kafka.address}/bucket-{table_name}",
                checkpoint=f"{bucket}/c",
                progress=progress,
            )

    assert ids(table) == [0, 1, 2, 3]


@pytest.mark.iceberg_only("of the source alone")
def test_an_object_that_changes_while_a_capture_reads_it(lake, bucket, s3, table_name):
    s3.put(f"{bucket}/in/a.json", b'{"id": 1}\n')
    table = lake.table(table_name)

    def spoil(phase: str) -> None:
        if phase == "writing":
            s3.put(f"{bucket}/in/a.json", b'{"id": 2}\n')

    with pytest.raises(DataError, match=r"in/a\.json changed while it was read"):
        capture(table, f"{bucket}/in", progress=spoil)
    capture(table, f"{bucket}/in")

    assert ids(table) == [2]


def test_a_checkpoint_in_a_bucket_is_one_process_at_a_time(bucket, s3, monkeypatch):
    monkeypatch.setattr(lease, "_RENEWED", 0.2)
    s3.put(f"{bucket}/c/locks/here.{lease.processes()}.999999999.a", b"")  # of a process that died here
    with (
        Lease(f"{bucket}/c", "c").locked(),
        pytest.raises(DataError, match="capture c is already running in another process"),
        Lease(f"{bucket}/c", "c").locked(),
    ):
        pass
    with Lease(f"{bucket}/c", "c").locked():
        pass


def test_the_mark_of_a_process_elsewhere_is_waited_for(bucket, s3, monkeypatch):
    for name, seconds in (("_RENEWED", 0.2), ("_STALE", 2.0), ("_LOOK", 0.1)):
        monkeypatch.setattr(lease, name, seconds)
    s3.put(f"{bucket}/c/locks/there.elsewhere.1.a", b"")
    with Lease(f"{bucket}/c", "c").locked():
        assert not list(s3.folder.glob("buckets/**/locks/there.*"))


@pytest.mark.iceberg_only("of the source alone")
def test_a_checkpoint_that_nobody_knows_the_store_of(lake, bucket, table_name):
    with pytest.raises(UsageError, match="ftp://x/y"):
        capture(lake.table(table_name), bucket, checkpoint="ftp://x/y")


@pytest.mark.iceberg_only("of the source alone")
def test_a_url_cannot_be_captured(lake, table_name):
    with pytest.raises(UsageError, match=r"https://x/a\.json: a pipe or standard input cannot"):
        capture(lake.table(table_name), "https://x/a.json?sig=hush")


@pytest.mark.iceberg_only("of the source alone")
def test_a_capture_of_a_bucket_that_is_away(lake, bucket, table_name):
    with pytest.raises(SetupError, match="no such bucket"):
        capture(lake.table(table_name), "s3://nowhere/in")
