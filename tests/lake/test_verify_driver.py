"""Few records next to few rows are compared in Spark's driver, and the report is that of tasks."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from core.shapes import schema
from driftline.errors import DataError, DriftlineError
from driftline.lake import Lake
from driftline.runtime.failure import explained
from driftline.verify import PICKLED, Stored, Verdict, frames, job, pickled, verify
from driftline.verify.driver import DriverDataset, DriverTasks

Outcome: TypeAlias = tuple[str, ...] | dict[str, Any]
ByEach: TypeAlias = Callable[[Callable[[], Verdict]], Outcome]
RECORDS = [
    {"id": 1, "total": 2.5, "at": "2026-01-02T03:04:05Z", "tags": ["a", None]},
    {"id": 2, "total": 3.0, "zip": 10115, "customer": {"name": "Ada", "vat": 12}},
    {"id": 2, "total": 3.0, "zip": 10115, "customer": {"name": "Ada", "vat": 12}},
    {"id": 3, "zip": "EC1A 1BB", "tags": []},
]


@pytest.fixture
def by_each(monkeypatch: pytest.MonkeyPatch) -> ByEach:
    """Checks in tasks and in the driver: the same report, or the same error."""

    def by_each(check: Callable[[], Verdict]) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(job, "HERE", -1)
            patch.setattr(DriverTasks, "beside", lambda *_: pytest.fail("tasks have to compare"))
            in_tasks = _outcome(check)
        with monkeypatch.context() as patch:
            patch.setattr(frames.SparkTasks, "parallelize", lambda *_: pytest.fail("no task has to compare"))
            limit = sys.getrecursionlimit()
            assert _outcome(check) == in_tasks
            assert sys.getrecursionlimit() == limit
        return in_tasks

    return by_each


def _outcome(check: Callable[[], Verdict]) -> Outcome:
    try:
        return check().to_dict()
    except DriftlineError as error:
        return type(error).__name__, error.message, error.hint or ""
    except (Py4JError, PySparkException) as error:  # `Table.verify` puts the table in front of it
        return "", *map(str, explained(error))


def _lines(*records: dict[str, Any] | str) -> str:
    texts = (record if isinstance(record, str) else json.dumps(record) for record in records)
    return "\n".join(texts) + "\n"


def _nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.nightly
def test_findings_in_the_driver_are_those_of_tasks(
    lake: Lake, tmp_path: Path, table_name: str, by_each: ByEach
) -> None:
    table, file = lake.table(table_name), tmp_path / "a.jsonl"
    deep = {"id": 4, "deep": _nested(20)}
    file.write_text(_lines(*RECORDS, deep, "broken"))
    table.ingest(file)
    first, second, third, _ = RECORDS

    def found(*records: dict[str, Any] | str) -> tuple[Any, ...]:
        """The counts that a check of these records has, and the places of what it finds in the source."""
        file.write_text(_lines(*records))
        report = by_each(lambda: table.verify(file, exactly=True))
        assert isinstance(report, dict), report
        counts = (report[count] for count in ("found", "quarantined", "missing", "extra"))
        places = [m["path"] + m["place"].removeprefix(str(file)) for m in report["mismatches"]]
        return *counts, places

    assert found(*RECORDS, deep, "broken") == (5, 1, 0, 0, [])
    changed, other_type = {**first, "total": 2.25}, {**second, "id": "2"}
    # Two rows lack a record for it, and a third has none in the source at all.
    assert found(changed, other_type, third, deep, "broken", "lost", {"id": 9}) == (
        2, 1, 4, 3, ["total:1", "id:2", ":6", ":7", "", "", ""]
    )  # fmt: skip
    other_depth, lost_depth = {"id": 4, "deep": _nested(19)}, {"id": 5, "deep": _nested(490)}
    assert found(*RECORDS, other_depth, lost_depth) == (4, 0, 2, 2, ["deep:5", ":6", "", ""])
    report = by_each(lambda: table.verify([*RECORDS, {"id": 9}]))
    assert isinstance(report, dict)
    assert (report["found"], report["missing"]) == (4, 1), "rows of Python"


@pytest.mark.nightly
@pytest.mark.iceberg_only("the file is found in the folder of the table")
def test_errors_in_the_driver_are_those_of_tasks(
    lake: Lake, folder: Path, tmp_path: Path, table_name: str, by_each: ByEach
) -> None:
    table, file = lake.table(table_name), tmp_path / "a.jsonl"
    file.write_text(_lines(*RECORDS))
    table.ingest(file)
    (rows,) = pickled(RECORDS, tmp_path)
    whole = Path(rows).read_bytes()
    Path(rows).write_bytes(whole[:-20])
    stored = Stored(table.format.read_readable(), table.format.load().schema)
    name, message, _ = by_each(lambda: verify(lake.spark, stored, [rows], PICKLED))
    assert message.startswith("the Python function read (")
    assert message.endswith("raised _pickle.UnpicklingError: pickle data was truncated")

    (damaged,) = (folder / "t" / table_name.removeprefix("t.") / "data").glob("*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:100])
    name, message, _ = by_each(lambda: table.verify(file))
    assert (name, message.partition(":")[0]) == ("DataError", f"{table_name} cannot be checked")


@pytest.mark.nightly
def test_only_few_rows_that_arrow_takes_are_read_for_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = frames.SparkTasks(spark)
    fetched = tasks.few(spark.range(2).toDF("a.b"))
    assert fetched is not None
    assert fetched.to_pydict() == {"c0": [0, 1]}
    deep = spark.range(1).selectExpr(f"cast(null as {'array<' * 70}int{'>' * 70}) as deep")
    assert tasks.few(deep) is None
    assert tasks.few(spark.range(100_000)) is None, "Spark estimates that they are many"
    assert tasks.few(spark.range(2).select()) is None, "rows without columns have no number in Arrow"
    monkeypatch.setattr(frames, "_FEW_ROWS", 1)
    assert tasks.few(spark.range(2)) is None, "they are more than Spark estimates"

    source = tmp_path / "source.jsonl"
    source.write_text('{"id": 0}\n{"id": 7}\n')
    verdict = verify(spark, Stored(spark.range(2), schema("id: long")), [str(source)], "json")
    assert (verdict.found, verdict.missing) == (1, 1), "tasks compare"


@pytest.mark.parametrize("name", ["long.jsonl", "a.jsonl.gz"])
def test_source_whose_text_may_be_long_is_compared_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = tmp_path / name
    line = b'{"id": 0}' + b" " * (job.HERE if name == "long.jsonl" else 0)
    source.write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    monkeypatch.setattr(DriverTasks, "beside", lambda *_: pytest.fail("tasks have to compare"))

    assert verify(spark, Stored(spark.range(1), schema("id: long")), [str(source)], "json").ok


def test_error_of_a_dataset_within_another_is_told_once() -> None:
    def fail() -> list[tuple[str, int]]:
        raise DataError("a cell is broken", "mend it")

    whole = DriverDataset(lambda: [("a", 1)]).leftOuterJoin(DriverDataset(fail))
    with pytest.raises(PythonException) as raised:
        whole.collect()

    assert explained(raised.value) == ("a cell is broken", "mend it")
    assert str(raised.value).count("Traceback") == 1
