"""A Kafka broker: one node, KRaft. Besides its open port it has two with TLS: in one users log in, in the other they
show a certificate.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from servers.certificates import Authority
from servers.jars import class_path, java
from servers.process import Process, Server, free_port

PASSWORDS = {"alice": 'a "quoted" pass', "bob": "bob-secret"}  # bob may log in, and do nothing then
USER = "carol"  # who shows a certificate
_CLUSTER = "ZHJpZnRsaW5lLXRlc3RzMQ"  # 16 bytes in base64, as Kafka wants its ids

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BACKSLASH = "\\"

Headers: TypeAlias = list[tuple[str, bytes | None]]
Record: TypeAlias = (
    bytes | tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Headers] | None
)  # a value, or a key and a value, or these and headers; None is a tombstone


class Kafka(Server):
    """A broker that keeps its topics in ``folder``; topics are made when they are first written to.

    It can be stopped, or killed, and started again: address and records stay. ``authority`` vouches for the
    broker, at the ports of ``secured`` and ``mutual``, and for `USER`, who may use the latter.
    """

    def __init__(self, folder: Path, port: int = 0, secured: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._secured, self._mutual = secured or free_port(), free_port()
        self.authority = Authority(folder)
        quick = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        self._java = [java(), *quick, "-cp", class_path("kafka")]
        self._process: Process | None = None
        self._format()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secured(self) -> str:
        return f"localhost:{self._secured}"

    @property
    def mutual(self) -> str:
        return f"localhost:{self._mutual}"

    @property
    def log(self) -> Path:
        return self.folder / "kafka.log"

    def start(self) -> None:
        """Starts the broker, and returns when it takes records."""
        command = [*self._java, "-Dorg.apache.logging.log4j.level=INFO", "kafka.Kafka", str(self._settings)]
        self._process = Process(command, self.log, ready="Kafka Server started")

    def stop(self) -> None:
        if self._process:
            self._process.stop()

    def kill(self) -> None:
        """Ends the broker at once, as a crash would."""
        if self._process:
            self._process.kill()

    def send(self, topic: str, records: Iterable[Record], partition: int = -1) -> None:
        """Writes records, in order, and returns when the broker has them. RuntimeError if it does not take them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address})
        refused: list[object] = []

        def told(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        for record in records:
            key, value, headers = (*record, None)[:3] if isinstance(record, tuple) else (None, record, None)
            producer.produce(topic, value, key, partition, on_delivery=told, headers=headers)
            producer.poll(0)
        if (left := producer.flush(30)) or refused:
            raise RuntimeError(f"{topic}: {left + len(refused)} records were not taken: {refused[:3]}")

    def transactional(self, topic: str, partition: int = 0) -> Transactional:
        """A producer of transactions for one partition."""
        return Transactional(self.address, topic, partition)

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        controller = free_port()
        issued = self.authority.issue("localhost")
        broker = self.folder.absolute() / "broker.pem"
        broker.write_bytes(issued.key.read_bytes() + issued.file.read_bytes())
        settings = {
            "node.id": 1,
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{self.address},SASL_SSL://{self.secured},SSL://{self.mutual},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_PLAIN} required {_users()};",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.file,
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:alice;User:{USER}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": self.folder.absolute() / "topics",
            "num.partitions": 2,
            # One node keeps each record once, and needs no 50 partitions for its own books.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # After a crash the node waits this long for itself; 9 seconds if not told otherwise.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
        }
        lines = (f"{key}={str(value).replace(BACKSLASH, BACKSLASH * 2)}\n" for key, value in settings.items())
        self._settings.write_text("".join(lines))
        scram = f"SCRAM-SHA-512=[name=alice,password={PASSWORDS['alice']}]"
        storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", _CLUSTER]
        done = subprocess.run(
            [*self._java, *storage, "--add-scram", scram, "-c", str(self._settings)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"Kafka's folder could not be made:\n{done.stdout}{done.stderr}")


def _users() -> str:
    """The users, in the form of Java's logins."""
    escaped = {user: password.replace('"', BACKSLASH + '"') for user, password in PASSWORDS.items()}
    return " ".join(f'user_{user}="{password}"' for user, password in escaped.items())


class Transactional:
    """A producer whose records come with their transaction."""

    def __init__(self, address: str, topic: str, partition: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": address, "transactional.id": topic})
        self._topic, self._partition = topic, partition
        self._producer.init_transactions(60)

    def transaction(self, values: Iterable[bytes], *, commit: bool) -> None:
        """One transaction, to its end."""
        self._begin(values)
        self._producer.commit_transaction(60) if commit else self._producer.abort_transaction(60)

    @contextmanager
    def open(self, values: Iterable[bytes]) -> Iterator[None]:
        """A transaction that is open inside, and committed then."""
        self._begin(values)
        yield
        self._producer.commit_transaction(60)

    def _begin(self, values: Iterable[bytes]) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value, partition=self._partition)
        self._producer.flush(60)
