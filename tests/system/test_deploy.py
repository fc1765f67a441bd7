"""A lake in a store, by the words of docs/deploy.md: what is written there works, and no secret is left anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.lakehouse import Lakehouse
from system.docs_session import Shell, Step, comparable, followed

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
        with Shell() as shell:
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


def no_secrets(lakehouse: Lakehouse, *texts: str) -> None:
    """No object of any bucket has the secret key, nor has a text."""
    secret = lakehouse.s3.secret_key.encode()
    found = [
        path for path in lakehouse.s3.folder.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]
    assert found == []
    assert not any(secret.decode() in text for text in texts)
