"""Kafka's values as lines, and quarantined ones again: a run a partition or file, whatever is missing between."""

from __future__ import annotations

import pyarrow as pa
import pytest

from driftline.core.schema.types import SourceLocation
from driftline.core.settings.table import TableSettings
from driftline.observe.expect import ExpectedField
from driftline.observe.json_lines import JsonObserver
from driftline.quarantine.pending import _Raw
from driftline.readers.rejects import Origin
from driftline.sources.kafka import MessageValueTexts


def batch(
    offsets: list[int], partitions: list[int] | None = None, *, values: list[bytes] | None = None
) -> pa.RecordBatch:
    """Rows of Kafka, each with the value ``{}`` where nothing else is said."""
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values or [b"{}"] * len(offsets), pa.binary()),
            "topic": ["t"] * len(offsets),
            "partition": pa.array(partitions or [0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("offsets", "partitions", "runs"),
    [
        ([], [], []),
        ([3, 4, 5], [0, 0, 0], [[3, 4, 5]]),
        ([3, 7, 8, 1000], [0, 0, 0, 0], [[3, 7, 8, 1000]]),
        ([3, 4, 5, 6], [0, 0, 1, 1], [[3, 4], [5, 6]]),
        ([3, 4, 3, 4], [0, 0, 0, 0], [[3, 4], [3, 4]]),
    ],
)
def test_a_run_goes_on_over_gaps(offsets: list[int], partitions: list[int], runs: list[list[int]]) -> None:
    found = list(MessageValueTexts().runs(batch(offsets, partitions)))
    assert [run.line for run in found] == runs


def test_beyond_a_gap_each_record_has_its_own_offset() -> None:
    (run,) = MessageValueTexts().runs(batch([3, 7, 9], values=[b'{"a": 1}', b"", b'{"a": ']))
    observer = JsonObserver(ExpectedField(), TableSettings())
    judged = observer.feed(run.lines, run.source, run.line)
    assert [bad.location for bad in observer.result().tally.reasons] == [
        SourceLocation("t/0", 7),
        SourceLocation("t/0", 9),
    ]
    assert [run.reject(place, why).origin.offset for place, why in judged if why is not None] == [7, 9]


def test_what_comes_later_does_not_hide_what_stood_before_a_gap() -> None:
    observer = JsonObserver(ExpectedField(), TableSettings())
    for offsets in ([8, 20], [21, 40], [10, 11]):
        observer.feed([b'{"a": 1}'] * 2, "t/0", offsets)
    seen = observer.result()
    assert (seen.tally.records, seen.shape.fields["a"].location) == (6, SourceLocation("t/0", 8))


def test_quarantined_records_of_a_file_are_one_run() -> None:
    origins = [Origin("a.json", 4), Origin("a.json", 9), Origin("b.json", 2), Origin(None, None, "t", 0, 7)]
    raw = [f'{{"n": {n}}}' for n in range(4)]
    rows = pa.RecordBatch.from_pylist(
        [{"raw": text, **origin._asdict()} for text, origin in zip(raw, origins, strict=True)]
    )
    runs = list(_Raw().runs(rows))
    assert [(run.source, run.line) for run in runs] == [
        ("a.json", [4, 9]),
        ("b.json", [2]),
        ("t/0", [7]),
    ]
    assert [run.reject(0, "no").raw.decode() for run in runs] == [raw[0], raw[2], raw[3]]
