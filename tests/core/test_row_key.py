"""Rows by key, as a person sets it: paths, and the condition that deletes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from driftline.core.planning.row_key import RowKey, check_kept, parse_condition
from driftline.core.schema.naming import mark
from driftline.core.schema.types import BOOLEAN, DOUBLE, LONG, STRING, Field, Struct
from driftline.errors import UsageError
from driftline.keys.columns import holds
from driftline.keys.slices import RowsOf, Slices
from driftline.settings import as_properties, from_properties
from driftline.write import BatchFolder

STRUCT = Struct(
    (
        Field("op", STRING, 1),
        Field("n", DOUBLE, 2),
        Field("n_string", STRING, 3, doc=mark("n")),
        Field("gone", BOOLEAN, 4),
        Field("s", Struct((Field("x y", LONG, 6),)), 5),
    )
)
ROWS = pa.table(
    {
        "op": pa.array(["d", "u", None, "it's"]),
        "n": pa.array([7.0, None, 0.5, None]),
        "n_string": pa.array([None, "7", None, None]),
        "gone": pa.array([True, False, None, True]),
        "s": pa.array([{"x y": 1}, {"x y": None}, None, {"x y": 2**60}], pa.struct([("x y", pa.int64())])),
    }
)
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
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CONDITIONS, ids=[c[0] for c in CONDITIONS])
def test_a_condition_is_what_sql_says(text: str, expected: list[bool | None]) -> None:
    flags = holds(parse_condition(text), ROWS, STRUCT, "upsolver_evolved_from:")

    assert flags.to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a field should stand where 'the end' stands"),
        ("op", "=, !=, IN or IS should stand behind op"),
        ("op = d", "a value should stand where 'd' stands"),
        ("op = 'd", '"\'d" is not understood'),
        ("op = 'd' x", "the end should stand where 'x' stands"),
        ("op in 'd'", r"\( should stand"),
        ("op is 'd'", "NULL should stand"),
        ("op < 3", "'< 3' is not understood"),
    ],
)
def test_another_condition_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_condition(text)


def test_settings_of_a_key() -> None:
    given = {"key": "a.id, `b,c`", "order_by": "at", "delete_when": "op = 'd'"}
    settings = from_properties(as_properties(given))

    assert settings.row_key == RowKey((("a", "id"), ("b,c",)), (("at",),), parse_condition("op = 'd'"))
    assert settings.contract.of("a").needed
    assert settings.contract.at(("a", "id")).role == "key"
    assert settings.contract.of("at").role == "order"
    assert from_properties({}).row_key is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"order_by": "at"}, "order_by needs a key"),
        ({"deletes": "soft"}, "deletes needs a key"),
        ({"key": "id, id"}, "id is named twice"),
        ({"key": "id", "order_by": "id"}, "id is named twice"),
        ({"key": "a.element"}, "no key or order is inside a list"),
        ({"key": "id", "exclude": ["id"]}, "id is excluded, and the key needs it"),
        (
            {"key": "id", "delete_when": "a.op = 1", "exclude": ["a"]},
            "a is excluded, and delete_when needs it",
        ),
        ({"key": "id", "policy": "strict"}, "id: the policy is strict, and fields of the key need preserve"),
        ({"key": "id", "hints": {"id": "list<long>"}}, "id: a key is no list"),
        ({"key": "a b."}, "'a b.' is not a path"),
        ({"key": "id", "delete_when": "op ="}, "a value should stand"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        from_properties(as_properties(given))


def test_the_key_of_a_table_stays() -> None:
    now = as_properties({"key": "id"})
    check_kept("t", now, now)
    check_kept("t", now, as_properties({"deletes": "hard"}))
    check_kept("t", now, {})

    with pytest.raises(UsageError, match="t has key = 'id': key is set when a table is made"):
        check_kept("t", now, as_properties({"key": "other"}))
    with pytest.raises(UsageError, match="t has no order_by"):
        check_kept("t", now, as_properties({"order_by": "at"}))
    with pytest.raises(UsageError, match="t has deletes = 'hard'"):
        check_kept("t", now, as_properties({"deletes": "soft"}))


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
            "bare": [False] * 3,
            "file": pa.nulls(3, pa.string()),
            "position": pa.nulls(3, pa.int64()),
        }
    )
    tasks = slices.tasks(None, live, RowsOf({"order": 1}, lambda rows: rows))  # type: ignore[arg-type]
    made = [
        row
        for n in range(len(tasks.sizes))
        for b in tasks.maker.rows(n, lambda _: None)
        for row in b.to_pylist()
    ]
    assert made == [{**rows[i], "_order": order} for i, order in zip(numbers, "xyz", strict=True)]
    assert len(slices.tasks(None, live[:2], RowsOf({}, lambda rows: rows)).sizes) == 1  # type: ignore[arg-type]
