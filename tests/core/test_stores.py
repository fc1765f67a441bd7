"""Stores as their URIs name them: what they are reached with, what goes to tasks, what errors tell."""

import pickle
import subprocess
import sys

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from driftline.errors import DataError, SetupError, UsageError
from driftline.runtime import stores
from driftline.runtime.stores import Uri, configure, explained, filesystem, is_stored
from driftline.sources.listing import listing


@pytest.fixture
def configured(monkeypatch):
    monkeypatch.setattr(stores, "_configured", {})
    configure("s3", {"endpoint": "http://127.0.0.1:1", "access_key": "key", "secret_key": "hush"})


@pytest.mark.parametrize("scheme", ["s3", "s3a", "S3"])
def test_a_path_is_literal(scheme, configured):
    system, path = filesystem(f"{scheme}://bucket/p=a%20b/x y?#.json")

    assert (system.type_name, path) == ("s3", "bucket/p=a%20b/x y?#.json")


@pytest.mark.parametrize(
    ("uri", "kind", "path"),
    [
        ("gs://bucket/a/b.json", "gcs", "bucket/a/b.json"),
        ("abfss://container@account.dfs.core.windows.net/a/b", "abfs", "container/a/b"),
    ],
)
def test_other_stores_have_their_own(uri, kind, path):
    system, found = filesystem(uri, {})

    assert (system.type_name, found) == (kind, path)


def test_options_may_be_a_tables_own(configured):
    options = {
        "endpoint": "http://127.0.0.1:2",
        "region": "eu-central-1",
        "access_key": "a",
        "secret_key": "b",
    }

    assert filesystem("s3://b/c", options)[0].region == "eu-central-1"
    assert filesystem("s3://b/c", options)[0] is filesystem("s3a://d/e", options)[0]


def test_what_is_no_store():
    assert not is_stored("/tmp/s3/a.json")
    assert not is_stored("https://example.com/a.json")
    with pytest.raises(UsageError, match="no bucket is named"):
        filesystem("s3:///a.json")
    with pytest.raises(UsageError, match="unknown kind of store") as raised:
        filesystem("ftp://me:hush@b/c")
    assert "hush" not in str(raised.value)


def test_keys_in_a_uri_are_refused_and_not_told():
    with pytest.raises(UsageError, match=r"driftline\.toml: \[store\.s3\]") as raised:
        filesystem("s3://key:hush@bucket/a.json")
    assert "hush" not in str(raised.value)


def test_unknown_options_are_refused():
    with pytest.raises(UsageError, match=r"\[store\.s3\] has no 'endpont'"):
        configure("s3", {"endpont": "x"})
    with pytest.raises(UsageError, match=r"\[store\.ftp\]: there is no such store"):
        configure("ftp", {})


_TASK = """
import pickle, sys
uris = pickle.load(sys.stdin.buffer)
from driftline.runtime import stores
assert stores._configured["s3"]["secret_key"] == "hush", stores._configured
sys.stdout.buffer.write(pickle.dumps(uris))
"""


def test_a_task_gets_the_options_and_sends_none_back(configured):
    uri = Uri("s3://bucket/a.json")
    sent = pickle.dumps([uri])
    back = subprocess.run([sys.executable, "-c", _TASK], input=sent, capture_output=True, check=True).stdout

    assert pickle.loads(sent) == [uri] and type(pickle.loads(sent)[0]) is Uri
    assert pickle.loads(back) == [uri] and b"hush" not in back and b"hush" in sent
    assert type(pickle.loads(back)[0]) is str


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (
            "AWS Error ACCESS_DENIED during HeadObject operation: No response body.",
            SetupError,
            "denies access",
        ),
        ("AWS Error INVALID_ACCESS_KEY_ID during GetObject", SetupError, "does not accept these keys"),
        ("AWS Error UNKNOWN (HTTP status 400): ExpiredToken", SetupError, "has expired"),
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2", SetupError, "no such bucket"),
        ("AWS Error UNKNOWN (HTTP status 301) during GetObject", SetupError, "in another region"),
        ("AWS Error SLOW_DOWN during GetObject operation (Retried 5 times)", SetupError, "too busy"),
        ("AWS Error NETWORK_CONNECTION during HeadObject", SetupError, "does not respond"),
        ("AWS Error NO_SUCH_KEY during GetObject", DataError, "file no longer exists"),
        ("AWS Error UNKNOWN: hush\nhush", SetupError, r"the store says: When .*: \*\*\* \*\*\*$"),
    ],
)
def test_an_answer_is_one_sentence_without_secrets(answer, kind, sentence):
    error = explained("s3://b/c.json", OSError(f"When reading 'c.json': {answer}"), {"secret_key": "hush"})

    assert type(error) is kind
    with pytest.raises(kind, match=sentence):
        raise type(error)(error.message)
    assert error.message.startswith("s3://b/c.json: ")


def test_a_folder_of_this_machine_is_read_as_ever(tmp_path):
    (tmp_path / "a.json").write_bytes(b"{}\n")
    with stores.opened(str(tmp_path / "a.json")) as (file, size):
        assert (file.read(), size) == (b"{}\n", 3)


@pytest.fixture
def hdfs(monkeypatch):
    """This machine's disk in place of HDFS, and beside it one that has not even a root, at ``away``."""
    systems = {"here": LocalFileSystem(), "away": SubTreeFileSystem("/nothing/there", LocalFileSystem())}
    monkeypatch.setattr(stores, "_connected", lambda _, authority, __: systems[authority])


def test_what_hdfs_has_not_is_told(hdfs, tmp_path):
    (tmp_path / "a.json").write_text("{}")
    with stores.opened(f"hdfs://here{tmp_path}/a.json") as (file, size):
        assert (file.read(), size) == (b"{}", 2)
    absent = listing(f"hdfs://here{tmp_path}/b.json")
    assert not absent.is_folder
    assert list(absent.files) == []
    with pytest.raises(DataError, match=r"b\.json: the file no longer exists"):
        stores.native(f"hdfs://here{tmp_path}/b.json")
    with pytest.raises(SetupError, match=r"^hdfs://away/in: HDFS does not respond"):
        listing("hdfs://away/in")
