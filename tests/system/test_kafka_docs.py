"""Topics by the words of docs/kafka.md: what is written there works, and the password is left nowhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from servers.kafka import PASSWORDS, Kafka
from servers.registry import Registry
from system.docs_session import comparable, followed, own_shell

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"


def programs(kafka: Kafka, folder: Path) -> Mapping[str, Callable[..., object]]:
    """Those of others that the page runs, as far as it does."""

    def kcat(*words: str) -> None:
        topic, partition, file = (words[words.index(flag) + 1] for flag in ("-t", "-p", "-l"))
        kafka.send(topic, (folder / file).read_bytes().splitlines(), int(partition))

    def delete(*words: str) -> None:
        given = json.loads((folder / words[-1]).read_text())["partitions"]
        places = [TopicPartition(one["topic"], one["partition"], one["offset"]) for one in given]
        admin = AdminClient({"bootstrap.servers": kafka.address})
        for deletion in admin.delete_records(places).values():
            deletion.result(30)

    def python(script: str) -> None:
        subprocess.run([sys.executable, script], cwd=folder, check=True)

    return {"kcat": kcat, "kafka-delete-records.sh": delete, "python": python}


def test_word_by_word(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = PASSWORDS["alice"]
    monkeypatch.setenv("KAFKA_PASSWORD", password)
    shutil.copy(kafka.authority.file, tmp_path)
    page = PAGE.read_text().replace("127.0.0.1:9092", kafka.address).replace("localhost:9093", kafka.secured)
    with Registry() as registry, own_shell() as shell:
        page = page.replace("http://127.0.0.1:8081", registry.url)
        for step, printed in followed(page, tmp_path, shell, programs(kafka, tmp_path)):
            assert comparable(printed) == comparable(step.output), step.text
            assert password not in printed
        assert " ERROR " not in shell.process.printed()  # as Java's log has it, beside the one sentence
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if password.encode() in path.read_bytes()]
