"""Rows by key, as a person sets it: paths, and the condition that deletes."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from driftline.core.schema.types import BOOLEAN, DOUBLE, LONG, STRING, VARIANT, Field, List, Map, Struct
from driftline.core.settings.condition import OneOf
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.row_key import RowKey, check_kept, parse_condition
from driftline.core.values import parse
from driftline.errors import UsageError
from driftline.keys.filling import holds, record_test
from driftline.keys.slices import RowsOf, Slices
from driftline.write import BatchFolder

# A field of several types has a column for each.
STRUCT = Struct(
    (
        Field("op", STRING),
        Field("n", DOUBLE),
        Field("n", STRING),
        Field("gone", BOOLEAN),
        Field("s", Struct((Field("x y", LONG),))),
        Field("m", Map(STRING, STRING)),
        Field("l", List(STRING)),
        Field("v", VARIANT),
    )
)
NO_VARIANT = pa.scalar(None, pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))
ROWS = pa.record_batch(
    [
        pa.array(["d", "u", None, "it's"]),
        pa.array([7.0, None, 0.5, None]),
        pa.array([None, "7", None, None]),
        pa.array([True, False, None, True]),
        pa.array([{"x y": 1}, {"x y": None}, None, {"x y": 2**60}], pa.struct([("x y", pa.int64())])),
        pa.array([{"k": "d"}, {"k": None}, {}, None], pa.map_(pa.string(), pa.string())),
        pa.array([["d"], [], None, ["x"]]),
        pa.repeat(NO_VARIANT, 4),
    ],
    ["op", "n", "n", "gone", "s", "m", "l", "v"],
)
LINES = [
    b'{"op": "d", "n": 7.0, "gone": true, "s": {"x y": 1}, "m": {"k": "d"}, "l": ["d"]}',
    b'{"op": "u", "n": "7", "gone": false, "s": {"x y": null}, "m": {"k": null}, "l": []}',
    b'{"n": 0.50, "m": {}}',
    b'{"op": "it\'s", "gone": true, "s": {"x y": 1152921504606846976}, "l": ["x"]}',
]
CONDITIONS = [
    ("op = 'd'", [True, False, None, False]),
    ("op != 'd'", [False, True, None, True]),
    ("op = 'it''s'", [False, False, None, True]),
    ("op in ('d', 'u')", [True, True, None, False]),
    ("op not in ('d','u')", [False, False, None, True]),
    ("n = 7", [True, False, False, None]),
    ("n = 7.00", [True, False, False, None]),
    ("n = '7'", [False, True, False, None]),
    ("n = 0.5 or n = '7'", [False, True, True, None]),
    ("gone = true", [True, False, None, True]),
    ("gone = TRUE AND op = 'd'", [True, False, None, False]),
    ("not gone = true", [False, True, None, False]),
    ("op is null", [False, False, True, False]),
    ("op is not null", [True, True, False, True]),
    ("s is null", [False, False, True, False]),
    ("s.`x y` is null", [False, True, True, False]),
    (f"s.`x y` = {2**60}", [False, None, None, True]),
    ("nowhere is null", [True] * 4),
    ("nowhere = 1", [None] * 4),
    ("(op = 'd' or op = 'u') and not (n = 7)", [False, True, None, False]),
    ("m.k = 'd'", [True, None, None, None]),
    ("m.k is null", [False, True, True, True]),
    ("m is null", [False, False, False, True]),
    ("m = 'd' or s = 1", [False, False, None, None]),
    ("l = 'd'", [False, False, None, False]),
    ("l.x = 'd'", [None] * 4),
    ("l.x is null", [None, None, True, None]),
    ("op.x is null", [None, None, True, None]),
    ("not (op.x = 'd') or gone = true", [True, None, None, True]),
    ("v.x is null", [True] * 4),
    ("n > 6.99", [True, None, False, None]),
    ("n <= 0.5", [False, None, True, None]),
    ("n < '8'", [None, True, None, None]),
    ("n between 0.5 and 7", [True, None, True, None]),
    ("n not between 1 and 6", [True, None, True, None]),
    ("op >= 'd'", [True, True, None, True]),
    ("op < 'e'", [True, False, None, False]),
    ("op like '%\\'s'", [False, False, None, True]),
    ("op like '_'", [True, True, None, False]),
    ("op not like 'd%'", [False, True, None, True]),
    (r"op like '\%'", [False, False, None, False]),
    ("n like '7'", [None, True, None, None]),
    ("gone > 0", [None] * 4),
    ("l > 'a' or s < 1 or m like '%'", [None] * 4),
    ("op.x > 1", [None] * 4),
    (f"s.`x y` > {2**60 - 1}.5", [False, None, None, True]),
    (f"s.`x y` < {10**30}", [True, None, None, True]),
    ("m.k < 'e'", [True, None, None, None]),
    ("not n > 6", [False, None, True, None]),
    ("n > 6 or n < '8'", [True, True, None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CONDITIONS, ids=[c[0] for c in CONDITIONS])
def test_a_condition_is_what_sql_says(text: str, expected: list[bool | None]) -> None:
    condition = parse_condition(text)

    assert holds(condition, ROWS, STRUCT).to_pylist() == expected
    assert list(map(record_test(condition), map(parse, LINES))) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not a condition: it is empty"),
        (
            "op",
            "op is not understood in a condition: =, !=, <, <=, >, >=, BETWEEN, LIKE, IN, IS NULL, AND, OR, NOT and brackets are",
        ),
        ("op =", r"'op =' is not a condition: something is missing at '=' \(column 4\)"),
        ("op = d", "d stands where a value should: a text in single quotes, a number, true or false"),
        ("op = 'd", r"is not a condition: a quote or a backtick is open \(column 6\)"),
        ("when is null", r"unexpected token at 'when' \(column 1\); in backticks it is a field"),
        ("op = 'd' x", r"unexpected token at 'x' \(column 10\)"),
        ("op = 'd'\nand n m", r"unexpected token at 'm' \(column 16\)"),
        ("op in 'd'", "op IN 'd' is not understood"),
        ("op in (select 1)", "is not understood"),
        ("op is 'd'", "op IS 'd' is not understood"),
        ("op < x", r"x is nothing to compare with: a number, a text in single quotes, date .* \(column 6\)"),
        ("op = 1 and n < true", r"TRUE is nothing to compare with: .* \(column 12\)"),
        ("op < date '2026-02-30'", "is nothing to compare with"),
        ("op between 1 and n", "n is nothing to compare with"),
        ("op like 3", "op LIKE 3 is not understood"),
        ("op like 'a' escape '!'", "is not understood"),
        ("op ilike 'a'", "op ILIKE 'a' is not understood"),
        ("op = 1; op = 2", "is not understood"),
        ("op = null", "NULL stands where a value should"),
        ("op = 1L", "stands where a value should"),
        ("op = 1e2000", "1e2000 is beyond every number of a record"),
        ("op = 1e99999999999999999999", "is not a number"),
        ("1 = op", "1 stands where a field should"),
        ("lower(op) = 'd'", r"LOWER\(op\) stands where a field should"),
        ("current_date = 1", "CURRENT_DATE stands where a field should; in backticks it is one"),
    ],
)
def test_another_condition_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as error:
        parse_condition(text)

    assert "\033" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a.b.c.d.e.f.g = 1", tuple("abcdefg"), Decimal(1)),
        ("`a.b`.`C d`.`e``f` = 'x'", ("a.b", "C d", "e`f"), "x"),
        ("`a`.b.c.d.`e.f`.G = 'x'", ("a", "b", "c", "d", "e.f", "G"), "x"),
        ("key.value = -1.50", ("key", "value"), Decimal("-1.50")),
        ("Größe = 'ö'", ("Größe",), "ö"),
        ("`current_date` == true", ("current_date",), True),
        ("a = 1e5", ("a",), Decimal("1e5")),
        ("a = 12345678901234567890123.000000000000000001", ("a",), Decimal("12345678901234567890123.000000000000000001")),
        (r"a = 'it\'s \\'", ("a",), "it's \\"),
    ],
)  # fmt: skip
def test_paths_and_values_are_as_they_are_written(
    text: str, path: tuple[str, ...], value: str | Decimal | bool
) -> None:
    assert repr(parse_condition(text)) == repr(OneOf(path, (value,)))


def test_only_a_condition_pays_for_the_parser_of_sql() -> None:
    code = "import sys, driftline.core.settings.properties as s; s.from_properties(s.as_properties({'key': 'id'})); print('sqlglot' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout == "False\n"


def test_settings_of_a_key() -> None:
    given = {"key": "a.id, `b,c`", "order_by": "at", "delete_when": "op = 'd'"}
    settings = from_properties(as_properties(given))

    assert settings.row_key == RowKey((("a", "id"), ("b,c",)), (("at",),), parse_condition("op = 'd'"))
    assert settings.fields.of("a").needed
    assert settings.fields.at(("a", "id")).role == "key"
    assert settings.fields.of("at").role == "order"
    assert from_properties({}).row_key is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"order_by": "at"}, "order_by needs a key"),
        ({"deletes": "soft"}, "deletes needs a key"),
        ({"merge": "patch"}, "merge needs a key"),
        ({"key": "id", "merge": "patch", "deletes": "soft"}, "deletes = soft does not go with merge = patch"),
        ({"merge": "keep"}, "merge needs a key"),
        ({"key": "id", "merge": "keep", "deletes": "soft"}, "deletes = soft does not go with merge = keep"),
        (
            {"key": "id", "merge": "keep", "delete_when": "op = 'd'"},
            "delete_when does not go with merge = keep: leave it out, or set merge = replace",
        ),
        (
            {"key": "id", "merge": "keep", "envelope": "canal"},
            "envelope = canal, whose messages delete rows, does not go with merge = keep: leave it out, or set",
        ),
        ({"key": "id, id"}, "id is named twice"),
        ({"key": "id", "order_by": "id"}, "id is named twice"),
        ({"key": "a.element", "hints": {"a": "list<long>"}}, "a: no key is inside a list or a map"),
        ({"key": "id", "exclude": ["id"]}, "id is excluded, and the key needs it"),
        ({"key": "id", "policy": "strict"}, "id: the policy is strict, and fields of the key need preserve"),
        ({"key": "id", "hints": {"id": "list<long>"}}, "id: a key is not a list"),
        ({"key": "a.b", "hints": {"a": "map<string, long>"}}, "a: no key is inside a list or a map"),
        (
            {"key": "id", "order_by": "s.at", "hints": {"s": "list<struct<at: long>>"}},
            "s: no order is inside a",
        ),
        ({"key": "a b."}, "'a b.' is not a path"),
        ({"key": "id", "delete_when": "op ="}, "delete_when: 'op =' is not a condition"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        from_properties(as_properties(given))


def test_no_batch_changes_the_key_of_a_table() -> None:
    now = as_properties({"key": "id"})
    check_kept("t", now, now)
    check_kept("t", now, as_properties({"deletes": "hard"}))
    check_kept("t", now, {})

    with pytest.raises(UsageError, match="t has key = 'id', and a batch does not change that"):
        check_kept("t", now, as_properties({"key": "other"}))
    with pytest.raises(UsageError, match="t has no order_by") as asked:
        check_kept("t", now, as_properties({"order_by": "at"}))
    assert (
        asked.value.hint
        == "driftline alter \"ALTER TABLE t SET TBLPROPERTIES ('driftline.order-by' = 'at')\""
    )
    with pytest.raises(UsageError, match="t has deletes = 'hard'"):
        check_kept("t", now, as_properties({"deletes": "soft"}))
    with pytest.raises(UsageError, match="t has merge = 'replace'"):
        check_kept("t", now, as_properties({"merge": "patch"}))


class Tasks:
    """Tasks that make these batches, one each, in this process."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self.batches = batches

    def run(self, work, folder):  # type: ignore[no-untyped-def]
        results = []
        for number, batch in enumerate(self.batches):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("driftline.keys.slices.number_and_attempt", lambda _, n=number: (n, 0))
                results.append(work([batch.slice(0, 2), batch.slice(2)] if batch.num_rows else []))
        return results


