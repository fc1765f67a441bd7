"""Resolving: a field's columns become one, exactly or not at all, in one commit; verify finds every value afterwards."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table
from driftline.operations import resolve as module
from lake.proof import proven


class Drifted:
    """A table, and the files that made it."""

    def __init__(self, table: Table, folder: Path) -> None:
        self.table, self.folder = table, folder
        self.files: list[Path] = []

    def put(self, *texts: str) -> None:
        file = self.folder / f"{len(self.files)}.jsonl"
        file.write_text("\n".join(texts))
        self.files.append(file)
        self.table.ingest(file)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.table.read().orderBy("id").collect()
        return [tuple(r.asDict(recursive=True)[c] for c in columns) for r in rows]

    def proven(self) -> None:
        proven(self.table, self.files)

    @property
    def columns(self) -> list[str]:
        return [f.name for f in self.table.schema().schema.struct.fields]


@pytest.fixture
def drifted(lake: Lake, table_name: str, tmp_path: Path) -> Drifted:
    return Drifted(lake.table(table_name), tmp_path)


@pytest.mark.nightly
def test_what_converts_is_one_column_and_what_does_not_stays(drifted: Drifted) -> None:
    table = drifted.table
    drifted.put('{"id": 1, "n": 4, "other": "a"}')
    drifted.put('{"id": 2, "n": 2.5}', '{"id": 3, "n": 9007199254740993}')
    drifted.put('{"id": 4, "n": "12.50"}', '{"id": 5, "n": "12,50"}', '{"id": 6, "other": "b"}')
    before = {f.name: f.id for f in table.schema().schema.struct.fields}
    version, other = table.format.load().version, drifted.rows("id", "other")

    dry = table.resolve("n", "double", dry_run=True)
    assert (dry.values, dry.rest, dry.samples) == (5, 2, ("12,50", "9007199254740993"))
    assert table.format.load().version == version

    done = table.resolve("n", "double")
    assert (done.values, done.rest, done.samples) == (dry.values, dry.rest, dry.samples)
    assert [".".join(path) for path in (*done.columns, *done.kept_in)] == ["n", "n_long", "n_string"]
    assert drifted.rows("id", "n", "n_long", "n_string") == [
        (1, 4.0, None, None), (2, 2.5, None, None), (3, None, 9007199254740993, None),
        (4, 12.5, None, None), (5, None, None, "12,50"), (6, None, None, None),
    ]  # fmt: skip
    assert drifted.rows("id", "other") == other
    after = {f.name: f.id for f in table.schema().schema.struct.fields}
    assert {c: after[c] for c in ("id", "other")} == {c: before[c] for c in ("id", "other")}
    drifted.proven()

    # New data goes there, and as ever to each other column that it fits.
    drifted.put('{"id": 7, "n": 8}', '{"id": 8, "n": 0.5}', '{"id": 9, "n": "none"}')
    assert drifted.rows("n", "n_string")[-3:] == [(8.0, "8"), (0.5, "0.5"), (None, "none")]
    assert set(drifted.columns) == set(after)
    drifted.proven()


@pytest.mark.nightly
@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
def test_text_of_what_a_column_of_numbers_had(drifted: Drifted) -> None:
    """A boolean among numbers is 1, an instant its milliseconds; `verify` knows both as texts."""
    table = drifted.table
    drifted.put('{"id": 1, "n": 5, "t": 1767225600000, "l": [7]}')
    drifted.put('{"id": 2, "n": true, "t": "2026-01-01T00:00:00Z", "l": [true, 2]}')
    drifted.put('{"id": 3, "n": "x", "t": "y", "l": ["z"]}')
    for field, type_ in ("n", "string"), ("t", "string"), ("l", "array<string>"):
        table.resolve(field, type_)
    assert drifted.rows("n", "t", "l") == [
        ("5", "1767225600000", ["7"]),
        ("1", "1767225600000", ["1", "2"]),
        ("x", "y", ["z"]),
    ]
    drifted.proven()


def test_statistics_do_not_guess_at_what_was_folded(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """A folded value is no longer in the wider column beside it: what that has of its own is not its rest. Rows
    of other fields stand in new files with columns that came after them.
    """
    drifted = Drifted(lake.table(table_name), tmp_path)
    drifted.put('{"id": 1, "n": 1, "other": 1}', '{"id": 2, "n": 2, "other": 2}')
    drifted.put('{"id": 3, "n": "x", "other": "x"}', '{"id": 4, "n": 4}')
    drifted.table.resolve("n", "long")
    for exact, strings in ((False, None), (True, 1)):
        for field, longs in zip(drifted.table.stats(exact=exact).drifted, (3, 2), strict=True):
            assert {part.name: part.records for part in field.parts} == {"long": longs, "string": strings}


def test_nested_fields(drifted: Drifted) -> None:
    drifted.put('{"id": 1, "s": {"x": 1, "y": true}, "l": [{"p": 1, "q": "k"}]}')
    drifted.put('{"id": 2, "s": {"x": "5"}, "l": [{"p": "12"}, {"p": "z", "q": "m"}, null]}')
    drifted.put('{"id": 3, "l": []}', '{"id": 4}')
    done = drifted.table.resolve("l.p", "long")
    assert (done.values, done.rest, done.samples) == (3, 1, ("z",))
    drifted.table.resolve("s.x", "string")
    assert drifted.rows("s", "l") == [
        ({"x": "1", "y": True}, [{"p": 1, "p_string": None, "q": "k"}]),
        ({"x": "5", "y": None}, [
            {"p": 12, "p_string": None, "q": None}, {"p": None, "p_string": "z", "q": "m"}, None,
        ]),
        (None, []),
        (None, None),
    ]  # fmt: skip
    drifted.proven()


@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
def test_lists_convert_by_position(drifted: Drifted) -> None:
    drifted.put('{"id": 1, "t": [7]}')
    drifted.put(
        '{"id": 2, "t": ["b", 1, "5"]}', '{"id": 3, "t": 2}', '{"id": 4, "t": []}', '{"id": 5, "t": ["8"]}'
    )
    done = drifted.table.resolve("t", "list<long>")
    assert (done.values, done.rest) == (5, 1)
    assert drifted.rows("t", "t_array_string") == [
        ([7], None), ([None, 1, 5], ["b", "1", "5"]), ([2], None), ([], None), ([8], None),
    ]  # fmt: skip
    drifted.proven()


@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
@pytest.mark.parametrize(
    ("to", "way_out"),
    [
        ("double", r"'driftline.thousands' = '.'\)"),
        ("date", r"date\('dd.MM.yyyy'\)"),
        ("timestamp_ntz", r"date\('dd.MM.yyyy'\)"),
        ("boolean", "(--dry-run|dry_run=True.) shows what converts"),
    ],
)
def test_what_converts_no_value_is_refused(drifted: Drifted, to: str, way_out: str) -> None:
    """A column without a value beside one with all of them would be the opposite of what is asked for."""
    drifted.put('{"id": 1, "n": "1.234,50"}', '{"id": 2, "n": "9,90"}', '{"id": 3}')
    table = drifted.table
    version = table.format.load().version
    with pytest.raises(DataError, match=r"n: none of 2 values converts to .*: 1\.234,50 · 9,90") as refused:
        table.resolve("n", to, drop_rest=to == "date")
    assert re.search(way_out, refused.value.hint or "")
    assert table.format.load().version == version
    dry = table.resolve("n", to, dry_run=True)
    assert (dry.values, dry.rest) == (2, 2)
    assert re.search(way_out, " ".join(dry.notes))
    assert not any("became instants" in note for note in dry.notes)
    if to == "double":  # what the message says is pasted
        (command,) = re.findall(r"Lake\.alter\((\".*\")\)", refused.value.hint or "")
        table.lake.alter(json.loads(command))
        assert table.resolve("n", to).rest == 0
        assert drifted.rows("n") == [(1234.5,), (9.9,), (None,)]


CONVERSIONS = [
    # type, values that convert with what they become, values that do not
    ("boolean", {"true": True, "false": False}, ["yes", "TRUE", " true", "1", ""]),
    ("int", {"12": 12, "-7": -7}, ["2147483648", "12.0", "007", "+1", "1e3", "-0", "٣"]),
    ("long", {"9223372036854775807": 2**63 - 1}, ["9223372036854775808", "0x1", "1\\n"]),
    ("double", {"12.50": 12.5, "1e3": 1000.0, "0.1": 0.1, "0.30000000000000004": 0.30000000000000004},
     ["NaN", "1.", ".5", "0.10000000000000001", "9007199254740993", "1e999", "1d"]),
    ("float", {"0.5": 0.5, "3": 3.0}, ["0.1234567891", "1e39"]),
    ("decimal(9,2)", {"12.5": Decimal("12.50"), "1.500": Decimal("1.50")}, ["1.005", "12345678.00", "1e2"]),
    ("date", {"2026-01-02": "2026-01-02"}, ["2026-1-2", "2026-02-30", "2026-01-02T00:00:00Z"]),
    ("timestamp_ntz", {"2026-01-02": "2026-01-02 00:00:00", "2026-01-02T03:04:05.5": "2026-01-02 03:04:05.500000"},
     ["2026-01-02T03:04:05Z"]),
    ("timestamp", {"2026-01-02T03:04:05Z": "2026-01-02 03:04:05", "2026-01-02T03:04:05+02:00": "2026-01-02 01:04:05"}, ["2026-01-02T03:04:05+2", "2026-01-02 03:04:05"]),
    ("binary", {"é": b"\xc3\xa9"}, []),
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
def test_texts_convert_exactly_or_not_at_all(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """One field for each type, with texts alone: dates are strings, for not all of them are dates."""
    drifted = Drifted(lake.table(table_name), tmp_path)
    rows, count = [], max(len(good) + len(bad) for _, good, bad in CONVERSIONS)
    for i in range(count):
        cells = {f"f{n}": [*good, *bad] for n, (_, good, bad) in enumerate(CONVERSIONS)}
        texts = ", ".join(f'"{f}": "{values[i]}"' for f, values in cells.items() if i < len(values))
        rows.append(f'{{"id": {i}, {texts}}}')
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(rows))
    drifted.files.append(file)
    drifted.table.ingest(file, settings={"dates": "off"})
    for n, (type_, good, bad) in enumerate(CONVERSIONS):
        done = drifted.table.resolve(f"f{n}", type_)
        assert (done.values, done.rest) == (len(good) + len(bad), len(bad)), (type_, done.samples)
        kept = f"f{n}_string" if bad else "id"
        for (made, rest), text in zip(drifted.rows(f"f{n}", kept), [*good, *bad], strict=False):
            if text in good:
                wanted = good[text]
                assert (str(made) if type_[:4] in ("date", "time") else made) == wanted, (type_, text)
                assert not bad or rest is None
            else:
                assert (made, rest) == (None, text.replace("\\n", "\n")), (type_, text)
    drifted.proven()


@pytest.mark.nightly
@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
def test_numbers_and_instants(drifted: Drifted) -> None:
    drifted.put('{"id": 1, "at": "2026-01-01T00:00:00Z", "d": 1.5, "w": 2.0, "day": "2026-01-01T00:00:00Z"}')
    drifted.put(
        '{"id": 2, "at": 1700000000000, "d": 3, "w": "x", "day": "2026-01-02T00:00:00.5Z"}',
        '{"id": 3, "at": 5, "d": 0.1, "w": 2.5, "day": "2026-01-03"}',
    )
    done = drifted.table.resolve("at", "timestamp")
    # Five is an instant in seconds by routing, and would not read back as five.
    assert (done.rest, done.samples, [".".join(p) for p in done.kept_in]) == (1, ("5",), ["at_long"])
    drifted.table.resolve("d", "decimal(9,1)")
    assert drifted.table.resolve("w", "long").rest == 2
    day = drifted.table.resolve("day", "date")
    assert (day.rest, day.samples) == (1, ("2026-01-02T00:00:00.5Z",))
    assert [tuple(map(str, row)) for row in drifted.rows("at", "d", "w", "day")] == [
        ("2026-01-01 00:00:00", "1.5", "2", "2026-01-01"), ("2023-11-14 22:13:20", "3.0", "None", "None"),
        ("None", "0.1", "None", "2026-01-03"),
    ]  # fmt: skip
    drifted.proven()


INSTANT = "2026-01-02T03:04:05.123456Z"
INSTANTS = (
    {"id": 1, "t": [INSTANT], "at": "2026-01-02T03:04:05Z", "deep": INSTANT, "m": {"1": INSTANT, "2": INSTANT}},
    {"id": 2, "t": [INSTANT, 1767225600000, -1], "at": 5.5, "deep": [[5]], "m": {"1": 5, "2": INSTANT}},
    {"id": 3, "t": [5], "at": 5, "deep": 5, "m": {"1": -1}},
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
def test_numbers_are_no_instants_in_lists_and_maps_either(drifted: Drifted) -> None:
    """Routing makes an instant of each number (seed rule 10), which stands for it nowhere."""
    for record in INSTANTS:
        drifted.put(json.dumps(record))
    texts = [
        ([INSTANT], "2026-01-02T03:04:05Z", [[INSTANT]], {"1": INSTANT, "2": INSTANT}),
        ([INSTANT, "1767225600000", "-1"], "5.5", [["5"]], {"1": "5", "2": INSTANT}),
        (["5"], "5", [["5"]], {"1": "-1"}),
    ]
    types = {
        "t": "list<string>", "at": "string", "deep": "list<list<string>>", "m": "map<string, string>",
    }  # fmt: skip
    view = drifted.table.view(types=types, make=False)
    rows = drifted.table.lake.sql(f"select t, at, deep, m from ({view.select}) order by id").collect()
    assert [tuple(row) for row in rows] == texts
    dry = drifted.table.resolve("t", "list<timestamp>", dry_run=True)
    assert (dry.values, dry.rest) == (3, 2)
    assert drifted.table.resolve("t", types["t"]).rest == 0
    assert drifted.rows("t") == [(t,) for t, *_ in texts]
    drifted.proven()


@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
def test_the_rest_can_be_dropped(drifted: Drifted) -> None:
    drifted.put('{"id": 1, "n": 1}')
    drifted.put('{"id": 2, "n": "x"}', '{"id": 3, "n": "3"}')
    done = drifted.table.resolve("n", "long", drop_rest=True)
    assert (done.rest, done.samples, done.kept_in) == (1, ("x",), ())
    assert drifted.columns == ["id", "n"]
    assert drifted.rows("n") == [(1,), (None,), (3,)]


def test_a_hostile_name(drifted: Drifted) -> None:
    key = "a`.b' -- \\\"x"
    for i, value in enumerate(("1", '"x"')):
        drifted.put(f'{{"id": {i}, "s": {{"{key}": {value}}}}}')
    path = "s.`" + key.replace('\\"', '"').replace("`", "``") + "`"
    done = drifted.table.resolve(path, "string")
    assert (done.values, done.rest) == (2, 0)
    assert [next(iter(s.values())) for (s,) in drifted.rows("s")] == ["1", "x"]
    drifted.proven()
    drifted.put(f'{{"id": 3, "s": {{"{key}": 4.5}}}}')
    assert [list(s.values()) for (s,) in drifted.rows("s")] == [["1"], ["x"], ["4.5"]]
    drifted.proven()


@pytest.mark.nightly
def test_others_may_write_meanwhile(drifted: Drifted, monkeypatch: pytest.MonkeyPatch) -> None:
    drifted.put('{"id": 1, "n": 1}')
    drifted.put('{"id": 2, "n": "x"}')
    looked = module._look

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        found = looked(*args, **kwargs)
        monkeypatch.setattr(module, "_look", looked)
        drifted.put('{"id": 3, "n": 3.5, "new": true}')
        return found

    monkeypatch.setattr(module, "_look", interrupted)
    done = drifted.table.resolve("n", "string")
    assert done.values == 3
    assert drifted.rows("id", "n") == [(1, "1"), (2, "x"), (3, "3.5")]
    assert drifted.columns == ["id", "n", "new"]
    drifted.proven()


@pytest.mark.nightly
def test_a_batch_that_is_written_meanwhile_comes_in_with_the_columns_of_now(drifted: Drifted) -> None:
    drifted.put('{"id": 1, "n": 1}')
    drifted.put('{"id": 2, "n": "2"}')
    file = drifted.folder / "late.jsonl"
    file.write_text('{"id": 3, "n": "late"}\n{"id": 4, "n": 7}')
    drifted.files.append(file)
    phases = []

    def resolved(phase: str) -> None:
        """When the batch is written, and about to be committed."""
        phases.append(phase)
        if phase == "committing" and phases.count(phase) == 1:
            drifted.table.resolve("n", "long")

    drifted.table.ingest(file, progress=resolved)
    assert phases.count("committing") > 1
    assert drifted.rows("id", "n", "n_string") == [
        (1, 1, None), (2, 2, None), (3, None, "late"), (4, 7, "7"),
    ]  # fmt: skip
    drifted.proven()


def test_a_failure_leaves_the_table_as_it_was(drifted: Drifted, monkeypatch: pytest.MonkeyPatch) -> None:
    drifted.put('{"id": 1, "n": 1}')
    drifted.put('{"id": 2, "n": "x"}')
    version = drifted.table.format.load().version

    def broken(*_: Any) -> Any:
        raise RuntimeError("power cut")

    monkeypatch.setattr(module, "diff", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        drifted.table.resolve("n", "string")
    assert drifted.table.format.load().version == version
    drifted.proven()


@pytest.mark.iceberg_only("Spark reads no view of a DuckLake, whose own test is in test_view.py")
def test_the_view_follows(lake: Lake, table_name: str, tmp_path: Path) -> None:
    drifted = Drifted(lake.table(table_name), tmp_path)
    drifted.put('{"id": 1, "n": 1, "m": 1}')
    drifted.put('{"id": 2, "n": "2", "m": "x"}')
    drifted.table.view(types={"m": "string", "n": "long"})
    done = drifted.table.resolve("n", "long")
    assert done.notes == (f"view {table_name}_settled was made again",)
    assert sorted(map(tuple, lake.sql(f"select n, m from lake.{table_name}_settled").collect())) == [
        (1, "1"), (2, "x"),
    ]  # fmt: skip


def test_undo_takes_it_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    drifted = Drifted(lake.table(table_name), tmp_path)
    table = drifted.table
    drifted.put('{"id": 1, "n": 1}')
    drifted.put('{"id": 2, "n": "2"}', '{"id": 3, "n": "x"}')
    before, rows = table.schema().schema.struct, drifted.rows("id", "n", "n_string")
    table.resolve("n", "long", drop_rest=True)
    entry = table.history().entries[-1]
    assert (entry.by, entry.record.text) == ("resolve", "n --as 'long' --drop-rest")
    assert drifted.columns == ["id", "n"]
    lake.table(f"{table_name}_beside").ingest(drifted.files[0])  # in a DuckLake, a snapshot of all tables
    done = table.undo()
    assert not done.hidden
    assert table.schema().schema.struct == before
    assert drifted.rows("id", "n", "n_string") == rows
    assert not [
        key for key in table.state().properties if key.startswith(("driftline.hints", "driftline.resolved"))
    ]
    drifted.proven()
    table.resolve("n", "long")
    settings, rows = table.state().properties, drifted.rows("id", "n", "n_string")
    for _ in range(2):
        table.undo(yes=True)
    assert drifted.rows("id", "n", "n_string") == rows
    assert settings["driftline.resolved.n"] == table.state().properties["driftline.resolved.n"]
    columns = drifted.columns
    drifted.put('{"id": 4, "n": "4"}')
    assert drifted.columns == columns
    drifted.proven()


@pytest.mark.nightly
@pytest.mark.parametrize("key", ["", "id"])
def test_later_values_that_fit_go_into_the_resolved_column_for_good(
    lake: Lake, table_name: str, tmp_path: Path, key: str
) -> None:
    """Without another column growing beside it, whatever the source; `undo` ends it."""
    table, folder = lake.table(table_name), tmp_path
    sources = {
        "1.jsonl": '{"id": 1, "n": 1.5, "t": 1}\n{"id": 2, "n": "2", "t": "x"}',
        "2.jsonl": '{"id": 3, "n": "12.50", "t": 7.5}\n{"id": 4, "n": 4, "t": "7.5"}',
        "3.csv": "id,n,t\n5,5,5\n6,6.25,y\n",
    }
    for name, text in sources.items():
        (folder / name).write_text(text)
    typed = str(folder / "4.parquet")
    parquet.write_table(pa.table({"id": [7, 8], "n": ["7.50", "8"], "t": ["7", "z"]}), typed)
    table.ingest(folder / "1.jsonl", **({"key": key} if key else {}))
    table.resolve("n", "double")
    table.resolve("t", "string")
    resolved = [f.name for f in table.schema().schema.struct.fields if not f.name.startswith("_")]
    assert resolved == ["id", "n", "t"]

    for name in ("2.jsonl", "3.csv", typed):
        assert not [c for c in table.ingest(folder / name).changes if c.adds_column]
    table.ingest(pa.table({"id": [9], "n": ["9.75"], "t": ["w"]}))
    rows = table.read().select("id", "n", "t").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        (1, 1.5, "1"), (2, 2.0, "x"), (3, 12.5, "7.5"), (4, 4.0, "7.5"), (5, 5.0, "5"), (6, 6.25, "y"),
        (7, 7.5, "7"), (8, 8.0, "z"), (9, 9.75, "w"),
    ]  # fmt: skip
    proven(table, [folder / "1.jsonl", folder / "2.jsonl"])
    proven(table, folder / "3.csv", "csv")
    proven(table, folder / "4.parquet", "parquet")

    (folder / "5.jsonl").write_text('{"id": 10, "n": "ten", "t": 10}')
    table.ingest(folder / "5.jsonl")
    (folder / "6.jsonl").write_text('{"id": 11, "n": "11", "t": 11}')
    table.ingest(folder / "6.jsonl")
    assert [tuple(row) for row in table.read().where("id > 9").orderBy("id").select("n", "n_string").collect()] == [
        (None, "ten"), (11.0, "11"),
    ]  # fmt: skip
    proven(table, [folder / "5.jsonl", folder / "6.jsonl"])


def test_undo_says_what_it_would_hide_of_rows_written_since(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    drifted = Drifted(lake.table(table_name), tmp_path)
    drifted.put('{"id": 1, "n": 1}')
    drifted.put('{"id": 2, "n": "2"}')
    drifted.table.resolve("n", "long")
    drifted.put('{"id": 3, "n": 3}')
    with pytest.raises(DataError, match="would hide values"):
        drifted.table.undo()


@pytest.mark.parametrize(
    ("field", "type_"), [("id", "int[]]"), ("a..b", "long"), ("none", "long"), ("n", "long")]
)
def test_wrong_wishes(lake: Lake, table_name: str, tmp_path: Path, field: str, type_: str) -> None:
    drifted = Drifted(lake.table(table_name), tmp_path)
    with pytest.raises(UsageError):
        drifted.table.resolve(field, type_)
    drifted.put('{"id": 1, "n": 1}')
    with pytest.raises(UsageError):
        drifted.table.resolve(field, type_)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("SET PARTITIONED BY (bucket(4, n), bucket(4, m))", "the partition field n_bucket_4 is made of it"),
        ("SET SORTED BY (m, n DESC)", "the sort order is made of it"),
    ],
)
def test_the_layout_needs_its_column(drifted: Drifted, layout: str, why: str) -> None:
    table = drifted.table
    drifted.put('{"id": 1, "n": 1, "m": 1}')
    drifted.put('{"id": 2, "n": "2"}')
    table.lake.alter(f"ALTER TABLE {table.name} {layout}")
    before = table.format.load().version
    for dry_run in (True, False):
        with pytest.raises(DataError, match=f"n cannot be folded: {re.escape(why)}"):
            table.resolve("n", "string", dry_run=dry_run)
    with pytest.raises(DataError, match=f"n cannot be dropped: {re.escape(why)}"):
        table.lake.alter(f"ALTER TABLE {table.name} DROP COLUMN n")
    assert table.format.load().version == before
    # A rewrite would be another column of the name.
    widen = {"policy": "widen", "allow_rewrite": "true", "on_conflict": "quarantine"}
    done = table.ingest(table.lake.spark.sql("select 4L id, 0.5D m"), settings=widen)
    assert (done.rows_written, done.rows_quarantined, done.changes) == (0, 1, ())
    drifted.put('{"id": 3, "n": 3}')
    assert drifted.rows("id", "n", "n_string") == [(1, 1, None), (2, None, "2"), (3, 3, "3")]
    drifted.proven()


OFFSETS = (
    "2026-03-01T12:00:00+02:00",
    "2026-03-01 12:00:00+02",
    "2026-03-01 07:30:00.5-0230",
    "2026-03-01T10:00:00Z",
)


@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
@pytest.mark.parametrize("to", ["timestamp", "timestamptz"])
def test_texts_with_offsets_become_the_instants_that_they_are(drifted: Drifted, to: str) -> None:
    drifted.put(
        *(
            json.dumps({"id": i, "at": text})
            for i, text in enumerate((*OFFSETS, "soon", "2026-02-30T12:00:00+02"))
        )
    )
    assert [str(f.type) for f in drifted.table.schema().schema.struct.fields] == ["long", "string"]

    done = drifted.table.resolve("at", to)
    assert (done.values, done.rest, done.samples) == (6, 2, ("2026-02-30T12:00:00+02", "soon"))
    assert not [note for note in done.notes if "offset" in note]
    micros = drifted.table.read().orderBy("id").selectExpr("cast(unix_micros(at) as string)").collect()
    assert [row[0] for row in micros] == ["1772359200000000"] * 2 + [
        "1772359200500000",
        "1772359200000000",
        None,
        None,
    ]

    drifted.put(json.dumps({"id": 9, "at": OFFSETS[1]}))
    last = drifted.table.read().where("id = 9").selectExpr("cast(unix_micros(at) as string)").collect()
    assert last[0][0] == "1772359200000000", "a later one goes there too"
    drifted.proven()


@pytest.mark.format_has_no_say("what converts is asked of the values, whichever table has them")
def test_texts_with_offsets_have_no_place_in_a_timestamp_without_a_zone(drifted: Drifted) -> None:
    drifted.put('{"id": 1, "at": "2026-03-01T12:00:00+02:00"}', '{"id": 2, "at": "2026-03-01 12:00:00"}')
    done = drifted.table.resolve("at", "timestamp_ntz", dry_run=True)
    assert (done.values, done.rest) == (2, 1)
    assert "--as timestamptz" in done.notes[-1]
