"""Google's store as Hadoop and DuckDB are told of it, without a server."""

from __future__ import annotations

import sys

import pytest

from driftline.errors import SetupError
from driftline.runtime import stores
from driftline.runtime.duckdb import alone, reach
from driftline.runtime.file_io import settings


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_configured", {})


def test_keys_are_the_environments() -> None:
    said = settings("gs://bucket/lake")
    assert said["spark.hadoop.fs.gs.auth.type"] == "APPLICATION_DEFAULT"
    assert not {"spark.hadoop.fs.gs.storage.root.url", "spark.hadoop.fs.gs.project.id"} & set(said)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [("http://127.0.0.1:9", "http://127.0.0.1:9/"), ("gcs.example.com/", "https://gcs.example.com/")],
)
def test_an_endpoint_is_the_one_that_arrow_takes(endpoint: str, url: str) -> None:
    stores.configure("gs", {"endpoint": endpoint, "anonymous": "true", "project": "p"})
    said = settings("gs://bucket/lake")
    assert said["spark.hadoop.fs.gs.storage.root.url"] == url
    assert said["spark.hadoop.fs.gs.auth.type"] == "UNAUTHENTICATED"
    assert said["spark.hadoop.fs.gs.project.id"] == "p"


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "driftline.runtime.duckdb_files", raising=False)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with alone() as duckdb, pytest.raises(SetupError, match="fsspec") as refused:
        reach(duckdb, "gs://bucket/lake")
    assert "driftline[gcs]" in str(refused.value)
