"""The column `_source`: off by default, the batch and its time of each row where the setting asks for it."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro import parse_schema, writer
from pyarrow import orc

from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def batches(table: Table, key: str = "id") -> dict[Any, str | None]:
    """The batch that each row names."""
    return {row[key]: row["_source"] and row["_source"]["batch"] for row in table.read().collect()}


@pytest.mark.nightly
def test_every_kind_of_source_names_its_batch(table: Table, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [3]}), tmp_path / "c.parquet")
    sources = [
        write(tmp_path / "a.jsonl", '{"id": 1}\n'),
        write(tmp_path / "b.csv", "id\n2\n"),
        tmp_path / "c.parquet",
        [{"id": 4}],
        table.format.spark.sql("select 5L as id"),
    ]

    ids = [table.ingest(source, settings={"metadata": "batch"}).batch for source in sources]

    assert batches(table) == dict(enumerate(ids, 1))
    assert all(table.verify(source).ok for source in sources[:4])


def test_it_begins_and_ends_with_the_setting(table: Table, tmp_path: Path) -> None:
    table.ingest(write(tmp_path / "a.jsonl", '{"id": 1}\n'))
    assert "_source" not in table.read().columns
    begin = datetime.now(UTC).timestamp()
    on = table.ingest(write(tmp_path / "b.jsonl", '{"id": 2}\n'), settings={"metadata": "batch"}).batch
    both = table.ingest(write(tmp_path / "c.jsonl", '{"id": 3}\n'), settings={"metadata": "batch,time"}).batch
    table.ingest(write(tmp_path / "d.jsonl", '{"id": 4}\n'), settings={"metadata": ""})

    assert batches(table) == {1: None, 2: on, 3: both, 4: None}
    seconds = table.read().selectExpr("id", "cast(_source.time as double) t").collect()
    times = {row["id"]: row["t"] for row in seconds}
    assert begin <= times.pop(3) <= datetime.now(UTC).timestamp()
    assert times == {1: None, 2: None, 4: None}
    assert table.verify(sorted(tmp_path.glob("*.jsonl")), exactly=True).ok


def test_a_field_of_this_name_keeps_its_values(table: Table, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"id": 1, "_source": "web"}\n')
    batch = table.ingest(file, settings={"metadata": "batch"}).batch
    later = write(tmp_path / "b.jsonl", '{"id": 2, "_source": "app"}\n')
    table.ingest(later)

    rows = {row["id"]: row.asDict(recursive=True) for row in table.read().collect()}
    assert [rows[1]["_source"], rows[2]["_source"]] == ["web", "app"]
    assert {"batch": batch} in rows[1].values()
    assert table.verify([file, later]).ok


@pytest.mark.parametrize("merge", ["replace", "patch"])
def test_a_row_by_key_names_the_batch_that_last_wrote_it(table: Table, tmp_path: Path, merge: str) -> None:
    settings = {"key": "id", "merge": merge, "metadata": "batch"}
    first = write(tmp_path / "a.jsonl", '{"id": 1, "v": 1}\n{"id": 2, "v": 1}\n')
    second = write(tmp_path / "b.jsonl", '{"id": 2, "v": 2}\n')

    ids = [table.ingest(file, settings=settings).batch for file in (first, second)]

    assert batches(table) == {1: ids[0], 2: ids[1]}
    assert table.verify([first, second]).ok


def test_undo_takes_the_column_back_where_one_says_so(table: Table, tmp_path: Path) -> None:
    table.ingest(write(tmp_path / "a.jsonl", '{"id": 1}\n'))
    table.ingest(write(tmp_path / "b.jsonl", '{"id": 2}\n'), settings={"metadata": "batch,time"})

    with pytest.raises(DataError, match="would hide values: 1 of _source"):
        table.undo()
    table.undo(yes=True)

    assert table.read().columns == ["id"]


def test_an_unknown_name_is_refused(table: Table) -> None:
    with pytest.raises(
        UsageError, match="metadata: there is no metadata 'bacth': name some of file, line, topic"
    ):
        table.ingest([{"id": 1}], settings={"metadata": "bacth"})


def test_a_replayed_record_names_the_batch_of_its_replay(table: Table, tmp_path: Path) -> None:
    settings = {"policy": "strict", "hints": {"id": "long"}, "metadata": "batch"}
    first = table.ingest(write(tmp_path / "a.jsonl", '{"id": 1}\n{"id": 2, "n": 1}\n'), settings=settings)
    assert (first.rows_written, first.rows_quarantined) == (1, 1)

    table.replay(settings={"policy": "preserve"})

    named = batches(table)
    assert named[1] == first.batch
    assert named[2] not in (None, first.batch)
    assert table.verify(tmp_path / "a.jsonl").ok


def test_rows_of_a_rewrite_keep_theirs_and_partitions_have_theirs(table: Table, tmp_path: Path) -> None:
    settings = {"policy": "widen", "allow_rewrite": "true", "metadata": "batch", "partition_by": "p"}
    texts = '{"id": 1, "p": "a", "n": 1}\n', '{"id": 2, "p": "b", "n": "x"}\n'
    files = [write(tmp_path / f"{n}.jsonl", text) for n, text in enumerate(texts)]

    ids = [table.ingest(file, settings=settings).batch for file in files]

    assert batches(table) == {1: ids[0], 2: ids[1]}
    assert table.verify(files, exactly=True).ok


PLACE = {"metadata": "file,line"}


def places(table: Table, key: str = "id") -> dict[Any, tuple[str | None, int | None]]:
    """The name of the file, and the line, of each row."""
    rows = table.read().collect()
    return {row[key]: (named(row["_source"]["file"]), row["_source"]["line"]) for row in rows}


def named(file: str | None) -> str | None:
    return file and Path(file).name


@pytest.mark.nightly
def test_every_kind_of_file_names_file_and_line(table: Table, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"id": 1}\n\n{"id": 2}\nno json\n{"id": 3}\n')
    write(tmp_path / "b.json", '[{"id": 4},\n {"id": 5}]')
    write(tmp_path / "c.csv", 'id,t\n6,"a\nb"\n\n7,x,y\n8,x\n')
    write(tmp_path / "d.csv", 'id,t\n9,say "a"\n10,b\n')
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(b'{"id": 11}\n{"id": 12}\n'))
    pq.write_table(pa.table({"id": [13, 14, 15]}), tmp_path / "f.parquet", row_group_size=2)
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    with (tmp_path / "g.avro").open("wb") as file:
        writer(file, parse_schema(schema), [{"id": 16}, {"id": 17}], sync_interval=1)
    with zipfile.ZipFile(tmp_path / "h.zip", "w") as archive:
        archive.writestr("in.jsonl", '{"id": 18}\n')

    for path in sorted(tmp_path.iterdir()):
        table.ingest(path, metadata="file,line")
        assert table.verify(path).ok
    table.ingest([{"id": 19}])

    assert places(table) == {
        1: ("a.jsonl", 1), 2: ("a.jsonl", 3), 3: ("a.jsonl", 5), 4: ("b.json", 1), 5: ("b.json", 2),
        6: ("c.csv", 2), 8: ("c.csv", 6), 9: ("d.csv", 2), 10: ("d.csv", 3),
        11: ("e.jsonl.gz", 1), 12: ("e.jsonl.gz", 2),
        13: ("f.parquet", 1), 14: ("f.parquet", 2), 15: ("f.parquet", 3), 16: ("g.avro", 1), 17: ("g.avro", 2),
        18: ("in.jsonl", 1), 19: (None, None),
    }  # fmt: skip


def test_lines_count_through_the_splits_of_a_file(table: Table, tmp_path: Path) -> None:
    count = 120_000
    lines = (f'{{"id": {n}, "text": "{"x" * 100}"}}' for n in range(1, count + 1))
    file = write(tmp_path / "a.jsonl", "\n".join(lines))  # of 14 MB: three splits or more

    first = table.ingest(file, metadata="line")
    second = table.ingest(file, again=True)

    assert (first.rows_written, second.rows_written) == (count, count)
    assert table.read().where("_source.line != id or _source.line is null").count() == 0


def test_a_refused_record_has_its_line_after_its_replay(table: Table, tmp_path: Path) -> None:
    settings = {"policy": "strict", "hints": {"id": "long"}, **PLACE}
    files = [
        write(tmp_path / "a.jsonl", '{"id": 1}\n{"id": 2, "n": 1}\n'),
        write(tmp_path / "b.csv", "id\n3\n4.5\n"),
    ]
    for file in files:
        assert table.ingest(file, settings=settings).rows_quarantined >= 1

    table.replay(settings={"policy": "preserve"})

    by_line = sorted(
        (named(row["_source"]["file"]), row["_source"]["line"]) for row in table.read().collect()
    )
    assert by_line == [("a.jsonl", 1), ("a.jsonl", 2), ("b.csv", 2), ("b.csv", 3)]


def test_rows_with_dates_by_a_pattern_have_their_lines(table: Table, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "id,day\n1,24.12.2025\n2,soon\n")
    table.ingest(file, settings={"hints": {"day": "date('dd.MM.yyyy')"}, **PLACE})
    rows = {row["id"]: (str(row["day"]), row["_source"]["line"]) for row in table.read().collect()}
    assert rows == {1: ("2025-12-24", 2), 2: ("None", 3)}


@pytest.mark.parametrize("merge", ["replace", "patch"])
def test_a_row_by_key_names_the_line_of_its_latest_change(table: Table, tmp_path: Path, merge: str) -> None:
    settings = {"key": "id", "merge": merge, **PLACE}
    first = write(tmp_path / "a.jsonl", '{"id": 1, "v": 1}\n{"id": 2, "v": 1}\n{"id": 1, "v": 2}\n')
    second = write(tmp_path / "b.jsonl", '\n{"id": 2, "v": 5}\n')

    for file in (first, second):
        table.ingest(file, settings=settings)

    assert places(table) == {1: ("a.jsonl", 3), 2: ("b.jsonl", 2)}
    assert table.verify([first, second]).ok


def test_a_capture_of_files_names_them(table: Table, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.jsonl", '{"id": 1}\n{"id": 2}\n')
    settings = {"metadata": "file"}  # an argument counts before it
    table.capture(
        folder, name="c", settings=settings, metadata="file,line,batch", hints={"total": "decimal(9,2)"}
    ).awaitTermination()

    assert str(table.state().schema.find(("total",)).type) == "decimal(9, 2)"
    assert places(table) == {1: ("a.jsonl", 1), 2: ("a.jsonl", 2)}


@pytest.mark.nightly
def test_file_whose_name_is_not_utf8_is_named_with_its_bytes_escaped(table: Table, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    texts = {b"x\xff.jsonl": '{"id": 1}\noops\n', b"y\xe9.jsonl": '{"id": "a"}\n'}
    for name, text in texts.items():
        write(folder / os.fsdecode(name), text)

    result = table.ingest(folder, settings={"metadata": "file,line"})
    rows = {str(row["_source"]["file"]).rpartition("/")[2] for row in table.read().collect()}
    waiting = table.quarantine().to_dict()["groups"]

    assert rows == {r"x\xff.jsonl", r"y\xe9.jsonl"}
    assert [group["seen_in"] for group in waiting] == [rf"{folder}/x\xff.jsonl:2"]
    json.dumps(result.to_dict(), ensure_ascii=False).encode()
    assert table.verify(folder, exactly=True).ok
    assert table.discard_quarantine(os.fsdecode(b"x\xff.jsonl")).records == 1
    with pytest.raises(DataError, match=r"x\\xff\.jsonl"):
        table.ingest(folder)

    pq.write_table(pa.table({"id": [3]}), tmp_path / "c.parquet")
    (tmp_path / "c.parquet").rename(columns := folder / os.fsdecode(b"c\xff.parquet"))
    assert table.ingest(columns).rows_written == 1
    orc.write_table(pa.table({"id": [3]}), tmp_path / "d.orc")
    (tmp_path / "d.orc").rename(columns := folder / os.fsdecode(b"d\xff.orc"))
    with pytest.raises(UsageError, match=r"d\\xff\.orc: Spark reads orc files by names in UTF-8 only"):
        table.ingest(columns)
