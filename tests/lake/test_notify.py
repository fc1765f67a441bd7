"""Captures that a bucket's notifications tell of new objects: each object once, whatever becomes of the messages."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from itertools import count
from urllib.parse import quote_plus

import pytest

from driftline.capture import finding
from driftline.capture.targets import Batch
from driftline.errors import UsageError
from driftline.runtime import stores
from servers.queue import Queue

_COUNT = count()


@pytest.fixture
def bucket(s3, monkeypatch) -> str:
    monkeypatch.setattr(stores, "_configured", {})
    stores.configure("s3", s3.options)
    return s3.bucket(f"notify-{next(_COUNT)}")


@pytest.fixture
def queue(monkeypatch) -> Iterator[Queue]:
    monkeypatch.setattr(finding, "_WAIT", 0)
    with Queue() as running:
        yield running


def event(uri: str, size: int) -> str:
    name, _, key = uri.partition("://")[2].partition("/")
    about = {"bucket": {"name": name}, "object": {"key": quote_plus(key), "size": size}}
    return json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": about}]})


def put(s3, bucket: str, numbers: range) -> list[str]:
    """Objects with names as people give them; their messages."""
    messages = []
    for n in numbers:
        uri, line = f"{bucket}/in/{n % 3}/ä b+{n}%20.json", b'{"id": %d}\n' % n
        s3.put(uri, line)
        messages.append(event(uri, len(line)))
    return messages


def spoilt(messages: list[str], bucket: str) -> list[str]:
    """A tenth is lost, a tenth comes twice, all in any order; and others that are of no use."""
    rng = random.Random(len(messages))
    lost = max(1, len(messages) // 10)
    told = messages[lost:] + messages[-lost:]
    told += ["garbage", "{}", event(f"{bucket}/in/gone.json", 1), event(f"{bucket}/in/../x.json", 1)]
    told += [event(f"{bucket}/other/a.json", 1), event("s3://nowhere/in/a.json", 1)]
    rng.shuffle(told)
    return told


def capture(table, source: str, **more) -> list[Batch]:
    batches: list[Batch] = []
    table.capture(source, name="c", on_batch=batches.append, **more).awaitTermination()
    return batches


def ids(table) -> list[int]:
    return sorted(row.id for row in table.read().collect())


def test_a_queue_tells_and_a_listing_finds_the_rest(lake, bucket, s3, queue, table_name):
    table = lake.table(table_name)
    queue.send(*spoilt(put(s3, bucket, range(10)), bucket))
    capture(table, f"{bucket}/in", notify=queue.url)
    first = ids(table)
    queue.send(*spoilt(put(s3, bucket, range(10, 30)), bucket))
    capture(table, f"{bucket}/in", notify=queue.url, max_files=7)
    later = ids(table)
    left = dict(queue.messages)
    capture(table, f"{bucket}/in", notify=queue.url, list_every=1e-6)

    assert (first, later) == ([*range(10)], [*range(10), *range(12, 30)])
    assert ids(table) == [*range(30)]
    assert left == queue.messages == {}
    assert table.verify(f"{bucket}/in", exactly=True).ok


class Died(Exception):
    """As a process does."""


@pytest.mark.parametrize("phase", ["writing", "committed"])
def test_messages_stay_until_their_objects_are_in(phase, lake, bucket, s3, queue, table_name):
    queue.hidden = 0
    table = lake.table(table_name)
    capture(table, f"{bucket}/in/*/*", format="json", notify=queue.url, checkpoint=f"{bucket}/c")
    queue.send(*put(s3, bucket, range(3)))

    def die(now: str) -> None:
        if now == phase:
            raise Died

    with pytest.raises(Died):
        capture(
            table, f"{bucket}/in/*/*", format="json", notify=queue.url, checkpoint=f"{bucket}/c", progress=die
        )
    left = len(queue.messages)
    capture(table, f"{bucket}/in/*/*", format="json", notify=queue.url, checkpoint=f"{bucket}/c")

    assert (left, ids(table), queue.messages) == (3, [0, 1, 2], {})


def test_a_file_of_messages_is_followed(lake, bucket, s3, table_name, tmp_path):
    table, told = lake.table(table_name), tmp_path / "messages.jsonl"
    told.write_text("")
    query = table.capture(f"{bucket}/in", name="c", notify=str(told), every=0.2)
    for n in range(3):
        with told.open("a") as file:
            file.writelines(f"{message}\n" for message in put(s3, bucket, range(2 * n, 2 * n + 2)))
        end = time.monotonic() + 60
        while not (table.format.load().exists and len(ids(table)) == 2 * n + 2):
            assert time.monotonic() < end
            time.sleep(0.2)
    query.stop()
    query.awaitTermination()

    assert ids(table) == [*range(6)]


@pytest.mark.parametrize(
    ("source", "more", "sentence"),
    [
        ("in", {"notify": "x"}, "notify and list_every are only for folders of S3"),
        ("kafka://a:1/t", {"notify": "x"}, "notify and list_every are only for folders of S3"),
        ("in", {"list_every": 5.0}, "notify and list_every are only for folders of S3"),
        ("s3://bucket/in", {"notify": "ftp://x/y"}, "ftp://x/y is not a queue"),
    ],
)
def test_what_cannot_be_told_of(source, more, sentence, lake, table_name, tmp_path):
    with pytest.raises(UsageError, match=sentence):
        capture(lake.table(table_name), source, checkpoint=tmp_path / "c", **more)


def test_between_listings_what_sorts_behind_is_taken(lake, bucket, s3, table_name):
    """Names that sort are found at once, others by the next listing."""
    table = lake.table(table_name)

    def taken(*numbers: int, **more) -> list[int]:
        for number in numbers:
            s3.put(f"{bucket}/in/ä b/{number:03}%20.json", b'{"id": %d}\n' % number)
        capture(table, f"{bucket}/in", **more)
        return ids(table)

    assert taken(10, 11, list_every=900.0) == [10, 11]
    assert taken(12, 5, list_every=900.0) == [10, 11, 12]
    assert taken(list_every=1e-6) == [5, 10, 11, 12]
    assert table.verify(f"{bucket}/in", exactly=True).ok
