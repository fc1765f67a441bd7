"""Names of tables: what is one, and what is a part of a table's history to Spark."""

import pytest

from driftline.core.schema.naming import must_take_records, table_parts
from driftline.errors import UsageError

NONE = ["", "movies", "a.", ".b", "a..b", "a. ", "a.b\n", "a.\x00"]
SELECTORS = [
    "ns.t.branch_b1",
    "ns.t.tag_x",
    "ns.t.at_timestamp_1700000000000",
    "ns.t.snapshot_id_7",
    "a.b.t.branch_",
    "ns.t.branch_ü\u00a0",
]


@pytest.mark.parametrize(
    "name",
    ["a.b", "a.b.c", "a b.c", "shop.tag_prices", "shop.branch_b1", "a.t.at_timestamp_x", "a.t.branch", "ü.ß"],
)
def test_what_is_a_table(name):
    assert ".".join(table_parts(name)) == name


@pytest.mark.parametrize("name", [*NONE, *SELECTORS])
def test_what_is_none(name):
    with pytest.raises(UsageError, match="is not a table name"):
        table_parts(name)


def test_a_part_of_a_tables_history_is_told_as_such():
    with pytest.raises(UsageError) as told:
        table_parts("ns.t.branch_b1")
    assert (
        told.value.message == "'ns.t.branch_b1' is not a table name: to Spark it is the branch 'b1' of ns.t"
    )
    assert str(told.value.hint).startswith("write ns.t;")


def test_a_ducklake_has_namespaces_of_one_part():
    with pytest.raises(UsageError, match="is not a DuckLake table name"):
        table_parts("a.b.c", two=True)


def test_a_quarantine_takes_no_records_of_its_own():
    must_take_records("s.q")
    with pytest.raises(UsageError, match=r"s\.q__quarantine is the quarantine of s\.q\ningest into s\.q"):
        must_take_records("s.q__quarantine")
