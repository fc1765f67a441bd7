"""A lake in a store, by the words of docs/deploy.md: what is written there works, and no secret is left anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servers.lakehouse import Lakehouse
from system.docs_session import Shell, Step, comparable, followed

JDBC = """\
[catalog]
type = "jdbc"
uri = "jdbc:sqlite:catalog.db"
jdbc.schema-version = "V1"

[store.s3]
endpoint = "{endpoint}"
access_key = "${{STORE_KEY}}"
secret_key = "${{STORE_SECRET}}"
"""
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


@pytest.fixture
def here(lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in lakehouse.environment.items():
        monkeypatch.setenv(name, value)
    lakehouse.s3.bucket("incoming")
    return tmp_path


def test_word_by_word(lakehouse: Lakehouse, here: Path) -> None:
    page = PAGE.read_text().replace("http://127.0.0.1:8181/", lakehouse.rest.uri)
    page = page.replace("http://127.0.0.1:7070", lakehouse.s3.endpoint)
    assert lakehouse.settings in page

    def aws(*words: str) -> None:
        *_, file, target = words
        lakehouse.s3.put(f"{target}{file}", (here / file).read_bytes())

    with Shell() as shell:
        for step, printed in followed(page, here, shell, {"aws": aws}):
            assert comparable(printed) == comparable(step.output), step.text
        doctor, history = (
            shell.run(Step(f"driftline {command} --json", ""), here)
            for command in ("doctor", "history shop.orders")
        )
    assert {check["name"]: check["ok"] for check in json.loads(doctor)["checks"]}["store"]
    no_secrets(lakehouse, doctor, history)


def test_a_jdbc_catalog_beside_the_store(lakehouse: Lakehouse, here: Path) -> None:
    (here / "driftline.toml").write_text(JDBC.format(endpoint=lakehouse.s3.endpoint))
    (here / "a.json").write_text('{"id": 1, "total": 19.5}\n')
    (here / "b.json").write_text('{"id": 2, "total": "23.90 EUR"}\n{"id"\n')
    commands = (
        "ingest a.json --into shop.orders",
        "ingest b.json --into shop.orders",
        "view shop.orders",
        "verify a.json b.json --table shop.orders --exactly",
        "tables",
    )
    with Shell() as shell:
        printed = [
            shell.run(Step(f"driftline {text} --lake s3://lake/jdbc --json", ""), here) for text in commands
        ]
    _, drifted, view, verdict, tables = map(json.loads, printed)
    assert (drifted["rows_written"], drifted["rows_quarantined"]) == (1, 1)
    assert [change["path"] for change in drifted["changes"]] == ["total_string"]
    assert verdict["ok"], verdict
    assert view["made"], view
    assert [table["table"] for table in tables] == ["shop.orders"]
    orders = lakehouse.s3.folder / "buckets" / "lake" / "jdbc" / "shop" / "orders"
    assert len([*orders.glob("data/*.parquet")]) == 2
    assert lakehouse.s3.secret_key.encode() not in (here / "catalog.db").read_bytes()
    no_secrets(lakehouse, *printed)


def no_secrets(lakehouse: Lakehouse, *texts: str) -> None:
    """No object of any bucket has the secret key, nor has a text."""
    secret = lakehouse.s3.secret_key.encode()
    found = [
        path for path in lakehouse.s3.folder.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]
    assert found == []
    assert not any(secret.decode() in text for text in texts)
