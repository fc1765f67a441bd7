"""A proxy in front of any server whose clients ask and wait for an answer: it cuts the connection at the n-th request."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import closing, suppress
from enum import Enum

from servers.process import Server

_CHUNK = 1 << 16


class Where(Enum):
    """Before the server has the request; after it has answered; in the midst of its answer."""

    BEFORE = "before the request"
    AFTER = "before the answer"
    MIDST = "in the midst of the answer"


class Cut(Server):
    """Hands on what clients and the server at ``host``, ``port`` say. What a client says before it hears of the server
    again is a request: they are counted over all connections, from `arm` on.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._upstream = (host, port)
        self._listening: socket.socket | None = None
        self._lock = threading.Lock()
        self._at, self._where = 0, Where.BEFORE
        self.requests = 0

    @property
    def port(self) -> int:
        assert self._listening is not None
        return int(self._listening.getsockname()[1])

    def arm(self, at: int, where: Where) -> None:
        """Cuts the request with this number among those that come from now on; 0: none."""
        with self._lock:
            self.requests, self._at, self._where = 0, at, where

    def start(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def stop(self) -> None:
        if self._listening is not None:
            with suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError), socket.create_connection(self._upstream) as server:
            asking = struck = False
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    if not (data := ready.recv(_CHUNK)):
                        return
                    if ready is client:
                        struck, asking = struck or (not asking and self._strikes()), True
                        if struck and self._where is Where.BEFORE:
                            return
                        server.sendall(data)
                        continue
                    if struck:
                        client.sendall(data[: len(data) // 2] if self._where is Where.MIDST else b"")
                        return
                    client.sendall(data)
                    asking = False

    def _strikes(self) -> bool:
        with self._lock:
            self.requests += 1
            return self.requests == self._at
