"""Secrets of the settings are where nobody else sees them: on no command line, in no log of Spark's, on no page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = """
lake = "s3://bucket/lake"

[catalog]
type = "jdbc"
uri = "jdbc:sqlite:${FOLDER}/catalog.db?password=${S_URI}"
"jdbc.schema-version" = "V1"
"jdbc.user" = "me"
"jdbc.password" = "${S_JDBC}"
token = "${S_TOKEN}"
credential = "me:${S_CREDENTIAL}"
"header.Authorization" = "Basic ${S_HEADER}"
"spark.ui.enabled" = true
"spark.ui.port" = 0
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "file://${FOLDER}/events"
"spark.driver.memory" = "1g"
"spark.hadoop.fs.s3a.secret.key" = "${S_HADOOP}"
"spark.ssl.keyPassword" = "${S_SSL}"

[store.s3]
access_key = "${S_ACCESS}"
secret_key = "${S_SECRET}"
session_token = "${S_SESSION}"
"""
KINDS = ("URI", "JDBC", "TOKEN", "CREDENTIAL", "HEADER", "HADOOP", "SSL", "ACCESS", "SECRET", "SESSION")


@pytest.mark.nightly
def test_nobody_else_sees_a_secret(tmp_path):
    (tmp_path / "driftline.toml").write_text(SETTINGS)
    (tmp_path / "events").mkdir()
    secrets = {f"S_{kind}": f"hush-{kind.lower()}-7319" for kind in KINDS}
    run = subprocess.run(
        [sys.executable, Path(__file__).with_name("watched_settings.py")],
        cwd=tmp_path,
        env={**os.environ, **secrets, "FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seen = json.loads(run.stdout)
    seen["events"] = "".join(file.read_text() for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in seen["lines"])
    assert "redacted" in seen["page"]
    assert "Range (0, 4" in seen["events"]
    leaked = {(where, secret) for where in seen for secret in secrets.values() if secret in str(seen[where])}
    assert leaked == set()
