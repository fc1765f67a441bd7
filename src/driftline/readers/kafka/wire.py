"""Confluent's wire format: a zero byte, the schema id in four bytes, and the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from driftline.core.schema.types import Struct
from driftline.readers.avro.binary import PADDING
from driftline.readers.avro.nodes import RecordNode

_HEAD = 5  # bytes


@dataclass(frozen=True, slots=True)
class Payloads:
    """The bytes behind the headers of values: ``data`` from ``starts`` to ``ends``.

    Attributes:
        schemas: the id of each value's schema, -1 if there is no header.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    schemas: NDArray[np.int64]

    @classmethod
    def of(cls, values: pa.Array) -> Payloads:
        """The payloads of the binary values in a batch of Kafka's."""
        values = pa.concat_arrays([values.cast(pa.binary())])  # which begins with its buffers
        _, places, text = values.buffers()
        offsets = np.frombuffer(places or bytes(4), np.int32)[: len(values) + 1].astype(np.int64)
        text = np.frombuffer(text or b"", np.uint8)[: offsets[-1]]
        data = np.concatenate((text, np.zeros(PADDING, np.uint8)))
        starts, ends = offsets[:-1], offsets[1:]
        has_head = (ends - starts >= _HEAD) & (data[starts] == 0)
        numbers = sliding_window_view(data, _HEAD - 1)[starts + 1].view(">u4")[:, 0].astype(np.int64)
        return cls(data, starts + _HEAD, ends, np.where(has_head, numbers, -1))

    def some(self, rows: NDArray[np.int64]) -> Payloads:
        """The payloads of these rows."""
        return replace(self, starts=self.starts[rows], ends=self.ends[rows], schemas=self.schemas[rows])


@dataclass(frozen=True, slots=True)
class Whole:
    """Payloads that were read at once.

    Attributes:
        name: the kind of their records.
        struct: the types of the columns.
        numbers: the numbers of these payloads among all.
        arrays: one for each field of ``struct``.
    """

    name: str
    struct: Struct
    numbers: NDArray[np.int64]
    arrays: Sequence[pa.Array]


class UnreadableError(Exception):
    """A value is no record, for this reason."""


class WireDecoder(Protocol):
    """A decoder for the values of one schema."""

    @property
    def nodes(self) -> Mapping[str, RecordNode]:
        """The kinds of records met so far, by name."""
        ...

    def whole(self, payloads: Payloads) -> Whole | None:
        """Read the payloads that can be read together; None if none can."""
        ...

    def record(self, payload: bytes) -> tuple[str, Mapping[str, Any]]:
        """The record behind the header, and of which kind it is. Raises UnreadableError."""
        ...


def framed(value: bytes) -> tuple[int, bytes]:
    r"""The schema's id and the bytes behind it. Raises UnreadableError.

    >>> framed(bytes([0, 0, 0, 1, 2, 7]))
    (258, b'\x07')
    """
    if value[:1] != b"\0":
        begins = f"it begins with byte 0x{value[0]:02X}, not 0x00" if value else "it is empty"
        raise UnreadableError(f"not in the registry's wire format: {begins}")
    if len(value) < _HEAD:
        raise UnreadableError("not in the registry's wire format: it is cut off within the schema's id")
    return int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]
