"""Others change the table all the time: a capture goes on for as long as it takes, and every record is in once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.core.history.batch_properties import BatchIsInError, Token
from driftline.errors import DataError
from driftline.formats import commit as retry
from driftline.formats.base import CommitConflict
from driftline.formats.ducklake.alteration import DuckLakeDraft
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.alteration import IcebergDraft
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.ingest import attempts
from driftline.ingest.result import Result
from driftline.lake import Lake, Table
from driftline.operations import value_counts
from driftline.sources.json_files import JsonFiles, JsonScan
from lake.formats import beside, database

# By which each format commits, the quarantine with the table or not.
COMMITS: dict[Any, str] = {IcebergTransaction: "commit", DuckLakeTransaction: "commit_with"}
KINDS: list[Any] = [*COMMITS]


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    """A table of each format."""
    return lake.table(table_name)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_MOST", 0.001)


def bring(
    table: Table,
    folder: Path,
    epoch: int,
    *lines: str,
    progress: Callable[[str], None] = lambda _: None,
    **more: Any,
) -> Result:
    """One micro-batch of a capture."""
    file = folder / f"{epoch}.jsonl"
    file.write_text("\n".join(lines))
    source = JsonFiles(spark=table.lake.spark, files=[str(file)])
    token = Token("orders", "stream-1", epoch)
    options = attempts.Options(token=token, progress=progress, **{"endless": True, **more})
    return attempts.ingest(table.format, source, options)


def ids(table: Table) -> list[Any]:
    return sorted(row.id for row in table.read().select("id").collect())


def commit_of(kind: Any) -> str:
    return COMMITS.get(kind, "commit")  # that of a draft, too


def busy(patch: pytest.MonkeyPatch, times: int, act: Callable[[int], None] = lambda _: None) -> list[int]:
    """Has so many commits of whoever comes find that somebody was faster, who did ``act``; gives what is to come."""
    left = list(range(times))
    for kind in KINDS:
        works = getattr(kind, commit_of(kind))

        def commit(self: Any, *others: Any, commit: Callable[..., None] = works) -> None:
            if left:
                act(left.pop(0))
                raise CommitConflict("someone was faster")
            commit(self, *others)

        patch.setattr(kind, commit_of(kind), commit)
    return left


def others_append(
    patch: pytest.MonkeyPatch, table: Table, folder: Path, *lines: str, kinds: list[Any] = KINDS
) -> list[str]:
    """Has others append a line each before the next commits; gives what is to come."""
    left, own = list(lines), threading.Lock()
    for kind in kinds:
        works = getattr(kind, commit_of(kind))

        def commit(self: Any, *others: Any, commit: Callable[..., None] = works) -> None:
            if left and own.acquire(blocking=False):
                file = folder / f"others_{len(left)}.jsonl"
                file.write_text(left.pop(0))
                table.ingest(file)
                own.release()
            commit(self, *others)

        patch.setattr(kind, commit_of(kind), commit)
    return left


def replacements(patch: pytest.MonkeyPatch) -> list[None]:
    calls: list[None] = []
    for kind in KINDS:

        def counted(self: Any, *args: Any, replace: Callable[..., Any] = kind.replace_all) -> Any:
            calls.append(None)
            return replace(self, *args)

        patch.setattr(kind, "replace_all", counted)
    return calls


def written(patch: pytest.MonkeyPatch) -> list[None]:
    calls: list[None] = []
    patch.setattr(JsonScan, "guess", lambda *_: None)  # what comes of a wrong one is written, too
    for kind, name in product(KINDS, ("append", "write")):  # rows of a frame, and of tasks

        def counted(self: Any, *args: Any, method: Callable[..., Any] = kind.__dict__[name]) -> Any:
            calls.append(None)
            return method(self, *args)

        patch.setattr(kind, name, counted)
    return calls


def test_a_capture_goes_on_however_often_others_are_faster(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = 20
    bring(table, tmp_path, 0, '{"id": 0}', "no record")
    phases: list[str] = []
    with monkeypatch.context() as patch:
        calls, left = written(patch), busy(patch, times)
        bring(table, tmp_path, 1, '{"id": 1, "new": 1}', "no record", progress=phases.append)
        assert (len(calls), left) == (2, []), "the rows and the rejects, once each"
    assert ids(table) == [0, 1]
    waits = [phase for phase in phases if phase.startswith("waiting: ")]
    assert len(waits) == times
    assert waits[-1].startswith(f"waiting: others changed {table.name} {times} times in ")
    with pytest.raises(BatchIsInError):
        bring(table, tmp_path, 1, '{"id": 1}')


def test_what_others_alter_beside_the_batch_costs_a_commit_and_no_writing(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = table.lake
    bring(table, tmp_path, 0, '{"id": 0, "a": "x"}')

    def alter(i: int) -> None:
        what = f"ADD COLUMN c{i} int" if i % 2 else f"SET TBLPROPERTIES ('other.key' = '{i}')"
        lake.alter(f"ALTER TABLE {table.name} {what}")

    with monkeypatch.context() as patch:
        calls, left = written(patch), busy(patch, 12, alter)
        bring(table, tmp_path, 1, '{"id": 1, "a": "y"}')
        assert (len(calls), left) == (1, [])
    assert ids(table) == [0, 1]
    assert table.read().where("a = 'y' and c1 is null and c11 is null").count() == 1


MOVES = {
    "RENAME COLUMN a TO z": ("id, z", [(0, "x"), (1, "y")]),
    "DROP COLUMN a": ("id, a", [(0, None), (1, "y")]),
    "SET TBLPROPERTIES ('driftline.hints.a' = 'binary')": (
        "id, a, a_binary",
        [(0, "x", None), (1, "y", b"y")],
    ),
}


@pytest.mark.parametrize("what", MOVES)
def test_what_others_alter_in_its_way_has_it_planned_anew(
    table: Table, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, rows = MOVES[what]
    bring(table, tmp_path, 0, '{"id": 0, "a": "x"}')
    with monkeypatch.context() as patch:
        calls = written(patch)
        busy(patch, 1, lambda _: table.lake.alter(f"ALTER TABLE {table.name} {what}") and None)
        bring(table, tmp_path, 1, '{"id": 1, "a": "y"}')
        assert len(calls) == 2
    found = table.read().orderBy("id")
    if "hints" not in what:
        assert [tuple(row) for row in found.selectExpr(*columns.split(", ")).collect()] == rows
    assert ids(table) == [0, 1]


def test_a_batch_of_a_person_gives_up_in_time(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(table, tmp_path, 0, '{"id": 0}')
    busy(monkeypatch, 10_000)
    monkeypatch.setattr(retry, "PATIENCE", 0.2)
    with pytest.raises(DataError, match=r"others changed it \d+ times in") as told:
        bring(table, tmp_path, 1, '{"id": 1}', endless=False)
    assert "other writers keep changing this table" in str(told.value.hint)
    assert ids(table) == [0]


def test_a_column_keeps_its_id_over_several_conflicts(
    table: Table, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files have the id of the first try. The commits are the catalog's own: one that has failed leaves
    the transaction on the table as others made it.
    """
    bring(table, tmp_path, 0, '{"id": 0}')
    others = beside(table.lake, spark.newSession())
    folder = tmp_path / "others"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"id": 1}')
    faster: list[Callable[[], object]] = [
        lambda: others.table(table.name).ingest(folder),
        lambda: others.alter(f"ALTER TABLE {table.name} ADD COLUMN c int"),
    ]
    their_turn = False
    for kind in KINDS:
        works = getattr(kind, commit_of(kind))

        def commit(self: Any, *others: Any, commit: Callable[..., None] = works) -> None:
            nonlocal their_turn
            if faster and not their_turn:
                their_turn, act = True, faster.pop(0)
                act()
                their_turn = False
            commit(self, *others)

        monkeypatch.setattr(kind, commit_of(kind), commit)
    bring(table, tmp_path, 1, '{"id": 2, "b": 7}')
    assert not faster
    rows = [(row.id, row.b, row.c) for row in table.read().orderBy("id").collect()]
    assert rows == [(0, None, None), (1, None, None), (2, 7, None)]


