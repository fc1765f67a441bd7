"""A third format goes the same road: one module that the road does not know, and one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.errors import UsageError
from driftline.formats import open as formats
from driftline.formats.base import KeyedTransaction, RowTransaction, UpkeepTransaction
from driftline.lake import Lake
from lake.test_rules import check
from lake.toy import ToyLocation, ToyTransaction
from rule_cases import Case, cases


@pytest.fixture
def toy(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setitem(formats.FORMATS, "toy", lambda _, folder, **__: ToyLocation(folder))
    location = formats.located("toy", "", tmp_path / "lake")
    return Lake(spark, "lake", location.open(spark))


# Ten prove the interface; the rules are proved by the other formats.
@pytest.mark.parametrize("case", cases(keyed=False)[::11])
def test_rule(case: Case, toy: Lake, tmp_path: Path) -> None:
    check(case, toy, "t.t", tmp_path)


def members(protocol: type) -> set[str]:
    return {name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")}


def test_third_format_implements_the_twelve_members_of_rows_alone() -> None:
    rows, own = members(RowTransaction), members(ToyTransaction)

    assert len(rows) == 12
    assert rows <= own
    assert not own & ((members(UpkeepTransaction) | members(KeyedTransaction)) - rows)


def test_table_with_key_in_format_that_only_adds_rows_is_refused(toy: Lake, tmp_path: Path) -> None:
    table, file = toy.table("t.t"), tmp_path / "a.jsonl"
    file.write_text('{"id": 1, "a": 1}\n')

    with pytest.raises(UsageError, match=r"the format of the table at \S+/t/t can only add rows"):
        table.ingest(file, settings={"key": "id"})
    assert not table.format.load().exists


def test_rewrite_in_format_that_only_adds_rows_is_refused(toy: Lake, tmp_path: Path) -> None:
    table, file = toy.table("t.t"), tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n')
    table.ingest(file, settings={"policy": "widen", "allow_rewrite": "true"})
    file.write_text('{"a": 1.5}\n')

    with pytest.raises(UsageError, match="can only add rows"):
        table.ingest(file)
    assert [row.a for row in table.read().collect()] == [1]


def test_a_writer_that_was_slower_plans_anew(toy: Lake, tmp_path: Path) -> None:
    table, file = toy.table("t.t"), tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n')
    table.ingest(file)
    slow = table.format.transaction(table.format.load())
    table.ingest(file, again=True)

    with pytest.raises(Exception, match="changed by another writer"):
        slow.commit()
    assert table.read().count() == 2
