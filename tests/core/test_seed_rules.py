"""The seed's examples and rules, and sections 4 and 5 of the evolution rules, as tables in the notation of `shapes`.

A case is: what it is, the table before, the batches one after the other, the table after.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.shapes import batch, changes, drift, paths, routes, same, schema, show
from driftline.core.planning.planner import plan
from driftline.core.schema.naming import marked_key
from driftline.core.schema.types import UUID, Schema, Struct, dotted
from driftline.core.settings.fields import field_settings
from driftline.core.settings.table import TableSettings

NEW = ""

SEED = [
    ("example 1: a list of longs, then a string",
     NEW, ["a: long[1]", "a: string"],
     "a: long[1], a_string@a: string, a_array_string@a: string[1]"),
    ("example 2: strings of four dimensions at once",
     NEW, ["a: {b: string | string[1] | string[2] | string[3]}"],
     "a: {b_string@b: string, b_array_string@b: string[1], b_array2_string@b: string[2], b: string[3]}"),
    ("example 3: boolean, long and double at once",
     NEW, ["a: {b: boolean | long | double}"],
     "a: {b_boolean@b: boolean, b: double}"),
    ("example 4: records of four dimensions at once",
     NEW, ["a: {b: {c: string} | {x: string}[1] | {y: string}[2] | {z: string}[3]}"],
     """a: {b_record@b: {c: string}, b_array_record@b: {x: string}[1], b_array2_record@b: {y: string}[2],
            b: {c: string, x: string, y: string, z: string}[3]}"""),
    ("rule 1, initial field creation: the largest dimension is the main representation",
     NEW, ["a: long[3]"],
     "a: long[3]"),
    ("rule 1, initial field creation: a column that the user defined precedes",
     "a: string", ["a: long | {x: long}"],
     "a: string, a_record@a: {x: long}"),
    ("rule 2, narrower types: a long goes into the string that is there",
     "a: string", ["a: long"],
     "a: string"),
    ("rule 3, wider or non-convertible types: boolean, then date",
     NEW, ["a: boolean", "a: date"],
     "a: boolean, a_date@a: date, a_string@a: string"),
    ("rule 4.1, precedence: an existing field retains its name",
     NEW, ["a: long", "a: {x: long}"],
     "a: long, a_record@a: {x: long}"),
    ("rule 4.2, precedence: records",
     NEW, ["a: {x: long} | long[2] | string"],
     "a: {x: long}, a_array2_long@a: long[2], a_string@a: string, a_array2_string@a: string[2]"),
    ("rule 4.3, precedence: arrays, largest dimension and widest type",
     NEW, ["a: string | boolean[1] | long[1]"],
     "a_string@a: string, a_array_boolean@a: boolean[1], a_array_long@a: long[1], a: string[1]"),
    ("rule 4.4, precedence: primitives, widest type",
     NEW, ["a: long | string"],
     "a_long@a: long, a: string"),
    ("rule 5, field naming conventions: type and dimension",
     NEW, ["coordinates: string", "coordinates: long[3]"],
     """coordinates: string, coordinates_array3_long@coordinates: long[3],
        coordinates_array3_string@coordinates: string[3]"""),
    ("rule 6, names must be non-empty: the observer drops such keys, and the planner names none so",
     NEW, ['"": long!typed'],
     '_@"": long'),
    ("rule 7, field documentation: size 4, then 2.3",
     NEW, ["size: long", "size: double"],
     "size: long, size_double@size: double"),
    ("rule 7, field documentation: a suffix without it is the user's own",
     "start: boolean, start_date: date", ["start: date, start_date: date"],
     "start: boolean, start_date: date, start_date_2@start: date, start_string@start: string"),
    ("rule 8, routing: all five columns are there",
     "a: long, a_date@a: date, a_string@a: string, a_array_date@a: date[1], a_array_string@a: string[1]",
     ["a: long | date | string | date[1] | string[1]"],
     "a: long, a_date@a: date, a_string@a: string, a_array_date@a: date[1], a_array_string@a: string[1]"),
    ("rule 9, edge case 1: double and long at first sight",
     NEW, ["a: long | double"],
     "a: double"),
    ("rule 9, edge case 1: in each dimension by itself",
     NEW, ["a: long | double | long[1]"],
     "a_double@a: double, a_array_long@a: long[1], a: double[1]"),
    ("rule 10, edge case 2: timestamp and long at once",
     NEW, ["started: timestamp | long"],
     "started_timestamp@started: timestamp, started: long"),
    ("rule 10, edge case 2: timestamp, then long",
     NEW, ["started: timestamp", "started: long"],
     "started: timestamp, started_long@started: long"),
    ("rule 10, edge case 2: long, then timestamp",
     NEW, ["started: long", "started: timestamp"],
     "started: long"),
]  # fmt: skip

PLANNING = [
    ("in place: int to long", "a: int", ["a: long"], "a: long"),
    ("in place: float to double", "a: float", ["a: double"], "a: double"),
    ("in place: decimal to more digits", "a: decimal(5, 2)", ["a: decimal(9, 2)"], "a: decimal(9, 2)"),
    ("in place: the elements of a list", "a: int[2]", ["a: long[1]"], "a: long[2]"),
    ("in place: the values of a map", "m: map<string, int>", ["m: map<string, long>"], "m: map<string, long>"),
    ("in place: not for a larger dimension",
     "a: int", ["a: long[1]"],
     "a: int, a_array_long@a: long[1]"),
    ("in place: not to another family", "a: int", ["a: double"], "a: int, a_double@a: double"),
    ("in place: not to another scale",
     "a: decimal(5, 2)", ["a: decimal(9, 4)"],
     "a: decimal(5, 2), a_decimal_9_4@a: decimal(9, 4)"),
    ("in place, beside what is missing", "a: int", ["a: long | string"], "a: long, a_string@a: string"),
    ("first sight: a family is one column",
     NEW, ["a: decimal(7, 2) | decimal(5, 2) | decimal(9, 2), b: int | long, c: double | float"],
     "a: decimal(9, 2), b: long, c: double"),
    ("first sight: a family is one type, as it would be later",
     NEW, ["a: int[1] | long"],
     "a: long[1], a_long@a: long"),
    ("first sight: types without a common member",
     NEW, ["a: double | decimal(38, 18)"],
     "a_double@a: double, a_decimal_38_18@a: decimal(38, 18), a: string"),
    ("first sight: bytes stay out of the join", NEW, ["a: binary | long"], "a_binary@a: binary, a: long"),
    ("later: bytes stay out of the join", "a: binary", ["a: long"], "a: binary, a_long@a: long"),
    ("later: the join of all that the field has and gets",
     NEW, ["a: boolean", "a: date", "a: long[1]"],
     "a: boolean, a_date@a: date, a_string@a: string, a_array_long@a: long[1], a_array_string@a: string[1]"),
    ("later: a record beside a string", "a: string", ["a: {x: long}[1]"], "a: string, a_array_record@a: {x: long}[1]"),
    ("later: a plain value beside a record", "a: {x: long}", ["a: long"], "a: {x: long}, a_long@a: long"),
    ("later: a smaller dimension of a record", "a: {x: long}[2]", ["a: {x: long}[1]"], "a: {x: long}[2]"),
    ("later: uuid and anything is string", "a: uuid", ["a: long"], "a: uuid, a_long@a: long, a_string@a: string"),
    ("later: anything fits a variant", "a: variant", ["a: long | {x: long} | map<string, long>"], "a: variant"),

    ("exactness: double beside a long beyond 2^53", NEW, ["a: double | long!wide"], "a: double, a_long@a: long"),
    ("exactness: a long beyond 2^53 to a double", "a: double", ["a: long!wide"], "a: double, a_long@a: long"),
    ("exactness: a small long to a double", "a: double", ["a: long"], "a: double"),
    ("exactness: microseconds to milliseconds",
     "a: long", ["a: timestamp!us"],
     "a: long, a_timestamp@a: timestamp"),

    ("numbers against declared columns: what is of the column's own type needs nothing",
     "a: int, b: decimal(18, 2), c: float", ["a: int, b: decimal(18, 2), c: float"],
     "a: int, b: decimal(18, 2), c: float"),
    ("numbers against declared columns: what does not read back has a column",
     "b: decimal(18, 2)", ["b: decimal(18, 2) | double"],
     "b: decimal(18, 2), b_double@b: double, b_string@b: string"),
    ("numbers that no type holds are strings", NEW, ["a: long | number_text"], "a_long@a: long, a: string"),
    ("numbers that no type holds are never dates", NEW, ["a: date | number_text"], "a_date@a: date, a: string"),

    ("dates: all strings or none, at first", NEW, ["a: date | string, b: {x: timestamp | string[1]}"],
     "a: string, b: {x_string@x: string, x: string[1]}"),
    ("dates: all strings or none, where the field has no such column",
     "a: boolean", ["a: date | string"],
     "a: boolean, a_string@a: string"),
    ("dates: each by itself, where the field has one",
     NEW, ["a: date", "a: date | string"],
     "a: date, a_string@a: string"),
    ("dates: date and timestamp", NEW, ["a: date | timestamp"], "a_date@a: date, a: timestamp"),

    ("nested: new fields of a record, at any depth",
     "p: {q: {x: long}[1]}", ["p: {y: long, q: {x: string, z: date}}"],
     "p: {q: {x: long, x_string@x: string, z: date}[1], y: long}"),
    ("nested: a smaller record column takes its own dimension only",
     "a: {x: long}, a_array_record@a: {x: long}[1]", ["a: {y: long} | {z: long}[1]"],
     "a: {x: long, y: long}, a_array_record@a: {x: long, y: long, z: long}[1]"),
    ("nested: the largest record column takes all, and new ones their own",
     "a: {x: long}[2]", ["a: {x: string}"],
     "a: {x: long, x_string@x: string}[2]"),

    ("maps: of a typed source", NEW, ["m: map<string, long>"], "m: map<string, long>"),
    ("maps: a missing type of value",
     "m: map<string, long>", ["m: map<string, string>"],
     "m: map<string, long>, m_map_string@m: map<string, string>"),
    ("maps: a missing type of value, and the join",
     "m: map<string, boolean>", ["m: map<string, date>"],
     "m: map<string, boolean>, m_map_date@m: map<string, date>, m_map_string@m: map<string, string>"),
    ("maps: values of two types at first sight",
     NEW, ["m: map<string, long | string>"],
     "m_map_long@m: map<string, long>, m: map<string, string>"),
    ("maps: an object is a map where there is one",
     "m: map<string, long>", ["m: {a: long, b: string}"],
     "m: map<string, long>, m_map_string@m: map<string, string>"),
    ("maps: objects in objects",
     "m: map<string, map<string, long>>", ["m: {a: {b: long}, c: {d: string}}"],
     "m: map<string, map<string, long>>, m_map_map_string@m: map<string, map<string, string>>"),
    ("maps: a struct of a typed source is none",
     "m: map<string, long>", ["m: struct{a: long}"],
     "m: map<string, long>, m_record@m: {a: long}"),
    ("maps: records as values",
     "m: map<string, {x: long}>", ["m: {k: {x: string, y: long}}"],
     "m: map<string, {x: long, x_string@x: string, y: long}>"),
    ("maps: a list beside values of maps",
     "m: map<string, long>", ["m: map<string, long[1]>"],
     "m: map<string, long>, m_map_array_long@m: map<string, long[1]>"),
    ("maps: another type of key",
     "m: map<string, long>", ["m: map<int, long>"],
     "m: map<string, long>, m_map_long@m: map<int, long>"),
    ("maps: two types of key at first sight",
     NEW, ["m: map<int, long> | map<string, long>"],
     "m_map_long@m: map<int, long>, m: map<string, long>"),
    ("maps: a list of maps",
     "m: map<string, long>", ["m: map<string, long>[1]"],
     "m: map<string, long>, m_array_map_long@m: map<string, long>[1]"),
    ("maps: a map in a list of maps", "m: map<string, long>[1]", ["m: map<string, long>"], "m: map<string, long>[1]"),
    ("maps: after records", NEW, ["m: map<string, long> | struct{x: long}"], "m_map_long@m: map<string, long>, m: {x: long}"),
    ("maps: before lists", NEW, ["m: long[1] | map<string, long>"], "m_array_long@m: long[1], m: map<string, long>"),
    ("maps: before plain values",
     NEW, ["m: map<string, long | date> | string"],
     "m: map<string, long>, m_map_date@m: map<string, date>, m_string@m: string"),
    ("maps: beside a plain value", "m: long", ["m: map<string, long>"], "m: long, m_map_long@m: map<string, long>"),

    ("names: an evolved column's is taken",
     "a: long, a_string: long", ["a: string"],
     "a: long, a_string: long, a_string_2@a: string"),
    ("names: the next one is taken too",
     "a: long, a_string: long, a_string_2: long", ["a: string"],
     "a: long, a_string: long, a_string_2: long, a_string_3@a: string"),
    ("names: taken in another case",
     "a: long, A_String: long", ["a: string"],
     "a: long, A_String: long, a_string_2@a: string"),
    ("names: a natural one is taken by an evolved column",
     NEW, ["a: long", "a: string", "a_string: long"],
     "a: long, a_string@a: string, a_string_long@a_string: long"),
    ("names: a twin in another case", "id: long", ["ID: long"], "id: long, ID_long@ID: long"),
    ("names: a twin goes on in its own column", "id: long, ID_long@ID: long", ["ID: long, id: long"],
     "id: long, ID_long@ID: long"),
    ("names: twins at once, in code point order", NEW, ["id: long, ID: long"], "id_long@id: long, ID: long"),
    ("names: twins inside a new record", NEW, ["p: {id: long, ID: string}[1]"], "p: {id_long@id: long, ID: string}[1]"),
    ("names: natural ones before any evolved one",
     NEW, ["a: long | string, a_long: string"],
     "a_long_2@a: long, a: string, a_long: string"),
    ("names: the columns stand in the order of the data",
     NEW, ["z: long, a: long | string, m: {y: long, b: long}, c: long"],
     "z: long, a_long@a: long, a: string, m: {y: long, b: long}, c: long"),
    ("names: new columns come last", "z: long, b: long", ["c: long, a: long, b: string"],
     "z: long, b: long, c: long, a: long, b_string@b: string"),
    ("names that engines cannot carry",
     NEW, ['"a.b": long, "_file": long, "_POS": long, "a`b": long, "a\\nb": long, " ": long'],
     """a_b_long@"a.b": long, _file_@_file: long, _POS_@_POS: long, a_b_long_2@"a`b": long,
        a_b@"a\\nb": long, _@" ": long"""),
    ("names that engines cannot carry, beside the plain one",
     NEW, ['"a.b": long, a_b: long', '"a.b": string, a_b: date'],
     """a_b@"a.b": long, a_b_long@a_b: long, a_b_string@"a.b": string"""),

    ("marks: a renamed column goes on being filled", "amount@size: long", ["size: long"], "amount@size: long"),
    ("marks: a renamed column's siblings are its key's",
     "amount@size: long", ["size: string"],
     "amount@size: long, size_string@size: string"),
    ("marks: the new name of a renamed column is another field",
     "amount@size: long", ["amount: long"],
     "amount@size: long, amount_long@amount: long"),
    ("marks: an odd key is found again", '"plain"@"an \\"odd\\".key": long', ['"an \\"odd\\".key": long'],
     '"plain"@"an \\"odd\\".key": long'),

    ("untyped: null, lists and objects of nothing make no column",
     NEW, ["a: null, b: [], c: {}, d: {x: null, y: {z: []}}, e: {x: null}[2], f: map<string, null>, g: long"],
     "g: long"),
    ("untyped: they go where there is a column",
     "b: long[1], c: {x: long}, d: {x: long}", ["b: [], c: {}, d: {y: null}"],
     "b: long[1], c: {x: long}, d: {x: long}"),
    ("untyped: inside a record", NEW, ["p: {a: null, b: long, c: {d: null}}"], "p: {b: long}"),

    ("required: absent", "a: long!required, b: long!required", ["a: long"], "a: long!required, b: long"),
    ("required: null in some record", "a: long!required", ["a: long | null"], "a: long"),
    ("required: not of the column's type",
     "a: long!required", ["a: long | string"],
     "a: long, a_string@a: string"),
    ("required: not exact in the column", "a: double!required", ["a: long!wide"], "a: double, a_long@a: long"),
    ("required: routed only", "a: timestamp!required, a_long@a: long", ["a: long"], "a: timestamp, a_long@a: long"),
    ("required: converted", "a: string!required", ["a: long"], "a: string!required"),
    ("required: an empty list is a value of a list", "a: long[1]!required", ["a: []"], "a: long[1]!required"),
    ("required: an empty list is no value of a long", "a: long!required", ["a: long | []"], "a: long"),
    ("required: an empty record", "p: {x: long!required}!required", ["p: {}"], "p: {x: long}!required"),
    ("required: a new sibling", "a: string!required", ["a: {x: long}"], "a: string, a_record@a: {x: long}"),
    ("required: inside records",
     "p: {x: long!required, y: long!required}[1]", ["p: {x: long}"],
     "p: {x: long!required, y: long}[1]"),
    ("required: inside records of one dimension, absent in those of another",
     "p: {x: long!required}[1]", ["p: {x: long} | {y: long}[1]"],
     "p: {x: long, y: long}[1]"),
    ("required: not inside records that are absent", "p: {x: long!required}", ["p: null"], "p: {x: long!required}"),
    ("required: elements, where lists come", "a: string[2]!elements", ["a: long[1]"], "a: string[2]"),
    ("required: elements, where none come", "a: string[1]!elements", ["a: long"], "a: string[1]!elements"),
    ("required: values, where maps come", "m: map<string, long>!values", ["m: {k: long}"], "m: map<string, long>"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "batches", "after"), [pytest.param(*case[1:], id=case[0]) for case in (*SEED, *PLANNING)]
)
def test_planning(before: str, batches: list[str], after: str) -> None:
    planned = drift(*batches, before=before)
    assert show(planned.schema) == same(after)
    again = plan(planned.schema, batch(batches[-1]))
    assert changes(again) == []


ROUTING = [
    ("rule 8, routing: to the exact type and all that are compatible",
     "a: long, a_date@a: date, a_string@a: string, a_array_date@a: date[1], a_array_string@a: string[1]",
     "a: long | date | string | date[1] | string[1]",
     {"a": "date | long", "a_date": "date", "a_string": "date | long | string",
      "a_array_date": "date | date[1]", "a_array_string": "date | date[1] | long | string | string[1]"}),
    ("example 1: what comes after",
     "a: long[1], a_string@a: string, a_array_string@a: string[1]",
     "a: boolean | date | boolean[1]",
     {"a": "boolean | boolean[1] | date", "a_string": "boolean | date",
      "a_array_string": "boolean | boolean[1] | date"}),
    ("rule 10, edge case 2: the timestamp is filled as well",
     "started: timestamp, started_long@started: long", "started: long",
     {"started": "long", "started_long": "long"}),
    ("a string does not go to a long column, whatever it says",
     "a: long, a_string@a: string", "a: string",
     {"a": "", "a_string": "string"}),
    ("the largest record column takes all, a smaller one its own dimension",
     "a: {x: long}, a_array_record@a: {x: long}[1], a_array2_record@a: {x: long}[2]",
     "a: {x: long} | {x: long}[1]",
     {"a": "record", "a_array_record": "record[1]", "a_array2_record": "record | record[1]"}),
    ("numbers and bytes", "a: binary, a_long@a: long", "a: fixed[4] | boolean",
     {"a": "fixed[4]", "a_long": "boolean"}),
    ("a variant takes everything", "a: variant", "a: long | {x: long} | map<string, long>!typed",
     {"a": "long | map<string> | record"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "text", "expected"), [pytest.param(*case[1:], id=case[0]) for case in ROUTING]
)
def test_routing(before: str, text: str, expected: dict[str, str]) -> None:
    planned = drift(text, before=before)
    assert changes(planned) == []
    assert routes(planned) == expected


CHANGES = [
    ("a parent is listed before what is inside it",
     NEW, "p: {x: long, q: {y: date}[1]}, z: long",
     ["add p: {x: long, q: {y: date}[1]}", "add z: long", "add p.x: long", "add p.q: {y: date}[1]",
      "add p.q.element.y: date"]),
    ("paths through lists",
     "items: {price: long}[2]", "items: {price: string}[1]",
     ["add items.element.element.price_string: string"]),
    ("paths through maps",
     "m: map<string, {price: long}[1]>", "m: {k: {price: string}}",
     ["add m.value.element.price_string: string"]),
    ("widening", "a: {x: int}[1], m: map<string, float[1]>", "a: {x: long}, m: {k: double}",
     ["widen a.element.x: long", "widen m.value.element: double"]),
    ("relaxing",
     "a: string[2]!elements, m: map<string, long[1]!elements>!values, p: {x: long!required}[1]!required",
     "a: long[1], m: {k: long[1]}, p: {y: long}",
     ["add p.element.y: long", "relax a.element: string[1]", "relax m.value: long[1]!elements", "relax m.value.element: long",
      "relax p.element.x: long"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "text", "expected"), [pytest.param(*case[1:], id=case[0]) for case in CHANGES]
)
def test_changes(before: str, text: str, expected: list[str]) -> None:
    planned = drift(text, before=before)
    assert sorted(changes(planned)) == sorted(expected)
    if not before:
        assert changes(planned) == expected


def test_changes_say_which_rule_and_which_value() -> None:
    planned = drift(
        "a: boolean, b: int, m: {x: date}", "a: date, b: long, m: map<string, long>, c: long | string[1]"
    )
    found = [(dotted(c.path), c.reason.rule, c.reason.why, c.reason.sample) for c in planned.changes]
    assert found == [
        ("a_date", "sibling", "date does not fit the field's columns: boolean", "date"),
        ("a_string", "common-denominator", "holds every type of the field: boolean, date", "date"),
        ("m_map_long", "sibling", "map<string> does not fit the field's columns: record", "long"),
        ("c_long", "first-sight", "first seen", "long"),
        ("c", "first-sight", "first seen", "string"),
        ("b", "widen-in-place", "long is wider than int, which the format widens in place", "long"),
    ]
    assert str(planned.changes[0].reason.location) == "data:1"


NOTES = [
    ("converted", "a: string, p: {x: double}[1]", "a: long | string, p: {x: long}",
     ["a: long to string", "p: struct<> to list<struct<>>", "p.element.x: long to double"], [], 0),
    ("converted: a map in a list of maps", "m: map<string, long>[1]", "m: map<string, long>",
     ["m: map<string, unknown> to list<map<string, unknown>>"], [], 0),
    ("not converted: what has its own column", "a: long, a_string@a: string", "a: long", [], [], 0),
    ("not converted: what is new", NEW, "a: long | string", [], [], 0),
    ("untyped", "b: long[1], c: {x: long}, s: long",
     "a: null, b: [[]] | long, c: {} | null, d: {}, e: {f: [], g: long}, h: {i: null}, s: []",
     ["b: long to list<long>"], ["a", "b", "d", "e.f", "h", "s"], 0),
    ("one or many", NEW, "a: {x: long} | {x: long}[1]", [], [], 1),
    ("one or many: the hint was taken", "a: {x: long}[1]", "a: {x: long} | {x: long}[1]",
     ["a: struct<> to list<struct<>>"], [], 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "text", "converted", "untyped", "hints"),
    [pytest.param(*case[1:], id=case[0]) for case in NOTES],
)
def test_notes(before: str, text: str, converted: list[str], untyped: list[str], hints: int) -> None:
    planned = drift(text, before=before)
    assert sorted(f"{dotted(c.path)}: {c.source} to {c.target}" for c in planned.converted) == sorted(
        converted
    )
    assert paths(planned.untyped) == untyped
    assert len(planned.hints) == hints


def test_a_hint_can_be_pasted() -> None:
    planned = drift("p: {a: {x: long} | {x: long}[1]}")
    assert planned.hints == (
        'hints.p.a = "list<record>"  # p.a is an object or a list of objects: so it would become one',
    )


def test_more_lines_of_a_comment_keep_the_mark() -> None:
    before = schema("amount@size: long")
    (column,) = before.struct.fields
    before = Schema(Struct((replace(column, doc=f"{column.doc}\nin litres"),)))
    assert changes(plan(before, batch("size: long"))) == []
    assert changes(plan(before, batch("size: string"))) == ["add size_string: string"]


def test_the_prefix_of_marks_is_a_setting() -> None:
    settings = TableSettings(mark="from:")
    planned = drift("a: long | string", settings=settings)
    assert [(f.name, f.doc) for f in planned.schema.struct.fields] == [("a_long", "from:a"), ("a", None)]
    assert changes(plan(planned.schema, batch("a: long | string"), settings)) == []


def test_the_epoch_unit_is_a_setting() -> None:
    text = "a: timestamp!us"
    assert changes(drift(text, before="a: long")) == ["add a_timestamp: timestamp"]
    assert (
        changes(drift(text, before="a: long", settings=TableSettings(fields=field_settings(epoch_unit="us"))))
        == []
    )


def test_a_name_and_its_suffix_have_at_most_255_bytes() -> None:
    key = "ä" * 127
    planned = drift(f"{key}: long", f"{key}: string, {key}ö: long", f"{key}ö: string")
    names = [f.name for f in planned.schema.struct.fields]
    assert names[0] == key
    assert len(set(names)) == 4
    assert all(len(name.encode()) <= 255 for name in names)
    assert [marked_key(f.doc) for f in planned.schema.struct.fields] == [None, key, key + "ö", key + "ö"]


def test_identifier_fields_are_not_relaxed() -> None:
    before = replace(
        schema("id: {part: long!required}!required, b: long!required"), identifiers=frozenset({3})
    )
    assert before.find(("id", "part")) is not None
    assert changes(plan(before, batch("c: long"))) == ["add c: long", "relax b: long"]
    assert changes(plan(before, batch("id: {other: long}, b: long"))) == ["add id.other: long"]


@pytest.mark.parametrize(
    ("before", "text", "taken", "refused"),
    [
        (NEW, "a: long, b: long, c: long", ["add a: long", "add b: long"], {"c": "the record"}),
        ("a: long", "p: {x: long, y: long, z: long}", ["add p: {x: long}"], {"p.y": "p", "p.z": "p"}),
        ("a: long, b: long", "p: {x: long}, b: string", [], {"p.x": "p", "b": "the record"}),
    ],
)  # fmt: skip
def test_max_columns(before: str, text: str, taken: list[str], refused: dict[str, str]) -> None:
    """The fields that came first are taken; each field beyond is refused, and the struct that it is in is named."""
    planned = drift(text, before=before, settings=TableSettings(max_columns=2, beyond="quarantine"))
    assert [c for c in changes(planned) if "." not in c.split(":")[0]] == taken
    assert {dotted(c.path) for c in planned.conflicts} == set(refused)
    for conflict in planned.conflicts:
        assert f"{refused[dotted(conflict.path)]} would take the table beyond max_columns = 2" in conflict.why


def test_max_columns_stops_no_batch_that_needs_no_column() -> None:
    before, limited = "a: long, b: int!required, c: long", TableSettings(max_columns=2, beyond="quarantine")
    planned = drift("b: long | null", before=before, settings=limited)
    assert changes(planned) == ["widen b: long", "relax b: long"]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a: uuid", "a: string"),
        ("a: uuid[1]", "a: string[1]"),
        ("a: uuid | string", "a: string"),
        ("a: {b: uuid}, c: long", "a: {b: string}, c: long"),
    ],
)
def test_types_that_a_format_lacks_become_text_under_the_same_name(text: str, after: str) -> None:
    settings = TableSettings(as_text=frozenset({UUID}))
    assert show(drift(text, settings=settings).schema) == show(schema(after))
    assert changes(drift(text, before=after, settings=settings)) == []
