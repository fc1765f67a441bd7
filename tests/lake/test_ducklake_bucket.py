"""A DuckLake whose files are in S3 or in Google's store: one test through all that a batch and a person do there, and its
deaths.

`pytest tests/lake --in-bucket` runs the other tests of DuckLakes in S3, too.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from answering import Answering, answering
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.lake import Lake
from driftline.runtime import file_io, stores
from driftline.runtime.spark_version import NEWEST, installed_release, release_of
from servers.google import Google
from servers.machine import lacking
from servers.postgres import Postgres
from servers.s3 import S3

_COUNT = count()
# A Spark with the way to a store needs a process of its own: that of the other tests has none.
SERVE = """
import json, os, sys
from pathlib import Path
from driftline.lake import Lake
from driftline.runtime import stores
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever else is printed is no answer
spark = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
for line in sys.stdin:
    script, uri, catalog, folder = json.loads(line)
    stores.configure(uri.partition("://")[0], json.loads(os.environ["STORE"]))
    lake = Lake.open(uri, ducklake=catalog, properties=spark)
    known = {"lake": lake, "table": lake.table("shop.orders"), "stores": stores, "uri": uri, "folder": Path(folder)}
    exec(script, known)
    print(json.dumps(known.get("said"), default=str), file=answers, flush=True)
"""


Store = S3 | Google


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """S3, if the test asks for no other."""
    if (release := installed_release()).hadoop is None:
        pytest.skip(f"Spark {release.spark} reads no DuckLake in a store")
    server: Store = request.getfixturevalue(getattr(request, "param", "s3"))
    return server


@pytest.fixture(scope="module")
def processes() -> Iterator[Callable[[Store], Answering]]:
    """A process for each store, which serves all tests of it."""
    with ExitStack() as ends:

        @cache
        def process(store: Store) -> Answering:
            env = {**os.environ, "STORE": json.dumps(store.options)}
            return ends.enter_context(answering("-c", SERVE, env=env))

        yield process


@pytest.fixture
def scripts(processes: Callable[[Store], Answering], store: Store) -> Answering:
    """A process that runs scripts, each on its lake; what a script has put into `said` is the answer."""
    return processes(store)


@pytest.fixture
def uri(store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a lake of the test's own, with signs that have a meaning in globs and in URLs."""
    monkeypatch.setattr(stores, "_configured", {})
    bucket = store.bucket(f"ducklake-{next(_COUNT)}")
    stores.configure(bucket.partition("://")[0], store.options)
    return f"{bucket}/a [*] ü%20?"


@pytest.fixture
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/catalog.sqlite"
    if Postgres.programs() is None:
        lacking("PostgreSQL", "apt-get install postgresql")
    return str(request.getfixturevalue("postgres").database())


def objects(store: Store, uri: str) -> list[str]:
    """The keys of all files of rows in the bucket."""
    from pyarrow.fs import FileSelector

    bucket = uri.partition("://")[2].partition("/")[0]
    files = store.system().get_file_info(FileSelector(bucket, recursive=True))
    return sorted(file.path for file in files if file.is_file and file.path.endswith(".parquet"))


def lines(folder: Path, name: str, *records: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in records))


ALL = """
def rows(): return sorted((row.id, row.p) for row in lake.sql("select id, p from shop.orders").collect())
keyed = {"key": "id", "order_by": "at"}
first = table.ingest(folder / "1.jsonl", settings=keyed | {"partition_by": "kind"})
drifted = table.ingest(folder / "2.jsonl")
said = {"written": [first.rows_written, drifted.rows_written], "rows": rows(), "proof": table.verify(folder).to_dict()}
table.undo(yes=True)
said["undone"] = rows()
table.ingest(folder / "2.jsonl")
lake.alter("alter table shop.orders add column extra int default 7")
said["default"] = [row[0] for row in lake.sql("select distinct extra from shop.orders").collect()]
table.resolve("p", "string")
said["resolved"] = rows()
said["orphans"] = [file.path for file in lake.clean(0)]
"""


