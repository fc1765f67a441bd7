"""One Spark session for the whole run, on a lake in a temporary folder."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any
from zlib import crc32

import pytest
from py4j.java_gateway import JavaPackage, JVMView
from pyspark.sql import SparkSession

from driftline.errors import NeedsSpark
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.lake import Lake, Table
from driftline.runtime.duckdb import database as duckdb
from driftline.runtime.file_io import settings as to_store
from driftline.runtime.jars import find_jars
from driftline.runtime.session import (
    catalog_settings,
    open_session,
    prepare_environment,
    stop_session,
    with_durability,
)
from driftline.runtime.spark_conf import FEW_ROWS
from driftline.runtime.stores import configure
from driftline.sources.files import expand
from driftline.sources.inputs import paths_or_rows
from driftline.verify import Verdict, job
from driftline.verify.comparison import TEXTS
from driftline.verify.embedded import check_small
from lake.formats import FORMATS, ducklake_at, is_embedded, without_spark
from servers.catalogs import CATALOGS
from servers.cluster import driver_settings
from servers.machine import lacking
from servers.postgres import Postgres
from servers.s3 import S3

# It runs on the sources of an earlier version alone.
collect_ignore = ["earlier/make.py"]
# The commands of tests/system compile and plan as Spark does by itself.
SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "2g", **FEW_ROWS}


SHARED = pytest.StashKey[SparkSession]()
ONLY = {"iceberg_only": "iceberg", "ducklake_only": "ducklake"}
# Files of tests in which a format has no say: what they are about is done before a format is asked. Over DuckLake
# a tenth of them runs, all with `--both-formats`; so do single tests that are marked `format_has_no_say`.
FORMAT_HAS_NO_SAY = {
    "test_bad_input.py",
    "test_capture.py",
    "test_capture_registry.py",
    "test_change_feeds.py",
    "test_csv.py",
    "test_data_contract.py",
    "test_deep.py",
    "test_discard.py",
    "test_empty_names.py",
    "test_envelopes.py",
    "test_envelopes_of_columns.py",
    "test_excel.py",
    "test_first_users.py",
    "test_in_memory.py",
    "test_maps.py",
    "test_metadata.py",
    "test_names.py",
    "test_notify.py",
    "test_one_go.py",
    "test_packed.py",
    "test_patched.py",
    "test_pipes.py",
    "test_policies.py",
    "test_promote.py",
    "test_recorded.py",
    "test_rest.py",
    "test_rules.py",
    "test_sources.py",
    "test_typed.py",
}


def repeats_first_format(item: pytest.Item) -> bool:
    """True for nine of ten tests over the second format that run over the first, too."""
    callspec = getattr(item, "callspec", None)
    second = callspec is not None and callspec.params.get("lake") == "ducklake"
    alone = item.get_closest_marker("ducklake_only") is not None
    return second and not alone and crc32(item.nodeid.encode()) % 10 > 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests over each format leave out those that their marker does, and `--in-catalog` those of DuckLakes.

    Tests that are named one by one run over both formats.
    """
    catalog = config.getoption("--in-catalog")
    named = any("::" in argument for argument in config.args)
    both = named or config.getoption("--both-formats") or config.getoption("--in-bucket")

    def left_out(item: pytest.Item) -> bool:
        """True if the item is of a format that its marker leaves out; each marker says why."""
        callspec = getattr(item, "callspec", None)
        over = callspec.params.get("lake") if callspec is not None else None
        markers = [(mark, ONLY[mark.name]) for mark in item.iter_markers() if mark.name in ONLY]
        assert all(mark.args for mark, _ in markers), f"{item.nodeid}: the marker needs its reason"
        no_say = (
            item.path.name in FORMAT_HAS_NO_SAY or item.get_closest_marker("format_has_no_say") is not None
        )
        if not both and no_say and repeats_first_format(item):
            return True
        if catalog and "ducklake" in {over, *getattr(item, "fixturenames", ())}:
            return True
        return over is not None and any(over != alone for _, alone in markers)

    for item in items:
        if repeats_first_format(item):
            item.add_marker("nightly")  # a tenth by day
    names = ("embedded_only", "hive_refuses") if catalog == "hive" else ("embedded_only",) if catalog else ()
    for item in items:
        for mark in (mark for name in names for mark in item.iter_markers(name)):
            item.add_marker(pytest.mark.skip(reason=f"not in {catalog}: {mark.args[0]}"))
    gone = [item for item in items if left_out(item)]
    items[:] = [item for item in items if item not in set(gone)]
    if gone:
        config.hook.pytest_deselected(items=gone)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake's tables."""
    return tmp_path_factory.mktemp("lake") / "tables"


@pytest.fixture(scope="session")
def lake_bucket(request: pytest.FixtureRequest) -> str | None:
    """The bucket that has the files of DuckLakes; None without `--in-bucket`: they are on the disk."""
    if not request.config.getoption("--in-bucket"):
        return None
    server: S3 = request.getfixturevalue("s3")
    configure("s3", server.options)
    return server.bucket("ducklakes")


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, folder: Path, lake_bucket: str | None) -> Iterator[SparkSession]:
    # Of the small tables here DuckDB gives each query to one thread; those that wait beside it take two fifths
    # of the CPU of a batch into a DuckLake.
    duckdb().execute("SET threads = 1")
    if catalog := request.config.getoption("--in-catalog"):
        with CATALOGS[catalog](folder.parent) as properties, users_session(folder, properties) as session:
            yield session
        return
    remember_names()
    properties = {**SETTINGS, **(to_store(lake_bucket) if lake_bucket else {})}
    # The tests of power cuts, and those of tests/system, sync what they write: each batch here would wait for the disk.
    session = open_session(folder, properties=with_durability(properties, durable=False))
    request.config.stash[SHARED] = session
    yield session
    stop_session(session)


