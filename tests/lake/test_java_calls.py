"""How often a batch asks Java: each call is a way over a socket, and a micro-batch is short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession

from driftline import Lake
from driftline.formats.iceberg.gateway import session_conf
from lake.formats import database

_RELEASE = "m\n"  # how a command begins that lets go of an object: when, is up to Python
MOST_OF_ICEBERG, MOST_OF_DUCKLAKE = 190, 30


def test_settings_of_a_session_come_in_one_call(spark: SparkSession) -> None:
    assert session_conf(spark) == dict(spark.conf.getAll)


def test_a_batch_with_nothing_new_asks_java_few_times(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1, "b": [1, 2]}\n{"a": "x", "b": [{"c": 1.5}]}\n')
    table = lake.table(table_name)
    for _ in range(2):
        table.ingest(file)
        file.touch()  # another version of it
    commands: list[str] = []
    send = ClientServerConnection.send_command

    def counted(connection: ClientServerConnection, command: str) -> Any:
        commands.append(command)
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    table.ingest(file)
    asked = [command for command in commands if not command.startswith(_RELEASE)]
    assert len(asked) <= (MOST_OF_ICEBERG if database(lake) is None else MOST_OF_DUCKLAKE)
