"""A store that goes away while a capture of it runs, and comes back: each record is in once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue

import pytest

from driftline.capture.query import CaptureQuery
from driftline.capture.targets import Batch
from driftline.errors import SetupError
from driftline.lake import Table
from driftline.runtime import stores
from servers.s3 import S3


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[S3]:
    """A server of the test's own, with a bucket `away`."""
    S3.needed()
    monkeypatch.setattr(stores, "_configured", {})
    with S3(tmp_path) as running:
        stores.configure("s3", running.options)
        running.bucket("away")
        yield running


def put(server: S3, number: int) -> None:
    """An object, whether the server runs or not."""
    file = server.folder / "buckets/away/in" / f"{number}.json"
    file.parent.mkdir(exist_ok=True)
    draft = Path(f"{server.folder}/{number}")
    draft.write_text(f'{{"id": {number}}}\n')
    draft.rename(file)


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().collect())


def took_one(query: CaptureQuery, batches: Queue[Batch]) -> None:
    """Returns when one more batch is in. Raises what ended the capture."""
    try:
        assert batches.get(timeout=60).result.rows_written == 1
    except Empty:
        assert query.awaitTermination(1) is False, "it has ended"
        raise


def age_marks(server: S3) -> None:
    """Makes the mark of a capture that could not delete it a minute old, so that nobody waits for that."""
    (mark,) = server.folder.glob("buckets/away/**/locks/*")
    before = time.time() - 60
    os.utime(mark, (before, before))


def test_a_short_while_is_waited_for(lake, server, table_name):
    table = lake.table(table_name)
    put(server, 0)
    batches: Queue[Batch] = Queue()
    query = table.capture("s3://away/in", name="c", every=0.2, checkpoint="s3://away/c", on_batch=batches.put)
    for number in (1, 2):
        took_one(query, batches)
        server.stop()
        put(server, number)
        time.sleep(0.5)
        server.start()
    took_one(query, batches)
    query.stop()
    query.awaitTermination()

    assert ids(table) == [0, 1, 2]


def test_after_a_longer_one_it_ends_and_goes_on_when_it_is_started_again(
    lake, server, table_name, monkeypatch
):
    monkeypatch.setattr(stores, "_ATTEMPTS", 2)
    stores._connected.cache_clear()
    table = lake.table(table_name)
    put(server, 0)
    batches: Queue[Batch] = Queue()
    query = table.capture("s3://away/in", name="c", every=0.2, checkpoint="s3://away/c", on_batch=batches.put)
    took_one(query, batches)
    server.stop()
    put(server, 1)
    with pytest.raises(SetupError, match=r"s3://away/\S+: the store does not respond"):
        query.awaitTermination()
    server.start()
    age_marks(server)
    table.capture("s3://away/in", name="c", checkpoint="s3://away/c").awaitTermination()
    stores._connected.cache_clear()

    assert ids(table) == [0, 1]
