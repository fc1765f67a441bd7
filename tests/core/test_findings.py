"""Checks of a pull request: what a plan would change, as annotations and as JUnit."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from driftline.core.changes import AddColumn, Reason, RelaxColumn, WidenColumn
from driftline.core.planning.plan import Conflict
from driftline.core.planning.shape import Facet
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import DOUBLE, LONG, STRING, Field, Map, SourceLocation, Struct
from driftline.ingest.result import Result
from driftline.report.findings import findings, github, junit, schema_changes


def because(rule, sample="", place=None, why=""):
    return Reason(rule, why, ("a",), sample, place)


CHANGES = (
    AddColumn((), Field("coupon", STRING), because("first-sight", "SPRING", SourceLocation("in/b.jsonl", 4))),
    AddColumn((), Field("box", Struct((Field("w", LONG),))), because("first-sight")),
    AddColumn(("box",), Field("w", LONG), because("first-sight"), within=True),
    AddColumn(
        (), Field("total_string", STRING, doc="upsolver_evolved_from:total"),
        because("sibling", "7,50 EUR", SourceLocation("in/b.jsonl", 2), "string does not fit the field's columns: double"),
    ),
    AddColumn((), Field("by_day", Map(STRING, LONG)), because("map")),
    WidenColumn(("size",), DOUBLE, because("widen-in-place")),
    RelaxColumn(("id",), LONG, because("relax")),
)  # fmt: skip
CONFLICT = Conflict(
    ("debug",),
    "none",
    Facet(0, STRING),
    "the policy is strict (preserve adds columns)",
    "x",
    SourceLocation("in/b.jsonl", 7),
)
RESULT = Result(
    "shop.orders", "b1", 9, 7, 2,
    changes=CHANGES, conflicts=(CONFLICT,),
    rejected=("in/b.jsonl:7: debug: the policy is strict (preserve adds columns)", "in/b.jsonl:9: invalid JSON: 100%, \n it says"),
)  # fmt: skip


def test_a_struct_with_its_fields_is_one_change():
    assert schema_changes(RESULT) == 6  # seven, and two reasons for quarantine


def test_metadata_column_is_a_change_of_the_schema_and_no_finding():
    column = AddColumn((), Field("_kafka", STRING, doc=f"{METADATA}kafka"), because("first-sight"))
    with_column = replace(RESULT, changes=(*CHANGES, column))
    assert schema_changes(with_column) == schema_changes(RESULT) + 1
    assert list(findings(with_column)) == list(findings(RESULT))


def test_each_change_is_of_one_kind():
    assert [(one.kind, one.path) for one in findings(RESULT)] == [
        ("new", "coupon"),
        ("new", "box"),
        ("sibling", "total_string"),
        ("map", "by_day"),
        ("widen", "size"),
        ("widen", "id"),
        ("quarantine", "debug"),
        ("quarantine", ""),
    ]


def test_value_that_is_refused_in_several_files_is_annotated_in_each():
    conflict = replace(CONFLICT, elsewhere=(SourceLocation("in/c.jsonl", 1), SourceLocation("in/d.jsonl", 2)))
    found = [one for one in findings(replace(RESULT, conflicts=(conflict,))) if one.path == "debug"]
    assert [(one.file, one.line, one.sample) for one in found] == [
        ("in/b.jsonl", 7, "x"),
        ("in/c.jsonl", 1, ""),
        ("in/d.jsonl", 2, ""),
    ]


def test_annotations_stand_at_the_line_that_caused_them():
    lines = list(github(list(findings(RESULT)), {"sibling", "quarantine"}))
    assert lines[0] == (
        "::notice file=in/b.jsonl,line=4,title=driftline%3A new::new: new column coupon string (SPRING, in/b.jsonl:4)"
    )
    assert lines[2] == (
        "::error file=in/b.jsonl,line=2,title=driftline%3A sibling::sibling: new column total_string string "
        "(7,50 EUR, in/b.jsonl:2): string does not fit the field's columns: double"
    )
    assert lines[-1] == (
        "::error title=driftline%3A quarantine::quarantine: in/b.jsonl:9: invalid JSON: 100%25, %0A it says"
    )


@pytest.mark.parametrize(
    ("fail_on", "failures"), [((), []), (("new", "rest"), ["new"]), (("quarantine",), ["quarantine"])]
)
def test_junit_has_a_case_for_each_kind(fail_on, failures):
    suite = ET.fromstring(junit("shop.orders", list(findings(RESULT)), fail_on).partition("\n")[2])
    assert [case.get("name") for case in suite] == [
        "new",
        "widen",
        "sibling",
        "map",
        "rest",
        "quarantine",
        "expect",
    ]
    assert [case.get("name") for case in suite if case.find("failure") is not None] == failures
    assert suite.get("failures") == str(len(failures))
