"""Scans of files, without Spark: opened, observed, read by a plan; nothing of them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.planner import plan
from driftline.core.schema.types import DOUBLE, Schema
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.table import TableSettings
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches
from driftline.observe.observation import Observation
from driftline.readers.columnar.parquet import parquet_readers
from driftline.readers.csv.reader import CsvFiles
from driftline.sources.column_files import ColumnFiles
from driftline.sources.json_files import JsonFiles
from driftline.sources.opening import opened
from driftline.sources.scan import Observed, Source
from driftline.tasks import run
from driftline.tasks.run import RowTasks

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))
Put = Callable[[Path], Source]


def json_files(folder: Path, **more: Any) -> Source:
    texts = ['{"a": 1, "b": "x"}\nbad\n{"a": 2}\n', '{"a": 3}\n{"a": 4, "b": "y"}\n']
    files = [str(folder / f"{i}.jsonl") for i in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        Path(file).write_text(text)
    return JsonFiles(spark=SPARK, files=files, **more)


def csv_files(folder: Path) -> Source:
    file = folder / "in.csv"
    file.write_text("a,b\n1,x\n2,\n3,z,too many\n3,\n4,y\n")
    return ColumnFiles(spark=SPARK, found=CsvFiles(SPARK, [str(file)], strings=False), files=[str(file)])


def parquet_files(folder: Path) -> Source:
    file = folder / "in.parquet"
    parquet.write_table(pa.table({"a": [1, 2, 3, 4], "b": ["x", None, None, "y"]}), file, row_group_size=2)
    return ColumnFiles(spark=SPARK, found=parquet_readers([str(file)]), files=[str(file)])


def more_and_more_json(folder: Path) -> list[str]:
    """Files of which the last is the largest."""
    texts = ['{"a": 1}\n', '{"a": 2}\n', '{"a": 3}\n{"a": 4, "b": "a long text"}\n']
    return [put_text(folder / f"{i}.jsonl", text) for i, text in enumerate(texts)]


def csv_with_two_headers(folder: Path) -> list[str]:
    texts = ["a,b\n1,x\n", "a,c\n2,x\n", "a,b\n3,x\n4,y\n"]
    return [put_text(folder / f"{i}.csv", text) for i, text in enumerate(texts)]


def parquet_of_two_types(folder: Path) -> list[str]:
    files = [str(folder / f"{i}.parquet") for i in range(4)]
    for number, (file, other) in enumerate(zip(files, [1, "x", 2, 3], strict=True), 1):
        parquet.write_table(pa.table({"a": [number], "b": [other]}), file)
    return files


def put_text(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


class _Rdd:
    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items

    def parallelize(self, items: Sequence[Any], count: int) -> _Rdd:
        assert len(items) == count
        return _Rdd(items)

    def map(self, task: Callable[[Any], Any]) -> _Rdd:
        return _Rdd(map(task, self.items))

    def flatMap(self, task: Callable[[Any], Iterable[Any]]) -> _Rdd:  # noqa: N802  Spark's name
        return _Rdd(item for share in self.items for item in task(share))

    def collect(self) -> list[Any]:
        return list(self.items)


@pytest.fixture(params=[True, False], ids=["here", "in tasks"])
def _small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SPARK.sparkContext, "parallelize", _Rdd(()).parallelize, raising=False)
    if not request.param:
        monkeypatch.setattr(run, "_SMALL", -1)


def numbers(rows: Iterable[pa.RecordBatch]) -> list[int]:
    """The numbers in the rows; a drifted value is in another column."""
    return [number for batch in rows for number in batch.column(0).to_pylist() if number is not None]


def written(observed: Observed) -> tuple[RowTasks, list[int]]:
    """The tasks by a plan for an observation, and the rows that they made."""
    planned = plan(Schema(), observed.observation.shape)
    tasks = observed.tasks(planned, planned.schema.struct)
    return tasks, sorted(number for part in tasks.run(numbers, None) for number in part)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("put", [json_files, csv_files, parquet_files])
def test_tasks_report_what_observing_alone_sees(tmp_path: Path, put: Put) -> None:
    scan = put(tmp_path).open(Schema(), TableSettings())
    observed = scan.observe()
    assert observed.observation.tally.records == 4
    assert observed.answers(scan.request)
    tasks, rows = written(observed)
    assert rows == [1, 2, 3, 4]
    assert tasks.results is not None and not any(result.diverged for result in tasks.results)
    merged = observed.scan.merged(tasks.results)
    assert merged.observation.tally == observed.observation.tally
    assert plan(Schema(), merged.observation.shape) == plan(Schema(), observed.observation.shape)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("put", [more_and_more_json, csv_with_two_headers, parquet_of_two_types])
def test_changes_by_key_come_in_the_order_of_their_files(
    tmp_path: Path, put: Callable[[Path], list[str]]
) -> None:
    settings = from_properties(as_properties({"key": "b"}))
    with opened(SPARK, put(tmp_path)) as source:
        observed = source.open(Schema(), settings).observe()
    planned = plan(Schema(), observed.observation.shape)
    parts = observed.tasks(planned, planned.schema.struct).run(numbers, None)
    rows = [number for part in parts for number in part]
    assert rows == list(range(1, 1 + len(rows)))


@pytest.mark.usefixtures("_small")
def test_nan_is_no_key_and_no_order(tmp_path: Path) -> None:
    nan, file = float("nan"), str(tmp_path / "in.parquet")
    records = {"n": [1, 2, 3, 4], "v": [nan] * 4, "a": [{"id": i} for i in (nan, 1.5, 2.0, None)]}
    parquet.write_table(pa.table({**records, "at": [1.0, 2.0, nan, 3.0]}), file)
    settings = from_properties(as_properties({"key": "a.id", "order_by": "at"}))
    with opened(SPARK, file) as source:
        observed, planned = accepted(source.open(Schema(), settings), RecentBatches(), lambda _: None)

    assert written(observed)[1] == [2]
    assert observed.observation.tally.rejected == 3
    assert {str(conflict) for conflict in planned.conflicts} == {"a.id: key: no value", "at: order: no value"}
    assert planned.schema.find(("v",)).type == DOUBLE


@pytest.mark.usefixtures("_small")
def test_a_speculated_plan_that_does_not_hold_is_in_the_results(tmp_path: Path) -> None:
    source = json_files(tmp_path)
    scan = source.open(Schema(), TableSettings())
    likely = scan.observe()
    Path(source.files[1]).write_text('{"a": "drifted"}\n{"a": 4}\n')
    guessed = source.open(Schema(), TableSettings()).guess(likely.observation)
    assert guessed is not None
    tasks, rows = written(guessed)
    assert tasks.results is not None and any(result.diverged for result in tasks.results)
    assert len(rows) < 4
    merged = guessed.scan.merged(tasks.results)
    assert (merged.observation.tally.records, merged.observation.tally.rejected) == (4, 1)
    assert not merged.answers(scan.request), "the file is another one"
    assert written(merged)[1] == [1, 2, 4]


def test_refusing_gives_another_scan(tmp_path: Path) -> None:
    scan = json_files(tmp_path).open(Schema(), TableSettings())
    refusing = scan.refusing(AdmissionCheck((Schema(),), (), TableSettings(), frozenset()), (), Observation())
    assert refusing.terms.refuse and not scan.terms.refuse
    assert refusing.observe().observation.tally.rejected > scan.observe().observation.tally.rejected == 1
    assert not refusing.observe().answers(scan.request)


def test_refused_document_with_a_list_of_records_gets_the_flag(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"page": 1, "data": [{"id": 1}, {"id": 2}]}')
    given = from_properties(as_properties({"key": "id"}))
    scan = JsonFiles(spark=SPARK, files=[str(file)]).open(Schema(), given)
    observed, planned = accepted(scan, RecentBatches(), lambda _: None)

    assert [conflict.why for conflict in planned.conflicts] == ["key: no value"]
    assert observed.observation.tally.rejected == 1
    assert observed.scan.notes(observed.observation) == [
        f"{file} is one object with a list of objects: --records data ingests these as records"
    ]


def test_files_are_cut_once_for_all_states_of_a_table(tmp_path: Path) -> None:
    source = json_files(tmp_path)
    scan = source.open(Schema(), TableSettings())
    observed = scan.observe()
    again = source.open(plan(Schema(), observed.observation.shape).schema, TableSettings(), observed.scan)
    assert getattr(again, "splits") is getattr(observed.scan, "splits")  # noqa: B009
    Path(source.files[0]).write_text('{"a": 1}\n')
    now = source.open(Schema(), TableSettings(), again)
    assert getattr(now, "splits") != getattr(again, "splits")  # noqa: B009


def test_reports_name_files_as_a_person_did(tmp_path: Path) -> None:
    file = str(tmp_path / "0.jsonl")
    source = json_files(tmp_path, names={file: "zip/0.jsonl"})
    (reason,) = source.open(Schema(), TableSettings()).observe().observation.tally.reasons
    assert reason.location.source == "zip/0.jsonl"
    assert reason.location.line == 2
