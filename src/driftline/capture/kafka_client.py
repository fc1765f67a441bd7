"""Kafka clients of a capture: their settings, topic metadata, and offsets in a checkpoint.

Settings may be spelled for librdkafka or for Java; Spark's connector takes the latter.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict

from py4j.protocol import Py4JJavaError

from driftline.capture.checkpoint import Checkpoint
from driftline.core.support import as_json
from driftline.errors import UsageError
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "kafka."
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# What librdkafka calls otherwise, or Java has no word for.
_RENAMED = {"sasl.mechanisms": "sasl.mechanism", "ssl.key.pem": "ssl.keystore.key",
            "ssl.certificate.pem": "ssl.keystore.certificate.chain", "ssl.ca.pem": "ssl.truststore.certificates"}  # fmt: skip
_FILES = {"ssl.ca.location": "ssl.ca.pem", "ssl.certificate.location": "ssl.certificate.pem",
          "ssl.key.location": "ssl.key.pem"}  # fmt: skip
_OURS = {
    "bootstrap.servers": "the brokers stand in the URL, kafka://HOST:PORT/TOPIC",
    "metadata.broker.list": "the brokers stand in the URL, kafka://HOST:PORT/TOPIC",
    "auto.offset.reset": "where a capture begins is its --from",
    "enable.auto.commit": "a capture keeps its offsets in its checkpoint",
    "key.deserializer": "how values are written is the --value-format",
    "value.deserializer": "how values are written is the --value-format",
    "interceptor.classes": "Spark's connector takes none",
    "enable.ssl.certificate.verification": "name the broker's authority instead: ssl.ca.location",
}
_ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----(.+?)-----END", re.DOTALL)
_PBES2 = ("PBES2", "1.2.840.113549.1.5.13")  # what the parameters name in full
_DECRYPT = 2  # as Java's Cipher numbers what it does
_NEAR = 0.85  # of a name that is not known to one that is: a slip of the pen


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings as Java's client takes them, without a prefix. Raises UsageError.

    The driver reads files with certificates and keys: executors need not have them.

    >>> client_settings({"kafka.security.protocol": "sasl_ssl", "sasl.mechanisms": "PLAIN",
    ...     "sasl.username": "alice", "sasl.password": "x"})["sasl.jaas.config"]
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="x";'
    """
    settings = {key.removeprefix(_PREFIX): value for key, value in options.items()}
    for key in settings.keys() & _OURS.keys():
        raise UsageError(f"[kafka] {key} cannot be set", hint=_OURS[key])
    for key in settings.keys() & _FILES.keys():
        settings[_FILES[key]] = _pem(key, settings.pop(key))
    settings = {_RENAMED.get(key, key): value for key, value in settings.items()}
    for store, content in (("truststore", "certificates"), ("keystore", "key")):
        if f"ssl.{store}.{content}" in settings:
            settings.setdefault(f"ssl.{store}.type", "PEM")
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        settings["ssl.endpoint.identification.algorithm"] = ""
    # librdkafka takes small letters, Java only capitals.
    if "security.protocol" in settings:
        settings["security.protocol"] = settings["security.protocol"].upper()
    # Kafka's default protocol is plain text: it would send no login, without a word.
    elif any(key.startswith(("sasl.", "ssl.")) for key in settings):
        raise UsageError(
            "[kafka] sets a login or certificates, but no security.protocol",
            hint="security.protocol=SASL_SSL, SSL or SASL_PLAINTEXT",
        )
    return _with_login(settings)


def check_names(settings: Mapping[str, str], names: Collection[str]) -> None:
    """Raise UsageError for an unknown name that is close to one of the client's settings."""
    for key in settings.keys() - set(names):
        # Other names may be those of a login module, so only near misses are errors.
        if near := difflib.get_close_matches(key, names, 1, _NEAR):
            raise UsageError(f"Kafka's client has no setting {key!r}", hint=f"did you mean {near[0]!r}?")


