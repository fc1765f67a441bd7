"""The commit to a DuckLake's catalog, struck at each of its file operations, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.control import Control, compiler, shim
from servers.machine import lacking


def tries(home: Path, kind: str, every: int) -> list[dict[str, Any]]:
    if compiler() is None:
        lacking("C compiler", "apt-get install gcc")
    with Control(home / "control") as control:
        tests = str(Path(__file__).parents[1])
        path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {"PYTHONPATH": path, "FAULTS_CONTROL": str(control.file), "LD_PRELOAD": str(shim(home))}
        script = [sys.executable, Path(__file__).with_name("catalog_tries.py"), home, kind, str(every)]
        run = subprocess.run(script, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize(("kind", "every"), [("duckdb", 5), ("sqlite", 17)])
def test_all_or_nothing_and_others_go_on(tmp_path: Path, kind: str, every: int) -> None:
    """Another process reads the catalog as before or as after, and commits. A full disk is no other writer, to be waited
    for; who lives on says what became of the commit.
    """
    done = tries(tmp_path.resolve(), kind, every)
    assert {one["mode"] for one in done} == {"KILL", "FULL"}
    for one in done:
        assert one["read"] in ([], ["t"]), one
        assert one["last"] == sorted([*one["read"], "more"]), one
        if one["mode"] == "FULL":
            assert (one["said"] is None) == (one["read"] == ["t"]) or "is not known" in one["said"], one
            assert "is still locked" not in str(one["said"]), one
