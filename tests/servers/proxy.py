"""A proxy in front of a server that answers some requests itself, or changes them or their answers: faults and favours for tests."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from servers.http_server import started, stopped
from servers.process import Server

_OF_A_HOP = ("connection", "expect", "keep-alive", "transfer-encoding", "content-length")


@dataclass(frozen=True)
class Request:
    method: str
    path: str


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""


class Proxy(Server):
    """Hands requests on to the ``upstream``. ``instead``: what is answered without asking it, None: nothing;
    ``sent``: what becomes of a request's body; ``changed``: what becomes of its answer. All may be set while it runs.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.requests: list[Request] = []
        self.instead: Callable[[Request], Answer | None] = lambda _: None
        self.sent: Callable[[Request, bytes], bytes] = lambda _, body: body
        self.changed: Callable[[Request, Answer], Answer] = lambda _, answer: answer
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                proxy._handle(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815  their names

            def log_message(self, *_: object) -> None:
                pass

        self._server = started(Handler)

    def stop(self) -> None:
        if self._server is not None:
            stopped(self._server)
            self._server = None

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        request = Request(handler.command, handler.path)
        body = self.sent(request, _body(handler))
        self.requests.append(request)
        answer, headers = self.instead(request), [("Content-Type", "application/xml")]
        if answer is None:
            upstream = http.client.HTTPConnection(self.upstream.netloc, timeout=60)
            # The host is signed, and goes on as it came.
            passed = {key: value for key, value in handler.headers.items() if key.lower() not in _OF_A_HOP}
            upstream.request(handler.command, handler.path, body or None, passed)
            response = upstream.getresponse()
            answer = self.changed(request, Answer(response.status, response.read()))
            headers = [(key, value) for key, value in response.getheaders() if key.lower() not in _OF_A_HOP]
            length = response.getheader("Content-Length") if request.method == "HEAD" else None
            upstream.close()
        else:
            length = None
        handler.send_response(answer.status)
        for key, value in headers:
            handler.send_header(key, value)
        handler.send_header("Content-Length", length or str(len(answer.body)))
        handler.end_headers()
        if request.method != "HEAD":
            handler.wfile.write(answer.body)


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(handler.rfile.readline().partition(b";")[0], 16):
        chunks.append(handler.rfile.read(size))
        handler.rfile.readline()
    while handler.rfile.readline().strip():
        pass
    return b"".join(chunks)
