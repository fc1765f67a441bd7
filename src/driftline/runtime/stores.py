"""File stores outside this machine: S3, Google Cloud Storage, Azure and HDFS.

Only this module knows their URIs, the options to reach them (settings, or the usual environment variables),
and the meaning of their answers. A path is taken as written and never percent-decoded, like in the stores'
own tools.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request
from uuid import uuid4

from driftline.config import redacted
from driftline.errors import DataError, DriftlineError, SetupError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

_KEYS = "check the keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or [store.s3] in driftline.toml"
_AWAY = "check the network and the endpoint: AWS_ENDPOINT_URL, or [store.s3] in driftline.toml"

# Parts of Arrow's errors: the sentence, and the advice.
_ANSWERS: tuple[tuple[str, str, str | None], ...] = (
    (
        r"(?i:expired_?token|token .{0,40}expired)",
        "the store's token has expired",
        "get a new token and try again",
    ),
    (
        r"(?i:provided access key)|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN|HTTP status 401",
        "the store does not accept these keys",
        _KEYS,
    ),
    (
        r"ACCESS_DENIED|HTTP status 403|AuthorizationFailure|MISSING_AUTH|PERMISSION_DENIED|UNAUTHENTICATED",
        "the store denies access",
        _KEYS,
    ),
    (
        r"HTTP status 301|PERMANENT_REDIRECT|PermanentRedirect|AuthorizationHeaderMalformed",
        "the bucket is in another region",
        "name it: AWS_REGION, or region in [store.s3] in driftline.toml",
    ),
    (r"NO_SUCH_BUCKET|ContainerNotFound|Bucket '[^']*' not found", "no such bucket", None),
    (
        r"SLOW_?DOWN|Failed to flush response stream|THROTTL|SERVICE_UNAVAILABLE|HTTP status (?:429|503)",
        "the store is too busy, after several tries",
        "try again later; nothing was committed",
    ),
    (
        # The only sign of an expired token in an answer about an object.
        "HTTP status 400",
        "the store rejected the request without a reason",
        "check whether the token has expired, then the keys and the region",
    ),
    (
        r"NETWORK_CONNECTION|[Cc]ouldn't connect|Could not connect|[Cc]ould ?n.t resolve|[Tt]imed? ?out",
        "the store does not respond",
        _AWAY,
    ),
)
_GONE = re.compile(
    r"NO_SUCH_KEY|RESOURCE_NOT_FOUND|Path does not exist|\[Errno 2\]|BlobNotFound|HTTP status 404"
)
# The same for stores that are none of S3's.
_ELSEWHERE: dict[str | None, str] = {
    _KEYS: "check the keys: those of the environment, or of [store.gs] or [store.abfss] in driftline.toml",
    _AWAY: "look at the network, and at the endpoint, if driftline.toml names one",
}
_BUSY = (408, 425, 429)  # by HTTP
_PORTS = {"http": 80, "https": 443}
_LONGEST = 300  # characters
_SECRET = re.compile("key|token|secret")
_SIGNED = re.compile(r"([?&;](?:sig|X-Amz-[\w-]+)=)[^&\s]+")


def explained(uri: str, error: OSError, options: Mapping[str, str]) -> DriftlineError:
    """The error for a store's answer to a request about ``uri``.

    ``options``: those of the store; no secret among them appears.
    """
    words = f"{uri}: the store says: {without_secrets(str(error), options)}"
    return answer_in(uri, error) or SetupError(words)


def answer_in(uri: str, error: BaseException) -> DriftlineError | None:
    """The error for a known answer of a store; None for any other error."""
    text = str(error)
    for pattern, sentence, hint in _ANSWERS:
        if re.search(pattern, text):
            return SetupError(
                f"{uri}: {sentence}", hint if uri.startswith("s3") else _ELSEWHERE.get(hint, hint)
            )
    if isinstance(error, FileNotFoundError) or _GONE.search(text):
        return DataError(f"{uri}: the file no longer exists")
    return None


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """A store's message on one line, without values that must stay secret.

    >>> without_secrets("bad sig\\n s3cr3t at ?sig=ab%3D&x=1", {"secret_key": "s3cr3t"})
    'bad sig *** at ?sig=***&x=1'
    """
    for key, value in options.items():
        if value and _SECRET.search(key):
            text = text.replace(value, "***")
    return " ".join(_SIGNED.sub(r"\1***", text).split())[:_LONGEST]


def passes(code: int) -> bool:
    """True if a server that answers with this HTTP status may answer otherwise soon.

    >>> passes(503), passes(429), passes(404)
    (True, True, False)
    """
    return code in _BUSY or code >= 500


class RedirectError(ValueError):
    """A redirect that is not followed."""


class Redirects(HTTPRedirectHandler):
    """Follows redirects to http and https alone, and from https to https alone.

    A login, which a request has as an unredirected header, goes along to the same scheme, host and port only.
    """

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        """Build the request for where a redirect leads. Raises RedirectError."""
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme == "http" and before.scheme == "https":
            raise RedirectError(f"https://{before.hostname} redirects to http, which is not encrypted")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        # Python's own password manager ignores the scheme.
        login = req.unredirected_hdrs.get("Authorization")
        if request is not None and login and _origin(before) == _origin(after):
            request.add_unredirected_header("Authorization", login)
        return request

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow a redirect. Raises RedirectError."""
        # Python's own handler follows a redirect to ftp as well.
        target = headers.get("location") or headers.get("uri") or ""
        scheme = urlsplit(target).scheme.lower()
        if scheme not in ("", "http", "https"):
            raise RedirectError(
                f"{urlsplit(req.full_url).hostname} redirects to {scheme}, not to http or https"
            )
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


