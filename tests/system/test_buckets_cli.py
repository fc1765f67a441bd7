"""A bucket by the command line: keys from the environment by way of `driftline.toml`, and nowhere else afterwards."""

import json
from pathlib import Path

from answering import commands

TOML = """
[store.s3]
endpoint = "${S3}"
region = "us-east-1"
access_key = "${KEY}"
secret_key = "${SECRET}"
"""
WRONG = "hush-hush"


def holding(folder: Path, secret: str) -> list[Path]:
    """The files below a folder that have a text in them."""
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_secrets_are_neither_told_nor_kept(s3, tmp_path):
    (tmp_path / "driftline.toml").write_text(TOML)
    (tmp_path / "wrong.toml").write_text(TOML.replace("${SECRET}", "${WRONG}"))
    bucket = s3.bucket("command-line")
    s3.put(f"{bucket}/in/a.json", b'{"id": 1}\n{"id": "x"}\nno json\n')
    keys = {"S3": s3.endpoint, "KEY": s3.access_key, "SECRET": s3.secret_key, "WRONG": WRONG}
    with commands(**keys) as process:
        done = process.run(
            tmp_path, "capture", f"{bucket}/in", "--into", "shop.orders", "--name", "orders",
            "--checkpoint", f"{bucket}/checkpoint", "--json",
        )  # fmt: skip
        process.silent = False  # with --debug
        refused = process.run(
            tmp_path, "ingest", f"{bucket}/in", "--into", "shop.other", "--json",
            "--config", "wrong.toml", "--debug",
        )  # fmt: skip
        log = process.printed()
    batch = json.loads(done.out)

    assert (done.code, batch["rows_written"], batch["rows_quarantined"]) == (0, 2, 1), done
    assert batch["changes"][0]["seen_in"] == f"{bucket}/in/a.json:1"
    assert refused.code == 3
    assert f"{bucket}/in: the store" in refused.err
    for secret in (s3.secret_key, WRONG):
        assert all(secret not in text for text in (*done[1:], *refused[1:], log))
        assert holding(tmp_path, secret) == holding(s3.folder, secret) == []
    assert (s3.folder / "buckets" / "command-line" / "checkpoint" / "spark" / "commits" / "0").is_file()
