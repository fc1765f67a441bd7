"""Finds new files for a capture, by listing folders or by a store's notifications."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_plus, urlsplit

from driftline.capture.portions import Portion
from driftline.config import redacted
from driftline.errors import DataError, SetupError, UsageError
from driftline.files.endings import format_by_name, is_archive
from driftline.runtime.aws import client, explaining
from driftline.runtime.disk import Bounds, delete_file, replace_file
from driftline.runtime.stores import configured, is_stored, mapped
from driftline.sources.listing import behind, below, glob_base, listing, matching, may_hold, outside

_AWAY = "check the path; a capture that has begun continues with new files when its folder is back"


class ListedFile(NamedTuple):
    """A file as it was listed.

    Attributes:
        size: bytes.
        modified: nanoseconds since 1970.
        real: its own path, if ``path`` leads to it by a link.
        portion: the bytes of it that a list takes, if they were measured.
    """

    path: str
    size: int
    modified: int
    real: str = ""
    portion: Portion | None = None

    @property
    def begin(self) -> int:
        """The first byte that is taken."""
        return self.portion.start if self.portion is not None else 0

    @property
    def key(self) -> str:
        """The file's canonical path, whatever name it was found by."""
        return self.real or self.path

    @property
    def place(self) -> str:
        """The path by which it can be read: its own, if a link led to it and leads elsewhere by now."""
        moved = self.real and os.path.realpath(self.path) != self.real
        return self.real if moved else self.path

    @property
    def version(self) -> tuple[int, int]:
        """The size and the time, of which one changes with the file."""
        return self.size, self.modified

    def fingerprint(self, capture: str) -> int:
        """A number of 64 bits by which a table remembers a version of a file that a capture has brought."""
        # The capture is part of it: two captures may read one folder into one table.
        return _hashed(f"{capture}\0{self.key}\0{self.size}\0{self.modified}")

    def part_fingerprint(self, capture: str) -> int:
        """A number by which a table remembers that a capture has brought a part of a file, of any version."""
        return _hashed(f"part\0{capture}\0{self.key}")


def _hashed(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def listed(source: str, fmt: str | None, lake: str | None = None) -> Iterator[ListedFile]:
    """The files of a folder or glob, outside the ``lake``. Raises SetupError if it is away.

    ``fmt`` None: of a folder, only files whose ending shows a format.
    """
    if is_stored(source):
        yield from _stored(source, fmt)
        return
    try:
        if Path(source).is_dir():
            yield from _below(str(Path(source).absolute()), fmt, lake)
            return
        paths = outside(matching(source), glob_base(source), lake)
    except OSError as error:
        raise SetupError(f"{error.filename or source}: cannot be read: {error.strerror}", _AWAY) from error
    if not paths:
        must_be_there(source)
    yield from (entry_of(str(path.absolute())) for path in paths)


def must_be_there(source: str) -> None:
    """Raise SetupError for a path on this machine at which there is nothing, unless it is a glob."""
    if not (has_magic(source) or Path(source).exists()):
        raise SetupError(f"{source}: no such folder", _AWAY)


def listed_behind(source: str, fmt: str | None, path: str) -> Iterator[ListedFile]:
    """The files of `listed` that sort behind a path, of a folder or glob in S3. Raises SetupError."""
    fits = may_be(source, fmt)
    for file in behind(source, path):
        if fits(file.path):
            yield ListedFile(str(file.path), file.size, file.modified)


def may_be(source: str, fmt: str | None) -> Callable[[str], bool]:
    """Return a test for paths in a store: true if `listed` could give the path, judged by its name alone."""
    holds, any_name = may_hold(source), bool(fmt) or has_magic(source)
    return lambda path: holds(path) and (any_name or path == source or _known(path))


def entry_of(path: str) -> ListedFile:
    """A file as it is now. Raises DataError if it is gone."""
    try:
        if not is_stored(path):
            stat, real = Path(path).stat(), os.path.realpath(path)
            return ListedFile(path, stat.st_size, stat.st_mtime_ns, "" if real == path else real)
        for file in listing(path).files:
            if file.path == path:
                return ListedFile(str(file.path), file.size, file.modified)
        raise FileNotFoundError(path)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} was deleted before it was ingested",
            hint="put it back and restart the capture; to give it up, put an empty file in its place",
        ) from error


