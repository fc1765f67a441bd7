"""Reports for people, as plain text."""

import io
import json
import shlex
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from driftline.core.changes import AddColumn, Reason, RelaxColumn, WidenColumn
from driftline.core.planning.plan import Conflict, Conversion
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import Facet, RecordShape
from driftline.core.schema.naming import mark
from driftline.core.schema.types import (
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Field,
    List,
    Schema,
    SourceLocation,
    Struct,
)
from driftline.core.settings.fields import toml_line
from driftline.core.settings.properties import as_properties, flattened
from driftline.core.settings.surfaces import in_flags, in_python
from driftline.core.settings.table import TableSettings
from driftline.ingest.result import Result, result
from driftline.observe.observation import Observation, RejectSample, Tally
from driftline.operations.listing import Quarantine, RejectGroup
from driftline.report import drift, tables, text
from driftline.verify import Mismatch, Verdict


def printed(lines, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    for line in lines:
        console.print(line)
    return console.file.getvalue()


def add(name, type_, *, key=None, rule="first-sight", parent=(), within=False, sample="", doc=None):
    field = (*parent, key or name)
    reason = Reason(
        rule,
        "why it is so" if rule != "first-sight" else "first seen",
        field,
        sample,
        SourceLocation("f.json", 3),
    )
    return AddColumn(parent, Field(name, type_, doc=doc), reason, within)


def test_plain_columns_are_counted_in_one_line_and_what_is_within_them_is_not_told_twice():
    inner = Struct((Field("x", LONG), Field("y", LONG)))
    changes = (add("a", LONG), add("b", List(inner)), add("x", LONG, parent=("b", "element"), within=True))
    assert printed(text.batch(Result("s.t", "", 5, 5, 0, changes), "f.json")) == (
        "s.t  f.json  5 records read, 5 written\n  3 new columns: a long, b list<struct<x, y>>\n"
    )


def test_what_waits_is_told_with_what_can_become_of_it():
    result = Result("s.t", "", 1, 1, 0, rest={"a": 2, "items.element.``": 1})
    assert printed(text.batch(result)) == (
        "s.t  1 record read, 1 written\n"
        "  rest        a × 2: beyond the table's limits  `driftline promote` turns it into columns\n"
        "  rest        items.element.`` × 1: an empty key gets no column\n"
    )


def test_a_column_with_a_comment_is_as_plain_as_another():
    changes = (add("column_1", LONG, doc="column 1 has no name"),)
    assert printed(text.batch(Result("s.t", "", 1, 1, 0, changes))).endswith(
        "\n  1 new column: column_1 long\n"
    )


def test_each_conflict_is_told_with_its_cause():
    changes = (
        add("a_string", STRING, key="a", rule="sibling", sample="19,90 EUR", doc=mark("a")),
        WidenColumn(
            ("b",), LONG, Reason("widen-in-place", "it is wider", ("b",), "5", SourceLocation("f.json", 4))
        ),
        RelaxColumn(
            ("c",),
            LONG,
            Reason("relax", "a record has no value for it", ("c",), "", SourceLocation("f.json", 5)),
        ),
        add("ID_long", LONG, key="ID", sample="7", doc=mark("ID")),
    )
    assert printed(text.batch(Result("s.t", "", 5, 5, 0, changes))) == (
        "s.t  5 records read, 5 written\n"
        "  a → a_string string   sibling\n"
        "      19,90 EUR (f.json:3): why it is so\n"
        "  b is now long   widen in place\n"
        "      5 (f.json:4): it is wider\n"
        "  c is now optional   relax\n"
        "      f.json:5: a record has no value for it\n"
        "  ID → ID_long long   name taken\n"
        '      7 (f.json:3): a column has the name "ID" already, in this or another letter case\n'
    )


def test_a_long_conflict_goes_on_below_itself():
    changes = (add("a_decimal_38_18", STRING, key="a", rule="sibling", sample="1", doc=mark("a")),)
    assert printed(text.batch(Result("s.t", "", 1, 1, 0, changes)), width=40).splitlines()[1:] == [
        "  a → a_decimal_38_18 string",
        "      sibling",
        "      1 (f.json:3): why it is so",
    ]


def test_a_name_that_cannot_be_is_told_with_the_reason():
    changes = (add("x_y", LONG, key="x.y", sample="1", doc=mark("x.y")),)
    assert printed(text.batch(Result("s.t", "", 1, 1, 0, changes))).splitlines()[1:] == [
        "  x.y → x_y long   safe spelling",
        """      1 (f.json:3): "x.y" cannot be a column's name: it holds a dot""",
    ]


def test_a_refused_record_says_where_its_value_had_to_go():
    conflicts = tuple(
        Conflict((key,), table_type, Facet(0, LONG), "the policy is strict", "7", SourceLocation("f.json", 3))
        for key, table_type in (("a", "none"), ("b", "boolean"))
    )
    lines = printed(text.batch(Result("s.t", "", 2, 0, 2, conflicts=conflicts))).splitlines()
    assert lines[1:] == [
        "  quarantine  a: long where the table has no such column  7 (f.json:3): the policy is strict",
        "  quarantine  b: long into boolean  7 (f.json:3): the policy is strict",
    ]


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (0, "7 (a.json:3): why"),
        (1, "7 (a.json:3), also at f0.json:5: why"),
        (2, "7 (a.json:3), also at f0.json:5, f1.json:5: why"),
        (3, "7 (a.json:3), also at f0.json:5, f1.json:5 and in further files: why"),
    ],
)
def test_value_that_is_refused_in_several_files_names_the_first_of_them(files: int, shown: str):
    elsewhere = tuple(SourceLocation(f"f{number}.json", 5) for number in range(files))
    conflict = Conflict(
        ("a",), "none", Facet(0, LONG), "why", "7", SourceLocation("a.json", 3), elsewhere=elsewhere
    )
    report = printed(text.batch(Result("s.t", "", 2, 0, 2, conflicts=(conflict,))), width=200)
    assert report.splitlines()[1] == f"  quarantine  a: long where the table has no such column  {shown}"


