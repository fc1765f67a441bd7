"""Each hint that a report prints is pasted as it stands, and does what it says: those of all rule cases, of JSON, CSV,
messages in envelopes, and tables."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main

from driftline.cli.commands import app
from driftline.core.changes import SetProperties
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RECORD, Facet, FieldShape, Profile, RecordShape
from driftline.core.schema.date_pattern import parse_hint
from driftline.core.schema.definition import EPOCH_PROPERTY, KEY_PROPERTY, Definition
from driftline.core.schema.naming import marked_key
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    LONG,
    STRING,
    TIMESTAMP,
    Field,
    Map,
    Schema,
    SourceLocation,
    Struct,
    Type,
    peel,
)
from driftline.core.schema.types import Path as FieldPath
from driftline.core.settings.creation import Creation
from driftline.core.settings.fields import parse_path
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.row_key import RowKey, arrival_hint, late_hint, table_property
from driftline.observe.expect import ExpectedField, expect
from driftline.observe.json_lines import JsonObserver
from driftline.operations.alter_sql import AlterRequest
from driftline.readers.csv.reader import CsvFiles, FoundCsv
from driftline.readers.csv.types import offset_notes
from driftline.readers.envelopes.connect_schema import encoded_notes
from driftline.readers.envelopes.messages import FLAG, LIST, NUMBER, OBJECT, SIGNS, TEXT, envelope_note
from rule_cases import Case, cases

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))
OBJECTS = [
    '{"by_day": {"2024-01-01": 1, "2024-01-02": 2}, "tags": {"a": 1}}',
    '{"shops": {"a": {"h": {"7": 1, "8": 2}}, "b": {"h": {"7": 1, "8": 2}}, "c": {"h": {"7": 1, "8": 2}}}}',
    '{"items": {"x": 1}}',
    '{"items": [{"x": 2}]}',
    '{"`odd.key`": {"2024-01-01": 1, "2024-01-02": 2}}',
]


def planned(lines: Sequence[str], properties: dict[str, str]) -> tuple[Schema, tuple[str, ...]]:
    """The table that these lines alone would make, and the hints."""
    settings = from_properties(properties)
    observer = JsonObserver(expect(Schema(), settings), settings)
    observer.feed([line.encode() for line in lines], "batch", 1)
    made = plan(Schema(), observer.result().shape, settings)
    return made.schema, made.hints


def columns(type_: Type, path: FieldPath) -> Iterator[Field]:
    """The columns of the field at a path of the data, and of its siblings."""
    inner = peel(type_)[1]
    if isinstance(inner, Map):
        if path[0] == "value":
            yield from columns(inner.value, path[1:]) if path[1:] else [Field("value", inner.value)]
        return
    for f in inner.fields if isinstance(inner, Struct) else ():
        if (marked_key(f.doc) or f.name) == path[0]:
            yield from columns(f.type, path[1:]) if path[1:] else [f]


def does_what_it_says(hint: str, lines: Sequence[str], properties: dict[str, str]) -> None:
    pasted = as_properties(tomllib.loads(hint))
    ((key, value),) = pasted.items()
    setting, path = key.removeprefix("driftline.").split(".", 1)
    schema, hints = planned(lines, {**properties, **pasted})
    assert hint not in hints
    found = [f.type for f in columns(schema.struct, parse_path(path))]
    if setting == "maps":
        assert value == "off" and not any(isinstance(peel(type_)[1], Map) for type_ in found)
    else:  # the type has a column; lists that are deeper than a hinted one may stand beside it
        dim = peel(parse_hint(value).type)[0]
        assert [kind(type_) for type_ in found if peel(type_)[0] <= dim] == [kind(parse_hint(value).type)]


def kind(type_: Type) -> str:
    """The type without what is inside its records and maps."""
    return re.sub("(struct|map)<.*", r"\1", str(type_))


@pytest.mark.parametrize("case", cases(keyed=False))
def test_hints_of_all_rule_cases(case: Case) -> None:
    properties = as_properties(case.settings)
    lines = [line for batch in case.batches for line in batch]
    for maps in ("auto", "hint"):
        with_maps = {"driftline.maps": maps, **properties}
        for hint in planned(lines, with_maps)[1]:
            does_what_it_says(hint, lines, with_maps)


@pytest.mark.parametrize(("maps", "count"), [("auto", 4), ("hint", 6)])
def test_hints_at_objects(maps: str, count: int) -> None:
    properties = {"driftline.maps": maps}
    hints = planned(OBJECTS, properties)[1]
    assert len(hints) == count
    for hint in hints:
        does_what_it_says(hint, OBJECTS, properties)


# A file, the hint that it gets, and the types of its columns once that is pasted.
FILES = {
    "id;name\n1;a\n": ("detected --delimiter ';'", {"id": "long", "name": "string"}),
    "id,name\n1,'a,b'\n2,'c'\n": ("detected --quote \"'\"", {"id": "long", "name": "string"}),
    'id,name\n1,"say \\"a\\""\n': ("detected --escape '\\'", {"id": "long", "name": "string"}),
    "1.5,true\n2,false\n": ("detected --header no", {"column_1": "double", "column_2": "boolean"}),
    "id;price\n1;2,50\n": ("--decimal , would make price numeric", {"id": "long", "price": "double"}),
    "id;price\n1;1.002,50\n2;3,5\n": ("--thousands . would make price numeric", {"id": "long", "price": "double"}),
    "7,x\n8,x\n9,y\n": ("the header looks like data: if it is, pass --header no", {"column_1": "long", "column_2": "string"}),
    "# about\nid,n\n1,2\n": ("begins with a comment: --comment '#' skips", {"id": "long", "n": "long"}),
    "Report\n\nid,n\n1,2\n3,4\n": ("has fewer cells with text before line 3: --skip-lines 2", {"id": "long", "n": "long"}),
    "day,n\n01.03.2026,1\n": ("hints.day = \"date('dd.MM.yyyy')\"", {"day": "date", "n": "long"}),
    "at,n\n3/14/2026 9:30 PM,1\n": ("hints.at = \"timestamp('M/d/yyyy h:mm a')\"", {"at": "timestamp_ntz", "n": "long"}),
    "at,n\n2026-03-01T12:00:00+02:00,1\n2026-03-01 12:00:00Z,2\n": ("dates = \"instant\"", {"at": "timestamp", "n": "long"}),
    "at,to,n\n2026-03-01 12:00:00+02,2026-03-01 12:00:00.5-0330,1\n": ("dates = \"instant\"", {"at": "timestamp", "to": "timestamp", "n": "long"}),
    "bill,mass,n\n39.1,NA,1\n-,2,2\n": ("--null '-,NA' would make bill double, mass long", {"bill": "double", "mass": "long", "n": "long"}),
    '"the day",n\n31/12/2026,1\n': ("hints.\"the day\" = \"date('dd/MM/yyyy')\"", {"the day": "date", "n": "long"}),
}  # fmt: skip


def pasted_from(note: str) -> dict[str, str]:
    """The settings in a hint: a line of TOML, or flags that `driftline ingest` has."""
    if note.startswith(("hints.", "dates = ")):
        return as_properties(tomllib.loads(note))
    ingest = typer.main.get_command(app).commands["ingest"]  # type: ignore[attr-defined]
    flags = {flag for parameter in ingest.params for flag in parameter.opts}
    said = re.findall(r"(--[a-z-]+) ('[^']*'|\"[^\"]*\"|\S+)", note)
    assert said and {flag for flag, _ in said} <= flags
    return as_properties(
        {
            {"--null": "nulls"}.get(flag, flag[2:].replace("-", "_")): shlex.split(text.rstrip(",") or text)[
                0
            ]
            for flag, text in said
        }
    )


def read(file: Path, properties: dict[str, str]) -> tuple[FoundCsv, dict[str, str]]:
    found = CsvFiles(SPARK, [str(file)], strings=False)(ExpectedField(), from_properties(properties))
    (reader,) = found.readers
    return found, {f.name: str(f.type) for f in reader.struct.fields if f.doc != "overflow"}


@pytest.mark.parametrize("text", FILES)
def test_hints_at_csv(tmp_path: Path, text: str) -> None:
    hint, types = FILES[text]
    file = tmp_path / "in.csv"
    file.write_text(text)
    found, _ = read(file, {})
    (note,) = [note for note in found.notes if hint in note]
    again, pasted_types = read(file, pasted_from(note))
    assert pasted_types == types
    assert note not in again.notes
    rows = [some for part in range(len(again.readers[0].sizes)) for some in again.readers[0].rows(part)]
    assert all(not some.rejects for some in rows)


def test_hints_at_texts_of_json_with_offsets() -> None:
    """One line for all new fields that it reads, and for no others."""
    lines = [
        '{"at": "2026-03-01T12:00:00+02:00", "x": [{"to": "2026-03-01T12:00:00+02"}], "utc": "2026-03-01T12:00:00Z"}',
        '{"at": "2026-03-02T12:00:00-03:30", "y": {"by": ["2026-03-01T12:00:00+0200"]}, "day": "2026-03-01"}',
        '{"text": "2026-03-01T12:00:00+99:00", "late": 5}',
    ]
    (hint,) = offset_hints(lines, {})
    assert hint.startswith('dates = "instant"  # reads timestamps with offsets, as in at, x.element.to')
    types = {
        ".".join(path): str(f.type)
        for path, f in planned(lines, as_properties(tomllib.loads(hint)))[0].walk()
    }
    assert types["at"] == types["x.element.to"] == "timestamp" and types["text"] == "string"
    for dates in ("off", "instant"):
        assert offset_hints(lines, {"driftline.dates": dates}) == []


def offset_hints(lines: Sequence[str], properties: dict[str, str]) -> list[str]:
    settings = from_properties(properties)
    observer = JsonObserver(expect(Schema(), settings), settings)
    observer.feed([line.encode() for line in lines], "batch", 1)
    shape = observer.result().shape
    hints = offset_notes(shape, plan(Schema(), shape, settings).changes, settings.dates)
    # Of a table that has the columns, nothing is said.
    known = plan(Schema(), shape, settings).schema
    assert offset_notes(shape, plan(known, shape, settings).changes, settings.dates) == []
    return hints


KEYED = {"driftline.key": "id"}


def test_hints_at_messages_without_a_position() -> None:
    reasons = ["no key", "no position: no `es`, the time by which changes could be ordered"]
    (new,), (made,) = (arrival_hint("shop.t", reasons, exists=exists) for exists in (False, True))
    assert pasted_from(new) == {"driftline.order-by": "_arrival"}
    assert "\"ALTER TABLE shop.t SET TBLPROPERTIES ('driftline.order-by' = '_arrival')\"" in made
    assert arrival_hint("shop.t", reasons[:1], exists=True) == []


@pytest.mark.parametrize("envelope", SIGNS)
def test_hints_at_messages_in_an_envelope(envelope: str) -> None:
    shape = RecordShape()
    kinds = {TEXT: STRING, NUMBER: LONG, FLAG: BOOLEAN}
    for path, sort in {**SIGNS[envelope], "after": OBJECT}.items():
        if "." in path:
            continue
        inside = {
            name.partition(".")[2]: FieldShape(
                SourceLocation(), {Facet(0, STRING): Profile(SourceLocation())}
            )
            for name in SIGNS[envelope]
            if name.startswith(f"{path}.")
        }
        record = RecordShape(inside) if sort in (OBJECT, LIST) else None
        facet = Facet(int(sort == LIST), kinds.get(sort, RECORD))
        shape.fields[path] = FieldShape(SourceLocation(), {facet: Profile(SourceLocation(), record=record)})
    (note,) = envelope_note(shape)
    row_key = from_properties({**KEYED, **pasted_from(note)}).row_key
    assert row_key is not None and row_key.envelope == envelope


@pytest.mark.parametrize(
    ("sample", "unit"),
    [("1772438400000", None), ("1772438400000000", "us")],
    ids=["milliseconds", "microseconds"],
)
@pytest.mark.parametrize("name", ["made", "made at", "made.at", "it's"])
def test_hints_at_encoded_values(name: str, sample: str, unit: str | None) -> None:
    """The flags go through a shell as they stand."""
    settings = from_properties({**KEYED, "driftline.envelope": "debezium"})
    assert settings.row_key is not None
    profile = Profile(SourceLocation(), sample)
    shape = RecordShape({name: FieldShape(SourceLocation(), {Facet(0, LONG): profile})})
    (note,) = encoded_notes(shape, settings.row_key, lambda _: False)
    flags = shlex.split(
        note.partition("make the table with ")[2].removesuffix(", or have the connector send schemas")
    )
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    hinted = dict([given["--hint"].rsplit("=", 1)])
    units = dict([given["--set"].rsplit("=", 1)]) if "--set" in given else {}
    made = from_properties(
        as_properties({**{f"hints.{path}": type_ for path, type_ in hinted.items()}, **units})
    )
    contract = made.fields.at((name,))
    assert contract.hint == TIMESTAMP and contract.epoch_unit == unit


def test_hints_at_a_source_that_went_back() -> None:
    row_key = RowKey((("id",),), envelope="dms", epoch=4)
    command = late_hint("shop.people", row_key, 3, 4).partition("driftline alter ")[2]
    (statement,) = shlex.split(command)
    request = AlterRequest.of_sql(statement)
    assert (request.table, request.changes) == ("shop.people", (SetProperties({EPOCH_PROPERTY: "5"}),))


def test_hints_that_set_a_key_are_one_word_of_a_shell_whatever_the_names() -> None:
    for table, key in (("shop.people", "id"), ("shop.2 people", '`a\'b`, `$(c)`, "d\\e"')):
        (statement,) = shlex.split(table_property(table, KEY_PROPERTY, key))
        request = AlterRequest.of_sql(statement)
        assert (request.table, request.changes) == (table, (SetProperties({KEY_PROPERTY: key}),))


def test_hints_at_a_layout_that_a_table_has_not() -> None:
    schema = Schema(Struct((Field("day", DATE, 1), Field("id", LONG, 2))))
    now = Definition(schema=schema, last_column=2)
    notes = list(Creation("month(day)", "id DESC").differences("shop.orders", now, None))
    assert len(notes) == 2
    for note in notes:
        statement = re.search(r"ALTER TABLE .*\)", note)
        assert statement is not None and AlterRequest.of_sql(statement[0]).changes
