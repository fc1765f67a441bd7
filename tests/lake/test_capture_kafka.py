"""Captures of Kafka: a real broker on this machine."""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from driftline import AuditError
from driftline.capture.seeking import Seek
from driftline.capture.status import CaptureStatus
from driftline.capture.targets import Batch
from driftline.errors import DataError, SetupError, UsageError
from driftline.lake import Lake, Table, check_sources
from driftline.quarantine import table as quarantine
from driftline.verify import messages
from lake.formats import catalog_file
from servers.kafka import PASSWORDS, Kafka


class Died(Exception):
    pass


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


@pytest.fixture
def topic(table_name: str) -> str:
    return f"topic-{table_name}"


def url(kafka: Kafka, topic: str) -> str:
    return f"kafka://{kafka.address}/{topic}"


def captured(table: Table, data: Any, **options: Any) -> list[Batch]:
    batches: list[Batch] = []
    query = table.capture(data, name="orders", on_batch=batches.append, **options)
    assert query.awaitTermination(120)
    return batches


def ids(table: Table) -> list[Any]:
    return sorted(row.id for row in table.read().select("id").collect())


def test_records_are_taken_once(table: Table, kafka: Kafka, topic: str) -> None:
    kafka.send(topic, [json.dumps({"id": i}).encode() for i in range(20)])
    first = captured(table, url(kafka, topic), max_records=8)
    written = [b.result.rows_written for b in first]
    assert sum(written) == 20 and len(written) >= 3 and max(written) <= 8
    assert captured(table, url(kafka, topic)) == []
    kafka.send(topic, [b'{"id": "x", "new": {"a": 1.50}}'])
    (batch,) = captured(table, url(kafka, topic))
    assert {c.path for c in batch.result.changes} == {("id_string",), ("new",), ("new", "a")}
    assert any(c.reason.location and str(c.reason.location).startswith(topic) for c in batch.result.changes)
    assert table.read().where("id is not null").select("id").distinct().count() == 20


@pytest.mark.iceberg_only("of the source alone")
def test_tombstones_and_values_that_are_no_records(table: Table, kafka: Kafka, topic: str) -> None:
    values = [b'{"id": 1}', None, b"bad", b"", b" \n", b'{"id": "\xff"}', b"42", None, b'{"id": 2}']
    kafka.send(topic, values, partition=1)
    (batch,) = captured(table, url(kafka, topic))
    assert (batch.tombstones, batch.result.rows_written, batch.result.rows_quarantined) == (2, 2, 5)
    kept = quarantine.of(table.format).read().orderBy("offset").collect()
    assert [(r.topic, r.partition, r.offset, r.raw) for r in kept] == [
        (topic, 1, 2, "bad"),
        (topic, 1, 3, ""),
        (topic, 1, 4, " \n"),
        (topic, 1, 5, '{"id": "\\xff"}'),
        (topic, 1, 6, "42"),
    ]
    assert all(r.reason and r.source is None for r in kept)
    assert [r.raw_bytes for r in kept if r.raw_bytes] == [b'{"id": "\xff"}']
    kafka.send(topic, [None], partition=1)
    (batch,) = captured(table, url(kafka, topic))
    assert (batch.tombstones, batch.result.snapshot) == (1, None)


@pytest.mark.iceberg_only("of the source alone")
@pytest.mark.parametrize("more", [b'{"id": 3, "_kafka": "mine"}', b"bad", b'{"id": 3, "a": 1.50}\n'])
def test_where_each_record_came_from(table: Table, kafka: Kafka, topic: str, more: bytes) -> None:
    """The metadata stand in a column that no key of the data gets into."""
    kafka.send(topic, [(b"k1", b'{"id": 1, "a": "x"}'), (b"\xff", b'{"id": 2}'), (None, None)], partition=0)
    (first,) = captured(table, url(kafka, topic), kafka_metadata=True)
    assert [c.path for c in first.result.changes if c.path[0] == "_kafka"] == [("_kafka",)]
    kafka.send(topic, [(b"k3", b'{"id": 3, "_kafka": {"key": 5}}'), (b"k4", more)], partition=1)
    captured(table, url(kafka, topic), kafka_metadata=True)
    rows = {r.id: r._kafka for r in table.read().where("_kafka.key != 'k4' or _kafka.key is null").collect()}
    assert {i: (k.key, k.key_bytes, k.topic, k.partition, k.offset) for i, k in rows.items()} == {
        1: ("k1", None, topic, 0, 0),
        2: (None, b"\xff", topic, 0, 1),
        3: ("k3", None, topic, 1, 0),
    }
    assert rows[1].timestamp is not None
    names = [f.name for f in table.state().schema.struct.fields]
    assert "_kafka_record" in names or any(n.startswith("_kafka_") for n in names)