# The tests below take S3 beside SQLite's file through all this, but for the undo and the alter.
@pytest.mark.parametrize(("store", "catalog"), [("s3", "postgres"), ("google", "sqlite")], indirect=True)
def test_all_that_is_done_with_a_table(scripts: Answering, uri: str, catalog: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    lines(folder, "1.jsonl", *({"id": i, "at": 1, "kind": "a/b c%", "p": i * 1.5} for i in range(4)))
    lines(
        folder,
        "2.jsonl",
        {"id": 0, "at": 2, "kind": "a/b c%", "p": "x"},
        {"id": 9, "at": 2, "kind": None},
        "{",
    )
    said = scripts.ask([ALL, uri, catalog, str(folder)])
    before = [[i, i * 1.5] for i in range(4)]
    assert said["written"] == [4, 2]
    assert said["rows"] == [[0, None], *before[1:], [9, None]]
    assert said["proof"]["ok"]
    assert said["undone"] == before
    assert said["default"] == [7]
    assert said["resolved"] == [[0, "x"], *([i, str(p).removesuffix(".0")] for i, p in before[1:]), [9, None]]
    assert said["orphans"] == []
    place = CatalogDatabase.of(catalog, uri)
    with place.queried() as duckdb:
        query = "SELECT id, p, extra FROM shop.orders ORDER BY id"
        assert duckdb.execute(query).fetchall() == [(i, p, 7) for i, p in said["resolved"]]


UPKEEP = """
def files(): return table.stats().to_dict()["files"]
for number in range(9):
    table.ingest([{"id": number, "p": [number, 1.5, "x"][number // 3]}])
before = files()
table.compact()
said = {"files": [before, files()], "fields": len(table.replan(apply=True).fields), "again": len(table.replan().fields)}
said["rows"] = sorted((row.id, row.p) for row in table.read().collect())
table.undo()
said["undone"] = sorted(column["path"] for column in table.stats().to_dict()["columns"])
said["orphans"] = [file.path for file in lake.clean(0)]
"""


@pytest.mark.nightly
@pytest.mark.parametrize("catalog", ["sqlite"], indirect=True)
def test_small_files_are_compacted_and_columns_replanned(
    scripts: Answering, store: Store, uri: str, catalog: str, tmp_path: Path
) -> None:
    said = scripts.ask([UPKEEP, uri, catalog, str(tmp_path)])
    assert (said["files"], said["fields"], said["again"]) == ([9, 1], 1, 0)
    assert said["rows"] == [[i, [str(i), "1.5", "x"][i // 3]] for i in range(9)]
    assert said["undone"] == ["id", "p", "p_double", "p_string"]
    assert said["orphans"] == []
    with CatalogDatabase.of(catalog, uri).queried() as duckdb:
        held = duckdb.execute("SELECT id, p, p_double, p_string FROM shop.orders ORDER BY id").fetchall()
    of_kind = [(None, 1.5, None), (None, None, "x")]
    assert held[3:] == [(i, *of_kind[i // 3 - 1]) for i in range(3, 9)]
    assert [p for _, p, *_ in held[:3]] == [0, 1, 2]


RELOCATES = """
lake.relocate()
table.ingest(folder / "2.jsonl")
said = {"rows": [list(row) for row in lake.sql("select id, p from shop.orders order by id").collect()]}
said["proof"] = table.verify(folder).to_dict()["ok"]
said["orphans"] = [file.path for file in lake.clean(0)]
"""


def test_a_ducklake_goes_from_a_folder_to_a_bucket(
    scripts: Answering, store: Store, uri: str, tmp_path: Path
) -> None:
    """Its files are copied, and its catalog, which `relocate` then has look into the bucket."""
    here, folder, catalog = tmp_path / "lake", tmp_path / "in", tmp_path / "new" / "catalog.sqlite"
    lines(folder, "1.jsonl", *({"id": i, "p": i * 1.5} for i in range(3)), "{")
    # Not closed: that would stop the Spark that the tests of a process share.
    Lake.open(here, ducklake="sqlite").table("shop.orders").ingest(folder / "1.jsonl", key="id")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    catalog.parent.mkdir()
    shutil.copy(here / "catalog.sqlite", catalog)
    moved = Lake.open(uri, ducklake=f"sqlite:{catalog}")
    assert moved.embedded is not None  # a Spark that runs in this process may not reach the bucket
    with pytest.raises(UsageError, match="is a copy of the lake at"):
        moved.embedded.check_open(writes=True)
    with pytest.raises(DataError, match="is missing, and a table of the lake names it"):
        moved.relocate()
    for path in (path for path in before if path.is_relative_to(here / "data")):
        store.put(f"{uri}/{path.relative_to(here)}", before[path])
    assert moved.relocate(dry_run=True).tables == ("shop.orders", "shop.orders__quarantine")
    lines(folder, "2.jsonl", {"id": 1, "p": "x"}, {"id": 3})
    said = scripts.ask([RELOCATES, uri, f"sqlite:{catalog}", str(folder)])
    assert said == {"rows": [[0, 0.0], [1, None], [2, 3.0], [3, None]], "proof": True, "orphans": []}
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


DIES_AFTER = """
import os
from driftline.formats.ducklake.transaction import DuckLakeTransaction
commit = DuckLakeTransaction.commit_with
DuckLakeTransaction.commit_with = lambda *transactions: (commit(*transactions), os._exit(9))
table.ingest(folder / "1.jsonl")
"""
CLEANS = """
there = [file.path for file in lake.clean(dry_run=True)]
gone = [file.path for file in lake.clean(0)]
said = [there, gone, table.read().count()]
"""


def test_a_batch_killed_after_its_commit_is_in_and_leaves_nothing_to_clean(
    scripts: Answering, store: Store, uri: str, tmp_path: Path
) -> None:
    catalog, folder = f"duckdb:{tmp_path}/catalog.ducklake", tmp_path / "in"
    lines(folder, "1.jsonl", {"id": 1}, {"id": 2}, "{")
    assert scripts.dies([DIES_AFTER, uri, catalog, str(folder)]) == 9
    written = objects(store, uri)
    assert len(written) == 2  # rows and rejects
    assert scripts.ask([CLEANS, uri, catalog, str(folder)]) == [[], [], 2]
    assert objects(store, uri) == written


DIES_IN_A_CAPTURE = """
import os
from driftline.formats.ducklake.transaction import DuckLakeTransaction
DuckLakeTransaction.commit_with = lambda self, others: os._exit(9)
table.capture(folder, name="orders", checkpoint=folder.parent / "checkpoint").awaitTermination()
"""
GOES_ON = """
there = [file.path for file in lake.clean(dry_run=True)]
before = len(lake.tables())
gone = [file.path for file in lake.clean(0)]
for _ in range(2):
    table.capture(folder, name="orders", checkpoint=folder.parent / "checkpoint").awaitTermination()
query = "select count(*), count(distinct id) from shop.orders"
rows, proven = list(lake.sql(query).collect()[0]), table.verify(folder).to_dict()["ok"]
said = [there, before, gone, rows, proven, lake.clean(0)]
"""


@pytest.mark.parametrize("store", ["google"], indirect=True)
def test_a_capture_killed_before_its_commit_goes_on(
    scripts: Answering, store: Store, uri: str, tmp_path: Path
) -> None:
    catalog, folder = f"sqlite:{tmp_path}/catalog.sqlite", tmp_path / "in"
    lines(folder, "1.jsonl", {"id": 1}, {"id": 2}, "{")
    assert scripts.dies([DIES_IN_A_CAPTURE, uri, catalog, str(folder)]) == 9
    left = objects(store, uri)
    assert len(left) == 2  # rows and rejects
    there, tables, gone, rows, proven, orphans = scripts.ask([GOES_ON, uri, catalog, str(folder)])
    assert (there, tables) == ([], 0)  # they may be a batch's that goes on
    assert sorted(path.partition("://")[2] for path in gone) == left
    assert not set(left) & set(objects(store, uri))
    assert (rows, proven, orphans) == ([2, 2], True, [])


FAILS = """
from driftline.formats.ducklake import transaction
def fails(*_): raise OSError("no room")
describe, transaction.describe = transaction.describe, fails
try:
    table.ingest(folder / "1.jsonl")
except Exception as error:
    said = str(error)
transaction.describe = describe
"""
GONE = """
table.ingest(folder / "1.jsonl")
system, place = stores.filesystem(uri)
from pyarrow.fs import FileSelector
(file,) = [f.path for f in system.get_file_info(FileSelector(f"{place}/data/shop/orders", recursive=True)) if f.is_file]
said = []
for change in (lambda: system.open_output_stream(file).close(), lambda: system.delete_file(file)):
    change()
    try:
        table.read().count()
    except Exception as error:
        said.append([type(error).__name__, str(error)])
"""


def test_after_an_error_nothing_is_left_and_lost_files_are_named(
    scripts: Answering, store: Store, uri: str, tmp_path: Path
) -> None:
    catalog, folder = f"sqlite:{tmp_path}/catalog.sqlite", tmp_path / "in"
    lines(folder, "1.jsonl", {"id": 1})
    assert scripts.ask([FAILS, uri, catalog, str(folder)]).endswith("no room")
    assert objects(store, uri) == []
    replaced, deleted = scripts.ask([GONE, uri, catalog, str(folder)])
    assert replaced[0] == deleted[0] == DataError.__name__
    assert "was replaced: it now has 0 bytes" in replaced[1]
    assert "cannot be read" in deleted[1] and ".parquet" in deleted[1]


@pytest.mark.parametrize("named", ["duckdb", "sqlite:catalog.sqlite"])
def test_a_catalog_in_a_file_is_named_on_this_machine(named: str) -> None:
    with pytest.raises(UsageError, match="cannot lie in a store"):
        CatalogDatabase.of(named, "s3://bucket/lake")


@pytest.mark.parametrize(
    ("place", "options", "says"),
    [
        ("abfss://box@account.dfs.core.windows.net/lake", {}, "in a folder, in S3 or in Google's store"),
        ("gs://bucket/lake", {"token": "a-secret"}, "has a token, which Hadoop's way"),
    ],
)
def test_what_cannot_be_reached_is_refused_before_anything_runs(
    place: str, options: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_configured", {})
    monkeypatch.setattr(file_io, "installed_release", lambda: NEWEST)
    stores.configure(place.partition("://")[0], options)
    with pytest.raises(DriftlineError, match=says) as refused:
        Lake.open(place, ducklake=f"sqlite:{tmp_path}/catalog.sqlite")
    assert "a-secret" not in str(refused.value)


def test_an_earlier_spark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_io, "installed_release", lambda: release_of("3.5.8"))
    with pytest.raises(SetupError, match=r"Spark 3\.5 does not read the files of a DuckLake in a store"):
        Lake.open("s3://bucket/lake", ducklake=f"sqlite:{tmp_path}/catalog.sqlite")


ERASED = """
table.ingest(folder / "1.jsonl")
table.ingest(folder / "2.jsonl")
erased = table.erase("name = 'ann'")
said = {"erased": erased.to_dict(), "left": sorted(row.id for row in table.read().select("id").collect())}
"""


@pytest.mark.nightly
@pytest.mark.parametrize("catalog", ["sqlite"], indirect=True)
def test_erased_rows_are_in_no_object(
    scripts: Answering, store: Store, uri: str, catalog: str, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    lines(folder, "1.jsonl", {"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}, "ann {")
    lines(folder, "2.jsonl", {"id": 3, "name": "ann"}, {"id": 4, "name": "eve"})

    result = scripts.ask([ERASED, uri, catalog, str(folder)])

    assert (result["erased"]["rows"], result["erased"]["quarantined"]) == (2, 1)
    assert result["erased"]["proved"], result
    assert result["left"] == [2, 4]
    system = store.system()
    for key in objects(store, uri):
        with system.open_input_file(key) as file:
            assert b"ann" not in file.read(), key
