"""Packed files and archives go into a table, in batches and in captures; what they are not is said in a sentence."""

from __future__ import annotations

import bz2
import gzip
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from driftline.errors import DataError
from driftline.lake import Lake

from .proof import proven

LINES = [b'{"id": %d, "n": %s}\n' % (i, b'"x"' if i == 7 else b"%d" % i) for i in range(9)]


def zst(text: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(text)
    return bytes(sink.getvalue())


@pytest.mark.nightly
def test_packed_files_and_archives(lake: Lake, table_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl.zst").write_bytes(zst(b"".join(LINES[:3])))
    (folder / "b.json").write_bytes(bz2.compress(b"".join(LINES[3:5])))
    with zipfile.ZipFile(folder / "c.zip", "w") as archive:
        archive.writestr("one.json", b"".join(LINES[5:7]) + b"oops\n")
        archive.writestr("two/two.json.gz", gzip.compress(b"".join(LINES[7:])))
    table = lake.table(table_name)
    result = table.ingest(folder)
    assert (result.rows_written, result.rows_quarantined) == (9, 1)
    changes = {change["path"]: change["seen_in"] for change in result.to_dict()["changes"]}
    assert changes["n"] == f"{folder}/c.zip/two/two.json.gz:1"
    (group,) = table.quarantine().groups
    assert group.place == f"{folder}/c.zip/one.json:3"
    proven(table, sorted(folder.iterdir()))


def test_json_in_other_encodings(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """UTF-16 shows, with a mark or without one; what may be any encoding of bytes waits in quarantine."""
    files = [tmp_path / name for name in ("a.json", "b.json.gz", "c.json")]
    line = '{"id": 1, "name": "Zoë"}\n'
    files[0].write_bytes((line * 2).encode("utf-16-le"))
    files[1].write_bytes(gzip.compress(line.encode("utf-16")))
    files[2].write_bytes(b'{"id": 3}\n' + line.encode("latin1"))
    table = lake.table(table_name)
    (tmp_path / "d.json").write_bytes(line.encode("latin1"))
    nothing, some = table.ingest(tmp_path / "d.json"), table.ingest(files)
    assert (nothing.rows_written, nothing.rows_quarantined) == (0, 1)
    assert (some.rows_written, some.rows_quarantined) == (4, 1)
    assert [row.name for row in table.read().collect()].count("Zoë") == 3
    for result, name in ((nothing, "d.json"), (some, "c.json")):
        (hint,) = result.hints
        assert hint.startswith(f"JSON is read as UTF-8, and not all of {tmp_path / name} is that")
    proven(table, [*files, tmp_path / "d.json"])


def test_a_capture_takes_archives(lake: Lake, table_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    table = lake.table(table_name)
    for i, rows in enumerate(("1,x\n2,y\n", "3,z\n")):
        with zipfile.ZipFile(folder / f"{i}.csv.zip", "w") as archive:
            archive.writestr("a.csv", f"id,word\n{rows}")
        table.capture(folder, name="zips", checkpoint=tmp_path / "checkpoint").awaitTermination()
    assert sorted(tuple(row) for row in table.read().select("id", "word").collect()) == [
        (1, "x"), (2, "y"), (3, "z")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json.zst", b'{"a": 1}\n', "its extension says zstd, its first bytes do not"),
        ("a.csv", b"PK\x03\x04rest", "this is a zip, not text"),
        ("a.csv.zst", zst(b"a\n" + b"1\n" * 99_999)[:-9], "broken zstd"),
    ],
)
@pytest.mark.iceberg_only("of the source alone")
def test_what_a_file_is_not(
    lake: Lake, table_name: str, tmp_path: Path, name: str, text: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(DataError, match=message):
        lake.table(table_name).ingest(tmp_path / name)
    assert not lake.table(table_name).format.load().exists
