"""A third format goes the same road: one module that the road does not know, and one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.formats import open as formats
from driftline.lake import Lake
from lake.test_rules import check
from lake.toy import ToyLocation
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


def test_a_writer_that_was_slower_plans_anew(toy: Lake, tmp_path: Path) -> None:
    table, file = toy.table("t.t"), tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n')
    table.ingest(file)
    slow = table.format.transaction(table.format.load())
    table.ingest(file, again=True)

    with pytest.raises(Exception, match="changed by another writer"):
        slow.commit()
    assert table.read().count() == 2
