"""Kafka's admin client: the topics of a broker, their ids and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from py4j.protocol import Py4JJavaError

from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ByPartition: TypeAlias = Mapping[tuple[str, int], int]
_MISSING = "UnknownTopicOrPartitionException"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker before Kafka 2.8


class Topic(NamedTuple):
    """A topic. ``id``: None if the broker gives none; ``partitions``: their numbers."""

    id: str | None
    partitions: tuple[int, ...]


@dataclass(slots=True)
class Admin:
    """A connection for questions about topics, opened by the first. ``client``: its settings.

    Questions raise Py4JJavaError where the broker does not answer.
    """

    spark: SparkSession
    client: Mapping[str, str] = field(repr=False)
    _java: Any = None

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The existing topics among these names."""
        java_names = java_type(self._jvm, "java.util.ArrayList")()
        for name in names:
            java_names.add(name)
        answers = self._open().describeTopics(java_names).topicNameValues()
        topics = {}
        for name in names:
            try:
                answer = answers.get(name).get()
            except Py4JJavaError as error:
                if _MISSING not in str(error):
                    raise
                continue
            number = answer.topicId().toString()
            partitions = tuple(partition.partition() for partition in answer.partitions())
            topics[name] = Topic(None if number == _NO_ID else number, partitions)
        return topics

    def first_offsets(self, places: Iterable[tuple[str, int]]) -> ByPartition:
        """The first offset that each partition still has."""
        return self.offsets(places, "earliest")

    def offsets(self, places: Iterable[tuple[str, int]], position: int | str) -> ByPartition:
        """The offsets at a position: ``earliest``, ``latest``, or a time in milliseconds since 1970.

        Where nothing is as young as the time, the offset is that of ``latest``.
        """
        specs = java_type(self._jvm, "org.apache.kafka.clients.admin.OffsetSpec")
        spec = specs.forTimestamp(position) if isinstance(position, int) else getattr(specs, position)()
        request = java_type(self._jvm, "java.util.HashMap")()
        partition_of = java_type(self._jvm, "org.apache.kafka.common.TopicPartition")
        partitions = {place: partition_of(*place) for place in places}
        for partition in partitions.values():
            request.put(partition, spec)
        # Captures read what is committed: the latest offset is the end of that.
        level = java_type(self._jvm, "org.apache.kafka.common.IsolationLevel").READ_COMMITTED
        options = java_type(self._jvm, "org.apache.kafka.clients.admin.ListOffsetsOptions")(level)
        answer = self._open().listOffsets(request, options).all().get()
        offsets = {place: answer.get(partition).offset() for place, partition in partitions.items()}
        if missing := [place for place, offset in offsets.items() if offset < 0]:
            offsets |= self.offsets(missing, "latest")
        return offsets

    def close(self) -> None:
        """End the connection."""
        if self._java is not None:
            self._java.close()
            self._java = None

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    def _open(self) -> Any:
        if self._java is None:
            settings = java_type(self._jvm, "java.util.HashMap")()
            for key, value in self.client.items():
                settings.put(key, value)
            self._java = java_type(self._jvm, "org.apache.kafka.clients.admin.Admin").create(settings)
        return self._java
