"""Timestamps of ORC that Spark would cut are reported by the column's name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from driftline.errors import DataError, UsageError
from driftline.readers.columnar.orc import check_timestamps, timestamp_fault

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))
FINE, WHOLE = pa.array([None, 1_001], pa.timestamp("ns")), pa.array([None, 1_000], pa.timestamp("ns"))


def written(path: Path, **columns: pa.Array) -> str:
    orc.write_table(pa.table(columns), path)
    return str(path)


NESTINGS: dict[str, Any] = {
    "plain": lambda a: a,
    "record": lambda a: pa.StructArray.from_arrays([a], ["x"]),
    "list": lambda a: pa.ListArray.from_arrays([0, 0, 2], a),
    "map": lambda a: pa.MapArray.from_arrays([0, 0, 2], ["k", "l"], a),
}


@pytest.mark.parametrize("nested", NESTINGS.values(), ids=NESTINGS)
@pytest.mark.parametrize("name", ["at", "a.t"])
def test_timestamps_finer_than_a_microsecond(tmp_path: Path, nested: Any, name: str) -> None:
    n = pa.array([1, 2])
    assert timestamp_fault(written(tmp_path / "fine.orc", n=n, **{name: nested(FINE)})) == (name, False)
    assert timestamp_fault(written(tmp_path / "whole.orc", n=n, **{name: nested(WHOLE)})) is None


def test_the_file_and_the_column_are_named(tmp_path: Path) -> None:
    whole, fine = written(tmp_path / "a.orc", at=WHOLE), written(tmp_path / "b.orc", first=WHOLE, at=FINE)
    check_timestamps(SPARK, [whole, written(tmp_path / "c.orc", n=pa.array([1]))])
    with pytest.raises(
        DataError, match=r"b\.orc: at: timestamps finer than a microsecond, which would be cut"
    ):
        check_timestamps(SPARK, [whole, fine])


@pytest.mark.parametrize("nested", NESTINGS.values(), ids=NESTINGS)
def test_timestamps_with_a_local_time_zone(tmp_path: Path, nested: Any) -> None:
    """As pyarrow writes each timestamp with a zone; Spark takes their type for an error in its own SQL."""
    zoned = nested(WHOLE.cast(pa.timestamp("ns", "Europe/Berlin")))
    file = written(tmp_path / "a.orc", n=pa.array([1, 2]), at=zoned)
    with pytest.raises(
        DataError, match=r"a\.orc: at: timestamps with a local time zone, which Spark does not"
    ):
        check_timestamps(SPARK, [file])


def test_years_that_nanoseconds_do_not_reach(tmp_path: Path) -> None:
    far = pa.array([253_402_214_400_000_000, None], pa.timestamp("us"))
    assert timestamp_fault(written(tmp_path / "a.orc", far=far)) is None
    assert timestamp_fault(written(tmp_path / "b.orc", far=far, at=FINE)) == ("at", False)


def test_file_whose_rows_are_no_records_is_one_sentence(tmp_path: Path) -> None:
    """Its first type is a list of the second; Spark's reader says `because "list" is null`."""
    file = tmp_path / "a.orc"
    orc.write_table(pa.table({"n": [1]}), file, compression="uncompressed")
    file.write_bytes(file.read_bytes().replace(b"\x08\x0c\x12\x01\x01", b"\x08\x0a\x12\x01\x01"))
    with pytest.raises(UsageError, match=r"a\.orc: its rows are not records"):
        check_timestamps(SPARK, [str(file)])


def test_what_is_no_orc_is_left_to_its_reader(tmp_path: Path) -> None:
    (tmp_path / "a.orc").write_bytes(b"none")
    assert timestamp_fault(str(tmp_path / "a.orc")) is None
