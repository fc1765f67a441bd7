"""The example of docs/cluster.md, as `make cluster` prints it, on a real cluster."""

import subprocess
import sys
from pathlib import Path

from servers.__main__ import example
from servers.cluster import Cluster

ROOT = Path(__file__).parents[2]


def test_the_example_works(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "src").symlink_to(ROOT / "src")
    command = [sys.executable, "-c", example(cluster.url)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "2026-03-02.jsonl: 58 written, 24 changes\n" in ran.stdout
    assert "|order_placed|" in ran.stdout.replace(" ", "")
