"""Answers of stores and servers: errors as one sentence, and what to do; which may change soon; where a
redirect may lead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request

from driftline.errors import DataError, DriftlineError, SetupError

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
        login = req.unredirected_hdrs.get("Authorization")
        if request is not None and login and _origin(before) == _origin(after):
            request.add_unredirected_header("Authorization", login)
        return request

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow a redirect. Raises RedirectError."""
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
