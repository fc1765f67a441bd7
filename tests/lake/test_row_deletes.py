"""A commit that adds rows and removes others by position, against a dictionary, as every reader reads it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from driftline.convert import arrow_schema
from driftline.core.changes import AddColumn
from driftline.core.history.entries import MOVED
from driftline.core.schema.types import LONG, Field, Schema
from driftline.errors import DataError
from driftline.formats.base import CommitConflict, Moved
from driftline.keys.anew import RowsLeft
from driftline.keys.identity import BatchKeys, FieldColumns
from driftline.keys.settle import Latest, settle
from driftline.lake import Lake, Table
from driftline.write import PartTasks, Reported, SetAside, folder_of_batch
from driftline.write.positions import CHANGED, ROW_ID
from lake.ducklake_peer import run
from lake.formats import by_pyiceberg, database, declare
from lake.test_task_files import files_of

Batch = dict[Any, str | None]  # None deletes
KINDS = ["iceberg, vectors", "iceberg, positions", "ducklake"]


@dataclass(frozen=True)
class Made:
    """One task, which makes these rows."""

    schema: Schema
    batch: Batch
    left: RowsLeft | None

    def rows(self, _: int, __: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        made = [{"id": key, "v": value} for key, value in self.batch.items() if value is not None]
        if made:
            rows = pa.RecordBatch.from_pylist(made, arrow_schema(self.schema.struct))
            for name in (ROW_ID, CHANGED) if self.left is not None and self.left.with_ids else ():
                rows = rows.append_column(name, pa.nulls(len(rows), pa.int64()))
            yield rows
        if self.left is not None:
            yield from self.left.read()
        return Reported(None)


def begun(table: Table, batch: Batch) -> Any:
    """A transaction that is yet to commit the batch."""
    transaction = table.format.transaction(table.format.load())
    column = transaction.schema.find(("id",))
    keys = BatchKeys(
        [FieldColumns.of([(column.id, column.type)])],
        pa.table(
            {str(column.id): pa.array(list(batch), arrow_schema(transaction.schema.struct).field("id").type)}
        ),
    )
    deletes = np.array([value is None for value in batch.values()], np.bool_)
    done = settle(Latest.of(keys.own, None, deletes), transaction.find(keys, None))
    left = transaction.remove(done.dead, 0)
    with_ids = left is not None and left.with_ids
    with folder_of_batch(table.format.spark, transaction) as folder:
        tasks = PartTasks(table.format.spark, (1,), Made(transaction.schema, batch, left))
        written = transaction.write(tasks, folder, {"driftline.batch": "b"}, with_ids=with_ids)
    assert written == len(done.live) + (0 if left is None else len(left))
    return transaction


def upsert(table: Table, batch: Batch) -> Any:
    transaction = begun(table, batch)
    transaction.commit()
    return transaction


def held(table: Table, at: int | None = None) -> dict[Any, str]:
    rows = table.format.read(at).select("id", "v").collect()
    held = {row.id: row.v for row in rows}
    assert len(held) == len(rows), sorted(row.id for row in rows)
    return held


def held_by_others(table: Table) -> dict[Any, str]:
    """The rows that pyiceberg reads, or DuckDB."""
    if (ducklake := database(table.lake)) is not None:
        rows = run(ducklake, f"SELECT id, v FROM lk.{table.name}")
    else:
        read = by_pyiceberg(table, "id", "v")
        rows = list(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True))
    assert len(dict(rows)) == len(rows), sorted(rows)
    return dict(rows)


def moved(table: Table) -> list[int]:
    """The numbers of rows that batches wrote anew, the oldest first."""
    if database(table.lake) is not None:
        id_ = table.format.load().table.id
        (found,) = table.format.catalog.read(
            lambda c: c.rows(
                "SELECT list(commit_extra_info ORDER BY snapshot_id) FROM meta.ducklake_snapshot_changes "
                f"WHERE regexp_matches(changes_made, ':{id_}(,|$)')"
            )
        )
        messages = (json.loads(text) for text in found[0] if text)
        return [int(message[MOVED]) for message in messages if MOVED in message]
    found = table.lake.sql(
        f"select summary['{MOVED}'] as n from lake.{table.name}.snapshots order by committed_at"
    ).collect()
    return [int(row.n) for row in found if row.n is not None]


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, table_name: str) -> Table:
    """A table of numbers and texts, for each way in which rows are removed."""
    kind, _, how = request.param.partition(", ")
    lake: Lake = request.getfixturevalue(kind)
    return made(lake, table_name, "" if not how else f"'format-version' = '{3 if how == 'vectors' else 2}'")


def made(lake: Lake, name: str, properties: str, type_: str = "bigint", layout: str = "") -> Table:
    table = lake.table(name)
    if properties:
        lake.sql("create namespace if not exists lake.t")
        lake.sql(
            f"create table lake.{name} (id {type_}, v string) using iceberg {layout} tblproperties ({properties})"
        )
    else:
        declare(table, f"id {type_}, v string")
    return table


@pytest.mark.nightly
def test_rows_are_what_a_dictionary_says(table: Table) -> None:
    chance, oracle, snapshots = random.Random(7), {}, {}
    for number in range(8):
        batch: Batch = {
            chance.randrange(40): f"{number}-{i}" if chance.random() < 0.7 else None
            for i in range(chance.randrange(1, 20))
        }
        oracle |= batch
        oracle = {key: value for key, value in oracle.items() if value is not None}
        snapshots[upsert(table, batch).snapshot] = dict(oracle)

    assert held(table) == oracle == held_by_others(table)
    for snapshot, then in list(snapshots.items())[2::3]:
        assert held(table, snapshot) == then


def test_a_batch_of_nothing_but_deletes_commits(table: Table) -> None:
    upsert(table, {1: "a", 2: "b"})
    upsert(table, {1: None, 7: None})

    assert held(table) == {2: "b"} == held_by_others(table)


def test_rows_of_files_that_others_wrote_are_found(table: Table) -> None:
    if (ducklake := database(table.lake)) is not None:
        run(ducklake, f"INSERT INTO lk.{table.name} SELECT i, 'x' FROM range(100) r(i)")
        run(ducklake, f"DELETE FROM lk.{table.name} WHERE id > 4")
        run(ducklake, f"INSERT INTO lk.{table.name} VALUES (50, 'in the catalog'), (51, 'and this')")
    else:
        table.lake.sql(f"insert into lake.{table.name} select /*+ coalesce(1) */ id, 'x' from range(100)")
        table.lake.sql(
            f"alter table lake.{table.name} set tblproperties ('write.delete.mode' = 'merge-on-read')"
        )
        table.lake.sql(f"delete from lake.{table.name} where id > 4")
        table.lake.sql(f"insert into lake.{table.name} values (50, 'x'), (51, 'and this')")

    upsert(table, {3: "new", 4: None, 50: "new", 9: "new"})
    upsert(table, {2: None, 51: None, 9: "newer"})

    expected = {0: "x", 1: "x", 3: "new", 50: "new", 9: "newer"}
    assert held(table) == expected == held_by_others(table)


def test_columns_that_came_and_keys_that_widened(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    declare(table, "id int, v string")
    upsert(table, {1: "a", 2: "b"})
    table.lake.alter(f"ALTER TABLE {table.name} ALTER COLUMN id TYPE bigint")
    transaction = begun(table, {2: "c", 2**40: "d"})
    transaction.evolve([AddColumn((), Field("more", LONG))])
    transaction.commit()
    upsert(table, {1: None, 2**40: "e"})

    assert held(table) == {2: "c", 2**40: "e"} == held_by_others(table)


def append(table: Table) -> None:
    table.ingest([{"id": 5, "v": "theirs"}])


def upserted(table: Table) -> None:
    upsert(table, {1: "theirs"})


def compact(table: Table) -> None:
    if (ducklake := database(table.lake)) is not None:
        namespace, name = table.name.split(".")
        how = f"'{name}', schema => '{namespace}', delete_threshold => 0"
        run(ducklake, f"CALL ducklake_rewrite_data_files('lk', {how})")
    else:
        options = "map('rewrite-all', 'true')"
        table.lake.sql(f"call lake.system.rewrite_data_files(table => '{table.name}', options => {options})")


@pytest.mark.nightly
@pytest.mark.parametrize("others", [append, upserted, compact], ids=lambda act: act.__name__)
def test_whoever_commits_in_between_makes_it_a_conflict(
    table: Table, others: Callable[[Table], None]
) -> None:
    unchanged = dict.fromkeys(range(10, 13), "x")
    upsert(table, {1: "a", 2: "b", 3: "c", **unchanged})
    upsert(table, {2: None})
    transaction = begun(table, {1: "ours", 3: None, 5: "ours"})
    others(table)
    theirs, files = held(table), files_of(table.lake, table)

    with pytest.raises(CommitConflict):
        transaction.commit()
    with pytest.raises(Moved):
        transaction.rebase(table.format.load())
    transaction.abandon()

    assert held(table) == theirs
    assert files_of(table.lake, table) < files
    upsert(table, {1: "ours", 3: None, 5: "ours"})
    assert held(table) == {1: "ours", 5: "ours", **unchanged} == held_by_others(table)


def test_what_is_abandoned_leaves_no_file(table: Table) -> None:
    upsert(table, {1: "a", 2: "b"})
    before = files_of(table.lake, table)
    begun(table, {1: "c", 2: None}).abandon()

    assert files_of(table.lake, table) == before
    assert held(table) == {1: "a", 2: "b"}


def test_compaction_keeps_what_is_deleted_away(table: Table) -> None:
    upsert(table, dict.fromkeys(range(10), "a"))
    upsert(table, dict.fromkeys(range(8)) | {9: "b"})
    compact(table)

    assert held(table) == {8: "a", 9: "b"} == held_by_others(table)
    upsert(table, {8: "c", 9: None})
    assert held(table) == {8: "c"} == held_by_others(table)


def test_a_cleaner_takes_no_delete_file(table: Table) -> None:
    upsert(table, {1: "a", 2: "b"})
    upsert(table, {1: None})
    table.lake.clean(0)

    assert held(table) == {2: "b"}


def test_a_partitioned_table(iceberg: Lake, table_name: str) -> None:
    table = made(iceberg, table_name, "'format-version' = '3'", layout="partitioned by (v)")
    upsert(table, {1: "a", 2: "b", 3: "b"})
    upsert(table, {1: "b", 2: None})

    assert held(table) == {1: "b", 3: "b"} == held_by_others(table)


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ("'format-version' = '1'", "has format version 1, in which no rows can be removed"),
        ("'format-version' = '3', 'write.format.default' = 'orc'", "keys are not looked up in files of orc"),
    ],
)
def test_tables_in_which_rows_are_not_found_say_so(
    iceberg: Lake, table_name: str, properties: str, says: str
) -> None:
    table = made(iceberg, table_name, properties)
    iceberg.sql(f"insert into lake.{table_name} values (1, 'a')")

    with pytest.raises(DataError, match=says):
        begun(table, {1: "b"})


def test_rows_that_sparks_own_writer_writes(iceberg: Lake, table_name: str) -> None:
    bloom = "'format-version' = '3', 'write.parquet.bloom-filter-enabled.column.id' = 'true'"
    table = made(iceberg, table_name, bloom)
    upsert(table, {1: "a", 2: "b"})
    upsert(table, {1: "c", 3: "d"})

    assert held(table) == {1: "c", 2: "b", 3: "d"} == held_by_others(table)
    snapshots = iceberg.sql(
        f"select operation from lake.{table_name}.snapshots order by committed_at"
    ).collect()
    assert [row.operation for row in snapshots] == ["append", "overwrite"]


DUCKDBS = {
    "merge": "CALL ducklake_merge_adjacent_files('lk')",
    "flush": "CALL ducklake_flush_inlined_data('lk')",
    "update": "UPDATE lk.{table} SET v = 'theirs' WHERE id IN (1, 51)",
    "expire": "CALL ducklake_expire_snapshots('lk', older_than => now() + INTERVAL 1 DAY)",
}


@pytest.mark.parametrize("act", DUCKDBS)
def test_whatever_duckdb_does_between_look_up_and_commit(ducklake: Lake, table_name: str, act: str) -> None:
    table, catalog = made(ducklake, table_name, ""), database(ducklake)
    upsert(table, {1: "a", 2: "b"})
    upsert(table, {3: "c", 4: "d"})
    run(catalog, f"INSERT INTO lk.{table.name} VALUES (50, 'in the catalog'), (51, 'and this')")
    changes: Batch = {1: "ours", 3: None, 50: "ours", 51: None, 60: "ours"}
    transaction = begun(table, changes)
    run(catalog, DUCKDBS[act].format(table=table.name))
    try:
        transaction.commit()
    except CommitConflict:
        transaction.abandon()
        upsert(table, changes)

    assert held(table) == {1: "ours", 2: "b", 4: "d", 50: "ours", 60: "ours"} == held_by_others(table)