def _stored(source: str, fmt: str | None) -> Iterator[ListedFile]:
    files, is_folder = listing(source)
    for file in files:
        if fmt or not is_folder or _known(file.path):
            yield ListedFile(str(file.path), file.size, file.modified)


def _below(folder: str, fmt: str | None, lake: str | None) -> Iterator[ListedFile]:
    folders: dict[str, str] = {}  # to find each one's own path once
    for entry in below(folder, lake):
        if fmt or _known(entry.name):
            stat, parent = entry.stat(), entry.path.rpartition("/")[0]
            if parent not in folders:
                folders[parent] = os.path.realpath(parent)
            # `realpath` asks for each folder of a path, so it is called once a folder, and for links.
            real = os.path.realpath(entry.path) if entry.is_symlink() else f"{folders[parent]}/{entry.name}"
            yield ListedFile(entry.path, stat.st_size, stat.st_mtime_ns, "" if real == entry.path else real)


def _known(name: str) -> bool:
    return is_archive(name) or format_by_name(name) is not None


_CREATED = "ObjectCreated:"
_WRAPPINGS = 4  # a queue's message around a topic's around an event, and one to spare


class Created(NamedTuple):
    """An object that was created.

    Attributes:
        size: bytes, if the message has them.
    """

    bucket: str
    key: str
    size: int | None


def created(text: str) -> list[Created]:
    """The objects that a message names as new; none for a message about something else.

    Raises ValueError for a text that is no such message.

    >>> created('{"Records": [{"eventName": "ObjectCreated:Put", "s3": '
    ...         '{"bucket": {"name": "b"}, "object": {"key": "a+b%2B.json", "size": 1}}}]}')
    [Created(bucket='b', key='a b+.json', size=1)]
    """
    # SNS and EventBridge wrap the store's message in one of their own, as text.
    for _ in range(_WRAPPINGS):
        match _parsed(text):
            case {"Records": [*records]}:
                return [new for record in records for new in _of_record(record)]
            case {"source": "aws.s3", "detail-type": str(event), "detail": detail}:
                return list(_of_detail(detail)) if event == "Object Created" else []
            case {"Message": str(text)} | {"Body": str(text)}:
                continue
            case {"Event": "s3:TestEvent"}:  # sent once, as notifications are switched on
                return []
        break
    raise ValueError("this is not a store's message")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _of_record(record: Any) -> Iterator[Created]:
    match record:
        case {"eventName": str(event), "s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}}}:
            if event.removeprefix("s3:").startswith(_CREATED):
                yield Created(bucket, unquote_plus(key), _size(record["s3"]["object"]))


def _of_detail(detail: Any) -> Iterator[Created]:
    match detail:
        case {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}}:
            yield Created(bucket, key, _size(detail["object"]))  # the key as it is


def _size(about: dict[str, Any]) -> int | None:
    size = about.get("size")
    return size if isinstance(size, int) else None


AT_ONCE = 10_000  # messages of a queue in one go
_OF_A_REQUEST = 10  # the most that SQS gives, or deletes
_WAIT = 1  # seconds: a queue that is asked so looks on all its servers
_REGION = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.")


class Message(NamedTuple):
    """A message. ``id`` is the same at each delivery; ``receipt``, by which it is deleted, is not."""

    text: str
    id: str = ""
    receipt: str = ""


class Channel(Protocol):
    """A source of messages about new objects."""

    def receive(self) -> Iterable[Message]:
        """Receive the messages that are new, or were received before and not deleted. Raises SetupError."""
        ...

    def delete(self, receipts: Sequence[str]) -> None:
        """Delete messages that are no longer needed. Raises SetupError."""
        ...


def channel(where: str, options: Mapping[str, str]) -> Channel:
    """Open the queue behind a URL, or a file or folder of messages.

    Args:
        where: the URL or path.
        options: of ``[store.s3]``.

    Raises:
        UsageError: it is neither.
        SetupError: it cannot be reached.
    """
    if "://" not in where:
        return MessageFiles(where)
    if not re.fullmatch(r"https?://[^/@\s]+/\S+", where):
        raise UsageError(
            f"notify: {redacted(where)} is not a queue",
            hint="pass the queue's https:// URL, or a file of messages",
        )
    return Queue(where, options)


