"""A micro-batch enters its table once: by its token, whoever else writes, whatever died before."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from driftline.core.history.batch_properties import BatchIsInError, Token
from driftline.errors import DataError, SetupError
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.table import IcebergTable
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.ingest import accept, attempts
from driftline.ingest.result import Result
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from driftline.runtime.spark_version import java_type
from driftline.sources.json_files import JsonFiles, JsonScan
from lake.formats import beside, database


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def bring(
    table: Table,
    folder: Path,
    epoch: int,
    *lines: str,
    stream: str = "stream-1",
    name: str = "orders",
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """One micro-batch of these lines."""
    file = folder / f"{name}-{stream}-{epoch}.jsonl"
    file.write_text("\n".join(lines))
    source = JsonFiles(spark=table.lake.spark, files=[str(file)])
    options = attempts.Options(token=Token(name, stream, epoch), progress=progress)
    return attempts.ingest(table.format, source, options)


def at(phase: str, act: Callable[[], object]) -> Callable[[str], None]:
    """A progress that acts, once, when the phase begins."""
    todo = [act]

    def progress(now: str) -> None:
        if now == phase and todo:
            todo.pop()()

    return progress


def ids(table: Table) -> list[Any]:
    return sorted(row.id for row in table.read().select("id").collect())


def versions(table: Table) -> int:
    return table.lake.sql(f"select * from {table.format.handle.full_name}.metadata_log_entries").count()


def files(table: Table, folder: Path) -> int:
    return len(list(folder.joinpath(*table.name.split("."), "data").rglob("*.parquet")))


@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_a_batch_with_nothing_new_is_one_metadata_version(table: Table, tmp_path: Path) -> None:
    for epoch in range(3):
        result = bring(table, tmp_path, epoch, json.dumps({"id": epoch, "a": "x"}))
        assert versions(table) == epoch + 1
        assert result.batch == f"orders-{epoch}-stream-1"
    assert table.state().properties["driftline.capture.orders"] == "stream-1:2"


@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_a_batch_comes_once(table: Table, tmp_path: Path) -> None:
    for epoch in (0, 1):
        bring(table, tmp_path, epoch, json.dumps({"id": epoch}))
    table.lake.sql(
        f"call lake.system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))"
    )
    table.lake.sql(f"call lake.system.expire_snapshots(table => '{table.name}', retain_last => 1, "
                   "older_than => timestamp'2100-01-01')")  # fmt: skip
    before = versions(table)
    for epoch in (1, 0):
        with pytest.raises(BatchIsInError):
            bring(table, tmp_path, epoch, json.dumps({"id": 7}))
    assert versions(table) == before
    bring(table, tmp_path, 2, json.dumps({"id": 2}))
    assert ids(table) == [0, 1, 2]


def test_another_checkpoint_of_the_same_name_is_refused(table: Table, tmp_path: Path) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')
    with pytest.raises(DataError, match="by another checkpoint"):
        bring(table, tmp_path, 0, '{"id": 0}', stream="stream-2")
    bring(table, tmp_path, 0, '{"id": 1}', stream="stream-2", name="others")
    assert ids(table) == [0, 1]


@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_an_empty_batch_makes_no_version(table: Table, tmp_path: Path) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')
    assert bring(table, tmp_path, 1, "").snapshot is None
    assert versions(table) == 1


@pytest.mark.parametrize("phase", ["writing", "committing"])
def test_of_two_processes_with_one_batch_one_brings_it(
    table: Table, folder: Path, tmp_path: Path, phase: str
) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')

    def other() -> None:
        bring(table, tmp_path, 1, '{"id": 1}', "broken")

    with pytest.raises(BatchIsInError):
        bring(table, tmp_path, 1, '{"id": 1}', "broken", progress=at(phase, other))
    assert ids(table) == [0, 1]
    if database(table.lake) is None:
        assert files(table, folder) == 2
    assert quarantine.of(table.format).read().count() == 1


@pytest.mark.parametrize("phase", ["planning", "writing", "committing"])
@pytest.mark.iceberg_only("of Iceberg's metadata files")
def test_two_captures_into_one_table(
    table: Table, folder: Path, tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that another capture adds meanwhile cost a commit more, and no planning or writing."""
    bring(table, tmp_path, 0, '{"id": 0}')
    monkeypatch.setattr(JsonScan, "guess", lambda *_: None)  # a wrong one is written, too
    planned = counted(monkeypatch, accept, "plan")
    written = counted(monkeypatch, IcebergTransaction, "write")
    bring(
        table,
        tmp_path,
        1,
        '{"id": 1, "new": 1}',
        progress=at(phase, lambda: bring(table, tmp_path, 0, '{"id": 2}', name="b")),
    )
    assert len(planned) <= len(written) == 2  # a plan may be remembered
    assert ids(table) == [0, 1, 2]
    assert [f.name for f in table.state().schema.struct.fields] == ["id", "new"]
    properties = table.state().properties
    assert (properties["driftline.capture.orders"], properties["driftline.capture.b"]) == (
        "stream-1:1",
        "stream-1:0",
    )
    snapshot = table.lake.sql(
        f"select summary from {table.format.handle.full_name}.snapshots order by committed_at desc"
    ).head()
    assert snapshot is not None and snapshot.summary["driftline.batch"] == "orders-1-stream-1"


