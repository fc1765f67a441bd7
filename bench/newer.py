"""The newest published versions of Spark and of Iceberg's library for each Spark, next to those that are pinned.

    make newer

It asks the package indexes by pip and by Spark's own resolver, and changes nothing. `make lock UPGRADE=1` takes newer
Python packages; Java libraries are pinned in `runtime/spark_version.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from driftline.errors import SetupError
from driftline.runtime.jars import _resolve
from driftline.runtime.session import prepare_environment
from driftline.runtime.spark_version import RELEASES

ROOT = Path(__file__).resolve().parents[1]
NOT_FOUND = "not found"


def main() -> None:
    prepare_environment()
    pinned = [("pyspark", version("pyspark"))]
    others = sorted(ROOT.glob("requirements/spark-*.txt"))
    pinned += [("pyspark", path.stem.removeprefix("spark-")) for path in others]
    libraries = [release.packages[0].rpartition(":")[::2] for release in RELEASES]
    with ThreadPoolExecutor() as pool:
        newest = [
            *pool.map(_of_pyspark, [v for _, v in pinned]),
            *map(_of_library, [name for name, _ in libraries]),
        ]
    print("| what | pinned | newest |  |\n|---|---|---|---|")
    for (name, now), found in zip([*pinned, *libraries], newest, strict=True):
        print(f"| {name} | {now} | {found} | {'' if found in (now, NOT_FOUND) else 'newer'} |")


def _of_pyspark(pinned: str) -> str:
    """The newest version of the line of the pinned one; of the newest line, the newest of all."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "pyspark", "--disable-pip-version-check"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    versions = re.findall(r"\d+(?:\.\d+)+", listed.partition("Available versions:")[2].partition("\n")[0])
    line = pinned.rpartition(".")[0]
    newest_line = pinned.startswith(f"{RELEASES[-1].spark}.")
    return next((v for v in versions if newest_line or v.startswith(f"{line}.")), NOT_FOUND)


def _of_library(name: str) -> str:
    """The newest release of a Java library, which Spark's resolver downloads into a folder that is deleted."""
    with TemporaryDirectory() as folder:
        try:
            _resolve(Path(folder), [f"{name}:latest.release"], [])
        except SetupError:
            return NOT_FOUND
        jars = Path(folder, "jars").glob(f"{name.replace(':', '_')}-*.jar")
        return next((jar.stem.rpartition("-")[2] for jar in jars), NOT_FOUND)


if __name__ == "__main__":
    main()
