"""`replan` of tables that are hard: names, nests, wide types, and others that alter the table meanwhile."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from driftline.errors import UsageError
from driftline.lake import Lake
from driftline.operations.replan import replan
from lake.test_replan import columns, rows


def nested(depth: int, value: Any) -> Any:
    """Objects and lists in turns around a value."""
    for level in range(depth):
        value = [value, None] if level % 3 == 1 else {f"k {level}": value}
    return value


Records = list[dict[str, Any]]
HOSTILE: dict[str, list[Records]] = {
    "names with dots, quotes, backticks and blanks": [
        [{"a.b": 1, 'q"u`o\'te': {"x.y": 1, " ": [1]}, "select": 1, "Ä": 1, "#": 1}],
        [{"a.b": "s", 'q"u`o\'te': {"x.y": "z", " ": ["t"]}, "select": 1.5, "Ä": "ö", "#": 2.5}],
    ],
    "names that differ in case, or that columns beside them have": [
        [{"a": 1, "A": 1, "a_string": 1, "_rest": 1}],
        [{"a": "x", "A": 1.5, "a_string": "y", "_rest": "z"}],
    ],
    "deep nests": [[{"n": nested(24, 1)}], [{"n": nested(24, "x")}, {"n": nested(23, 2.5)}]],
    "keys that are data": [
        [{"m": {f"k{n}.{n}": {"v": n} for n in range(60)}}],
        [{"m": {f"j{n}`": {"v": str(n)} for n in range(60)}}, {"m": {}}, {"m": None}],
    ],
    "numbers of many digits": [
        [{"n": 10**37, "d": 1}, {"n": -(10**37), "d": 2**53 + 1}],
        [{"n": 0.1, "d": 2**63}, {"n": 7, "d": 0.5}],
    ],
    "fields that are null or empty at first": [
        [{"v": None, "e": [2], "o": {"y": 1}, "s": 1}],
        [{"v": 1, "e": [1], "o": {"x": 1}, "s": None}, {"v": "x", "e": ["y"], "o": {"x": "z"}, "s": [1]}],
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_replan_of_hostile_records_makes_the_table_of_one_batch(
    lake: Lake, table_name: str, name: str
) -> None:
    table, whole, batches = lake.table(table_name), lake.table(f"{table_name}_whole"), HOSTILE[name]
    records = [record for batch in batches for record in batch]
    whole.ingest(records)
    for batch in batches:
        table.ingest(batch)
    before = rows(table), columns(table)
    applied = table.replan(apply=True)
    assert applied.fields and table.replan().fields == ()
    assert columns(table) >= columns(whole)
    assert table.verify(records, exactly=True).ok
    table.undo()
    assert (rows(table), columns(table)) == before


def declared() -> list[pa.Table]:
    """Columns of types that JSON has not, beside one that drifts."""
    many = pa.array([[*range(5_000)], None], pa.large_list(pa.int64()))
    wide = pa.array([Decimal("9" * 28 + ".0000000001"), None], pa.decimal128(38, 10))
    moments = pa.array([1, 2], pa.timestamp("ns"))
    kinds = pa.array(["a", "b"]).dictionary_encode()
    first = {"wide": wide, "at": moments, "kind": kinds, "many": many, "void": pa.nulls(2), "n": [1, 2]}
    return [pa.table(first), pa.table({**first, "n": ["x", "y"]})]


def test_replan_keeps_wide_decimals_nanoseconds_dictionaries_and_long_lists(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    for batch in declared():
        table.ingest(batch)
    stay = "wide", "kind", "many"
    before = sorted(map(str, table.read().select(*stay).collect()))
    applied = table.replan(apply=True)
    # No column has nanoseconds, so they were texts beside a column without values.
    assert [field.field.path for field in applied.fields] == [("at",), ("n",)]
    assert sorted(map(str, table.read().select(*stay).collect())) == before
    read = table.read().collect()
    assert {row["at"] for row in read} == {f"1970-01-01T00:00:00.00000000{n}" for n in (1, 2)}
    assert sorted(row.n for row in read) == ["1", "2", "x", "y"]


def test_replan_that_is_applied_plans_what_others_made_of_the_table_meanwhile(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "n": 1, "m": 1, "gone": 1}])
    table.ingest([{"id": 2, "n": "x", "m": 2.5, "gone": "z"}])
    changes = [
        f"ALTER TABLE {table_name} RENAME COLUMN m TO m_2",
        f"ALTER TABLE {table_name} DROP COLUMN gone_string",
    ]

    def altered(phase: str) -> None:
        """Have another writer alter the table once it is planned."""
        if phase == "committing" and changes:
            lake.alter(changes.pop(0))

    assert {field.field.path for field in table.replan().fields} == {("n",), ("m",), ("gone",)}
    applied = replan(table.format, apply=True, progress=altered)
    assert not changes
    assert ("n",) in {field.field.path for field in applied.fields}
    assert "gone_string" not in str(table.schema())
    assert sorted(row.n for row in table.read().collect()) == ["1", "x"]
    with pytest.raises(UsageError):
        table.replan("m..x")
