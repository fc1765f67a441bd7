"""The number of a batch's calls of Java: each call is a way over a socket, and a micro-batch is short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession

from driftline import Lake
from driftline.formats.iceberg.gateway import session_conf
from lake.formats import database

_RELEASE = "m\n"  # how a command begins that lets go of an object: when, is up to Python
MOST_OF_ICEBERG, MOST_OF_DUCKLAKE = 180, 30


def test_settings_of_a_session_come_in_one_call(spark: SparkSession) -> None:
    keys = [row.key for row in spark.sql("set").collect()]  # which hides some values
    assert session_conf(spark) == {key: spark.conf.get(key) for key in keys}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands to Java from now on, without those that only let go of an object."""
    commands: list[str] = []
    send = ClientServerConnection.send_command

    def counted(connection: ClientServerConnection, command: str) -> Any:
        if not command.startswith(_RELEASE):
            commands.append(command)
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    return commands


def test_a_batch_with_nothing_new_asks_java_few_times(
    lake: Lake, table_name: str, tmp_path: Path, commands: list[str]
) -> None:
    table = lake.table(table_name)
    for name in ("a", "b", "c"):  # a file by a known name would be looked up in the table's history
        file = tmp_path / f"{name}.jsonl"
        file.write_text(
            f'{{"a": 1, "b": [1, 2], "c": "{"x" * ord(name)}"}}\n{{"a": "x", "b": [{{"c": 1.5}}]}}\n'
        )
        commands.clear()
        table.ingest(file)
    assert len(commands) <= (MOST_OF_ICEBERG if database(lake) is None else MOST_OF_DUCKLAKE)


@pytest.mark.iceberg_only("a DuckLake's columns are rows of its catalog")
def test_a_new_column_takes_few_calls(
    lake: Lake, table_name: str, tmp_path: Path, commands: list[str]
) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_text('{"id": 1}')
    second.write_text(json.dumps({f"c{n}": n for n in range(300)}))
    table = lake.table(table_name)
    table.ingest(first)
    commands.clear()
    table.ingest(second)
    assert len(commands) <= 4 * 300


def test_a_missing_table_is_asked_for_in_few_calls_and_found_once_another_has_made_it(
    lake: Lake, table_name: str, commands: list[str]
) -> None:
    missing = lake.format.table(table_name)
    assert not missing.load().exists
    commands.clear()
    assert not missing.load().exists
    assert len(commands) <= 20
    lake.table(table_name).ingest([{"a": 1}])
    assert missing.load().exists
    lake.format.drop(table_name, purge=False, dry_run=False)
    assert not missing.load().exists
