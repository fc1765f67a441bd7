"""Defaults: what a literal becomes in a column of each type, or that it cannot; and that a schema keeps them."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from driftline.core.changes.defaults import default_json, literal_of
from driftline.core.changes.values import Literal
from driftline.core.schema.schema_json import from_json, to_json
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    VARIANT,
    Default,
    Field,
    List,
    Primitive,
    Schema,
    Struct,
    decimal,
    fixed,
)
from driftline.errors import DataError

AN_ID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


@pytest.mark.parametrize(
    ("type_", "literal", "kept"),
    [
        (BOOLEAN, False, False),
        (INT, -(2**31), -(2**31)),
        (INT, 7.0, 7),
        (LONG, 2**63 - 1, 2**63 - 1),
        (FLOAT, 2**24, 2.0**24),
        (DOUBLE, Decimal("0.1"), 0.1),
        (DOUBLE, 2**53, 2.0**53),
        (DOUBLE, Decimal("-1e300"), -1e300),
        (decimal(9, 2), Decimal("1.5"), "1.50"),
        (decimal(38, 0), 10**37, "1" + "0" * 37),
        (decimal(38, 18), Decimal("12345678901234567890.000000000000000001"), "12345678901234567890.000000000000000001"),
        (STRING, "it's", "it's"),
        (UUID, AN_ID.upper(), AN_ID),
        (UUID, uuid.UUID(AN_ID), AN_ID),
        (BINARY, b"\0\xff", "00FF"),
        (fixed(2), b"ab", "6162"),
        (DATE, "2026-01-02", "2026-01-02"),
        (DATE, date(2026, 1, 2), "2026-01-02"),
        (TIME, time(1, 2, 3), "01:02:03"),
        (TIMESTAMP, "2026-01-02 03:04:05", "2026-01-02T03:04:05+00:00"),
        (TIMESTAMP, "2026-01-02T03:04:05.000001+01:00", "2026-01-02T02:04:05.000001+00:00"),
        (TIMESTAMP, datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (TIMESTAMP_NTZ, "2026-01-02T03:04:05", "2026-01-02T03:04:05"),
        (TIMESTAMP_NTZ, date(2026, 1, 2), "2026-01-02T00:00:00"),
        (Struct((Field("a", INT),)), None, None),
    ],
)  # fmt: skip
def test_kept(type_: Primitive, literal: Literal, kept: Default) -> None:
    made = default_json(type_, literal)
    assert (made, type(made)) == (kept, type(kept))
    assert default_json(type_, literal_of(type_, made)) == made
    held = Schema(Struct((Field("a", type_, 1, initial_default=made, write_default=made),)))
    assert from_json(to_json(held)) == held


@pytest.mark.parametrize(
    ("type_", "literal"),
    [
        (BOOLEAN, 1),
        (BOOLEAN, "true"),
        (INT, True),
        (INT, 2**31),
        (INT, Decimal("1.5")),
        (INT, "7"),
        (LONG, 2**63),
        (FLOAT, 2**24 + 1),
        (DOUBLE, 2**53 + 1),
        (DOUBLE, Decimal("1e400")),
        (DOUBLE, float("nan")),
        (DOUBLE, True),
        (decimal(4, 2), Decimal("1.555")),
        (decimal(4, 2), 100),
        (decimal(4, 2), "1.50"),
        (STRING, 7),
        (UUID, "no"),
        (BINARY, "ab"),
        (fixed(3), b"ab"),
        (DATE, "2026-02-30"),
        (DATE, datetime(2026, 1, 2, tzinfo=UTC)),
        (TIME, "25:00:00"),
        (TIMESTAMP, "yesterday"),
        (TIMESTAMP, 0),
        (TIMESTAMP_NTZ, "2026-01-02T03:04:05Z"),
        (VARIANT, 1),
        (List(INT), "x"),
        (Struct((Field("a", INT),)), 1),
    ],
)
def test_refused(type_: Primitive, literal: Literal) -> None:
    with pytest.raises(DataError):
        default_json(type_, literal)


def test_old_rows_and_new_ones_may_differ() -> None:
    f = Field("a", Struct((Field("b", INT, 2, initial_default=7, write_default=None),)), 1)
    assert from_json(to_json(Schema(Struct((f,))))).struct.fields == (f,)
