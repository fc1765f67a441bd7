"""The messages of topics that tables have taken, read from Kafka once more as far as it still has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.capture.kafka import BrokerConnection, Kafka, TopicReading, connection
from driftline.capture.kafka_client import ByPartition, Topic
from driftline.core.history.batch_properties import PREFIX, Captured
from driftline.errors import DataError, UsageError
from driftline.runtime.failure import text_of
from driftline.sources.kafka import KafkaJson
from driftline.sources.kafka_typed import KafkaTyped
from driftline.sql.quoting import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Taken:
    """The offsets of topics that tables have.

    Attributes:
        ends: by place, behind the last one.
        since: the first one, where the tables tell.
    """

    ends: ByPartition = field(default_factory=dict)
    since: ByPartition = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Mapping[str, Topic], tables: Sequence[Mapping[str, str]]) -> Taken:
        """Find the offsets that tables have of the topics that are there now, by the tables' properties.

        Raises DataError if they have only what topics of the same names had, which were deleted.
        """
        ends: dict[tuple[str, int], int] = {}
        since: dict[tuple[str, int], int] = {}
        others: set[str] = set()
        for contents in map(_contents, tables):
            for captured in contents:
                ids = captured.get("topics", {})
                for name in topics.keys() & captured["offsets"].keys():
                    if ids.get(name) not in (None, topics[name].id):
                        others.add(name)
                        continue
                    began = captured.get("since", {}).get(name, {})
                    for number, (_, end) in captured["offsets"][name].items():
                        place = name, int(number)
                        first = began.get(number, 0)
                        since[place] = min(since.get(place, first), first)
                        ends[place] = max(ends.get(place, end), end)
        if gone := sorted(others - {name for name, _ in ends}):
            raise DataError(
                f"topic {', '.join(gone)} was deleted and created again since its records were taken",
                "verify takes a copy of the messages in files",
            )
        return cls(ends, since)

    def waiting(self) -> str:
        """SQL of the quarantined records that are none of the topics', or are among these offsets."""
        ranges = [
            f"topic = {literal(name)} AND partition = {number} AND offset >= {self.since[name, number]} AND offset < {end}"
            for (name, number), end in self.ends.items()
        ]
        names = ", ".join(sorted({literal(name) for name, _ in self.ends}))
        return f"topic IS NULL OR topic NOT IN ({names}) OR {' OR '.join(f'({each})' for each in ranges)}"


def _contents(properties: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """The contents of the last batch of each capture of topics into a table."""
    for key in properties:
        captured = Captured.of(key.removeprefix(PREFIX), properties) if key.startswith(PREFIX) else None
        if captured is not None and "offsets" in captured.contents:
            yield captured.contents


@dataclass(frozen=True, slots=True)
class TopicsAgain:
    """The topics of a URL, to be read once more."""

    spark: SparkSession
    name: str
    reading: TopicReading
    connection: BrokerConnection

    @classmethod
    @contextmanager
    def opened(cls, spark: SparkSession, url: str, reading: TopicReading) -> Iterator[TopicsAgain]:
        """Connect to the brokers. Errors of theirs inside become driftline's. Raises UsageError."""
        again = cls(spark, f"topic {url.rpartition('/')[2]}", reading, connection(spark, url, reading.client))
        try:
            yield again
        except (Py4JError, PySparkException) as error:
            of_topics = Kafka(None, again.name, reading.values(), again.connection.client)  # type: ignore[arg-type]
            raise of_topics.explain(text_of(error)) or error from error
        finally:
            again.connection.admin.close()

    def taken(self, tables: Sequence[Mapping[str, str]]) -> Taken:
        """The offsets that tables with these properties have. Raises UsageError for a missing topic."""
        names = self.connection.topics
        topics = self.connection.admin.topics(names)
        if missing := [name for name in names if name not in topics]:
            raise UsageError(f"there is no topic {', '.join(missing)}", "check the topic's name")
        return Taken.of(topics, tables)

    def source(self, taken: Taken) -> KafkaJson | KafkaTyped:
        """The messages that were taken, as far as Kafka still has them."""
        first, last = self._first_and_last(taken)
        begins: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for (name, number), end in taken.ends.items():
            begin = max(taken.since[name, number], first[name, number])
            ends.setdefault(name, {})[str(number)] = stop = min(end, last[name, number])
            begins.setdefault(name, {})[str(number)] = min(begin, stop)
        options = {
            **{f"kafka.{key}": setting for key, setting in self.connection.client.items()},
            "assign": json.dumps({name: [*map(int, numbers)] for name, numbers in ends.items()}),
            "startingOffsets": json.dumps(begins),
            "endingOffsets": json.dumps(ends),
            # What is deleted while it is read is not there to be compared.
            "failOnDataLoss": "false",
        }
        frame = self.spark.read.format("kafka").options(**options).load()
        source = self.reading.values()(frame)
        assert isinstance(source, KafkaJson | KafkaTyped)
        return source

    def gone(self, taken: Taken) -> int:
        """The number of offsets that were taken, and that Kafka no longer has."""
        first, last = self._first_and_last(taken)
        return sum(
            end - taken.since[place] - max(0, min(end, last[place]) - max(taken.since[place], first[place]))
            for place, end in taken.ends.items()
        )

    def _first_and_last(self, taken: Taken) -> tuple[ByPartition, ByPartition]:
        """The first offsets that Kafka has of partitions, and those behind the last ones."""
        offsets, places = self.connection.admin.offsets, list(taken.ends)
        return offsets(places, "earliest"), offsets(places, "latest")
