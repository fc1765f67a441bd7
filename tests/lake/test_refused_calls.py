"""Bad calls of the Python interface: each is one error of driftline's own, with what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from driftline import CaptureQuery, DriftlineError
from driftline.lake import Lake, PatternTables, Table

# Calls, and what their errors say; `here` is a folder, `table` has records with an id.
CALLS = r"""
Lake.open(3) | Lake.open: path is an int
Lake.open(None) | path is a NoneType
Lake.open("") | an empty path names no lake
Lake.open("ducklake:sqlite:lake.db") | is no folder, and no URI of a store
Lake.open("https://example.com/lake") | is no folder, and no URI of a store
Lake.open("a\0b") | NUL character
Lake.open(here / "file") | Cannot make the lake folder
Lake.open("s3://bucket/lake") | SQLite catalog
Lake.open(here / "other", durability="no") | durability = 'no' is not possible
Lake.open(here / "other", properties=3) | properties is an int
Lake.open(here / "other", properties={"type": 3}) | properties is a dict, with what it cannot hold
Lake.open(here / "other", ducklake=3) | ducklake is an int
Lake.open(here / "other", ducklake="mysql:x") | not a catalog of DuckLake
Lake.open(here / "other", notify=3) | notify is an int
Lake.attach(3) | Lake.attach: spark is an int
Lake.attach(lake.spark, 3) | catalog is an int
Lake.attach(lake.spark, "nope").tables() | 'nope' .* is not an Iceberg catalog
lake.on(3) | Lake.on: spark is an int
lake.table(3) | Lake.table: name is an int
lake.table("t") | not a table name
lake.stats(exact="yes") | exact is a str
lake.stats(progress=3) | progress is an int
lake.view("s.all", "s.nothing_*") | no table's name is like
lake.view("s.all", 3) | Lake.view: tables is an int
lake.fan_out(3) | Lake.fan_out: pattern is an int
lake.fan_out("s.t") | no pattern of tables
lake.fan_out("s.{a..b}") | 'a..b' is no path
lake.fan_out("s.{a}", max_tables="x") | max_tables is a str
lake.fan_out("s.{a}", max_tables=-1) | max_tables = -1
tables.ingest(3) | cannot ingest an int
tables.ingest([{"a": 1}], settings=3) | settings is an int
tables.ingest([{"a": 1}], dates="x") | dates = 'x'
tables.capture(3, name="c") | data is an int
tables.capture(here / "in", name="a/b") | not a valid capture name
tables.capture(here / "in", name="c", settings=3) | settings is an int
tables.capture(here / "in", name="c", changed_files="x") | changed_files = 'x'
tables.capture("kafka://localhost:1/t", name="c", value_format="avro") | values in avro need the registry
tables.ingest([{"a": 1}], audit=True) | has nothing to check
tables.verify(["kafka://localhost:1/t", "x"]) | topics are checked by themselves
tables.ingest([{"a": 1}], on_change=3) | on_change is an int
tables.seek(here / "in", name="c", to=3) | to is an int
tables.seek(here / "in", name="c", to="earliest") | has not begun
tables.ingest([{"a": 1}], fail_on="new") | fail_on says what an audit does
tables.verify(3) | cannot ingest an int
tables.verify([{"a": 1}]) | there is no table of s.{a}
tables.stats() | there is no table of s.{a}
tables.split(3) | PatternTables.split: table is an int
tables.split("s.nope") | there is no table
tables.split(table.name) | there is no column of values at a
lake.alter(3) | Lake.alter: sql is an int
lake.alter("select 1") | not ALTER TABLE
lake.alter("alter table s.nope add column b int") | there is no table s.nope
lake.altered("s.nope", 3, upgrade=False) | request is an int
lake.ui(allow_writes="yes") | Lake.ui: allow_writes is a str
lake.query(3) | Lake.query: sql is an int
lake.query("selec") | Syntax error
lake.query("select * from s.nope") | cannot be found
lake.sql(3) | Lake.sql: query is an int
lake.sql("") | SQL: Syntax error
lake.relocate("s.t", to=3) | to is an int
lake.relocate("s.t") | to another lake
lake.clean("x") | older_than is a str
lake.dropped(delete=3) | delete is an int
table.ingest(3) | cannot ingest an int
table.ingest([1]) | item 0 is an int
table.ingest("nowhere.jsonl") | no such file
table.ingest("a\0b") | NUL character
table.ingest(here / "bad.parquet") | bad.parquet: cannot be read as parquet
table.ingest(here / "bad.orc") | bad.orc: cannot be read as orc
table.ingest(here / "bad.avro") | bad.avro: cannot be read as avro
table.ingest(here / "bad.xlsx") | bad.xlsx: cannot be read as excel
table.ingest(here / "file") | unknown file extension
table.ingest(here / "file", format="nope") | format = 'nope' is not possible
table.ingest(here / "file", format=3) | format is an int
table.ingest({"id": 1}, policy="strcit") | did you mean 'strict'
table.ingest({"id": 1}, polcy="strict") | did you mean 'policy'
table.ingest({"id": 1}, hints={"id": "lnog"}) | did you mean long
table.ingest({"id": 1}, format="json") | format='json' is only for files
table.ingest({"id": 1}, json_column="id") | json_column is only for Spark DataFrames
table.ingest(here / "file", json_column="id") | json_column is only for Spark DataFrames
table.ingest({"id": 1}, metadata=True) | there is no metadata 'true': name some of file
table.ingest({"id": 1}, settings=3) | settings is an int
table.ingest({"id": 1}, settings={3: "x"}) | settings is a dict
table.ingest({"id": 1}, dry_run="yes") | dry_run is a str
table.ingest({"id": 1}, progress=3) | progress is an int
table.ingest({"id": 1}, on_change=3) | on_change is an int
table.ingest({"id": 1}, audit="yes") | audit is a str
table.ingest({"id": 1}, at_most="1", audit=True) | at_most is a str
table.ingest({"id": 1}, at_most=-1, audit=True) | at_most is -1
table.ingest({"id": 1}, at_most=1) | at_most says what an audit does
table.ingest({"id": 1}, at_most=1, audit=True) | has no expectations
table.ingest({"id": 1}, fail_on="new") | fail_on says what an audit does
table.ingest({"id": 1}, audit=True, fail_on="sibbling") | did you mean sibling
table.ingest({"id": object()}) | type object cannot be stored
table.ingest({(1, 2): 3}) | a key of type tuple
table.ingest({"a\ud800": 1}) | half of a surrogate
table.ingest(broken()) | item 1: .*broken raised KeyError: 'mine'
table.ingest(Model()) | Model.model_dump raised ValueError: no dump
table.capture(3, name="c") | Table.capture: data is an int
table.capture(here / "in", name=3) | name is an int
table.capture(here / "in", name="a/b") | a/b
table.capture(here / "in", name="c", json_column="id") | json_column is only for Spark DataFrames
table.capture(here / "in", name="c", every="10s") | every is a str
table.capture(here / "in", name="c", max_files="x") | max_files is a str
table.capture(here / "in", name="c", changed_files="nope") | changed_files = 'nope' is not possible
table.capture(here / "in", name="c", resume_from="nope") | resume_from = 'nope' is not possible
table.capture(here / "in", name="c", on_audit="nope") | on_audit = 'nope' is not possible
table.capture(here / "in", name="c", audit=True) | nothing to check
table.capture(here / "in", name="c", on_batch=3) | on_batch is an int
table.capture("kafka://localhost:9/t", name="k", kafka=3) | kafka is an int
table.capture("kafka://localhost:9/t", name="k", registry=3) | registry is an int
table.capture("kafka://localhost:9/t", name="k", value_format="jsn") | did you mean json
table.capture("kafka://localhost:9/t", name="k", start="nope") | not a position in a stream
table.seek(3, name="c", to="earliest") | source is an int
table.seek(here / "in", name="c", to=3) | to is an int
table.seek(here / "in", name="c", to="earliest") | has not begun
none.history() | there is no table
none.layout() | there is no table
none.undo() | there is no table
none.drop() | there is no table
none.compact() | there is no table
none.erase("id = 1") | there is no table
none.view() | there is no table
none.resolve("id", "long") | there is no table
none.promote("id") | there is no table
none.replan() | there is no table
none.quarantine() | there is no table
none.replay() | there is no table
none.discard_quarantine() | there is no table
none.restore_quarantine() | there is no table
none.stats() | there is no table
none.schema() | there is no table
none.state() | there is no table
none.read() | there is no table
none.to_arrow() | there is no table
none.to_pandas() | there is no table
none.to_polars() | there is no table
none.verify({"id": 1}) | there is no table
none.ui() | there is no table
table.alter(3) | Table.alter: changes is an int
table.undo(to="x") | to is a str
table.undo(to=99) | 99
table.erase(3) | where is an int
table.erase("nope = 1") | nope
table.view(3) | name is an int
table.view(types=3) | types is an int
table.view(types={"nope": "long"}) | nope
table.resolve(3, "long") | field is an int
table.resolve("id", 3) | type is an int
table.resolve("id", "lnog") | did you mean long
table.resolve("nope", "long") | nope
table.replan(3) | paths is an int
table.replan("a..b") | is not a path
table.promote(3) | paths is an int
table.promote("nope") | nothing to promote
table.export_quarantine(3) | file is an int
table.export_quarantine(here / "nowhere" / "file") | nowhere
table.replay(settings=3) | settings is an int
table.discard_quarantine(3) | source is an int
table.restore_quarantine(3) | source is an int
table.expire(3) | older_than is an int
table.stats(3) | paths is an int
table.to_arrow(3) | columns is an int
table.to_arrow([3]) | columns is a list, with what it cannot hold
table.to_arrow(["nope"]) | nope
table.to_arrow(where=3) | where is an int
table.to_arrow(where="((") | Syntax error
table.to_pandas(where="nope = 1") | nope
table.verify(3) | cannot ingest an int
table.verify("nowhere.jsonl") | no such file
table.verify(here / "bad.parquet") | bad.parquet: cannot be read
table.verify(here / "bad.avro") | bad.avro: cannot be read
table.verify(here / "bad.orc") | bad.orc
table.verify(here / "file", 3) | format is an int
"""
# Calls that take nothing which could be wrong, and what waits for a stream.
TAKE_NOTHING = {"Lake.close", "Lake.tables", "Lake.format", "Lake.spark", "Lake.warehouse", "Table.format"}


class Model:
    """A model whose code fails."""

    def model_dump(self) -> dict[str, Any]:
        raise ValueError("no dump")


def broken() -> Iterator[dict[str, int]]:
    yield {"id": 1}
    raise KeyError("mine")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "file").write_text("x")
    for ending in ("parquet", "orc", "avro", "xlsx"):
        (tmp_path / f"bad.{ending}").write_bytes(b"bad")
    return tmp_path


@pytest.mark.nightly
@pytest.mark.iceberg_only("of calls, before a format is asked")
def test_bad_call_is_an_error_of_driftline(lake: Lake, table_name: str, here: Path) -> None:
    table = lake.table(table_name)
    table.ingest(pa.table({"id": [1]}))
    names = {
        **globals(),
        "lake": lake,
        "table": table,
        "tables": lake.fan_out("s.{a}"),
        "none": lake.table(f"{table_name}_none"),
        "here": here,
    }
    others: list[str] = []
    for line in CALLS.strip("\n").splitlines():
        call, _, says = line.rpartition(" | ")
        try:
            eval(call, names)
        except DriftlineError as error:
            if not re.search(says, str(error)):
                others.append(f"{call}: {error}")
        except Exception as error:
            others.append(f"{call}: {type(error).__name__}: {error}")
        else:
            others.append(f"{call}: no error")
    assert others == []
    assert table.read().count() == 1


def test_each_public_call_has_a_bad_one() -> None:
    for class_, written in (
        (Lake, ("Lake", "lake")),
        (Table, ("table", "none")),
        (PatternTables, ("tables",)),
    ):
        for name, member in inspect.getmembers(class_):
            if (
                not name.startswith("_")
                and callable(member)
                and f"{class_.__name__}.{name}" not in TAKE_NOTHING
            ):
                assert any(f"{by}.{name}(" in CALLS for by in written), name


def test_time_to_wait_for_a_stream_is_a_number() -> None:
    with pytest.raises(DriftlineError, match="timeout is a str"):
        CaptureQuery.awaitTermination(object.__new__(CaptureQuery), "10s")  # type: ignore[arg-type]
