import sys
from datetime import UTC, datetime
from pathlib import Path
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from driftline.errors import SetupError
from driftline.lake import Lake
from driftline.runtime import session, temporary
from driftline.runtime.session import open_session
from driftline.runtime.spark_conf import configured
from driftline.runtime.spark_version import from_arrow

from .conftest import SETTINGS

pytestmark = pytest.mark.embedded_only("of the session that driftline opens")


@pytest.fixture
def db(spark):
    spark.sql("create namespace if not exists session_tests")
    yield "session_tests"
    spark.sql("drop namespace session_tests cascade")


def test_tables_are_found_by_namespace_and_name_and_evolve(spark, folder, db):
    spark.sql(f"create table {db}.t (id int) using iceberg")
    spark.sql(f"insert into {db}.t values (1)")
    spark.sql(f"alter table {db}.t add column name string")
    spark.sql(f"insert into {db}.t values (2, 'b')")
    assert sorted(map(tuple, spark.table(f"lake.{db}.t").collect())) == [(1, None), (2, "b")]
    assert (folder / db / "t" / "metadata").is_dir()
    spark.sql(f"drop table {db}.t")


def test_the_same_lake_is_the_same_session(spark, folder):
    assert open_session(folder, properties=SETTINGS) is spark
    assert open_session(folder) is spark


def test_two_lakes_in_one_process_do_not_see_each_other(spark, db, tmp_path):
    other = open_session(tmp_path / "other lake, 100% é")
    other.sql("create namespace there")
    other.sql("create table there.t using iceberg as select 1 as id")
    assert other.table("there.t").count() == 1
    assert [row.namespace for row in other.sql("show namespaces").collect()] == ["there"]
    assert "there" not in [row.namespace for row in spark.sql("show namespaces").collect()]


def test_views_work(spark, db):
    spark.sql(f"create table {db}.seen (id int) using iceberg")
    spark.sql(f"create view {db}.v as select id from {db}.seen")
    assert spark.table(f"{db}.v").columns == ["id"]
    spark.sql(f"drop view {db}.v")
    spark.sql(f"drop table {db}.seen")


def test_sql_reaches_neither_the_environment_nor_methods_of_java(spark, tmp_path):
    for ours in (spark, open_session(tmp_path / "other")):
        text = "${env:HOME} ${system:user.home} ${spark.app.name}"
        assert ours.sql(f"select '{text}'").first()[0] == text
        for function in ("reflect", "java_method", "try_reflect"):
            with pytest.raises(AnalysisException, match="UNRESOLVED_ROUTINE"):
                ours.sql(f"select {function}('java.lang.System', 'getenv', 'HOME')")


def test_avro_is_there_both_ways(spark, tmp_path):
    folder = str(tmp_path / "avro")
    spark.sql("select 1 as a, named_struct('t', timestamp'2026-01-01 00:00:00', 'd', 1.5) as s").write.format(
        "avro"
    ).save(folder)
    assert spark.read.format("avro").load(folder).selectExpr("a", "s.d", "cast(s.t as string)").first() == (
        1,
        1.5,
        "2026-01-01 00:00:00",
    )


def test_times_of_arrow_are_the_same_in_every_time_zone(spark):
    noon = datetime(2026, 1, 2, 12)
    rows = pa.table({"plain": [noon], "zoned": [noon.replace(tzinfo=UTC)]})
    with configured(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        frame = from_arrow(spark, rows)
        (row,) = frame.selectExpr("cast(plain as timestamp_ntz)", "unix_micros(zoned) as zoned").collect()
    assert (row.plain, row.zoned) == (noon, noon.replace(tzinfo=UTC).timestamp() * 1_000_000)


def test_python_s_processes_read_no_zip_before_each_task(spark):
    def zips(_):
        cache = sys.path_importer_cache.items()
        return [place for place, importer in cache if isinstance(importer, zipimporter)]

    assert spark.sparkContext.parallelize([1], 1).map(zips).first() == []


def test_no_port_is_open_to_the_outside(spark):
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    inodes = {str(fd.readlink()) for fd in Path(f"/proc/{process}/fd").iterdir()}
    lines = [
        line.split()
        for net in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{net}").read_text().splitlines()[1:]
    ]
    listening = {
        line[1].rpartition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes
    }
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening
    assert listening <= loopback


def test_a_lake_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"Cannot make the lake folder .*/file/lake: Not a directory"):
        open_session(tmp_path / "file" / "lake")


def test_settings_of_an_existing_catalog_replace_the_embedded_one(tmp_path):
    given = {"type": "rest", "uri": "http://127.0.0.1:1/", "spark.x": "y"}
    assert session.catalog_settings(tmp_path, "prod", given) == {
        "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.prod.cache-enabled": "false",
        "spark.sql.catalog.prod.rest-table-cache.max-entries": "0",
        "spark.sql.catalog.prod.type": "rest",
        "spark.sql.catalog.prod.uri": "http://127.0.0.1:1/",
        "spark.sql.defaultCatalog": "prod",
        "spark.x": "y",
    }


def test_the_warehouse_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = session.catalog_settings(Path("lake"), "lake", {})
    assert settings["spark.sql.catalog.lake.warehouse"] == str(tmp_path / "lake")
    assert settings["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{tmp_path}/lake/catalog.db"


def test_a_class_path_of_ones_own_goes_behind_that_of_the_engine():
    """Such as the driver of the database that a JDBC catalog is in."""
    key = "spark.driver.extraClassPath"
    engine = session.engine_settings([Path("/jars/a.jar")])
    assert session.with_settings(engine, {key: "/jars/driver.jar"})[key] == "/jars/a.jar:/jars/driver.jar"
    assert session.with_settings(engine, {"spark.x": "y"}) == {**engine, "spark.x": "y"}
    assert session.with_settings({}, {key: "/jars/driver.jar"}) == {key: "/jars/driver.jar"}


def test_a_cluster_is_sent_the_jars_and_this_machine_stays_closed():
    jars = [Path("/jars/a.jar"), Path("/jars/b.jar")]
    here, there = session.engine_settings(jars), session.engine_settings(jars, "spark://host:7077")
    assert here["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.jars" not in here
    assert there["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert "spark.driver.bindAddress" not in there
    assert here["spark.local.dir"] == here["spark.hadoop.hadoop.tmp.dir"] == str(temporary.folder())
    assert f"-Djava.io.tmpdir={temporary.folder()}" in here["spark.driver.extraJavaOptions"]
    assert "spark.local.dir" not in there


def test_the_home_folder_is_spelled_as_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    Lake.open("~/lake")
    assert (tmp_path / "home" / "lake").is_dir()
    assert not (tmp_path / "~").exists()
