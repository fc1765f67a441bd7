"""Tables with a key where they meet folders of partitions, other engines' upkeep, and settings that change."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.lake import Lake
from lake.ducklake_peer import run
from lake.formats import database
from lake.test_keyed import SETTINGS, held, put, remembered, rows_of, tamper
from lake.test_row_deletes import compact, held_by_others


@pytest.fixture(params=["iceberg, 2", "iceberg, 3", "ducklake, "])
def versioned(request: pytest.FixtureRequest) -> tuple[Lake, dict[str, str]]:
    """A lake of each format, and the layout of its tables: each way in which rows are removed."""
    kind, _, version = request.param.partition(", ")
    return request.getfixturevalue(kind), {"format_version": version} if version else {}


def partitioned(folder: Path, fmt: str, rows: dict[str, list[dict[str, Any]]]) -> Path:
    """A folder with a partition for each day."""
    for day, records in rows.items():
        part = folder / f"dt={day}"
        part.mkdir(parents=True, exist_ok=True)
        file = part / f"{len(list(part.iterdir()))}.{fmt}"
        if fmt == "jsonl":
            put(file, records)
        elif fmt == "csv":
            names = ["id", "v", "op"]
            lines = [",".join(str(record.get(name, "")) for name in names) for record in records]
            file.write_text("\n".join([",".join(names), *lines]) + "\n")
        else:
            pq.write_table(
                pa.Table.from_pylist([{"id": None, "v": None, "op": None, **r} for r in records]), file
            )
    return folder


@pytest.mark.nightly
@pytest.mark.format_has_no_say("a key's value is that of the record, whatever keeps its row")
@pytest.mark.parametrize("fmt", ["jsonl", "csv", "parquet"])
def test_a_partition_of_the_folder_is_part_of_the_key(
    lake: Lake, table_name: str, tmp_path: Path, fmt: str
) -> None:
    table = lake.table(table_name)
    settings = {"key": "id, dt", "delete_when": "op = 'd'"}
    first = partitioned(tmp_path / "1", fmt, {
        "2026-01-01": [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], "2026-01-02": [{"id": 1, "v": "c"}],
    })  # fmt: skip
    second = partitioned(tmp_path / "2", fmt, {
        "2026-01-01": [{"id": 1, "op": "d"}, {"id": 2, "v": "e"}], "2026-01-03": [{"id": 1, "v": "f"}],
    })  # fmt: skip
    made = table.ingest(first, settings=settings)
    assert (made.to_dict()["inserted"], made.rows_quarantined) == (3, 0)
    result = table.ingest(second).to_dict()

    assert [result[name] for name in ("inserted", "updated", "deleted")] == [1, 1, 1]
    found = {(row.id, str(row.dt)): row.v for row in table.read().collect()}
    assert found == {(2, "2026-01-01"): "e", (1, "2026-01-02"): "c", (1, "2026-01-03"): "f"}
    assert table.verify([first, second], exactly=True).ok


@pytest.mark.parametrize("fmt", ["jsonl", "parquet"])
def test_a_row_that_moves_to_another_partition_of_the_folder(
    lake: Lake, table_name: str, tmp_path: Path, fmt: str
) -> None:
    """Partitions order the changes, and say which delete; those of the table are others."""
    table = lake.table(table_name)
    settings = {"key": "id", "order_by": "dt", "delete_when": "op = 'd' and dt = '2026-01-03'"}
    source = partitioned(tmp_path / "in", fmt, {"2026-01-02": [{"id": i, "v": "a"} for i in range(4)]})
    table.ingest(source, settings={**settings, "partition_by": "v"})
    more = partitioned(tmp_path / "more", fmt, {
        "2026-01-01": [{"id": 0, "v": "late"}],
        "2026-01-03": [{"id": 1, "v": "b"}, {"id": 2, "op": "d"}],
        "2026-01-04": [{"id": 3, "v": "c", "op": "d"}],
    })  # fmt: skip
    result = table.ingest(more).to_dict()

    assert [result[name] for name in ("updated", "deleted", "late")] == [2, 1, 1]
    assert held_by_others(table) == {0: "a", 1: "b", 3: "c"}


def test_deletes_that_are_remembered_from_later_on(
    versioned: tuple[Lake, dict[str, str]], table_name: str
) -> None:
    lake, layout = versioned
    table = lake.table(table_name)
    settings = {"key": "id", "order_by": "seq", "partition_by": "v", **layout}
    table.ingest([{"id": i, "seq": 1, "v": "ab"[i % 2], "n": i} for i in range(6)], settings=settings)
    table.ingest([{"id": 0, "seq": 2, "v": "b", "n": 20}])
    deleted = table.ingest(
        [{"id": 0, "seq": 5, "op": "d"}, {"id": 9, "seq": 5, "op": "d"}],
        settings={"delete_when": "op = 'd'", "delete_memory": "1d"},
    ).to_dict()
    late = table.ingest([{"id": i, "seq": 4, "v": "a", "n": 4} for i in (0, 1, 9)]).to_dict()

    assert (deleted["deleted"], deleted["ignored"], late["late"], late["updated"]) == (1, 1, 2, 1)
    assert len(remembered(table)) == 2
    assert held_by_others(table) == {1: "a", 2: "a", 3: "b", 4: "a", 5: "b"}
    table.undo(yes=True)
    assert held(table)[("number", Decimal(1))] == 1


def test_rows_of_old_partition_specs(versioned: tuple[Lake, dict[str, str]], table_name: str) -> None:
    """No key is a column of any spec, and each batch finds rows of all of them."""
    lake, layout = versioned
    table, peer = lake.table(table_name), database(lake)
    settings = {**SETTINGS, "partition_by": "v", **layout}
    table.ingest([{"id": i, "seq": 1, "v": "ab"[i % 2]} for i in range(8)], settings=settings)
    changes = [
        ("SET PARTITIONED BY (seq)", "REPLACE PARTITION FIELD v WITH truncate(10, seq)"),
        ("RESET PARTITIONED BY", "DROP PARTITION FIELD truncate(10, seq)"),
    ]
    for number, (by_duckdb, by_spark) in enumerate(changes, 2):
        lake.alter(f"ALTER TABLE {table_name} {by_duckdb if peer else by_spark}")
        seq = 10 * number
        table.ingest([{"id": i, "seq": seq, "v": str(number)} for i in range(number)] + [
            {"id": 3 + number, "seq": seq, "op": "d"}, {"id": 7, "seq": seq, "v": str(number)},
        ])  # fmt: skip
    expected = {0: "3", 1: "3", 2: "3", 3: "b", 4: "a", 7: "3"}
    assert held_by_others(table) == expected
    compact(table)
    assert table.ingest([{"id": i, "seq": 5, "v": "late"} for i in (5, 6, 7)]).to_dict()["late"] == 3
    assert held_by_others(table) == expected


def test_a_default_is_the_key_of_rows_before_it(lake: Lake, table_name: str) -> None:
    table, on_ducklake = lake.table(table_name), database(lake) is not None
    table.ingest([{"id": i, "tenant": "eu", "v": "a"} for i in range(3)], settings={"key": "id, tenant"})
    tamper(table, "alter table {t} drop column tenant")
    text = "varchar" if on_ducklake else "string"
    if on_ducklake:
        tamper(table, f"alter table {{t}} add column tenant {text} default 'us'")
    else:
        lake.alter(f"ALTER TABLE {table_name} ADD COLUMN tenant string DEFAULT 'us'")
    result = table.ingest(
        [{"id": 0, "tenant": "us", "v": "b"}, {"id": 1, "tenant": "eu", "v": "c"}]
    ).to_dict()

    assert (result["updated"], result["inserted"]) == (1, 1)
    found = sorted((row.id, row.tenant, row.v) for row in table.read().collect())
    assert found == [(0, "us", "b"), (1, "eu", "c"), (1, "us", "a"), (2, "us", "a")]


def test_compaction_while_rows_that_stay_are_marked(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look-up and the commit others rewrite the files that the values are kept from."""
    table = lake.table(table_name)
    table.ingest([{"id": i, "seq": 1, "n": i} for i in range(4)], settings={**SETTINGS, "deletes": "soft"})
    table.ingest([{"id": 0, "seq": 2, "n": 20}])
    others = [lambda: compact(table), lambda: compact(table)]
    for kind, method in ((IcebergTransaction, "write"), (DuckLakeTransaction, "write")):
        before = getattr(kind, method)

        def written(self: Any, *given: Any, before: Any = before, **named: Any) -> Any:
            if others and named.get("with_ids") is not None:
                others.pop()()
            return before(self, *given, **named)

        monkeypatch.setattr(kind, method, written)
    result = table.ingest([{"id": i, "seq": 3, "op": "d"} for i in (0, 1)]).to_dict()

    assert not others
    assert result["deleted"] == 2
    found = {row["id"]: (row["n"], row["_is_deleted"]) for row in rows_of(table)}
    assert found == {0: (20, True), 1: (1, True), 2: (2, False), 3: (3, False)}