Options = Mapping[str, str]
S = TypeVar("S")
T = TypeVar("T")

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
_WHOLE = ("s3", "gs")  # nothing is seen there of a file that is not yet closed
_BUFFER = 2**20  # bytes that are asked for at once
# What Arrow says where a store's answer is longer than what it was asked for, as where it is
# busy: it does not try again then.
_UNHEARD = "Failed to flush response stream"
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)  # seconds between tries
_AT_ONCE = 16  # requests
_HADOOP = "driftline reads HDFS through Hadoop's library: set JAVA_HOME, HADOOP_HOME, and CLASSPATH to `hadoop classpath --glob`"
# At a request, each after a longer pause: 15 seconds in all, on the average
_ATTEMPTS = 6
_CONNECT, _REQUEST = 5.0, 60.0  # seconds
_GOOGLE_RETRIES = 15.0  # seconds that Google's client tries

_configured: dict[str, dict[str, str]] = {}
_PROCESS = uuid4().hex


def configure(kind: str, options: Options) -> None:
    """Set the options of a kind of store (``s3``, ``gs``, ``abfss``, ``hdfs``), here and in tasks.

    Raises UsageError for an unknown kind or option.
    """
    if kind not in _OPTIONS:
        raise UsageError(f"[store.{kind}]: there is no such store", hint=f"there are {', '.join(_OPTIONS)}")
    for key in options:
        if key not in _OPTIONS[kind]:
            raise UsageError(f"[store.{kind}] has no {key!r}", hint=f"there are {', '.join(_OPTIONS[kind])}")
    _configured[kind] = dict(options)


def configured(uri: str) -> Options:
    """The options of a URI's store: those of `configure`, and the environment's address without its keys."""
    kind = _kind(uri)
    of_kind = _configured.get(kind, {})
    return _with_address(of_kind) if kind == "s3" else of_kind


def configured_kinds() -> dict[str, Options]:
    """The options of each kind of store, as `configure` set them."""
    return dict(_configured)


def all_configured() -> list[Options]:
    """The options of all stores, as `configure` set them."""
    return list(_configured.values())


class Uri(str):
    """The URI of a file in a store.

    Sent to a task, it carries the options of the store; sent back by a task, it is plain text, without
    secrets.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        kind = _kind(self)
        return _arrived, (str(self), kind, _configured.get(kind), _PROCESS)


class _UriInTask(Uri):
    """A URI as a task has it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def _arrived(uri: str, kind: str, options: dict[str, str] | None, process: str) -> Uri:
    if process == _PROCESS:
        return Uri(uri)
    if options is not None:
        _configured[kind] = options
    return _UriInTask(uri)


def is_stored(path: str) -> bool:
    """True if this is the URI of a store.

    >>> is_stored("s3a://bucket/in/a.json"), is_stored("in/a.json"), is_stored("https://example.com/a.json")
    (True, False, False)
    """
    scheme, slashes, _ = path.partition("://")
    return bool(slashes) and scheme.lower() in _KINDS


