"""`query` only reads: what a statement does is told by Spark's own plan of it."""

from __future__ import annotations

import pyspark
import pytest

from driftline.errors import DataError, DriftlineError, UsageError
from driftline.lake import Lake
from lake.formats import database

# The first Spark that parses statements which begin so.
SINCE = {"from T |>": "4.0", "execute immediate": "4.0", "begin ": "4.1"}
READS = """
select * from T
with x as (select a from T where a in (select a from T)) select * from x union all values (1)
from T |> where a = 1
table T
show tables in t
show namespaces
describe query select 1
explain select * from T
""".strip().splitlines()

WRITES = """
drop table T | `Table.drop()`
insert into T values (2) | `Table.ingest()`
with x as (select 2 as a) insert into T select * from x | `Table.ingest()`
from T insert into T select a insert into T select a | `Table.ingest()`
insert overwrite T select 3 | `Table.ingest()`
insert overwrite directory '/nowhere' using parquet select 1 | runs it
delete from T where a = 1 | runs it
update T set a = 2 | runs it
merge into T using T as s on T.a = s.a when matched then delete | runs it
alter table T add column b int | `Lake.alter()`
alter table T write ordered by a | `Lake.alter()`
alter table T create branch b | runs it
truncate table T | runs it
create table t.other as select 1 | `Table.ingest()`
create view t.v as select 1 | `Table.view()`
create namespace other | runs it
call lake.system.expire_snapshots('T') | runs it
execute immediate 'drop table T' | runs it
begin drop table T; end | runs it
explain drop table T | `Table.drop()`
analyze table T compute statistics | runs it
refresh table T | runs it
cache table T | runs it
clear cache | runs it
load data inpath '/nowhere' into table T | `Table.ingest()`
use other | namespace.table
set spark.sql.ansi.enabled = false | driftline.toml
add jar '/nowhere' | runs it
""".strip().splitlines()


def is_syntax(sql: str) -> bool:
    """True if the Spark of this process parses the statement."""
    return all(pyspark.__version__ >= since for begin, since in SINCE.items() if sql.startswith(begin))


def test_what_reads_runs(lake: Lake, table_name: str) -> None:
    lake.table(table_name).ingest(lake.spark.sql("select 1 as a"))
    for sql in READS:
        if is_syntax(sql):
            assert lake.query(sql.replace("T", table_name)).count() >= 0, sql
    assert lake.query(f"/* drop table x */ select 'insert into t' as x, a from {table_name}").count() == 1


def test_what_writes_is_refused_and_changes_nothing(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest(lake.spark.sql("select 1 as a"))
    before = table.state()
    for line in WRITES:
        sql, _, instead = line.partition(" | ")
        says = (
            r"a query only reads, and this is '.+'; nothing of it was run"
            if is_syntax(sql)
            else "Syntax error|SQL_SCRIPTING"
        )
        with pytest.raises(DriftlineError, match=says) as told:
            lake.query(sql.replace("T", table_name))
        assert not is_syntax(sql) or instead in str(told.value.hint), sql
    assert table.state() == before
    assert not lake.table("t.other").format.load().exists


def test_sql_in_python(lake: Lake, table_name: str) -> None:
    """On Iceberg Spark runs any statement; what only seems to be written in a DuckLake is refused there."""
    table = lake.table(table_name)
    table.ingest(lake.spark.sql("select 1 as a"))
    if database(lake) is None:
        lake.sql(f"delete from {table_name} where a = 1")
        assert table.read().count() == 0
        return
    with pytest.raises(UsageError, match="only reads, and this is 'delete from table'") as told:
        lake.sql(f"delete from {table_name} where a = 1")
    assert told.value.hint == "DuckDB runs it"


@pytest.mark.parametrize(
    ("sql", "kind", "says", "hint"),
    [
        ("select * from T_none", DataError, r"SQL: The table or view .+ cannot be found.* \(line 1, column 15\)", "`Lake.tables()`"),
        ("select b from T", DataError, r"SQL: A column.*`b` cannot be resolved.* \(line 1, column 8\)", None),
        ("selec 1", UsageError, r"SQL: Syntax error at or near 'selec'.* \(line 1, column 1\)", None),
        ("select nowhere(1)", DataError, r"SQL: Cannot resolve (routine|function) `nowhere`", None),
    ],
)  # fmt: skip
def test_errors_of_sql_are_ours(
    lake: Lake, table_name: str, sql: str, kind: type[DriftlineError], says: str, hint: str | None
) -> None:
    lake.table(table_name).ingest(lake.spark.sql("select 1 as a"))
    with pytest.raises(kind, match=says) as told:
        lake.sql(sql.replace("T", table_name))
    assert "\n" not in told.value.message and (hint is None or hint in str(told.value.hint))
