"""Streams Kafka topics through Spark's own connector."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from py4j.protocol import Py4JJavaError

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.flows import compare_numbers
from driftline.capture.kafka_client import (
    Admin,
    LostOffsets,
    Offsets,
    Topic,
    check_names,
    client_settings,
    lost,
    with_open_key,
)
from driftline.capture.resuming import Positions, Resumption, is_ahead, named_offsets, offset_ranges
from driftline.capture.seeking import Position, Sought, nanoseconds, not_begun, parsed
from driftline.config import redacted
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.readers.kafka.registry import Registry
from driftline.readers.kafka.values import KINDS, Wire
from driftline.runtime.failure import of_text
from driftline.runtime.spark_version import java_type
from driftline.sources.kafka import kafka_json
from driftline.sources.kafka_typed import kafka_typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.history.batch_properties import Captured
    from driftline.sources.scan import Source

_LOG = logging.getLogger("driftline")
_FROM = "from"  # of what a seek has settled: where the checkpoint was before


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics ``names``.

    Attributes:
        skip_lost: skip records that Kafka no longer has.
    """

    names: tuple[str, ...]
    admin: Admin
    checkpoint: Checkpoint
    skip_lost: bool

    def begin(self, resumption: Resumption) -> Positions | None:
        """Check that the checkpoint's offsets are of these topics. Raises as `check`.

        With ``skip_lost``, a topic that was created again is read from its beginning instead.

        Returns:
            Where a first micro-batch is to begin; None if the checkpoint knows, or the table has none.
        """
        if not self.checkpoint.topics and resumption.last is not None:
            self._learn_topics(resumption.last, is_lost=resumption.is_adopted)
        if self.skip_lost and (again := self._made_again()):
            self._begin_anew(again, resumption)
        self.check()
        beginning = _resume(resumption)
        if beginning is None:
            return None
        # Spark wants each partition of the topics, and no other. Those that came since have no batch yet.
        return {
            name: {str(number): beginning.get(name, {}).get(str(number), 0) for number in topic.partitions}
            for name, topic in self.admin.topics(self.names).items()
        }

    def check(self) -> None:
        """Raise DataError if a topic was created again."""
        if again := ", ".join(self._made_again()):
            raise DataError(
                f"topic {again} was deleted and created again: the offsets of the last batch do not apply to it",
                hint="pass --skip-lost to ingest the new topic from its beginning; "
                "what was not ingested of the old one is lost",
            )

    def seek(self, resumption: Resumption, to: Position, *, dry_run: bool) -> Sought:
        """Have the checkpoint go on at ``to``, as `Table.seek`. Raises as `check`."""
        self.check()
        checkpoint, committed = self.checkpoint, self.checkpoint.last("commits")
        sought = _sought(resumption)
        position, in_table = sought or _present(checkpoint), _table_has(resumption, committed)
        if in_table is not None and _is_planned(resumption, in_table):
            position = in_table
        if not position:
            raise not_begun(resumption.name)
        # What the table lacks would be passed over with the rest, without a word of its own.
        if in_table not in (None, position):
            raise resumption.unsettled()
        target = {topic: dict(partitions) for topic, partitions in position.items()}
        # Rounded up to Kafka's milliseconds: what is older than the moment stays out.
        at = to if isinstance(to, str) else -(-nanoseconds(to) // 1_000_000)
        topics = self.admin.topics(self.names)
        places = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        for (topic, number), offset in self.admin.offsets(places, at).items():
            target.setdefault(topic, {})[str(number)] = offset
        if not dry_run:
            _move(resumption, target)
        return offset_ranges(target, position), offset_ranges(position, target)

    def lost(self, epoch: int) -> tuple[LostOffsets, ...]:
        """The offsets of a micro-batch that Kafka deleted before they were read.

        None without ``skip_lost``: their loss is an error then.
        """
        return lost(self.admin, Offsets(self.checkpoint), epoch) if self.skip_lost else ()

    def _learn_topics(self, last: Captured, *, is_lost: bool) -> None:
        """Take the ids of the topics from the table, where the checkpoint has none.

        Args:
            last: the last batch that the table has.
            is_lost: the checkpoint is a new one in place of another; else a person has deleted the ids, and
                the offsets are those of the topics that are there now.
        """
        checkpoint = self.checkpoint
        if is_lost:
            checkpoint.remember_topics(last.contents.get("topics", {}))
            return
        contents = {**(checkpoint.settled(last).get("contents") or last.contents)}
        if contents.pop("topics", None):
            checkpoint.settle(last, checkpoint.last("commits"), contents)

    def _made_again(self) -> dict[str, Topic]:
        remembered = self.checkpoint.topics
        now = {name: topic for name, topic in self.admin.topics(self.names).items() if topic.id}
        if new := {name: topic.id for name, topic in now.items() if topic.id and name not in remembered}:
            self.checkpoint.remember_topics(new)
        return {name: topic for name, topic in now.items() if remembered.get(name, topic.id) != topic.id}

    def _begin_anew(self, again: Mapping[str, Topic], resumption: Resumption) -> None:
        # A newer table than the checkpoint may have records of the topics that are there now.
        has = _of_topics(resumption.last, again)
        beginnings = {
            name: {str(partition): has.get(name, {}).get(str(partition), 0) for partition in topic.partitions}
            for name, topic in again.items()
        }
        number, position = self.checkpoint.last("commits"), _present(self.checkpoint)
        in_table = _table_has(resumption, number)
        if in_table is not None and _is_planned(resumption, in_table):  # Spark brings it again, and it is in
            number, position = self.checkpoint.last("offsets"), in_table
        # The offsets of the table's last batch are of the topic before; those of other topics count.
        resumption.settle(number, {"offsets": {**position, **(in_table or {}), **beginnings}})
        for name in self.checkpoint.offsets_in_use():
            # A micro-batch that Spark repeats then has the records of the other topics only.
            offsets = self.checkpoint.spark_offsets(name)
            self.checkpoint.replace_offsets(name, {**offsets, **beginnings})
        self.checkpoint.keep()  # before the ids: they say that this is done
        self.checkpoint.remember_topics({name: topic.id for name, topic in again.items() if topic.id})
        _LOG.warning("topic %s was deleted and made again: it is taken from its beginning", ", ".join(again))


SCHEME = "kafka://"
PATIENCE = 20_000  # milliseconds for an answer of the broker's
_PATIENCE, _TRIES = "default.api.timeout.ms", 3  # Spark asks four times, and we as long
_COLUMNS = {"key", "value", "topic", "partition", "offset", "timestamp"}
_AWAY = re.compile(
    r"TimeoutException|Timed out waiting|Timeout of \d+ms|DisconnectException|Failed to create new Kafka"
    r"|No resolvable bootstrap|Connection to node|TimeoutException|BrokerNotAvailable|failed to get records",
    re.IGNORECASE,
)
_OURS = re.compile(r"driftline\.errors\.(?:Setup|Usage)Error: ")
_LOST = re.compile(r"KAFKA_DATA_LOSS|failOnDataLoss|OffsetOutOfRange|data may have been lost", re.IGNORECASE)
_UNKNOWN = re.compile(r"UnknownTopicOrPartition|does not host this topic|topic.{0,40}(not exist|is invalid)")
_REFUSED = re.compile(r"(?:Sasl|Ssl)AuthenticationException|SSLHandshakeException|AuthorizationException")
_SETTINGS = re.compile(r"kafka\.common\.(?:config\.ConfigException|errors\.InvalidConfigurationException)")
JSON_SCHEMA = "json-schema"
ValueFormat: TypeAlias = Literal["json", "avro", "protobuf", "json-schema"]
TEXTS = ("json", JSON_SCHEMA)
_AROUND = re.compile(
    r"^.*terminated with exception: |^(?:[\w$]+\.)+[\w$]+: |(?<=: )(?:[\w$]+\.)+[\w$]+: |\s*SQLSTATE: \w+"
)


@dataclass(frozen=True, slots=True)
class TopicReading:
    """Options for reading topics, named as the parameters of `Table.capture`."""

    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    start: str | datetime = "earliest"
    metadata: bool = False
    max_records: int | None = None
    skip_lost: bool = False
    value_format: ValueFormat = "json"
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)

    def values(self) -> Callable[[DataFrame], Source]:
        """Return the function that makes a source of a micro-batch, by the values' format.

        Raises UsageError.
        """
        fmt, metadata = self.value_format, self.metadata
        if fmt in KINDS:
            if not self.registry.get("url"):
                raise UsageError(
                    f"values in {fmt} need the registry that has their schemas",
                    hint="pass --registry URL, or set url in [registry]",
                )
            wire = Wire(fmt, Registry.of(self.registry))
            return lambda frame: kafka_typed(frame, wire, metadata)
        if fmt not in TEXTS:
            raise UsageError(
                f"there is no value format {fmt!r}", hint=f"one of {', '.join((*TEXTS, *KINDS))}"
            )
        return lambda frame: kafka_json(frame, metadata, schemas=fmt == JSON_SCHEMA)


