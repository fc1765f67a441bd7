"""Translates the properties of Iceberg's FileIOs into options of `stores`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
