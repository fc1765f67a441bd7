"""The origins of records, in a column beside their rows: the same places as rejects have in a quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.types import arrow_type
from driftline.core.planning.source_column import PLACE
from driftline.readers.rejects import Origin

ORIGIN = (
    "\0origin"  # the column that has it, until the rows have their `_source`; no table has one of this name
)
_TYPES = {name: arrow_type(type_) for name, type_ in PLACE.items()}

Numbers: TypeAlias = (
    "int | Sequence[int | None] | NDArray[np.int64] | None"  # of the first of some records, or of each
)


class Origins(NamedTuple):
    """The origins of some records. ``shared``: what they have in common; ``numbers``: their lines, or, in a
    topic, their offsets; None if these are not known.
    """

    shared: Origin
    numbers: Numbers = None


def origin_array(parts: Sequence[tuple[int, Origins]]) -> pa.StructArray:
    """The origins of records in parts, each with the number of its records.

    >>> origin_array([(2, Origins(Origin("a.json"), 7))]).to_pylist()[1]["line"]
    8
    """
    counts = [count for count, _ in parts]
    shared = [origins.shared for _, origins in parts]
    part_of = pa.array(np.repeat(np.arange(len(parts)), counts))
    numbers = pa.concat_arrays([_numbers(count, origins.numbers) for count, origins in parts])
    topics = pa.array([origin.topic for origin in shared], _TYPES["topic"]).take(part_of)
    in_topic, none = topics.is_valid(), pa.scalar(None, pa.int64())
    columns: dict[str, Any] = {
        "file": pa.array([origin.source for origin in shared], _TYPES["file"]).take(part_of),
        "line": pc.if_else(in_topic, none, numbers),
        "topic": topics,
        "partition": pa.array([origin.partition for origin in shared], _TYPES["partition"]).take(part_of),
        "offset": pc.if_else(in_topic, numbers, none),
    }
    return pa.StructArray.from_arrays(
        [columns[name].cast(type_) for name, type_ in _TYPES.items()], list(_TYPES)
    )


def _numbers(count: int, numbers: Numbers) -> pa.Array:
    if numbers is None:
        return pa.nulls(count, pa.int64())
    return pa.array(np.arange(numbers, numbers + count) if isinstance(numbers, int) else numbers, pa.int64())