def counted(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    calls: list[None] = []
    original = getattr(owner, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return original(*args, **kwargs)

    patch.setattr(owner, name, counting)
    return calls


@pytest.mark.parametrize("phase", ["writing", "committing"])
def test_the_same_new_column_of_two_captures_is_made_once(table: Table, tmp_path: Path, phase: str) -> None:
    bring(table, tmp_path, 0, '{"id": 0, "a": 1}')
    record = '{{"id": {}, "a": "text", "b": {{"c": 1}}}}'
    bring(
        table,
        tmp_path,
        1,
        record.format(1),
        progress=at(phase, lambda: bring(table, tmp_path, 0, record.format(2), name="b")),
    )
    assert [f.name for f in table.state().schema.struct.fields] == ["id", "a", "a_string", "b"]
    assert table.read().where("a_string = 'text' and b.c = 1").count() == 2


ALTERS = {
    "add column b string": ("id, a, b", [(0, 1, None), (1, 2, "3")]),
    "rename column a to z": ("id, z, a, b", [(0, 1, None, None), (1, None, 2, 3)]),
    "drop column a": ("id, b, a", [(0, None, None), (1, 3, 2)]),
    "alter column n type bigint": ("id, a, n, b", [(0, 1, 9, None), (1, 2, None, 3)]),
}  # fmt: skip


@pytest.mark.parametrize("phase", ["planning", "writing", "committing"])
@pytest.mark.parametrize("alter", ALTERS)
@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_person_alters_the_table_meanwhile(table: Table, tmp_path: Path, alter: str, phase: str) -> None:
    columns, rows = ALTERS[alter]
    bring(table, tmp_path, 0, '{"id": 0, "a": 1}')
    if " n " in alter:
        table.lake.sql(f"alter table {table.format.handle.full_name} add column n int")
        table.lake.sql(f"update {table.format.handle.full_name} set n = 9")
    bring(
        table,
        tmp_path,
        1,
        '{"id": 1, "a": 2, "b": 3}',
        progress=at(phase, lambda: table.lake.sql(f"alter table {table.format.handle.full_name} {alter}")),
    )
    found = table.read().orderBy("id")
    assert sorted(found.columns) == sorted(columns.split(", "))
    assert [tuple(row) for row in found.selectExpr(*columns.split(", ")).collect()] == rows


@pytest.mark.iceberg_only("by Iceberg's procedures")
def test_compaction_meanwhile(table: Table, tmp_path: Path) -> None:
    for epoch in range(3):
        bring(table, tmp_path, epoch, json.dumps({"id": epoch}))

    def compact() -> None:
        table.lake.sql(
            f"call lake.system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))"
        )

    bring(table, tmp_path, 3, '{"id": 3}', progress=at("committing", compact))
    assert ids(table) == [0, 1, 2, 3]


@pytest.mark.nightly
def test_two_captures_that_commit_all_the_time(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    bring(table, tmp_path, 0, '{"id": -1}', name="first")

    def capture(name: str) -> None:
        other = beside(table.lake, spark.newSession()).table(table.name)
        for epoch in range(12):
            bring(other, tmp_path, epoch, json.dumps({"id": epoch, f"of_{name}": True}), name=name)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(capture, ["a", "b"]))
    assert ids(table) == [-1, *sorted([*range(12)] * 2)]
    assert {f.name for f in table.state().schema.struct.fields} == {"id", "of_a", "of_b"}


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_table_that_was_dropped_or_made_again_is_not_written(table: Table, tmp_path: Path) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')
    uuid = table.state().uuid
    source = JsonFiles(spark=table.lake.spark, files=[str(tmp_path / "orders-stream-1-0.jsonl")])
    for prepare, words in (("drop table", "was dropped"), ("create table", "is another one")):
        table.lake.sql(
            f"{prepare} {table.format.handle.full_name}" + (" (id int)" if "create" in prepare else "")
        )
        with pytest.raises(DataError, match=words):
            attempts.ingest(
                table.format, source, attempts.Options(token=Token("orders", "stream-1", 1, uuid))
            )


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_table_dropped_while_it_is_written(table: Table, tmp_path: Path) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')
    uuid = table.state().uuid
    source = JsonFiles(spark=table.lake.spark, files=[str(tmp_path / "orders-stream-1-0.jsonl")])
    drop = at("committing", lambda: table.lake.sql(f"drop table {table.format.handle.full_name}"))
    options = attempts.Options(token=Token("orders", "stream-1", 1, uuid), progress=drop)
    with pytest.raises(DataError, match="was dropped"):
        attempts.ingest(table.format, source, options)
    assert not table.format.load().exists


# What died leaves behind ---------------------------------------------------------------------------------------


def died(table: Table, folder: Path, epoch: int, *lines: str, phase: str, patch: pytest.MonkeyPatch) -> None:
    """A try of the batch that ends at ``phase``, without a word, as a killed process does."""

    def die() -> None:
        raise KeyboardInterrupt

    with patch.context() as dead:
        for kind in (IcebergTransaction, DuckLakeTransaction):
            dead.setattr(kind, "abandon", lambda _: None)
        dead.setattr(quarantine.Staged, "undo", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            bring(table, folder, epoch, *lines, progress=at(phase, die))


PHASES = ["observing", "planning", "writing", "quarantining", "committing", "committed"]


@pytest.mark.parametrize("phase", PHASES)
def test_after_a_death_every_record_is_there_once(
    table: Table, tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if phase == "quarantining" and database(table.lake) is not None:
        pytest.skip("a DuckLake's rejects land with the rows")
    bring(table, tmp_path, 0, '{"id": 0}', "bad 0")
    lines = ['{"id": 1, "b": 1}', "bad 1"]
    for _ in range(2):
        try:
            died(table, tmp_path, 1, *lines, phase=phase, patch=monkeypatch)
        except BatchIsInError:
            assert phase == "committed"
    try:
        bring(table, tmp_path, 1, *lines)
    except BatchIsInError:
        assert phase == "committed"
    assert ids(table) == [0, 1]
    assert sorted(row.raw for row in quarantine.of(table.format).read().collect()) == ["bad 0", "bad 1"]
    bring(table, tmp_path, 2, '{"id": 2}')
    assert [f.name for f in table.state().schema.struct.fields] == ["id", "b"]


def test_what_a_dead_try_rejected_is_forgotten_where_the_next_one_takes_it(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')
    died(table, tmp_path, 1, '{"id": 1}', "bad", phase="committing", patch=monkeypatch)
    bring(table, tmp_path, 1, '{"id": 1}', '{"id": 2}')
    assert ids(table) == [0, 1, 2]
    kept = quarantine.of(table.format)
    assert not kept.load().exists or kept.read().count() == 0


def test_batches_of_nothing_but_rejects(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for phase in ("quarantining", "committed"):
        died(table, tmp_path, 0, "bad 0", "{}", phase=phase, patch=monkeypatch)
    bring(table, tmp_path, 0, "bad 0", "{}")
    assert not table.format.load().exists
    bring(table, tmp_path, 1, '{"id": 1}')
    bring(table, tmp_path, 2, "bad 2")
    with pytest.raises(BatchIsInError):
        bring(table, tmp_path, 2, "bad 2")
    kept = quarantine.of(table.format).read().orderBy("raw").collect()
    assert [row.raw for row in kept] == ["bad 0", "bad 2", "{}"]
    assert ids(table) == [1]


def test_a_failed_batch_leaves_no_reject_and_takes_no_others(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(table, tmp_path, 0, '{"id": 0}', "bad 0")

    def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        bring(table, tmp_path, 1, '{"id": 1}', "bad 1", progress=at("committing", fail))
    assert [row.raw for row in quarantine.of(table.format).read().collect()] == ["bad 0"]


@pytest.mark.iceberg_only("by Iceberg's procedures")
def test_rejects_that_were_compacted_are_undone_by_their_batch(table: Table, tmp_path: Path) -> None:
    bring(table, tmp_path, 0, '{"id": 0}', "bad 0")
    kept = f"{table.name}__quarantine"

    def fail() -> None:
        table.lake.sql(
            f"call lake.system.rewrite_data_files(table => '{kept}', options => map('rewrite-all', 'true'))"
        )
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        bring(table, tmp_path, 1, '{"id": 1}', "bad 1", progress=at("committing", fail))
    assert [row.raw for row in quarantine.of(table.format).read().collect()] == ["bad 0"]


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_quarantine_of_an_earlier_version_gets_the_new_columns(table: Table, tmp_path: Path) -> None:
    table.lake.sql("create namespace if not exists lake.t")
    name = quarantine.of(table.format).handle.full_name
    table.lake.sql(f"create table {name} (raw string, raw_bytes binary, reason string, source string, line bigint, batch string, quarantined_at timestamp)")  # fmt: skip
    table.lake.sql(f"insert into {name} values ('old', null, 'why', 'f', 1, 'b', current_timestamp())")
    bring(table, tmp_path, 0, '{"id": 0}', "bad")
    assert {row.raw for row in table.lake.sql(f"select raw from {name} where topic is null").collect()} == {
        "old",
        "bad",
    }


class Unsure:
    """A Java transaction, or its operations, whose catalog breaks off: before or after it has committed."""

    def __init__(self, java: Any, error: Py4JJavaError, *, commits: bool) -> None:
        self._java, self._error, self._commits = java, error, commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._java, name)

    def underlyingOps(self) -> Unsure:  # noqa: N802  Java's name
        return Unsure(self._java.underlyingOps(), self._error, commits=self._commits)

    def commit(self, base: Any, metadata: Any) -> None:
        if self._commits:
            self._java.commit(base, metadata)
        raise self._error


@pytest.mark.parametrize(
    ("unsure", "said"),
    [
        ("exceptions.CommitStateUnknown", ""),
        ("exceptions.REST", "Error occurred while processing POST request"),
        ("jdbc.UncheckedSQL", "Unknown failure"),
    ],
)
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.iceberg_only("of Iceberg's commits")
def test_a_commit_of_which_the_catalog_is_not_sure(
    table: Table,
    folder: Path,
    tmp_path: Path,
    unsure: str,
    said: str,
    commits: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')
    gateway: Any = table.lake.spark.sparkContext._gateway
    cause = gateway.jvm.java.sql.SQLException("broken pipe")
    more = [said, gateway.new_array(gateway.jvm.java.lang.Object, 0)] if said else []
    error = Py4JJavaError("", java_type(gateway.jvm, f"org.apache.iceberg.{unsure}Exception")(cause, *more))
    begin = IcebergTable.transaction

    def lost(self: IcebergTable, *args: Any, **kwargs: Any) -> IcebergTransaction:
        transaction = begin(self, *args, **kwargs)
        transaction._java = Unsure(transaction._java, error, commits=commits)
        return transaction

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "transaction", lost)
        if commits:
            bring(table, tmp_path, 1, '{"id": 1}')
        else:
            with pytest.raises(SetupError, match="is not known"):
                bring(table, tmp_path, 1, '{"id": 1}')
    assert files(table, folder) == 2, "files that may be the table's stay"
    if not commits:
        bring(table, tmp_path, 1, '{"id": 1}')
    assert ids(table) == [0, 1]
