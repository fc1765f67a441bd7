"""Runs of driftline without the files that the image leaves out of its environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from answering import Done
from json_output import faults

ROOT = Path(__file__).parents[2]
# Each brings a library whose parts are among what is left out, or reads such parts itself.
USED = """
import pyarrow.acero, pyarrow.csv, pyarrow.dataset, pyarrow.fs, pyarrow.orc, pyarrow.parquet
import fastavro, grpc_tools.protoc, numpy.random, pandas
from botocore.session import Session
for service in ("s3", "sqs", "sts", "sso", "sso-oidc"):
    Session().create_client(service, region_name="eu-west-1")
"""


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="the image is of Linux, and keeps Linux's files alone")
def test_the_demo_without_what_the_image_leaves_out(tmp_path: Path) -> None:
    python, libraries = _environment(tmp_path / "venv")
    subprocess.run(["sh", ROOT / "requirements" / "leave-out.sh", libraries], check=True)
    assert not [*libraries.glob("pyspark/jars/rocksdbjni*")]
    # With settings of its own, Java has no archive of classes, which would be one for this folder alone.
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_CONF_DIR": str(tmp_path)}
    demo = ["demo", "--json"]
    for command in (["-c", USED], ["-m", "driftline", *demo]):
        done = subprocess.run(
            [python, *command], env=given, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert list(faults({"demo": demo}, {"demo": Done(0, done.stdout, done.stderr)})) == []
    *_, verdict = map(json.loads, done.stdout.splitlines())
    assert (verdict["ok"], verdict["records"]) == (True, 404)


def _environment(folder: Path) -> tuple[Path, Path]:
    """One like that of the tests, of links to its files: its Python, and the folder of its libraries."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    ours = Path(sysconfig.get_path("purelib"))
    libraries = folder / ours.relative_to(sys.prefix)
    shutil.rmtree(libraries)
    shutil.copytree(ours, libraries, symlinks=True, copy_function=_linked)
    return folder / "bin" / "python", libraries


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # of another disk
        shutil.copy2(source, target)
