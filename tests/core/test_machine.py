"""Tests that need something that the machine lacks are skipped, and fail in CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers import machine
from servers.postgres import Postgres


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_a_browser_and_its_driver_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = programs(tmp_path / "bin", "google-chrome", "chromedriver")
    monkeypatch.setenv("PATH", str(folder))

    assert machine.chromium() == (f"{folder}/google-chrome", f"{folder}/chromedriver")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (["chromium"], "there is no chromedriver here: apt-get install chromium-driver"),
        (["chromedriver"], "there is no Chromium here: apt-get install chromium chromium-driver"),
        ([], "there is no Chromium here: apt-get install chromium chromium-driver"),
    ],
)
@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_what_is_lacking_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: list[str],
    said: str,
    ci: str,
    outcome: type[Exception],
) -> None:
    monkeypatch.setenv("PATH", str(programs(tmp_path / "bin", *found)))
    monkeypatch.setenv("CI", ci)

    with pytest.raises(outcome) as ended:
        machine.chromium()

    assert str(ended.value) == said


@pytest.mark.parametrize(
    ("packaged", "on_path", "found"),
    [
        ({"9": ["initdb", "postgres", "createdb"], "15": ["initdb", "postgres", "createdb"]}, [], "packages/15/bin"),
        ({"14": ["initdb", "postgres", "createdb"], "15": ["createdb"]}, [], "packages/14/bin"),
        ({}, ["initdb", "postgres", "createdb"], "path"),
        ({"15": ["createdb"]}, ["createdb"], None),
        ({}, [], None),
    ],
)  # fmt: skip
def test_a_database_server_has_all_its_programs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packaged: dict[str, list[str]],
    on_path: list[str],
    found: str | None,
) -> None:
    for version, names in packaged.items():
        programs(tmp_path / "packages" / version / "bin", *names)
    monkeypatch.setenv("PATH", str(programs(tmp_path / "path", *on_path)))

    assert Postgres.programs(tmp_path / "packages") == (found and tmp_path / found)
