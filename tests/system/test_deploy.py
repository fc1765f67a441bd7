"""A lake in a store, by the words of docs/deploy.md: what is written there works, and no secret is left anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from servers.lakehouse import Lakehouse
from system.docs_session import Shell, Step, comparable, followed, own_shell

JDBC = """\
[catalog]
type = "jdbc"
uri = "jdbc:sqlite:{folder}/catalog.db"
jdbc.schema-version = "V1"

[store.s3]
endpoint = "{endpoint}"
access_key = "${{STORE_KEY}}"
secret_key = "${{STORE_SECRET}}"
"""
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


@pytest.fixture(scope="module")
def shell(lakehouse: Lakehouse) -> Iterator[Shell]:
    """A process with the secrets in its environment."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in lakehouse.environment.items():
            patched.setenv(name, value)
        with own_shell() as shell:
            yield shell


def test_word_by_word(lakehouse: Lakehouse, shell: Shell, tmp_path: Path) -> None:
    lakehouse.s3.bucket("incoming")
    page = PAGE.read_text().replace("http://127.0.0.1:8181/", lakehouse.rest.uri)
    page = page.replace("http://127.0.0.1:7070", lakehouse.s3.endpoint)
    assert lakehouse.settings in page

    def aws(*words: str) -> None:
        *_, file, target = words
        lakehouse.s3.put(f"{target}{file}", (tmp_path / file).read_bytes())

    for step, printed in followed(page, tmp_path, shell, {"aws": aws}):
        assert comparable(printed) == comparable(step.output), step.text
    doctor, history = (
        shell.run(Step(f"driftline {command} --json", ""), tmp_path)
        for command in ("doctor", "history shop.orders")
    )
    assert {check["name"]: check["ok"] for check in json.loads(doctor)["checks"]}["store"]
    no_secrets(lakehouse, doctor, history)


ENDS = """
from driftline.formats.iceberg.catalog import Registration
registers = Registration.register
def register(self, metadata):
    raise KeyboardInterrupt
Registration.register = register
"""
GOES_ON = "Registration.register = registers"


def test_a_table_goes_from_a_folder_to_the_store(lakehouse: Lakehouse, shell: Shell, tmp_path: Path) -> None:
    """By the other lake's settings, with deleted rows and a capture, and once broken off before the last step."""
    settings, source = tmp_path / "there" / "driftline.toml", tmp_path / "in"
    for folder in (settings.parent, source):
        folder.mkdir()
    settings.write_text(lakehouse.settings)
    (source / "1.jsonl").write_text("".join(f'{{"id": {n}, "at": 1}}\n' for n in range(1, 41)))

    def run(command: str) -> str:
        return shell.run(Step(f"driftline {command}", ""), tmp_path)

    def objects() -> dict[Path, int]:
        place = lakehouse.s3.folder / "buckets" / "lake" / "tables" / "shop" / "moves"
        return {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}

    there, capture = f"--config {settings}", "capture in --into shop.moves --name c"
    relocate = f"--lake laptop relocate shop.moves --to {settings} --yes --json"
    run(f"tables {there}")  # Spark begins with the way to the store
    run(f"--lake laptop {capture} --key id --order-by at")
    (source / "2.jsonl").write_text('{"id": 2, "at": 2, "more": true}\n')
    run(f"--lake laptop {capture}")
    shell.run(Step(ENDS, None), tmp_path)
    run(relocate)
    copied = objects()
    assert any(path.suffix == ".puffin" for path in copied)
    assert "there is no table shop.moves" in run(f"{there} history shop.moves")
    shell.run(Step(GOES_ON, None), tmp_path)
    done = json.loads(run(relocate))
    assert (done["tables"], done["copy"], done["done"]) == (["shop.moves"], True, True)
    now = objects()
    assert {path for path in copied if path.suffix == ".parquet" and now[path] != copied[path]} == set()
    laptop = f"{tmp_path}/laptop".encode()
    assert not any(laptop in path.read_bytes() for path in now if path.suffix != ".avro")
    (source / "3.jsonl").write_text('{"id": 41, "at": 3}\n')
    for again in (" --resume-from table", ""):
        run(f"{there} {capture}{again}")
    rows = run(
        f"{there} query 'select id, at, more from shop.moves where id in (1, 2, 41) order by id' --json"
    ).splitlines()
    assert [tuple(json.loads(row).values()) for row in rows] == [(1, 1, None), (2, 2, True), (41, 3, None)]
    assert json.loads(run(f"{there} verify in --table shop.moves --json"))["ok"]
    assert "there is a table shop.moves in s3://lake/tables already" in run(relocate)
    assert len(run("--lake laptop query 'select id from shop.moves' --json").splitlines()) == 40
    no_secrets(lakehouse)