def is_s3(path: str) -> bool:
    """True if this is the URI of S3, or of a store with its interface."""
    return is_stored(path) and _kind(path) == "s3"


def is_google(path: str) -> bool:
    """True if this is the URI of Google Cloud Storage."""
    return is_stored(path) and _kind(path) == "gs"


def filesystem(uri: str, options: Options | None = None) -> tuple[FileSystem, str]:
    """The file system of a URI, and the path in it.

    ``options``: those of the store; None: those of `configure`, or else of the environment. Raises UsageError
    for a malformed URI, SetupError if the store cannot be reached from here.
    """
    kind = _kind(uri)
    location = uri.partition("://")[2]
    authority, _, path = location.partition("/")
    if not authority or (kind == "s3" and "@" in authority):
        raise UsageError(
            f"{redacted(uri)}: no bucket is named",
            hint="set the keys in the environment, or in driftline.toml: [store.s3]" if authority else None,
        )
    in_use = _configured.get(kind, {}) if options is None else options
    try:
        system = _connected(
            # Each account of Azure, and each cluster of HDFS, needs a client of its own; buckets share one.
            kind,
            authority if kind in ("abfss", "hdfs") else "",
            tuple(sorted(in_use.items())),
        )
    except (OSError, ValueError) as error:
        hint = _HADOOP if kind == "hdfs" else None
        raise SetupError(f"{uri}: {without_secrets(str(error), in_use)}", hint) from error
    match kind:
        case "hdfs":
            return system, f"/{path}"
        case "abfss":
            return system, f"{authority.partition('@')[0]}/{path}".rstrip("/")
        case _:
            return system, location.rstrip("/")


def native(path: str, options: Options | None = None) -> pa.NativeFile:
    """A file of this machine, or of a store by its URI, as Arrow reads it. ``options``: as `filesystem` takes
    them. Raises as `opened`.
    """
    import pyarrow as pa

    if not is_stored(path):
        return pa.OSFile(os.fsencode(path))  # a name's bytes need not be UTF-8
    system, key = filesystem(path, options)
    with explaining(path, options):
        # Where a file is not there, Hadoop's library prints Java's traceback besides telling so.
        if _kind(path) == "hdfs" and not system.get_file_info(key).is_file:
            raise FileNotFoundError(path)
        return system.open_input_file(key)


def created(uri: str, options: Options) -> pa.NativeFile:
    """A new file of a store, open for writing. ``options``: as `filesystem` takes them. Raises SetupError."""
    system, path = filesystem(uri, options)
    with explaining(uri, options):
        return system.open_output_stream(path)


@contextmanager
def opened(path: str) -> Iterator[tuple[Any, int]]:
    """Open a file on this machine, or in a store by its URI, for reading bytes; also returns its size.

    Errors of a store are one sentence: DataError if the file does not exist, otherwise SetupError.
    """
    if not is_stored(path):
        with open(path, "rb") as file:
            yield file, os.fstat(file.fileno()).st_size
        return
    with native(path) as source:
        raw = _Explained(source, path)
        # A small file is one request.
        small = raw.size <= _BUFFER
        yield io.BytesIO(raw.read(raw.size) or b"") if small else io.BufferedReader(raw, _BUFFER), raw.size


def buffered(uri: str) -> io.BufferedReader:
    """Open a file of a store for reading bytes at any position; its errors are those of `opened`."""
    return io.BufferedReader(_Explained(native(uri), uri))


def put(uri: str, data: bytes) -> None:
    """Write a file of a store, whole or not at all; an existing file is replaced. Raises SetupError."""
    system, path = filesystem(uri)
    with explaining(uri):
        if _kind(uri) in _WHOLE:
            with system.open_output_stream(path, compression=None) as file:
                file.write(data)
            return
        system.create_dir(path.rpartition("/")[0])
        with system.open_output_stream(f"{path}.new", compression=None) as file:
            file.write(data)
        # Only some accounts of Azure can move, and all can copy.
        if _kind(uri) == "abfss":
            system.copy_file(f"{path}.new", path)
            system.delete_file(f"{path}.new")
        else:
            system.move(f"{path}.new", path)


