"""Delete files of a DuckLake, without a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from driftline.formats.ducklake import deletes
from driftline.formats.ducklake.deletes import written_deletes


def test_a_delete_file_that_was_not_written_to_its_end_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(stream: Any, *_: object) -> None:
        stream.write(b"PAR1")
        raise OSError("no space left on the device")

    monkeypatch.setattr(deletes, "write_positions", full)
    with pytest.raises(OSError, match="no space"):
        written_deletes(f"{tmp_path}/", "a.parquet", BitMap64([1, 2]))

    assert list(tmp_path.iterdir()) == []