def test_an_alter_every_third_of_a_second_and_two_captures(
    table: Table, spark: SparkSession, tmp_path: Path
) -> None:
    lake, batches = table.lake, 3
    bring(table, tmp_path, 0, '{"id": -1, "a": "x"}')

    def mine() -> Table:
        return beside(lake, spark.newSession()).table(table.name)

    def capture(name: str) -> None:
        other = mine()
        for epoch in range(batches):
            file = tmp_path / f"{name}-{epoch}.jsonl"
            file.write_text(json.dumps({"id": epoch, "a": name, f"of_{name}": epoch}))
            options = attempts.Options(token=Token(name, "stream", epoch), endless=True)
            attempts.ingest(other.format, JsonFiles(spark=other.lake.spark, files=[str(file)]), options)

    others, altered = mine(), 0
    with ThreadPoolExecutor() as threads:
        captures = [threads.submit(capture, name) for name in "ab"]
        while altered < 200 and not all(one.done() for one in captures):
            others.lake.alter(f"ALTER TABLE {table.name} ADD COLUMN c{altered} int")
            altered += 1
            wait(captures, timeout=0.3)
        for one in captures:
            one.result()
    assert altered > 1
    for name in "ab":
        assert sorted(row.id for row in table.read().where(f"a = '{name}'").collect()) == list(range(batches))


