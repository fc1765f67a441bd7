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
FRAME = 5  # bytes in front of a text: a zero, and the number of its schema
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


class WrittenMessages(NamedTuple):
    """Files of messages by path, each with the name of its partition.

    Attributes:
        numbers: those of schemas in front of values and keys.
    """

    names: dict[str, str]
    numbers: frozenset[int]


def write(
    messages: DataFrame, folder: Path, *, keys: bool, nulls: bool, has_schemas: bool = False
) -> WrittenMessages:
    """Write messages in tasks, each partition's into files of its own.

    Args:
        messages: with the columns of Spark's Kafka source.
        folder: for the files.
        keys: the messages' keys are read.
        nulls: so are null values.
        has_schemas: each text is behind the number of a schema.
    """
    columns = ("topic", "partition", "offset", "value", *(["key"] if keys else []))
    task = partial(_write, str(folder), nulls, json.dumps({"schemas": has_schemas}))
    schema = "task int, path string, name string, numbers array<bigint>"
    written = messages.select(*columns).mapInArrow(task, schema).collect()
    # Of one key the later task has the later message, as when the batch was written.
    names = {row.path: row.name for row in sorted(written, key=lambda row: row.task)}
    return WrittenMessages(names, frozenset(number for row in written for number in row.numbers))


def _write(
    folder: str, nulls: bool, told: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context, paths, numbers = TaskContext.get(), dict[str, str](), dict[str, set[int]]()
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
                numbers.setdefault(name, set()).update(_numbers(chosen))
    number = 0 if context is None else context.partitionId()
    arrays = [
        pa.array([number] * len(paths), pa.int32()),
        pa.array([*paths.values()], pa.string()),
        pa.array([*paths], pa.string()),
        pa.array([sorted(numbers[name]) for name in paths], pa.list_(pa.int64())),
    ]
    yield pa.RecordBatch.from_arrays(arrays, ["task", "path", "name", "numbers"])


def _numbers(messages: pa.Table) -> set[int]:
    """The numbers of schemas in front of the values and keys of messages."""
    heads: set[bytes] = set()
    for column in {"value", "key"} & {*messages.column_names}:
        heads.update(pc.unique(pc.binary_slice(messages.column(column), 0, FRAME)).to_pylist())
    return {number_of(head) for head in heads - {None} if is_framed(head)}


def is_framed(raw: bytes) -> bool:
    """True for a value that may be behind the number of a schema."""
    return len(raw) >= FRAME and raw[0] == 0


def number_of(framed: bytes) -> int:
    """The number of the schema in front of a value."""
    return int.from_bytes(framed[1:FRAME], "big")


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
    return raw[FRAME:] if raw is not None and raw[:1] == b"\0" else b""


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