def version(path: str) -> tuple[int, int, str]:
    """The version of a file: its size, its time of change in nanoseconds since 1970, and, in a store, the
    mark of its content.

    Raises OSError if it does not exist; in a store, as `opened`.
    """
    if not is_stored(path):
        stat = Path(path).stat()
        return stat.st_size, stat.st_mtime_ns, ""
    system, key = filesystem(path)
    with explaining(path):
        if _kind(path) == "s3":
            with system.open_input_file(key) as file:
                metadata = file.metadata()
                # A server that shows a disk's folders may give no mark.
                return file.size(), 0, f"{metadata.get('ETag', '')} {metadata.get('Last-Modified', '')}"
        info = system.get_file_info(key)
    if info.size is None:
        raise FileNotFoundError(path)
    return info.size, info.mtime_ns or 0, ""


def mapped(work: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    """The results of work for each path, in order; in a store, several run at once."""
    return at_once(work, paths) if any(map(is_stored, paths)) else list(map(work, paths))


def at_once(work: Callable[[S], T], parts: Iterable[S]) -> list[T]:
    """The results of work, which asks a store, for each part, in order."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(work, parts))


@contextmanager
def explaining(path: str, options: Options | None = None) -> Iterator[None]:
    """Turn a store's answers to requests about ``path`` into driftline's errors.

    ``options``: those of the store.
    """
    try:
        yield
    except OSError as error:
        in_use = _configured.get(_kind(path), {}) if options is None else options
        raise explained(path, error, in_use) from error


def answer(path: str, error: BaseException) -> DriftlineError | None:
    """The store's error for a request about ``path``; None for another error, or no store."""
    return answer_in(path, error) if is_stored(path) else None


class _Explained(io.RawIOBase):
    """A file of a store whose errors are driftline's.

    It seeks only when it reads: Google's store refuses a seek to the end, or a read behind it.
    """

    def __init__(self, file: pa.NativeFile, uri: str) -> None:
        self._file, self._uri, self._place = file, uri, 0
        self.size = int(file.size())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def readable(self) -> bool:
        """True: the file is open for reading."""
        return True

    def seekable(self) -> bool:
        """True: the next read begins at the place sought."""
        return True

    def tell(self) -> int:
        """The place at which the next read begins."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Note the place at which the next read begins; the store is not asked."""
        self._place = offset + (0, self._place, self.size)[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; returns the number of bytes, 0 at the end. Raises driftline's errors."""
        if self._place >= self.size:
            return 0
        with explaining(self._uri):
            if self._file.tell() != self._place:
                self._file.seek(self._place)
            count = self._asked(buffer)
        self._place += count
        return count

    def _asked(self, buffer: Any) -> int:
        for pause in _PAUSES:
            _blank(buffer)
            try:
                return int(self._file.readinto(buffer))
            except OSError as error:
                if _UNHEARD not in str(error):
                    raise
            time.sleep(pause)
        _blank(buffer)
        return int(self._file.readinto(buffer))


def _blank(buffer: Any) -> None:
    """Empty a buffer: a store's refusal is read from it too, with everything after it."""
    view = memoryview(buffer).cast("B")
    view[:] = bytes(len(view))


def _kind(uri: str) -> str:
    kind = _KINDS.get(uri.partition("://")[0].lower())
    if kind is None:
        raise UsageError(f"{redacted(uri)}: unknown kind of store", hint=f"there are {', '.join(_KINDS)}")
    return kind


@lru_cache(maxsize=32)
def _connected(kind: str, authority: str, pairs: tuple[tuple[str, str], ...]) -> FileSystem:
    """Connect to a store with these options; each call gives the same. Raises OSError, ValueError."""
    options = dict(pairs)
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


def _with_address(options: Mapping[str, str]) -> dict[str, str]:
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
        retry_time_limit=timedelta(seconds=_GOOGLE_RETRIES),
    )


def _azure(authority: str, options: dict[str, str]) -> FileSystem:
    from pyarrow.fs import AzureFileSystem

    scheme, host = _split(options.get("endpoint"))
    account = authority.partition("@")[2].partition(".")[0]
    secrets = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    authorities = {"blob_storage_authority": host, "dfs_storage_authority": host} if host else {}
    schemes = {"blob_storage_scheme": scheme, "dfs_storage_scheme": scheme} if host else {}
    return AzureFileSystem(
        account, **{key: options[key] for key in secrets if key in options}, **authorities, **schemes
    )


def _split(endpoint: str | None) -> tuple[str | None, str | None]:
    """An endpoint's scheme and host; https if it names none."""
    if not endpoint:
        return None, None
    scheme, slashes, host = endpoint.rstrip("/").rpartition("://")
    return (scheme if slashes else "https"), host