def test_a_jdbc_catalog_beside_the_store(lakehouse: Lakehouse, shell: Shell, tmp_path: Path) -> None:
    settings = JDBC.format(folder=tmp_path, endpoint=lakehouse.s3.endpoint)
    (tmp_path / "driftline.toml").write_text(settings)
    (tmp_path / "a.json").write_text('{"id": 1, "total": 19.5}\n')
    (tmp_path / "b.json").write_text('{"id": 2, "total": "23.90 EUR"}\n{"id"\n')
    commands = (
        "ingest a.json --into shop.orders",
        "ingest b.json --into shop.orders",
        "view shop.orders",
        "verify a.json b.json --table shop.orders --exactly",
        "tables",
    )
    printed = [
        shell.run(Step(f"driftline {text} --lake s3://lake/jdbc --json", ""), tmp_path) for text in commands
    ]
    _, drifted, view, verdict, tables = map(json.loads, printed)
    assert (drifted["rows_written"], drifted["rows_quarantined"]) == (1, 1)
    assert [change["path"] for change in drifted["changes"]] == ["total_string"]
    assert verdict["ok"], verdict
    assert view["made"], view
    assert [table["table"] for table in tables] == ["shop.orders"]
    orders = lakehouse.s3.folder / "buckets" / "lake" / "jdbc" / "shop" / "orders"
    assert len([*orders.glob("data/*.parquet")]) == 2
    assert lakehouse.s3.secret_key.encode() not in (tmp_path / "catalog.db").read_bytes()
    no_secrets(lakehouse, *printed)


@pytest.mark.parametrize("catalog", ["rest", "jdbc"])
def test_rows_that_are_erased_are_in_no_object(
    lakehouse: Lakehouse, shell: Shell, tmp_path: Path, catalog: str
) -> None:
    """In a REST catalog and another one, with files in S3; and objects of expired snapshots are gone. In the REST catalog rows
    are erased once more, where the table has been erased from before.
    """
    jdbc = JDBC.format(folder=tmp_path, endpoint=lakehouse.s3.endpoint)
    (tmp_path / "driftline.toml").write_text(lakehouse.settings if catalog == "rest" else jdbc)
    lake = lakehouse.warehouse if catalog == "rest" else "s3://lake/jdbc"

    def run(command: str) -> Any:
        return json.loads(shell.run(Step(f"driftline {command} --lake {lake} --json", ""), tmp_path))

    def ingest(number: int, text: str) -> None:
        (tmp_path / f"{number}.jsonl").write_text(text)
        run(f"ingest {number}.jsonl --into shop.people")

    def holding(text: str) -> list[Path]:
        place = lakehouse.s3.folder / "buckets" / lake.removeprefix("s3://") / "shop"
        files = [path for path in place.glob("people*/**/*") if path.is_file()]
        assert files
        return [path for path in files if text in content(path)]

    ingest(1, '{"id": 1, "name": "ann-1"}\n{"id": 2, "name": "bob-2"}\nann-1 {\n')
    ingest(2, '{"id": 3, "name": "ann-1"}\n{"id": 4, "name": "eve-4"}\n')
    assert len(holding("ann-1")) > 2

    erased = run("""erase shop.people --where "name = 'ann-1'" --yes""")

    assert (erased["rows"], erased["quarantined"], erased["proved"]) == (2, 1, True), erased
    assert erased["files"] > 0
    assert holding("ann-1") == []
    if catalog == "rest":
        ingest(3, '{"id": 5, "name": "joe-5"}\n')
        assert run("""erase shop.people --where "name = 'eve-4'" --yes""")["proved"]
    ingest(6, '{"id": 6, "name": "sue-6"}\n')
    expired = run("expire shop.people --older-than 1ms --yes")
    assert (expired["snapshots"] > 0, expired["files"] > 0, expired["remaining"]) == (True, True, 1)
    assert (holding("eve-4") == []) == (catalog == "rest")
    assert holding("sue-6")
    assert run("query 'select count(*) as n from shop.people'") == {"n": 3}


def content(path: Path) -> str:
    """The values of a Parquet file with those of its footer; the bytes of another one."""
    if path.suffix != ".parquet":
        return path.read_bytes().decode("latin-1")
    file = pq.ParquetFile(path)
    return f"{file.read().to_pylist()}{file.metadata.to_dict()}"


def no_secrets(lakehouse: Lakehouse, *texts: str) -> None:
    """No object of any bucket has the secret key, nor has a text."""
    secret = lakehouse.s3.secret_key.encode()
    found = [
        path for path in lakehouse.s3.folder.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]
    assert found == []
    assert not any(secret.decode() in text for text in texts)
