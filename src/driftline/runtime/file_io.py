"""Translates between Iceberg's FileIO properties, store options and Spark's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from driftline.errors import SetupError, UsageError
from driftline.runtime.spark_version import NEWEST, installed_release, java_type
from driftline.runtime.stores import configured, is_google, is_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_S3 = {
    "s3.endpoint": "endpoint",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "client.region": "region",
    "s3.path-style-access": "path_style",
}
_GCS = {
    "gcs.oauth2.token": "token",
    "gcs.oauth2.token-expires-at": "token_expires",
    "gcs.service.host": "endpoint",
    "gcs.project-id": "project",
}
_ACCOUNT, _ACCOUNT_KEY = "adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"
_SAS = "adls.sas-token."  # and the account, or its host
# How Java's own client goes about it, or what holds for signing, which is off.
_PASSED_OVER = (
    "s3.checksum-enabled",
    "s3.delete.",
    "s3.multipart.",
    "s3.preload-client-enabled",
    "s3.remote-signing-enabled",
    "s3.retry.",
    "s3.session-token-expires-at-ms",
    "s3.signer",
    "s3.staging-dir",
    "client.refresh-credentials",
    "gcs.channel.",
    "gcs.delete.",
    "gcs.oauth2.refresh-credentials",
    "adls.read.",
    "adls.refresh-credentials",
    "adls.sas-token-expires-at-ms",
    "adls.write.block-size-bytes",
)
_OF_STORES = ("s3.", "gcs.", "adls.", "client.", "http-client.")
_FILE_IOS = {
    "s3": "S3FileIO",
    "s3a": "S3FileIO",
    "gs": "GCSFileIO",
    "abfs": "ADLSFileIO",
    "abfss": "ADLSFileIO",
}


def options(file_io: str, properties: Mapping[str, str], location: str) -> dict[str, str] | None:
    """The options of `stores.filesystem` for files at the URI ``location``, which Java reaches by the class
    ``file_io`` with these ``properties``.

    None if only Java can reach them: by a FileIO or a property that is not known here, or by requests that
    the catalog signs.

    >>> options("S3FileIO", {"s3.endpoint": "http://h:9", "warehouse": "w", "s3.delete.batch-size": "9"}, "s3://b/t")
    {'endpoint': 'http://h:9'}
    >>> options("S3FileIO", {"s3.remote-signing-enabled": "true"}, "s3://b/t") is None
    True
    >>> options("ADLSFileIO", {"adls.sas-token.a.dfs.core.windows.net": "t"}, "abfss://c@a.dfs.core.windows.net/t")
    {'sas_token': 't'}
    """
    if _FILE_IOS.get(location.partition("://")[0]) != file_io:
        return None
    if properties.get("s3.remote-signing-enabled", "false").lower() == "true":
        return None
    words = {"S3FileIO": _S3, "GCSFileIO": _GCS}.get(file_io)
    if words is None:
        words, properties = _of_account(properties, location)
    unknown = (key for key in properties if key.startswith(_OF_STORES) and key not in words)
    # To ignore a property, such as one of encryption, would write a file that should not exist.
    if not all(key.startswith(_PASSED_OVER) for key in unknown):
        return None
    return {word: properties[key] for key, word in words.items() if key in properties}


def options_at(uri: str, properties: Mapping[str, str]) -> dict[str, str] | None:
    """The `options` of the FileIO class that Java uses for the scheme of the URI."""
    return options(_FILE_IOS.get(uri.partition("://")[0], ""), properties, uri)


def vended(credentials: Sequence[tuple[str, Mapping[str, str]]], location: str) -> Mapping[str, str]:
    """The credentials with the longest matching prefix, of those that a catalog hands out.

    >>> vended([("s3://b", {"a": "1"}), ("s3://b/t", {"a": "2"}), ("s3://c", {"a": "3"})], "s3://b/t/data")
    {'a': '2'}
    """
    fitting = [one for one in credentials if location.startswith(one[0])]
    return max(fitting, key=lambda one: len(one[0]), default=("", {}))[1]


def properties(uri: str, given: Mapping[str, str]) -> dict[str, str]:
    """The other way about: what Java's FileIO takes for files at
    ``uri``, which `stores` reaches with the options ``given``.

    >>> properties("s3://b/lake", {"access_key": "k"})
    {'s3.access-key-id': 'k'}
    """
    match _FILE_IOS.get(uri.partition("://")[0]):
        case "S3FileIO":
            # As Arrow does it.
            own = {"path_style": "true", "region": "us-east-1"} if "endpoint" in given else {}
            given = {**given, **{word: value for word, value in own.items() if word not in given}}
            words = _S3
        case "GCSFileIO":
            words = _GCS
        case "ADLSFileIO":
            account = _account(uri).partition(".")[0]
            words = {f"{_SAS}{account}": "sas_token", _ACCOUNT_KEY: "account_key"}
            more = {_ACCOUNT: account} if "account_key" in given else {}
            return more | {key: given[word] for key, word in words.items() if word in given}
        case _:
            return {}
    return {key: given[word] for key, word in words.items() if word in given}


def _account(uri: str) -> str:
    """The host of an Azure account."""
    return uri.partition("://")[2].partition("/")[0].rpartition("@")[2]


def _of_account(properties: Mapping[str, str], location: str) -> tuple[dict[str, str], Mapping[str, str]]:
    """The option names for this location's account, and the properties without those of other accounts."""
    host = _account(location)
    account = host.partition(".")[0]
    words = {f"{_SAS}{account}": "sas_token", f"{_SAS}{host}": "sas_token"}
    if properties.get(_ACCOUNT) == account:
        words[_ACCOUNT_KEY] = "account_key"
    others = {key for key in properties if key.startswith(_SAS) and key not in words} | {_ACCOUNT}
    return words, {key: value for key, value in properties.items() if key not in others}


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
            hint=f"this needs Spark {NEWEST.spark}: pip install 'driftline[local]'",
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