@pytest.mark.ducklake_only("test_metadata.py replays rows with their places over both formats")
def test_a_row_tells_its_offset_and_so_does_a_replayed_one(table: Table, kafka: Kafka, topic: str) -> None:
    """The place that the quarantine keeps; in the quarantine's own order, too."""
    settings = {"policy": "strict", "hints": {"id": "long"}}
    kafka.send(topic, [b'{"id": 0}', b'{"id": 1, "n": 1}', None, b'{"id": 3}'], partition=1)
    captured(table, url(kafka, topic), settings=settings, metadata="topic,partition,offset,file")

    table.replay(settings={"policy": "preserve"})

    rows = {r.id: tuple(r._source) for r in table.read().collect()}
    assert rows == {n: (None, topic, 1, n) for n in (0, 1, 3)}


@pytest.mark.iceberg_only("of the source alone")
def test_metadata_of_batches_with_nothing_new(table: Table, kafka: Kafka, topic: str) -> None:
    for i in range(2):
        kafka.send(topic, [json.dumps({"id": i}).encode()])
        captured(table, url(kafka, topic), kafka_metadata=True)
    assert table.lake.sql(f"select * from {table.format.handle.full_name}.metadata_log_entries").count() == 2
    assert table.read().where("_kafka.offset >= 0").count() == 2


@pytest.mark.iceberg_only("of the source alone")
def test_a_frame_of_ones_own(table: Table, spark: SparkSession, kafka: Kafka, topic: str) -> None:
    kafka.send(topic, [b'{"id": 1}', b"bad"], partition=1)
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    captured(table, frame, json_column="value")
    (kept,) = quarantine.of(table.format).read().collect()
    assert (kept.topic, kept.partition, kept.offset) == (topic, 1, 1)
    captured(lake_table(table, "typed"), frame)
    assert lake_table(table, "typed").read().where("value is not null").count() == 2


def lake_table(table: Table, suffix: str) -> Table:
    return table.lake.table(f"{table.name}_{suffix}")


@pytest.mark.iceberg_only("of the source alone")
def test_a_topic_that_is_not_there(table: Table, kafka: Kafka) -> None:
    with pytest.raises((UsageError, SetupError), match="topic nowhere"):
        captured(table, f"kafka://{kafka.address}/nowhere?x".removesuffix("?x"))


@pytest.mark.parametrize("wrong", ["kafka://", "kafka://host", "kafka://u:p@h/t", "kafka://h/a b"])
@pytest.mark.iceberg_only("of the source alone")
def test_a_url_that_is_none(table: Table, wrong: str) -> None:
    with pytest.raises(UsageError, match="not the URL of a Kafka topic"):
        table.capture(wrong, name="orders")


@pytest.mark.iceberg_only("of the source alone")
def test_a_broker_that_goes_away_and_comes_back(
    table: Table,
    kafka: Kafka,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["driftline.capture.kafka"], "PATIENCE", 1_000)
    kafka.send(topic, [b'{"id": 1}'])
    captured(table, url(kafka, topic))
    kafka.stop()
    try:
        with pytest.raises(SetupError, match=f"topic {topic}"):
            captured(table, url(kafka, topic))
    finally:
        kafka.start()
    kafka.send(topic, [b'{"id": 2}'])
    captured(table, url(kafka, topic))
    assert ids(table) == [1, 2]


