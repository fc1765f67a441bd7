"""Values in the paths of files, `day=2026-01-01/`, as columns; and as `verify` has it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError
from driftline.readers.columnar.parquet import parquet_readers
from driftline.readers.json.splits import blocks, splits_of, with_members
from driftline.sources.files import expand
from driftline.sources.listing import json_members, partitioned, path_fields, path_texts
from driftline.verify.files import FilePart
from driftline.verify.files import read as records_of
from driftline.verify.path_values import path_values, with_values
from driftline.verify.values import Cell


def written(folder: Path, steps: dict[str, pa.Table]) -> list[str]:
    for step, table in steps.items():
        (folder / step).mkdir(parents=True)
        with (folder / step / "a.parquet").open("wb") as file:  # Arrow takes no path that is not UTF-8
            pq.write_table(table, file)
    return expand([str(folder)])[1]


def rows(files: list[str]) -> list[dict[str, Any]]:
    readers = partitioned(parquet_readers(files), {file: path_texts(file) for file in files})
    batches = [r.batch for reader in readers for part in range(len(reader.sizes)) for r in reader.rows(part)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("texts", "type_", "values"),
    [
        (["1", "-20"], "int", [1, -20]),
        (["1", "3000000000"], "long", [1, 3_000_000_000]),
        (["007", "8"], "string", ["007", "8"]),
        (["1.5", "2"], "double", [1.5, 2.0]),
        (["2026-01-01", "2026-02-28"], "date", [date(2026, 1, 1), date(2026, 2, 28)]),
        (["2026-02-30"], "string", ["2026-02-30"]),
        (["2026-01-01 10%3A00%3A00"], "timestamp_ntz", [datetime(2026, 1, 1, 10)]),
        (["true"], "string", ["true"]),
        (["K%C3%B6ln", "a+b%20%2F"], "string", ["Köln", "a+b /"]),
        (["\udcff", "%FE", "x"], "string", [r"\xff", r"\xfe", "x"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], "int", [1, None]),
        (["2026-01-01", "7"], "string", ["2026-01-01", "7"]),
    ],
)
def test_types_are_those_of_all_texts(
    tmp_path: Path, texts: list[str], type_: str, values: list[Any]
) -> None:
    """As Spark has them, but for digits that would be lost."""
    paths = {f"/{n}": f"/in/p={text}/a" for n, text in enumerate(texts)}
    (field,) = path_fields({file: path_texts(path) for file, path in paths.items()})
    assert (field.name, str(field.type)) == ("p", type_)
    assert [some.get("p") for some in path_values(paths, "parquet").values()] == values
    files = written(tmp_path, {f"p={text}": pa.table({"a": [n]}) for n, text in enumerate(texts)})
    assert [row["p"] for row in sorted(rows(files), key=lambda row: row["a"])] == values


def test_files_that_lack_a_key_have_none_of_it(tmp_path: Path) -> None:
    files = written(tmp_path, {"a=1/b=x": pa.table({"n": [1]}), "_a=2": pa.table({"n": [2, 3]})})
    assert rows(files) == [
        {"n": 2, "_a": 2, "a": None, "b": None},
        {"n": 3, "_a": 2, "a": None, "b": None},
        {"n": 1, "_a": None, "a": 1, "b": "x"},
    ]


def test_a_column_that_the_file_has_as_well(tmp_path: Path) -> None:
    agreed = pa.table({"day": pa.array([None, date(2026, 1, 1)], pa.date32())})
    assert rows(written(tmp_path / "1", {"day=2026-01-01": agreed})) == [{"day": date(2026, 1, 1)}] * 2
    with pytest.raises(DataError, match=r"a\.parquet: day is 2026-01-01 in a row, and 2026-01-02 in the"):
        rows(written(tmp_path / "2", {"day=2026-01-02": agreed}))
    moments = pa.table({"day": pa.array([datetime(2026, 1, 1, 10)], pa.timestamp("us"))})
    assert rows(written(tmp_path / "4", {"day=2026-01-01": moments})) == moments.to_pylist()
    with pytest.raises(DataError, match=r"day is .* in a row, and x in the path"):
        rows(written(tmp_path / "3", {"day=x": agreed}))


def test_values_in_paths_of_csv_are_cells() -> None:
    path = "/f/part=1000/a.csv"
    ((part,),) = (values.values() for values in path_values({path: path}, "csv").values())
    assert isinstance(part, Cell) and part == "1000"


def test_records_of_json(tmp_path: Path) -> None:
    folder = tmp_path / "day=2026-01-01" / "n=7"
    folder.mkdir(parents=True)
    lines = [b'{"a": 1}', b"{ }", b'{"n": null, "a": {"n": 5}}', b'{"day": "2026-01-01"}', b"[1]", b"{no"]
    (folder / "a.json").write_bytes(b"\n".join(lines))
    path = str(folder / "a.json")
    (split,) = splits_of(path)
    members = json_members({path: path_texts(path)})[path]
    read = [line for some in blocks(replace(split, beside=members), 100) for line in some]
    assert [json.loads(line) for line in read[:4]] == [
        {"a": 1, "day": "2026-01-01", "n": 7},
        {"day": "2026-01-01", "n": 7},
        {"n": 7, "a": {"n": 5}, "day": "2026-01-01"},
        {"day": "2026-01-01", "n": 7},
    ]
    assert read[4:] == lines[4:]
    values = path_values({path: path}, "json")
    records = [with_values(values, record).record for record in records_of(FilePart(path, "json"))]
    assert records == [*map(json.loads, read[:4]), None, None]
    moment = b'{"day": "2026-01-01T10:00:00Z","n":7}'
    assert with_members(moment, replace(split, beside=members)) == moment
    with pytest.raises(DataError, match=r"a\.json: n is 8 in a record, and 7 in the path"):
        with_members(b'{"n": 8}', replace(split, beside=members))
