"""Topics of Kafka as a stream, by Spark's own connector."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.source.kafka import KafkaJson

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.source.base import Source

SCHEME = "kafka://"
PATIENCE = 20_000  # milliseconds for an answer of the broker's; Spark asks four times
_COLUMNS = {"key", "value", "topic", "partition", "offset", "timestamp"}
_AWAY = re.compile(
    r"TimeoutException|Timed out waiting|Timeout of \d+ms|DisconnectException|Failed to create new Kafka"
    r"|No resolvable bootstrap|Connection to node|TimeoutException|BrokerNotAvailable|failed to get records",
    re.IGNORECASE,
)
_LOST = re.compile(r"KAFKA_DATA_LOSS|failOnDataLoss|OffsetOutOfRange|data may have been lost", re.IGNORECASE)
_UNKNOWN = re.compile(r"UnknownTopicOrPartition|does not host this topic|topic.{0,40}(not exist|is invalid)")


def place(url: str) -> tuple[str, str]:
    """Brokers and topics of a URL.

    >>> place("kafka://a:9092,b:9092/orders,refunds")
    ('a:9092,b:9092', 'orders,refunds')
    """
    brokers, _, topics = url.removeprefix(SCHEME).partition("/")
    if not brokers or not topics or "@" in brokers or not re.fullmatch(r"[\w.,-]+", topics):
        raise UsageError(f"{url}: no topic can be read from there", hint="write kafka://HOST:PORT/TOPIC")
    return brokers, topics


@dataclass(slots=True)
class Kafka:
    """A stream with the columns of Spark's Kafka source; each value is JSON. ``name`` tells the topics."""

    frame: DataFrame
    name: str
    metadata: bool = False
    _batch: KafkaJson | None = None

    def stream(self) -> DataFrame:
        return self.frame

    def source(self, frame: DataFrame, epoch: int) -> Source:
        self._batch = KafkaJson(frame, self.metadata)
        return self._batch

    def check(self, epoch: int) -> None:
        pass

    def close(self, epoch: int) -> tuple[int, int | None]:
        batch, self._batch = self._batch, None
        return 0 if batch is None else batch.tombstones, None

    def release(self) -> None:
        pass

    def look(self) -> None:
        pass

    def explain(self, error: str) -> DriftlineError | None:
        what = f"{self.name}: {_sentence(error)}"
        if _LOST.search(error):
            return DataError(
                f"{self.name}: records that were not taken yet are gone: {_sentence(error)}",
                hint="the topic's retention deleted them; with skip_lost (--skip-lost) the capture goes on without",
            )
        if _UNKNOWN.search(error):
            return UsageError(what, hint="is the topic's name right? it must be there before it is captured")
        if _AWAY.search(error):
            return SetupError(
                what, hint="is the broker up, and reachable? the capture goes on where it was: start it again"
            )
        return None


def kafka(
    spark: SparkSession, url: str, *, metadata: bool, max_records: int | None, skip_lost: bool
) -> Kafka:
    """The topics of a URL, from their beginning."""
    brokers, topics = place(url)
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": brokers,
        "subscribe": topics,
        "startingOffsets": "earliest",
        "failOnDataLoss": str(not skip_lost).lower(),
        # Kafka's own default gives out what aborted transactions have written, too.
        "kafka.isolation.level": "read_committed",
        "kafka.request.timeout.ms": str(PATIENCE),
        "kafka.default.api.timeout.ms": str(PATIENCE),
    }
    if max_records is not None:
        options["maxOffsetsPerTrigger"] = str(max_records)
    return Kafka(spark.readStream.format("kafka").options(**options).load(), f"topic {topics}", metadata)


def is_kafka(frame: DataFrame) -> bool:
    """Whether a DataFrame has the columns of Spark's Kafka source, whose values are still bytes."""
    types = dict(frame.dtypes)
    return types.keys() >= _COLUMNS and types["value"] == "binary"


def lag(progress: str) -> int | None:
    """How many offsets are still to come, by what Spark tells of a
    micro-batch; None where it does not tell.
    """
    left = 0
    for source in json.loads(progress)["sources"]:
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or not isinstance(end, dict):
            return None
        for topic, partitions in latest.items():
            left += sum(n - end.get(topic, {}).get(p, 0) for p, n in partitions.items())
    return left


def _sentence(error: str) -> str:
    """The line of Spark's message that says what happened."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    causes = [line.partition(":")[2].strip() for line in lines if line.startswith("Caused by:")]
    text = next((cause for cause in reversed(causes) if cause), lines[0] if lines else "no answer")
    return text.rstrip(".")
