"""Files of JSON in a task: lines of several files are observed, and converted, together."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.shapes import schema
from core.table_in_memory import by_whole_columns, plain_rows
from core.tasks import observe_splits, run
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Schema, SourceLocation
from driftline.core.settings.fields import FieldSettings
from driftline.core.settings.table import TableSettings
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import MANY_KEYS
from driftline.readers import task as shares
from driftline.readers.json.rows import JsonRows, LineTask, Run, SplitReader, weight
from driftline.readers.json.splits import ObservedSplits, Share, Split, splits_of, together
from driftline.readers.task import AdmissionTerms, group_parts
from driftline.sources import json_files as json_source

FILES = {
    "00.jsonl": b'{"id": 1, "name": "x"}\n{"id": 2}\nbad\n{"id": 3}',  # no line feed at its end
    "01.jsonl": b'\xef\xbb\xbf{"id": 4, "name": "y"}\n\n{"id": "drifted"}\n{"id"\n',
    "02.jsonl": b"",
    "03.json": b'[{"id": 5},\n {"id": 6, "late": true}, 7]',
    "04.json": b'{\n  "id": 8,\n  "name": "over lines"\n}\n',
    "05.jsonl.gz": gzip.compress(b'{"id": 9}\n[]\n{"id": 10, "name": null}\n'),
    "06.jsonl": '{"id": 11, "name": "z"}\n'.encode("utf-16"),
    "07.jsonl": b"\n\n",
    "08.jsonl": b'{"id": 12.5, "name": "last"}\r\n{"id": \xff}\n',
}


@pytest.fixture
def splits(tmp_path: Path) -> list[Split]:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return [split for name in FILES for split in splits_of(str(tmp_path / name))]


KEYS = {f"k/{i}": {"d": 1} for i in range(MANY_KEYS)}


def run_of(*lines: bytes) -> Run:
    return Run(lines, "f", 1, lambda *_: pytest.fail("nothing is refused"))


def test_runs_come_together_up_to_a_number_of_lines_or_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_MANY", 4)
    monkeypatch.setattr(shares, "_LARGE", 10)
    runs = [
        run_of(b"a"),
        run_of(b"b", b"c"),
        run_of(b"d"),
        run_of(b"e" * 20),
        run_of(*[b"f"] * 6),
        run_of(b"g"),
    ]
    together = [[len(run.lines) for run in some] for some in group_parts(runs, weight)]
    assert together == [[1, 2, 1], [1], [6], [1]]
    assert [run for some in group_parts(runs, weight) for run in some] == runs
    assert list(group_parts([], weight)) == []


def test_splits_are_observed_together_if_their_lines_can_be_counted() -> None:
    small, (*cut, last) = Split("a", 0, 9), [Split("b", start, 5) for start in (0, 5, 10, 20)]
    others = [Split("c", 0, 9), Split("d", 5, 5), Split("d", 10, 5), Split("e", 0, 9)]
    share = list(enumerate([small, *cut, last, *others]))
    assert list(map(numbers, together(share))) == [[0, 1, 2, 3], [4], [5], [6, 7], [8]]
    assert list(together([])) == []


def test_lines_count_on_where_a_split_follows_another(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a": 1}\n' * 30 + b'bad\n{"b": 1}\n' + b'{"a": 1}\n' * 8)
    splits = Split(str(file), 0, file.stat().st_size).cut(90)
    (whole,) = observe_splits(expect(Schema(), TableSettings()), TableSettings(), list(enumerate(splits)))
    assert list(whole.lines.values()) == [10, 10, 10, 10]
    assert whole.observation.shape.fields["b"].location == SourceLocation(str(file), 32)
    assert [bad.location.line for bad in whole.observation.tally.reasons] == [31]
    *_, third, fourth = splits
    (part,) = observe_splits(expect(Schema(), TableSettings()), TableSettings(), [(2, third), (3, fourth)])
    assert (part.first, part.lines) == (2, {2: 10, 3: 10})
    assert [bad.location.line for bad in part.observation.shifted(20).tally.reasons] == [31]


def numbers(share: Share) -> list[int]:
    return [number for number, _ in share]


def test_first_lines_are_of_all_places_however_small_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_FIRST", 1000), ("_HEAD", 100), ("_HEADS", 4)):
        monkeypatch.setattr(json_source, name, size)
    first, others = json_source._heads([Split(f"{i:03}", 0, 50) for i in range(220)])
    assert [split.path for split in first] == [f"{i:03}" for i in range(20)], (
        "so many bytes, though of many files"
    )
    assert [int(split.path) for split in others] == [20, 21, 70, 71, 120, 121, 170, 171]
    large = Split("large", 0, 8000).cut(800)
    first, others = json_source._heads(large)
    assert [(split.start, split.length) for split in first] == [(0, 800)]
    assert [(split.start, split.length) for split in others] == [(i * 800, 100) for i in (1, 3, 5, 7, 9)]
    first, _ = json_source._heads([Split(f"{i}.gz", 0, 50, packed=True) for i in range(9)])
    assert [(split.path, split.text_length) for split in first] == [
        ("0.gz", 1000),
        ("1.gz", 600),
        ("2.gz", 200),
    ]
    first, _ = json_source._heads([Split("small", 0, 10), *large])
    assert [(split.path, split.length) for split in first] == [("small", 10), ("large", 800)]


def test_what_the_first_lines_of_a_task_hold_has_its_place_though_its_lines_are_not_numbered_yet(
    tmp_path: Path,
) -> None:
    long, short = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    long.write_bytes(b'{"a": 1}\n' * 10 + b'{"b": 1}\n' * 10)
    short.write_bytes(b'{"b": 2}\n{"c": 3}\n')
    _, second = Split(str(long), 0, 180).cut(90)
    parts = list(
        observe_splits(
            expect(Schema(), TableSettings()), TableSettings(), [(1, second), (2, Split(str(short), 0, 18))]
        )
    )
    assert [part.first for part in parts] == [1, 2]
    whole = merge_observations([parts[0].observation.shifted(10), parts[1].observation])
    assert {
        key: (Path(f.location.source).name, f.location.line) for key, f in whole.shape.fields.items()
    } == {
        "b": ("a.jsonl", 11),
        "c": ("b.jsonl", 2),
    }


@pytest.mark.parametrize("size", [1, 3, 4_000])
def test_files_together_are_what_each_is_alone(
    splits: list[Split], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(shares, "_MANY", size)
    alone = [made(splits, [(number, split)]) for number, split in enumerate(splits)]
    rows, rejects, parts = made(splits, list(enumerate(splits)))
    assert rows == [row for some, _, _ in alone for row in some]
    assert rejects == [reject for _, some, _ in alone for reject in some]
    places = {(Path(source).name, line) for source, line, _ in rejects}
    assert places == {("00.jsonl", 3), ("01.jsonl", 4), ("03.json", 3), ("05.jsonl.gz", 2), ("08.jsonl", 2)}
    assert len(parts) == 1
    assert parts[0].lines == {
        number: lines for _, _, some in alone for number, lines in some[0].lines.items()
    }
    merged = merge_observations(part.observation for _, _, some in alone for part in some)
    assert parts[0].observation.tally == merged.tally
    assert parts[0].observation.shape == RecordShape(
        # That a key is missing counts for required columns alone, of which there is none.
        {key: replace(field, missing=False) for key, field in merged.shape.fields.items()}
    )
    assert parts[0].observation.shape.fields["late"].location.line == 2


def made(
    splits: list[Split], share: Share
) -> tuple[list[dict[str, Any]], list[tuple[str, int, str]], list[ObservedSplits]]:
    """The rows of a share, what is none with its place, and what was observed."""
    settings, known = TableSettings(), expect(Schema(), TableSettings())
    seen = whole(splits, settings)
    planned = plan(Schema(), seen.shape, settings)
    make = JsonRows.of(planned, planned.schema.struct, AdmissionTerms(known, settings), seen)
    batches, rejects, reported = run(SplitReader([share], AdmissionTerms(known, settings), make), 0)
    rows = [row for batch in batches for row in batch.to_pylist()]
    refused = [row for batch in rejects for row in batch.to_pylist()]
    assert not reported.diverged
    return rows, [(row["source"], row["line"], row["reason"]) for row in refused], reported.observed


def whole(splits: list[Split], settings: TableSettings) -> Observation:
    parts = observe_splits(expect(Schema(), settings), settings, list(enumerate(splits)))
    return merge_observations(part.observation for part in parts)


def test_a_task_that_meets_more_than_its_plan_covers_says_so_and_observes_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "_MANY", 1)
    texts = [b'{"a": 1}\n', b'{"a": "x"}\nbad\n', b'{"a": 2}\n', b'{"b": 1}\n{\n']
    splits = []
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.jsonl").write_bytes(text)
        splits.append(Split(str(tmp_path / f"{number}.jsonl"), 0, len(text)))
    settings, known = TableSettings(), expect(Schema(), TableSettings())
    first = whole(splits[:1], settings)
    planned = plan(Schema(), first.shape, settings)
    terms = AdmissionTerms(known, settings)
    make = JsonRows.of(planned, planned.schema.struct, terms, first)
    rows, rejects, reported = run(SplitReader([list(enumerate(splits))], terms, make), 0)
    assert [row for batch in rows for row in batch.to_pylist()] == [{"a": 1}]
    assert reported.diverged
    assert sum(map(len, rejects)) == 2
    assert [part.observation for part in reported.observed] == [whole(splits, settings)]


@pytest.mark.slow
def test_many_keys_in_a_map_of_many_keys_are_what_the_plan_was_made_for() -> None:
    """The map forgets its keys at once, and the words in all its records come together: more than an object
    keeps apart, and looked at by nobody yet.
    """
    words = {f"k/{i}": {"d": {f"w{'abcdefghij'[i % 10]}{i}": 1}} for i in range(MANY_KEYS)}
    line = json.dumps({"id": 1, "m": words}).encode()
    settings = TableSettings(fields=FieldSettings(maps="auto"))
    known = expect(Schema(), settings)
    observer = JsonObserver(known, settings)
    observer.feed([line], "a", 1)
    planned = plan(Schema(), observer.result().shape, settings)
    terms = AdmissionTerms(known, settings)
    make = JsonRows.of(planned, planned.schema.struct, terms, observer.result())
    task = LineTask(make.observer(), make, terms)
    accepted, rejects = task.observe([run_of(line)])
    assert rejects is None
    assert sum(len(places) for _, places in task.convert(accepted)) == 1


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        # `note` tells the batch that words stay a struct; the last line alone would put `extra` into the map.
        (
            [{"m": KEYS | {"note": "t"}}, {"m": {"k/1": {"d": 1}, "extra": {"e": 1}}}],
            [{"m_map_record": {"k/1": {"d": 1}}, "m": {"note": None, "extra": {"e": 1}}}],
        ),
        # A part of the batch has dropped its keys with the word `name`, for which a struct would lack a field.
        (
            [{"m": KEYS | {"name": {"d": 2}}}, {"m": {"note": "t"}}, {"m": {"name": {"d": 2}}}],
            [
                {"m": {"note": None}, "m_map_string": {"note": "t"}},
                {"m": {"name": {"d": 2}}, "m_map_string": {"name": None}},
            ],
        ),
        # The values of the outer map are maps by those of the first part alone.
        (
            [
                {"m": {f"o/{i}": {"k/1": {"d": 1}} for i in range(MANY_KEYS)} | {"o/0": KEYS}},
                {"m": {"o/1": {"w": {"e": 1}}}},
            ],
            [{"m": {"o/1": {"w": {"d": None, "e": 1}}}}],
        ),
    ],
    ids=["apart", "undivided", "map of maps"],
)
def test_a_task_divides_a_map_from_its_words_as_the_whole_batch_does(
    batch: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> None:
    lines = [json.dumps(record).encode() for record in batch]
    settings = TableSettings(fields=FieldSettings(maps="auto"))
    known = expect(Schema(), settings)
    parts = [JsonObserver(known, settings) for _ in lines]
    for number, (part, line) in enumerate(zip(parts, lines, strict=True)):
        part.feed([line], "a", 1 + number)
    observation = merge_observations([part.result() for part in parts])
    planned = plan(Schema(), observation.shape, settings)
    terms = AdmissionTerms(known, settings)
    make = JsonRows.of(planned, planned.schema.struct, terms, observation)
    made = []
    for line in lines:
        task = LineTask(make.observer(), make, terms)
        accepted, _ = task.observe([run_of(line)])
        made += [row for batch, _ in task.convert(accepted) for row in plain_rows(batch)]
    assert made[1:] == rows


@pytest.mark.parametrize(
    ("columns", "record", "row"),
    [
        ("a: long, a_string@a: string", b'{"a": -0}', {"a": 0, "a_string": "-0"}),
        ("a: double, a_string@a: string", b'{"a":-0 }', {"a": 0.0, "a_string": "-0"}),
        ("l: long[1], l_array_string@l: string[1]", b'{"l": [7,-0]}', {"l": [7, 0], "l_array_string": ["7", "-0"]}),
        ("s: {a: long, a_string@a: string}", b'{"s": {"a":-0}}', {"s": {"a": 0, "a_string": "-0"}}),
        ("a: long, a_string@a: string", b'{"a": 0, "t": "b: -0,"}', {"a": 0, "a_string": "0", "t": "b: -0,"}),
        ("a: long", b'{"a": -0}', {"a": 0}),
    ],
)  # fmt: skip
def test_negative_zero_keeps_its_sign_in_a_column_of_texts(
    columns: str, record: bytes, row: dict[str, Any]
) -> None:
    table, settings = schema(columns + (", t: string" if b'"t"' in record else "")), TableSettings()
    known = expect(table, settings)
    observer = JsonObserver(known, settings)
    observer.feed([record], "f", 1)
    observation = observer.result()
    planned = plan(table, observation.shape, settings)
    rows = JsonRows.of(planned, planned.schema.struct, AdmissionTerms(known, settings), observation)

    assert by_whole_columns(rows, [record], plain_rows) == [row]
