"""Messages of a topic for the check: read once more, into files, as the topic has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.settings.condition import MESSAGE_KEY
from driftline.verify.json_texts import MalformedText, parse_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGES = "messages"  # the format of these files
_FRAME = 5  # bytes in front of a text: a zero, and the number of its schema
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")


class MessageBlock(NamedTuple):
    """Some messages of one partition; ``keys`` None: they are not read.

    Attributes:
        texts: their values; those that are behind the number of a schema without it.
        raws: their values as they came; null ones are messages that have a key alone.
    """

    offsets: Sequence[int]
    texts: Sequence[bytes]
    raws: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None


def write(
    messages: DataFrame, folder: Path, *, keys: bool, nulls: bool, has_schemas: bool = False
) -> dict[str, str]:
    """Write messages in tasks, each partition's into files of its own; returns their paths, with its name.

    Args:
        messages: with the columns of Spark's Kafka source.
        folder: for the files.
        keys: the messages' keys are read.
        nulls: so are null values.
        has_schemas: each text is behind the number of a schema.
    """
    columns = ("topic", "partition", "offset", "value", *(["key"] if keys else []))
    task = partial(_write, str(folder), nulls, json.dumps({"schemas": has_schemas}))
    written = messages.select(*columns).mapInArrow(task, "task int, path string, name string").collect()
    # Of one key the later task has the later message, as when the batch was written.
    return {row.path: row.name for row in sorted(written, key=lambda row: row.task)}


def _write(
    folder: str, nulls: bool, told: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context, paths = TaskContext.get(), dict[str, str]()
    with ExitStack() as stack:
        writers: dict[str, Any] = {}
        for batch in batches:
            rows = pa.table(batch) if nulls else pa.table(batch).filter(pc.field("value").is_valid())
            for topic, partition in {*zip(*(rows.column(i).to_pylist() for i in range(2)), strict=True)}:
                name = f"{topic}/{partition}"
                chosen = rows.filter((pc.field("topic") == topic) & (pc.field("partition") == partition))
                chosen = chosen.drop_columns(["topic", "partition"]).replace_schema_metadata({MESSAGES: told})
                if name not in writers:
                    paths[name] = str(Path(folder, uuid4().hex))
                    writers[name] = stack.enter_context(pa.ipc.new_file(paths[name], chosen.schema))
                writers[name].write_table(chosen)
    number = 0 if context is None else context.partitionId()
    columns = [[number] * len(paths), [*paths.values()], [*paths]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(columns[0], pa.int32()), *(pa.array(column, pa.string()) for column in columns[1:])],
        ["task", "path", "name"],
    )


def read(file: IO[bytes]) -> Iterator[MessageBlock]:
    """The messages of one of these files."""
    with pa.ipc.open_file(file) as reader:
        has_schemas = json.loads(reader.schema.metadata[MESSAGES.encode()])["schemas"]
        for number in range(reader.num_record_batches):
            columns = {
                f.name: column for f, column in zip(reader.schema, reader.get_batch(number), strict=True)
            }
            raws = columns["value"].to_pylist()
            texts = [_behind_schema(raw) for raw in raws] if has_schemas else [raw or b"" for raw in raws]
            keys = columns["key"].to_pylist() if "key" in columns else None
            if keys is not None and has_schemas:
                # Keys need no schema, though the values have one each.
                keys = [_behind_schema(key) or key for key in keys]
            yield MessageBlock(columns["offset"].to_pylist(), texts, raws, keys)


def _behind_schema(raw: bytes | None) -> bytes:
    return raw[_FRAME:] if raw is not None and raw[:1] == b"\0" else b""


def with_key(record: dict[str, Any], key: bytes | None) -> dict[str, Any]:
    """A message's record with its key. Raises MalformedText.

    >>> [with_key({"id": 1}, key) for key in (b"a7", b"1.10", b'{"schema": 1, "payload": {"a": 1}}')]
    [{'_key': 'a7', 'id': 1}, {'_key': '1.10', 'id': 1}, {'_key': {'a': 1}, 'id': 1}]
    """
    if MESSAGE_KEY in record:
        raise MalformedText(f"a field {MESSAGE_KEY} of its own")
    return {MESSAGE_KEY: None if key is None else _key(key), **record}


def naming(key: bytes | None, path: Sequence[str]) -> Any:
    """The value by which a key names a table, at a path in it; None for one that names none.

    >>> [naming(b'{"a": 7.0}', ["a"]), naming(b"1.10", []), naming(b'"x"', []), naming(b"x", ["a"])]
    [Decimal('7.0'), '1.10', 'x', None]
    """
    try:
        text = "" if key is None else key.decode()
        inside = parse_value(text)
    except UnicodeDecodeError:
        return None
    except MalformedText:
        return None if path else text
    if isinstance(inside, dict):
        for step in path:
            inside = inside.get(step) if isinstance(inside, dict) else None
        return inside
    if path:
        return None
    return inside if isinstance(inside, str) else text


def _key(key: bytes) -> Any:
    """The value that a key spells as JSON; else its text, as of numbers that a text may be, such as 1.10."""
    try:
        text = key.decode()
    except UnicodeDecodeError as error:
        raise MalformedText("a key that is no text") from error
    if "\0" in text:
        raise MalformedText("a key that is no text")
    try:
        value = parse_value(text)
    except MalformedText:
        return text
    if isinstance(value, dict):
        return value["payload"] if set(value) == {"schema", "payload"} else value
    is_text = isinstance(value, str) or value is None or isinstance(value, bool | list)
    return value if is_text or _WHOLE.fullmatch(text) else text
