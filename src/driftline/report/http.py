"""Small HTTP servers, which probes and Prometheus ask."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from driftline.errors import SetupError, UsageError

HERE = "127.0.0.1"
_PATIENCE = 10.0  # seconds for a request to arrive


def serve(handler: type[BaseHTTPRequestHandler], address: str, option: str) -> int:
    """Answer by the handler from now on; returns the port.

    The address is ``PORT``, on this machine alone, or ``HOST:PORT``; port 0 lets the system choose. Raises
    UsageError if ``option`` has no address, SetupError if it cannot be served.
    """
    host, port = parsed(address, option)

    class Patient(handler):  # type: ignore[misc, valid-type]
        timeout = _PATIENCE  # a client that sends nothing holds a thread no longer

    try:
        server = ThreadingHTTPServer((host, port), Patient)
    except OSError as error:
        raise SetupError(f"{option} {address}: {error.strerror}", "use another address") from error
    threading.Thread(target=server.serve_forever, name=option, daemon=True).start()
    return int(server.server_address[1])


def parsed(address: str, option: str) -> tuple[str, int]:
    """Host and port of an address.

    >>> parsed("8080", "--health-port"), parsed("0.0.0.0:8080", "--health-port")
    (('127.0.0.1', 8080), ('0.0.0.0', 8080))
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {address}: not a port", "use 8080, or 0.0.0.0:8080 for all networks")
    return host or HERE, int(port)
