"""The wheel, and what it takes to use it: built twice, installed by uv into an environment of its own, outside a checkout.

    make bench-install                 some minutes: it downloads all that an empty machine would
    python bench/install.py --wheel    the wheel alone, into dist/

Two builds of the same sources must be the same file. All caches are empty at first; what is downloaded, and how fast, is
the network's. The second demo has all that it needs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).with_name("uv")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", action="store_true", help="build the wheel, and no more")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="install-") as tmp:
        wheel = reproduced(Path(tmp))
        if arguments.wheel:
            (HERE / "dist").mkdir(exist_ok=True)
            print(shutil.copy(wheel, HERE / "dist"), sha256(wheel))
            return
        installed(wheel, Path(tmp))


def reproduced(folder: Path) -> Path:
    """The wheel of the sources, which two builds give alike."""
    wheels = [built(folder / name) for name in ("first", "second")]
    if len({sha256(wheel) for wheel in wheels}) != 1:
        sys.exit("two builds of the same sources differ")
    return wheels[0]


def built(folder: Path) -> Path:
    """A wheel, built into the folder with the pinned backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=HERE, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def installed(wheel: Path, folder: Path) -> None:
    """Install the wheel with its pinned dependencies, make the first tables, and print what it took."""
    home, empty = folder / "tool", folder / "empty"
    empty.mkdir()
    env = {
        **os.environ,
        "UV_CACHE_DIR": str(folder / "cache"),
        "UV_TOOL_DIR": str(home),
        "UV_TOOL_BIN_DIR": str(folder / "bin"),
        "DRIFTLINE_CACHE": str(folder / "jars"),
    }
    pins = folder / "pins.txt"
    lines = (HERE / "requirements/local.txt").read_text().splitlines()
    pins.write_text("\n".join(line.removesuffix(" \\") for line in lines if "--hash" not in line))
    tool = [str(UV), "tool", "install", "--quiet", "--python", sys.executable, "--constraints", str(pins)]
    times = {"installed, all downloaded": took([*tool, f"{wheel}[local]"], env, empty)}
    demo = [str(folder / "bin/driftline"), "demo"]
    times["first demo, Java's libraries downloaded"] = took(demo, env, empty)
    shutil.rmtree(empty)
    empty.mkdir()
    times["demo again"] = took(demo, env, empty)
    print("| | |\n|---|--:|")
    print(f"| wheel | {wheel.stat().st_size / 2**20:.1f} MB |")
    print(f"| environment of `driftline[local]` | {size(home):,.0f} MB |")
    print(f"| Java's libraries and its archive of classes | {size(folder / 'jars'):,.0f} MB |")
    for what, seconds in times.items():
        print(f"| {what} | {seconds:,.0f} s |")


def took(command: list[str], env: Mapping[str, str], folder: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


def size(folder: Path) -> float:
    """MB of the files in a folder, each once."""
    files = {(stat.st_ino, stat.st_size) for file in folder.rglob("*") if (stat := file.lstat())}
    return sum(bytes_ for _, bytes_ in files) / 2**20


if __name__ == "__main__":
    main()
