"""Which column has values of which field: what a plan routes, spelled out."""

from __future__ import annotations

import pytest

from core.shapes import drift
from driftline.core.columns.siblings import origins
from driftline.core.schema.types import dotted
from driftline.core.settings.table import TableSettings


def lines(*batches: str, before: str = "", settings: TableSettings | None = None) -> list[str]:
    planned = drift(*batches, before=before, settings=settings)
    return [
        f"{dotted(o.column)} {'=' if o.exact else '~'} {dotted(o.path)} {' '.join(map(str, o.types))}".strip()
        for o in origins(planned.route, planned.schema)
    ]


@pytest.mark.parametrize(
    ("before", "data", "says"),
    [
        ("", "a: long", ["a = a long"]),
        ("a: double", "a: long", ["a ~ a long"]),
        ("a: long", "b: date", ["b = b date"]),  # nothing of a comes in
        ("a: long", "a: string", ["a_string = a string"]),
        ("", "l: {x: long, s: string}[1]", ["l.element.x = l.element.x long", "l.element.s = l.element.s string"]),
        ("", "l: long[2]", ["l.element.element = l long[2]"]),
        ("", "e: []", []),
        ("", "v: {w: {x: date}}", ["v.w.x = v.w.x date"]),
        (
            "m: map<string, long>",
            "m: map<string, long>",
            ["m.key = m map<string>", "m.value = m.value long"],
        ),
        (
            "m: map<string, {k: double}>",
            "m: map<string, {k: long}>",
            ["m.key = m map<string>", "m.value.k ~ m.value.k long"],
        ),
    ],
)  # fmt: skip
def test_columns_and_their_fields(before: str, data: str, says: list[str]) -> None:
    assert lines(data, before=before) == says


def test_a_field_that_drifted_fills_several_columns() -> None:
    drifted = lines("a: long", "a: long | string")
    assert drifted[0] == "a = a long"
    assert drifted[1].startswith("a_string ~ a ")


def test_what_goes_to_the_rest_is_told() -> None:
    found = lines("a: long, b: long, c: string", settings=TableSettings(max_columns=2, beyond="rest"))
    assert any(line.startswith("_rest.value ~ ") for line in found)