@pytest.mark.parametrize("settings", [{}, {"format_version": "3", "partition_by": "day"}], ids=["", "v3"])
def test_a_resolve_takes_along_what_others_append_meanwhile(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    """A table that is written to all the time would never be settled if all rows had to be written anew."""
    if database(table.lake) is not None:
        settings = {key: value for key, value in settings.items() if key != "format_version"}
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 0, "day": "a", "n": 7}\n{"id": 1, "day": "b", "n": "x"}')
    table.ingest(file, settings=settings)
    others = ['{"id": 2, "day": "b", "n": 8}', '{"id": 3, "day": "c", "n": "9"}']
    with monkeypatch.context() as patch:
        left, calls = others_append(patch, table, tmp_path, *others), replacements(patch)
        resolved = table.resolve("n", "string")
        assert (left, len(calls)) == ([], 1)
    assert (resolved.values, resolved.rest) == (4, 0)
    rows = table.read().select("id", "n").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(0, "7"), (1, "x"), (2, "8"), (3, "9")]
    table.undo()
    assert ids(table) == [0, 1, 2, 3]


def test_a_resolve_is_planned_anew_for_a_value_that_does_not_convert(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 0, "n": 7}\n{"id": 1, "n": "8"}')
    table.ingest(file)
    with monkeypatch.context() as patch:
        left = others_append(patch, table, tmp_path, '{"id": 2, "n": "many"}')
        calls = replacements(patch)
        resolved = table.resolve("n", "long")
        assert (left, len(calls)) == ([], 2)
    assert (resolved.values, resolved.rest, len(resolved.kept_in)) == (3, 1, 1)
    rows = table.read().selectExpr("n", resolved.kept_in[0][0]).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(7, None), (8, None), (None, "many")]


def test_a_promote_takes_along_what_others_append_meanwhile(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.jsonl"
    for line in ('{"id": 0}', '{"id": 1, "new": 1}'):
        file.write_text(line)
        table.ingest(file, settings={"new_fields": "hold"})
    with monkeypatch.context() as patch:
        left = others_append(
            patch, table, tmp_path, '{"id": 2, "new": 2}\n{"id": 3}', '{"id": 4, "new": "x"}'
        )
        calls = replacements(patch)
        promoted = table.promote("new")
        assert (left, len(calls)) == ([], 2), "anew for the text alone"
    assert promoted.values == {"new": 3}
    values = {
        row.id: {v for name, v in row.asDict().items() if name.startswith("new") and v is not None}
        for row in table.read().collect()
    }
    assert values == {0: set(), 1: {1, "1"}, 2: {2, "2"}, 3: set(), 4: {"x"}}


def test_a_rewrite_takes_along_what_others_append_meanwhile(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 0, "n": 7}')
    table.ingest(file)
    file.write_text('{"id": 1, "n": "x"}')
    with monkeypatch.context() as patch:
        left = others_append(patch, table, tmp_path, '{"id": 2, "n": 8}', '{"id": 3, "n": 9}')
        calls = replacements(patch)
        result = table.ingest(file, settings={"policy": "widen", "allow_rewrite": "true"})
        assert (left, len(calls), result.rows_written) == ([], 1, 1)
    rows = table.read().select("id", "n").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(0, "7"), (1, "x"), (2, "8"), (3, "9")]


def test_an_undo_counts_what_others_append_meanwhile(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were counted are not counted anew, which would take longer than the next commit takes to come."""
    file = tmp_path / "in.jsonl"
    for line in ('{"id": 0}', '{"id": 1, "new": 1}'):
        file.write_text(line)
        table.ingest(file)
    counted: list[int] = []
    count = value_counts.count_values

    def told(*given: Any) -> Any:
        found = count(*given)
        counted.append(sum(values.count for values in found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(value_counts, "count_values", told)
        left = others_append(
            patch, table, tmp_path, '{"id": 2, "new": 2}', '{"id": 3}', kinds=[IcebergDraft, DuckLakeDraft]
        )
        undone = table.undo(yes=True)
        assert left == []
    assert undone.to_dict()["hidden"] == {"new": 2}
    assert max(counted) == 1, "two values, in two tries"
    assert table.read().columns == ["id"]
    table.undo()
    assert {row.id: row.new for row in table.read().collect()} == {0: None, 1: 1, 2: 2, 3: None}
