"""A cache of keys that were read: bounded, and the same rows are found with it as without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.convert import arrow_schema
from driftline.core.schema.text import parse_size
from driftline.core.schema.types import LONG, STRING, Field, Struct
from driftline.core.settings.properties import as_properties, from_properties
from driftline.errors import UsageError
from driftline.formats.lookup import _shared
from driftline.keys.identity import BatchKeys, FieldColumns
from driftline.keys.stored import KeyCache, KeyFile, KeyFinder

COLUMNS = Struct((Field("id", LONG, 1), Field("_order", STRING, 2)))


def rows(count: int = 10) -> list[tuple[int, pa.Table]]:
    return [(0, pa.table({"1": pa.array(range(count), pa.int64())}))]


def test_the_least_recently_used_go_but_none_that_is_in_use() -> None:
    cache = KeyCache()
    cache.begin(240)  # three files of 80 bytes
    for name in "abc":
        cache.put(name, rows())
    cache.put("d", rows())  # all others are in use
    assert [name for name in "abcd" if name in cache] == ["a", "b", "c"]
    cache.begin(240)
    assert cache.get("a") is not None
    cache.put("d", rows())
    cache.put("large", rows(100))
    assert [name for name in "abcd" if name in cache] == ["a", "c", "d"]
    cache.begin(80)
    assert [name for name in "abcd" if name in cache] == ["d"]
    cache.begin(0)
    cache.put("a", rows())
    assert not [name for name in "abcd" if name in cache]


def test_a_process_that_may_look_up_only_once_keeps_nothing_of_that() -> None:
    cache = KeyCache(idle=1)
    for kept in (False, True):
        cache.begin(240)
        cache.put("a", rows())
        assert ("a" in cache) is kept


def finder(keys: list[int], opened: list[str]) -> KeyFinder:
    def open_(path: str) -> pa.NativeFile:
        opened.append(path)
        return pa.OSFile(path)

    batch = BatchKeys([FieldColumns.of([(1, LONG)])], pa.table({"1": keys}))
    return KeyFinder(batch, 2, open_)


def test_a_file_is_read_once_and_its_rows_are_found_again(tmp_path: Path) -> None:
    files = [KeyFile(str(tmp_path / f"{n}.parquet")) for n in range(3)]
    for n, file in enumerate(files):
        table = pa.table({"id": range(n, 30 + n), "_order": [f"{n}"] * 30})
        pq.write_table(table.cast(arrow_schema(COLUMNS)), file.path, row_group_size=7)
    cache, opened = KeyCache(), []
    for keys in ([3], [29, 5], [31, 100], [0]):
        cache.begin(2**20)
        with_cache = finder(keys, opened).find(files, cache)
        without = finder(keys, []).find(files)
        assert [
            (f.file, f.positions.tolist(), f.codes.tolist(), f.orders.to_pylist()) for f in with_cache
        ] == [(f.file, f.positions.tolist(), f.codes.tolist(), f.orders.to_pylist()) for f in without]
    assert opened == [file.path for file in files]


@pytest.mark.parametrize(
    ("sizes", "most", "cached", "here"),
    [
        ([1, 2, 3], 0, "", "cba"),
        ([10, 30, 20], 0, "", ""),
        ([10, 30, 20], 2**20, "b", "bca"),
        ([10, 30, 20], 2**20, "", "b"),
        ([40, 30, 20], 2**20, "", "b"),
        ([40, 30, 20], 2**20, "a", "ab"),
    ],
)
def test_what_is_read_here_and_what_by_tasks(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], most: int, cached: str, here: str
) -> None:
    monkeypatch.setattr("driftline.formats.lookup.runs_here", lambda _: True)
    cache, look, context = KeyCache(), finder([1], []), None
    cache.begin(most)
    for name in cached:
        cache.put(look.cache_key(name), rows())
    files = [(size * 2**20, KeyFile(name)) for name, size in zip("abc", sizes, strict=True)]
    found, others = _shared(context, look, files, cache)  # type: ignore[arg-type]
    assert "".join(file.path for file in found) == here
    assert sorted(file.path for file in [*found, *others]) == ["a", "b", "c"]


def test_the_setting() -> None:
    settings: dict[str, Any] = {"key": "id", "key_cache": "1gb"}
    assert from_properties(as_properties(settings)).row_key.cache == parse_size("1gb") == 2**30  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="key_cache: 'much' is not a size: write 256mb, 1gb, 0"):
        as_properties({"key_cache": "much"})
