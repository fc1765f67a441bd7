"""The border of the pages: who may ask for one, and what a browser may do with it.

Any page that a person visits can make their browser send requests to this machine, and any user of the
machine can send some. So each request needs the token, which stands in the printed address and then in a
cookie; it has to name this server in its header Host, so that no other name leads here; and it must not come
from a page of another origin.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from driftline.ui import LOCAL

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"  # noqa: S105  the parameter's name
READS = ("GET", "HEAD")
WRITES = ("POST",)
# A page may load the style sheet and send its forms here, and nothing else: no script at all.
_POLICY = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without any, browsers send forms with the origin "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_ENTRY = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={0}">
<title>driftline</title><p><a href="{0}">To the page</a></p></html>"""
_REFUSAL = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Refused · driftline</title>
<h1>Refused</h1><p>{}</p></html>"""


@dataclass(frozen=True, slots=True)
class Address:
    """The address that the pages are served at. ``host``: what the server listens on."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """True if only this machine reaches it."""
        return self.host == "localhost" or (
            _is_number(self.host) and ipaddress.ip_address(self.host).is_loopback
        )

    @property
    def url(self) -> str:
        """The address as a person opens it on this machine."""
        host = LOCAL if self.is_any else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def is_any(self) -> bool:
        """True for all addresses of the machine."""
        return _is_number(self.host) and ipaddress.ip_address(self.host).is_unspecified

    def names(self, written: str) -> bool:
        """True if the header Host of a request names this server.

        >>> home = Address("127.0.0.1", 8642)
        >>> home.names("localhost:8642"), home.names("127.0.0.1:8642"), home.names("evil.example:8642")
        (True, True, False)
        >>> home.names("127.0.0.1:80"), home.names("")
        (False, False)
        """
        host, _, port = written.rpartition(":")
        host = host.removeprefix("[").removesuffix("]").casefold()
        if port != str(self.port):
            return False
        if self.is_any:  # a number is no name that another could have lead here
            return host in ("localhost", socket.gethostname().casefold()) or _is_number(host)
        return host == self.host.casefold() or (self.is_local and host in ("localhost", LOCAL, "::1"))


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(slots=True)
class Guard:
    """An application behind the border.

    Attributes:
        writes: True if requests may write, which then come from pages of ours alone.
        token: opens the pages to whoever has it.
        once: the same, for its first use alone: other users of the machine see the arguments of a browser
            that is started.
    """

    app: ASGIApp
    address: Address
    writes: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    once: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """The cookie's name; browsers keep one jar for all ports of a machine."""
        return f"driftline-{self.address.port}"

    def entry(self, token: str, place: str = "/") -> str:
        """The address of a page with a token."""
        return f"{self.address.url}{place[1:]}{'&' if '?' in place else '?'}{TOKEN}={token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        request = Request(scope)
        response = self._refusal(request)

        async def with_headers(message: Message) -> None:
            """Send the beginning of an answer with our headers; a page that has a policy keeps it."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (response or self.app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The refusal of a request; None if it may pass."""
        headers, reads = request.headers, request.method in READS
        if not self.address.names(headers.get("host", "")):
            return _refused(421, "This server has another name. Open the address that driftline printed.")
        if not reads and not (self.writes and request.method in WRITES):
            allowed = READS + WRITES * self.writes
            return _refused(405, f"This server takes {' and '.join(allowed)}.", {"allow": ", ".join(allowed)})
        # A browser says which page has sent a form; a request without a word of it is of something else.
        if headers.get("origin", self._origin(request) if reads else "") != self._origin(request):
            return _refused(403, "Another site has sent this request.")
        if reads and self._enters(request.query_params.get(TOKEN, "")):
            # A page of ours, from which the next request comes, has the cookie sent; a redirect would not.
            response = HTMLResponse(_ENTRY.format(escape(_without_token(request))))
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
            return response
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none" if reads else ""):
            return _refused(403, "Another site has sent this request.")
        if not _same(request.cookies.get(self.cookie, ""), self.token):
            return _refused(401, "Open the address that driftline printed, with its token.")
        return None

    @staticmethod
    def _origin(request: Request) -> str:
        return f"http://{request.headers.get('host', '')}"

    def _enters(self, token: str) -> bool:
        if _same(token, self.token):
            return True
        if _same(token, self.once):
            self.once = ""
            return True
        return False


def _without_token(request: Request) -> str:
    """The page that a request asks for, on this server whatever its path begins with."""
    place = f"/{quote(request.scope['path'].lstrip('/'))}"
    parameters = [(name, text) for name, text in request.query_params.multi_items() if name != TOKEN]
    return f"{place}?{urlencode(parameters)}" if parameters else place


def _same(sent: str, token: str) -> bool:
    return bool(token) and secrets.compare_digest(sent.encode(), token.encode())


def _refused(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return HTMLResponse(_REFUSAL.format(escape(text)), status, headers)
