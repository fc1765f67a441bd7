"""One stream into many tables: what names a table, and how tables are given to values."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.core.schema.naming import caseless, must_take_records, table_parts
from driftline.core.values import RefusedText
from driftline.errors import UsageError
from driftline.ingest.assignment import Assignment
from driftline.ingest.deal import RecordValues
from driftline.ingest.deal_messages import text_of_key
from driftline.ingest.pattern import DIGITS, OTHER, Pattern, Values, of_file, text_of
from driftline.verify.files import Read, SourcePlace
from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.messages import naming
from driftline.verify.routing import TableNames
from driftline.verify.routing import text_of as text_by_verify

ONE = Pattern.of("hooks.{event}")
DEEP = Pattern.of("a.hooks.{event}")

# Values of JSON, each with its table in `hooks`, and in `a.hooks` where that has another name.
NAMES = r"""
"push" push
"Push" push
"pull_request" pull_request
"pull-request" pull_request_99c5ba
"Pull-Request" pull_request_99c5ba
"pull\u0020request" pull_request_763fae
"\u0020push" _push_2a03f5
"pull_request_99c5ba" pull_request_99c5ba_a91e3a
"branch_protection_rule" branch_protection_rule _branch_protection_rule_c54b25
"tag_v1" tag_v1 _tag_v1_7e87bb
"at_timestamp_7" at_timestamp_7 _at_timestamp_7_2a7f8d
"snapshot_id_7" snapshot_id_7 _snapshot_id_7_9fa7c1
"files" files files_3d7db3
"_other" _other_e7847e
"_Other" _other_e7847e
"other" other
"a__quarantine" a__quarantine_9e2812
"a__deletes" a__deletes_819fcf
"a_settled" a_settled
"_" _
"!!!" ____e84c53
"a.b" a_b_2e7336
"a/b" a_b_c14cdd
"../x" ___x_d6b96a
"{event}" _event__4e8b10
"\u0000" __6e340b
"a\nb" a_b_7e18f7
"`a`" _a__954c4f
"\"a\"" _a__ac8d83
"true" true
"TRUE" true
"7" 7
"007" 007
"7.0" 7_0_0de7cf
"7.5" 7_5_c4495d
"-7" _7_a770d3
"day_20240101" day_20240101
"day_202401" day_202401_90e5b9
"user_decade" user_decade_f9364c
"x_0123456789ab" x_0123456789ab_fd06c8
"\u00c9t\u00e9" été
"E\u0301te\u0301" été_b71a8c
"\u00df" ß
"SS" ss
"\u1e9e" ß
"\u0130" i__fbbdb3
"i" i
"\u0131" ı
"\u212a" k_8254c3
"\u03a3" σ
"\u03c2" ς
"\u4e8b\u4ef6" 事件
"\u00b2" __57853a
"\u0663" ٣
"\ud83d\ude80" __ebbc0b
"\ud800" __91a681
"\u0939\u093f" ह__680fae
"\ufeffpush" _push_01bcda
true true
7 7
7.0 7
70e-1 7
-0.0 0
1e3 1000
7.5 7_5_c4495d
-7 _7_a770d3
1e999 1e999
12345678901234567890123 12345678901234567890123
0.1 0_1_14be4b
1e-500 1e_500_4a627d
"""


def by_verify(pattern: str, text: bytes, tables: dict[str, list[Values]], *, ascii_only: bool = False) -> str:
    """The table in which the independent check looks for a record."""
    try:
        record = parse(text)
    except MalformedText:
        record = None
    return TableNames(pattern, tables, {}, ascii_only).table_of(Read(SourcePlace("/in/a.jsonl.gz"), record))


@pytest.mark.parametrize("row", NAMES.strip().splitlines())
def test_what_a_value_becomes(row: str) -> None:
    value, table, *others = row.split(" ")
    text = text_of(json.loads(value, parse_float=Decimal))
    assert text is not None
    assert ONE.named([text]) == f"hooks.{table}"
    deep = DEEP.named([text])
    assert deep == f"a.hooks.{others[0] if others else table}"
    table_parts(deep)  # Spark takes it for a table
    if "\\ud800" not in value:  # no record
        record = b'{"event": %s}' % value.encode()
        assert by_verify(ONE.text, record, {ONE.named([text]): []}) == ONE.named([text])
        assert by_verify(DEEP.text, record, {deep: []}) == deep
        assert by_verify(ONE.text, record, {ONE.named([text]): [("another",)]}) == "hooks._other"


@pytest.mark.parametrize("value", [None, "", {}, {"a": 1}, [], ["push"]])
def test_what_names_no_table(value: object) -> None:
    assert text_of(value) is None


def test_a_long_name_is_cut_between_characters() -> None:
    assert ONE.named(["a" * 100]) == f"hooks.{'a' * 100}"
    assert ONE.named(["a" * 101]) == f"hooks.{'a' * 100}_9d0793"
    assert ONE.named([f"{'é' * 50}x"]) == f"hooks.{'é' * 50}_38b9b8"
    cut = f"hooks.{'é' * 50}_38b9b8"
    assert by_verify(ONE.text, json.dumps({"event": f"{'é' * 50}x"}).encode(), {cut: []}) == cut


def test_letters_of_ascii_alone() -> None:
    assert ONE.named(["été"], ascii_only=True) == "hooks._t__bd010c"
    record = '{"event": "été"}'.encode()
    assert by_verify(ONE.text, record, {"hooks._t__bd010c": []}, ascii_only=True) == "hooks._t__bd010c"


def test_braces_may_stand_anywhere() -> None:
    pattern = Pattern.of("{source.db}.{source.table}_{op}")
    assert [pattern.path(number) for number in range(3)] == [("source", "db"), ("source", "table"), ("op",)]
    assert pattern.named(["Shop", "Orders", "c"]) == "shop.orders_c"
    assert pattern.named(["", "orders", "c"]) == "_other.orders_c"
    assert pattern.other(["Shop", "", "c"]) == "shop._other"
    for text, table in {
        b'{"source": {"db": "Shop", "table": "Orders"}, "op": "c"}': "shop.orders_c",
        b'{"source": {"table": "orders"}, "op": "c"}': "_other.orders_c",
        b'{"source": {"db": "Shop"}, "op": "c"}': "shop._other",
        b'{"op": "c"': "_other._other",
    }.items():
        assert by_verify(pattern.text, text, {"shop.orders_c": [], "_other.orders_c": []}) == table
    assert by_verify("{_file.folder}.{_file.stem}", b"{}", {"in.a": []}) == "in.a"
    assert by_verify("{_file.folder}.{_file.stem}", b"[]", {"in.a": []}) == "in._other"
    assert Pattern.of("hooks.{a.`b.c`}").path(0) == ("a", "b.c")
    assert Pattern.of("t.{_topic}").path(0) is None
    ONE.must_be_of_files()
    with pytest.raises(UsageError, match="no topic"):
        Pattern.of("t.{_key.x}").must_be_of_files()
    assert of_file("a.json") == {"_file.stem": "a", "_file.folder": None}


@pytest.mark.parametrize(
    ("key", "path", "text"),
    [
        (b"plain", (), "plain"), (b'"plain"', (), "plain"), (b"1.10", (), "1.10"), (b"", (), None), (b"\xff", (), None),
        (b'{"a": {"b": 7.0}}', ("a", "b"), "7"), (b'{"a": 7}', ("b",), None), (b'{"a": 7}', (), None), (b"a", ("a",), None),
    ],
)  # fmt: skip
def test_what_a_message_s_key_names_a_table_by(key: bytes, path: tuple[str, ...], text: str | None) -> None:
    assert text_of_key(key, path) == text
    assert text_by_verify(naming(key, path)) == text


@pytest.mark.parametrize(
    "text", ["hooks", "hooks.event", "{event}", "hooks.{}", "hooks.{a", "hooks.a}", "hooks.{a}}", "hooks.{{a}}",
             "hooks..{a}", ".{a}", "hooks.{a}.", "hooks.{a..b}", "hooks.{a b}c.\x00"]
)  # fmt: skip
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(UsageError):
        Pattern.of(text)


def of(*values: str) -> list[Values]:
    return [(value,) for value in values]


def test_what_is_seen_first_gets_its_table_while_there_is_room() -> None:
    given = Assignment(ONE, room=2).with_new(
        [*of("push", "PUSH"), (None,), *of("ping", "fork")], lambda _: None
    )
    assert list(given.tables.values()) == ["hooks.push", "hooks.push", "hooks.ping"]
    assert [given.table(values) for values in [*of("fork"), (None,)]] == ["hooks._other", "hooks._other"]
    again = given.with_new(of("fork", "Ping"), lambda _: None)
    assert (again.table(("fork",)), again.table(("Ping",))) == ("hooks._other", "hooks.ping")


def test_a_second_value_of_a_name_gets_a_longer_digest() -> None:
    two = Pattern.of("t.{a}_{b}")
    seen: list[Values] = [("x_y", "z"), ("x", "y_z")]
    first, second = Assignment(two).with_new(seen, lambda _: None).tables.values()
    assert (first, second.startswith("t.x_y_z_"), len(second)) == (
        "t.x_y_z",
        True,
        len("t.x_y_z_") + DIGITS[1],
    )
    # In another batch, in which the other comes first, each goes to its table.
    there = {first: [seen[0]], second: [seen[1]]}
    records = [b'{"a": "X_y", "b": "z"}', b'{"a": "x", "b": "y_Z"}']
    assert [by_verify(two.text, record, there) for record in records] == [first, second]
    assert list(Assignment(two).with_new(seen[::-1], there.get).tables.values()) == [second, first]
    assert Assignment(ONE).with_new(of("i", "ı"), lambda _: None).tables[("ı",)].startswith("hooks.ı_")


def test_a_table_that_is_there_takes_no_room() -> None:
    there = {"hooks.push": [], "hooks.ping": of("ping")}
    given = Assignment(ONE, room=0).with_new(of("push", "Ping", "fork"), there.get)
    assert given.tables == {("push",): "hooks.push", ("Ping",): "hooks.ping"}


texts = st.text(max_size=12) | st.sampled_from(
    ["İ", "i̇", "ı", "I", "K", "k", "ς", "Σ", "_other", "a_b", "a-b"]
)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.tuples(texts, texts), max_size=20), st.sampled_from(["t.{a}", "t.{a}_{b}", "x.{a}.t{b}"]))
def test_two_values_share_a_table_only_by_case(seen: list[tuple[str, str]], text: str) -> None:
    pattern = Pattern.of(text)
    braces = len(pattern.braces)
    values = [tuple(text_of(value) for value in pair[:braces]) for pair in seen]
    given = Assignment(pattern).with_new(values, lambda _: None)
    owners: dict[str, set[tuple[str, ...]]] = {}
    for of_one, table in given.tables.items():
        table_parts(table)
        assert not table.endswith(f".{OTHER}")
        owners.setdefault(caseless(table), set()).add(tuple((value or "").lower() for value in of_one))
    assert all(len(of_table) == 1 for of_table in owners.values())


class Lines(NamedTuple):
    lines: list[bytes]
    source: str = "in/a.jsonl"


def test_what_a_record_names() -> None:
    deep = b'{"e": {"x": "v"}, "d": ' + b"[" * 200 + b"]" * 200 + b"}"
    texts: dict[bytes, str | None] = {
        b'{"e": {"x": "push"}}': "push",
        b'{"e": {"x": 7.0}, "e": {"x": 1}}': "1",
        b' {"\\u0065": {"x": "a\\tb"}}\r': "a\tb",
        b'{"e": {"x": true}, "b": 1e999}': "true",
        b'{"e": {"x": ["a"]}}': None,
        b'{"e": "x"}': None,
        b'{"e": {"x": "push"}, "b": "\xff"}': None,
        b'{"e": {"x": "push"}, "b": 01}': None,
        b'[{"e": {"x": "push"}}]': None,
        deep: None,
        RefusedText.of(b'{"e": {"x": "push"}}', "no"): None,
    }
    reader = RecordValues(Pattern.of("{_file.folder}.{e.x}"), {})
    run: Any = Lines([b"", *texts, b"  "])
    assert reader.values(run) == {place: ("in", text) for place, text in enumerate(texts.values(), 1)}


def test_a_pattern_names_no_table() -> None:
    with pytest.raises(UsageError, match="pattern of tables") as refused:
        must_take_records("a b.{event}")
    assert "driftline alter 'ALTER TABLE `a b`.`{event}` RENAME TO event'" in (refused.value.hint or "")
