"""The wheel: the same file each time, with all that it needs and nothing else."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


def built(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=HERE, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_two_builds_are_the_same_file(tmp_path: Path) -> None:
    first, second = (built(tmp_path / name) for name in ("first", "second"))
    assert len({hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in (first, second)}) == 1
    names = zipfile.ZipFile(first).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"driftline"}
    sources = {
        file.relative_to(HERE / "src") for file in (HERE / "src/driftline").rglob("*") if file.is_file()
    }
    kept = {name for name in map(str, sources) if "__pycache__" not in name}
    assert kept <= set(names), "the demo's batches, templates and settings are in it"
    assert any(name.endswith("licenses/LICENSE") for name in names)
