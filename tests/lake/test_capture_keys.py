"""Captures into tables with a key, which die again and again: in the end each table is what a dictionary says."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.test_upsert import Event, Key, events, first_of, same_key
from driftline.errors import DataError
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from lake.test_keyed import SETTINGS, held, put
from lake.test_task_files import files_of
from servers.kafka import Kafka

EACH = "each format dies at each step, in one order"
NO_KEY: Event = {"id": None, "seq": 1, "n": -1}


class Died(Exception):
    pass


def stream_of(chance: random.Random, count: int) -> list[Event]:
    """Events that come to the same rows in any batches: none is older than a delete of its row."""
    made: list[Event] = []
    deleted: dict[Key, float] = {}
    for event in events(chance, count):
        key = same_key(event["id"])
        if event["seq"] < deleted.get(key, 0):
            continue
        if event.get("op") == "d":
            deleted[key] = event["seq"]
        made.append(event)
    return made


def folded(stream: Sequence[Event], *, ordered: bool = True) -> dict[Key, int]:
    """The rows that the events come to, each by the number of its event."""
    rows: dict[Key, Event] = {}
    for event in stream:
        key = same_key(event["id"])
        if not ordered or key not in rows or event["seq"] >= rows[key]["seq"]:
            rows[key] = event
    return {key: event["n"] for key, event in rows.items() if event.get("op") != "d"}


def cut(chance: random.Random, stream: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The stream in parts of some events."""
    while stream:
        part, stream = stream[: (size := chance.randrange(10, 20))], stream[size:]
        yield part


def die(*_: object, **__: object) -> None:
    raise Died


def run(table: Table, source: Any, death: str = "", **options: Any) -> None:
    """A capture to its end, or until it dies: in a transaction's method, or behind the commit. A transaction
    that dies leaves its files, as a process that is killed does.
    """

    def progress(phase: str) -> None:
        if phase == death:
            die()

    with pytest.MonkeyPatch.context() as patch, suppress(Died):
        for kind in (IcebergTransaction, DuckLakeTransaction) if hasattr(IcebergTransaction, death) else ():
            patch.setattr(kind, death, die)
            patch.setattr(kind, "abandon", lambda _: None)
        query = table.capture(source, name="changes", progress=progress, **options)
        assert query.awaitTermination(120)


def check_any_order(
    table: Table,
    source: Path,
    chance: random.Random,
    messages: Sequence[Event],
    settings: Mapping[str, Any],
    rows: Mapping[Any, Mapping[str, Any]],
) -> None:
    """Capture the ``messages`` of a database in any order of files, killed at each step: the table has its
    ``rows`` in the end, and the check agrees.
    """
    parts = list(cut(chance, messages))
    chance.shuffle(parts)
    deaths = ["", "committed", "set", "commit", "remove", "write"]
    for number, part in enumerate(parts):
        put(source / f"{number:03}.jsonl", part)
        run(table, source, deaths[number % len(deaths)], max_files=1, settings=settings)
    run(table, source, max_files=2, settings=settings)

    assert held(table) == {key: row["n"] for key, row in rows.items()}
    verdict = table.verify(source, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, 0)
    assert verdict.found == len(rows)