@pytest.mark.iceberg_only("of the source alone")
def test_records_that_kafka_has_deleted(table: Table, kafka: Kafka, topic: str) -> None:
    kafka.send(topic, [json.dumps({"id": i}).encode() for i in range(4)], partition=0)
    captured(table, url(kafka, topic), max_records=2)
    kafka.send(topic, [json.dumps({"id": i}).encode() for i in range(4, 8)], partition=0)
    deleted_before(kafka, topic, 6)
    with pytest.raises(DataError, match="were deleted before"):
        captured(table, url(kafka, topic))
    batches = captured(table, url(kafka, topic), skip_lost=True)
    assert ids(table) == [0, 1, 2, 3, 6, 7]
    assert [one.to_dict() for batch in batches for one in batch.lost] == [
        {"topic": topic, "partition": 0, "first": 4, "last": 5, "offsets": 2}
    ]
    kafka.send(topic, [b'{"id": 8}'], partition=0)
    deleted_before(kafka, topic, 9)
    batches = captured(table, url(kafka, topic), skip_lost=True)
    assert [str(one) for batch in batches for one in batch.lost] == [f"{topic}/0: offsets 8 to 8"]


def deleted_before(kafka: Kafka, topic: str, offset: int) -> None:
    """Deletes the records of partition 0 up to the offset. Its client ends here: an error that a query keeps holds
    the test's own variables, and a client among those would call for the broker until the process ends.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.address})
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(30)


def set_partitions(kafka: Kafka, topic: str, count: int) -> None:
    """Give a topic more partitions."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": kafka.address})
    for done in admin.create_partitions([NewPartitions(topic, count)]).values():
        done.result(30)


@pytest.mark.parametrize("records", [1, 5])
@pytest.mark.iceberg_only("of the source alone")
def test_a_topic_that_was_made_again(table: Table, kafka: Kafka, topic: str, records: int) -> None:
    """It is another topic, whether it has fewer records than the one before had, or more."""
    other = f"{topic}-other"
    both = f"{url(kafka, topic)},{other}"
    kafka.send(topic, [b'{"id": 0}', b'{"id": 1}', b'{"id": 2}'], partition=0)
    kafka.send(other, [b'{"id": 10}'], partition=0)
    captured(table, both)
    made_again(kafka, topic, partitions=1)
    kafka.send(topic, [json.dumps({"id": i}).encode() for i in range(20, 20 + records)], partition=0)
    kafka.send(other, [b'{"id": 11}'], partition=0)
    with pytest.raises(DataError, match=f"topic {topic} was deleted and created again") as caught:
        captured(table, both)
    assert "skip_lost=True" in str(caught.value.hint)
    batches = captured(table, both, skip_lost=True)
    assert [batch.lost for batch in batches] == [()]
    assert ids(table) == [0, 1, 2, 10, 11, *range(20, 20 + records)]
    assert captured(table, both) == []


@pytest.mark.iceberg_only("of the source alone")
@pytest.mark.parametrize("phase", ["writing", "committed"])
def test_a_topic_that_was_made_again_in_the_middle_of_a_batch(
    table: Table,
    kafka: Kafka,
    topic: str,
    phase: str,
) -> None:
    """The batch's records of other topics come once; nothing of the new topic is passed over."""
    other = f"{topic}-other"
    both = f"{url(kafka, topic)},{other}"
    for number in range(2):
        kafka.send(topic, [json.dumps({"id": number}).encode()], partition=0)
        kafka.send(other, [json.dumps({"id": 10 + number}).encode()], partition=0)
        if not number:
            captured(table, both)

    todo = [phase]

    def again(now: str) -> None:
        if now in todo:
            todo.clear()
            made_again(kafka, topic, partitions=2)
            kafka.send(topic, [b'{"id": 20}', b'{"id": 21}', b'{"id": 22}'], partition=0)
            if phase == "committed":
                raise Died

    with pytest.raises(Died if phase == "committed" else DataError):
        captured(table, both, progress=again)
    old = [0, 1] if phase == "committed" else [0]
    captured(table, both, skip_lost=True)
    captured(table, both)
    assert ids(table) == [*old, 10, 11, 20, 21, 22]