@pytest.mark.nightly
def test_upkeep_by_others_leaves_what_is_remembered(lake: Lake, table_name: str, folder: Path) -> None:
    table, peer = lake.table(table_name), database(lake)
    table.ingest([{"id": i, "seq": 1, "n": i, "v": "a"} for i in range(4)], settings=SETTINGS)
    for id_ in (1, 2):
        table.ingest([{"id": id_, "seq": 9, "op": "d"}])
    if peer is None:
        for file in folder.rglob("*"):
            os.utime(file, (1e9, 1e9))
        calls = [
            "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
            "expire_snapshots(table => '{}', older_than => timestamp '2100-01-01 00:00:00', retain_last => 1)",
            "remove_orphan_files(table => '{}', older_than => timestamp '2020-01-01 00:00:00')",
        ]
        for call in calls:
            lake.sql(f"call lake.system.{call.format(table_name)}").collect()
    else:
        compact(table)
        run(
            peer,
            "CALL ducklake_expire_snapshots('lk', older_than => now() + interval 1 day)",
            "CALL ducklake_cleanup_old_files('lk', cleanup_all => true)",
            "CALL ducklake_delete_orphaned_files('lk', cleanup_all => true)",
        )
    assert len(remembered(table)) == 2
    result = table.ingest([{"id": i, "seq": 8, "n": 8, "v": "b"} for i in (1, 2, 3)]).to_dict()

    assert (result["late"], result["updated"]) == (2, 1)
    assert held_by_others(table) == {0: "a", 3: "b"}