def test_rows_wait_in_slices_until_some_of_them_live(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("_order", pa.string()), ("s", pa.struct([("x", pa.string())]))])
    rows = [{"a": i, "_order": None, "s": {"x": str(i)}} for i in range(7)]
    first, second = (pa.RecordBatch.from_pylist(part, schema) for part in (rows[:4], rows[4:]))
    empty = pa.RecordBatch.from_pylist([], schema)
    folder = BatchFolder(str(tmp_path))
    slices = Slices.of(Tasks(first, empty, second), folder, "t")  # type: ignore[arg-type]

    assert slices.rows == 7
    assert slices.read(["s", "a"]).to_pylist() == [{"s": r["s"], "a": r["a"]} for r in rows]
    numbers = [1, 2, 6]
    live = pa.table(
        {
            "row": numbers,
            "order": ["x", "y", "z"],
            "file": pa.nulls(3, pa.string()),
            "position": pa.nulls(3, pa.int64()),
        }
    )
    tasks = slices.tasks(None, live, RowsOf({"order": 1}))  # type: ignore[arg-type]
    made = [
        row
        for n in range(len(tasks.sizes))
        for b in tasks.maker.rows(n, lambda _: None)
        for row in b.to_pylist()
    ]
    assert made == [{**rows[i], "_order": order} for i, order in zip(numbers, "xyz", strict=True)]
    assert len(slices.tasks(None, live[:2], RowsOf({})).sizes) == 1  # type: ignore[arg-type]


def test_the_last_change_to_arrive_can_count_in_an_envelope_too() -> None:
    settings = {"key": "id", "envelope": "debezium", "order_by": "_arrival"}
    row_key = RowKey.of(settings)
    assert row_key is not None and (row_key.order_by, row_key.remembers) == ((), False)
    with pytest.raises(
        ValueError, match="on_snapshot = reconcile needs an envelope of Debezium's and its order"
    ):
        RowKey.of({**settings, "on_snapshot": "reconcile"})
