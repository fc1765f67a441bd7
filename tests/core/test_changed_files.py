"""Files that change after a capture took them: what each choice takes, with nothing lost and nothing twice."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from driftline.capture import changed
from driftline.capture import folder as folder_module
from driftline.capture.changed import ChangedFiles
from driftline.capture.finding import Finder
from driftline.capture.folder import FileLog
from driftline.capture.portions import NotProven, lines_behind, measured
from driftline.errors import DataError
from driftline.files.text import lines_between
from driftline.readers.csv.open import ANY, header_of, stretches_of
from driftline.readers.json.splits import blocks, splits_of

THREE = '{"id": 1}\n{"id": 2}\n{"id": 3}\n'


class Capture:
    """A capture without Spark: a log of the folder `in`, and the table that its lists go into."""

    def __init__(self, root: Path, on_change: ChangedFiles, name: str = "a.jsonl") -> None:
        self.root, self.file = root, root / "in" / name
        self.table: list[str] = []
        self.committed = -1
        self.file.parent.mkdir(exist_ok=True)
        self.start(on_change)

    def start(self, on_change: ChangedFiles) -> None:
        """Start, or start again after the process died."""
        folder = self.root / "log"
        self.log = FileLog(Finder(str(self.root / "in"), folder), folder, on_change=on_change)
        self.log.open()

    def write(self, text: str, *, more: bool = False) -> None:
        with self.file.open("a" if more else "w", newline="") as file:
            file.write(text)
        # Two writes within a tick of the file system's clock would look like one.
        self.clock = getattr(self, "clock", 1_000) + 1
        os.utime(self.file, (self.clock, self.clock))

    def lines(self, number: int) -> list[str]:
        """The lines that a list takes, with the file names, as they are now."""
        found = []
        files = self.log.read(number)
        ranges = self.log.ranges(number)
        for path in files:
            part = ranges.get(path)
            with Path(path).open("rb") as file:
                begin, end = (part.start, part.end) if part else (0, None)
                text = b"".join(lines_between(file, begin, end)) if end != begin else b""
            found += text.decode().splitlines(keepends=True)
        return found

    def run(self, *, dies: str = "") -> None:
        """Bring all that there is; ``dies`` before a commit, or behind one."""
        self.log.add()
        for number in self.log.waiting(self.log.next):
            if number > self.committed:
                lines = self.lines(number)
                if dies == "before":
                    return
                self.log.check(number)
                self.table += lines
                self.committed = number
                if dies == "behind":
                    return
            self.log.finish(number)


@pytest.fixture
def taken(tmp_path: Path) -> Capture:
    """A capture that took three lines, of a file that has two more by now."""
    capture = Capture(tmp_path, "fail")
    capture.write(THREE)
    capture.run()
    capture.write('{"id": 4}\n{"id": 5}\n', more=True)
    return capture


@pytest.mark.parametrize(
    ("on_change", "more"),
    [("fail", []), ("skip", []), ("append", [4, 5]), ("again", [1, 2, 3, 4, 5])],
)
def test_file_that_grew_brings_what_the_choice_says(
    taken: Capture, on_change: ChangedFiles, more: list[int]
) -> None:
    (taken.file.parent / "b.jsonl").write_text('{"id": 9}\n')
    for _ in range(2):  # the second start brings nothing more
        taken.start(on_change)
        taken.run()

    ids = [json.loads(line)["id"] for line in taken.table]
    assert sorted(ids) == sorted([1, 2, 3, 9, *more])
    sentences = list(taken.log.changes.refused.values())
    assert sentences == (
        [f"{taken.file} changed since it was ingested: 30 bytes then, 50 now"] if not more else []
    )


@pytest.mark.parametrize("on_change", ["skip", "append", "again"])
def test_changed_files_are_counted_once_by_their_fate(taken: Capture, on_change: ChangedFiles) -> None:
    taken.start(on_change)
    (taken.file.parent / "b.jsonl").write_text('{"id": 9}\n')
    taken.log.add()
    taken.log.add()
    (number,) = taken.log.waiting(taken.log.next)

    assert {fate: count for fate, count in taken.log.changed(number).items() if count} == {on_change: 1}
    assert taken.log.changed(number)["skip"] == 0


def test_part_that_was_appended_is_told_with_its_lines(taken: Capture) -> None:
    taken.start("append")
    taken.log.add()
    (number,) = taken.log.waiting(taken.log.next)
    taken.log.read(number)

    (entry,) = taken.log.lists[number]
    assert entry.portion is not None
    assert (entry.begin, entry.portion.first, entry.portion.lines) == (30, 3, 2)
    assert taken.log.repeated(number) == []


def test_file_that_comes_again_is_told(taken: Capture) -> None:
    taken.start("again")
    taken.log.add()

    (number,) = taken.log.waiting(taken.log.next)
    assert [entry.path for entry in taken.log.repeated(number)] == [str(taken.file)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"id": 7}\n{"id": 2}\n{"id": 3}\n{"id": 4}\n', "its first 30 bytes are not those that were taken"),
        ('{"id": 1}\n', "30 bytes of it were taken, and it has 10"),
        ("", "30 bytes of it were taken, and it has 0"),
    ],
)
def test_append_refuses_another_beginning(taken: Capture, text: str, why: str) -> None:
    taken.write(text)
    taken.start("append")
    taken.run()

    assert list(taken.log.changes.refused.values()) == [f"{taken.file} changed since it was ingested: {why}"]
    assert len(taken.table) == 3


@pytest.mark.parametrize(
    ("name", "before", "after", "why"),
    [
        ("a.json", b'[{"id": 1}]\n', b'[{"id": 1}, {"id": 2}]\n', "it is a document, not lines"),
        (
            "a.jsonl.gz",
            gzip.compress(b"{}\n", mtime=0),
            gzip.compress(b"{}\n{}\n", mtime=0),
            "it is packed: gzip",
        ),
        ("a.jsonl", "{}\n".encode("utf-16"), "{}\n{}\n".encode("utf-16"), "its text is UTF-16"),
        ("a.parquet", b"PAR1", b"PAR1PAR1", "parquet is written as a whole"),
    ],
)
def test_append_refuses_files_that_are_not_lines(
    tmp_path: Path, name: str, before: bytes, after: bytes, why: str
) -> None:
    capture = Capture(tmp_path, "append", name)
    capture.file.write_bytes(before)
    capture.log.add()
    capture.log.read(0)
    assert capture.log.ranges(0) == {}
    capture.log.finish(0)
    capture.file.write_bytes(after)
    capture.log.add()

    assert list(capture.log.changes.refused.values()) == [
        f"{capture.file} changed since it was ingested: {why}"
    ]


def test_append_refuses_a_file_whose_hash_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed, "_HASHED", 0)
    capture = Capture(tmp_path, "fail")
    capture.write(THREE)
    capture.run()
    capture.write("{}\n", more=True)
    capture.start("append")
    capture.run()

    assert "its hash was not kept when it was taken" in "".join(capture.log.changes.refused.values())


@pytest.mark.parametrize("on_change", ["fail", "skip", "append", "again"])
def test_file_with_a_new_time_and_the_same_bytes_is_not_taken_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on_change: ChangedFiles
) -> None:
    capture = Capture(tmp_path, on_change)
    capture.write(THREE)
    capture.run()
    capture.write(THREE)
    capture.run()

    assert (len(capture.table), capture.log.changes.refused) == (3, {})
    assert "a.jsonl has a new time, and the bytes that were taken" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "rest"),
    [
        ("a.jsonl", '{"id": 1}\n{"id": ', "2}\n"),
        ("a.csv", "id,t\n1,a\n2", "3,b\n"),
        ("a.csv", 'id,t\n1,a\n2,"over\nlines\n', 'more"\n'),
    ],
)
def test_line_without_its_end_waits_for_it(tmp_path: Path, name: str, text: str, rest: str) -> None:
    capture = Capture(tmp_path, "append", name)
    capture.write(text)
    capture.run()
    assert capture.log.changes.unended == {str(capture.file): str(capture.file)}
    assert "".join(capture.table) in text

    capture.write(rest, more=True)
    capture.start("append")
    capture.run()
    assert "".join(capture.table) == text + rest
    assert capture.log.changes.unended == {}


def test_line_that_waited_is_a_change_for_other_choices(tmp_path: Path) -> None:
    capture = Capture(tmp_path, "append")
    capture.write(THREE + '{"id": ')
    capture.run()
    capture.start("fail")
    capture.run()

    assert list(capture.log.changes.refused.values()) == [
        f"{capture.file} changed since it was ingested: its last line had no end and was not taken"
    ]


def test_whole_object_at_the_end_is_taken_and_a_line_behind_it_follows(tmp_path: Path) -> None:
    capture = Capture(tmp_path, "append")
    capture.write('{"id": 1}')
    capture.run()
    capture.write('\r\n{"id": 2}\n', more=True)
    capture.run()
    assert capture.table == ['{"id": 1}', '{"id": 2}\n']

    capture.write('{"id": 3}', more=True)
    capture.run()
    capture.write(", 4\n", more=True)
    capture.run()
    assert "its last line had no end when it was taken, and goes on" in "".join(
        capture.log.changes.refused.values()
    )


def test_file_that_grows_while_its_lines_are_read_is_no_error(tmp_path: Path) -> None:
    capture = Capture(tmp_path, "append")
    capture.write(THREE)
    capture.log.add()
    assert "".join(capture.lines(0)) == THREE
    capture.write('{"id": 4}\n', more=True)
    capture.log.check(0)

    capture.write("{}\n{}\n" + THREE)
    with pytest.raises(DataError, match=r"a\.jsonl changed while it was read"):
        capture.log.check(0)


def test_part_whose_beginning_changed_before_it_was_read_is_an_error_until_all_is_taken(
    taken: Capture,
) -> None:
    taken.start("append")
    taken.log.add()
    taken.write('{"id": 8}\n' * 9)
    with pytest.raises(DataError, match=r"a\.jsonl changed before the lines behind those ingested were read"):
        taken.run()
    taken.start("again")
    taken.run()
    assert taken.table[3:] == ['{"id": 8}\n'] * 9


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
@pytest.mark.parametrize("seed", range(12))
def test_capture_that_dies_anywhere_takes_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    """Also where its log is packed, and lines are torn as they are written."""
    monkeypatch.setattr(folder_module, "_KEPT", 1 + seed % 3 * 50)
    draw = random.Random(seed)
    capture, text = Capture(tmp_path, "append", name), ""
    for step in range(40):
        if draw.random() < 0.7:
            line = f'{{"id": {step}, "text": "a\\"b"}}\n' if name == "a.jsonl" else f'{step},"a\n""b"\n'
            text += line * draw.randrange(1, 4)
            whole = len(text) - draw.choice([0, 0, 1, len(line) // 2])
            written = capture.file.stat().st_size if capture.file.exists() else 0
            capture.write(text[written:whole], more=True)
        capture.run(dies=draw.choice(["", "", "before", "behind"]))
        if draw.random() < 0.5:
            capture.start("append")
    capture.write(text[capture.file.stat().st_size :] + "\n", more=True)
    capture.start("append")
    capture.run()

    # An object may be taken before its line end is there.
    lines = [line.rstrip("\n") for line in capture.table if line != "\n"]
    assert lines == text.splitlines()


def test_table_that_lacks_all_gets_each_part_again(taken: Capture) -> None:
    """All of a file comes by its first part; the parts behind it do not come beside it."""
    taken.start("append")
    taken.run()
    taken.write('{"id": 6}\n', more=True)
    taken.run()
    log = taken.log
    log.append_again([*log.packed_files(), *log.behind(-1)])
    taken.table.clear()
    taken.start("append")
    taken.run()

    assert [json.loads(line)["id"] for line in taken.table] == [1, 2, 3, 4, 5, 6]


def test_table_that_lacks_the_last_part_gets_that_alone(taken: Capture) -> None:
    taken.start("append")
    taken.run()
    log, before = taken.log, len(taken.table)
    log.append_again(log.behind(0))
    taken.start("append")
    taken.run()

    assert [json.loads(line)["id"] for line in taken.table[before:]] == [4, 5]
    assert [entry.begin for entry in taken.log.behind(-1)] == [0, 30]


def test_earlier_versions_outlive_the_packing_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "_KEPT", 1)
    capture = Capture(tmp_path, "append")
    for number in range(8):
        capture.write(f'{{"id": {number}}}\n', more=True)
        capture.run()
    capture.start("append")

    log = capture.log
    assert log.packed > 0
    entries = [*log.packed_files(), *log.behind(-1)]
    assert [entry.begin for entry in entries] == list(range(0, 80, 10))


def test_lines_behind_keep_their_numbers_in_json(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(THREE + '{"id": 4}\n{"id": 5')
    portion = lines_behind(str(file), 49, "json", measured(str(file), 30))
    part = folder_module.LineRange(portion.start, portion.end, portion.first)
    (split,) = splits_of(str(file), ranges={str(file): part})

    assert (split.line, [line for lines in blocks(split, 100) for line in lines]) == (4, [b'{"id": 4}'])


def test_lines_behind_are_rows_under_the_header_of_their_csv_file(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    taken = "id,name\n1,a\n"
    file.write_text(taken + '2,"b\nc"\n3,d\n4,torn')
    path, size = str(file), file.stat().st_size
    portion = lines_behind(path, size, "csv", measured(path, len(taken)))
    header = header_of(path, ANY, portion.end)
    assert header is not None
    part = folder_module.LineRange(portion.start, portion.end, portion.first)
    (stretch,) = stretches_of(path, header, 2**20, part)

    (piece,) = stretch.pieces()
    assert (piece.text, piece.line) == (b'2,"b\nc"\n3,d\n', 3)


def test_text_that_is_shorter_than_what_was_taken_is_not_proven(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(THREE)
    portion = measured(str(file), 30)
    with pytest.raises(NotProven, match="30 bytes of it were taken, and it has 29"):
        lines_behind(str(file), 29, "json", portion)


def test_lines_that_came_before_a_link_moved_on_are_not_lost(tmp_path: Path) -> None:
    """They are in a file that the folder no longer leads to."""
    for number in (1, 2):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"id": {number}}}\n')
    link = tmp_path / "in/current.jsonl"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "1.jsonl")
    capture = Capture(tmp_path, "append", "current.jsonl")
    capture.run()
    with (tmp_path / "1.jsonl").open("a") as file:
        file.write('{"id": 11}\n')
    link.unlink()
    link.symlink_to(tmp_path / "2.jsonl")
    capture.start("append")
    capture.run()
    assert sorted(capture.table) == ['{"id": 11}\n', '{"id": 1}\n', '{"id": 2}\n']

    with (tmp_path / "1.jsonl").open("a") as file:
        file.write('{"id": 12}\n')
    capture.start("fail")
    capture.run()
    assert list(capture.log.changes.refused) == [str(tmp_path / "1.jsonl")]
    (tmp_path / "1.jsonl").unlink()
    capture.run()
    assert capture.log.changes.refused == {}


def test_log_that_is_renamed_as_the_next_one_begins_is_followed_to_its_end(tmp_path: Path) -> None:
    """Each file of a rotation is known under its new name; lines come once, whichever file they are in."""
    capture, text = Capture(tmp_path, "append", "app.jsonl"), ""
    for day in range(4):
        for number in reversed(range(day)):
            old = capture.file.with_name(f"app.{number}.jsonl" if number else "app.jsonl")
            old.rename(capture.file.with_name(f"app.{number + 1}.jsonl"))
        for hour in range(3):
            line = f'{{"day": {day}, "hour": {hour}}}\n'
            capture.write(line, more=True)
            text += line
            if hour < 2:  # what comes behind is first seen under the next name
                capture.run()
            capture.start("append")
    capture.run()

    assert capture.log.changes.refused == {}
    assert sorted(capture.table) == sorted(text.splitlines(keepends=True))


def test_renamed_file_that_did_not_grow_is_told_and_not_taken_again(
    taken: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    taken.start("append")
    taken.run()
    taken.file.rename(taken.file.with_name("b.jsonl"))
    taken.run()
    for _ in range(2):
        taken.start("append")
        taken.run()

    assert len(taken.table) == 5
    assert "b.jsonl is " in caplog.text
    assert "under another name: it brings nothing more" in caplog.text
    assert caplog.text.count("under another name") == 1


def test_file_of_the_same_bytes_that_is_another_file_is_taken(taken: Capture) -> None:
    """Alike files may hold different records: by its bytes alone none is passed over."""
    taken.start("append")
    taken.run()
    taken.file.with_name("b.jsonl").write_bytes(taken.file.read_bytes())
    os.link(taken.file, taken.file.with_name("c.jsonl"))
    taken.file.unlink()
    taken.run()
    assert len(taken.table) == 10


def test_table_that_lacks_a_renamed_file_gets_it_under_its_new_name(taken: Capture) -> None:
    taken.start("append")
    taken.run()
    taken.file.rename(taken.file.with_name("b.jsonl"))
    taken.write('{"id": 6}\n')
    taken.run()
    assert len(taken.table) == 6
    log = taken.log
    log.append_again(
        [log.present(file) for file in [*log.packed_files(), *log.behind(-1)] if file.portion.lines]
    )
    taken.table.clear()
    taken.start("append")
    taken.run()
    assert [json.loads(line)["id"] for line in taken.table] == [1, 2, 3, 4, 5, 6]


def test_name_that_is_not_utf8_is_written_with_its_byte(tmp_path: Path) -> None:
    capture = Capture(tmp_path, "append", os.fsdecode(b"x\xff.jsonl"))
    capture.write(THREE)
    capture.run()
    capture.start("append")
    capture.write("{}\n" * 10)
    capture.run()
    (sentence,) = capture.log.changes.refused.values()
    assert r"/in/x\xff.jsonl changed since" in sentence
