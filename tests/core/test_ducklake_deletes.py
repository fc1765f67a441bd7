"""Delete files of a DuckLake, without a catalog."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from driftline.formats.ducklake import deletes
from driftline.formats.ducklake.deletes import RowDeletes


def test_a_delete_file_that_was_not_written_to_its_end_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = RowDeletes(None, None, f"{tmp_path}/")  # type: ignore[arg-type]
    scan: Any = SimpleNamespace(inlined=(), deleted={}, deletes={})
    written._scan = scan

    def full(stream: Any, *_: object) -> None:
        stream.write(b"PAR1")
        raise OSError("no space left on the device")

    monkeypatch.setattr(deletes, "write_positions", full)
    with pytest.raises(OSError, match="no space"):
        written.remove({"a.parquet": np.array([1, 2])})

    assert list(tmp_path.iterdir()) == []
