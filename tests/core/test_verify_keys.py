"""The check of rows by key: identity, order and deletes as it reads them, and a source folded without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from core.shapes import schema
from core.test_upsert import Event, FilesTable, Oracle, events
from driftline.core.schema.naming import MARK
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.row_key import RowKey
from driftline.verify.comparison import Comparison, Terms
from driftline.verify.conditions import identity
from driftline.verify.files import Read, SourcePlace
from driftline.verify.fold import ChangeReader, FoldTally, KeyedFold, NoChange
from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.matching_key import TableStruct
from driftline.verify.values import Cell, Pairs, Single, ValueSettings
from driftline.verify.verdict import Verdict

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
D = Decimal


@pytest.mark.parametrize(
    "same",
    [
        [7, 7.0, D("7.00"), D("0.7e1"), Single(7)],
        [0, -0.0, D("-0.0"), D("0e5")],
        [10**300, D("1e300"), D(10**300)],
        [10**310, D("1e310"), D(f"{10**310}.0")],
        [-70, D("-7e1"), -70.0],
        [0.1, D("0.1"), D("0.100")],
        [2**70, D(2**70), D(f"{2**70}.0")],
        [1e23, D("1e23")],
        [D("0.12345678901234567890123456789012345678")],
        ["7"],
        ["2026-01-02", date(2026, 1, 2)],
        ["2026-01-02T12:00:00Z", NOON],
        ["2026-01-02T12:00:00.05", datetime(2026, 1, 2, 12, 0, 0, 50_000)],
        [True],
        ["true"],
        [b"7"],
        [float("inf")],
    ],
)
def test_one_key_by_kind_and_exact_value(same: list[Any]) -> None:
    others = [8, "8", False, b"8", 7.5, D("0.12345678901234567890123456789012345679"), "2026-01-02T12:00:00"]

    assert len(set(map(identity, same))) == 1
    assert identity(same[0]) not in {None, *map(identity, others)}


@pytest.mark.parametrize("none", [None, float("nan"), D("nan"), [], [1], {}, {"a": 1}, Pairs({"a": 1})])
def test_no_key(none: Any) -> None:
    assert identity(none) is None


def reader(columns: str, key: str = "id", order_by: str = "", delete_when: str = "") -> ChangeReader:
    row_key = RowKey.of({"key": key, "order_by": order_by, "delete_when": delete_when})
    assert row_key is not None
    return ChangeReader.of(row_key, TableStruct.of(schema(columns).struct), ValueSettings())


def test_a_row_has_the_key_of_its_most_exact_column() -> None:
    rows = reader("id_string@id: string, id: double, id_long@id: long, id_date@id: date")

    assert rows.key_of_row({"id_long": 2**60 + 1, "id": float(2**60)}) == json.dumps([identity(2**60 + 1)])
    assert rows.key_of_row({"id_string": "x", "id_date": date(2026, 1, 2)}) == json.dumps(
        [identity("2026-01-02")]
    )
    assert reader("a: {id: long}", "a.id").key_of_row({"a": {"id": 7}}) == json.dumps([identity(7)])


@pytest.mark.parametrize(
    ("columns", "earlier", "later"),
    [
        ("o: long", {"o": 2}, {"o": 10}),
        ("o: double, o_decimal@o: decimal(38,2)", {"o": D("9.5")}, {"o": 2**70}),
        ("o: string", {"o": "10"}, {"o": "9"}),
        ("o: string", {"o": "\uffff"}, {"o": "\U00010000"}),
        ("o: timestamp", {"o": "2026-01-02"}, {"o": "2026-01-02T00:00:00.5Z"}),
        ("o: timestamp", {"o": date(2026, 1, 1)}, {"o": NOON}),
        ("o: long, p: string", {"o": 1, "p": "z"}, {"o": 2, "p": "a"}),
    ],
)
def test_orders(columns: str, earlier: Event, later: Event) -> None:
    changes = reader(columns, "id", ", ".join(earlier))

    assert changes.order_of(earlier) < changes.order_of(later)


@pytest.mark.parametrize(
    ("columns", "record"),
    [
        ("o: long", {"o": "2"}),
        ("o: long", {"o": True}),
        ("o: long", {"o": D("nan")}),
        ("o: long", {}),
        ("o: string", {"o": 2}),
        ("o: timestamp", {"o": "2 January"}),
        ("o: timestamp", {"o": 2}),
        ("o: long", {"o": [2]}),
    ],
)
def test_no_order(columns: str, record: Event) -> None:
    with pytest.raises(NoChange, match="no order in o"):
        reader(columns, "id", "o").order_of(record)


@pytest.mark.parametrize(
    ("condition", "record", "deletes"),
    [
        ("op = 'd'", {"op": "d"}, True),
        ("op = 'd'", {"op": "D"}, False),
        ("op = 1", {"op": "1"}, False),
        ("op = 1", {"op": D("1.0")}, True),
        ("op = 1", {"op": True}, False),
        ("op != 'd'", {}, False),
        ("op != 'd'", {"op": 5}, True),
        ("op != 'd'", {"op": {"a": 1}}, True),
        ("a.op != 'd'", {"a": [1]}, False),
        ("a.op is null", {"a": "text"}, False),
        ("a.op is null", {"a": None}, True),
        ("a.op = 'd'", {"a": Pairs({"op": "d"})}, True),
        ("not (op = 'd' and gone = true)", {"op": "u"}, True),
        ("not (op = 'd' and gone = true)", {"op": "d"}, False),
        ("op = 'd' or gone = true", {"gone": True}, True),
        ("a.op in ('d', 'x')", {"a": {"op": "x"}}, True),
        ("a.op is null", {"a": {"op": []}}, False),
        ("a.op is not null", {"a": {"op": [1]}}, True),
        ("day = '2026-01-02'", {"day": date(2026, 1, 2)}, True),
        ("op = 1", {"op": Cell("1")}, True),
        ("op is null", {"op": Cell("")}, True),
    ],
)
def test_what_deletes(condition: str, record: Event, deletes: bool) -> None:
    assert (
        reader("id: long, op: long", "id", "", condition).deletes(Read(SourcePlace("f"), record)) is deletes
    )


@pytest.mark.parametrize(
    ("key", "record", "deletes"),
    [
        ("_key", {"_key": 7}, True),
        ("_key", {"_key": 7, "v": None}, True),
        ("_key", {"_key": Cell("7"), "v": Cell("")}, True),
        ("_key", {"_key": 7, "v": ""}, False),
        ("_key", {"_key": 7, "v": 1, "value": None}, False),
        ("id", {"id": 7, "v": 1, "value": None}, True),
    ],
)
def test_a_record_with_its_messages_key_alone_deletes(key: str, record: Event, deletes: bool) -> None:
    assert (
        reader("_key: long, id: long, v: long", key, "", "value is null").deletes(
            Read(SourcePlace("f"), record)
        )
        is deletes
    )


def test_a_cell_is_text_where_its_column_says_so() -> None:
    assert reader("id: string").key_of_record({"id": Cell("7")}) == json.dumps([identity("7")])
    assert reader("id: string, id_long@id: long").key_of_record({"id": Cell("7")}) == json.dumps(
        [identity(7)]
    )


def folded(
    row_key: RowKey, columns: Struct, lines: Iterable[str], rows: Sequence[Event], waiting: Sequence[str] = ()
) -> Verdict:
    """The verdict over lines of JSON and rows, by what tasks do, in one."""
    return verdict_of(fold_of(row_key, columns), reads(lines), rows, waiting)


def fold_of(row_key: RowKey, columns: Struct) -> KeyedFold:
    as_json = json.dumps(to_json(Schema(columns)))
    comparison = Comparison.by(Terms(as_json, MARK, 0, ValueSettings(), "json", (), {}, True))
    return KeyedFold(comparison, row_key, {"f": 0})


UNMET = "unmet: "  # before a text that waits for an expectation


def verdict_of(
    fold: KeyedFold, records: Iterable[Read], rows: Sequence[Event], waiting: Sequence[str]
) -> Verdict:
    copies = ((text.removeprefix(UNMET).encode(), text.startswith(UNMET)) for text in waiting)
    texts = [*fold.by_text(fold.changes(records)), *fold.waiting(copies)]
    keyed = [*fold.not_waiting(sorted(texts, key=itemgetter(0))), *fold.rows(rows)]
    (tally,) = fold.folded(sorted(keyed, key=itemgetter(0)))
    return (FoldTally() + tally).verdict(exactly=True)


def reads(lines: Iterable[str]) -> Iterable[Read]:
    for number, line in enumerate(lines, 1):
        place = SourcePlace("f", 0, number)
        try:
            yield Read(place, parse(line.encode()))
        except MalformedText as error:
            yield Read(place, None, line.encode(), str(error))


COLUMNS = "id: long, id_string@id: string, seq: long, v: long"
KEY = RowKey.of({"key": "id", "order_by": "seq", "delete_when": "op = 'd'"})
LINES = (
    '{"id": 1, "seq": 2, "v": 2}',
    '{"id": 1, "seq": 1, "v": 1}',
    '{"id": "1", "seq": 1, "v": 3}',
    '{"id": 2, "seq": 1, "v": 4}',
    '{"id": 2, "seq": 2, "op": "d"}',
    '{"id": 3, "seq": 1, "v": 5}',
    '{"id": 3.0, "seq": 1, "v": 6}',
    '{"id": null, "seq": 1}',
    '{"id": 4, "seq": "x"}',
    "broken",
)
HELD: list[Event] = [
    {"id": 1, "seq": 2, "v": 2},
    {"id_string": "1", "seq": 1, "v": 3},
    {"id": 3, "seq": 1, "v": 6},
]


@pytest.mark.parametrize(
    ("rows", "waiting", "why", "extra"),
    [
        (HELD, LINES[7:], [], 0),
        (HELD[1:], LINES[7:], [(1, "its key has no row")], 0),
        ([{**HELD[0], "v": 1}, *HELD[1:]], LINES[7:], [(1, "2 is in no column; column v holds 1")], 0),
        ([HELD[0], *HELD], LINES[7:], [(1, "the table has 2 rows of its key")], 0),
        ([*HELD, {"id": 2, "seq": 1, "v": 4}], LINES[7:], [(5, "it deletes its row, and the table has one")], 0),
        ([*HELD, {"id": 9}], LINES[7:], [], 1),
        ([*HELD[:2], {"id": 3, "seq": 1, "v": 5}], LINES[7:], [(7, "6 is in no column; column v holds 5")], 0),
        # What waits overtakes nothing.
        ([*HELD[:2], {"id": 3, "seq": 1, "v": 5}], LINES[6:], [], 0),
        (HELD, [], [
            (8, "no key in id, and not in quarantine"),
            (9, "no order in seq that is a number, and not in quarantine"),
            (10, "not JSON: Expecting value: line 1 column 1 (char 0), and not in quarantine"),
        ], 0),
        (HELD, [*LINES[7:], "broken"], [], 1),
    ],
)  # fmt: skip
def test_the_latest_change_of_each_key(
    rows: Sequence[Event], waiting: Sequence[str], why: list[tuple[int, str]], extra: int
) -> None:
    assert KEY is not None
    verdict = folded(KEY, schema(COLUMNS).struct, LINES, rows, waiting)

    found = [(int(m.place.rpartition(":")[2]), m.why) for m in verdict.mismatches if m.place]
    assert (found, verdict.missing, verdict.extra) == (why, len(why), extra)
    assert verdict.records == len(LINES)
    assert verdict.deleted is not None and verdict.overtaken is not None
    assert verdict.records == (
        verdict.found + verdict.deleted + verdict.overtaken + verdict.quarantined + verdict.missing
    )


@pytest.mark.parametrize(
    ("waiting", "changes", "found"),
    [
        (2, 1, (2, 2, 0, 0)),
        (1, 1, (2, 1, 1, 0)),
        (3, 1, (2, 2, 0, 1)),
        # A message that waits counts once, with all its changes.
        (2, 2, (2, 2, 0, 0)),
        (1, 2, (3, 1, 2, 0)),
    ],
)
def test_equal_records_of_a_typed_file_count_each(
    waiting: int, changes: int, found: tuple[int, int, int, int]
) -> None:
    assert KEY is not None
    text, records = '{"id": null, "seq": 1}', list[Read]()
    for _ in range(2):
        message = parse(text.encode()) if changes > 1 else None
        records += [Read(SourcePlace("f"), parse(text.encode()), message=message) for _ in range(changes)]

    verdict = verdict_of(fold_of(KEY, schema(COLUMNS).struct), records, [], [text] * waiting)
    assert (verdict.records, verdict.quarantined, verdict.missing, verdict.extra) == found


@pytest.mark.parametrize(
    ("unmet", "waiting", "latest", "why"),
    [
        (["", ""], [], 2, []),
        (["", "price"], [], 2, ["it does not meet the expectation price, and not in quarantine"]),
        (["", "price"], [f"{UNMET}{LINES[1]}"], 2, []),
        (["", "price"], [LINES[1]], 2, []),
        # A copy that waits for an expectation is not that of a record which meets all, so this is the latest.
        (["", ""], [f"{UNMET}{LINES[0]}"], 2, []),
        (["", ""], [LINES[0]], 1, []),
        ([None, None], [f"{UNMET}{LINES[0]}"], 1, []),
    ],
)
def test_change_waits_exactly_if_it_does_not_meet_an_expectation(
    unmet: list[str | None], waiting: list[str], latest: int, why: list[str]
) -> None:
    assert KEY is not None
    judged = [replace(read, unmet=name) for read, name in zip(reads(LINES), unmet, strict=False)]
    rows = [{"id": 1, "seq": latest, "v": latest}]
    verdict = verdict_of(fold_of(KEY, schema(COLUMNS).struct), judged, rows, waiting)

    assert [m.why for m in verdict.mismatches if m.place] == why


def test_nothing_is_expected_of_a_delete() -> None:
    assert KEY is not None
    judged = [
        replace(read, unmet="price" if '"d"' in line else "") for line in LINES[3:5] for read in reads([line])
    ]

    assert verdict_of(fold_of(KEY, schema(COLUMNS).struct), judged, [], []).deleted == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they come"])
def test_what_a_dictionary_says(tmp_path: Path, seed: int, ordered: bool) -> None:
    chance, table, oracle = random.Random(seed), FilesTable(tmp_path), Oracle(ordered=ordered)
    given = {"key": "id", "delete_when": "op = 'd'", **({"order_by": "seq"} if ordered else {})}
    settings = from_properties(as_properties(given))
    stream = events(chance, 200)
    for start in range(0, len(stream), 50):
        table.ingest(stream[start : start + 50], settings)
        oracle.take(stream[start : start + 50])
    assert settings.row_key is not None
    columns = table.schema.struct
    data = Struct(tuple(f for f in columns.fields if f.name != "_order"))
    rows = [{k: v for k, v in row.items() if v is not None and k != "_order"} for row in table.rows()]
    lines = list(map(json.dumps, stream))

    verdict = folded(settings.row_key, data, lines, rows)
    assert (verdict.records, verdict.missing, verdict.extra) == (len(stream), 0, 0)

    wrong = chance.randrange(len(rows))
    changed = [*rows[:wrong], {**rows[wrong], "n": -1}, *rows[wrong + 1 :]]
    assert folded(settings.row_key, data, lines, changed).missing == 1
    assert folded(settings.row_key, data, lines, [*rows[:wrong], *rows[wrong + 1 :]]).missing == 1
