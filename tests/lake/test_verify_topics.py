"""Tables are verified against the topics that captures have filled them from, with a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from driftline.capture.kafka_client import Topic
from driftline.capture.taken import Taken
from driftline.errors import DataError, UsageError
from driftline.lake import Lake, PatternTables, Table
from lake.test_capture_kafka import captured, deleted_before, made_again, url
from servers.kafka import Kafka


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


@pytest.fixture
def topic(table_name: str) -> str:
    return f"topic-{table_name}"


def lines(*ids: int) -> list[bytes]:
    return [json.dumps({"id": i, "n": "x" if i == 5 else i}).encode() for i in ids]


PROPERTIES: list[tuple[str, dict[str, Any], dict[Any, int] | None, dict[Any, int] | None]] = [
    ("what one capture took", {"a": {"offsets": {"t": {"0": [5, 9]}}, "since": {"t": {"0": 2}}}},
     {("t", 0): 9}, {("t", 0): 2}),
    ("by an earlier version", {"a": {"offsets": {"t": {"0": [5, 9]}}}}, {("t", 0): 9}, {("t", 0): 0}),
    ("what two captures took",
     {"a": {"offsets": {"t": {"0": [5, 9]}}, "since": {"t": {"0": 2}}, "topics": {"t": "id"}},
      "b": {"offsets": {"t": {"0": [9, 12], "1": [0, 1]}}, "since": {"t": {"0": 9, "1": 0}}}},
     {("t", 0): 12, ("t", 1): 1}, {("t", 0): 2, ("t", 1): 0}),
    ("another topic", {"a": {"offsets": {"u": {"0": [0, 1]}}}}, {}, {}),
    ("files", {"a": {"list": 3}}, {}, {}),
    ("a topic of that name that is gone", {"a": {"offsets": {"t": {"0": [0, 1]}}, "topics": {"t": "old"}}},
     None, None),
]  # fmt: skip


@pytest.mark.format_has_no_say
@pytest.mark.parametrize(
    ("title", "captures", "ends", "since"), PROPERTIES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_offsets_that_tables_tell_of(title: str, captures: Any, ends: Any, since: Any) -> None:
    properties = {}
    for name, contents in captures.items():
        properties[f"driftline.capture.{name}"] = "s:4"
        properties[f"driftline.captured.{name}"] = json.dumps({**contents, "batch": "s:4"})
    topics = {"t": Topic("id", (0, 1))}
    if ends is None:
        with pytest.raises(DataError, match="was deleted and created again"):
            Taken.of(topics, [properties])
        return
    assert Taken.of(topics, [{}, properties]) == Taken(ends, since)


def test_messages_that_a_capture_took_are_found_and_a_row_that_is_gone_is_missing(
    table: Table, kafka: Kafka, topic: str
) -> None:
    kafka.send(topic, [*lines(1, 2), None, b"bad"], partition=0)
    captured(table, url(kafka, topic))
    kafka.send(topic, lines(3, 5), partition=1)
    captured(table, url(kafka, topic))
    kafka.send(topic, [*lines(6), b"worse"], partition=0)  # which nobody has taken so far
    verdict = table.verify(url(kafka, topic), exactly=True)
    assert (verdict.ok, verdict.records, verdict.found, verdict.quarantined, verdict.gone) == (
        True,
        5,
        4,
        1,
        0,
    )
    table.erase("id = 3")
    verdict = table.verify(url(kafka, topic))
    assert (verdict.missing, [m.place for m in verdict.mismatches]) == (1, [f"{topic}/1"])


@pytest.mark.iceberg_only("of the source alone")
def test_offsets_that_kafka_no_longer_has_are_told_and_not_missing(
    table: Table, kafka: Kafka, topic: str
) -> None:
    kafka.send(topic, lines(1, 2, 3), partition=0)
    captured(table, url(kafka, topic))
    deleted_before(kafka, topic, 2)
    verdict = table.verify(url(kafka, topic))
    assert (verdict.ok, verdict.records, verdict.gone) == (True, 1, 2)
    with pytest.raises(UsageError, match="has taken are gone"):
        table.verify(url(kafka, topic), exactly=True)


@pytest.mark.iceberg_only("of the source alone")
def test_records_of_before_a_capture_began_are_not_missing(table: Table, kafka: Kafka, topic: str) -> None:
    kafka.send(topic, lines(1, 2), partition=0)
    captured(table, url(kafka, topic), start="latest")
    kafka.send(topic, lines(3), partition=0)
    captured(table, url(kafka, topic))
    kafka.send(topic, lines(4), partition=0)
    captured(table, url(kafka, topic))
    verdict = table.verify(url(kafka, topic), exactly=True)
    assert (verdict.ok, verdict.records) == (True, 2)


def test_changes_by_key_are_verified_where_the_first_of_them_are_gone(
    table: Table, kafka: Kafka, topic: str
) -> None:
    def change(id_: int, at: int) -> tuple[bytes, bytes]:
        return str(id_).encode(), json.dumps({"id": id_, "at": at}).encode()

    settings = {"key": "_key", "order_by": "at", "delete_when": "at = 0"}
    sent = [change(1, 9), change(2, 1), change(3, 1), change(1, 5), change(2, 2), change(3, 2)]
    kafka.send(topic, sent, partition=0)
    captured(table, url(kafka, topic), settings=settings)
    verdict = table.verify(url(kafka, topic), exactly=True)
    assert (verdict.ok, verdict.records, verdict.found, verdict.gone) == (True, 6, 3, 0)
    deleted_before(kafka, topic, 3)  # with the one that counts for the key 1
    verdict = table.verify(url(kafka, topic))
    assert (verdict.ok, verdict.records, verdict.found, verdict.overtaken, verdict.gone) == (True, 3, 2, 1, 3)
    table.erase("id = 3")
    assert table.verify(url(kafka, topic)).missing == 1


@pytest.mark.iceberg_only("of the source alone")
def test_topics_of_which_a_table_has_nothing_are_refused(table: Table, kafka: Kafka, topic: str) -> None:
    kafka.send(topic, lines(1), partition=0)
    with pytest.raises(UsageError, match="there is no table"):
        table.verify(url(kafka, topic))
    table.ingest([{"id": 1}])
    with pytest.raises(UsageError, match="no capture has brought anything"):
        table.verify(url(kafka, topic))
    with pytest.raises(UsageError, match="there is no topic nowhere"):
        table.verify(url(kafka, "nowhere"))
    with pytest.raises(UsageError, match="checked by themselves"):
        table.verify([url(kafka, topic), "x.json"])
    captured(table, url(kafka, topic))
    made_again(kafka, topic, 2)
    with pytest.raises(DataError, match="was deleted and created again"):
        table.verify(url(kafka, topic))


def test_messages_in_the_tables_of_a_pattern_are_found_wherever_their_values_say(
    lake: Lake, kafka: Kafka, topic: str
) -> None:
    tables: PatternTables = lake.fan_out(f"{topic.replace('-', '_').replace('.', '_')}.{{kind}}")
    space = tables.pattern.partition(".")[0]

    def brought() -> None:
        query = tables.capture(url(kafka, topic), name="kinds", checkpoint=None)
        assert query.awaitTermination(120)

    def of(kind: Any, id_: int) -> bytes:
        return json.dumps({"kind": kind, "id": id_}).encode()

    kafka.send(topic, [of("a", 1), of("b", 2), None, b"bad"], partition=0)
    brought()
    kafka.send(topic, [of("A", 3), of(None, 4), of("b", 5)], partition=1)
    brought()
    kafka.send(topic, [of("c", 6), b"worse"], partition=0)
    verdict = tables.verify(url(kafka, topic), exactly=True)
    assert (verdict.ok, verdict.records, verdict.found, verdict.quarantined, verdict.gone) == (
        True,
        6,
        5,
        1,
        0,
    )
    deleted_before(kafka, topic, 1)
    lake.table(f"{space}.b").erase("id = 5")
    verdict = tables.verify(url(kafka, topic))
    assert (verdict.records, verdict.missing, verdict.gone) == (5, 1, 1)
    assert [name for name, of_table in verdict.verdicts.items() if not of_table.ok] == [f"{space}.b"]
    for name in lake.format.tables():
        if name.startswith(f"{space}.") and not name.endswith("__quarantine"):
            lake.format.drop(name, purge=False, dry_run=False)
