"""What a store tells of new objects: S3's event messages, as such, or as SNS and EventBridge hand them on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

_CREATED = "ObjectCreated:"
_WRAPPINGS = 4  # a queue's message around a topic's around an event, and one to spare


class Created(NamedTuple):
    """An object that came to be. ``size``: bytes, where the message tells."""

    bucket: str
    key: str
    size: int | None


def created(text: str) -> list[Created]:
    """The objects that a message names as new; none for a message about something else.

    Raises ValueError for what is no such message.

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
    raise ValueError("this is no message of a store")


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
