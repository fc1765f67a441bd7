"""The server of the pages, on an address of this machine."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress

import uvicorn

from driftline.errors import SetupError
from driftline.report.lines import clean
from driftline.ui.guard import Address, Guard
from driftline.ui.lake import ServedLake
from driftline.ui.pages import LakePages, link
from driftline.ui.served import LakeOfPages
from driftline.ui.writes import Settings, Writes

PORT = 8642  # if it is free, and no other is asked for


class _Quiet(uvicorn.Server):
    """A server that leaves signals to its command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield

    def stop(self) -> None:
        """End once the requests under way are answered."""
        self.should_exit = True


class LakeServer:
    """The pages of a lake, bound to an address. Raises SetupError if that cannot be had.

    ``settings``: those of its tables, with which replays ingest; None: the pages only read.
    ``options``: those by which a command finds the lake.
    """

    def __init__(
        self,
        lake: LakeOfPages,
        host: str,
        port: int | None,
        settings: Settings | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._socket = _bound(host, port)
        self._lake = ServedLake(lake)
        self._writes = None if settings is None else Writes(self._lake, settings, options)
        self.title = self._lake.title
        pages = LakePages(self._lake, self._writes, options).application()
        address = Address(host, self._socket.getsockname()[1])
        self.guard = Guard(pages, address, writes=self._writes is not None)
        config = uvicorn.Config(
            self.guard, http="h11", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            proxy_headers=False,
        )  # fmt: skip
        self._server = _Quiet(config)
        self.stop: Callable[[], None] = self._server.stop

    @property
    def url(self) -> str:
        """The address that opens the pages."""
        return self.guard.entry(self.guard.token)

    def url_of(self, table: str) -> str:
        """The address that opens the page of a table. Raises UsageError if there is none."""
        return self.guard.entry(self.guard.token, link("table", name=clean(self._lake.spelled(table))))

    def show(self) -> None:
        """Open the pages in the browser of this machine, if there is one."""
        with suppress(webbrowser.Error):
            webbrowser.open(self.guard.entry(self.guard.once))

    def serve(self) -> None:
        """Answer requests until `stop`; a write that is under way then ends first."""
        with self._socket, closing(self._lake), closing(self._writes) if self._writes else nullcontext():
            self._server.run(sockets=[self._socket])


def _bound(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, wanted), family=family)
        except OSError as error:
            failure = error
    hint = "choose another address" if port is None else "another program may have it: choose another port"
    raise SetupError(f"{host}:{port or PORT}: cannot be listened on: {failure.strerror}", hint) from failure
