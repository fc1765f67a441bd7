"""Hostile and broken input: stored and found by verify, or quarantined with the reason, or one clear error."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from driftline.errors import DataError, DriftlineError, UsageError
from driftline.ingest.batch import RecentBatches
from driftline.ingest.result import Result
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from driftline.sources.texts import TextScan

from .proof import proven


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


STORED: dict[str, list[str]] = {
    "a byte order mark": ['\ufeff{"a": 1}', '{"a": 2}'],
    "NUL characters": ['{"a": "x\\u0000y", "b\\u0000": 1}'],
    "line separators of Unicode": ['{"a": "x\u2028y\u0085z"}'],
    "carriage returns": ['{"a": 1}\r', '{"a":\r2}\r'],
    "100 levels": [nested(100)],
    "duplicate keys": ['{"a": 1, "a": 2}', '{"b": {"c": 1, "c": "x"}}', '{"b": "s"}'],
    "dotted keys": ['{"a.b": 1, "a": {"b": 2}, "x.y": {"z.w": [1.5]}}'],
    "backticks": ['{"a`b": 1, "`": {"``": 2}}'],
    "newlines and quotes in keys": [json.dumps({"two\nlines": 1, "q\"u'o\\te": {"\t": [1]}, " ": 2})],
    "keys of 300 characters": [json.dumps({"k" * 300: 1, "k" * 299 + "x": "s", "é" * 200: 2})],
    "keys that differ only in case": ['{"id": 1, "ID": "x", "Id": 2.5, "o": {"k": 1, "K": {"q": 1, "Q": 2}}}', '{"iD": true, "o": {"k": "s"}}'],
    "names of metadata columns": ['{"_file": 1, "_pos": "x", "_partition": {"_deleted": true}, "_spec_id": 1, "_row_id": 2}'],
    "names of SQL": [json.dumps({"select": 1, "a; drop table x": 2, "${spark.master}": 3, "x'y": {"--": 4}, "*": 5})],
    "SQL in values": [json.dumps({"a": "'; drop table t; --", "b": "${env:HOME}", "c": "\\'"}), '{"a": 1.50}'],
    "a column named like Spark's own": ['{"_corrupt_record": 1, "value": 2, "text": "x", "r": 3}', '{"_corrupt_record": "x"}'],
    "long strings": [json.dumps({"a": "x" * 100_000, "b": "\\" * 20_000 + '"' * 20_000}), '{"b": 2.50}'],
    "numbers in every spelling": ['{"n": 1E5, "m": -0.0, "o": 1e-7, "p": 0.30000000000000004, "q": -0}', '{"n": "x", "q": "y"}'],
    "all at once": ['{"a": 1}', '{"a": 2.5}', '{"a": "x"}', '{"a": [1]}', '{"a": {"b": 1}}', '{"a": [[{"b": "y"}]]}', '{"a": true}', '{"a": null}', '{"a": 123456789012345678901234567890}'],
}  # fmt: skip


MARKS = {"keys of 300 characters": pytest.mark.hive_refuses("longer than the names in its database")}


@pytest.mark.parametrize(
    "lines", [pytest.param(lines, id=title, marks=MARKS.get(title, ())) for title, lines in STORED.items()]
)
def test_stored_and_found(table: Table, tmp_path: Path, lines: list[str]) -> None:
    result = ingested(table, tmp_path, "\n".join(lines).encode())
    assert (result.rows_written, result.rows_quarantined) == (len(lines), 0)
    assert not quarantine.of(table.format).load().exists, "nothing was rejected"


QUARANTINED: dict[str, bytes] = {
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": [-Infinity]}',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "half a surrogate": b'{"a": "\\ud83d"}',
    "two records in a line": b'{"a": 1}{"a": 2}',
    "a record and garbage": b'{"a": 1} x',
    "half a record": b'{"a": 1',
    "a scalar": b"42",
    "a list": b'["a"]',
    "a control character": b'{"a": "x\x00"}',
    "5,000 levels": nested(5_000).encode(),
}


def test_quarantined_with_its_reason(table: Table, tmp_path: Path) -> None:
    """Each in a file of its own, all in one batch."""
    folder, kept = tmp_path / "in", {}
    folder.mkdir()
    for number, line in enumerate(QUARANTINED.values()):
        (folder / f"{number}.jsonl").write_bytes(b'{"good": 1}\n' + line + b'\n{"good": 2}')
    result = table.ingest(folder)
    assert (result.rows_written, result.rows_quarantined) == (2 * len(QUARANTINED), len(QUARANTINED))
    planned = table.ingest(folder, dry_run=True, again=True)
    assert not planned.changes
    assert planned.to_dict()["malformed"] == result.to_dict()["malformed"] == list(result.rejected)
    proven(table, folder)
    for row in quarantine.of(table.format).read().collect():
        assert row.reason and row.line == 2, row
        kept[Path(row.source).name] = row.raw_bytes or row.raw.encode()
    assert kept == {f"{number}.jsonl": line for number, line in enumerate(QUARANTINED.values())}


@pytest.mark.nightly
def test_rows_of_typed_files_whose_text_is_not_utf_8_wait(table: Table, tmp_path: Path) -> None:
    """Others of the file come in, and the bytes are kept."""
    texts = pa.array([b"a", b'\xff"\xc3', b"\\xff"]).view(pa.string())
    columns = pa.table({"n": [1, 2, 3], "s": texts, "l": pa.ListArray.from_arrays([0, 1, 2, 3], texts)})
    pq.write_table(columns, tmp_path / "a.parquet")
    orc.write_table(columns, str(tmp_path / "b.orc"))
    for file in (tmp_path / "a.parquet", tmp_path / "b.orc"):
        result = table.ingest(file)
        assert (result.rows_read, result.rows_written, result.rows_quarantined) == (3, 2, 1)
        verdict = table.verify([str(file)])
        assert (verdict.ok, verdict.found, verdict.quarantined) == (True, 2, 1)
    assert sorted(row.n for row in table.read().collect()) == [1, 1, 3, 3]
    kept = sorted(quarantine.of(table.format).read().collect(), key=lambda row: row.source)
    raw = b'{"n":2,"s":"\xff\\"\xc3","l":["\xff\\"\xc3"]}'
    assert [bytes(row.raw_bytes) for row in kept] == [raw, raw]
    assert [row.reason for row in kept] == [
        "row group 0, row 1: s: text that is not UTF-8",
        "s: text that is not UTF-8",
    ]


def test_an_empty_file_makes_nothing(table: Table, tmp_path: Path) -> None:
    result = ingested(table, tmp_path, b"\n  \n")
    assert (result.rows_read, result.snapshot) == (0, None)
    assert not table.format.load().exists


def test_a_batch_without_any_column_waits_in_quarantine(table: Table, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{}\n{"a": null}\n{"b": []}')
    result = table.ingest(tmp_path / "in.jsonl")
    assert (result.rows_written, result.rows_quarantined) == (0, 3)
    assert {row.reason for row in quarantine.of(table.format).read().collect()} == {"no columns yet"}
    assert result.to_dict()["untyped"] == ["a", "b"]
    assert result.hints[0].startswith("no record has a value, and a table needs a column")


@pytest.mark.nightly
def test_many_distinct_keys(table: Table, tmp_path: Path) -> None:
    lines = [json.dumps({f"key-{i}-{j}": j for j in range(20)}) for i in range(50)]
    result = ingested(table, tmp_path, "\n".join(lines).encode())
    assert result.rows_written == 50


@pytest.mark.nightly
def test_a_record_with_too_many_keys_goes_in_with_a_rest(table: Table, tmp_path: Path) -> None:
    ingested(table, tmp_path, b'{"a": 1}')
    file = tmp_path / "wide.jsonl"
    file.write_text(json.dumps({"by_id": {f"k{i}": i for i in range(1_200)}}))
    result = table.ingest(file, settings={"maps": "off"})
    assert (result.rows_written, result.rows_quarantined) == (1, 0)
    (row,) = table.read().where("by_id is not null").selectExpr("by_id.k999", "_rest").collect()
    assert row.k999 == 999
    assert row._rest == {f"by_id.k{i}": str(i) for i in range(1_000, 1_200)}


def test_a_table_made_before_refuses_what_is_beyond_its_limits(table: Table, tmp_path: Path) -> None:
    ingested(table, tmp_path, b'{"a": 1}')
    file = tmp_path / "wide.jsonl"
    file.write_text(json.dumps({"by_id": {f"k{i}": i for i in range(30)}}))
    before = table.state()
    result = table.ingest(file, settings={"maps": "off", "max_columns": "30", "beyond": ""})
    assert (result.rows_written, result.rows_quarantined) == (0, 1)
    (conflict,) = result.conflicts
    assert "by_id would take the table beyond max_columns = 30" in conflict.why
    assert table.state().schema == before.schema


@pytest.mark.nightly
def test_a_line_of_50_mb(table: Table, tmp_path: Path) -> None:
    line = json.dumps({"a": "x" * 50_000_000, "b": 1})
    result = ingested(table, tmp_path, line.encode(), check=False)
    assert result.rows_written == 1
    assert table.read().selectExpr("length(a) as n").collect()[0].n == 50_000_000


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_record_that_is_too_long_waits_by_how_it_begins(lake: Lake, tmp_path: Path, packed: bool) -> None:
    table, file = lake.table(f"t.long_{packed}"), tmp_path / ("in.jsonl.gz" if packed else "in.jsonl")
    data = b'{"a": 1}\n{"a": "' + b"x" * 20_000 + b'"}\n{"a": 2}\n'
    file.write_bytes(gzip.compress(data) if packed else data)
    result = table.ingest(file, settings={"max_record_bytes": 10_000})
    assert (result.rows_written, result.rows_quarantined) == (2, 1)
    (row,) = lake.table(f"{table.name}__quarantine").read().collect()
    assert (row.source, row.line, row.raw[:10], row.raw[-1]) == (str(file), 2, '{"a": "xxx', "…")
    assert len(row.raw) < 5000 and "max_record_bytes" in row.reason
    assert table.replay().stay == 1
    proven(table, file)


@pytest.mark.parametrize("cut", ["half", "garbage"])
def test_half_a_gzip_is_an_error_that_names_the_file(table: Table, tmp_path: Path, cut: str) -> None:
    packed = gzip.compress(b'{"a": 1}\n' * 10_000)
    file = tmp_path / "in.jsonl.gz"
    file.write_bytes(packed[: len(packed) // 2] if cut == "half" else b"no gzip at all")
    failed(table, DataError, "in.jsonl.gz", file)


def test_a_gzip_is_read(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"a": 1}\n{"a": "x"}'))
    assert table.ingest(file).rows_written == 2
    proven(table, file)


def test_nothing_to_read(table: Table, tmp_path: Path) -> None:
    failed(table, UsageError, "no such file", tmp_path / "away.jsonl")
    (tmp_path / "folder").mkdir()
    failed(table, UsageError, "no files to ingest", tmp_path / "folder")


def test_a_file_that_vanishes_leaves_the_table_as_it_was(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}\n')
    with monkeypatch.context() as patch:
        meanwhile(patch, file.unlink)
        failed(table, DataError, "in.jsonl", file)
    file.write_text('{"a": 1}\n')
    assert table.ingest(file).rows_written == 1


@pytest.mark.parametrize(
    "other", ['{"a": 1}\n{"a": 2}\n', '{"a": "text"}\n', '{"b": [1]}\n{"c": 2.50}\nbroken\n']
)
def test_a_file_that_changes_meanwhile_is_taken_whole_as_it_then_is(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}\n')
    meanwhile(monkeypatch, lambda: file.write_text(other))
    result = table.ingest(file)
    assert result.rows_read == other.count("\n")
    proven(table, file)


def meanwhile(patch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Makes the change between observing, or guessing, and reading."""
    plan = RecentBatches.plan

    def meddle(*args: Any) -> Any:
        change()
        return plan(*args)

    patch.setattr(RecentBatches, "plan", meddle)


