"""Names of data sets by OpenLineage's rules, without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.report.dataset_names import MOST, inputs, name_of


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/lake/shop/orders", "file", "/lake/shop/orders"),
        ("file:///lake/shop/a%20b/", "file", "/lake/shop/a b"),
        ("s3a://bucket/a/b", "s3://bucket", "a/b"),
        ("s3://bucket", "s3://bucket", "/"),
        ("gs://bucket/a/b/", "gs://bucket", "a/b"),
        ("hdfs://node:8020/a/b", "hdfs://node:8020", "/a/b"),
        ("abfss://raw@store.dfs.core.windows.net/a", "abfss://raw@store.dfs.core.windows.net", "/a"),
        ("https://me:pw@host/in/a.json?sig=s3cr3t#x", "https://host", "/in/a.json"),
    ],
)
def test_locations(location: str, namespace: str, name: str) -> None:
    assert name_of(location) == (namespace, name)


def test_files_are_of_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    files = [folder / "1.json", folder / "2.json"]
    for file in files:
        file.touch()
    alone = [("file", str(folder))]
    assert inputs([str(folder)]) == inputs(list(map(str, files))) == alone
    assert inputs([f"{folder}/*.json"]) == inputs([f"{folder}/dt=*/*.json"]) == alone
    assert inputs([str(folder), "-"]) == alone


def test_of_many_folders_the_one_above_is_named(tmp_path: Path) -> None:
    found = inputs([f"s3://lake/in/dt={day}/a.json" for day in range(MOST + 1)])
    assert found == [("s3://lake", "in")]


def test_topics_by_their_first_broker() -> None:
    assert inputs(["kafka://a:9092,b:9093/x,y"]) == [("kafka://a:9092", "x"), ("kafka://a:9092", "y")]
