"""Dataset names by OpenLineage's rules: a namespace, and a name in it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from driftline.capture.kafka import SCHEME, place
from driftline.files.endings import format_by_name
from driftline.sources.spooled import is_pipe

MOST = 20  # folders that are data sets of their own
_BUCKETS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")  # written where others have a user


class DatasetName(NamedTuple):
    """``name`` is unique in its ``namespace``."""

    namespace: str
    name: str


def inputs(sources: Sequence[str]) -> list[DatasetName]:
    """The data sets of a person's sources: topics, and the folders of files; none for pipes.

    >>> inputs(["kafka://a:9092,b:9092/orders,refunds"])[1]
    DatasetName(namespace='kafka://a:9092', name='refunds')
    >>> inputs(["s3://lake/in/1.json", "s3://lake/in/2.json"])
    [DatasetName(namespace='s3://lake', name='in')]
    """
    topics = [topic for source in sources if source.startswith(SCHEME) for topic in _topics(source)]
    files = [source for source in sources if not source.startswith(SCHEME) and not is_pipe(source)]
    folders = list(dict.fromkeys(name_of(_folder(file)) for file in files))
    return topics + (folders if len(folders) <= MOST else _common(folders))


def name_of(location: str) -> DatasetName:
    """The data set at a path or URI; nothing of it that may be secret.

    >>> name_of("s3a://bucket/in/orders/"), name_of("file:/data/a%20b")
    (DatasetName(namespace='s3://bucket', name='in/orders'), DatasetName(namespace='file', name='/data/a b'))
    >>> name_of("https://me:pw@host:8443/a.json?sig=x")
    DatasetName(namespace='https://host:8443', name='/a.json')
    >>> name_of("abfss://raw@store.dfs.core.windows.net/in")
    DatasetName(namespace='abfss://raw@store.dfs.core.windows.net', name='/in')
    """
    scheme, colon, _ = location.partition(":/")
    if not colon or not scheme.isalnum():
        path = os.path.abspath(location)  # noqa: PTH100  a link is a name of its own
        return DatasetName("file", _trimmed(path))
    parts = urlsplit(location)
    if scheme == "file":
        return DatasetName("file", _trimmed(unquote(parts.path)))
    host = parts.netloc if scheme in _CONTAINERS else parts.netloc.rpartition("@")[2]
    if scheme in _BUCKETS:
        return DatasetName(f"{_BUCKETS[scheme]}://{host}", _trimmed(parts.path).strip("/") or "/")
    return DatasetName(f"{scheme}://{host}", _trimmed(parts.path))


def _topics(source: str) -> Iterator[DatasetName]:
    brokers, topics = place(source)
    for topic in topics.split(","):
        yield DatasetName(f"kafka://{brokers.split(',')[0]}", topic)


def _folder(source: str) -> str:
    """The folder that a path or URI names, or that its files are in."""
    folder, _, name = source.rpartition("/")
    path = Path(source)
    if "://" in source:
        return folder if format_by_name(name) is not None else _without_pattern(source)
    if path.is_dir():
        return source
    return str(path.parent) if path.is_file() else _without_pattern(source)


def _without_pattern(source: str) -> str:
    """The part of a path above its first pattern."""
    parts = source.split("/")
    plain = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:plain]) or ("/" if source.startswith("/") else ".")


def _common(folders: Sequence[DatasetName]) -> list[DatasetName]:
    """The deepest common parent folder of a namespace's datasets."""
    return [
        DatasetName(namespace, os.path.commonpath([f.name for f in folders if f.namespace == namespace]))
        for namespace in dict.fromkeys(f.namespace for f in folders)
    ]


def _trimmed(path: str) -> str:
    return path.rstrip("/") or "/"
