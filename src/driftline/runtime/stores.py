"""Stores of files that are no folders of this machine: S3, Google's and Azure's object stores, HDFS.

This alone knows their URIs, and what they are reached with: settings, or what is usual in the environment. A
path is taken as it is written; nothing in it is percent-decoded, as in the stores' own tools.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from driftline.errors import SetupError, UsageError
from driftline.runtime.store_answers import explained, without_secrets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

Options = Mapping[str, str]

# The kind of store behind each scheme, and the options that a kind may have.
_KINDS: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "abfss": "abfss",
    "abfs": "abfss",
    "hdfs": "hdfs",
}
_OPTIONS: Final = {
    "s3": ("endpoint", "region", "access_key", "secret_key", "session_token", "path_style", "anonymous"),
    "gs": ("endpoint", "project", "token", "token_expires", "anonymous"),
    "abfss": ("endpoint", "account_key", "sas_token", "tenant_id", "client_id", "client_secret"),
    "hdfs": ("user", "ticket_cache"),
}
_HADOOP = "HDFS is read by Hadoop's own library: set JAVA_HOME, HADOOP_HOME, and CLASSPATH to `hadoop classpath --glob`"
_ATTEMPTS = 6  # at a request, each after a longer pause: 15 seconds in all, on the average
_CONNECT, _REQUEST = 5.0, 60.0  # seconds
_BUFFER = 2**20  # bytes that are asked for at once

_configured: dict[str, dict[str, str]] = {}
_PROCESS = uuid4().hex
_in_task = False


def configure(kind: str, options: Options) -> None:
    """What stores of a kind (``s3``, ``gs``, ``abfss``, ``hdfs``) are reached with, here and in tasks.

    Raises UsageError for a kind or an option that there is not.
    """
    if kind not in _OPTIONS:
        raise UsageError(f"[store.{kind}]: there is no such store", hint=f"there are {', '.join(_OPTIONS)}")
    for key in options:
        if key not in _OPTIONS[kind]:
            raise UsageError(f"[store.{kind}] has no {key!r}", hint=f"there are {', '.join(_OPTIONS[kind])}")
    _configured[kind] = dict(options)


def configured(uri: str) -> Options:
    """What the store of a URI is reached with: what `configure` said, and of
    its address what the environment says. Keys of the environment are not told.
    """
    kind = _kind(uri)
    given = _configured.get(kind, {})
    return _with_address(given) if kind == "s3" else given


class Uri(str):
    """The URI of a file in a store. Sent to a task, it brings along what the store is reached with; what a
    task sends back is plain text, and has no secrets.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        if _in_task:
            return str, (str(self),)
        kind = _kind(self)
        return _arrived, (str(self), kind, _configured.get(kind), _PROCESS)


def _arrived(uri: str, kind: str, options: dict[str, str] | None, process: str) -> Uri:
    global _in_task  # noqa: PLW0603  a task's process is one for good
    if process != _PROCESS:
        _in_task = True
        if options is not None:
            _configured[kind] = options
    return Uri(uri)


def is_stored(path: str) -> bool:
    """Whether this is the URI of a store.

    >>> is_stored("s3a://bucket/in/a.json"), is_stored("in/a.json"), is_stored("https://example.com/a.json")
    (True, False, False)
    """
    scheme, slashes, _ = path.partition("://")
    return bool(slashes) and scheme.lower() in _KINDS


def filesystem(uri: str, options: Options | None = None) -> tuple[FileSystem, str]:
    """The file system of a URI, and the path in it.

    ``options``: what the store is reached with; None: what `configure` said, or else the environment says.
    Raises UsageError for a URI that is none, SetupError where the store cannot be used from here.
    """
    kind = _kind(uri)
    rest = uri.partition("://")[2]
    authority, _, path = rest.partition("/")
    if not authority or (kind == "s3" and "@" in authority):
        raise UsageError(
            f"{_without_keys(uri)}: this names no bucket",
            hint="keys stand in the environment, or in driftline.toml: [store.s3]" if authority else None,
        )
    given = _configured.get(kind, {}) if options is None else options
    try:
        system = _opened(kind, authority if kind in ("abfss", "hdfs") else "", tuple(sorted(given.items())))
    except (OSError, ValueError) as error:
        hint = _HADOOP if kind == "hdfs" else None
        raise SetupError(f"{uri}: {without_secrets(str(error), given)}", hint) from error
    match kind:
        case "hdfs":
            return system, f"/{path}"
        case "abfss":
            return system, f"{authority.partition('@')[0]}/{path}".rstrip("/")
        case _:
            return system, rest.rstrip("/")


def native(uri: str) -> pa.NativeFile:
    """A file of a store as Arrow reads it. Raises as `opened`."""
    system, path = filesystem(uri)
    with explaining(uri):
        return system.open_input_file(path)


@contextmanager
def opened(path: str) -> Iterator[tuple[Any, int]]:
    """A file of this machine, or of a store by its URI, to be read as bytes; and its size.

    What a store answers is told in one sentence: DataError where the file is not there, SetupError else.
    """
    if not is_stored(path):
        with open(path, "rb", buffering=0) as file:
            yield file, os.fstat(file.fileno()).st_size
        return
    with native(path) as source:
        size = source.size()
        # A small file is one request.
        raw: Any = _Explained(source, path)
        yield io.BytesIO(raw.read()) if size <= _BUFFER else io.BufferedReader(raw, _BUFFER), size


@contextmanager
def explaining(uri: str, options: Options | None = None) -> Iterator[None]:
    """What a store answers to a request about ``uri``, as driftline's errors. ``options``: as for it."""
    try:
        yield
    except OSError as error:
        given = _configured.get(_kind(uri), {}) if options is None else options
        raise explained(uri, error, given) from error


class _Explained(io.RawIOBase):
    """A file of a store whose errors are driftline's."""

    def __init__(self, file: pa.NativeFile, uri: str) -> None:
        self._file, self._uri = file, uri

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        with explaining(self._uri):
            return int(self._file.readinto(buffer))


def _kind(uri: str) -> str:
    kind = _KINDS.get(uri.partition("://")[0].lower())
    if kind is None:
        raise UsageError(
            f"{_without_keys(uri)}: there is no such kind of store", hint=f"there are {', '.join(_KINDS)}"
        )
    return kind


@lru_cache(maxsize=32)
def _opened(kind: str, authority: str, given: tuple[tuple[str, str], ...]) -> FileSystem:
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

    options = _with_address(options)
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


def _with_address(options: Options) -> dict[str, str]:
    env = os.environ
    address = {
        "endpoint": env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL"),
        "region": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
    }
    return {key: value for key, value in address.items() if value} | dict(options)


def _gs(options: dict[str, str]) -> FileSystem:
    from datetime import UTC, datetime, timedelta

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
        retry_time_limit=timedelta(seconds=_REQUEST),
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
    """An endpoint's scheme and host; https where it names none."""
    if not endpoint:
        return None, None
    scheme, slashes, host = endpoint.rstrip("/").rpartition("://")
    return (scheme if slashes else "https"), host


def _without_keys(uri: str) -> str:
    return re.sub(r"(?<=://)[^/\s@]+(?=@)", "***", uri)