@pytest.mark.nightly
def test_files_that_are_broken_inside_are_named(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(200_000).selectExpr("id", "cast(id as string) as s").coalesce(1)
    for fmt in ("parquet", "orc", "avro"):
        rows.write.format(fmt).save(str(tmp_path / fmt))
        (file,) = (tmp_path / fmt).glob("part*")
        data = file.read_bytes()
        third = len(data) // 3
        file.write_bytes(data[:third] + b"Z" * 2000 + data[third + 2000 :])
        where = f"{file}: row group 0: id" if fmt == "parquet" else str(file)
        hint = (
            "write the file again"
            if fmt == "parquet"
            else "check that the file is in this format, and complete"
        )
        failed(table, DataError, f"{where}: cannot be read", file, hint=hint)


def test_a_file_that_vanishes_is_told_as_such(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a.csv", "a\n1\n"), ("a.json", '{"a": 1}\n')):
        file = tmp_path / name
        file.write_text(text)
        with monkeypatch.context() as patch:
            meanwhile(patch, file.unlink)
            failed(
                table,
                DataError,
                f"{file} was deleted while it was read",
                file,
                hint="nothing was committed",
            )


@pytest.fixture
def ansi(spark: SparkSession) -> Iterator[None]:
    """Errors of arithmetic, which Spark 3.5 has only if it is told to."""
    key = "spark.sql.ansi.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "true")
    yield
    spark.conf.set(key, before)


@pytest.mark.nightly
@pytest.mark.usefixtures("ansi")
def test_what_a_dataframe_raises_is_told_alone(table: Table, spark: SparkSession) -> None:
    """Without any guess at files that might have changed."""

    def boom(x):  # type hints would be Spark's to judge
        raise ValueError(f"no {x}")

    def die(x):
        os._exit(9)

    # One partition: Spark may stop the Python process of a task that it cancels after another task has it.
    frame = spark.range(0, 1, 1, 1)
    raised = r"the Python function boom \(.+:[0-9]+\) raised ValueError: no 0"
    for expression, words in (
        (F.udf(boom, "string")("id"), raised),
        (F.expr("if(id = 0, raise_error('my own'), 'x')"), "my own"),
        (F.expr("1 / id"), "Division by zero"),
        # Last: Spark may give the worker that dies to the next task, too.
        (F.udf(die, "string")("id"), "a Python process of Spark's stopped"),
    ):
        with pytest.raises(DataError, match=words) as told:
            table.ingest(frame.select("id", expression.alias("x")))
        assert "file" not in str(told.value) and "Job aborted" not in str(told.value)


@pytest.mark.nightly
def test_rows_that_come_otherwise_when_read_again(
    table: Table, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can count them: that is said, and no file is blamed. What is read once goes in."""
    tasks = tmp_path / "tasks"  # a byte for each that has begun

    def fewer(x, task={}):  # type: ignore[no-untyped-def]  # noqa: B006  each task has its own
        if not task:
            with tasks.open("ab") as file:
                file.write(b".")
            task["number"] = tasks.stat().st_size
        return None if x % task["number"] else "x"

    once = F.udf(fewer, "string").asNondeterministic()
    own = table.name.replace(".", "_")  # a batch like one that was planned before would be read once
    frame = spark.range(1000).select("id", once("id").alias(own)).where(f"{own} is not null")
    texts = frame.selectExpr("to_json(struct(*)) as text")
    with monkeypatch.context() as patch:
        patch.setattr(TextScan, "guess", lambda *_: None)  # as where a look at the first texts misleads
        with pytest.raises(DataError, match="records were observed") as told:
            table.ingest(texts, json_column="text")
    assert "persist" in str(told.value.hint)
    assert table.ingest(texts, json_column="text").rows_written > 0
    assert table.ingest(texts.persist(), json_column="text").rows_written > 0
    assert table.ingest(frame).rows_written > 0


DOCUMENTS = {
    "an object over lines": (b'{\n "a": 1,\n "b": [\n  "x"\n ]\n}\n', 1),
    "objects over lines": (b'{\n "a": 1\n}\n{\n "a": {\n  "b": "}\\n{"\n }\n}\n', 2),
    "an array of objects": (b'[{"a": 1},\n {"a": "x"}, {"a": 2.50}]', 3),
    "an array in one line": (b'[{"a": 1}, {"a": null, "b": 2}]\n', 2),
    "an empty array": (b"[]", 0),
}


@pytest.mark.parametrize(("data", "records"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_json_documents(table: Table, tmp_path: Path, data: bytes, records: int) -> None:
    file = tmp_path / "doc.json"
    file.write_bytes(data)
    result = table.ingest(file)
    assert (result.rows_read, result.rows_written) == (records, records)
    if records:
        proven(table, file)


def ingested(table: Table, tmp_path: Path, data: bytes, *, check: bool = True) -> Result:
    file = tmp_path / "in.jsonl"
    file.write_bytes(data)
    result = table.ingest(file)
    assert result.rows_written + result.rows_quarantined == result.rows_read
    if check and result.rows_read:
        proven(table, file)
        assert not table.ingest(file, dry_run=True).changes
    return result


def failed(table: Table, kind: type[DriftlineError], words: str, file: Path, *, hint: str = "") -> None:
    """The ingest fails with one clear error, and the table is as it was."""
    before = table.format.load()
    with pytest.raises(kind, match=words) as told:
        table.ingest(file)
    assert hint in str(told.value.hint)
    after = table.format.load()
    assert (after.schema, after.snapshot, after.exists) == (before.schema, before.snapshot, before.exists)


@pytest.mark.iceberg_only("of the source alone")
def test_orc_column_that_spark_cannot_read_is_named_with_its_file(table: Table, tmp_path: Path) -> None:
    far = pa.array([2**62], pa.timestamp("ms"))
    for name, at in (("a.orc", pa.array([0], pa.timestamp("ms"))), ("b.orc", far)):
        orc.write_table(pa.table({"id": [1], "at": at}), str(tmp_path / name))
    with pytest.raises(DataError, match=r"b\.orc: at: cannot be read: long overflow$"):
        table.ingest(tmp_path)