def place(url: str) -> tuple[str, str]:
    """Brokers and topics of a URL.

    >>> place("kafka://a:9092,b:9092/orders,refunds")
    ('a:9092,b:9092', 'orders,refunds')
    """
    brokers, _, topics = url.removeprefix(SCHEME).partition("/")
    if not brokers or not topics or "@" in brokers or not re.fullmatch(r"[\w.,-]+", topics):
        raise UsageError(
            f"{redacted(url)}: not the URL of a Kafka topic", hint="write kafka://HOST:PORT/TOPIC"
        )
    return brokers, topics


def starting(start: str | datetime) -> dict[str, str]:
    """The options that make Spark's connector start there.

    A time without a zone is in UTC. Raises UsageError.

    >>> starting("1970-01-01T00:00:01.5")["startingTimestamp"]
    '1500'
    """
    position = parsed(start)
    if isinstance(position, str):
        return {"startingOffsets": position}
    return {
        "startingTimestamp": str(-(-nanoseconds(position) // 1_000_000)),
        "startingOffsetsByTimestampStrategy": "latest",  # of partitions in which nothing is so young
    }


@dataclass(slots=True)
class Kafka:
    """A stream with the columns of Spark's Kafka source.

    Attributes:
        name: the topics, for messages.
        values: makes a source of a micro-batch.
        client: settings of the connection.
        topics: None if unknown.
    """

    frame: DataFrame
    name: str
    values: Callable[[DataFrame], Source]
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: Topics | None = None
    at: Callable[[Positions], DataFrame] | None = None  # the stream from there on, if nothing else is known
    _lost: tuple[LostOffsets, ...] | None = None

    def stream(self) -> DataFrame:
        """The stream of the topics."""
        return self.frame

    def batches(self, epoch: int) -> Iterable[int]:
        """The micro-batch as the only batch."""
        return (epoch,)

    def source(self, frame: DataFrame, epoch: int) -> Source:
        """Open a micro-batch.

        Raises DataError if a topic was created again: an empty batch has no later check.
        """
        self._check_topics()  # a batch with nothing in it has no commit
        self._lost = None
        return self.values(frame)

    def check(self, epoch: int) -> None:
        """Raise DataError if a topic was created again, and note offsets deleted before the read."""
        self._check_topics()
        self._lost = self._gone(epoch)  # before the commit: a committed batch is not looked at again

    def close(self, epoch: int) -> None:
        """Nothing to finish. The lag comes with Spark's progress."""

    def lost(self, epoch: int) -> tuple[LostOffsets, ...]:
        """The offsets that `check` found lost; if there was no commit, those that are gone now."""
        return self._gone(epoch) if self._lost is None else self._lost  # no commit if all are gone

    def changed_files(self, epoch: int) -> dict[str, int]:
        """None: a topic has no files."""
        return {}

    def notes(self, epoch: int) -> tuple[str, ...]:
        """No notes."""
        return ()

    def _gone(self, epoch: int) -> tuple[LostOffsets, ...]:
        return () if self.topics is None else self.topics.lost(epoch)

    def _check_topics(self) -> None:
        if self.topics is not None:
            self.topics.check()

    def release(self) -> None:
        """Nothing is held."""

    def contents(self, epoch: int) -> dict[str, Any]:
        """The offsets of a micro-batch, by topic and partition: the first, and the one behind the last.

        With the ids of the topics, as the offsets are of no other topic of the same name.
        """
        if self.topics is None:
            return {}
        begin, end = Offsets(self.topics.checkpoint).of(epoch)
        offsets: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), offset in end.items():
            first = begin.get((topic, partition), 0)
            offsets.setdefault(topic, {})[str(partition)] = [first, offset]
        return {"offsets": offsets, "topics": dict(self.topics.checkpoint.topics)}

    def fingerprints(self, epoch: int) -> tuple[int, ...]:
        """None: there are no files."""
        return ()

    def begin(self, resumption: Resumption) -> None:
        """Check the topics against the checkpoint, and that against the table.

        Errors of Java become driftline's.
        """
        if self.topics is None:
            compare_numbers(resumption)
            return
        try:
            beginning = self.topics.begin(resumption)
        except Py4JJavaError as error:
            raise self.explain(str(error)) or SetupError(f"{self.name}: {_sentence(str(error))}") from error
        # Spark has no offsets of its own yet, so they go with the stream's options.
        if beginning is not None and self.at is not None:
            self.frame = self.at(beginning)

    def seek(self, resumption: Resumption, to: Position, *, dry_run: bool) -> Sought:
        """Have the next start go on at ``to``, as `Table.seek`. Errors of Java become driftline's."""
        assert self.topics is not None, "the source is a URL"
        try:
            return self.topics.seek(resumption, to, dry_run=dry_run)
        except Py4JJavaError as error:
            raise self.explain(str(error)) or SetupError(f"{self.name}: {_sentence(str(error))}") from error

    def poll(self) -> None:
        """Nothing to look for: Spark polls the topics."""

    def left_out(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def end(self) -> None:
        """Close the connection to the brokers."""
        if self.topics is not None:
            self.topics.admin.close()

    def left(self) -> DriftlineError | None:
        """None: the end of a stream of topics needs no check."""
        return None

    def _made_again(self) -> DataError | None:
        """Return the error for a topic that was created again; None if Kafka deleted the records itself."""
        try:
            with suppress(Py4JJavaError):
                self._check_topics()
        except DataError as error:
            return error
        finally:
            self.end()  # the stream may have ended before
        return None

    def explain(self, error: str) -> DriftlineError | None:
        """Translate an error of Spark's connector into one with advice; None for an unknown one.

        Secrets of the connection's settings are redacted from its text.
        """
        text = redacted(_sentence(error), self.client)
        message = f"{self.name}: {text}"
        if _OURS.search(error):  # raised in a task, and said well there
            return SetupError(*of_text(error))
        if _LOST.search(error):
            return self._made_again() or DataError(
                f"{self.name}: records were deleted before they were ingested: {text}",
                hint="the topic's retention deleted them; pass --skip-lost to continue without them",
            )
        if _REFUSED.search(error):
            return SetupError(message, hint="the broker refused the login: see [kafka] or --kafka-set")
        if _SETTINGS.search(error):
            return UsageError(message, hint="see [kafka] or --kafka-set")
        if _UNKNOWN.search(error):
            return UsageError(message, hint="check the topic's name; it must exist before it is captured")
        if _AWAY.search(error):
            return SetupError(
                message,
                hint="check that the broker is running and reachable, and that [kafka] has its TLS and login settings; "
                "then run it again: a capture resumes where it was",
            )
        return None


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """A connection to the brokers of the ``topics``; ``client``: its settings."""

    topics: tuple[str, ...]
    client: Mapping[str, str] = field(repr=False)
    admin: Admin


def connection(spark: SparkSession, url: str, given: Mapping[str, str]) -> BrokerConnection:
    """The connection to the brokers of a URL, by the settings that a person has given. Raises UsageError."""
    brokers, topics = place(url)
    jvm: Any = spark._jvm if given else None
    # Kafka's client knows outdated ciphers only. The opened key stays in the memory of Spark.
    chosen = with_open_key(client_settings(given), jvm)
    client = {
        # Kafka's own default gives out what aborted transactions have written, too.
        # Spark does not take the gaps that markers of transactions leave in offsets for a loss.
        "isolation.level": "read_committed",
        "request.timeout.ms": str(PATIENCE),
        _PATIENCE: str(PATIENCE),
        **chosen,
        "bootstrap.servers": brokers,
    }
    # Java is asked for the names of all settings only if a person has set some.
    if given:
        names = java_type(jvm, "org.apache.kafka.clients.consumer.ConsumerConfig").configNames()
        check_names(client, set(names))
    admin = Admin(spark, {**client, _PATIENCE: chosen.get(_PATIENCE, str(_TRIES * PATIENCE))})
    return BrokerConnection(tuple(topics.split(",")), client, admin)


def kafka(spark: SparkSession, url: str, reading: TopicReading, checkpoint: Checkpoint) -> Kafka:
    """The stream of a URL's topics. Raises UsageError.

    Args:
        reading: its options.
        checkpoint: keeps the topics' ids.
    """
    values, connected = reading.values(), connection(spark, url, reading.client)
    client, topics = connected.client, ",".join(connected.topics)
    options: dict[str, Any] = {
        **{f"kafka.{key}": value for key, value in client.items()},
        "subscribe": topics,
        **starting(reading.start),
        "failOnDataLoss": str(not reading.skip_lost).lower(),
        "includeHeaders": str(reading.metadata).lower(),
    }
    if reading.max_records is not None:
        options["maxOffsetsPerTrigger"] = str(reading.max_records)
    frame = spark.readStream.format("kafka").options(**options).load()

    def at(offsets: Positions) -> DataFrame:
        """The stream from these offsets on."""
        chosen = {key: text for key, text in options.items() if not key.startswith("starting")}
        chosen["startingOffsets"] = json.dumps(offsets)
        return spark.readStream.format("kafka").options(**chosen).load()

    watch = Topics(connected.topics, connected.admin, checkpoint, reading.skip_lost)
    return Kafka(frame, f"topic {topics}", values, client, watch, at)


def _resume(resumption: Resumption) -> Positions | None:
    """Have the checkpoint go on where the table is, as `Topics.begin`."""
    last, checkpoint, choice = resumption.last, resumption.checkpoint, resumption.resume_from
    committed, position = checkpoint.last("commits"), _present(checkpoint)
    if (sought := _sought(resumption)) is not None:
        _move(resumption, sought)
        return None
    in_table = _table_has(resumption, committed)
    if in_table is None or _is_planned(resumption, in_table):
        return None
    ahead, older = is_ahead(position, in_table), is_ahead(in_table, position)
    if ahead and choice is None and not resumption.is_adopted:
        number = committed
        while last is not None and number > 0 and checkpoint.epoch_of(number - 1) > last.epoch:
            number -= 1
        raise resumption.behind(number, committed, named_offsets(in_table, position))
    if choice == "checkpoint":
        target: Positions = position
    else:
        # A partition, or a topic, that the table knows nothing of came after its last batch.
        target = {
            topic: {
                number: in_table.get(topic, {}).get(number, 0)
                for number in {**position.get(topic, {}), **in_table.get(topic, {})}
            }
            for topic in {**position, **in_table}
        }
        if older:
            _LOG.warning(
                "%s: its checkpoint is older than %s, which has these already: %s",
                resumption.name,
                resumption.table.name,
                named_offsets(position, in_table),
            )
        if (ahead or older) and position:
            checkpoint.move_to(target)
    resumption.settle(committed, {"offsets": target})
    return None if position or choice == "checkpoint" else target


def _move(resumption: Resumption, to: Positions) -> None:
    """Have the checkpoint go on where a seek says."""
    checkpoint = resumption.checkpoint
    # Noted first: the next start completes a seek that has died.
    resumption.settle(checkpoint.last("commits"), {"offsets": to, _FROM: _present(checkpoint)})
    checkpoint.move_to(to)


def _sought(resumption: Resumption) -> Positions | None:
    """The offsets to which a seek was to move the checkpoint, if it died before; None if none did."""
    contents = resumption.checkpoint.settled(resumption.last).get("contents", {})
    is_there = contents.get(_FROM) != _present(resumption.checkpoint)
    return None if is_there or contents["offsets"] == contents[_FROM] else contents["offsets"]


def _present(checkpoint: Checkpoint) -> Positions:
    """The offsets at which Spark's next micro-batch begins; empty before the first one was planned."""
    if (committed := checkpoint.last("commits")) >= 0:
        return dict(checkpoint.end_of(committed))
    is_there = Path(checkpoint.spark, "sources/0/0").is_file()
    return dict(checkpoint.spark_offsets("sources/0/0")) if is_there else {}


def _table_has(resumption: Resumption, committed: int) -> Positions | None:
    """The offsets up to which the table has its topics; None if they are the checkpoint's, or nobody knows.

    Args:
        committed: the last micro-batch that the checkpoint has.

    Raises DataError if the checkpoint is older, and the table does not say what it has.
    """
    last, checkpoint, since = resumption.last, resumption.checkpoint, resumption.checkpoint.since
    note = checkpoint.settled(last)
    if note and "offsets" in note["contents"]:
        return _ends(note["contents"], checkpoint.topics)
    if last is None or checkpoint.uuid not in (None, resumption.state.uuid):
        if since is None or committed < since:
            return None
        return dict(checkpoint.spark_offsets("sources/0/0"))
    if "offsets" in last.contents:
        return _ends(last.contents, checkpoint.topics)
    if resumption.is_adopted or last.epoch > checkpoint.epoch_of(checkpoint.last("offsets")):
        if resumption.resume_from == "checkpoint":
            return _present(checkpoint)
        raise resumption.unknown("records")
    if since is None or last.epoch >= committed:
        return None
    return dict(checkpoint.end_of(last.epoch))


def _ends(contents: Mapping[str, Any], ids: Mapping[str, str]) -> Positions:
    """The offsets behind the last ones of a batch. What was settled has only these.

    Args:
        ids: the topics' own; those of another topic of the same name are left out.
    """
    then = contents.get("topics", {})
    return {
        topic: {number: end[1] if isinstance(end, list) else end for number, end in partitions.items()}
        for topic, partitions in contents["offsets"].items()
        if then.get(topic) is None or ids.get(topic) in (None, then[topic])
    }


def _of_topics(last: Captured | None, topics: Mapping[str, Topic]) -> Positions:
    """The offsets behind those that the table's last batch had of these topics, and not of earlier ones."""
    if last is None or "offsets" not in last.contents:
        return {}
    read, ends = last.contents.get("topics", {}), _ends(last.contents, {})
    return {name: ends.get(name, {}) for name, topic in topics.items() if read.get(name) == topic.id}


def _is_planned(resumption: Resumption, in_table: Positions) -> bool:
    """True if the table has the checkpoint's next micro-batch, which ended before Spark noted so."""
    last, checkpoint = resumption.last, resumption.checkpoint
    planned = checkpoint.last("offsets")
    if last is None or planned <= checkpoint.last("commits") or checkpoint.epoch_of(planned) != last.epoch:
        return False
    return last.stream == checkpoint.stream and dict(checkpoint.end_of(planned)) == dict(in_table)


def is_kafka(frame: DataFrame) -> bool:
    """True if a DataFrame has the columns of Spark's Kafka source, with values still in bytes."""
    types = dict(frame.dtypes)
    return types.keys() >= _COLUMNS and types["value"] == "binary"


def lag(progress: str) -> int | None:
    """The number of offsets behind a micro-batch, from Spark's ``progress`` as JSON; None if it has none.

    >>> lag('{"sources": [{"latestOffset": {"t": {"0": 7}}, "endOffset": {"t": {"0": 5}}}]}')
    2
    """
    behind = 0
    for source in json.loads(progress)["sources"]:
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or not isinstance(end, dict):
            return None
        for topic, partitions in latest.items():
            behind += sum(n - end.get(topic, {}).get(p, 0) for p, n in partitions.items())
    return behind


def _sentence(error: str) -> str:
    """The innermost cause in an error message of Spark's.

    >>> _sentence("[STREAM_FAILED] Query terminated with exception: a.b.C: No login. SQLSTATE: XXKST")
    'No login'
    """
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    causes = [line.partition(":")[2].strip() for line in lines if line.startswith("Caused by:")]
    text = next((cause for cause in reversed(causes) if cause), lines[0] if lines else "no answer")
    return _AROUND.sub("", text).strip().rstrip(".")
