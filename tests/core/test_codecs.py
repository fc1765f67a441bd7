"""Packed files: known by their bytes, read as what they hold, refused in one sentence where they are broken."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import cramjam
import pyarrow as pa
import pytest

from driftline.errors import DataError, DriftlineError, UsageError
from driftline.files.text import LIMIT, codec_of, is_unpacked, opened
from driftline.sources import spooled as archives
from driftline.sources.files import expand, format_of
from driftline.sources.spooled import spooled
from driftline.verify.packed import is_packed, unpacked

SNAPPY_BEGINNING = b"\xff\x06\0\0sNaPpY"
TEXT = b"".join(b'{"a": %d, "b": "x%d"}\n' % (i, i * i) for i in range(20_000))


def by_arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(text: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:
            out.write(text)
        return bytes(sink.getvalue())

    return pack


def frames(text: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress(text))
    beginning = len(SNAPPY_BEGINNING)
    return SNAPPY_BEGINNING + b"\xfe\x03\0\0pad" + packed[beginning:]


def blocks(codec: str) -> Callable[[bytes], bytes]:
    """As Hadoop has them: a block, of chunks that are packed each."""

    def pack(text: bytes) -> bytes:
        out = []
        for at in range(0, len(text), 100_000):
            block = text[at : at + 100_000]
            out.append(len(block).to_bytes(4, "big"))
            chunks = (block[:70_000], block[70_000:]) if codec == "snappy" else (block,)
            for chunk in filter(None, chunks):
                data = pa.Codec(codec).compress(chunk, asbytes=True)
                out.append(len(data).to_bytes(4, "big") + data)
        return b"".join(out)

    return pack


CODECS = {
    "gz": gzip.compress,
    "zst": by_arrow("zstd"),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": by_arrow("lz4"),
    "snappy": frames,
}
HADOOP = {"snappy": blocks("snappy"), "lz4": blocks("lz4_raw")}
SKIPPABLE = bytes.fromhex("502a4d1803000000") + b"abc"


def packed(path: str) -> bool:
    with opened(path) as (file, _):
        return is_unpacked(file)


def read(path: Path) -> bytes:
    with opened(str(path)) as (file, _):
        return file.read()


def checked(data: bytes, name: str) -> bytes:
    """The lines that the check reads of such a file."""
    return unpacked(io.BytesIO(data), name).read()


@pytest.mark.parametrize("ending", CODECS)
@pytest.mark.parametrize("text", [TEXT, b"{}", b""], ids=["long", "short", "empty"])
def test_by_its_bytes_whatever_its_name(tmp_path: Path, ending: str, text: bytes) -> None:
    data = CODECS[ending](text)
    for name in (f"a.jsonl.{ending}", "a.jsonl"):
        path = tmp_path / name
        path.write_bytes(data)
        assert packed(str(path)) and read(path) == text
        assert is_packed(data[:16], name) and checked(data, name) == text
    (tmp_path / "two").write_bytes(data + data)
    assert read(tmp_path / "two") == text * 2 == checked(data + data, "two")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_other_encodings_with_a_byte_order_mark(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftline.files.text.BLOCK", 1_001)
    path, text = tmp_path / "a.csv", "a;é\n" + "1;\U0001f600\n" * 999
    data = (text if encoding in ("utf-16", "utf-32") else "\ufeff" + text).encode(encoding)
    path.write_bytes(data)
    assert packed(str(path)) and read(path).decode() == "\ufeff" + text == checked(data, path.name).decode()
    path.write_bytes(data[:-1])
    with pytest.raises(DataError, match=r"a\.csv: broken UTF-(16|32): "):
        read(path)


@pytest.mark.parametrize("ending", ["", *CODECS])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", ['{"a": "é"}\n' * 999, '[{"a": "é"}]'], ids=["lines", "document"])
def test_json_in_other_encodings_packed_or_not(tmp_path: Path, ending: str, encoding: str, text: str) -> None:
    path = tmp_path / f"a.json{ending and '.'}{ending}"
    path.write_bytes(CODECS.get(ending, bytes)(text.encode(encoding)))
    assert packed(str(path))
    assert read(path).decode("utf-8-sig") == text == checked(path.read_bytes(), path.name).decode("utf-8-sig")


@pytest.mark.parametrize("text", [b"[\0]", b"{\0", b'{\0"a": 1}', b"\0[]", b"\0{"])
def test_a_zero_behind_a_bracket_makes_no_utf16(tmp_path: Path, text: bytes) -> None:
    """Such a file is a record that is none: it refused a folder."""
    (tmp_path / "a.json").write_bytes(text)
    assert not packed(str(tmp_path / "a.json"))
    assert checked(text, "a.json") == text


@pytest.mark.parametrize("ending", HADOOP)
def test_blocks_of_hadoop(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.json.{ending}"
    data = HADOOP[ending](TEXT)
    path.write_bytes(data)
    assert read(path) == TEXT == checked(data, path.name)


@pytest.mark.parametrize("ending", ["zst", "lz4"])
def test_frames_to_be_skipped(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.json.{ending}"
    data = SKIPPABLE + CODECS[ending](TEXT)
    path.write_bytes(data)
    assert read(path) == TEXT == checked(data, path.name)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-3],
    "half": lambda data: data[: len(data) // 2],
    "changed": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x55]) + data[len(data) // 2 + 1 :],
}  # fmt: skip


# Arrow writes no checksums with zstd and lz4, so that there no reader could tell what has changed.
BROKEN = [(e, d) for e in CODECS for d in DAMAGES if d != "changed" or e not in ("zst", "lz4")]


@pytest.mark.parametrize(("ending", "damage"), BROKEN)
def test_broken_ones_are_named(tmp_path: Path, ending: str, damage: str) -> None:
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(DAMAGES[damage](CODECS[ending](TEXT)))
    with pytest.raises(DataError, match=rf"a\.jsonl\.{ending}: broken \w+: .+") as error:
        read(path)
    assert error.value.hint == "the file is cut off or damaged: copy it again"
    if (ending, damage) != ("snappy", "changed"):  # the check passes over its checksums
        with pytest.raises(DataError, match=rf"a\.jsonl\.{ending}: cannot be unpacked: .+") as of_check:
            checked(path.read_bytes(), path.name)
        assert of_check.value.hint == error.value.hint


@pytest.mark.parametrize("ending", HADOOP)
def test_cut_blocks_are_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.jsonl.{ending}"
    for size in (-3, 2_000, 10):
        path.write_bytes(HADOOP[ending](TEXT)[:size])
        with pytest.raises(DataError, match="broken"):
            read(path)
        with pytest.raises(DataError, match="cannot be unpacked"):
            checked(path.read_bytes(), path.name)


@pytest.mark.parametrize("ending", ["gz", "gzip", "zst", "bz2", "xz", "lz4", "snappy"])
def test_bytes_that_are_not_what_the_name_says(ending: str) -> None:
    with pytest.raises(
        DataError, match=rf"^a\.csv\.{ending}: its extension says \w+, its first bytes do not"
    ):
        codec_of(f"a.csv.{ending}", b'{"a": 1}\n{"a": 2}')
    assert codec_of(f"a.csv.{ending}", b"") is None


@pytest.mark.parametrize(
    ("head", "tail", "kind"),
    [
        (b"PAR1\x15\x04", b"\x10\0\0PAR1", "Parquet"),
        (b"ORC\n\x0b", b"\0ORC\x18", "ORC"),
        (b"Obj\x01\x04", b"", "Avro"),
        (b"PK\x03\x04", b"", "a zip"),
        (b"\x89PNG\r\n", b"", "a picture"),
    ],
)
def test_what_is_no_text_is_refused_by_name(head: bytes, tail: bytes, kind: str) -> None:
    with pytest.raises(DataError, match=f"^a.json: this is {kind}, not text"):
        codec_of("a.json", head, tail)


def test_a_workbook_is_no_zip_to_rename() -> None:
    with pytest.raises(DataError, match="this is an Excel workbook, not text") as refused:
        codec_of("book.xlsx", b"PK\x03\x04")
    assert refused.value.hint is not None
    assert "--format excel" in refused.value.hint


@pytest.mark.parametrize("text", [b"PAR1,PAR2\n1,2\n", b"ORC,x\n1,2\n", b"BZh9,b\n", b"Object,x\n", b"(a)\n"])
def test_text_that_looks_like_another_format_is_text(text: bytes) -> None:
    assert codec_of("a.csv", text[:16], text[-16:]) is None
    assert not is_packed(text[:16], "a.csv")


@pytest.mark.parametrize("ending", CODECS)
def test_a_bomb_is_bounded(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(CODECS[ending](TEXT))
    monkeypatch.setenv(LIMIT, str(len(TEXT)))
    assert read(path) == TEXT
    monkeypatch.setenv(LIMIT, str(len(TEXT) - 1))
    with pytest.raises(DataError, match=rf"holds more than {len(TEXT) - 1} bytes") as error:
        read(path)
    assert LIMIT in str(error.value.hint)
    monkeypatch.setenv(LIMIT, "many")
    with pytest.raises(UsageError, match="whole number"):
        read(path)


def test_snappy_chunks_of_every_kind(tmp_path: Path) -> None:
    """Text that does not shrink stands in a file as it is, and either way it has a checksum."""
    text = b"".join(part for i in range(9) for part in (random.Random(i).randbytes(65_536), TEXT[:65_536]))
    data = frames(text)
    path = tmp_path / "a.snappy"
    path.write_bytes(data)
    assert read(path) == text == checked(data, path.name)
    for kind, message in ((b"\x02", "broken snappy: "), (b"\x80", "")):
        path.write_bytes(data + kind + b"\x01\0\0x")
        if message:
            with pytest.raises(DataError, match=message):
                read(path)
        else:
            assert read(path) == text
    plain = data.index(b"\x01", len(SNAPPY_BEGINNING))
    path.write_bytes(data[: plain + 500] + bytes([data[plain + 500] ^ 1]) + data[plain + 501 :])
    with pytest.raises(DataError, match=r"broken snappy: .*checksum"):
        read(path)


# Archives -----------------------------------------------------------------------------------------------------


def zipped(path: Path, files: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return str(path)


FILES = {
    "in/b.json": b'{"b": 1}',
    "in/a.json.gz": gzip.compress(b'{"a": 1}'),
    "../../evil.json": b"{}",
    "README.txt": b"read me",
    "__MACOSX/in/._b.json": b"\0",
}


def test_the_files_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    path = zipped(tmp_path / "a.zip", FILES)
    assert expand([path]) == ("json", [path]) == expand([str(tmp_path)])
    with spooled([path], "json") as (files, names):
        assert [names[file].removeprefix(f"{path}/") for file in files] == [
            "../../evil.json", "in/a.json.gz", "in/b.json"
        ]  # fmt: skip
        assert [read(Path(file)) for file in files] == [b"{}", b'{"a": 1}', b'{"b": 1}']
        assert all(Path(file).is_relative_to(temporary) for file in files)
    assert list(temporary.glob("*/*")) == []
    with (
        pytest.raises(DriftlineError, match=r"a\.zip/in/a\.json\.gz: broken"),
        spooled([path], "json") as (files, _),
    ):
        raise DataError(f"{files[1]}: broken")


def test_all_files_of_an_archive_whose_names_tell_nothing(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.csv.zip", {"1": b"a\n1\n", "2": b"a\n2\n"})
    assert format_of(path) == "csv"
    with spooled([path], "csv") as (files, _):
        assert [read(Path(file)) for file in files] == [b"a\n1\n", b"a\n2\n"]


def test_two_files_of_one_name_in_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", b"1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.json", b"2")
    with spooled([str(path)], "json") as (files, _):
        assert [read(Path(file)) for file in files] == [b"1", b"2"]


def test_archives_that_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"holds files of several formats: csv, json"):
        format_of(zipped(tmp_path / "several.zip", {"a.json": b"", "b.csv": b""}))
    with pytest.raises(UsageError, match="none of its files has a known extension"):
        format_of(zipped(tmp_path / "unknown.zip", {"a": b""}))
    (tmp_path / "none.zip").write_bytes(b'{"a": 1}')
    with pytest.raises(DataError, match=r"none\.zip: broken zip: File is not a zip file"):
        format_of(str(tmp_path / "none.zip"))
    path = zipped(tmp_path / "bomb.zip", {"a.json": TEXT, "b.json": TEXT})
    monkeypatch.setenv(LIMIT, str(2 * len(TEXT) - 1))
    with pytest.raises(DataError, match="holds more than"), spooled([path], "json"):
        pass
    data = bytearray(Path(path).read_bytes())
    data[60] ^= 0x55
    Path(path).write_bytes(data)
    monkeypatch.delenv(LIMIT)
    with pytest.raises(DataError, match=r"bomb\.zip: broken zip"), spooled([path], "json"):
        pass


def test_no_room_for_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda *_: Full())
    path = zipped(tmp_path / "a.zip", {"a.json": TEXT})
    with pytest.raises(DriftlineError, match=r"cannot be unpacked to .*: No space left on device"):
        list(archives.unpack(path, "json", tmp_path))
