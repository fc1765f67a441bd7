"""Spark's SQL of conversions, held against the conversions in Arrow: the same values, of the same types, null where those are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from driftline.convert.kernels import convert, converts, dates_of
from driftline.convert.types import arrow_type
from driftline.core.columns.folding import resolution
from driftline.core.planning.conversions import FITS, ROUTES_TOO, fits
from driftline.core.schema.date_pattern import parse_hint
from driftline.core.schema.naming import mark
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    List,
    Primitive,
    Schema,
    Struct,
    Type,
    decimal,
    peel,
)
from driftline.core.settings.csv import Signs
from driftline.readers.csv.types import as_json
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.runtime.spark_version import as_arrow, from_arrow
from driftline.sql.casts import as_json as as_json_sql
from driftline.sql.casts import convert as cast
from driftline.sql.casts import date_of
from driftline.sql.fold import Fold, exactly
from driftline.sql.lost import Folding
from driftline.sql.quoting import name, spark_type

RANDOM = random.Random(7)
UNITS = (None, "s", "ms", "us", "ns")
_MOMENTS = [
    datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1582, 10, 10), datetime(2024, 1, 2, 12), datetime(2262, 4, 11, 23, 47, 16, 854775),
    *(datetime(1970, 1, 1) + timedelta(microseconds=RANDOM.randint(-10**14, 10**14)) for _ in range(20)),
    *(datetime(1970, 1, 1) + timedelta(milliseconds=RANDOM.randint(-10**11, 10**11)) for _ in range(20)),
]  # fmt: skip
_LONGS = [
    0, 1, -1, 2**24, 2**24 + 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 10**11 - 1, 10**11, 10**14, 10**17,
    253_402_300_799, 253_402_300_800, -62_135_596_800, -62_135_596_801, 1_704_196_800_000,
    *(RANDOM.randint(-(10**d), 10**d) for d in range(1, 19) for _ in range(3)),
]  # fmt: skip
_DOUBLES = [
    0.0, -0.0, 1.0, 100.0, 0.1, 1e15, 123456789.0, 1e16, 1e22, 1e-5, 0.001, 5e-324, 1.7976931348623157e308, 2.0**53,
    float("inf"), float("-inf"), float("nan"), *(RANDOM.uniform(-(10.0**e), 10.0**e) for e in range(-9, 18)),
]  # fmt: skip
VALUES: dict[Primitive, Sequence[Any]] = {
    BOOLEAN: [True, False],
    INT: [x for x in _LONGS if abs(x) < 2**31],
    LONG: _LONGS,
    FLOAT: [0.0, -0.0, 1.5, 0.1, 1e10, 1e22, 1e-5, 16777216.0, float("nan"), float("inf")],
    DOUBLE: _DOUBLES,
    decimal(9, 2): [Decimal(x) / 100 for x in (0, 1, 150, -150, 10000, 999999999, -999999999)],
    decimal(38, 18): [Decimal("0.000000000000000001"), Decimal(10**19), Decimal("-1.5"), Decimal("0E-18")],
    DATE: [m.date() for m in _MOMENTS],
    TIMESTAMP: [m.replace(tzinfo=UTC) for m in _MOMENTS],
    TIMESTAMP_NTZ: _MOMENTS,
    STRING: ["", "é", "1", "\0", "\U0001f600", "a'b\\c\n"],
    BINARY: [
        b"",
        b"ab",
        b"\xc3\xa9",
        b"\xff",
        b"\0",
        b"\xef\xbf\xbd",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
    ],
}
DECIMALS = (decimal(9, 2), decimal(12, 4), decimal(19, 0), decimal(38, 18), decimal(38, 0))


def arrays() -> tuple[list[str], list[pa.Array]]:
    """A column for each type, of as many rows as the longest has."""
    rows = max(map(len, VALUES.values())) + 1
    padded = [pa.array([*v, *[None] * (rows - len(v))], arrow_type(t)) for t, v in VALUES.items()]
    return [f"c{i}" for i in range(len(VALUES))], padded


def pairs() -> Iterator[tuple[Primitive, Primitive]]:
    for source in VALUES:
        for target in (*VALUES, *DECIMALS):
            asked = fits(source, target) or target.name in ROUTES_TOO.get(source.name, ())
            if source != target and asked and converts(source, target):
                yield source, target


def shown(array: pa.Array) -> list[str]:
    """The values, so that NaN is NaN and -0.0 is not 0.0."""
    return [repr(value.astimezone(UTC)) if _zoned(value) else repr(value) for value in array.to_pylist()]


def _zoned(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def in_spark(
    spark: SparkSession, names: Sequence[str], columns: Sequence[pa.Array], sql: Sequence[str]
) -> list[pa.Array]:
    """The expressions over the columns, in one job."""
    typed = [f"cast({name(n)} as {spark_type(t)}) as {name(n)}" for n, t in zip(names, VALUES, strict=True)]
    frame = from_arrow(spark, pa.table(list(columns), list(names))).selectExpr(*typed).coalesce(1)
    made = as_arrow(frame.selectExpr(*(f"{x} as r{i}" for i, x in enumerate(sql))))
    return [column.combine_chunks() for column in made.columns]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_what_converts_does_so_alike(spark: SparkSession, ansi: str) -> None:
    assert {s.name for s in VALUES} | {"time", "uuid", "fixed", "variant"} == {*FITS}
    names, columns = arrays()
    column = dict(zip(VALUES, zip(names, columns, strict=True), strict=True))
    cases = [
        (s, t, unit)
        for s, t in pairs()
        for unit in (UNITS if {s.name, t.name} & {"date", "timestamp", "timestamp_ntz"} else (None,))
    ]
    sql = [f(column[s][0], s, t, unit) for s, t, unit in cases for f in (cast, exactly)]
    with configured(spark, {"spark.sql.ansi.enabled": ansi}):
        made = iter(in_spark(spark, names, columns, sql))
    wrong = []
    for s, t, unit in cases:
        expected = _spelled(convert(column[s][1], s, t, unit), s, t)
        for which in (cast, exactly):
            found = _spelled(next(made), s, t)
            rows = zip(shown(column[s][1]), shown(expected), shown(found), strict=True)
            if which is exactly and not fits(s, t):  # there the value decides: it must read back
                rows = ((v, f if f == "None" else e, f) for v, e, f in rows)  # type: ignore[assignment]
            wrong += [(str(s), str(t), unit, which.__name__, *row) for row in rows if row[1] != row[2]]
    assert wrong == [], wrong[:9]


def _spelled(values: pa.Array, source: Primitive, target: Primitive) -> pa.Array:
    """Fractions as text by what they read back as: Java spells 1e+22 as 1.0E22, both of them exact."""
    if target != STRING or source not in (FLOAT, DOUBLE):
        return values
    numbers = [None if text is None else float(text) for text in values.to_pylist()]
    return pa.array(numbers, pa.float64()).cast(arrow_type(source))


FOLDED: list[Type] = [
    STRING,
    LONG,
    DOUBLE,
    decimal(38, 18),
    TIMESTAMP,
    TIMESTAMP_NTZ,
    BINARY,
    List(STRING),
    List(DOUBLE),
]


@pytest.mark.nightly
def test_columns_of_a_field_fold_into_one_alike(spark: SparkSession) -> None:
    """Each row has a value in one of the columns: it is in the folded one, or told as lost."""
    table = Schema(
        Struct(
            tuple(
                Field(f"f_{i}" if i else "f", t, i + 1, doc=mark("f") if i else None)
                for i, t in enumerate(VALUES)
            )
        )
    )
    names = [f.name for f in table.struct.fields]
    sizes = [len(v) for v in VALUES.values()]
    columns = [
        pa.array([None] * sum(sizes[:i]) + [*v] + [None] * sum(sizes[i + 1 :]), arrow_type(t))
        for i, (t, v) in enumerate(VALUES.items())
    ]
    foldings = [Folding(table.struct, resolution(table, ("f",), to), Fold()) for to in FOLDED]
    sql = [x for f in foldings for x in (f.rows({(): []})[-1].rpartition(" as ")[0], f"{f.folds()}[0].lost")]
    with configured(spark, PLAIN):
        made = iter(in_spark(spark, names, columns, sql))
    for to, folding in zip(FOLDED, foldings, strict=True):
        values, losses = next(made), next(made)
        dim, base = peel(to)
        assert isinstance(base, Primitive)
        for _ in range(dim):
            values = pc.list_element(values, 0)
        (site,) = folding.resolution.sites
        for i, (source, start) in enumerate(
            zip(VALUES, [sum(sizes[:i]) for i in range(len(sizes))], strict=True)
        ):
            found = values.slice(start, sizes[i])
            if source == base or fits(source, base):
                expected = convert(columns[i].slice(start, sizes[i]), source, base)
                assert shown(_spelled(found, source, base)) == shown(_spelled(expected, source, base)), (
                    source,
                    to,
                )
            places = [c.name for c in site.folded]
            if names[i] in places:
                lost = [row[places.index(names[i])] for row in losses.slice(start, sizes[i]).to_pylist()]
                assert lost == found.is_null().to_pylist(), (source, to)
            else:
                assert found.null_count == len(found), (source, to)


PATTERNS = [
    "date('dd.MM.yyyy')", "date('d.M.yyyy')", "date('EEE, d MMM yyyy')", "date('EEEE d MMMM yyyy')", "timestamp('M/d/yyyy h:mm:ss a')",
    "timestamp('yyyyMMddHHmmssSSS')", "timestamp(\"d.M.yyyy 'um' H:m\")", "date('yyyy-MM-dd')",
]  # fmt: skip
WRITTEN = [
    "01.03.2026", "1.3.2026", "31.04.2026", "29.02.2024", "01.01.0000", "01.03.2026\n", " 01.03.2026", "Sun, 1 Mar 2026", "Mon, 1 Mar 2026",
    "Sunday 1 March 2026", "Sunday 1 march 2026", "3/1/2026 12:30:00 AM", "3/1/2026 12:30:00 PM", "3/1/2026 1:05:09 PM", "3/1/2026 13:05:09 PM",
    "20260301010203004", "20260301240000000", "1.3.2026 um 9:05", "1.3.2026 um 9:5", "2026-03-01", "", "x",
]  # fmt: skip


def test_dates_by_a_pattern_are_read_alike(spark: SparkSession) -> None:
    patterns = [pattern for hint in PATTERNS if (pattern := parse_hint(hint).pattern)]
    texts = pa.array(WRITTEN)
    frame = spark.createDataFrame([(text,) for text in WRITTEN], "c1 string").coalesce(1)
    made = frame.selectExpr(*(date_of("c1", pattern, pattern.type) for pattern in patterns)).collect()
    expected = [dates_of(texts, pattern).to_pylist() for pattern in patterns]
    assert [list(column) for column in zip(*made, strict=True)] == expected
    assert all(any(column) for column in expected)


def test_numbers_by_other_signs_are_spelled_alike(spark: SparkSession) -> None:
    texts = ["1,5", "1.5", "1.234,50", "-1.234.567", "0.123", "12.34", "1,234.5", "007", "", "a,b.c\n"]
    signs = [Signs(","), Signs(",", "."), Signs(".", ",")]
    frame = spark.createDataFrame([(text,) for text in texts], "c1 string").coalesce(1)
    made = frame.selectExpr(*(as_json_sql("c1", each) for each in signs)).collect()
    expected = [as_json(pa.array(texts), each).to_pylist() for each in signs]
    assert [list(column) for column in zip(*made, strict=True)] == expected
