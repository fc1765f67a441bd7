"""HTTP servers of this process, on a free port of this machine."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


def started(handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """A server that answers by this handler, in threads that end with the process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def stopped(server: ThreadingHTTPServer) -> None:
    """Ends the server, and frees its port."""
    server.shutdown()
    server.server_close()
