"""Finds the files that are new for a capture: by listings and, in between, by a store's notifications."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from driftline.capture.channels import AT_ONCE, Channel, channel, created
from driftline.capture.listing import ListedFile, entry_of, listed, listed_behind, may_be
from driftline.errors import DataError, SetupError
from driftline.runtime.aws import client
from driftline.runtime.disk import Bounds, delete_file, replace_file
from driftline.runtime.stores import configured, mapped

_LOG = logging.getLogger("driftline")
_LISTED = "_listed"  # when all were listed last; Spark passes over names with _
_LIST_EVERY = 900.0  # seconds, by default


@dataclass(slots=True)
class Finder:
    """Finds the files of a folder or glob.

    ``folder``: where the time of the last full listing is kept; ``lake``: a folder that is passed over. A
    full listing runs each ``list_every`` seconds. In between, files are new if messages of the ``channel``
    name them; without a channel, if they sort behind all files taken so far.
    """

    source: str
    folder: Path
    channel: Channel | None = None
    list_every: float = 0.0
    lake: str | None = None
    # Messages by their ids: receipt, and files; those of this look, and those whose files are in the log.
    _received: dict[str, tuple[str, set[str]]] = field(default_factory=dict)
    _logged: dict[str, tuple[str, set[str]]] = field(default_factory=dict)
    _listing: float | None = None  # when this look listed all

    def entries(self, taken: Mapping[str, ListedFile], fmt: str | None) -> list[ListedFile]:
        """List files, all new ones among them. ``fmt``: as of `listed`. Raises SetupError."""
        self._listing, self._received, candidates = None, {}, set[str]()
        named = partial(_named, self.source.partition("://")[0], may_be(self.source, fmt))
        for text, number, receipt in () if self.channel is None else self.channel.receive():
            new = named(text)
            # A listing shows if a file that was taken was written again with its old size.
            candidates |= {
                path for path, size in new.items() if path not in taken or taken[path].size != size
            }
            if receipt:
                self._received[number] = receipt, set(new)
        entries = None if self._is_due() else self._between(candidates, taken, fmt)
        if entries is None:
            self._listing = time.time()
            entries = list(listed(self.source, fmt, self.lake))
        return entries

    def _between(
        self, candidates: set[str], taken: Mapping[str, ListedFile], fmt: str | None
    ) -> list[ListedFile] | None:
        """Find new files without a full listing: files that messages name, or that sort behind all others.

        Returns None if only a full listing can find them, or explain what is wrong.
        """
        if len(candidates) >= AT_ONCE or not (self.channel or taken):
            return None
        with suppress(SetupError, ValueError):  # a name may be one that no file can have
            if self.channel is None:
                return list(listed_behind(self.source, fmt, max(taken)))
            return [entry for entry in mapped(_now, sorted(candidates)) if entry is not None]
        return None

    def logged(self) -> None:
        """Note that all files found so far are in the log. Raises SetupError."""
        self._logged |= self._received
        if self._listing is None or not self.list_every:
            return
        # Lost in a power cut, it costs a listing.
        replace_file(self.folder / _LISTED, str(self._listing).encode(), durable=False)

    def list_all(self) -> None:
        """Have the next look list all files."""
        delete_file(self.folder / _LISTED, Bounds((str(self.folder),)))

    def let_go(self, pending: AbstractSet[str]) -> None:
        """Delete messages whose files are all in the table. Raises SetupError.

        ``pending``: files that are in the log, but not in the table yet.
        """
        if self.channel is None:
            return
        finished = [number for number, (_, files) in self._logged.items() if files.isdisjoint(pending)]
        self.channel.delete([self._logged[number][0] for number in finished])
        for number in finished:
            del self._logged[number]

    def _is_due(self) -> bool:
        last = 0.0
        with suppress(FileNotFoundError, ValueError):
            last = float((self.folder / _LISTED).read_text())
        return not 0 <= time.time() - last < self.list_every


def finder(
    source: str, folder: Path, notify: str | None, list_every: float | None, lake: str | None = None
) -> Finder:
    """Make the finder that ``notify`` and ``list_every`` of `Table.capture` ask for.

    Args:
        source: the folder or glob; with ``notify`` or ``list_every``, in S3.
        folder: where the finder keeps the time of its last full listing.
        notify: the queue or file of messages about new objects; None: there is none.
        list_every: seconds between full listings; None: a default with ``notify``, else list each time.
        lake: a folder below ``source`` to pass over.

    Raises UsageError, SetupError.
    """
    if notify is None:
        if list_every is not None:
            client("s3", configured(source))  # or says how to get one
        return Finder(source, folder, None, list_every or 0.0, lake)
    every = _LIST_EVERY if list_every is None else list_every
    return Finder(source, folder, channel(notify, configured(source)), every)


def _named(scheme: str, fits: Callable[[str], bool], text: str) -> dict[str, int | None]:
    """The files that a message names as new, and their sizes."""
    try:
        new = created(text)
    except ValueError:
        _LOG.warning("notify: passed over a message that is none of S3's about objects")
        return {}
    files = {f"{scheme}://{bucket}/{key}": size for bucket, key, size in new}
    return {path: size for path, size in files.items() if fits(path)}


def _now(path: str) -> ListedFile | None:
    try:
        return entry_of(path)
    except DataError:  # it was deleted meanwhile
        return None
