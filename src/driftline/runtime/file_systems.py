"""Arrow's file system of each kind of store, as options and the environment say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

HADOOP = "driftline reads HDFS through Hadoop's library: set JAVA_HOME, HADOOP_HOME, and CLASSPATH to `hadoop classpath --glob`"
_ATTEMPTS = 6  # at a request, each after a longer pause: 15 seconds in all, on the average
_CONNECT, _REQUEST = 5.0, 60.0  # seconds
_RETRIES = 15.0  # seconds that Google's client tries


@lru_cache(maxsize=32)
def connected(kind: str, authority: str, given: tuple[tuple[str, str], ...]) -> FileSystem:
    """The file system for all that is reached so; the same at each call. Raises OSError, ValueError."""
    options = dict(given)
    match kind:
        case "s3":
            return _s3(options)
        case "gs":
            return _gs(options)
        case "abfss":
            return _azure(authority, options)
        case _:
            from pyarrow.fs import HadoopFileSystem

            host, _, port = authority.partition(":")
            return HadoopFileSystem(
                host, int(port or 8020), user=options.get("user"), kerb_ticket=options.get("ticket_cache")
            )


def _s3(options: dict[str, str]) -> FileSystem:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options = with_address(options)
    scheme, host = _split(options.get("endpoint"))
    return S3FileSystem(
        access_key=options.get("access_key"),
        secret_key=options.get("secret_key"),
        session_token=options.get("session_token"),
        anonymous=options.get("anonymous") == "true",
        region=options.get("region"),
        endpoint_override=host,
        scheme=scheme,
        force_virtual_addressing=options.get("path_style") == "false",
        connect_timeout=_CONNECT,
        request_timeout=_REQUEST,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def with_address(options: Mapping[str, str]) -> dict[str, str]:
    """The options of S3, with the environment's address if they have none."""
    env = os.environ
    address = {
        "endpoint": env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL"),
        "region": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
    }
    return {key: value for key, value in address.items() if value} | dict(options)


def _gs(options: dict[str, str]) -> FileSystem:
    from pyarrow.fs import GcsFileSystem

    scheme, host = _split(options.get("endpoint"))
    expires = options.get("token_expires")
    return GcsFileSystem(
        anonymous=options.get("anonymous") == "true",
        access_token=options.get("token"),
        # In milliseconds since 1970, as catalogs hand it out.
        credential_token_expiration=datetime.fromtimestamp(int(expires) / 1000, UTC) if expires else None,
        project_id=options.get("project"),
        endpoint_override=host,
        scheme=scheme,
        retry_time_limit=timedelta(seconds=_RETRIES),
    )


def _azure(authority: str, options: dict[str, str]) -> FileSystem:
    from pyarrow.fs import AzureFileSystem

    scheme, host = _split(options.get("endpoint"))
    account = authority.partition("@")[2].partition(".")[0]
    secrets = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    more = {"blob_storage_authority": host, "dfs_storage_authority": host} if host else {}
    schemes = {"blob_storage_scheme": scheme, "dfs_storage_scheme": scheme} if host else {}
    return AzureFileSystem(
        account, **{key: options[key] for key in secrets if key in options}, **more, **schemes
    )


def _split(endpoint: str | None) -> tuple[str | None, str | None]:
    """An endpoint's scheme and host; https if it names none."""
    if not endpoint:
        return None, None
    scheme, slashes, host = endpoint.rstrip("/").rpartition("://")
    return (scheme if slashes else "https"), host
