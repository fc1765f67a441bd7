"""Files of JSON: splits, documents, gzip, byte order marks."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tasks import observe_splits
from driftline.core.schema.types import SourceLocation
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings
from driftline.core.values import TruncatedText
from driftline.errors import DataError
from driftline.files import text as text_files
from driftline.observe.expect import ExpectedField
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.json import documents
from driftline.readers.json.documents import is_document, records_of
from driftline.readers.json.splits import Split, blocks, splits_of


def observed(splits: list[Split]) -> Observation:
    """As a batch is observed: split by split, lines numbered afterwards."""
    parts, line = [], 1
    for part in observe_splits(ExpectedField(), TableSettings(), list(enumerate(splits))):
        parts.append(part.observation.shifted(line - 1))
        line += part.observation.lines
    return merge_observations(parts)


def numbered(splits: list[Split]) -> list[tuple[int, bytes]]:
    out, line = [], 1
    for split in splits:
        lines = [text for some in blocks(split, 2**27) for text in some]
        out += enumerate(lines, line)
        line += len(lines)
    return out


@pytest.mark.slow
@given(
    st.lists(
        st.sampled_from([b"", b"{}", b'{"a": 1}', b'{"b": "x"}\r', b"bad", b'{"c": [1, 2, 3, 4, 5]}', b"\r"]),
        max_size=12,
    ),
    st.booleans(),
    st.integers(1, 40),
    st.integers(1, 30),
)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_line_belongs_to_one_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[bytes], ended: bool, size: int, block: int
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", block)
    file = tmp_path / "x.jsonl"
    text = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    file.write_bytes(text)
    splits = splits_of(str(file), size)
    assert splits[0].start == 0
    assert all(a.start + a.length == b.start for a, b in pairwise(splits))
    assert max(s.length for s in splits) <= size
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert numbered(splits) == list(enumerate(expected, 1))
    whole = observed([Split(str(file), 0, len(text))])
    parts = observed(splits)
    assert parts.tally == whole.tally
    assert parts.lines == whole.lines == len(expected)
    assert {k: f.location for k, f in parts.shape.fields.items()} == {
        k: f.location for k, f in whole.shape.fields.items()
    }


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"a": "x\u2028y\x85z"}\r\n{"a": "\x0b"}\n'.replace("\x0b", "\\u000b"), newline="")
    assert observed(splits_of(str(file))).tally.records == 2


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n\xef\xbb\xbf{"a": 3}\n')
    seen = observed(splits_of(str(file)))
    assert (seen.tally.records, seen.tally.rejected) == (2, 1)
    assert numbered(splits_of(str(file)))[0] == (1, b'{"a": 1}')


@pytest.mark.parametrize("ending", [".jsonl.gz", ".json.gzip"])
def test_gzip_is_one_split(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"x{ending}"
    file.write_bytes(gzip.compress(b'{"a": 1}\n' * 10) + gzip.compress(b'{"a": "x"}'))
    (split,) = splits_of(str(file), 10)
    seen = observed([split])
    assert (seen.tally.records, seen.lines) == (11, 11)


GZIPPED = gzip.compress("".join(f'{{"a": {i * i}}}\n' for i in range(400_000)).encode())
DAMAGED = [
    GZIPPED[:-20],
    GZIPPED[: len(GZIPPED) // 2],
    GZIPPED[:-4] + b"1234",
    GZIPPED + b"x" * 9,
]


@pytest.mark.parametrize("text", DAMAGED, ids=["cut", "half", "changed", "more"])
def test_half_a_gzip_is_an_error_that_names_the_file(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(text)
    with pytest.raises(DataError, match=r"x\.jsonl\.gz: broken gzip"):
        observed(splits_of(str(file)))


DOCUMENTS = [
    (b"", False),
    (b'{"a": 1}', False),
    (b'{"a": 1}\n{"a": 2}', False),
    (b'{"a": 1}\n\n', False),
    (b"oops\n{}", False),
    (b"{\n}", True),
    (b'\xef\xbb\xbf \n{\n "a": [1,\n 2]}\n', True),
    (b'{\n "a": 1}\n{\n "a": 2}', True),
    (b'{\n "a": 1} {\n "a": 2}', True),
    (b'{\n "a": 1\n}{\n "a": 2\n}\n', True),
    (b'{"a": 1}\n{"a":\n 2}\n', True),
    (b'{"a": 1}\n{"a":\n 2\n', False),
    (b'{"a": 1}\noops\n{"a": 2}', False),
    (b'{"a": 1}\n\n  {"a": 2}', False),
    (b'{\n "a": [1, 2\n 3]\n}\n', True),
    (b'{"a": [\n  {"b": 1},\n  {"b" 2}\n]}\n', True),
    (b'{"a": oops}\n{"a": oops}\n', False),
    (b'{"a": oops}\n"x"\n{"a": 1}\n', False),
    (b'{"a": 1} {\n "a": 2}', True),
    (b'{"a": 1}\r{"a": 2}\r', True),
    (b'{"a": 1}{"a": 2}\n{"a": 3}\n', True),
    (b'{"a": 1}, {"a": 2}\n', False),
    (b'{"a": \n{"a": 2}\n', False),
    (b"[]", True),
    (b'[{"a": 1}, {"a": 2}]', True),
    (b'[{"a": 1},\n{"a": 2}\n]\n', True),
    (b'[\n{"a": 1},\n{"a" 2}\n]\n', True),
    (b'[{"a": 1},\n{"a" 2},\n{"a": 3}]\n', True),
    (b'[{"a": 1},\n{"a": 2}\n{"a": 3}\n]\n', True),
    (b'[{\n "a": 1\n}, {\n "a" 2\n}]\n', True),
    (b'[{"a" 1},\n{"a": 2},\n{"a": 3}]\n', True),
    (b'[oops\n{"a": 1}', False),
    (b'[1]\n{"a": 1}', False),
    (b'[1]\n{"a": ', False),
    (b'"x"', False),
]


@pytest.mark.parametrize(("text", "document"), DOCUMENTS)
def test_is_document(text: bytes, document: bool) -> None:
    assert is_document(text, whole=True) is document


def test_a_long_document_is_known_by_its_head() -> None:
    text = json.dumps([{"a": "x" * 100, "n": [1, True, None]}] * 50, indent=1).encode()
    heads = {is_document(text[:end], whole=False) for end in range(5, len(text) - 1)}
    assert heads == {True}
    assert not is_document(b'{"a": "' + b"x" * 1000, whole=False)
    assert not is_document(b'{"a": "x}\n' + b'{"a": "x"}\n' * 100, whole=False)


@pytest.mark.slow
def test_documents(tmp_path: Path) -> None:
    array, single, broken = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json"
    array.write_bytes(b'\xef\xbb\xbf[ {"a": 1 ,\n"b": "x"},\n 5, {"a": "\xff"}, {"c": [{}]} ]\n')
    single.write_text('{\n "a": 1\n}\n')
    broken.write_text('[{"a": 1},\n' + '{"a": 2},\n' * 200_000 + "{]")
    seen = observed(splits_of(str(array)))
    assert (seen.tally.records, seen.tally.rejected, seen.lines) == (2, 2, 4)
    assert [str(r.location) for r in seen.tally.reasons] == [f"{array}:2", f"{array}:3"]
    assert seen.shape.fields["a"].location == SourceLocation(str(array), 1, 0)
    assert numbered(splits_of(str(array)))[3] == (4, b'{"c": [{}]}')
    assert observed(splits_of(str(single))).tally.records == 1
    bad = observed(splits_of(str(broken))).tally
    assert (bad.records, bad.rejected) == (0, 1)


SEVERAL = {
    "over lines": b'{\n "a": 1\n}\n{\n "a": [\n  2\n ]\n}\n',
    "with text": '{\n "a": "é }\\n{"\n}\n{}'.encode(),
    "one broken": b'{\n "a": 1\n}\n{\n "a": \n}\n{"a": 3}\n\n{\n "a": 4\n}',
    "on one line": b'{"a": 1}\r{"a": {}}{"a": 2} \r{"a": oops}{}\r{"a": [3]}\n{"a": 4}',
    "not UTF-8": b'{\n "a": "\xff"\n}\n{\n "a": 1\n}',
}


def test_records_over_several_lines() -> None:
    assert list(records_of(SEVERAL["over lines"])) == [b'{\n "a": 1\n}', b'{\n "a": [\n  2\n ]\n}']
    assert list(records_of(SEVERAL["with text"])) == ['{\n "a": "é }\\n{"\n}'.encode(), b"{}"]
    assert list(records_of(SEVERAL["one broken"])) == [
        b'{\n "a": 1\n}', b'{\n "a": \n}', b'{"a": 3}', b'{\n "a": 4\n}',
    ]  # fmt: skip
    assert list(records_of(SEVERAL["on one line"])) == [
        b'{"a": 1}', b'{"a": {}}', b'{"a": 2}', b'{"a": oops}{}', b'{"a": [3]}', b'{"a": 4}',
    ]  # fmt: skip
    assert list(records_of(SEVERAL["not UTF-8"])) == [b'{\n "a": "\xff"\n}', b'{\n "a": 1\n}']


def test_records_of() -> None:
    assert list(records_of(b' {"a": 1}\n')) == [b'{"a": 1}']
    assert list(records_of(b"[]")) == []
    assert list(records_of(b"[{}, [1]]")) == [b"{}", b"[1]"]
    assert list(records_of(b"[{]")) == [b"[{]"]


def test_an_element_that_is_no_json_is_one_alone() -> None:
    elements = [b'{"a": 1}', b'{"a": "\\ud800"}', b"NaN", b'"\xff"']
    assert list(records_of(b"[" + b", ".join(elements) + b"]")) == elements
    broken = b'[{"a": 1}, {"a": ]'
    assert list(records_of(broken)) == [broken]


def test_document_with_a_fault_is_one_reject_with_its_line(tmp_path: Path) -> None:
    object_, array = tmp_path / "o.json", tmp_path / "a.json"
    object_.write_text('{\n "a": 1,\n "b": [1, 2\n 3],\n "c": 4\n}\n')
    array.write_text('[\n {"a": 1},\n {"a" 2}\n]\n')
    open_ = tmp_path / "b.json"
    open_.write_text('[{"a": 1},\n {"a" 2},\n{"a": 3}]\n')
    for file, place in (
        (object_, "line 4, column 2"), (array, "line 3, column 7"), (open_, "line 2, column 7"),
    ):  # fmt: skip
        tally = observed(splits_of(str(file))).tally
        assert (tally.records, tally.rejected) == (0, 1)
        (reject,) = tally.reasons
        assert str(reject.reason).endswith(f"at {place}")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        splits_of(str(tmp_path / "none.jsonl"))


LONG = '{"a": "' + "x" * 3000 + '"}'
LINES = ['{"a": 1}', LONG, " " * 2500, '{"a": "' + "\u00e9" * 1200, '{"a": 2}', '{"b": 1}' + " " * 2000 + "x"]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("block", [100, 10**6])
def test_lines_that_are_too_long_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, block: int
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", block)
    file, text = tmp_path / f"in.{ending}", "\n".join(LINES).encode()
    file.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    (split,) = splits_of(str(file))
    (part,) = observe_splits(ExpectedField(), TableSettings(max_record_bytes=2000), [(0, split)])
    seen = part.observation
    assert (seen.tally.records, seen.tally.rejected, seen.lines) == (2, 4, 6)
    reasons = {reason.location.line: str(reason.reason) for reason in seen.tally.reasons}
    assert set(reasons) == {2, 3, 4, 6}
    assert set(reasons.values()) == {"longer than 2000 bytes, which the setting max_record_bytes allows"}
    (part,) = observe_splits(ExpectedField(), TableSettings(), [(0, split)])
    assert part.observation.tally.rejected == 2


def test_a_line_of_any_length_takes_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as out:
        out.write(b'{"a": "')
        for _ in range(256):
            out.write(b"0" * 2**20)
        out.write(b'"}\n{"a": "x"}\n')
    (split,) = splits_of(str(file))
    tracemalloc.start()
    (part,) = observe_splits(ExpectedField(), TableSettings(max_record_bytes=2**23), [(0, split)])
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()
    seen = part.observation
    assert (seen.tally.records, seen.tally.rejected) == (1, 1)


DOCUMENTS_IN_PIECES = [
    b'[{"a": 1}, {"a": [2, "]}\\"{", {}]},\n 12345678901234567890, null, "x", [1]]\n',
    b"[ ]",
    b'[{"a": 1}] {"b": 2}',
    b'{\n "a": 1\n}\n{\n "a": [\n  2\n ]\n}\n',
    '{\n "a": "\u00e9 }\\n{"\n}\n{}'.encode(),
    b'{\n "a": 1\n}\n{\n "a": \n}\n{"a": 3}\n\n{\n "a": 4\n}',
    b'{"n": ' + b"1" * 5000 + b"}\n{}",
]


@pytest.mark.parametrize("window", [1, 7, 10**6])
@pytest.mark.parametrize("text", DOCUMENTS_IN_PIECES)
def test_documents_in_pieces(monkeypatch: pytest.MonkeyPatch, text: bytes, window: int) -> None:
    whole = list(documents.records_in(io.BytesIO(text), 10**6))
    monkeypatch.setattr(documents, "_WHOLE", 5)
    monkeypatch.setattr(documents, "_WINDOW", window)
    pieces = list(documents.records_in(io.BytesIO(b"\xef\xbb\xbf" + text), 10**6))
    if text.endswith(b'"b": 2}'):  # the records before what is wrong are known by then
        assert (whole, pieces) == ([text], [b'{"a": 1}', b'{"b": 2}'])
    else:
        assert pieces == whole


@pytest.mark.parametrize("window", [10, 10**6])
@pytest.mark.parametrize(("begin", "between", "end"), [("[", ",", "]"), ("", "\n", "")])
def test_values_of_documents_that_are_too_long_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, window: int, begin: str, between: str, end: str
) -> None:
    monkeypatch.setattr(documents, "_WHOLE", 10)
    monkeypatch.setattr(documents, "_WINDOW", window)
    long = json.dumps({"a": ["}", '\\"', {"b": "\n{" * 900}], "c": {}}, indent=1)
    text = begin + between.join(['{"a": 1}', long, '{"a": 2}']) + end
    records = list(documents.records_in(io.BytesIO(text.encode()), 1000))
    assert [isinstance(record, TruncatedText) for record in records] == [False, True, False]
    assert (records[0], records[2]) == (b'{"a": 1}', b'{"a": 2}')
    assert records[1].startswith(long[:500].encode())


def test_what_is_excluded_is_counted_in_its_own_split(tmp_path: Path) -> None:
    for name, pins in (("a", 2), ("b", 3), ("c", 1)):
        (tmp_path / f"{name}.jsonl").write_bytes(b'{"pin": 1}\n' * pins + b'{"other": 1}\n')
    splits = [split for name in "abc" for split in splits_of(str(tmp_path / f"{name}.jsonl"))]
    hidden = TableSettings(fields=field_settings(paths=OfPaths(exclude=[("pin",)])))
    numbered = list(enumerate(splits))
    parts = [
        part.observation for split in numbered for part in observe_splits(ExpectedField(), hidden, [split])
    ]
    assert [part.tally.excluded for part in parts] == [{"pin": 2}, {"pin": 3}, {"pin": 1}]
    (part,) = observe_splits(ExpectedField(), hidden, numbered)
    assert part.observation.tally.excluded == merge_observations(parts).tally.excluded == {"pin": 6}
