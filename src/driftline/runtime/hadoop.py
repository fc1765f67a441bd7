"""Hadoop's paths and file systems, and its ways to S3 and to Google's store: how Spark reaches files that
belong to no Iceberg table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from driftline.errors import SetupError, UsageError
from driftline.runtime.java_types import java_type
from driftline.runtime.spark_version import NEWEST, installed_release
from driftline.runtime.stores import configured, is_google, is_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_WORDS = {
    "endpoint": "fs.s3a.endpoint",
    "region": "fs.s3a.endpoint.region",
    "access_key": "fs.s3a.access.key",
    "secret_key": "fs.s3a.secret.key",
    "session_token": "fs.s3a.session.token",
}
_GIVEN = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_FOR_A_TIME = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_NOBODY = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
# What Amazon's own clients ask: the environment, files, the machine's role.
_ENVIRONMENT = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_GOOGLE = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"


def settings(uri: str) -> dict[str, str]:
    """Spark's settings by which it reaches the store of a URI, with the keys that `stores.configure` has.

    Raises UsageError for a store that is neither S3 nor Google's, and for keys that Hadoop does not take;
    SetupError for a version of Spark without a way there.
    """
    if not (is_s3(uri) or is_google(uri)):
        raise UsageError(
            f"{uri}: a DuckLake lies in a folder, in S3 or in Google's store",
            hint="Iceberg tables lie in other stores",
        )
    if (release := installed_release()).hadoop is None:
        raise SetupError(
            f"Spark {release.spark} does not read the files of a DuckLake in a store",
            hint=f"it takes Spark {NEWEST.spark}: pip install 'driftline[local]'",
        )
    of_store = _of_s3 if is_s3(uri) else _of_google
    return {f"spark.hadoop.{key}": value for key, value in of_store(configured(uri)).items()}


def _of_s3(options: Mapping[str, str]) -> dict[str, str]:
    out = {key: options[word] for word, key in _WORDS.items() if word in options}
    if options.get("anonymous") == "true":
        provider = _NOBODY
    elif "access_key" in options:
        provider = _FOR_A_TIME if "session_token" in options else _GIVEN
    else:
        provider = _ENVIRONMENT
    if "endpoint" in options:  # as Arrow does it
        out["fs.s3a.path.style.access"] = str(options.get("path_style") != "false").lower()
        out.setdefault("fs.s3a.endpoint.region", "us-east-1")
    return {
        "fs.s3.impl": _SYSTEM,
        "fs.s3a.impl": _SYSTEM,
        "fs.s3a.aws.credentials.provider": provider,
        **out,
    }


def _of_google(options: Mapping[str, str]) -> dict[str, str]:
    if "token" in options:
        raise UsageError(
            "[store.gs] has a token, which Hadoop's way to Google's store does not take",
            hint="leave it out: GOOGLE_APPLICATION_CREDENTIALS names a file with keys, or the machine has an account",
        )
    nobody = options.get("anonymous") == "true"
    out = {
        "fs.gs.impl": _GOOGLE,
        "fs.gs.auth.type": "UNAUTHENTICATED" if nobody else "APPLICATION_DEFAULT",
        # Then it copies and deletes, which is what was tried: the tests' server knows no request for a move.
        "fs.gs.operation.move.enable": "false",
        # It is built for a Hadoop before Spark's, in which one method of these reads is another.
        "parquet.hadoop.vectored.io.enabled": "false",
    }
    if "project" in options:
        out["fs.gs.project.id"] = options["project"]
    if endpoint := options.get("endpoint", "").rstrip("/"):
        out["fs.gs.storage.root.url"] = f"{endpoint if '://' in endpoint else f'https://{endpoint}'}/"
    return out


def hadoop_path(spark: SparkSession, path: str) -> Any:
    """A path as Java's object."""
    return java_type(spark._jvm, "org.apache.hadoop.fs.Path")(path)


def hadoop_file_system(spark: SparkSession, path: Any) -> Any:
    """The file system of a Java path, by the session's settings."""
    session: Any = spark._jsparkSession
    return path.getFileSystem(session.sessionState().newHadoopConf())
