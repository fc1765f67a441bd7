"""A bucket by the command line: keys from the environment by way of `driftline.toml`, and nowhere else afterwards."""

import json
import os
import subprocess
import sys
from pathlib import Path

TOML = """
[store.s3]
endpoint = "${S3}"
region = "us-east-1"
access_key = "${KEY}"
secret_key = "${SECRET}"
"""


def run(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "driftline", *args]
    env = {**os.environ, **env}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def holding(folder: Path, secret: str) -> list[Path]:
    """The files below a folder that have a text in them."""
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_secrets_are_neither_told_nor_kept(s3, tmp_path):
    (tmp_path / "driftline.toml").write_text(TOML)
    bucket = s3.bucket("command-line")
    s3.put(f"{bucket}/in/a.json", b'{"id": 1}\n{"id": "x"}\nno json\n')
    keys = {"S3": s3.endpoint, "KEY": s3.access_key, "SECRET": s3.secret_key}
    done = run(
        tmp_path, "capture", f"{bucket}/in", "--into", "shop.orders", "--name", "orders",
        "--checkpoint", f"{bucket}/checkpoint", "--json", **keys,
    )  # fmt: skip
    refused = run(
        tmp_path, "ingest", f"{bucket}/in", "--into", "shop.other", "--json",
        **{**keys, "SECRET": "hush-hush", "DRIFTLINE_DEBUG": "1"},
    )  # fmt: skip
    batch = json.loads(done.stdout)

    assert (done.returncode, batch["rows_written"], batch["rows_quarantined"]) == (0, 2, 1), done.stderr
    assert batch["changes"][0]["seen_in"] == f"{bucket}/in/a.json:1"
    assert refused.returncode == 3
    assert f"{bucket}/in: the store" in refused.stderr
    for secret in (s3.secret_key, "hush-hush"):
        assert all(secret not in text for one in (done, refused) for text in (one.stdout, one.stderr))
        assert holding(tmp_path, secret) == holding(s3.folder, secret) == []
    assert (s3.folder / "buckets" / "command-line" / "checkpoint" / "spark" / "commits" / "0").is_file()
