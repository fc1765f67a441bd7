"""Changes of a database in envelopes: captured, killed, checked; the table ends as the database does."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from core.test_avro_texts import ENVELOPE, messages
from core.test_connect_schema import AFTER, KEY, SCHEMA
from core.test_envelopes import LSN, Database
from core.test_kafka_typed import avro
from core.test_mongodb import Collection
from core.test_unavailable import IT, LargeValues
from core.test_upsert import key_of
from driftline.errors import DataError
from driftline.lake import Lake
from lake.test_capture_keys import cut, run
from lake.test_keyed import held, put, rows_of
from servers.kafka import Kafka
from servers.registry import Registry

SETTINGS = {"key": "id", "envelope": "debezium"}
HEARTBEAT = {"ts_ms": 1}


@pytest.mark.nightly
def test_files_of_messages(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, chance, source = lake.table(table_name), random.Random(7), tmp_path / "in"
    source.mkdir()
    database = Database(chance, "mysql")
    messages = [message for _ in range(50) for message in database.step()]
    deaths = ["", "committed", "write", "commit", "remove"]
    for number, part in enumerate(cut(chance, messages)):
        put(source / f"{number:03}.jsonl", [*part, HEARTBEAT, {"op": "?", "n": number}])
        run(table, source, deaths[number % len(deaths)], max_files=1, settings=SETTINGS)
    run(table, source, max_files=2, settings=SETTINGS)

    assert held(table) == {key: row["n"] for key, row in database.rows.items()}
    assert table.quarantine().waiting == number + 1
    verdict = table.verify(source, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, number + 1)
    assert verdict.found == len(database.rows)
    # A row that the messages do not know, and one that they do and that is gone.
    table.ingest([{"op": "c", "after": {"id": 99}, "source": {"file": "b.9999999", "pos": 1}}])
    assert table.verify(source, exactly=True).extra == 1
    with (source / "wrong.jsonl").open("w") as file:
        source_of = {"connector": "mysql", "file": "b.9999999", "pos": 2}
        file.write(json.dumps({"op": "d", "before": {"id": 99}, "source": source_of}))
    assert table.verify(source).missing == 1


@pytest.mark.nightly
def test_records_of_python_and_what_waits(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    first = [
        {"key": {"id": n}, "value": {"op": "r", "after": {"id": n, "v": 2**70}, "source": LSN}}
        for n in (1, 2)
    ]
    result = table.ingest([*first, HEARTBEAT], settings=SETTINGS)
    assert (result.rows_read, result.by_key.inserted, result.marks) == (2, 2, {"heartbeat": 1})
    assert "no change   1 heartbeat, left out" in str(result)
    strict = {"policy": "strict", "policies.id": "preserve"}
    later = {"connector": "postgresql", "lsn": 43}
    result = table.ingest(
        [
            {"op": "u", "before": {"id": 1}, "after": {"id": 3, "w": 1}, "source": later},
            {"key": 2, "value": {"op": "d", "before": None, "source": later}},
            {"op": "d", "before": None, "source": later},
        ],
        settings=strict,
    )
    assert (result.by_key.deleted, result.rows_quarantined) == (1, 2)
    replayed = table.replay(settings={"policy": "preserve"})
    assert (replayed.written, replayed.stay) == (1, 1)
    assert [(row["id"], row["w"]) for row in rows_of(table)] == [(3, 1)]
    assert table.ingest([first[1]]).by_key.late == 1
    (tmp_path / "rows.csv").write_text("id\n1\n")
    with pytest.raises(DataError, match="has envelope = 'debezium', and these records come as columns"):
        table.ingest(tmp_path / "rows.csv")
    texts = lake.spark.createDataFrame(
        [(json.dumps({"op": "c", "after": {"id": 5}, "source": later}),)], ["t"]
    )
    assert table.ingest(texts, json_column="t").by_key.inserted == 1


def test_settings_of_a_first_batch_that_waits_whole_hold_for_the_table(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, source = lake.table(table_name), tmp_path / "in.jsonl"
    put(source, [{"op": "c", "after": {"v": 1}, "source": LSN}, HEARTBEAT])

    assert table.ingest(source, settings=SETTINGS).rows_quarantined == 1
    assert table.verify(source).missing == 0
    later = [{"op": "c", "after": {"id": 1, "v": v}, "source": {**LSN, "lsn": v}} for v in (52, 51)]
    assert table.ingest(later).by_key.inserted == 1
    assert [(row["id"], row["v"]) for row in rows_of(table)] == [(1, 52)]
    assert table.verify(source).missing == 0


@pytest.mark.nightly
def test_settings_of_a_first_batch_of_heartbeats_hold_for_the_table(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, source = lake.table(table_name), tmp_path / "in.jsonl"
    put(source, [HEARTBEAT])

    assert table.ingest(source, settings=SETTINGS).marks == {"heartbeat": 1}
    assert (table.verify(source).missing, table.verify(source).records) == (0, 0)
    assert table.ingest([{"op": "c", "after": {"id": 1}, "source": LSN}]).by_key.inserted == 1


def test_truncate_before_there_is_a_table_makes_earlier_changes_late(lake: Lake, table_name: str) -> None:
    table, source = lake.table(table_name), {"connector": "postgresql"}
    table.ingest([{"op": "t", "source": {**source, "lsn": 11}}], settings=SETTINGS)
    creates = [
        {"op": "c", "after": {"id": id_}, "source": {**source, "lsn": lsn}} for id_, lsn in ((9, 5), (8, 20))
    ]

    assert table.ingest(creates).by_key.late == 1
    assert [row["id"] for row in rows_of(table)] == [8]


NO_KEYS = {
    "no key": {"v": "c"},
    "a key that is null": {"id": None, "v": "c"},
    "a key that is a list": {"id": [1], "v": "c"},
    "a key of another kind": {"id": {"a": 1}, "v": "c"},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", NO_KEYS)
def test_update_to_a_row_without_a_key_waits_whole_and_the_row_before_stays(
    lake: Lake, table_name: str, tmp_path: Path, name: str
) -> None:
    table, source = lake.table(table_name), tmp_path / "in"
    source.mkdir()
    update = {"op": "u", "before": {"id": 1, "v": "a"}, "after": NO_KEYS[name], "source": {**LSN, "lsn": 43}}
    create = {"op": "c", "after": {"id": 1, "v": "a"}, "source": LSN}
    put(source / "1.jsonl", [create, update])
    put(source / "2.jsonl", [update])

    for file in sorted(source.iterdir()):
        assert table.ingest(file, settings=SETTINGS).rows_quarantined == 1
        assert [(row["id"], row["v"]) for row in rows_of(table)] == [(1, "a")]
    verdict = table.verify(source, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined, verdict.deleted) == (0, 0, 2, 0)


def test_values_by_a_schema_that_changes(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """The price becomes a text in the database, as a column is altered."""
    table, source = lake.table(table_name), tmp_path / "in.jsonl"
    altered = json.loads(json.dumps(SCHEMA))
    for row in altered["fields"][:2]:
        row["fields"][1] = {"type": "string", "optional": True, "field": "price"}
    messages = [
        {"key": {**KEY, "payload": {"id": id_}}, "value": {"schema": schema, "payload": payload}}
        for id_, schema, payload in (
            ("Bw==", SCHEMA, {"op": "c", "after": AFTER, "source": {"lsn": 1}}),
            ("CA==", SCHEMA, {"op": "c", "after": {**AFTER, "id": "CA=="}, "source": {"lsn": 2}}),
            ("Bw==", altered, {"op": "u", "after": {**AFTER, "price": "much"}, "source": {"lsn": 3}}),
            ("CA==", altered, {"op": "d", "source": {"lsn": 4}}),
        )
    ]
    source.write_text("".join(json.dumps(message) + "\n" for message in messages))
    table.ingest(source, settings=SETTINGS)
    (row,) = rows_of(table)
    assert (row["id"], str(row["day"]), row["price"]) == (7, "2026-03-01", "much")
    verdict = table.verify(source, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.found, verdict.deleted) == (0, 0, 1, 1)


def test_a_frame_of_columns(lake: Lake, table_name: str) -> None:
    """Messages as a stream of Spark's has them, their types among them."""
    table = lake.table(table_name)
    row = "named_struct('id', {id}, 'price', cast({id} + 0.5 as decimal(12, 2)), 'day', date '2026-03-01')"
    source = "named_struct('connector', 'postgresql', 'lsn', {lsn}) as source"
    none = f"cast(null as {'struct<id: int, price: decimal(12, 2), day: date>'})"

    def message(op: str, before: str, after: str, lsn: int) -> str:
        return f"select '{op}' as op, {before} as before, {after} as after, {source.format(lsn=lsn)}"

    frame = lake.spark.sql(
        " union all ".join(
            [
                message("c", none, row.format(id=1), 1),
                message("c", none, row.format(id=2), 2),
                message("d", row.format(id=1), none, 3),
                message("u", row.format(id=2), row.format(id=3), 4),
                message("x", none, none, 5),
            ]
        )
    )
    result = table.ingest(frame, settings=SETTINGS)
    assert (result.rows_read, result.rows_quarantined) == (6, 1)
    (stored,) = rows_of(table)
    assert (stored["id"], str(stored["day"]), float(stored["price"])) == (3, "2026-03-01", 3.5)
    assert table.quarantine().waiting == 1
    patched = lake.table(f"{table_name}_patched")
    with pytest.raises(DataError, match=r"merge = .patch., .* these records come as columns"):
        patched.ingest(frame, settings={**SETTINGS, "merge": "patch"})