def test_refused_record_without_a_key_is_named_in_each_batch():
    """A value that is not there has no place: the record has one."""
    conflict = Conflict(("id",), "the key", None, "key: no value", nan=True)
    planned = replace(plan(Schema(), RecordShape(), TableSettings()), conflicts=(conflict,))
    others = RejectSample(SourceLocation("/d/a.jsonl", 1), "not an object but a list", "[1]")
    record = RejectSample(SourceLocation("/d/b.jsonl", 2), "id: key: no value", '{"v": 1}')
    observation = Observation(RecordShape(), Tally(2, 2, reasons=(others, record)))
    shown = printed(text.batch(result("s.t", "b", observation, planned, 0, 2), near=Path("/d")))
    assert 'no value for key column id  {"v": 1} (b.jsonl:2)\n' in shown
    assert shown.count("b.jsonl") == 1 and "a.jsonl:1: not an object" in shown


def test_a_quarantine_is_listed_in_the_words_of_the_batch():
    at = datetime(2026, 3, 2, 8, tzinfo=UTC)
    groups = tuple(
        RejectGroup("the policy is strict", path, table_type, "long", 1, "7", "f.json:3", at, at)
        for path, table_type in (("a", "none"), ("b", "boolean"))
    )
    lines = printed(drift.quarantine(Quarantine("s.t", 2, 0, 3, groups), in_flags)).splitlines()
    assert lines[0] == "s.t  2 records in quarantine, 3 discarded"
    assert "a: long where the table has no such column  the policy is strict" in lines[1]
    assert "b: long into boolean  the policy is strict" in lines[3]
    assert (
        lines[5]
        == "  --replay ingests them again, once the policy or the table has changed; --discard hides them"
    )
    assert "--replay" not in printed(drift.quarantine(Quarantine("s.t", 0, 1, 3, ())))


@pytest.mark.parametrize(
    ("last", "shown"),
    [("f.json:9", "7 (f.json:3)"), ("g.json:1", "7 (f.json:3, last g.json:1)"), ("", "7 (f.json:3)")],
)
def test_reason_that_came_from_another_file_too_names_that_one(last: str, shown: str):
    at = datetime(2026, 3, 2, 8, tzinfo=UTC)
    group = RejectGroup("no record", "", "", "", 2, "7", "f.json:3", at, at, last)
    assert shown in printed(drift.quarantine(Quarantine("s.t", 2, groups=(group,))))


def test_column_of_driftline_s_own_is_shown_without_its_mark():
    order = Field("_order", STRING, 8, doc="driftline_metadata:order\nthe order of the latest change")
    lines = printed([tables.schema("s.t", Schema(Struct((order,))))])
    assert "_order string #8  the order of the latest change" in lines
    assert "driftline_metadata" not in lines


def test_several_types_at_once_are_not_a_name_that_is_taken():
    changes = (add("a", STRING), add("a_long", LONG, key="a", doc=mark("a")))
    assert "several types in one batch" in printed(text.batch(Result("s.t", "", 5, 5, 0, changes)))
    nowhere = tuple(replace(change, reason=replace(change.reason, location=None)) for change in changes)
    assert "\n\n" not in printed(text.batch(Result("s.t", "", 5, 5, 0, nowhere)))


