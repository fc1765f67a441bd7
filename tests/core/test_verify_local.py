"""Small tables of a lake in a folder are verified in this process; what it takes Spark for is left to Spark."""

from __future__ import annotations

import os
import sys
from functools import partial
from operator import add
from pathlib import Path

import pytest

from driftline.errors import NeedsSpark, UsageError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.open import EmbeddedLake
from driftline.verify import Verdict, embedded
from driftline.verify.embedded import check_small
from driftline.verify.local import LocalDataset

ROWS = (
    "(1, 1.5, ['a', NULL], {'x': 1}, TIMESTAMPTZ '2026-01-02 03:04:05.000006+00'), (2, NULL, [], NULL, NULL), "
    "(3, '-0.0'::DOUBLE, NULL, {'x': NULL}, NULL)"
)
RECORDS = [
    '{"id": 1, "v": 1.5, "tags": ["a", null], "s": {"x": 1}, "day": "2026-01-02T03:04:05.000006Z"}',
    '{"id": 2, "tags": []}',
    '{"id": 3, "v": -0.0, "s": {}}',
]


@pytest.fixture
def lake(tmp_path: Path) -> EmbeddedLake:
    """A DuckLake whose rows are not driftline's."""
    catalog = CatalogDatabase.of("duckdb", tmp_path / "lake", durable=False)
    catalog.make()
    for statement in (
        "CREATE SCHEMA lk.s",
        "CREATE TABLE lk.s.t (id BIGINT, v DOUBLE, tags VARCHAR[], s STRUCT(x BIGINT), day TIMESTAMPTZ)",
        f"INSERT INTO lk.s.t VALUES {ROWS}",
        "CREATE TABLE lk.s.t__quarantine (raw VARCHAR, raw_bytes BLOB, reason VARCHAR, replay BIGINT)",
        "INSERT INTO lk.s.t__quarantine VALUES ('broken', NULL, NULL, NULL), (NULL, '\\xFF'::BLOB, NULL, NULL), ('gone', NULL, NULL, 0)",
    ):
        catalog.by_duckdb(statement)
    return EmbeddedLake(tmp_path / "lake", "duckdb", durable=False)


def check(lake: EmbeddedLake, tmp_path: Path, lines: list[str], *, exactly: bool = False) -> Verdict:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\n".join(line.encode(errors="surrogateescape") for line in lines))
    return check_small(lake, "s.t", [str(file)], "json", exactly=exactly)


@pytest.fixture(params=[0, 2**18], ids=["columns", "values"])
def by_columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are compared by whole columns first, or value by value."""
    monkeypatch.setattr("driftline.verify.job.SMALL", request.param)


@pytest.mark.usefixtures("by_columns")
def test_rows_and_quarantine_hold_the_records(lake: EmbeddedLake, tmp_path: Path) -> None:
    limit = sys.getrecursionlimit()
    verdict = check(lake, tmp_path, [*RECORDS, "broken", "\udcff"], exactly=True)

    assert (verdict.records, verdict.found, verdict.quarantined) == (5, 3, 2)
    assert (verdict.missing, verdict.extra, verdict.mismatches) == (0, 0, ())
    assert sys.getrecursionlimit() == limit


@pytest.mark.usefixtures("by_columns")
def test_losses_and_surplus_rows_are_found(lake: EmbeddedLake, tmp_path: Path) -> None:
    changed = RECORDS[0].replace("1.5", "1.25")
    verdict = check(lake, tmp_path, [changed, RECORDS[1], RECORDS[1], "{}"], exactly=True)

    assert (verdict.records, verdict.found, verdict.missing, verdict.extra) == (4, 1, 3, 4)
    assert {m.path for m in verdict.mismatches} == {"v", ""}
    assert {m.place.rpartition(":")[2] for m in verdict.mismatches if m.place} == {"1", "3", "4"}


def test_discarded_record_counts_where_it_is_missing_otherwise(lake: EmbeddedLake, tmp_path: Path) -> None:
    assert check(lake, tmp_path, [*RECORDS, "gone"]).quarantined == 1
    assert check(lake, tmp_path, [*RECORDS, "gone", "gone"]).missing == 1


def test_record_of_a_table_that_is_not_there_is_an_error(lake: EmbeddedLake, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("")
    assert check_small(lake, "s.none", [str(file)], "json", exactly=False).records == 0

    file.write_text("{}")
    with pytest.raises(UsageError, match=r"there is no table s\.none"):
        check_small(lake, "s.none", [str(file)], "json", exactly=False)


def test_what_takes_spark_is_left_to_it(
    lake: EmbeddedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_one = partial(check_small, lake, "s.t", exactly=False)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "in.json").write_text("{}")
    for name in ("pipe", "in.zip", "none.json"):  # a pipe is not even opened
        with pytest.raises(NeedsSpark, match="no plain file"):
            check_one([str(tmp_path / name)], "json")
    for fmt in ("excel", "orc"):
        with pytest.raises(NeedsSpark):
            check_one([str(tmp_path / "in.json")], fmt)
    with monkeypatch.context() as patch:
        patch.setattr(embedded, "_SOURCE", 7)
        with pytest.raises(NeedsSpark, match="files are large"):
            check_one([str(tmp_path / "in.json")], "csv")
        patch.setattr(embedded, "_ROWS", 2)
        with pytest.raises(NeedsSpark, match="table is large"):
            check_one([str(tmp_path / "in.json")], "json")
    lake.database().by_duckdb("ALTER TABLE lk.s.t ADD COLUMN clock TIME")
    with pytest.raises(NeedsSpark, match="otherwise than Spark"):
        check_one([str(tmp_path / "in.json")], "json")


def test_struct_may_be_named_like_the_table(lake: EmbeddedLake, tmp_path: Path) -> None:
    for statement in (
        "CREATE TABLE lk.s.r (r STRUCT(b INT), b INT)",
        "INSERT INTO lk.s.r VALUES ({'b': 1}, 2)",
    ):
        lake.database().by_duckdb(statement)
    file = tmp_path / "in.json"
    file.write_text('{"r": {"b": 1}, "b": 2}')

    assert check_small(lake, "s.r", [str(file)], "json", exactly=True).ok


def test_local_dataset_does_what_tasks_of_spark_do() -> None:
    def pairs() -> LocalDataset[tuple[str, int]]:
        return LocalDataset(lambda: [("b", 1), ("a", 2), ("b", 3)])

    summed = pairs().reduceByKey(add)

    assert sorted(summed.collect()) == [("a", 2), ("b", 4)]
    assert summed.leftOuterJoin(LocalDataset(lambda: [("a", 9)])).collectAsMap() == {
        "a": (2, 9),
        "b": (4, None),
    }
    assert pairs().repartitionAndSortWithinPartitions(2, hash, str).collect() == [
        ("a", 2),
        ("b", 1),
        ("b", 3),
    ]
    assert pairs().union(pairs()).values().filter(lambda n: n > 1).distinct().sum() == 5
    assert pairs().flatMap(lambda pair: pair[0] * pair[1]).mapPartitions(set).takeOrdered(1, str) == ["a"]
    assert pairs().values().fold(5, add) == 11
    twice = pairs().map(str)
    assert twice.collect() == twice.collect()
