"""HTTP servers of this process, on a free port of this machine."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


def started(
    handler: type[BaseHTTPRequestHandler], port: int = 0, tls: ssl.SSLContext | None = None
) -> ThreadingHTTPServer:
    """A server that answers by this handler, in threads that end with the process. ``port`` 0: a free one."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
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