class MessageFiles:
    """A file of messages, one a line, or a folder of such files.

    Each instance reads a line once; a line counts once it has its end.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        self._read: dict[Path, tuple[int, int]] = {}  # inode, and bytes

    def receive(self) -> Iterator[Message]:
        """Yield the complete lines appended since the last call; in a folder, file by file, by name."""
        try:
            folder = self._path.is_dir()
            for file in sorted(self._path.iterdir()) if folder else [self._path]:
                if not folder or (file.is_file() and not file.name.startswith(("_", "."))):
                    yield from self._new(file)
        except OSError as error:
            raise SetupError(f"{self._path}: cannot read messages: {error.strerror}") from error

    def _new(self, path: Path) -> Iterator[Message]:
        with path.open("rb") as file:
            stat = path.stat()
            inode, start = self._read.get(path, (stat.st_ino, 0))
            if inode != stat.st_ino or start > stat.st_size:  # another file, or begun again
                start = 0
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                start += len(line)
                if text := line.decode(errors="replace").strip():
                    yield Message(text)
            self._read[path] = stat.st_ino, start

    def delete(self, receipts: Sequence[str]) -> None:
        """Nothing: the files are their owner's."""


class Queue:
    """A queue by its URL. Its keys are the store's, or the environment's usual ones."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        address = urlsplit(url)
        self._url = url
        self._options = {**options, "endpoint": f"{address.scheme}://{address.netloc}"}
        if region := _REGION.match(address.netloc):
            self._options["region"] = region[1]
        self._client: Any = client("sqs", self._options)

    def receive(self) -> list[Message]:
        """Receive up to `AT_ONCE` messages, each id once; stops early when a request brings no new ones."""
        arrived: dict[str, Message] = {}
        # SQS gives ten messages at most, and fewer than it has; so it is asked until nothing new comes.
        while len(arrived) < AT_ONCE:
            with explaining(self._url, self._options):
                answer = self._client.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=_OF_A_REQUEST, WaitTimeSeconds=_WAIT
                )
            messages = [
                Message(m["Body"], m["MessageId"], m["ReceiptHandle"]) for m in answer.get("Messages", ())
            ]
            if all(message.id in arrived for message in messages):  # none, or the first ones come again
                break
            arrived |= {message.id: message for message in messages}
        return list(arrived.values())

    def delete(self, receipts: Sequence[str]) -> None:
        """Delete messages in batches. A message that the queue fails to delete is delivered again."""
        for start in range(0, len(receipts), _OF_A_REQUEST):
            batch = receipts[start : start + _OF_A_REQUEST]
            entries = [{"Id": str(n), "ReceiptHandle": receipt} for n, receipt in enumerate(batch)]
            with explaining(self._url, self._options):  # what it fails to delete comes again
                self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)


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
        """List files, all new ones among them.

        Args:
            fmt: as of `listed`.

        Raises SetupError.
        """
        self._listing, self._received, candidates = None, {}, set[str]()
        named = partial(_named, self.source.partition("://")[0], may_be(self.source, fmt))
        for text, number, receipt in () if self.channel is None else self.channel.receive():
            # A message only says where to look: each object enters the same log, so double, late and wrong
            # ones do no harm.
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
        # A listing of 1,000 keys a request is cheaper than a request for each of so many objects.
        if len(candidates) >= AT_ONCE or not (self.channel or taken):
            return None
        with suppress(SetupError, ValueError):  # a name may be one that no file can have
            if self.channel is None:
                # Only for names that rise: a file that sorts before the last one waits for the next full
                # listing.
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

        Args:
            pending: files that are in the log, but not in the table yet.
        """
        if self.channel is None:
            return
        # Kept until then: after a loss of the log, the queue delivers them again.
        finished = [number for number, (_, files) in self._logged.items() if files.isdisjoint(pending)]
        self.channel.delete([self._logged[number][0] for number in finished])
        for number in finished:
            del self._logged[number]

    def _is_due(self) -> bool:
        last = 0.0
        with suppress(FileNotFoundError, ValueError):
            last = float((self.folder / _LISTED).read_text())
        # Below zero the clock was set back; then a listing is due as well.
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