def remember_names() -> None:
    """Have py4j ask Java once for what a name such as ``jvm.PythonUtils`` is, not at each use.

    For each that pyspark uses Java looks through all jars, package by package: a twelfth of its CPU here.
    """
    for kind in (JVMView, JavaPackage):

        def ask(
            view: JVMView | JavaPackage, name: str, asked: Callable[..., object] = kind.__getattr__
        ) -> object:
            """Return the class or package, and keep it as an attribute, before which this method is not called."""
            found = asked(view, name)
            vars(view)[name] = found
            return found

        kind.__getattr__ = ask


@pytest.fixture(autouse=True)
def spark_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that stops the Spark session of all, which a lake that it opens and closes does."""

    def stopped() -> bool:
        session = request.config.stash.get(SHARED, None)
        return session is not None and session.sparkContext._jsc is None  # type: ignore[attr-defined]

    before = stopped()
    yield
    assert before or not stopped(), "this test stopped the Spark session that all tests of this process share"


@contextmanager
def users_session(folder: Path, properties: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start a session as a user of `Lake.attach` does: only its class path is driftline's, and the catalog's settings.

    These have it ask the catalog each time: tests look at once at what other sessions have done.
    """
    prepare_environment()
    settings = {
        **driver_settings(find_jars()),
        **SETTINGS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # A REST catalog names no warehouse, where captures keep checkpoints.
        **catalog_settings(folder, "lake", {"warehouse": str(folder), **properties}),
    }
    session = SparkSession.builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.sql(f"create namespace lake.t location '{folder}/t'")  # else Hive calls the folder t.db
    yield session
    session.stop()


@pytest.fixture(scope="session")
def iceberg(spark: SparkSession) -> Lake:
    return Lake.attach(spark, catalog="lake")


@pytest.fixture
def ducklake(spark: SparkSession, lake_bucket: str | None, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of the test's own: DuckDB reads all of a catalog each time it opens the file, so in one for all
    tests each would pay for the tables of those before it.
    """
    place = tmp_path_factory.mktemp("ducklake")
    files = place if lake_bucket is None else f"{lake_bucket}/{place.name} of [*] ü%20"
    catalog = CatalogDatabase.of(f"duckdb:{place}/catalog.ducklake", files, durable=False)
    catalog.make()
    return ducklake_at(spark, catalog)


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest) -> Lake:
    """A lake of each format in turn, over one Spark session; markers leave one out, and say why."""
    lake: Lake = request.getfixturevalue(request.param)
    return lake


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if Postgres.programs() is None:
        lacking("PostgreSQL", "apt-get install postgresql")
    with Postgres(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture
def columns_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sources, too, are compared by columns first, as large ones are."""
    monkeypatch.setattr(job, "SMALL", 0)


@pytest.fixture
def both_roads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small tables are verified in tasks, in Spark's driver and without Spark, and the verdict has to be the same; the
    reasons for which Spark alone could do it.
    """
    by_spark, reasons = Table.verify, list[str]()

    def verify(table: Table, data: Any, format: Any = None, *, exactly: bool = False) -> Verdict:  # noqa: A002
        """Verify in tasks, and then in this process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "HERE", -1)
            verdict = by_spark(table, data, format, exactly=exactly)
        paths, rows = paths_or_rows(data)
        if rows is not None or not is_embedded(table.lake):
            return verdict
        kind, files = expand(paths, format)
        if kind in TEXTS:
            assert by_spark(table, data, format, exactly=exactly) == verdict
        try:
            here = check_small(without_spark(table.lake), table.name, files, kind, exactly=exactly)
        except NeedsSpark as error:
            reasons.append(str(error))
        else:
            assert here == verdict
        return verdict

    monkeypatch.setattr(Table, "verify", verify)
    return reasons


@pytest.fixture
def space(lake: Lake, table_name: str) -> Iterator[str]:
    """A namespace of the test's own."""
    namespace = table_name.replace(".", "_")
    yield namespace
    for name in lake.format.tables():
        if name.startswith(f"{namespace}.") and not name.endswith("__quarantine"):
            lake.format.drop(name, purge=False, dry_run=False)


@pytest.fixture
def table_name(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """A name that no other test uses; its tables, and those whose names begin with it and `_`, go with the
    test, as `clean` reads all that there are.
    """
    name = f"t{next(_COUNT)}"
    yield f"t.{name}"
    if request.config.getoption("--in-catalog"):
        drop(request.getfixturevalue("spark"), name)
        return
    catalog = folder / "catalog.db"
    if not catalog.is_file():  # a test of another catalog's
        return
    with closing(sqlite3.connect(catalog, timeout=60)) as database, database:
        database.execute(
            "DELETE FROM iceberg_tables WHERE table_namespace = 't' AND (table_name = ? OR table_name GLOB ?)",
            (name, f"{name}_*"),
        )
    for gone in (folder / "t" / name, *(folder / "t").glob(f"{name}_*")):
        rmtree(gone, ignore_errors=True)


def drop(spark: SparkSession, name: str) -> None:
    """Drop the tables and views of a test. Their files stay: the lake's folder goes with the run."""
    for kind in ("table", "view"):
        for row in spark.sql(f"show {kind}s in lake.t").collect():
            found = row["tableName" if kind == "table" else "viewName"]
            if found == name or found.startswith(f"{name}_"):
                spark.sql(f"drop {kind} lake.t.`{found}`")


_COUNT = itertools.count()
