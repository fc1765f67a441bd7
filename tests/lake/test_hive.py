"""Refusals of a Hive Metastore, by its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.errors import DataError
from driftline.lake import Lake
from lake.test_outcome import attached
from servers.catalogs import NO_LOCKS
from servers.hive import HiveMetastore


@pytest.fixture(scope="module")
def strict(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake in a metastore as it is without settings: it refuses most changes of a column's type."""
    folder = tmp_path_factory.mktemp("hive")
    with HiveMetastore(folder) as server:
        properties = {"type": "hive", "uri": server.uri, "warehouse": str(folder / "tables")}
        session = spark.newSession()
        for key, value in NO_LOCKS.items():
            spark.sparkContext._jsc.hadoopConfiguration().set(key.removeprefix("spark.hadoop."), value)
        yield attached(session, "hive", properties)


@pytest.mark.nightly
def test_a_change_that_the_metastore_refuses_is_no_unknown_outcome(strict: Lake, tmp_path: Path) -> None:
    table = strict.table("t.strict")
    first, drifted = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_text('{"id": 1, "o": {"a": 1}}\n')
    drifted.write_text('{"id": 2, "o": {"a": 1, "b": 2}}\n')
    table.ingest(first)
    before = table.state()
    with pytest.raises(DataError) as error:
        table.ingest(drifted)
    assert error.value.message.startswith("table t.strict: its Hive Metastore refuses the change: ")
    assert error.value.message.endswith(" : o")
    assert str(error.value.hint).startswith(
        "set hive.metastore.disallow.incompatible.col.type.changes to false"
    )
    assert table.state() == before
    assert not strict.clean(0), "the files of a refused commit stayed"


def test_a_name_that_the_metastore_refuses_is_no_conflict(strict: Lake, tmp_path: Path) -> None:
    """A conflict would be tried again, for minutes."""
    file = tmp_path / "1.jsonl"
    file.write_text('{"id": 1}\n')
    with pytest.raises(DataError) as error:
        strict.table('t.say "no"').ingest(file)
    assert error.value.message == (
        'table t.say "no": its Hive Metastore refuses the change: say "no" is not a valid object name'
    )
    assert not strict.clean(0), "the files of a refused commit stayed"


def test_a_struct_whose_keys_the_metastore_does_not_know_may_be_a_map(strict: Lake, tmp_path: Path) -> None:
    table, file = strict.table("t.reactions"), tmp_path / "1.jsonl"
    file.write_text('{"id": 1, "issue": {"reactions": {"+1": 2, "laugh": 1}}}\n')
    with pytest.raises(DataError) as error:
        table.ingest(file)
    assert error.value.message.startswith("table t.reactions refused the batch: Error: name expected at ")
    assert "but '+' is found" in error.value.message
    assert '`hints={"PATH": "map<string, long>"}`' in str(error.value.hint)
    assert not strict.clean(0), "the files of a refused commit stayed"
    table.ingest(file, hints={"issue.reactions": "map<string, long>"})
    assert table.read().first().issue.reactions == {"+1": 2, "laugh": 1}


def test_tables_of_a_pattern_have_names_that_the_metastore_takes(strict: Lake) -> None:
    result = strict.fan_out("t.{event}").ingest([{"event": "été"}, {"event": "push"}])
    assert [each.table for each in result.results] == ["t._t__bd010c", "t.push"]
