"""A batch in an Iceberg table: one metadata version, all or nothing, read by readers that are not ours."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from driftline.core.changes import RelaxColumn, SetDoc
from driftline.errors import DataError, SetupError, UsageError
from driftline.formats.iceberg.handle import IcebergHandle
from driftline.formats.iceberg.manifests import local_path
from driftline.formats.iceberg.table import IcebergTable
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.lake import Lake, Table
from driftline.runtime.spark_version import java_type

pytestmark = pytest.mark.iceberg_only("of Iceberg's metadata")


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def lines(tmp_path: Path, *records: str) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(records))
    return file


def versions(table: Table) -> int:
    return table.lake.sql(f"select * from {table.format.handle.full_name}.metadata_log_entries").count()


def test_a_batch_is_one_metadata_version(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"a": 1, "o": {"x": 1}}'))
    assert versions(table) == 1
    table.ingest(lines(tmp_path, '{"a": "x", "b": [1], "o": {"x": "s", "y": true}, "c": {"d": 1.5}}'))
    assert versions(table) == 2
    table.ingest(lines(tmp_path, '{"a": 2}'))
    assert versions(table) == 3
    assert table.format.handle.java().operations().current().formatVersion() == 2
    snapshot = table.lake.sql(
        f"select summary from {table.format.handle.full_name}.snapshots order by committed_at desc"
    ).head()
    assert snapshot is not None
    assert snapshot.summary["driftline.batch"] == table.state().properties["driftline.batch"]


@pytest.mark.embedded_only("a catalog's server keeps its own files")
def test_session_whose_newest_metadata_file_is_gone_reads_the_version_before(
    lake: Lake, table: Table, tmp_path: Path
) -> None:
    table.ingest(lines(tmp_path, '{"a": 1}'))
    table.ingest(lines(tmp_path, '{"a": 2}'))
    newest = table.format.handle.java().operations().current().metadataFileLocation()
    local_path(newest).unlink()
    assert [row.a for row in lake.table(table.name).read().collect()] == [1]


def date_ahead(table: Table, hours: int) -> None:
    """Date all of a table's changes ahead, as a machine does whose clock is wrong."""
    assert isinstance(table.format, IcebergTable)
    handle = table.format.handle
    java = handle.java()
    base = java.operations().current()
    text = handle.metadata(java)
    for entry in (text, *text["snapshots"], *text["snapshot-log"], *text["metadata-log"]):
        key = "timestamp-ms" if "timestamp-ms" in entry else "last-updated-ms"
        entry[key] += hours * 3_600_000
    parser = java_type(handle.jvm, "org.apache.iceberg.TableMetadataParser")
    java.operations().commit(base, parser.fromJson(json.dumps(text)))


@pytest.mark.nightly
def test_table_whose_last_change_is_ahead_of_the_clock_takes_the_next_one(
    table: Table, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    table.ingest([{"id": 1, "n": 1}, {"id": 2, "n": "x"}])
    table.ingest([{"id": 3}])
    date_ahead(table, 1)
    assert isinstance(table.format, IcebergTable)
    handle = table.format.handle
    before = handle.metadata(handle.java())

    table.ingest([{"id": 4, "new": True}])
    table.alter(RelaxColumn(("id",)), SetDoc(("id",), "the id"))
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 5}')
    table.capture(tmp_path / "in", name="c").awaitTermination()
    table.resolve("n", "string")

    after = handle.metadata(handle.java())
    assert sorted(row.id for row in table.read().select("id").collect()) == [1, 2, 3, 4, 5]
    assert before["snapshot-log"] == after["snapshot-log"][: len(before["snapshot-log"])]
    assert before["snapshots"] == after["snapshots"][: len(before["snapshots"])]
    times = [entry["timestamp-ms"] for entry in after["snapshot-log"]]
    assert times == sorted(set(times))
    assert after["last-updated-ms"] >= before["last-updated-ms"] + 4
    logged = [entry["timestamp-ms"] for entry in after["metadata-log"]]
    assert logged == sorted(logged)


