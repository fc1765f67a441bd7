"""Sources of messages about new objects: a queue that speaks SQS, or files to which messages are appended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_plus, urlsplit

from driftline.config import redacted
from driftline.errors import SetupError, UsageError
from driftline.runtime.aws import client, explaining

_CREATED = "ObjectCreated:"
_WRAPPINGS = 4  # a queue's message around a topic's around an event, and one to spare


class Created(NamedTuple):
    """An object that was created. ``size``: bytes, if the message has them."""

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
    """The queue behind a URL, or a file or folder. ``options``: of ``[store.s3]``. Raises UsageError,
    SetupError.
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
            if inode != stat.st_ino or start > stat.st_size:  # another file, or begun anew
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