def test_files(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, chance, source = lake.table(table_name), random.Random(5), tmp_path / "in"
    source.mkdir()
    stream = stream_of(chance, 120)
    deaths = ["", "committed", "write", "set", "find", "commit", "remove", "committed"]
    for number, part in enumerate(cut(chance, stream)):
        put(source / f"{number:03}.jsonl", [*part, NO_KEY])
        run(table, source, deaths[number % len(deaths)], max_files=1, settings=SETTINGS)
    assert number >= len(deaths) - 1
    run(table, source, max_files=2, settings=SETTINGS)

    assert held(table) == folded(stream)
    assert table.quarantine().waiting == number + 1
    left = files_of(lake, table)
    lake.clean(0)
    assert files_of(lake, table) < left
    assert held(table) == folded(stream)


@pytest.mark.parametrize(
    "order_by",
    [
        pytest.param("seq", marks=pytest.mark.ducklake_only(EACH), id="ordered"),
        pytest.param("", marks=pytest.mark.iceberg_only(EACH), id="as they come"),
    ],
)
def test_first_record_of_a_key_stays_wherever_a_capture_dies(
    lake: Lake, table_name: str, tmp_path: Path, order_by: str
) -> None:
    table, chance, source = lake.table(table_name), random.Random(9), tmp_path / "in"
    source.mkdir()
    stream = [{**event, "op": None} for event in events(chance, 100)]
    settings = {"key": "id", "order_by": order_by, "merge": "keep"}
    deaths = ["", "committed", "write", "set", "find", "commit", "remove"]
    for number, part in enumerate(cut(chance, stream)):
        put(source / f"{number:03}.jsonl", part)
        run(table, source, deaths[number % len(deaths)], max_files=1, settings=settings)
    run(table, source, max_files=2, settings=settings)

    assert held(table) == first_of(stream, ordered=bool(order_by))
    verdict = table.verify(source, exactly=True)
    assert (verdict.ok, verdict.records, verdict.extra) == (True, len(stream), 0)


@pytest.mark.iceberg_only("of the source alone")
def test_a_topic_whose_changes_count_as_they_come(lake: Lake, table_name: str, kafka: Kafka) -> None:
    """All changes of a key are in one partition, as senders have them."""
    table, chance, topic = lake.table(table_name), random.Random(6), f"topic-{table_name}"
    stream, settings = events(chance, 56), SETTINGS | {"order_by": ""}
    for death, part in zip(
        ["", "commit", "committed", "find"], [stream[i::4] for i in range(4)], strict=True
    ):
        for partition in range(2):
            sent = (e for e in part if hash(same_key(e["id"])) % 2 == partition)
            kafka.send(topic, [json.dumps(event).encode() for event in sent], partition=partition)
        run(table, f"kafka://{kafka.address}/{topic}", death, max_records=15, settings=settings)
    run(table, f"kafka://{kafka.address}/{topic}", settings=settings)

    came = [event for i in range(4) for event in stream[i::4]]
    assert held(table) == folded(came, ordered=False)


def message(chance: random.Random, number: int) -> tuple[bytes | None, bytes | None]:
    key = chance.randrange(12)
    text = chance.choice([f'{{"id": {key}}}', f'{{"schema": {{}}, "payload": {{"id": {key}.0}}}}'])
    record = {"n": number, "id": str(number)} | ({"new": [1]} if number > 40 else {})
    return text.encode(), None if chance.random() < 0.3 else json.dumps(record).encode()


@pytest.mark.iceberg_only("of the source alone")
def test_null_values_of_a_topic_delete_rows(lake: Lake, table_name: str, kafka: Kafka) -> None:
    table, chance, topic = lake.table(table_name), random.Random(8), f"topic-{table_name}"
    url, settings = f"kafka://{kafka.address}/{topic}", {"key": "_key.id", "delete_when": "value is null"}
    sent = [message(chance, number) for number in range(60)]
    for death, part in zip(["", "commit", "committed", "find"], [sent[i::4] for i in range(4)], strict=True):
        kafka.send(topic, part, partition=0)
        run(table, url, death, max_records=15, settings=settings)
    kafka.send(topic, [(None, None), (b'{"id": null}', b'{"n": -1}'), (b"\xff", None)], partition=0)
    run(table, url, settings=settings)

    rows: dict[int, int] = {}
    for key, value in (one for i in range(4) for one in sent[i::4]):
        loaded = json.loads(key or b"")
        id_ = int(loaded.get("payload", loaded)["id"])
        rows.pop(id_, None)
        rows |= {} if value is None else {id_: json.loads(value)["n"]}
    found = table.read().select("_key.id", "n").collect()
    assert sorted((int(row.id), row.n) for row in found) == sorted(rows.items())
    dumped = [
        {"_key": loaded.get("payload", loaded), **json.loads(value or b"{}")}
        for key, value in (one for i in range(4) for one in sent[i::4])
        for loaded in [json.loads(key or b"")]
    ]
    assert table.verify(dumped, exactly=True).missing == 0
    wrong = table.verify([*dumped, {"_key": {"id": min(rows)}}])
    assert [found.why for found in wrong.mismatches] == ["it deletes its row, and the table has one"]
    kept = table.replay()
    assert (kept.back, kept.stay, table.quarantine().waiting) == (2, 1, 3)
    quarantined = quarantine.of(table.format).read().where("replay is null").select("raw", "key", "key_bytes")
    found = {(raw, key, key_bytes and bytes(key_bytes)) for raw, key, key_bytes in quarantined.collect()}
    assert found == {(None, None, None), ('{"n": -1}', '{"id": null}', None), (None, "\\xff", b"\xff")}


@pytest.mark.iceberg_only("of the source alone")
def test_a_replay_knows_the_keys_of_messages(lake: Lake, table_name: str, kafka: Kafka) -> None:
    table, topic = lake.table(table_name), f"topic-{table_name}"
    url, settings = f"kafka://{kafka.address}/{topic}", {"key": "_key", "delete_when": "value is null"}
    kafka.send(topic, [(b"1", b'{"n": 1}'), (b"a", b'{"n": 2}'), (b"2", b'{"n": 3}')])
    run(table, url, settings=settings, kafka_metadata=True)
    strict = {"policy": "strict", **{f"policies.{name}": "preserve" for name in ("_key", "n")}}
    kafka.send(topic, [(b"a", b'{"n": 4, "more": 1}'), (b"2", None)])
    run(table, url, settings=strict)
    assert table.quarantine().waiting == 1
    assert table.replay(settings={"policy": "preserve"}).written == 1
    rows = table.read().select("_key_long", "_key", "n", "more", "_kafka.key").collect()
    assert sorted(map(tuple, rows), key=str) == [(1, None, 1, None, "1"), (None, "a", 4, 1, None)]


@pytest.mark.iceberg_only("of the source alone")
@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"key": "_key"}, 'set it, beside what deletes now: delete_when="value is null"'),
        (
            {"key": "id", "delete_when": "value is null"},
            'make the table with the key of the message, as key="_key" or _key.PATH, and delete_when="value is null"',
        ),
        (
            {"key": "_key", "merge": "keep"},
            'make the table with merge="replace" and delete_when="value is null": no record deletes a row that keeps its first record',
        ),
    ],
)
def test_null_values_that_nobody_reads_are_refused(
    lake: Lake,
    table_name: str,
    kafka: Kafka,
    settings: dict[str, str],
    hint: str,
) -> None:
    topic = f"topic-{table_name}"
    kafka.send(topic, [(b"1", b'{"id": 1}'), (b"1", None)])
    with pytest.raises(DataError, match="the topic has 1 null value, and the table does not say") as refused:
        run(lake.table(table_name), f"kafka://{kafka.address}/{topic}", settings=settings)
    assert refused.value.hint == hint


def test_a_stream_of_ones_own(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, chance, source = lake.table(table_name), random.Random(7), tmp_path / "in"
    source.mkdir()
    stream = stream_of(chance, 60)
    frame = lake.spark.readStream.option("maxFilesPerTrigger", "1").text(str(source))
    for number, part in enumerate(cut(chance, stream), 1):
        os.utime(put(source / f"{number}.jsonl", part), (number, number))  # Spark goes by their times
    for death in ("write", "committed", ""):
        run(table, frame, death, json_column="value", settings=SETTINGS)

    assert held(table) == folded(stream)
