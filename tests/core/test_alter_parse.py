"""ALTER TABLE of both dialects as changes; and what is said of what cannot be read."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.core.changes import (
    AddColumn,
    AddPartitionField,
    DropColumn,
    DropIdentifiers,
    DropPartitionField,
    MoveColumn,
    Position,
    RelaxColumn,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    ReplacePartitionField,
    RequireColumn,
    SetDefault,
    SetDistribution,
    SetDoc,
    SetIdentifiers,
    SetPartitioning,
    SetProperties,
    SetSortOrder,
    SortTerm,
    Term,
    UnsetProperties,
    WidenColumn,
)
from driftline.core.schema.definition import Transform
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.text import tokens
from driftline.core.schema.types import DOUBLE, INT, LONG, STRING, Field, List, Primitive, Struct, decimal
from driftline.errors import UsageError
from driftline.operations.alter_sql import parse


def changes(action: str) -> list[object]:
    return [clause.change for s in parse(f"ALTER TABLE shop.orders {action}") for clause in s.clauses]


AT = Term(("at",))


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        # DuckLake's page
        ("ADD COLUMN new_column INTEGER", [AddColumn((), Field("new_column", INT))]),
        (
            "ADD COLUMN new_column VARCHAR DEFAULT 'my_default'",
            [
                AddColumn(
                    (),
                    Field("new_column", STRING, initial_default="my_default", write_default="my_default"),
                )
            ],
        ),
        ("ADD COLUMN nested_column.new_field INTEGER", [AddColumn(("nested_column",), Field("new_field", INT))]),
        ("DROP COLUMN nested_column.new_field", [DropColumn(("nested_column", "new_field"))]),
        ("RENAME new_column TO new_name", [RenameColumn(("new_column",), "new_name")]),
        ("RENAME nested_column.new_field TO new_name", [RenameColumn(("nested_column", "new_field"), "new_name")]),
        ("ALTER col1 SET TYPE BIGINT", [WidenColumn(("col1",), LONG)]),
        ("ALTER nested_column.new_field SET TYPE BIGINT", [WidenColumn(("nested_column", "new_field"), LONG)]),
        ("ALTER i SET DATA TYPE double", [WidenColumn(("i",), DOUBLE)]),
        ("SET PARTITIONED BY (a, month(at))", [SetPartitioning((Term(("a",)), Term(("at",), Transform("month"))))]),
        ("RESET PARTITIONED BY", [SetPartitioning()]),
        ("SET SORTED BY (at DESC)", [SetSortOrder((SortTerm(AT, True, False),))]),
        ("RESET SORTED BY", [SetSortOrder()]),
        ("SET SORTED BY (lower(`n \"a`) || ', )' desc, bucket(8, id), days(at), CASE WHEN a % 2 THEN [b, c][1] END NULLS LAST)", [
            SetSortOrder((
                SortTerm("lower(\"n \"\"a\") || ', )'", True, False), SortTerm(Term(("id",), Transform("bucket", 8))),
                SortTerm(Term(("at",), Transform("day"))), SortTerm("CASE WHEN a % 2 THEN [b, c][1] END", False, False),
            )),
        ]),
        # Spark's and Iceberg's
        ("ADD COLUMNS (a int, b.c string COMMENT 'x')", [
            AddColumn((), Field("a", INT)), AddColumn(("b",), Field("c", STRING, doc="x")),
        ]),
        ("ADD COLUMN a int FIRST", [AddColumn((), Field("a", INT), to=Position())]),
        ("ADD COLUMN s.a int COMMENT 'x' AFTER b", [AddColumn(("s",), Field("a", INT, doc="x"), to=Position("b"))]),
        ("ADD COLUMN IF NOT EXISTS a int", [AddColumn((), Field("a", INT), if_absent=True)]),
        ("ADD COLUMN a int NOT NULL DEFAULT -1", [
            AddColumn((), Field("a", INT, required=True, initial_default=-1, write_default=-1)),
        ]),
        ("DROP COLUMN IF EXISTS a", [DropColumn(("a",), True)]),
        ("DROP COLUMNS (a, b.c)", [DropColumn(("a",)), DropColumn(("b", "c"))]),
        ("RENAME COLUMN a.b TO c", [RenameColumn(("a", "b"), "c")]),
        ("RENAME COLUMN a.b TO a.c", [RenameColumn(("a", "b"), "c")]),
        ("ALTER COLUMN a TYPE decimal(12,2)", [WidenColumn(("a",), decimal(12, 2))]),
        ("ALTER COLUMN a FIRST", [MoveColumn(("a",), Position())]),
        ("ALTER COLUMN s.a AFTER s.b", [MoveColumn(("s", "a"), Position("b"))]),
        ("ALTER COLUMN a COMMENT 'it''s'", [SetDoc(("a",), "it's")]),
        ("ALTER COLUMN a DROP NOT NULL", [RelaxColumn(("a",))]),
        ("ALTER COLUMN a SET NOT NULL", [RequireColumn(("a",))]),
        ("ALTER COLUMN a SET DEFAULT 1.50", [SetDefault(("a",), Decimal("1.50"))]),
        ("ALTER COLUMN a SET DEFAULT DATE '2026-01-02'", [SetDefault(("a",), "2026-01-02")]),
        ("ALTER COLUMN a SET DEFAULT X'00fF'", [SetDefault(("a",), b"\0\xff")]),
        ("ALTER COLUMN a SET DEFAULT NULL", [SetDefault(("a",), None)]),
        ("ALTER COLUMN a DROP DEFAULT", [SetDefault(("a",), None)]),
        ("ALTER COLUMN a TYPE bigint COMMENT 'x' AFTER b, c FIRST", [
            WidenColumn(("a",), LONG), SetDoc(("a",), "x"), MoveColumn(("a",), Position("b")), MoveColumn(("c",), Position()),
        ]),
        # Hive's, which Spark has too
        ("REPLACE COLUMNS (a int COMMENT 'x', b: SMALLINT NOT NULL)", [
            ReplaceColumns((Field("a", INT, doc="x"), Field("b", Primitive("int16"), required=True))),
        ]),
        ("CHANGE a b bigint", [WidenColumn(("a",), LONG), RenameColumn(("a",), "b")]),
        ("CHANGE COLUMN s.a a int COMMENT 'x' AFTER b", [
            WidenColumn(("s", "a"), INT), SetDoc(("s", "a"), "x"), MoveColumn(("s", "a"), Position("b")),
        ]),
        ("CHANGE COLUMN s.a s.b int NOT NULL FIRST", [
            WidenColumn(("s", "a"), INT), RequireColumn(("s", "a")), MoveColumn(("s", "a"), Position()),
            RenameColumn(("s", "a"), "b"),
        ]),
        ("CHANGE COLUMN a TYPE bigint", [WidenColumn(("a",), LONG)]),
        ("CHANGE a FIRST", [MoveColumn(("a",), Position())]),
        ("ALTER a SET DATA TYPE STRUCT(b SMALLINT[], c VARCHAR)", [
            WidenColumn(("a",), Struct((Field("b", List(Primitive("int16"))), Field("c", STRING)))),
        ]),
        ("RENAME TO other.orders", [RenameTable("other.orders")]),
        ("ADD PARTITION FIELD bucket(16, id) AS shard", [
            AddPartitionField(Term(("id",), Transform("bucket", 16)), "shard"),
        ]),
        ("ADD PARTITION FIELD truncate(s.name, 4)", [AddPartitionField(Term(("s", "name"), Transform("truncate", 4)))]),
        ("ADD PARTITION FIELD days(at)", [AddPartitionField(Term(("at",), Transform("day")))]),
        ("ADD PARTITION FIELD date(at)", [AddPartitionField(Term(("at",), Transform("day")))]),
        ("ADD PARTITION FIELD date_hour(at)", [AddPartitionField(Term(("at",), Transform("hour")))]),
        ("DROP PARTITION FIELD shard", [DropPartitionField("shard")]),
        ("DROP PARTITION FIELD years(at)", [DropPartitionField(Term(("at",), Transform("year")))]),
        ("REPLACE PARTITION FIELD at_day WITH hour(at) AS h", [
            ReplacePartitionField("at_day", Term(("at",), Transform("hour")), "h"),
        ]),
        ("WRITE ORDERED BY a, at DESC NULLS FIRST", [
            SetSortOrder((SortTerm(Term(("a",))), SortTerm(AT, True, True))), SetDistribution("range"),
        ]),
        ("WRITE LOCALLY ORDERED BY (at)", [SetSortOrder((SortTerm(AT),))]),
        ("WRITE DISTRIBUTED BY PARTITION", [SetSortOrder(), SetDistribution("hash")]),
        ("WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY at NULLS LAST", [
            SetSortOrder((SortTerm(AT, False, False),)), SetDistribution("hash"),
        ]),
        ("WRITE UNORDERED", [SetSortOrder(), SetDistribution("none")]),
        ("SET IDENTIFIER FIELDS a, b.c", [SetIdentifiers((("a",), ("b", "c")))]),
        ("DROP IDENTIFIER FIELDS a", [DropIdentifiers((("a",),))]),
        ("SET TBLPROPERTIES ('a.b' = 'x', c.d-e = 3, f = true)", [
            SetProperties({"a.b": "x", "c.d-e": "3", "f": "true"}),
        ]),
        ("UNSET TBLPROPERTIES IF EXISTS ('a', b)", [UnsetProperties(("a", "b"), True)]),
        # Names
        ('DROP COLUMN "a b".`c``d`.élan', [DropColumn(("a b", "c`d", "élan"))]),
        ("RENAME `to` TO `add`", [RenameColumn(("to",), "add")]),
        ("drop column /* or not */ a -- really", [DropColumn(("a",))]),
    ],
)  # fmt: skip
def test_parse(action: str, expected: list[object]) -> None:
    assert changes(action) == expected


@pytest.mark.parametrize(
    ("sql", "type_"),
    [
        (
            "struct<a: int, b: array<map<string, decimal(9, 2)>>>",
            "struct<a: int, b: list<map<string, decimal(9, 2)>>>",
        ),
        ("STRUCT(a INTEGER, b VARCHAR[])", "struct<a: int, b: list<string>>"),
        ("MAP(VARCHAR, BIGINT[][])", "map<string, list<list<long>>>"),
        ("timestamp", "timestamptz"),
        ("timestamp without time zone", "timestamp"),
        ("TIMESTAMP WITH TIME ZONE", "timestamptz"),
        ("timestamp_ntz", "timestamp"),
        ("double precision", "double"),
        ("varchar(20)", "string"),
        ("fixed(16)", "fixed[16]"),
        ("fixed[16]", "fixed[16]"),
        ("numeric(38)", "decimal(38, 0)"),
        ("UBIGINT", "decimal(20, 0)"),
        ("smallint[]", "list<int>"),
        ("int8", "long"),
        ("row(x real)", "struct<x: float>"),
        ("uuid", "uuid"),
    ],
)
def test_types(sql: str, type_: str) -> None:
    (change,) = changes(f"ADD COLUMN a {sql}")
    assert isinstance(change, AddColumn)
    assert type_name(change.type) == type_


@pytest.mark.parametrize(
    ("sql", "message", "at"),
    [
        ("", "there is no statement", ""),
        ("SELECT 1", "'SELECT' is not ALTER TABLE", "SELECT"),
        ("DROP TABLE t", "'DROP' is not ALTER TABLE", "DROP"),
        ("ALTER TABLE", "a table is missing at the end", ""),
        ("ALTER TABLE t", "nothing to change", ""),
        ("ALTER TABLE t EXPLODE", "'EXPLODE' is no change of a table", "EXPLODE"),
        ("ALTER TABLE t DROP COLUMN a b", "; is missing before 'b'", "b"),
        ("ALTER TABLE t DROP COLUMN 'a'", "a column stands in backticks or double quotes", "'a'"),
        ("ALTER TABLE t ADD COLUMN a", "a type is missing at the end", ""),
        ("ALTER TABLE t ADD COLUMN a money", "there is no type money", "money"),
        ("ALTER TABLE t ADD COLUMN a hugeint", "there is no type hugeint", "hugeint"),
        ("ALTER TABLE t ADD COLUMN a struct<x: int, x: int>", "there is a field x already", "x"),
        ("ALTER TABLE t ADD COLUMN a decimal", "how many digits?", "decimal"),
        ("ALTER TABLE t ADD COLUMN a decimal(39, 2)", "there is no decimal(39, 2)", "decimal"),
        ("ALTER TABLE t ADD COLUMN a int[3]", "a list has no fixed length here", "3"),
        ("ALTER TABLE t ADD COLUMN a struct<x: int", "> is missing at the end", ""),
        ("ALTER TABLE t ADD COLUMN a list<int, int>", "> is missing before ','", ","),
        ("ALTER TABLE t ADD COLUMN a int DEFAULT now()", "a default is a literal", "now"),
        ("ALTER TABLE t ADD COLUMN a int DEFAULT 'x'", "'x' is no int, or not exactly", "'x'"),
        ("ALTER TABLE t ALTER a SET DEFAULT \"x\"", "'x' in these quotes is a name", '"x"'),
        ("ALTER TABLE t ALTER a SET DEFAULT X'abc'", "bytes have two digits each", "X'abc'"),
        ("ALTER TABLE t ALTER a TYPE bigint USING a?", "USING would rewrite values", "USING"),
        ("ALTER TABLE t ALTER a TYPE bigint % a", "'%' has no meaning here", "%"),
        ("ALTER TABLE t ALTER a TYPE bigint USING a", "USING would rewrite values", "USING"),
        ("ALTER TABLE t ALTER a", "what about a?", ""),
        ("ALTER TABLE t ALTER s.a AFTER x.b", "a column stays in its struct", "x"),
        ("ALTER TABLE t REPLACE COLUMNS (a int, a string)", "there is a column a already", "a"),
        ("ALTER TABLE t REPLACE COLUMNS (a.b int)", "a type is missing before '.'", "."),
        ("ALTER TABLE t CHANGE s.a x.b int", "a rename does not move a column", "x"),
        ("ALTER TABLE t CHANGE a b", "a type is missing at the end", ""),
        ("ALTER TABLE t RENAME s.a TO x.b", "a rename does not move a column", "x"),
        ("ALTER TABLE t ADD PARTITION FIELD foo(a)", "there is no transform foo", "foo"),
        ("ALTER TABLE t WRITE ORDERED BY a, lower(b)", "there is no transform lower", "lower"),
        ("ALTER TABLE t SET SORTED BY (a, )", "a column or an expression is missing before ')'", ")"),
        ("ALTER TABLE t SET SORTED BY (lower(a)", ") is missing at the end", ""),
        ("ALTER TABLE t SET SORTED BY (lower(a]]", ") is missing at the end", ""),
        ("ALTER TABLE t ADD PARTITION FIELD bucket(a)", ", is missing before ')'", ")"),
        ("ALTER TABLE t WRITE", "how is it written?", ""),
        ("ALTER TABLE t SET TBLPROPERTIES ('a' = )", "a value for a is missing before ')'", ")"),
        ("ALTER TABLE t DROP COLUMN `a", "a name that begins with ` has no end", "`"),
        ("ALTER TABLE t ALTER a COMMENT 'x", "a text that begins with ' has no end", "'"),
        ("ALTER TABLE t DROP COLUMN a?", "'?' has no meaning here", "?"),
    ],
)  # fmt: skip
def test_errors_point_at_the_place(sql: str, message: str, at: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(sql)
    said, line, carets = caught.value.message.rsplit("\n", 2)
    assert message in said
    assert line[2:] == sql
    start, stop = carets.index("^"), carets.rindex("^") + 1
    assert line[start:stop].startswith(at) if at else True


def test_statements_and_their_text() -> None:
    sql = "ALTER TABLE a.b DROP COLUMN x;\n\nalter table a.b set tblproperties ('key' = 's3cret', 'k2' 'v');"
    first, second = parse(sql)
    assert (first.table, first.text) == ("a.b", "ALTER TABLE a.b DROP COLUMN x")
    assert second.text == "alter table a.b SET TBLPROPERTIES ('key', 'k2')"
    assert [sql[c.start : c.stop] for c in first.clauses] == ["x"]


def test_if_exists() -> None:
    (statement,) = parse("ALTER TABLE IF EXISTS a.b.c DROP COLUMN x")
    assert statement.if_exists
    assert statement.table == "a.b.c"


@pytest.mark.slow
@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for sql in (text, f"ALTER TABLE t {text}", f"ALTER TABLE t ADD COLUMN a {text}"):
        with suppress(UsageError):
            assert parse(sql)


@given(st.text(min_size=1).filter(lambda s: "\0" not in s))
def test_a_quoted_name_is_itself(name: str) -> None:
    for quote in '`"':
        quoted = quote + name.replace(quote, quote * 2) + quote
        assert tokens(quoted)[0].value == name
        assert changes(f"DROP COLUMN {quoted}") == [DropColumn((name,))]
    text = "'" + name.replace("'", "''") + "'"
    assert changes(f"ALTER a COMMENT {text}") == [SetDoc(("a",), name)]
