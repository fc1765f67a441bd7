"""Settings of Kafka's clients as Java's takes them; where a topic is read from; offsets in a checkpoint."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.kafka import TopicReading, starting
from driftline.capture.kafka_client import Offsets, check_names, client_settings
from driftline.errors import UsageError

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def test_a_login_in_either_client_s_words():
    librdkafka = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512"}
    login = {"sasl.username": 'a"b\\', "sasl.password": "p w"}
    jaas = (
        r'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\"b\\" password="p w";'
    )
    assert client_settings({**librdkafka, **login}) == {**LOGIN, "sasl.jaas.config": jaas}
    assert client_settings({f"kafka.{key}": value for key, value in {**LOGIN, **login}.items()}) == {
        **LOGIN,
        "sasl.jaas.config": jaas,
    }
    assert client_settings({**LOGIN, "sasl.jaas.config": "own"})["sasl.jaas.config"] == "own"


def test_certificates_are_read_here(tmp_path: Path):
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(name.upper())
    given = {f"ssl.{name}.location": str(tmp_path / name) for name in ("ca", "certificate", "key")}
    assert client_settings({"security.protocol": "ssl", **given, "ssl.key.password": "x"}) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
        "ssl.key.password": "x",
    }


@pytest.mark.parametrize(
    ("given", "says", "todo"),
    [
        ({"bootstrap.servers": "a:1"}, "bootstrap.servers cannot be set", "kafka://HOST"),
        ({"auto.offset.reset": "latest"}, "auto.offset.reset cannot be set", "--from"),
        ({"sasl.username": "a"}, "no security.protocol", "SASL_SSL"),
        ({**LOGIN, "sasl.username": "a"}, "has no sasl.password", ""),
        (
            {"security.protocol": "SASL_SSL", "sasl.username": "a", "sasl.password": "b"},
            "takes no name",
            "PLAIN",
        ),
        ({"security.protocol": "SSL", "ssl.ca.location": "no.pem"}, "no.pem: cannot be read", ""),
    ],
)
def test_settings_that_cannot_be(given, says, todo):
    with pytest.raises(UsageError, match=says) as caught:
        client_settings(given)
    assert todo in (caught.value.hint or "")


def test_a_name_that_is_nearly_right_is_refused_and_others_are_for_others_classes():
    check_names({"fetch.max.bytes": "1", "aws.role": "x"}, ["fetch.max.bytes"])
    with pytest.raises(UsageError, match=r"no setting 'fetch\.max\.byte'"):
        check_names({"fetch.max.byte": "1"}, ["fetch.max.bytes"])


def test_where_a_topic_is_read_from():
    assert starting("latest") == {"startingOffsets": "latest"}
    moment = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
    later = {"startingTimestamp": "1769860800001", "startingOffsetsByTimestampStrategy": "latest"}
    assert starting(moment) == starting("2026-01-31T13:00:00.000001+01:00") == later
    with pytest.raises(UsageError, match="'soon' is not a position in a stream"):
        starting("soon")


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        (TopicReading(value_format="avro"), "values in avro need the registry"),
        (TopicReading(value_format="xml"), "no value format 'xml'"),
    ],
)
def test_formats_of_values(reading, says):
    with pytest.raises(UsageError, match=says):
        reading.values()


def test_offsets_of_a_micro_batch(tmp_path: Path):
    files = {"sources/0/0": '\0v1\n{"t":{"0":3}}', "offsets/0": 'v1\n{"conf":{}}\n{"t":{"0":7,"1":2}}',
             "offsets/1": 'v1\n{}\n{"t":{"0":9,"1":2}}'}  # fmt: skip
    for name, text in files.items():
        (tmp_path / "spark" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "spark" / name).write_text(text)
    offsets = Offsets(Checkpoint(str(tmp_path), "c"))
    assert offsets.of(0) == ({("t", 0): 3}, {("t", 0): 7, ("t", 1): 2})
    assert offsets.of(1) == ({("t", 0): 7, ("t", 1): 2}, {("t", 0): 9, ("t", 1): 2})