def test_all_fields_are_optional_at_every_level(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    table.ingest(
        spark.sql("select 1 as a, struct(1 as x, array(struct(2 as y)) as l) as o, map('k', 1) as m")
    )
    required = [path for path, f in table.state().schema.walk() if f.required and path[-1] != "key"]
    assert required == []


def test_ids_are_kept_and_marks_are_written(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"a": 1, "o": [{"x": 1}]}'))
    before = {path: f.id for path, f in table.state().schema.walk()}
    table.ingest(lines(tmp_path, '{"o": [{"x": "s"}], "a": "x"}'))
    after = dict(table.state().schema.walk())
    assert {path: after[path].id for path in before} == before
    assert after["o", "element", "x_string"].doc == "upsolver_evolved_from:x"
    assert after["a_string",].doc == "upsolver_evolved_from:a"


@pytest.mark.embedded_only("pyiceberg opens SQLite's file")
def test_pyiceberg_reads_the_same(table: Table, folder: Path, table_name: str, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"a": 1, "o": {"x": [1, 2]}}'))
    table.ingest(lines(tmp_path, '{"a": "x", "o": {"x": "s"}}', '{"a": 2}'))
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{folder.resolve()}/catalog.db", warehouse=str(folder.resolve())
    )
    rows = catalog.load_table(table_name).scan().to_arrow().to_pylist()
    catalog.engine.dispose()
    assert sorted((r["a"] or 0, r["a_string"] or "", str(r["o"])) for r in rows) == [
        (0, "x", "{'x': None, 'x_string': 's', 'x_array_string': ['s']}"),
        (1, "", "{'x': [1, 2], 'x_string': None, 'x_array_string': None}"),
        (2, "2", "None"),
    ]


def test_rows_are_read_as_they_are_now_where_a_catalog_caches(
    table: Table, spark: SparkSession, tmp_path: Path
) -> None:
    """As each catalog of Spark's does that nobody has told otherwise."""
    caching = spark.newSession()
    caching.conf.set("spark.sql.catalog.lake.cache-enabled", "true")
    reader = Lake.attach(caching, "lake").table(table.name)
    for count in (1, 2):
        table.ingest(lines(tmp_path, f'{{"a": {count}}}'))
        assert reader.read().count() == count
        assert reader.format.read(table.state().snapshot).count() == count


def test_a_failing_write_leaves_no_column_and_no_file(
    table: Table, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ingest(lines(tmp_path, '{"a": 1}'))
    before, files = table.state(), data_files(table, folder)

    def fail(self: IcebergTransaction) -> None:
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTransaction, "commit", fail)
        with pytest.raises(RuntimeError):
            table.ingest(lines(tmp_path, '{"a": "x", "b": 1}'))
    assert table.state() == before
    assert data_files(table, folder) == files
    assert table.ingest(lines(tmp_path, '{"a": "x", "b": 1}')).rows_written == 1


def data_files(table: Table, folder: Path) -> list[str]:
    return sorted(str(p) for p in folder.joinpath(*table.name.split("."), "data").rglob("*.parquet"))


