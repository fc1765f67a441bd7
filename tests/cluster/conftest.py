"""A session on a real cluster, as a user would make it: nothing of it is driftline's but the class path.

One process has one Spark, so these tests have a process of their own: `make test-all`, or `pytest tests/cluster`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from driftline.lake import Lake
from driftline.runtime.jars import bundles, find_jars
from driftline.runtime.java import QUICK
from servers.cluster import Cluster, driver_settings
from servers.lakehouse import Lakehouse


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests with a Spark of their own begin first: later the session of the others has all cores of the cluster.

    Behind them comes what cleans a lake, which reads each table that is there.
    """
    items.sort(
        key=lambda item: ("spark" in getattr(item, "fixturenames", ()), item.path.name != "test_store.py")
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of the JDBC catalog."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def spark(cluster: Cluster, lakehouse: Lakehouse, folder: Path) -> Iterator[SparkSession]:
    if SparkContext._active_spark_context is not None:
        pytest.exit("This process has a Spark already: run tests/cluster in one of its own.", returncode=4)
    lake, elsewhere = "spark.sql.catalog.jdbc", "spark.sql.catalog.rest"
    settings = {
        **driver_settings(find_jars(more=bundles(lakehouse.reach))),
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        lake: "org.apache.iceberg.spark.SparkCatalog",
        f"{lake}.type": "jdbc",
        f"{lake}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{lake}.warehouse": str(folder),
        elsewhere: "org.apache.iceberg.spark.SparkCatalog",
        f"{elsewhere}.type": "rest",
        f"{elsewhere}.uri": lakehouse.rest.uri,
        **{f"{elsewhere}.{key}": value for key, value in lakehouse.reach.items()},
    }
    session = SparkSession.builder.master(cluster.url).config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(params=["jdbc", "rest"])
def lake(spark: SparkSession, request: pytest.FixtureRequest) -> Lake:
    """The lake, on a JDBC catalog with its files on a disk, and on a REST catalog with them in S3; both cache, as Spark's catalogs of Iceberg do if not told otherwise."""
    return Lake.attach(spark, catalog=request.param)


@pytest.fixture
def table_name() -> str:
    """A name that no other test uses."""
    return f"t.t{next(_COUNT)}"


_COUNT = itertools.count()