def test_a_table_of_which_only_the_newest_snapshot_is_left(ducklake: Lake, table_name: str) -> None:
    table, peer = ducklake.table(table_name), database(ducklake)
    for seq in (1, 2):
        table.ingest([{"id": 1, "seq": seq, "n": seq}], settings=SETTINGS)
    run(peer, "CALL ducklake_expire_snapshots('lk', older_than => now() + interval 1 day)")

    (entry,) = table.history().entries
    assert (entry.by, entry.after.definition.schema) == ("unknown", table.state().schema)
    with pytest.raises(
        DataError, match=r"the snapshot before \d+ was expired, and the rows that the batch replaced with it"
    ):
        table.undo(yes=True)
    assert list(held(table).values()) == [2]


def test_files_of_earlier_columns_after_their_snapshots_expired(ducklake: Lake, table_name: str) -> None:
    """Files of a schema with lists are registered with a mapping of names, which a newer schema replaces."""
    table, peer = ducklake.table(table_name), database(ducklake)
    table.ingest([{"id": i, "seq": 1, "v": "a", "l": [i]} for i in range(4)], settings=SETTINGS)
    for number in range(2):
        table.ingest([{"id": number, "seq": 2, "v": "b", f"m{number}": [{"x": 1}]}])
        run(peer, "CALL ducklake_expire_snapshots('lk', older_than => now() + interval 1 day)")
    result = table.ingest([{"id": i, "seq": 3, "v": "c"} for i in (0, 2)]).to_dict()

    assert result["updated"] == 2
    assert held_by_others(table) == {0: "c", 1: "b", 2: "c", 3: "a"}


