"""An error is no outcome: whether a commit is in, the catalog says.

A REST catalog whose answers are lost or turned into errors: its client repeats some requests by itself, and the
second one is refused where the first came through.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from driftline.core.schema.naming import QUARANTINE
from driftline.errors import DataError, DriftlineError, SetupError
from driftline.formats.base import UnknownError
from driftline.ingest import pipeline
from driftline.lake import Lake, Table
from driftline.runtime.session import catalog_settings
from servers.cut import Cut, Where
from servers.jars import class_path
from servers.postgres import USER
from servers.proxy import Answer, Proxy, Request
from servers.rest import Rest

FIRST = '{"id": 1, "n": 1}\n{"id": 2, "n": "x"}\n'
MORE = '{"id": 3, "n": 3, "new": true}\nbroken\n'


EVERY = int(os.environ.get("DRIFTLINE_CUT_EVERY", "3"))  # requests of which one is cut


def attached(spark: SparkSession, name: str, properties: dict[str, str]) -> Lake:
    """A catalog with these properties."""
    session = spark.newSession()
    for key, value in catalog_settings(Path(), name, properties).items():
        if key.startswith("spark.sql.catalog."):
            session.conf.set(key, value)
    return Lake.attach(session, name)


@pytest.fixture(scope="module")
def proxy(rest: Rest) -> Iterator[Proxy]:
    with Proxy(rest.uri) as running:
        yield running


@pytest.fixture(scope="module")
def proxied(spark: SparkSession, proxy: Proxy) -> Lake:
    return attached(spark, "answers", {"type": "rest", "uri": proxy.url})


@dataclass
class Catalog:
    """A catalog by way of a proxy that cuts connections, and as others see it."""

    cut: Cut
    severed: Lake
    seen: Lake

    def struck(self, at: int, where: Where, act: Callable[[], object]) -> tuple[Exception | None, bool]:
        """The error of what is done while the n-th request is cut, and whether there were so many."""
        self.cut.arm(at, where)
        said = error_of(act)
        requests = self.cut.requests
        self.cut.arm(0, where)
        return said, requests >= at


@pytest.fixture(scope="module", params=["rest", "postgres"])
def catalog(request: pytest.FixtureRequest, spark: SparkSession, folder: Path) -> Iterator[Catalog]:
    server = request.getfixturevalue(request.param)
    if request.param == "postgres":
        add_driver(spark)
        database = server.database().split()[0].partition("=")[2]
    with Cut(server.port) as cut:

        def properties(port: int) -> dict[str, str]:
            if request.param == "rest":
                return {"type": "rest", "uri": f"http://127.0.0.1:{port}/"}
            uri = f"jdbc:postgresql://127.0.0.1:{port}/{database}?user={USER}"
            return {
                "type": "jdbc",
                "uri": uri,
                "jdbc.schema-version": "V1",
                "warehouse": str(folder / "postgres"),
            }

        # The tables of a JDBC catalog belong to its name.
        lakes = [attached(spark, request.param, properties(port)) for port in (cut.port, server.port)]
        yield Catalog(cut, *lakes)


def add_driver(spark: SparkSession) -> None:
    """Has Java know PostgreSQL's driver, which is in no class path of a running one."""
    jvm = spark._jvm
    (jar,) = Path(class_path("postgres")).parent.glob("*postgresql*.jar")
    urls = spark.sparkContext._gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    driver = jvm.java.net.URLClassLoader(urls).loadClass("org.postgresql.Driver").newInstance()
    jvm.java.sql.DriverManager.registerDriver(
        jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverWrapper(driver)
    )


def put(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def of_table(request: Request, table: str) -> bool:
    return urlsplit(request.path).path.endswith(f"/tables/{table.rpartition('.')[2]}")


def lost_answers(proxy: Proxy, table: str, status: int) -> list[Request]:
    """Has the next commit to the table answered by this status, once it is in; returns those that were.

    A status of success has a body that Iceberg's client does not understand.
    """
    turned: list[Request] = []

    def changed(request: Request, answer: Answer) -> Answer:
        if turned or request.method != "POST" or not of_table(request, table) or answer.status >= 300:
            return answer
        turned.append(request)
        error = {"message": "busy", "type": "X", "code": status}
        body = {"metadata-location": "x", "metadata": {}} if status < 300 else {"error": error}
        return Answer(status, json.dumps(body).encode())

    proxy.changed = changed
    return turned


def error_of(act: Callable[[], object]) -> Exception | None:
    """The error that it raises, which is one of driftline's own."""
    try:
        act()
    except DriftlineError as error:
        return error
    return None


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().select("id").collect())


def refused(table: Table) -> list[str]:
    rows = table.lake.table(table.name + QUARANTINE).read()
    return sorted(row.raw for row in rows.select("raw").collect())


