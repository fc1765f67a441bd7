"""Parses lines of JSON as whole Arrow columns.

The parser accepts more than the rules allow, so it gets only lines that a decoder has found to have the
columns' types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert import arrow_schema
from driftline.core.schema.types import Struct

# The parser puts what it does not take into its message, and a NUL there ends the process. Of surrogates from
# U+20000 on it makes other characters.
_BACKSLASH, _ESCAPE = b"\\", rb"\u"
_MISREAD = re.compile(rb"\\u(?:0000|[dD](?:8[4-9a-fA-F]|[9abAB]))")


class Unparsed(Exception):
    """The parser refuses the lines, or would read them otherwise than one by one."""


def parsed(lines: Sequence[bytes], struct: Struct) -> pa.RecordBatch:
    """The records among the lines, as the fields of ``struct``. Raises Unparsed.

    Of a key that a record has twice, the last value counts.
    """
    from arro3.io import read_json

    text = b"\n".join(lines)
    # Python finds one byte ten times as fast as two.
    if b"\0" in text or (_BACKSLASH in text and _ESCAPE in text and _MISREAD.search(text)):
        raise Unparsed
    try:
        batches = [
            *map(pa.record_batch, read_json(BytesIO(text), arrow_schema(struct), batch_size=len(lines)))
        ]
    except Exception as error:  # the parser has no error of its own
        raise Unparsed from error
    if len(batches) != 1 or batches[0].num_rows != len(lines) or any(map(_repeats, batches[0].columns)):
        raise Unparsed
    return batches[0]


def _repeats(array: pa.Array) -> bool:
    """True if a map in the array has a key twice, at any depth."""
    if isinstance(array, pa.StructArray):
        return any(_repeats(array.field(i)) for i in range(array.type.num_fields))
    if isinstance(array, pa.MapArray):
        return _key_twice(array) or _repeats(array.items)
    if isinstance(array, pa.ListArray):
        return _repeats(array.values)
    return False


def _key_twice(maps: pa.MapArray) -> bool:
    keys = maps.keys.dictionary_encode()
    distinct = len(keys.dictionary)
    if distinct == len(keys):
        return False
    owners = np.repeat(np.arange(len(maps)), np.diff(maps.offsets.to_numpy()))
    pairs = owners * distinct + keys.indices.to_numpy()
    return bool(pc.count_distinct(pa.array(pairs)).as_py() < len(pairs))