def test_values_that_look_encoded(lake: Lake, table_name: str) -> None:
    """Said once of each field, with flags that work."""
    table, other = lake.table(table_name), lake.table(f"{table_name}_told")
    row = {"id": 1772355600000, "price": "AQ==", "name": "Anna", "born": 20513, "count": 20513}
    times = {"seen": 1772355600000000, "left": 1772355600000, "big": 1772355600}
    messages = [{"op": "c", "after": {**row, **times}, "source": LSN}]
    hints = table.ingest(messages, settings=SETTINGS).hints
    assert [hint.partition(":")[0] for hint in hints] == [
        "price looks like a decimal in base64",
        "born looks like days since 1970",
        "seen looks like microseconds since 1970",
        "left looks like milliseconds since 1970",
    ]
    more = [{"op": "u", "after": {**row, **times, "sold_date": 7}, "source": {**LSN, "lsn": 50}}]
    assert [hint.split()[0] for hint in table.ingest(more).hints] == ["sold_date"]
    flags = [flag for hint in hints for flag in re.findall(r"--(hint|set) (\S+)=([a-z]+)", hint)]
    told = {f"hints.{name}" if kind == "hint" else name: value for kind, name, value in flags}
    assert told == {"hints.seen": "timestamp", "epoch_units.seen": "us", "hints.left": "timestamp"}
    assert len(other.ingest(messages, settings={**SETTINGS, **told}).hints) == 2
    (stored,) = rows_of(other)
    assert str(stored["seen"]).startswith("2026-03-01 09:00:00") and stored["left"] == stored["seen"]