def made_again(kafka: Kafka, topic: str, partitions: int) -> None:
    """Deletes the topic, and makes another of its name."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.address})
    for done in admin.delete_topics([topic]).values():
        done.result(30)
    for done in admin.create_topics([NewTopic(topic, partitions)]).values():
        done.result(30)


@pytest.mark.iceberg_only("of the source alone")
def test_transactions(table: Table, kafka: Kafka, topic: str, tmp_path: Path) -> None:
    """Committed records come once, aborted ones never, and the markers that stand among the offsets are no loss."""
    producer = kafka.transactional(topic)
    for start, commit in ((0, True), (10, False), (20, True), (30, False)):
        producer.transaction(
            [json.dumps({"id": i}).encode() for i in range(start, start + 10)], commit=commit
        )
    first = captured(table, url(kafka, topic), max_records=7, checkpoint=tmp_path)
    assert len(first) > 1
    assert CaptureStatus.of(tmp_path) == CaptureStatus(0, has_ended=True)
    assert ids(table) == [*range(10), *range(20, 30)]
    assert captured(table, url(kafka, topic), checkpoint=tmp_path) == []
    with producer.open([b'{"id": 40}']):  # while it is open, nothing behind it can be told
        kafka.send(topic, [b'{"id": 50}'], partition=0)
        assert [b.result.rows_read for b in captured(table, url(kafka, topic), checkpoint=tmp_path)] in (
            [],
            [0],
        )
    producer.transaction([b'{"id": 41}'], commit=False)
    captured(table, url(kafka, topic), checkpoint=tmp_path)
    assert ids(table) == [*range(10), *range(20, 30), 40, 50]
    assert captured(table, url(kafka, topic), checkpoint=tmp_path) == []


LOGIN = {"security.protocol": "sasl_ssl", "sasl.username": "alice", "sasl.password": PASSWORDS["alice"]}


def secured(kafka: Kafka, **more: str) -> dict[str, str]:
    """Settings of a client that alice may log in with, and ``more``, whose underscores are dots."""
    given = {key.replace("_", "."): value for key, value in more.items()}
    return {"sasl.mechanisms": "PLAIN", "ssl.ca.location": str(kafka.authority.file), **LOGIN, **given}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.iceberg_only("of the source alone")
def test_a_secured_topic(table: Table, kafka: Kafka, topic: str, mechanism: str) -> None:
    kafka.send(topic, [b'{"id": 1}', b"bad"])
    client = secured(kafka, sasl_mechanisms=mechanism)
    (batch,) = captured(table, f"kafka://{kafka.secured}/{topic}", kafka=client)
    assert batch.result.rows_written == 1
    told = [json.dumps(batch.to_dict()), str(table.state().properties), str(table.history().to_dict())]
    files = [path for path in Path(str(table.lake.warehouse)).rglob("*") if path.is_file()]
    kept = [path.read_bytes() for path in files]
    password = PASSWORDS["alice"]
    assert any(table.name.partition(".")[2] in str(path) for path in files)
    assert not any(password in text for text in told)
    assert not any(
        secret.encode() in content
        for content in kept
        for secret in (password, password.replace('"', r"\""), "JAAS")
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sasl_password": "wr0ng"}, "Authentication failed"),
        ({"sasl_username": "bob", "sasl_password": PASSWORDS["bob"]}, "[Aa]uthoriz"),
        ({"ssl_ca_location": ""}, "certification path|SSL handshake failed"),
    ],
)
@pytest.mark.iceberg_only("of the source alone")
def test_a_broker_that_refuses(
    table: Table,
    kafka: Kafka,
    topic: str,
    settings: dict[str, str],
    says: str,
) -> None:
    kafka.send(topic, [b'{"id": 1}'])
    client = {key: value for key, value in secured(kafka, **settings).items() if value}
    start = time.monotonic()
    with pytest.raises(SetupError, match=says) as caught:
        captured(table, f"kafka://{kafka.secured}/{topic}", kafka=client)
    assert "wr0ng" not in str(caught.value) and "\n" not in caught.value.message
    assert time.monotonic() - start < 60


@pytest.mark.iceberg_only("of the source alone")
def test_a_setting_that_is_misspelt(table: Table, kafka: Kafka) -> None:
    with pytest.raises(UsageError, match=r"no setting 'fetch.max.byte'") as caught:
        captured(table, url(kafka, "any"), kafka={"fetch.max.byte": "1"})
    assert caught.value.hint == "did you mean 'fetch.max.bytes'?"


@pytest.mark.iceberg_only("of the source alone")
def test_where_a_capture_begins(table: Table, kafka: Kafka, topic: str) -> None:
    """By --from, when it first runs; then it goes on where it was."""
    kafka.send(topic, [b'{"id": 1}'], partition=0)
    time.sleep(0.01)
    then = datetime.now(UTC)
    time.sleep(0.01)  # Kafka's times are in milliseconds
    kafka.send(topic, [b'{"id": 2}'], partition=0)
    captured(table, url(kafka, topic), start=then.isoformat())
    assert ids(table) == [2]
    later = lake_table(table, "later")
    assert sum(batch.result.rows_read for batch in captured(later, url(kafka, topic), start="latest")) == 0
    kafka.send(topic, [b'{"id": 3}'], partition=1)
    captured(later, url(kafka, topic), start="earliest")
    assert ids(later) == [3]
    with pytest.raises(UsageError, match="'soon' is not a position"):
        captured(lake_table(table, "soon"), url(kafka, topic), start="soon")


@pytest.mark.iceberg_only("of the source alone")
def test_headers(table: Table, kafka: Kafka, topic: str) -> None:
    headers = [("trace", b"abc"), ("trace", b"\xff"), ("none", None)]
    kafka.send(topic, [(None, b'{"id": 1}', headers), (None, b'{"id": 2}')], partition=0)
    captured(table, url(kafka, topic), metadata=True)
    rows = {r.id: r.headers for r in table.read().select("id", "_kafka.headers").collect()}
    assert [tuple(header) for header in rows[1]] == [
        ("trace", "abc", None),
        ("trace", None, b"\xff"),
        ("none", None, None),
    ]
    assert not rows[2]


# Restored ------------------------------------------------------------------------------------------------------

# Each case is over one format or the other.
ALIKE = "a format keeps the last offsets of a topic as one text, which the same lines read"


class Restorable:
    """A capture of a topic, and backups of its checkpoint and of the catalog."""

    def __init__(self, table: Table, kafka: Kafka, topic: str, folder: Path) -> None:
        self.table, self.kafka, self.topic = table, kafka, topic
        self.checkpoint, self.kept, self.catalog = folder / "checkpoint", folder / "kept", folder / "catalog"
        self.number = 0

    def send(self) -> None:
        """Two records more, in two partitions."""
        for partition in range(2):
            self.kafka.send(self.topic, [json.dumps({"id": self.number}).encode()], partition=partition)
            self.number += 1

    def start(self, **options: Any) -> list[Batch]:
        return captured(self.table, url(self.kafka, self.topic), checkpoint=self.checkpoint, **options)

    def seek(self, to: str, *, dry_run: bool = False) -> Seek:
        return self.table.seek(
            url(self.kafka, self.topic), name="orders", to=to, checkpoint=self.checkpoint, dry_run=dry_run
        )

    def keep_checkpoint(self) -> None:
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.copytree(self.checkpoint, self.kept)

    def keep_table(self) -> None:
        shutil.copyfile(catalog_file(self.table.lake), self.catalog)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def restore_checkpoint(self) -> None:
        self.lose_checkpoint()
        shutil.copytree(self.kept, self.checkpoint)

    def restore_table(self) -> None:
        shutil.copyfile(self.catalog, catalog_file(self.table.lake))


@pytest.fixture
def restorable(table: Table, kafka: Kafka, topic: str, tmp_path: Path) -> Restorable:
    run = Restorable(table, kafka, topic, tmp_path)
    run.send()
    run.start()
    run.keep_checkpoint()
    run.keep_table()
    for _ in range(2):
        run.send()
    assert len(run.start(max_records=2)) == 2
    return run


@pytest.mark.ducklake_only(ALIKE)
def test_checkpoint_older_than_the_table_leaves_out_the_offsets_that_it_has(
    restorable: Restorable, caplog: pytest.LogCaptureFixture
) -> None:
    restorable.restore_checkpoint()
    restorable.send()
    (batch,) = restorable.start()
    assert (batch.epoch, batch.result.rows_written) == (3, 2)
    assert f"{restorable.topic}/0: offsets 1 to 2" in caplog.text
    assert restorable.start() == []
    restorable.send()
    assert [batch.epoch for batch in restorable.start()] == [4]
    assert ids(restorable.table) == list(range(10))


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param("table", marks=pytest.mark.ducklake_only(ALIKE)),
        pytest.param("checkpoint", marks=pytest.mark.iceberg_only(ALIKE)),
    ],
)
def test_table_older_than_its_checkpoint_names_the_offsets_between(
    restorable: Restorable, choice: Any
) -> None:
    restorable.restore_table()
    for _ in range(2):
        with pytest.raises(DataError, match=r"batches 1 to 2 \(.*/0: offsets 1 to 2, .*/1: offsets 1 to 2\)"):
            restorable.start()
    restorable.start(resume_from=choice)
    restorable.send()
    restorable.start()
    lost = set() if choice == "table" else {2, 3, 4, 5}
    assert ids(restorable.table) == sorted({*range(8)} - lost)


@pytest.mark.ducklake_only(ALIKE)
def test_a_lost_checkpoint_goes_on_at_the_offsets_of_the_table(restorable: Restorable) -> None:
    shutil.rmtree(restorable.checkpoint)
    restorable.send()
    with pytest.raises(DataError, match="by another checkpoint"):
        restorable.start()
    restorable.start(resume_from="table")
    restorable.send()
    restorable.start()
    assert ids(restorable.table) == list(range(10))


@pytest.mark.iceberg_only(ALIKE)
def test_a_lost_checkpoint_takes_partitions_that_came_since_from_their_beginning(
    restorable: Restorable,
) -> None:
    shutil.rmtree(restorable.checkpoint)
    set_partitions(restorable.kafka, restorable.topic, 3)
    restorable.kafka.send(restorable.topic, [b'{"id": 6}'], partition=2)
    restorable.start(resume_from="table")
    assert ids(restorable.table) == list(range(7))


@pytest.mark.ducklake_only(ALIKE)
def test_a_restored_table_lacks_what_partitions_brought_that_came_since(restorable: Restorable) -> None:
    set_partitions(restorable.kafka, restorable.topic, 3)
    restorable.kafka.send(restorable.topic, [b'{"id": 6}'], partition=2)
    restorable.start()
    restorable.restore_table()
    with pytest.raises(DataError, match=r"/2: offsets 0 to 0\)"):
        restorable.start()
    restorable.start(resume_from="table")
    assert ids(restorable.table) == list(range(7))


@pytest.mark.iceberg_only(ALIKE)
def test_a_lost_checkpoint_of_a_topic_that_was_made_again_is_an_error(restorable: Restorable) -> None:
    shutil.rmtree(restorable.checkpoint)
    made_again(restorable.kafka, restorable.topic, partitions=1)
    values = [json.dumps({"id": 20 + n}).encode() for n in range(5)]
    restorable.kafka.send(restorable.topic, values, partition=0)
    with pytest.raises(DataError, match="was deleted and created again"):
        restorable.start(resume_from="table")
    restorable.start(resume_from="table", skip_lost=True)
    assert ids(restorable.table) == [*range(6), *range(20, 25)]
    assert restorable.start() == []


@pytest.mark.ducklake_only(ALIKE)
def test_a_table_of_before_its_topic_was_made_again_lacks_all_of_the_new_one(restorable: Restorable) -> None:
    made_again(restorable.kafka, restorable.topic, partitions=2)
    restorable.send()
    restorable.start(skip_lost=True)
    restorable.restore_table()
    with pytest.raises(DataError, match=r"/0: offsets 0 to 0, .*/1: offsets 0 to 0\)"):
        restorable.start()
    restorable.start(resume_from="table")
    assert ids(restorable.table) == [0, 1, 6, 7]
    assert restorable.start() == []


@pytest.mark.iceberg_only(ALIKE)
def test_a_checkpoint_of_before_its_topic_was_made_again_doubles_nothing_that_the_table_has_of_the_new_one(
    restorable: Restorable,
) -> None:
    made_again(restorable.kafka, restorable.topic, partitions=2)
    restorable.send()
    restorable.start(skip_lost=True)
    restorable.restore_checkpoint()
    with pytest.raises(DataError, match="was deleted and created again"):
        restorable.start()
    restorable.send()
    restorable.start(skip_lost=True)
    assert ids(restorable.table) == list(range(10))
    assert restorable.start() == []


@pytest.mark.ducklake_only(ALIKE)
def test_offsets_count_of_a_topic_with_another_id_once_a_person_has_deleted_the_ids(
    restorable: Restorable,
) -> None:
    """As of a topic that moved to another cluster with its offsets."""
    made_again(restorable.kafka, restorable.topic, partitions=2)
    restorable.number = 0
    for _ in range(3):
        restorable.send()
    note = restorable.checkpoint / "capture.json"
    note.write_text(json.dumps({k: v for k, v in json.loads(note.read_text()).items() if k != "topics"}))
    for _ in range(2):
        assert restorable.start() == []
    restorable.send()
    restorable.start()
    assert ids(restorable.table) == list(range(8))


@pytest.mark.parametrize(
    "restored",
    [
        pytest.param("table", marks=pytest.mark.iceberg_only(ALIKE)),
        pytest.param("checkpoint", marks=pytest.mark.ducklake_only(ALIKE)),
    ],
)
def test_what_a_restore_left_of_other_topics_than_the_one_made_again_is_neither_lost_nor_doubled(
    table: Table, kafka: Kafka, topic: str, tmp_path: Path, restored: str
) -> None:
    other = f"{topic}-other"
    run = Restorable(table, kafka, f"{topic},{other}", tmp_path)
    for number in range(3):
        kafka.send(topic, [json.dumps({"id": number}).encode()], partition=0)
        kafka.send(other, [json.dumps({"id": 10 + number}).encode()], partition=0)
        run.start()
        if not number:
            run.keep_checkpoint()
            run.keep_table()
    run.restore_table() if restored == "table" else run.restore_checkpoint()
    made_again(kafka, topic, partitions=1)
    kafka.send(topic, [b'{"id": 20}'], partition=0)
    if restored == "table":
        with pytest.raises(DataError, match=rf"\({other}/0: offsets 1 to 2\)"):
            run.start(skip_lost=True)
        run.start(resume_from="table")
    else:
        run.start(skip_lost=True)
    old = [0] if restored == "table" else [0, 1, 2]
    assert ids(table) == [*old, 10, 11, 12, 20]
    assert run.start() == []


@pytest.mark.iceberg_only(ALIKE)
def test_batches_of_tombstones_alone_are_no_gap(restorable: Restorable) -> None:
    restorable.kafka.send(restorable.topic, [None], partition=0)
    restorable.start()
    assert restorable.start() == []
    restorable.send()
    restorable.start()
    assert ids(restorable.table) == list(range(8))


# Another position, by seek ---------------------------------------------------------------------------------------


@pytest.mark.ducklake_only(ALIKE)
def test_seek_to_the_beginning_takes_all_offsets_again(restorable: Restorable) -> None:
    ranges = tuple(f"{restorable.topic}/{partition}: offsets 0 to 2" for partition in range(2))
    planned = restorable.seek("earliest", dry_run=True)
    assert (planned.again, planned.passed) == (ranges, ())
    assert restorable.start() == []
    assert restorable.seek("earliest").again == ranges
    restorable.start()
    restorable.send()
    restorable.start()
    assert ids(restorable.table) == sorted([*range(6), *range(8)])
    assert restorable.start() == []


@pytest.mark.iceberg_only(ALIKE)
def test_seek_to_the_end_passes_over_what_came_since(restorable: Restorable) -> None:
    restorable.send()
    done = restorable.seek("latest")
    assert (done.again, done.passed) == (
        (),
        tuple(f"{restorable.topic}/{partition}: offsets 3 to 3" for partition in range(2)),
    )
    restorable.start()
    restorable.send()
    restorable.start()
    assert ids(restorable.table) == [*range(6), 8, 9]


@pytest.mark.ducklake_only(ALIKE)
def test_seek_to_a_time_takes_the_records_since_then(restorable: Restorable) -> None:
    then = datetime.now(UTC)
    time.sleep(0.01)  # Kafka's times are in milliseconds
    restorable.send()
    restorable.start()
    done = restorable.seek(then.isoformat())
    assert done.again == tuple(f"{restorable.topic}/{partition}: offsets 3 to 3" for partition in range(2))
    restorable.start()
    assert ids(restorable.table) == [*range(6), 6, 6, 7, 7]
    assert restorable.seek("2999-01-01").again == ()


@pytest.mark.iceberg_only(ALIKE)
def test_seek_after_a_batch_whose_end_spark_did_not_note_counts_the_batch(restorable: Restorable) -> None:
    restorable.send()
    restorable.start()
    last = max(int(path.name) for path in (restorable.checkpoint / "spark/commits").glob("[0-9]*"))
    (restorable.checkpoint / f"spark/commits/{last}").unlink()
    assert restorable.seek("latest").passed == ()
    restorable.send()
    restorable.start()
    assert ids(restorable.table) == list(range(10))


@pytest.mark.ducklake_only(ALIKE)
def test_seek_in_a_restored_table_is_refused(restorable: Restorable) -> None:
    restorable.restore_table()
    with pytest.raises(DataError, match="differ, as one of them was restored"):
        restorable.seek("latest")


@pytest.mark.iceberg_only("of the source alone: audits of both formats are in test_audit.py")
def test_offsets_stay_before_a_batch_that_fails_its_audit_or_move_as_it_waits(
    table: Table, kafka: Kafka, topic: str
) -> None:
    audited = {"audit": True, "fail_on": "sibling"}
    kafka.send(topic, [b'{"id": 1}'], partition=1)
    captured(table, url(kafka, topic), **audited)
    kafka.send(topic, [b'{"id": 2}', b'{"id": "x"}', None], partition=1)
    for _ in range(2):
        with pytest.raises(AuditError, match="1 fail-on sibling"):
            captured(table, url(kafka, topic), **audited)
    assert ids(table) == [1]
    (batch,) = captured(table, url(kafka, topic), **audited, on_audit="quarantine")
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (0, 2)
    kept = quarantine.of(table.format).read().orderBy("offset").collect()
    assert [(r.reason, r.topic, r.partition, r.offset, r.raw) for r in kept] == [
        ("audit", topic, 1, 1, '{"id": 2}'),
        ("audit", topic, 1, 2, '{"id": "x"}'),
    ]
    assert captured(table, url(kafka, topic), **audited) == []
    assert table.replay().written == 2
    assert table.read().count() == 3


VERIFIED: dict[str, Any] = {"audit": True, "verify": True}


@pytest.mark.iceberg_only("of the source alone: audits of both formats are in test_audit.py")
@pytest.mark.parametrize("many", [1, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_micro_batch_of_a_topic_is_verified_before_anyone_sees_it(
    table: Table, kafka: Kafka, topic: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [b'{"id": %d, "n": 5.50}' % number for number in range(many)]
    kafka.send(topic, [*first, None, b"bad", b" ", b'{"id": -1,\n "n": "x"}\n', b'{"id": -2, "more": [1]}'])
    (batch,) = captured(table, url(kafka, topic), kafka_metadata=True, **VERIFIED)
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (many + 2, 2)

    def twice(frame: DataFrame, *args: Any, **options: Any) -> messages.WrittenMessages:
        """The messages, each of them twice, as if a row of each had been lost."""
        return messages.write(frame.union(frame), *args, **options)

    kafka.send(topic, [b'{"id": -3}', b'{"id": -4}'], partition=1)
    monkeypatch.setattr(check_sources, "written_messages", twice)
    with pytest.raises(AuditError, match="2 verify") as raised:
        captured(table, url(kafka, topic), **VERIFIED)
    assert all(violation.seen_in.startswith(f"{topic}/1") for violation in raised.value.result.audit)
    assert table.read().count() == many + 2


@pytest.mark.iceberg_only("of the source alone: audits of both formats are in test_audit.py")
def test_messages_are_verified_by_their_keys(table: Table, kafka: Kafka, topic: str) -> None:
    keyed = {"key": "_key", "delete_when": "value is null"}
    kafka.send(topic, [(b"1.10", b'{"n": 1}'), (b"a", b'{"n": "x"}'), (b"7", b'{"n": 2}')], partition=1)
    captured(table, url(kafka, topic), **keyed, **VERIFIED)
    kafka.send(
        topic, [(b"a", None), (b"b", b'{"n": 3}'), (b"b", b"bad"), (b"1.10", b'{"n": 7}')], partition=1
    )
    (batch,) = captured(table, url(kafka, topic), **VERIFIED)
    assert batch.result.rows_quarantined == 1
    assert table.read().count() == 3  # of the keys 1.10, 7 and b


def test_null_value_that_deletes_no_row_waits_in_a_batch_that_is_verified(
    table: Table, kafka: Kafka, topic: str
) -> None:
    keyed = {"key": "_key.id", "delete_when": "value is null and _key.id < 3", "audit": True, "verify": True}
    messages: list[Any] = [(b'{"id": %d}' % id_, b'{"n": 1}') for id_ in (1, 5)]
    kafka.send(
        topic,
        [*messages, (b'{"id": 1}', None), (b'{"id": 5}', None), (None, None), (b'{"id": 2}', b"{}")],
        partition=0,
    )
    (batch,) = captured(table, url(kafka, topic), **keyed)
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (2, 2)
    assert {row._key.id for row in table.read().collect()} == {2, 5}
