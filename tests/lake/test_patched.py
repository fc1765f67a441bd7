"""Tables whose records are patches of their rows, against a dictionary: in any order and any batches."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from core.patches import PatchOracle, differences, patches
from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table
from lake.formats import database
from lake.test_keyed import put, tamper
from lake.test_keyed_change import set_, unset

PATCH = {"key": "id", "order_by": "seq", "merge": "patch", "delete_when": "op = 'd'"}


def held(table: Table) -> dict[Any, dict[str, Any]]:
    rows = [row.asDict(recursive=True) for row in table.read().collect()]
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("how", ["ordered", "as they come", "format version 2", "rest"])
def test_a_table_is_what_a_dictionary_says(lake: Lake, table_name: str, tmp_path: Path, how: str) -> None:
    table, chance = lake.table(table_name), random.Random(how)
    oracle = PatchOracle(ordered=how != "as they come")
    settings = {**PATCH, "order_by": "seq" if oracle.ordered else ""}
    if how == "rest":
        settings |= {"max_columns": "6", "beyond": "rest"}
    if how == "format version 2":
        settings["format_version"] = "2" if database(lake) is None else "3"
    stream, files = patches(chance, 120), []
    while stream:
        batch, stream = stream[: (size := chance.randrange(15, 50))], stream[size:]
        expected = asdict(oracle.take(batch))
        files.append(put(tmp_path / f"{len(stream)}.jsonl", batch))
        result = table.ingest(files[-1], settings=settings)
        assert {name: result.to_dict()[name] for name in expected} == expected
        assert (result.rows_read, result.rows_quarantined) == (len(batch), 0)
        settings = {}

    rows = held(table)
    assert rows.keys() == oracle.rows.keys()
    assert {key: found for key, row in rows.items() if (found := differences(row, oracle.rows[key]))} == {}
    verdict = table.verify(files, exactly=True)
    assert (verdict.ok, verdict.extra, verdict.mismatches) == (True, 0, ())


def test_a_row_that_is_not_the_merge_of_its_records_is_found(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    changes = [{"id": 1, "seq": 1, "v": "a", "o": {"x": 1}}, {"id": 1, "seq": 2, "w": 1, "o": {"y": 2}}]
    changes += [{"id": 2, "seq": 1, "v": "b"}, {"id": 2, "seq": 3, "op": "d"}, {"id": 2, "seq": 4, "w": 1}]
    file = put(tmp_path / "1.jsonl", changes)
    table.ingest(file, settings=PATCH)
    fine = table.verify(file, exactly=True)
    assert (fine.ok, fine.records, fine.found, fine.overtaken) == (True, 5, 2, 3)
    tamper(table, "update {t} set v = 'c'")

    wrong = table.verify(file, exactly=True)
    assert (wrong.missing, sorted(m.why for m in wrong.mismatches)) == (
        2,
        ["'a' is in no column; column v holds 'c'", "v holds 'c', the record has no value there"],
    )
    with pytest.raises(DataError, match="are checked from JSON and CSV alone"):
        table.verify([{"id": 1, "seq": 1}])


def test_undo_brings_the_rows_of_before_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    first = put(tmp_path / "1.jsonl", [{"id": i, "seq": 1, "v": "a", "w": 1} for i in range(3)])
    second = put(tmp_path / "2.jsonl", [{"id": 0, "seq": 2, "v": 7}, {"id": 1, "seq": 3, "op": "d"}])
    table.ingest(first, settings=PATCH)
    before = held(table)
    taken = table.ingest(second)
    table.undo(yes=True)
    assert held(table) == before

    assert table.ingest(second).by_key == taken.by_key
    assert {key: row["w"] for key, row in held(table).items()} == {0: 1, 2: 1}


def test_a_replayed_record_is_a_patch(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(put(tmp_path / "1.jsonl", [{"id": 1, "seq": 1, "v": "a", "w": 1}]), settings=PATCH)
    late = put(tmp_path / "2.jsonl", [{"id": 1, "seq": 0, "more": 1}, {"id": 1, "seq": 2, "v": "b"}])
    strict = {"policies.id": "preserve", "policies.seq": "preserve", "policy": "strict"}
    assert table.ingest(late, settings=strict).rows_quarantined == 1
    (replayed,) = table.replay(settings={"policy": "preserve"}).results

    assert replayed.to_dict()["updated"] == 1
    assert [(r["v"], r["w"], r["more"], r["seq"]) for r in held(table).values()] == [("b", 1, 1, 2)]


def test_the_columns_of_typed_sources_are_present(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, spark = lake.table(table_name), lake.spark
    settings = {"key": "id", "merge": "patch"}
    table.ingest(
        put(tmp_path / "1.jsonl", [{"id": 1, "a": 1, "b": 1, "s": {"x": 1, "y": 1}}]), settings=settings
    )
    table.ingest(spark.sql("select 1L as id, cast(null as long) as a, named_struct('y', 2L) as s"))
    (row,) = held(table).values()
    assert (row["a"], row["b"], row["s"]) == (None, 1, {"x": 1, "y": 2})

    file = tmp_path / "3.csv"
    file.write_text("id,b,c\n1,,x\n2,5,\n")
    table.ingest(file)
    rows = held(table)
    assert [(rows[i]["b"], rows[i]["c"], rows[i]["s"]) for i in (1, 2)] == [
        (None, "x", {"x": 1, "y": 2}),
        (5, None, None),
    ]


def test_records_that_cannot_be_merged_are_refused(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    with pytest.raises(DataError, match="do not tell an absent key from None"):
        table.ingest([{"id": 1, "seq": 1, "b": b"typed"}], settings=PATCH)
    table.ingest(put(tmp_path / "1.jsonl", [{"id": 1, "seq": 1, "f": [{"x": 1}]}]), settings=PATCH)
    second = [{"id": 1, "seq": 2, "f": {"x": 1}}, {"id": 1, "seq": 2, "v": 2}]
    files = [tmp_path / "1.jsonl", put(tmp_path / "2.jsonl", second)]
    result = table.ingest(files[1])
    assert (result.rows_quarantined, result.by_key.updated) == (1, 1)
    (group,) = table.quarantine().groups
    assert "an object among lists of objects" in group.reason
    verdict = table.verify(files, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, 1)
    assert len(held(table)) == 1
    assert json.loads(json.dumps(held(table)[1]["f"])) == [{"x": 1}]


def test_a_default_stands_for_null_and_in_new_rows_for_an_absent_field(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    first = put(tmp_path / "1.jsonl", [{"id": i, "seq": 1, "v": i} for i in range(3)])
    table.ingest(first, settings={**PATCH, **({"format_version": "3"} if database(lake) is None else {})})
    lake.alter(f"ALTER TABLE {table_name} ADD COLUMN d bigint DEFAULT 5")
    second = [
        {"id": 0, "seq": 2, "v": 9},
        {"id": 1, "seq": 2, "d": 7},
        {"id": 2, "seq": 2, "d": None},
        {"id": 3, "seq": 2},
    ]
    table.ingest(put(tmp_path / "2.jsonl", second))
    table.ingest(put(tmp_path / "3.jsonl", [{"id": 1, "seq": 3, "v": 8}, {"id": 3, "seq": 1, "v": 3}]))

    assert {key: (row["v"], row["d"]) for key, row in held(table).items()} == {
        0: (9, 5),
        1: (8, 7),
        2: (2, 5),
        3: (3, 5),
    }


def test_a_column_that_a_csv_file_lacks_is_absent(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, files = lake.table(table_name), []
    for number, text in enumerate(("id,a,b\n1,x,y\n2,x,y\n", "id,a\n1,\n2,7\n", "id,b,c\n2,,z\n3,y,\n")):
        files.append(tmp_path / f"{number}.csv")
        files[-1].write_text(text)
        table.ingest(files[-1], settings={"key": "id", "merge": "patch"} if not number else None)

    assert {key: (row["a"], row["b"], row["c"]) for key, row in held(table).items()} == {
        1: (None, "y", None),
        2: ("7", None, "z"),
        3: (None, "y", None),
    }
    verdict = table.verify(files, exactly=True)
    assert (verdict.ok, verdict.records, verdict.extra) == (True, 6, 0)


def test_a_capture_patches_rows(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, folder = lake.table(table_name), tmp_path / "in"
    folder.mkdir()
    put(folder / "1.jsonl", [{"id": 1, "seq": 5, "b": 2}, {"id": 2, "seq": 1, "b": 1}])
    table.capture(folder, name="patches", settings=PATCH).awaitTermination()
    put(folder / "2.jsonl", [{"id": 1, "seq": 3, "a": 1, "b": 0}, {"id": 2, "seq": 2, "op": "d"}])
    table.capture(folder, name="patches").awaitTermination()

    assert {key: (row["a"], row["b"], row["seq"]) for key, row in held(table).items()} == {1: (1, 2, 5)}
    assert [dict(row["_order_fields"]).keys() for row in held(table).values()] == [{"a"}]


def test_how_records_are_merged_is_set_once(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, plain = lake.table(table_name), lake.table(f"{table_name}_plain")
    file = put(tmp_path / "1.jsonl", [{"id": 1, "seq": 1, "v": "a"}])
    table.ingest(file, settings=PATCH)
    plain.ingest(file)
    for some, settings in ((table, {"merge": "replace"}), (plain, {"key": "id", "merge": "patch"})):
        with pytest.raises(DataError, match="which is set when a table is made"):
            set_(some, **settings)
    with pytest.raises(UsageError, match="deletes = soft does not go with merge = patch"):
        set_(table, deletes="soft")
    with pytest.raises(UsageError, match="has merge = 'patch', and a batch does not change that"):
        table.ingest(file, settings={"merge": "replace"}, again=True)

    unset(table, "key")
    assert not {"_order", "_order_fields"} & set(table.read().columns)
    table.ingest(file, again=True)
    assert [row.v for row in table.read().collect()] == ["a", "a"]


def test_rows_that_only_move_keep_what_is_said_of_their_fields(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    rows = [{"id": i, "seq": 1, "v": "a", "w": i} for i in range(12)]
    late = [{"id": i, "seq": 5, "w": None} for i in range(12)]
    for number, batch in enumerate((rows, late)):
        table.ingest(put(tmp_path / f"{number}.jsonl", batch), settings=PATCH)
    table.ingest(put(tmp_path / "2.jsonl", [{"id": i, "seq": 9, "v": 7} for i in range(5)]))
    table.ingest(put(tmp_path / "3.jsonl", [{"id": i, "seq": 3, "v": "b", "w": 1} for i in range(12)]))
    found = held(table)
    assert {i: (row["v"], row["w"]) for i, row in found.items()} == {
        i: ("7" if i < 5 else "b", None) for i in range(12)
    }
    assert table.verify([tmp_path / f"{number}.jsonl" for number in range(4)], exactly=True).ok
