"""Iceberg's properties of stores as options of `stores`, and back; and the catalog of a lake in a store."""

from __future__ import annotations

import pytest

from driftline.errors import UsageError
from driftline.runtime import stores
from driftline.runtime.file_io import options, properties, vended
from driftline.runtime.jars import BUNDLES, bundles
from driftline.runtime.session import in_store

S3 = {
    "s3.endpoint": "http://h:9",
    "s3.access-key-id": "k",
    "s3.secret-access-key": "s",
    "s3.session-token": "t",
    "client.region": "r",
    "s3.path-style-access": "true",
}
S3_OPTIONS = {
    "endpoint": "http://h:9",
    "access_key": "k",
    "secret_key": "s",
    "session_token": "t",
    "region": "r",
    "path_style": "true",
}
HOST = "a.dfs.core.windows.net"
FILE_IO = {"s3": "S3FileIO", "s3a": "S3FileIO", "gs": "GCSFileIO", "abfss": "ADLSFileIO"}


def of(location: str, **given: str) -> dict[str, str] | None:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in given.items()}
    return options(FILE_IO[location.partition("://")[0]], given, location)


def test_what_tasks_reach_a_store_with() -> None:
    assert options("S3FileIO", {**S3, "warehouse": "w", "uri": "u"}, "s3a://b/t") == S3_OPTIONS
    assert of("gs://b/t", gcs__oauth2__token="t", gcs__project_id="p") == {"token": "t", "project": "p"}
    assert of(f"abfss://c@{HOST}/t", **{f"adls.sas-token.{HOST}": "t", "adls.sas-token.other": "o"}) == {
        "sas_token": "t"
    }
    shared = {"adls.auth.shared-key.account.name": "a", "adls.auth.shared-key.account.key": "k"}
    assert options("ADLSFileIO", shared, f"abfss://c@{HOST}/t") == {"account_key": "k"}
    assert options("ADLSFileIO", shared, "abfss://c@other.dfs.core.windows.net/t") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s3.remote-signing-enabled", "true"),
        ("s3.sse.type", "kms"),
        ("s3.acl", "bucket-owner-full-control"),
        ("s3.write.storage-class", "GLACIER"),
        ("s3.access-points.b", "arn"),
        ("client.factory", "com.example.Factory"),
        ("client.credentials-provider", "com.example.Provider"),
        ("http-client.proxy-endpoint", "http://proxy"),
    ],
)
def test_what_only_java_knows_is_its_own(key: str, value: str) -> None:
    assert options("S3FileIO", {key: value}, "s3://b/t") is None


@pytest.mark.parametrize("key", ["s3.delete.batch-size", "s3.retry.num-retries", "s3.signer.uri"])
def test_what_says_nothing_of_a_file_is_passed_over(key: str) -> None:
    assert options("S3FileIO", {key: "9", "s3.remote-signing-enabled": "false"}, "s3://b/t") == {}


def test_another_file_io_is_java_s() -> None:
    assert options("HadoopFileIO", S3, "s3://b/t") is None
    assert options("S3FileIO", S3, "gs://b/t") is None


def test_of_vended_credentials_those_of_the_longest_prefix_count() -> None:
    handed = [("s3://b", {"a": "1"}), ("s3://b/t", {"a": "2"}), ("s3://c", {"a": "3"})]
    assert vended(handed, "s3://b/t/data") == {"a": "2"}
    assert vended(handed, "s3://d/t") == {}


def test_the_way_back() -> None:
    assert properties("s3://b/l", S3_OPTIONS) == S3
    assert properties("s3://b/l", {"endpoint": "http://h:9"}) == {
        "s3.endpoint": "http://h:9",
        "client.region": "us-east-1",
        "s3.path-style-access": "true",
    }
    assert properties(f"abfss://c@{HOST}/l", {"sas_token": "t"}) == {"adls.sas-token.a": "t"}
    key = properties(f"abfss://c@{HOST}/l", {"account_key": "k"})
    assert options("ADLSFileIO", key, f"abfss://c@{HOST}/l") == {"account_key": "k"}
    assert properties("hdfs://h/l", {"user": "me"}) == {}


def test_the_libraries_that_a_catalog_s_store_needs() -> None:
    assert bundles({"type": "rest", "uri": "http://x"}) == ()
    assert bundles({"warehouse": "s3://b/l"}) == bundles({"type": "glue"}) == (BUNDLES["s3"],)
    assert bundles({"s3.endpoint": "http://x", "warehouse": "gs://b/l"}) == (BUNDLES["s3"], BUNDLES["gs"])
    assert bundles({"io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO"}) == (BUNDLES["abfss"],)


def test_a_lake_in_a_store_has_a_catalog_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(stores, "_configured", {"s3": {"access_key": "k"}})
    rest = {"type": "rest", "uri": "http://x"}
    assert in_store("s3://b/l", rest) == {**rest, "warehouse": "s3://b/l", "s3.access-key-id": "k"}
    assert in_store("s3://b/l", {**rest, "warehouse": "mine", "s3.access-key-id": "other"}) == {
        **rest,
        "warehouse": "mine",
        "s3.access-key-id": "other",
    }
    jdbc = in_store("s3://b/l", {"type": "jdbc", "uri": "jdbc:postgresql://h/x"})
    assert jdbc["io-impl"] == "org.apache.iceberg.io.ResolvingFileIO"


@pytest.mark.parametrize(
    "given", [{}, {"spark.master": "local[2]"}, {"uri": "jdbc:sqlite:s3://b/l/catalog.db"}]
)
def test_sqlite_cannot_lie_there(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"s3://b/l: a SQLite catalog cannot lie in a store"):
        in_store("s3://b/l", given)