@pytest.mark.nightly
def test_values_that_are_left_out(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, chance, source = lake.table(table_name), random.Random(9), tmp_path / "in"
    source.mkdir()
    database = LargeValues(chance)
    messages = [message for _ in range(60) for message in database.step()]
    sent = chance.sample(messages, len(messages))
    for number in range(3):
        put(source / f"{number}.jsonl", sent[number::3])
        table.ingest(source / f"{number}.jsonl", settings=SETTINGS)
    unknown = {"op": "u", "after": {"id": 99, "n": 0, "big": IT}, "source": {**LSN, "lsn": 7}}
    put(source / "3.jsonl", [unknown])
    result = table.ingest(source / "3.jsonl")
    assert result.by_key.inserted == 1

    rows = {key_of(row): row for row in rows_of(table)}
    lone = rows.pop(key_of({"id": 99}))
    assert (lone["big"], lone["_change"]["unavailable"]) == (None, '["big"]')
    big = {key: row["big"] for key, row in database.rows.items()}
    assert {key: row["big"] for key, row in rows.items()} == big
    verdict = table.verify(source, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.found) == (0, 0, len(database.rows) + 1)
    put(source / "4.jsonl", [{**unknown, "after": {"id": 99, "n": 0, "big": "known"}}])
    assert table.verify(source).missing == 1


@pytest.mark.iceberg_only("of the source alone")
def test_a_topic(lake: Lake, table_name: str, kafka: Kafka) -> None:
    """The keys of deletes are those of their messages: replica identity is that of the key."""
    table, chance, topic = lake.table(table_name), random.Random(8), f"topic-{table_name}"
    database, url = Database(chance, "postgresql"), f"kafka://{kafka.address}/{topic}"
    messages = [message for _ in range(60) for message in database.step()]
    sent = [
        (
            json.dumps({"schema": {}, "payload": message.pop("_key")}).encode(),
            json.dumps(message).encode() if message else None,
        )
        for message in map(dict, messages)
    ]
    for death, part in zip(["", "commit", "committed"], [sent[:40], sent[20:50], sent[50:]], strict=True):
        kafka.send(topic, part, partition=0)
        run(table, url, death, max_records=30, settings=SETTINGS)
    kafka.send(
        topic, [(b'{"id": 1}', b'{"op": "q"}'), (None, b'{"op": "d", "source": {"lsn": 1}}')], partition=0
    )
    run(table, url, settings=SETTINGS)

    assert held(table) == {key: row["n"] for key, row in database.rows.items()}
    assert table.verify(messages, exactly=True).missing == 0
    waiting = lake.table(f"{table_name}__quarantine").read().select("offset", "key", "reason").collect()
    assert sorted((row.offset - len(sent) - 20, row.key) for row in waiting) == [(0, '{"id": 1}'), (1, None)]


@pytest.mark.parametrize("whole", [True, False])
def test_documents_of_mongodb(lake: Lake, table_name: str, tmp_path: Path, whole: bool) -> None:
    """Updates come with their documents, or as patches."""
    table, chance, source = lake.table(table_name), random.Random(3), tmp_path / "in.jsonl"
    collection = Collection(chance, whole=whole)
    put(source, [collection.step() for _ in range(60)])
    merge = {} if whole else {"merge": "patch"}
    result = table.ingest(source, settings={"key": "_id", "envelope": "debezium", **merge})
    assert result.rows_quarantined == 0
    assert {row["_id"]: row["n"] for row in rows_of(table)} == {
        id_: document.get("n") for id_, document in collection.documents.items()
    }
    verdict = table.verify(source, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.found) == (0, 0, len(collection.documents))


@pytest.mark.iceberg_only("of the source alone")
def test_a_topic_of_avro(lake: Lake, table_name: str, kafka: Kafka) -> None:
    """Values and keys by a registry; what cannot be read waits."""
    table, topic = lake.table(table_name), f"avro-{table_name}"
    with Registry() as registry:
        sent = messages(registry)
        kafka.send(topic, sent, partition=0)
        options = {"registry": {"url": registry.url}, "value_format": "avro", "kafka_metadata": True}
        run(table, f"kafka://{kafka.address}/{topic}", settings=SETTINGS, **options)
        assert rows_of(table) == []
        assert table.quarantine().waiting == 4
        more = avro(1, ENVELOPE, {"op": "u", "after": {"id": 8, "born": 1}, "source": {**LSN, "lsn": 50}})
        kafka.send(topic, [(None, more)], partition=0)
        run(table, f"kafka://{kafka.address}/{topic}", settings=SETTINGS, **options)
    (row,) = rows_of(table)
    assert (row["id"], str(row["born"]), row["_kafka"]["offset"]) == (8, "1970-01-02", 8)
