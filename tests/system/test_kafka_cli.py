"""`driftline capture` of a secured topic, as a process: where its secrets are not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.runtime.java import QUICK
from servers.fixtures import kafka  # noqa: F401
from servers.kafka import PASSWORDS, Kafka

from .test_cli import SEVERAL, Done

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


@pytest.fixture(scope="module")
def ran(tmp_path_factory, kafka: Kafka) -> tuple[Path, dict[str, Done]]:  # noqa: F811
    folder = tmp_path_factory.mktemp("secured")
    (folder / "driftline.toml").write_text(TOML.replace("AUTHORITY", str(kafka.authority.file)))
    kafka.send("secured", [b'{"id": 1}', b"bad"])
    capture = ["capture", f"kafka://{kafka.secured}/secured", "--into", "shop.orders", "--name", "orders"]
    commands = {
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
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL], cwd=folder, input=json.dumps(list(commands.values())),
        env={**os.environ, "SPARK_SUBMIT_OPTS": QUICK, "KAFKA_PASSWORD": PASSWORDS["alice"], "WRONG_PASSWORD": WRONG},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = {name: Done(*each) for name, each in zip(commands, json.loads(done.stdout), strict=True)}
    return folder, told


def test_a_wrong_password_is_one_sentence(ran):
    done = ran[1]["wrong"]
    assert done.code == 3
    assert "error: topic secured: Authentication failed: Invalid username or password\n" in done.err


def test_the_right_one_is_of_the_environment(ran):
    (batch,) = map(json.loads, ran[1]["right"].out.splitlines())
    assert (ran[1]["right"].code, batch["rows_written"], batch["rows_quarantined"]) == (0, 1, 1)
    assert (ran[1]["no registry"].code, ran[1]["no registry"].out) == (2, "")
    assert ran[1]["no variable"].code == 2 and "there is no NOWHERE" in ran[1]["no variable"].err


def test_secrets_are_nowhere(ran):
    folder, told = ran
    secrets = [
        PASSWORDS["alice"],
        PASSWORDS["alice"].replace('"', r"\""),
        WRONG,
        "r3gistry-pw",
        "LoginModule",
    ]
    texts = [text for done in told.values() for text in (done.out, done.err)]
    assert not [text for text in texts for secret in secrets if secret in text]
    files = [path for path in (folder / "lake").rglob("*") if path.is_file()]
    assert any("_captures" in path.parts for path in files) and any(
        path.suffix == ".parquet" for path in files
    )
    assert not [path for path in files for secret in secrets if secret.encode() in path.read_bytes()]