def test_all_else_that_a_person_should_know():
    result = Result(
        "s.t", "", 9, 6, 3,
        converted=(Conversion(("a",), LONG, DOUBLE, "5", SourceLocation("f.json", 1)),),
        untyped=("b.c",),
        dropped_names={'d.""': 2, '""': 1},
        hints=("a hint",),
        rejected=("f.json:2: no JSON", "f.json:3: no JSON"),
        settings={"thousands": ".", "dates": ""},
    )  # fmt: skip
    before: set[str] = set()
    assert printed(text.batch(result, hints_before=before)).splitlines() == [
        "s.t  9 records read, 6 written, 3 in quarantine",
        "  quarantine  f.json:2: no JSON",
        "  quarantine  f.json:3: no JSON",
        "              and 1 more",
        "  dropped     2 values with an empty key in d",
        "  dropped     1 value with an empty key in the record",
        "  converted   a: long into double  5 (f.json:1)",
        "  no column yet b.c  only null, [] or {} so far",
        '  setting kept thousands = "."  for every later batch of s.t; keep=False: for one alone',
        "  setting kept no dates  for every later batch of s.t",
        "  hint        a hint",
    ]
    assert "a hint" not in printed(text.batch(result, hints_before=before))


def test_very_much_leaves_the_screen_to_the_rest():
    """Twelve conversions and ten hints are listed; of more, half as many."""

    def shown(conversions: int, hints: int) -> str:
        converted = tuple(
            Conversion((f"f{i}",), LONG, DOUBLE, "5", SourceLocation("f.json", 1)) for i in range(conversions)
        )
        result = Result("s.t", "", 5, 5, 0, converted=converted, hints=tuple(f"n. {i}" for i in range(hints)))
        return printed(text.batch(result))

    few, many = shown(12, 10), shown(13, 11)
    assert (few.count("converted"), few.count("n. ")) == (12, 10)
    assert (many.count("converted"), many.count("n. ")) == (6, 5)
    assert "  hint        and 6 more: see the result's `hints`\n" in many
    assert "  and 7 more conversions: see --json\n" in many


@pytest.mark.parametrize(
    ("hint", "flag", "argument"),
    [
        ('dates = "instant"  # why', "--set dates=instant  # why", 'dates="instant"  # why'),
        ('maps.a."`b.c`" = "off"  # x = "y"  # z', "--set 'maps.a.`b.c`=off'  # x = \"y\"  # z",
         'maps={"a.`b.c`": "off"}  # x = "y"  # z'),
        ("hints.\"a b\" = \"date('dd.MM.yyyy')\"  # why", """--hint 'a b=date('"'"'dd.MM.yyyy'"'"')'  # why""",
         "hints={\"a b\": \"date('dd.MM.yyyy')\"}  # why"),
        ("pass --header no", "pass --header no", 'pass header="no"'),
        ("pass --decimal . --thousands '' here", "pass --decimal . --thousands '' here", 'pass decimal="." thousands="" here'),
        ("--envelope dms, with a --key, makes them rows", "--envelope dms, with a --key, makes them rows",
         'envelope="dms", with a key, makes them rows'),
        ("make it with --hint at=timestamp --set epoch_unit=ms", "make it with --hint at=timestamp --set epoch_unit=ms",
         'make it with hints={"at": "timestamp"} epoch_unit="ms"'),
        ("--again ingests it; resolve --as long", "--again ingests it; resolve --as long",
         'again=True ingests it; Table.resolve(…, "long")'),
    ],
)  # fmt: skip
def test_hint_is_spelled_for_the_surface_that_prints_it(hint: str, flag: str, argument: str):
    result = Result("s.t", "", 5, 5, 0, hints=(hint,))
    for words, spelled in ((in_flags, flag), (in_python, argument)):
        assert (
            printed(text.batch(result, words=words), width=200).splitlines()[1] == f"  hint        {spelled}"
        )
    assert printed(text.batch(result), width=200).splitlines()[1] == f"  hint        {argument}"


@pytest.mark.parametrize("path", [("a",), ("a", "b.c"), ("a b",), ("`",), ('"',), ("ü", "$x", "it's")])
def test_hint_at_a_path_is_one_setting_on_every_surface(path: tuple[str, ...]):
    for setting, value in (("hints", "map<string, long>"), ("maps", "off")):
        line = toml_line(setting, path, value, "why # it")
        lines = dict(flattened(tomllib.loads(line)))
        option, written, *_ = shlex.split(in_flags(line), comments=True)
        key, _, given = written.rpartition("=")
        assert {f"hints.{key}" if option == "--hint" else key: given} == lines
        name, arguments = in_python(line).split("  # ")[0].split("=", 1)
        assert as_properties({name: json.loads(arguments)}) == as_properties(lines)


