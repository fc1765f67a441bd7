"""`driftline capture` of a secured topic, as a process: by a login, by certificates, and where their secrets are not."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from answering import Commands, Done, commands
from servers.certificates import Authority, Certificate
from servers.kafka import PASSWORDS, USER, Kafka
from servers.registry import Registry

WRONG = "wr0ng-pw"
TOML = """
[kafka]
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
sasl.username = "alice"
sasl.password = "${KAFKA_PASSWORD}"
ssl.ca.location = "AUTHORITY"

[registry]
url = "http://me:r3gistry-pw@127.0.0.1:9"
"""
KEY_PASSWORD = "k3y-secret"
# The same certificate for the broker and the registry.
MUTUAL = """
[kafka]
security.protocol = "SSL"
{certificate}

[registry]
url = "{registry}"
{certificate}
"""
CERTIFICATE = """
ssl.ca.location = "{authority.file}"
ssl.certificate.location = "{issued.file}"
ssl.key.location = "{issued.key}"
ssl.key.password = "${{KEY_PASSWORD}}"
"""


@pytest.fixture(scope="module")
def process() -> Iterator[Commands]:
    """A process of its own, with the secrets in its environment."""
    secrets = {"KAFKA_PASSWORD": PASSWORDS["alice"], "WRONG_PASSWORD": WRONG, "KEY_PASSWORD": KEY_PASSWORD}
    with commands(**secrets) as process:
        process.silent = False  # with --debug
        yield process


@pytest.fixture(scope="module")
def issued(kafka: Kafka) -> Certificate:
    return kafka.authority.issue(USER, KEY_PASSWORD)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, kafka: Kafka, process: Commands, certified) -> tuple[Path, dict[str, Done]]:
    """After ``certified``: the process keeps --debug, so all that it runs from here on is told at length."""
    folder = tmp_path_factory.mktemp("secured")
    (folder / "driftline.toml").write_text(TOML.replace("AUTHORITY", str(kafka.authority.file)))
    kafka.send("secured", [b'{"id": 1}', b"bad"])
    capture = ["capture", f"kafka://{kafka.secured}/secured", "--into", "shop.orders", "--name", "orders"]
    given = {
        "wrong": [*capture, "--kafka-set", "sasl.password=${WRONG_PASSWORD}", "--debug"],
        "right": [*capture, "--json", "--metadata"],
        "no variable": [*capture, "--kafka-set", "sasl.password=${NOWHERE}"],
        "no registry": [
            *capture[:-1],
            "typed",
            "--value-format",
            "avro",
            "--registry",
            "https://me:r3gistry-pw@",
        ],
    }
    return folder, process.each(folder, given)


@pytest.fixture(scope="module")
def certified(
    tmp_path_factory, kafka: Kafka, issued: Certificate, process: Commands
) -> tuple[Path, dict[str, Done]]:
    """Avro by a certificate, for which the broker and the registry ask."""
    folder = tmp_path_factory.mktemp("certified")
    other = Authority(folder / "other").file
    with Registry(tls=kafka.authority.context("127.0.0.1")) as registry:
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
        number = registry.register("certified-value", schema)
        kafka.send("certified", [b"\0" + number.to_bytes(4, "big") + b"\x02"])
        certificate = CERTIFICATE.format(authority=kafka.authority, issued=issued)
        (folder / "driftline.toml").write_text(MUTUAL.format(certificate=certificate, registry=registry.url))
        (folder / "none.toml").write_text("[kafka]")
        topic = f"kafka://{kafka.mutual}/certified"
        typed = [
            "capture",
            topic,
            "--into",
            "shop.typed",
            "--name",
            "typed",
            "--value-format",
            "avro",
            "--json",
        ]
        plain = [
            "capture",
            topic,
            "--into",
            "shop.plain",
            "--name",
            "plain",
            "--config",
            "none.toml",
            "--json",
        ]
        ours = [
            "--kafka-set",
            "security.protocol=SSL",
            "--kafka-set",
            f"ssl.ca.location={kafka.authority.file}",
        ]
        keystore = {"type": "PKCS12", "location": issued.keystore, "password": "${KEY_PASSWORD}"}
        flags = [
            word for key, value in keystore.items() for word in ("--kafka-set", f"ssl.keystore.{key}={value}")
        ]
        given = {
            "wrong authority": [*typed, "--kafka-set", f"ssl.ca.location={other}"],
            "wrong key password": [*typed, "--kafka-set", f"ssl.key.password={WRONG}"],
            "no certificate": [*plain, *ours],
            "PEM": typed,
            "keystore": [*plain, *ours, *flags],
        }
        return folder, process.each(folder, given)


def test_a_wrong_password_is_one_sentence(ran):
    done = ran[1]["wrong"]
    assert done.code == 3
    assert "error: topic secured: Authentication failed: Invalid username or password\n" in done.err


def test_the_right_one_is_of_the_environment(ran):
    (batch,) = map(json.loads, ran[1]["right"].out.splitlines())
    assert (ran[1]["right"].code, batch["rows_written"], batch["rows_quarantined"]) == (0, 1, 1)
    assert (ran[1]["no registry"].code, ran[1]["no registry"].out) == (2, "")
    assert ran[1]["no variable"].code == 2 and "there is no NOWHERE" in ran[1]["no variable"].err


def test_certificates_are_shown_to_broker_and_registry(certified):
    for name, written, quarantined in (("PEM", 1, 0), ("keystore", 0, 1)):  # Avro is no JSON
        done = certified[1][name]
        assert done.code == 0, done
        (batch,) = map(json.loads, done.out.splitlines())
        assert (batch["rows_written"], batch["rows_quarantined"]) == (written, quarantined)


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("wrong authority", 3, "unable to find valid certification path"),
        ("wrong key password", 2, r"\[kafka\] ssl\.key\.location: the key cannot be decrypted"),
        (
            "no certificate",
            3,
            "(bad_certificate|certificate_required)",
        ),  # the alert depends on the broker's Java
    ],
)
def test_certificates_that_do_not_count_are_one_sentence(name, code, says, certified):
    done = certified[1][name]
    assert (done.code, done.out) == (code, ""), done
    assert done.err.startswith("error: ") and re.search(says, done.err.splitlines()[0])


def test_secrets_are_nowhere(ran, certified, issued):
    key = load_pem_private_key(issued.key.read_bytes(), issued.password.encode())
    opened = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    secrets = [
        PASSWORDS["alice"],
        PASSWORDS["alice"].replace('"', r"\""),
        WRONG,
        "r3gistry-pw",
        "LoginModule",
        KEY_PASSWORD,
        issued.key.read_text().splitlines()[2],
        opened.splitlines()[1][48:62],  # behind what is the same in all keys
    ]
    for folder, ended in (ran, certified):
        texts = [text for done in ended.values() for text in (done.out, done.err)]
        assert not [text for text in texts for secret in secrets if secret in text]
        files = [path for path in (folder / "lake").rglob("*") if path.is_file()]
        assert any("_captures" in path.parts for path in files)
        assert any(path.suffix == ".parquet" for path in files)
        assert not [path for path in files for secret in secrets if secret.encode() in path.read_bytes()]
