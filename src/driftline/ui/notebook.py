"""The pages of a lake that this process has open, served by a thread of it: `Lake.ui` and `Table.ui`."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from html import escape
from threading import Lock, Thread
from typing import Self

from driftline.report.lines import clean
from driftline.ui import LOCAL, lake_server
from driftline.ui.served import LakeOfPages


class ServerThread:
    """A server of a lake's pages in a thread, until it is closed, or the process ends.

    ``options``: those by which a command finds the lake.
    """

    def __init__(self, lake: LakeOfPages, options: Sequence[str], *, allow_writes: bool) -> None:
        self.server = lake_server()(lake, LOCAL, 0, (lambda _: {}) if allow_writes else None, options)
        self._thread = Thread(target=self.server.serve, name="driftline-ui", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a write under way ends before Python does

    @property
    def is_open(self) -> bool:
        """True until the server has ended."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the server; a write that is under way ends first."""
        self.server.stop()
        self._thread.join()
        atexit.unregister(self.close)


class NotebookPage:
    """A page of a lake, served by this process to browsers of its machine until `close`, also by ``with``.

    Attributes:
        url: The address that opens it, with the token; who has it sees the lake.
    """

    def __init__(self, thread: ServerThread, table: str | None = None) -> None:
        server = thread.server
        self.url: str = server.url if table is None else server.url_of(table)
        self._thread = thread
        self._shown = server.title if table is None else f"{table} in {server.title}"
        self._does = "reads and writes" if server.guard.writes else "reads"

    def close(self) -> None:
        """End the server, and with it the other pages of the lake that it serves; a write that is under way
        ends first.
        """
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = self.url if self._thread.is_open else "closed"
        return f"{place}\n{self._does} {clean(self._shown)}"

    def _repr_html_(self) -> str:
        """A link: no site, a notebook's neither, can show the pages in a frame."""
        shown = escape(clean(self._shown))
        if not self._thread.is_open:
            return f"<p>{shown}: closed</p>"
        link = f'<a href="{escape(self.url)}" target="_blank" rel="noopener noreferrer">{shown}</a>'
        return f"<p>{link} <small>{self._does}, until it is closed</small></p>"


class NotebookServers:
    """The servers of one lake: one that only reads, one that writes, each from its first page to its end.

    A cell that runs again finds the server that it started, and the address stays.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: dict[bool, ServerThread] = {}

    def page(
        self,
        lake: Callable[[], LakeOfPages],
        options: Sequence[str],
        table: str | None,
        *,
        allow_writes: bool,
    ) -> NotebookPage:
        """Serve a page. ``lake``: opens the lake for a new server. Raises UsageError if there is no such
        table, SetupError where what serves the pages is not installed.
        """
        with self._lock:
            running = self._threads.get(allow_writes)
            if running is not None and running.is_open:
                return NotebookPage(running, table)
            started = ServerThread(lake(), options, allow_writes=allow_writes)
            try:
                page = NotebookPage(started, table)
            except Exception:
                started.close()
                raise
            self._threads[allow_writes] = started
            return page

    def close(self) -> None:
        """End the servers."""
        with self._lock:
            for thread in self._threads.values():
                thread.close()
            self._threads.clear()