def test_many_maps_are_one_hint():
    def hints(maps: int, more: str | None) -> list[str]:
        about_maps = [f'maps.m{i} = "off"  # keeps a struct' for i in range(maps)]
        result = Result("s.t", "", 5, 5, 0, hints=("CSV is read so", *about_maps, *about_maps))
        return printed(text.batch(result, more_hints=more, words=str)).splitlines()[2:]

    assert hints(2, "--hints") == [f'  hint        maps.m{i} = "off"  # keeps a struct' for i in range(2)]
    assert hints(4, "--hints") == [
        "  hint        4 hints at objects that became maps: m0, m1, m2, …; see --hints"
    ]
    assert hints(30, None) == [f'  hint        maps.m{i} = "off"  # keeps a struct' for i in range(30)]


def test_a_plan_says_that_nothing_is_written():
    assert printed(text.batch(Result("s.t", "", 5, 0, 0, dry_run=True))) == (
        "s.t  5 records read, dry run: nothing is written\n"
    )


def test_where_no_record_is_json_another_format_is_asked_for():
    bad = "a.txt:1: invalid JSON: Expecting value at character 0: id;name"

    def shown(written: int, *rejected: str) -> str:
        read = written + len(rejected)
        return printed(text.batch(Result("s.t", "", read, written, len(rejected), rejected=rejected)))

    hint = "  hint        none of the records is valid JSON"
    assert hint in shown(0, bad, bad)
    assert hint in printed(text.batch(Result("s.t", "", 1, 0, 0, rejected=(bad,), dry_run=True)))
    for other in (shown(1, bad), shown(0, bad, "t/0:7: an empty value is no record"), shown(0)):
        assert "hint" not in other


def test_data_cannot_steer_the_terminal():
    changes = (
        add(
            "a_string",
            STRING,
            key="a\x1b[2J",
            rule="sibling",
            sample="x\x1b]0;y\x07\nz",
            doc=mark("a\x1b[2J"),
        ),
    )
    shown = printed(text.batch(Result("s.t", "", 1, 1, 0, changes)))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "x\\x1b]0;y\\x07\\nz" in shown


def test_long_lines_go_on_indented():
    changes = tuple(add(f"column_{i}", LONG) for i in range(14))
    lines = printed(text.batch(Result("s.t", "", 1, 1, 0, changes)), 60).splitlines()
    assert lines[1].startswith("  14 new columns: column_0 long, ")
    assert all(line[:6].isspace() and not line[6].isspace() for line in lines[2:])
    assert lines[-1].endswith("and 2 more")
    assert all(len(line) <= 60 and line == line.rstrip() for line in lines)


def test_a_schema_is_a_tree_with_ids_and_what_evolved_from_what():
    schema = Schema(
        Struct(
            (
                Field("id", LONG, 1, required=True),
                Field("a", List(Struct((Field("x", TIMESTAMP, 4, doc="a note"),)), 3), 2),
                Field("id_string", STRING, 5, doc=mark("id") + "\nof the old shop"),
            )
        ),
        id=2,
        identifiers=frozenset({1}),
    )
    assert printed([tables.schema("s.t", schema)]) == (
        "s.t  3 columns, schema 2\n"
        "├── id long #1  identifier\n"
        "├── a list<struct> #2\n"
        "│   └── x timestamptz #4  a note\n"
        "└── id_string string #5  ← id  of the old shop\n"
    )
    assert printed(tables.drifted(schema)) == "  id   id          long\n       id_string   string\n"


def test_what_a_check_found():
    assert printed(text.verdict(Verdict(3, 2, 1, 0), "s.t")) == (
        "nothing is missing  3 records: 2 in s.t, 1 in its quarantine\n"
    )
    lost = Verdict(3, 1, 0, 2, (Mismatch("a.b", "f.json:2", "5", "the row has 4"),))
    assert printed(text.verdict(lost, "s.t")) == (
        "2 of 3 records not found  1 in s.t\n  a.b         5 (f.json:2)  the row has 4\n  and more; only the first are listed\n"
    )
    assert printed(text.verdict(Verdict(3, 3, 0, 0, extra=0), "s.t")) == (
        "nothing is missing, nothing is doubled  3 records: 3 in s.t\n"
    )
    both = Verdict(3, 2, 0, 1, (Mismatch("", "", "{a: 1}", "in the table, not in the source"),), extra=1)
    assert printed(text.verdict(both, "s.t")) == (
        "1 of 3 records not found, 1 row too many  2 in s.t\n"
        "  a record    {a: 1}  in the table, not in the source\n"
        "  and more; only the first are listed\n"
    )