def with_open_key(settings: Mapping[str, str], jvm: Any) -> dict[str, str]:
    """Decrypt an encrypted PEM key in the settings. Raises UsageError.

    Kafka's client opens only those of an outdated kind, Java itself all that openssl writes.
    """
    from py4j.protocol import Py4JJavaError

    match = _ENCRYPTED.search(settings.get("ssl.keystore.key", ""))
    if match is None:
        return dict(settings)
    password = settings.get("ssl.key.password", "")
    try:
        info = java_type(jvm, "javax.crypto.EncryptedPrivateKeyInfo")(base64.b64decode(match[1]))
        name, parameters = info.getAlgName(), info.getAlgParameters()
        # Java gives the family's name for the newer kinds; the cipher is named by their parameters.
        name = parameters.toString() if name in _PBES2 else name
        characters = java_type(jvm, "java.nio.CharBuffer").allocate(len(password)).put(password).array()
        factory = java_type(jvm, "javax.crypto.SecretKeyFactory").getInstance(name)
        secret = factory.generateSecret(java_type(jvm, "javax.crypto.spec.PBEKeySpec")(characters))
        cipher = java_type(jvm, "javax.crypto.Cipher").getInstance(name)
        cipher.init(_DECRYPT, secret, parameters)
        key = base64.encodebytes(bytes(info.getKeySpec(cipher).getEncoded())).decode()
    except (Py4JJavaError, ValueError) as error:
        raise UsageError(
            "[kafka] ssl.key.location: the key cannot be decrypted", hint="check ssl.key.password"
        ) from error
    others = {name: value for name, value in settings.items() if name != "ssl.key.password"}
    return others | {"ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n"}


def _with_login(settings: dict[str, str]) -> dict[str, str]:
    """Name and password as Java wants them: in one text."""
    name, password = settings.pop("sasl.username", None), settings.pop("sasl.password", None)
    if "sasl.jaas.config" in settings or (name is None and password is None):
        return settings
    if name is None or password is None:
        missing = "sasl.username" if name is None else "sasl.password"
        raise UsageError(f"[kafka] has no {missing}", hint="set both the user name and the password")
    mechanism = settings.get("sasl.mechanism", "")
    if mechanism not in _MODULES:
        raise UsageError(
            f"[kafka] sasl.mechanism = {mechanism!r} takes no name and password",
            hint=f"one of {', '.join(_MODULES)}; for others, sasl.jaas.config",
        )
    login = f"username={_quoted(name)} password={_quoted(password)}"
    return {**settings, "sasl.jaas.config": f"{_MODULES[mechanism]} required {login};"}


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def _pem(key: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="ascii")
    except OSError as error:
        raise UsageError(f"[kafka] {key}: {path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(
            f"[kafka] {key}: {path} is not a PEM file", hint="convert it with openssl"
        ) from error


ByPartition: TypeAlias = Mapping[tuple[str, int], int]
_MISSING = "UnknownTopicOrPartitionException"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker before Kafka 2.8


class Topic(NamedTuple):
    """A topic.

    Attributes:
        id: None if the broker gives none.
        partitions: their numbers.
    """

    id: str | None
    partitions: tuple[int, ...]


@dataclass(slots=True)
class Admin:
    """A connection for questions about topics, opened by the first.

    Attributes:
        client: its settings.

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


class LostOffsetsJson(TypedDict):
    """Offsets of a partition that were gone when they were to be read."""

    topic: str
    partition: int
    first: int
    last: int
    offsets: int


@dataclass(frozen=True, slots=True, order=True)
class LostOffsets:
    """Offsets of a partition, from ``first`` to ``last``, that were gone when they were to be read."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of offsets, of records and of transaction markers."""
        return self.last - self.first + 1

    def to_dict(self) -> LostOffsetsJson:
        """The form that `--json` prints."""
        return as_json(LostOffsetsJson, self, offsets=self.count)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: offsets {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of micro-batches, as Spark keeps them in a checkpoint."""

    checkpoint: Checkpoint

    def of(self, epoch: int) -> tuple[ByPartition, ByPartition]:
        """The begin and end offsets of a micro-batch, by partition."""
        before = f"offsets/{epoch - 1}" if epoch else "sources/0/0"
        return self._read(before), self._read(f"offsets/{epoch}")

    def _read(self, name: str) -> ByPartition:
        return {
            (topic, int(number)): offset
            for topic, partitions in self.checkpoint.spark_offsets(name).items()
            for number, offset in partitions.items()
        }


def lost(admin: Admin, offsets: Offsets, epoch: int) -> tuple[LostOffsets, ...]:
    """The offsets of a micro-batch that were gone when it was read.

    The brokers are asked after the read: offsets deleted meanwhile count as lost, read or not.
    """
    begin, end = offsets.of(epoch)
    first = admin.first_offsets(begin)
    gone = [
        LostOffsets(*place, start, min(first[place], end.get(place, start)) - 1)
        for place, start in begin.items()
    ]
    return tuple(sorted(interval for interval in gone if interval.count > 0))
