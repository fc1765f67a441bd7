"""A lake in a store, by the words of docs/deploy.md: what is written there works, and no secret is left anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servers.lakehouse import Lakehouse
from system.docs_session import Shell, Step, comparable, followed

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


def no_secrets(lakehouse: Lakehouse, *texts: str) -> None:
    """No object of any bucket has the secret key, nor has a text."""
    secret = lakehouse.s3.secret_key.encode()
    found = [
        path for path in lakehouse.s3.folder.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]
    assert found == []
    assert not any(secret.decode() in text for text in texts)
