"""The layout of a new table: as it was asked for, or refused by the name of what is in the way."""

from __future__ import annotations

import pytest

from core.shapes import drift
from driftline.core.history.entries import Version, partition_text, sort_text
from driftline.core.schema.definition import Definition
from driftline.core.settings.creation import Creation
from driftline.core.settings.properties import as_properties, creation, from_properties
from driftline.core.settings.table import TableSettings
from driftline.errors import DriftlineError, UsageError

BATCH = "at: timestamp, id: long, name: string, a: {b: long}"


def made(batch: str, settings: TableSettings | None = None, **asked: str) -> Definition:
    settings = settings or TableSettings()
    schema = drift(batch, settings=settings).schema
    return Creation(**asked).definition("shop.orders", Definition(), schema, settings, None)


def test_a_table_is_made_as_it_was_asked_for() -> None:
    asked = {"partition_by": "day(at) as d, bucket(16, ID)", "sort_by": "name desc, a.b nulls last"}
    table = made(BATCH, **asked, format_version="3")
    laid = Version(0, table)
    assert partition_text(laid) == ["day(at) as d", "bucket(16, id)"]
    assert sort_text(laid) == ["name desc", "a.b nulls last"]
    assert table.format_version == 3
    assert list(Creation(**asked, format_version="3").differences("shop.orders", table, None)) == []


def test_without_wishes_it_has_no_layout() -> None:
    table = made(BATCH)
    assert (table.partition, table.sort, table.format_version) == ((), (), 2)


REFUSED = [
    ({"partition_by": "day(seen)"}, BATCH, "by seen: its first batch has no such field"),
    ({"partition_by": "a.c"}, BATCH, "by a.c: its first batch has no such field"),
    ({"partition_by": "id"}, "id: long | string", "by id: it is long and string in the first batch"),
    ({"partition_by": "day(name)"}, BATCH, "cannot partition or sort by day(name): name is a string"),
    ({"partition_by": "a"}, BATCH, "cannot partition or sort by a: a is a"),
    ({"partition_by": "day(at), day(at)"}, BATCH, "is partitioned by day(at) already"),
    ({"partition_by": "day(at)"}, BATCH + ", at_day: long", "at_day is a column"),
    ({"sort_by": "lower(name)"}, BATCH, "is sorted by columns and transforms of them"),
    ({"sort_by": "nam"}, BATCH, "there is no column nam"),
]


@pytest.mark.parametrize(("asked", "batch", "why"), REFUSED)
def test_what_cannot_be_is_refused_by_name(asked: dict[str, str], batch: str, why: str) -> None:
    with pytest.raises(DriftlineError, match=r"shop\.orders") as raised:
        made(batch, **asked)
    assert why in raised.value.message
    assert raised.value.hint


def test_a_hint_says_which_column_is_meant() -> None:
    settings = from_properties(as_properties({"hints": {"id": "long", "seen": "timestamp"}}))
    table = made("id: string | long", settings, partition_by="id, hour(seen)")
    assert partition_text(Version(0, table)) == ["id", "hour(seen)"]
    assert [f.name for f in table.schema.struct.fields] == ["id", "seen", "id_string"]


def test_a_table_that_is_there_otherwise_says_so() -> None:
    table = made(BATCH, partition_by="day(at)", sort_by="id")
    asked = Creation("hour(at)", "id desc", "3")
    version, partition, sort = asked.differences("shop.orders", table, None)
    assert version.startswith("shop.orders is of format v2")
    assert "ALTER TABLE shop.orders SET PARTITIONED BY (hour(at))" in partition
    assert "ALTER TABLE shop.orders SET SORTED BY (id desc)" in sort
    (gone,) = Creation("day(gone)").differences("shop.orders", table, None)
    assert "not partitioned by day(gone)" in gone


WRONG = [
    ({"partition_by": "day(at"}, ") is missing"),
    ({"partition_by": "weekday(at)"}, "there is no transform weekday"),
    ({"partition_by": "day(at) and id"}, "nothing more expected"),
    ({"sort_by": "at desc id"}, "nothing more expected"),
    ({"sort_by": "(at"}, "is missing at the end"),
    ({"format_version": "4"}, "format_version = '4' is not possible"),
]


@pytest.mark.parametrize(("given", "why"), WRONG)
def test_what_cannot_be_read_is_said_before_anything_starts(given: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError) as raised:
        as_properties(given)
    assert why in raised.value.message


def test_a_table_keeps_its_layout_and_not_the_setting() -> None:
    asked, properties = creation(as_properties({"partition_by": "day(at)", "dates": "off"}))
    assert asked == Creation("day(at)")
    assert properties == {"driftline.dates": "off"}
