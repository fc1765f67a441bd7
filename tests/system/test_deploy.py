"""A lake in a store, by the words of docs/deploy.md: what is written there works, and no secret is left anywhere."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from servers.lakehouse import Lakehouse
from system.docs_session import comparable, run, steps

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


@pytest.fixture
def here(lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in lakehouse.environment.items():
        monkeypatch.setenv(name, value)
    lakehouse.s3.bucket("incoming")
    (tmp_path / "driftline.toml").write_text(lakehouse.settings)
    return tmp_path


def test_word_by_word(lakehouse: Lakehouse, here: Path) -> None:
    page = PAGE.read_text()
    assert lakehouse.settings in page.replace("http://127.0.0.1:8181/", lakehouse.rest.uri).replace(
        "http://127.0.0.1:7070", lakehouse.s3.endpoint
    )
    for step in steps(page, here):
        (here / "driftline.toml").write_text(lakehouse.settings)
        words = shlex.split(step.command)
        if words[0] == "aws":
            *_, file, target = words
            lakehouse.s3.put(f"{target}{file}", (here / file).read_bytes())
        else:
            assert comparable(run(step.command, here)) == comparable(step.output), step.command
    told = json.loads(run("driftline doctor --json", here))
    assert {check["name"]: check["ok"] for check in told["checks"]}["store"]
    no_secrets(lakehouse, json.dumps(told), run("driftline history shop.orders --json", here))


def no_secrets(lakehouse: Lakehouse, *texts: str) -> None:
    """No object of any bucket has the secret key, nor has a text."""
    secret = lakehouse.s3.secret_key.encode()
    found = [
        path for path in lakehouse.s3.folder.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]
    assert found == []
    assert not any(secret.decode() in text for text in texts)
