"""Files that are fetched from a URL, once, onto this machine."""

from __future__ import annotations

import http.client
import random
import re
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from driftline.errors import DriftlineError, SetupError, UsageError
from driftline.runtime.stores import RedirectError, Redirects, passes

_ATTEMPTS = 5
_PAUSE, _LONGEST = 1.0, 30.0  # seconds before the second try; twice as long before each further one, up to
_TIMEOUT = 60.0  # seconds without an answer
_CHUNK = 2**20  # bytes that are held at once
_OPENER = urllib.request.build_opener(Redirects)


def is_url(source: str) -> bool:
    """True for the URL of a file.

    >>> is_url("https://example.com/a.json"), is_url("s3://bucket/a.json")
    (True, False)
    """
    return bool(re.match(r"https?://", source, re.IGNORECASE))


def shown(url: str) -> str:
    """The URL as reports name it, without parts that may be secret.

    >>> shown("https://me:pw@example.com/a.json.gz?token=x#y")
    'https://example.com/a.json.gz'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def fetch(url: str, path: Path) -> None:
    """Write the file of a URL; passing errors are waited for.

    Raises UsageError if there is no such file or no access, SetupError if the server fails, or there is no
    room.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _fetch(url, path)
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            pause = _pause_after(error, attempt)
            if pause is None or attempt == _ATTEMPTS:
                raise _explained(url, path, error) from error
            time.sleep(pause)


class _CutOffError(OSError):
    """Less came than was announced."""


class _NoRoomError(OSError):
    """The file that is fetched cannot be written."""


def _fetch(url: str, path: Path) -> None:
    with _OPENER.open(_request(url), timeout=_TIMEOUT) as answer, path.open("wb") as file:
        size = 0
        while data := answer.read(_CHUNK):
            try:
                file.write(data)
            except OSError as error:
                raise _NoRoomError(*error.args) from error
            size += len(data)
        announced = answer.headers.get("Content-Length")
        if announced is not None and size < int(announced):
            raise _CutOffError(f"{size} bytes came, of {announced}")


def _request(url: str) -> urllib.request.Request:
    """The request for a URL, whose login becomes a header that `Redirects` looks after."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    headers = {"Accept-Encoding": "identity", "User-Agent": "driftline"}
    plain = urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(plain, headers=headers)  # noqa: S310  `is_url` saw to it
    if at:
        user, _, password = login.partition(":")
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        request.add_unredirected_header("Authorization", f"Basic {b64encode(pair).decode()}")
    return request


def _pause_after(error: Exception, attempt: int) -> float | None:
    """The seconds until the next attempt; None if one would be in vain."""
    if isinstance(error, _NoRoomError):
        return None
    pause = min(_LONGEST, _PAUSE * 2 ** (attempt - 1)) * random.uniform(0.5, 1)  # noqa: S311  no secret
    if not isinstance(error, urllib.error.HTTPError):
        return None if isinstance(error, ValueError) else pause
    if not passes(error.code):
        return None
    header = error.headers.get("Retry-After", "")
    return min(_LONGEST, float(header)) if header.isdecimal() else pause


def _explained(url: str, path: Path, error: Exception) -> DriftlineError:
    name = shown(url)
    match error:
        case _NoRoomError():
            hint = "it needs disk space there; set TMPDIR to use another folder"
            return SetupError(f"{name}: cannot be copied to {path}: {error.strerror}", hint)
        case RedirectError():
            return UsageError(f"{name}: {error}", "name the address of the file itself")
        case urllib.error.HTTPError() if error.code in (401, 403):
            return UsageError(
                f"{name}: the server denies access (HTTP {error.code})",
                "check that the link, or its login, is still valid",
            )
        case urllib.error.HTTPError() if error.code in (404, 410):
            return UsageError(f"{name}: there is no such file (HTTP {error.code})")
        case urllib.error.HTTPError():
            return SetupError(f"{name}: the server says HTTP {error.code}", "try again later")
        case urllib.error.URLError():
            return SetupError(f"{name}: cannot be fetched: {error.reason}", "check the network connection")
        case _:
            words = str(error) or type(error).__name__
            return SetupError(f"{name}: cannot be fetched: {words.replace(url, name)}", "try again later")