WORK: dict[str, tuple[Callable[[Table, Path], object], list[int]]] = {
    "ingest": (lambda table, file: table.ingest(file), [1, 2, 3]),
    "alter": (lambda table, _: table.lake.alter(f"ALTER TABLE {table.name} ADD COLUMN c int"), [1, 2]),
    "properties": (
        lambda table, _: table.lake.alter(f"ALTER TABLE {table.name} UNSET TBLPROPERTIES ('mine')"),
        [1, 2],
    ),
    "undo": (lambda table, _: table.undo(), [1, 2]),
    "resolve": (lambda table, _: table.resolve("n", "string"), [1, 2]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("work", "status"),
    [
        *((work, 409) for work in WORK),
        *((work, status) for work in ("ingest", "alter") for status in (502, 200)),
    ],
)
def test_a_commit_that_is_in_is_done_though_it_ends_in_an_error(
    proxy: Proxy, proxied: Lake, table_name: str, tmp_path: Path, work: str, status: int
) -> None:
    table = proxied.table(table_name)
    table.ingest(put(tmp_path / "a.jsonl", FIRST))
    table.lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('mine' = '1')")
    table.lake.alter(f"ALTER TABLE {table.name} ADD COLUMN old int")
    before = len(table.history().entries)
    act, expected = WORK[work]
    turned = lost_answers(proxy, table.name, status)
    act(table, put(tmp_path / "b.jsonl", MORE))
    assert turned, "there was no commit"
    assert ids(table) == expected
    assert len(table.history().entries) == before + (work != "properties")
    if work == "ingest":
        assert refused(table) == ["broken"]


def test_a_table_that_is_renamed_is_so_though_that_ends_in_an_error(
    proxy: Proxy, proxied: Lake, table_name: str, tmp_path: Path
) -> None:
    proxied.table(table_name).ingest(put(tmp_path / "a.jsonl", FIRST))
    turned = lost_answers(proxy, "rename", 404)
    proxied.alter(f"ALTER TABLE {table_name} RENAME TO {table_name}_new")
    assert turned
    assert ids(proxied.table(f"{table_name}_new")) == [1, 2]


def test_rejects_stay_where_nobody_can_tell_whether_the_batch_is_in(
    proxy: Proxy, proxied: Lake, rest: Rest, spark: SparkSession, table_name: str, tmp_path: Path
) -> None:
    table = proxied.table(table_name)
    table.ingest(put(tmp_path / "a.jsonl", FIRST))
    turned = lost_answers(proxy, table.name, 502)
    proxy.instead = lambda request: Answer(403) if turned and of_table(request, table.name) else None
    with pytest.raises(UnknownError, match="not known"):
        table.ingest(put(tmp_path / "b.jsonl", MORE))
    proxy.instead = lambda _: None
    assert (ids(table), refused(table)) == ([1, 2, 3], ["broken"])


def test_a_batch_taken_out_of_quarantine_is_out_though_that_ends_in_an_error(
    proxy: Proxy, proxied: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = proxied.table(table_name)
    table.ingest(put(tmp_path / "a.jsonl", FIRST + "broken 1"))

    def fails(*_: object) -> None:
        lost_answers(proxy, table.name + QUARANTINE, 409)
        raise DataError("no")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "commit_all", fails)
        with pytest.raises(DataError, match="no"):
            table.ingest(put(tmp_path / "b.jsonl", MORE))
    assert (ids(table), refused(table)) == ([1, 2], ["broken 1"])


@pytest.mark.parametrize("where", Where)
def test_a_connection_that_is_cut_at_any_request(catalog: Catalog, tmp_path: Path, where: Where) -> None:
    """A batch that brings a column, and a change of the table: in or not, and what is said is so."""
    name = f"cut.{where.name.lower()}"
    table, seen = catalog.severed.table(name), catalog.seen.table(name)
    table.ingest(put(tmp_path / "a.jsonl", '{"id": 0}\n'))
    there, count = [0], Counter[str]()
    for at in range(EVERY, 1000, EVERY):
        file = put(tmp_path / f"{at}.jsonl", json.dumps({"id": at, f"c{at}": 1}) + "\n")
        said, struck = catalog.struck(at, where, lambda: table.ingest(file))  # noqa: B023
        is_in = at in ids(seen)
        count[f"{type(said).__name__} {is_in}"] += struck
        agree(said, is_in=is_in)
        if is_in:
            with pytest.raises(DataError, match="in the table already"):
                table.ingest(file)
        else:
            table.ingest(file)
        there.append(at)
        assert ids(seen) == there
        if not struck:
            break
    for at in range(EVERY, 1000, EVERY):
        change = f"ALTER TABLE {name} ADD COLUMN d{at} int"
        said, struck = catalog.struck(at, where, lambda: catalog.severed.alter(change))  # noqa: B023
        is_in = f"d{at}" in seen.read().columns
        count[f"alter {type(said).__name__} {is_in}"] += struck
        agree(said, is_in=is_in)
        if not struck:
            break
    assert ids(seen) == there
    print(dict(count))  # for docs/faults.md


@pytest.mark.parametrize("where", Where)
def test_a_connection_that_is_cut_while_a_table_is_made(
    catalog: Catalog, tmp_path: Path, where: Where
) -> None:
    """With its quarantine, which may have a reject twice where the batch was brought again."""
    count = Counter[str]()
    for at in range(EVERY, 1000, 3 * EVERY):
        name = f"made.{where.name.lower()}{at}"
        table, seen = catalog.severed.table(name), catalog.seen.table(name)
        file = put(tmp_path / f"{at}.jsonl", json.dumps({"id": at}) + "\nbroken\n")
        said, struck = catalog.struck(at, where, lambda: table.ingest(file))  # noqa: B023
        is_in = seen.format.load().exists
        count[f"{type(said).__name__} {is_in}"] += struck
        agree(said, is_in=is_in)
        if not is_in:
            table.ingest(file)
        assert ids(seen) == [at]
        assert refused(seen) in (["broken"], ["broken"] * (2 - (said is None)))
        if not struck:
            break
    print(dict(count))


def agree(said: Exception | None, *, is_in: bool) -> None:
    """That what is said of a commit is so, or that it is not known."""
    assert said is None or isinstance(said, SetupError), repr(said)
    assert isinstance(said, UnknownError) or is_in == (said is None), repr(said)
