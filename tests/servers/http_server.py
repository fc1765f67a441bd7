"""HTTP servers of this process, on a free port of this machine."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class _SecureServer(ThreadingHTTPServer):
    """A server that speaks HTTPS, by the context ``tls``."""

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext
    ) -> None:
        self.tls = tls
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        secure = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return secure, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            request.do_handshake()
        except ssl.SSLError:
            # While something of the client's is unread, closing resets the connection, and the alert may be lost.
            socket.socket.shutdown(request, socket.SHUT_WR)
            while socket.socket.recv(request, 4096):
                pass
            return
        super().finish_request(request, client_address)


def started(
    handler: type[BaseHTTPRequestHandler], port: int = 0, tls: ssl.SSLContext | None = None
) -> ThreadingHTTPServer:
    """A server that answers by this handler, in threads that end with the process. ``port`` 0: a free one."""
    address = ("127.0.0.1", port)
    server = ThreadingHTTPServer(address, handler) if tls is None else _SecureServer(address, handler, tls)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def stopped(server: ThreadingHTTPServer) -> None:
    """Ends the server, and frees its port."""
    server.shutdown()
    server.server_close()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """A server for the length of a block, whose end waits for the last answer."""
    server = started(handler)
    server.daemon_threads = False
    try:
        yield server
    finally:
        stopped(server)