def test_rows_that_duckdb_deletes_in_its_catalog(ducklake: Lake, table_name: str) -> None:
    """Each row is told as deleted once: in the catalog, or in the delete file of its data file."""
    table, peer = ducklake.table(table_name), database(ducklake)
    table.ingest([{"id": i, "seq": 1, "v": "a"} for i in range(12)], settings=SETTINGS)
    expected = dict.fromkeys(range(12), "a")
    run(peer, f"DELETE FROM lk.{table_name} WHERE id IN (4, 5)")
    for id_ in (4, 5):
        del expected[id_]
    for seq, ids in enumerate([(1,), (2, 8), (0, 4)], 2):
        table.ingest([{"id": i, "seq": seq, "v": str(seq)} for i in ids])
        expected |= dict.fromkeys(ids, str(seq))
        assert held_by_others(table) == expected
    assert {row["id"]: row["v"] for row in rows_of(table)} == expected
    assert table.stats().records == len(expected)


CELLS = [
    ["1", "2"], ["1", "x", "007", "2.50"], ["1", "2"], ["007", "x"], ["1.0", "2.50", "1e3"], ["true", "false"],
    ["TRUE", "1", "1e3"], ["2026-01-01", "2", ""],
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.format_has_no_say("a key's value is that of the record, whatever keeps its row")
def test_a_cell_is_the_same_key_whatever_stands_beside_it(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    """Columns of CSV have types by all of their texts, keys by their own."""
    table, files, expected, number = lake.table(table_name), [], {}, 0
    for cells in CELLS:
        lines = []
        for cell in cells:
            lines.append(f"{cell},{number}")
            expected[KEYS.get(cell, cell)] = number
            number += 1
        files.append(tmp_path / f"{len(files)}.csv")
        files[-1].write_text("id,n\n" + "\n".join(lines) + "\n")
        table.ingest(files[-1], settings={"key": "id"})

    del expected[""]  # waits
    assert by_cell(table) == expected
    assert table.verify(files, exactly=True).ok


@pytest.mark.format_has_no_say("a key's value is that of the record, whatever keeps its row")
@pytest.mark.parametrize("settings", [{}, {"hints": {"id": "string"}}], ids=["first texts", "a hint"])
def test_a_cell_is_text_where_the_key_has_nothing_but_texts(
    lake: Lake, table_name: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    table, files = lake.table(table_name), []
    for number, cells in enumerate([["x", "7", "1.10"], ["7", "8"], ["1.10", "1.1"], ["true", "8"]]):
        files.append(tmp_path / f"{number}.csv")
        files[-1].write_text("id,n\n" + "".join(f"{cell},{number}\n" for cell in cells))
        table.ingest(files[-1], key="id", **settings)

    assert by_cell(table) == {"x": 0, "7": 1, "8": 3, "1.10": 2, "1.1": 2, "true": 3}
    assert table.verify(files, exactly=True).ok


KEYS: dict[str, Any] = {
    "1": 1,
    "1.0": 1,
    "2": 2,
    "2.50": 2.5,
    "true": "True",
    "TRUE": "True",
    "false": "False",
}


def by_cell(table: Any) -> dict[Any, int]:
    """The rows by key; a truth value by its name."""
    rows = [row.asDict() for row in table.read().collect()]
    keys = [next(v for k, v in row.items() if k.startswith("id") and v is not None) for row in rows]
    found = {
        str(key) if isinstance(key, bool) else key: row["n"] for key, row in zip(keys, rows, strict=True)
    }
    assert len(found) == len(rows), rows
    return found