def test_a_change_by_someone_else_meanwhile_is_planned_anew(
    table: Table, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ingest(lines(tmp_path, '{"a": 1}'))
    meanwhile = [
        f"alter table {table.format.handle.full_name} add column b string",
        f"alter table {table.format.handle.full_name} rename column a to renamed",
    ]
    write = IcebergTransaction.write

    def interrupted(self: IcebergTransaction, *args: Any) -> int | None:
        if meanwhile:
            lake.sql(meanwhile.pop())
        return write(self, *args)

    monkeypatch.setattr(IcebergTransaction, "write", interrupted)
    result = table.ingest(lines(tmp_path, '{"a": 2, "b": "x", "c": true}'))
    assert result.rows_written == 1 and not meanwhile
    assert [f.name for f in table.state().schema.struct.fields] == ["renamed", "b", "a", "c"]
    assert table.read().count() == 2


def test_a_rejected_record_of_a_failed_batch_is_not_kept(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ingest(lines(tmp_path, '{"a": 1}', "broken"))
    from driftline.quarantine import table as quarantine

    commit = IcebergTransaction.commit

    def fails_for_the_table(self: IcebergTransaction) -> None:
        if self.table.name == table.name:
            raise RuntimeError("no")
        commit(self)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTransaction, "commit", fails_for_the_table)
        with pytest.raises(RuntimeError):
            table.ingest(lines(tmp_path, '{"a": 2}', "also broken"))
    assert [r.raw for r in quarantine.of(table.format).read().collect()] == ["broken"]


def test_a_column_with_a_setting_of_the_table(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"d": "2024-01-01"}'), settings={"dates": "off"})
    table.ingest(lines(tmp_path, '{"e": "2024-01-01"}'))
    assert [str(f.type) for f in table.state().schema.struct.fields] == ["string", "string"]
    with pytest.raises(UsageError, match="did you mean 'dates'"):
        table.ingest(lines(tmp_path, "{}"), settings={"date": "off"})


def test_any_iceberg_catalog_will_do(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.catalog.other", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.other.type", "hadoop")
    spark.conf.set("spark.sql.catalog.other.warehouse", str(tmp_path / "wh"))
    table = Lake.attach(spark, catalog="other").table("db.deep.t")
    table.ingest(lines(tmp_path, '{"a": 1}'))
    table.ingest(lines(tmp_path, '{"a": "x"}'))
    assert {tuple(r) for r in table.read().collect()} == {(1, None), (None, "x")}


def test_a_catalog_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="'nowhere'"):
        Lake.attach(spark, catalog="nowhere").table("db.t").ingest(lines(tmp_path, '{"a": 1}'))
    with pytest.raises(UsageError, match=r"namespace\.table"):
        Lake.attach(spark, catalog="lake").table("t")


def test_a_value_that_no_column_takes_fails_the_batch(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should observing and converting ever disagree on a value, the batch fails rather than lose it."""
    from driftline.convert import arrow_values, json_values

    for module in (arrow_values, json_values):
        monkeypatch.setattr(module, "takes_number", lambda *_: False)
    for field, record in (
        ("a", '{"a": 1}\n{"a": "x"}'),
        (r"o\.a", '{"o": {"a": 1.50, "b": true}}\n{"o": {"a": "x"}}'),
    ):
        with pytest.raises(DataError, match=f"no column takes a value of the field {field}"):
            table.ingest(lines(tmp_path, record))
    assert not table.format.load().exists


def test_several_make_a_namespace_at_once(iceberg: Lake, table_name: str) -> None:
    """A catalog in SQL may tell of that by a constraint, and not as what exists already."""

    def make(namespace: str) -> None:
        iceberg.table(f"{namespace}.t").format._make_namespace()

    with ThreadPoolExecutor(4) as pool:
        for i in range(12):
            list(pool.map(make, [f"{table_name.replace('.', '_')}_{i}"] * 4))


def test_a_catalog_whose_namespaces_have_one_part(
    iceberg: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Glue refuses to look for a namespace of two parts, as a folder in the table's own would have."""
    plugin = iceberg.table(table_name).format.handle.plugin
    jvm: Any = iceberg.spark._jvm

    class Glue:
        """The catalog's plugin, but for such namespaces."""

        def __getattr__(self, name: str) -> Any:
            return getattr(plugin, name)

        def namespaceExists(self, namespace: Any) -> bool:  # noqa: N802  Java's name
            parts = list(namespace)
            nothing = iceberg.spark.sparkContext._gateway.new_array(jvm.Object, 0)
            jvm.org.apache.iceberg.exceptions.ValidationException.check(len(parts) == 1, str(parts), nothing)
            return bool(plugin.namespaceExists(namespace))

    monkeypatch.setattr(IcebergHandle, "plugin", Glue())
    assert iceberg.table(table_name).ingest(lines(tmp_path, '{"a": 1}')).rows_written == 1
