"""The quarantine, looked at and sent through again: each record once, whatever dies in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline.core.history.batch_properties import Token
from driftline.errors import UsageError
from driftline.ingest import attempts
from driftline.lake import Lake, Table
from driftline.operations import replay
from driftline.quarantine import table as quarantine
from driftline.sources.json_files import JsonFiles
from driftline.stats import stats
from driftline.stats.build import stats as stats_without_spark
from lake.formats import is_embedded
from lake.proof import proven
from lake.test_arrow_rows import without_spark
from lake.test_keyed import tamper

STRICT = {"policy": "strict", "hints": {"id": "long", "n": "long"}}
LINES = (
    '{"id": 1, "n": 5}',
    '{"id": 2, "n": "x"}',
    '{"id": 3, "n": "y"}',
    '{"id": 4, "more": true}',
    "no JSON",
    '{"id": 5',
)


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


@pytest.fixture
def file(table: Table, tmp_path: Path) -> Path:
    """Five of its six lines are in quarantine."""
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(LINES))
    result = table.ingest(file, settings=STRICT)
    assert (result.rows_written, result.rows_quarantined) == (1, 5)
    return file


def rows(table: Table) -> list[dict[str, Any]]:
    return [r.asDict(recursive=True) for r in table.read().orderBy("id").collect()]


def waiting_in_statistics(table: Table) -> int:
    """The number of records that `stats` says wait, which `tables` says too, without Spark."""
    statistics = stats(table.format)
    assert statistics.quarantined == sum(reason.records for reason in statistics.waiting)
    if not is_embedded(table.lake):
        return statistics.quarantined
    found = without_spark(table.lake).table(table.name)
    assert found is not None
    in_short = stats_without_spark(found, in_short=True)
    assert in_short is not None
    assert in_short.quarantined == statistics.quarantined
    return statistics.quarantined


@pytest.mark.nightly
def test_a_replay_that_fails_is_not_counted_twice(table: Table, file: Path) -> None:
    assert table.replay().back == 3
    assert waiting_in_statistics(table) == table.quarantine().waiting == 5
    table.replay(settings={"policy": "preserve"})
    assert waiting_in_statistics(table) == table.quarantine().waiting == 2


def test_a_quarantine_from_before_it_had_keys(table: Table, file: Path) -> None:
    for column in ("key", "key_bytes"):
        tamper(table.lake.table(f"{table.name}__quarantine"), f"alter table {{t}} drop column {column}")
    assert table.quarantine().waiting == 5
    assert table.replay(settings={"policy": "preserve"}).written == 3
    assert quarantine.of(table.format).read().columns[-2:] == ["key", "key_bytes"]
    assert (len(rows(table)), table.quarantine().waiting) == (4, 2)


@pytest.mark.format_has_no_say("a quarantine is a table as any other, and its rows are read by Spark")
def test_it_is_listed_by_reason(table: Table, file: Path) -> None:
    found = table.quarantine()
    assert (found.waiting, found.replayed) == (5, 0)
    n = next(g for g in found.groups if g.path == "n")
    assert (n.count, n.table_type, n.incoming_type, n.sample) == (2, "long", "string", LINES[1])
    assert n.place.endswith("in.jsonl:2")
    assert {g.count for g in found.groups if not g.path} <= {1, 2}
    assert sum(g.count for g in found.groups) == 5
    assert json.dumps(found.to_dict())
    reasons = {waiting.reason for waiting in stats(table.format).waiting}
    assert {"n: string into long", "more: boolean where the table has no such column"} <= reasons


@pytest.mark.format_has_no_say("a quarantine is a table as any other, and its rows are read by Spark")
def test_reason_in_two_files_names_the_first_and_the_last(table: Table, file: Path, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"id": 7, "n": 1}\n{"id": 8, "n": "z"}')
    table.ingest(tmp_path / "other.jsonl")
    group = next(group for group in table.quarantine().groups if group.path == "n")
    assert (group.place, group.last_place) == (f"{file}:2", f"{tmp_path / 'other.jsonl'}:2")


@pytest.mark.format_has_no_say("a quarantine is a table as any other, and its rows are read by Spark")
def test_it_is_exported(table: Table, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "it.jsonl"
    assert table.export_quarantine(out) == 5
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert {t["raw"] for t in told} == set(LINES[1:])
    assert all(t["reason"] and t["source"].endswith("in.jsonl") and t["line"] for t in told)
    with pytest.raises(UsageError, match="cannot be written"):
        table.export_quarantine(tmp_path / "none" / "it.jsonl")


def test_it_goes_through_again_once(table: Table, file: Path) -> None:
    again = table.replay(settings={"policy": "preserve"})
    assert (again.written, again.back, again.stay) == (3, 0, 2)
    assert [(r["id"], r["n"], r["n_string"], r["more"]) for r in rows(table)] == [
        (1, 5, None, None), (2, None, "x", None), (3, None, "y", None), (4, None, None, True),
    ]  # fmt: skip
    found = table.quarantine()
    assert (found.waiting, found.replayed) == (2, 3)
    assert waiting_in_statistics(table) == 2
    assert table.replay().results == ()
    assert len(rows(table)) == 4
    proven(table, file)
    # What is lost after a replay is seen: the copy in quarantine is none.
    table.format.delete("n_string", "x")
    assert table.verify([str(file)], "json").missing == 1


@pytest.mark.nightly
@pytest.mark.format_has_no_say("a quarantine is a table as any other, and its rows are read by Spark")
def test_what_is_refused_again_waits_with_its_place(table: Table, file: Path) -> None:
    again = table.replay(settings={"hints": {"more": "boolean"}})
    assert (again.written, again.back) == (1, 2)
    found = table.quarantine()
    assert (found.waiting, found.replayed) == (4, 3)
    n = next(g for g in found.groups if g.path == "n")
    assert (n.count, n.sample) == (2, LINES[1])
    assert n.place.endswith("in.jsonl:2")
    assert str(again.results[0].conflicts[0].location).endswith("in.jsonl:2")
    proven(table, file)
    assert table.replay(settings={"policy": "preserve"}).written == 2
    assert [r["id"] for r in rows(table)] == [1, 2, 3, 4]
    proven(table, file)


class Died(BaseException):
    pass


DIES = {"marked": "observing", "quarantined": "committing", "committed": "committed"}  # where, at which phase


@pytest.mark.nightly
def test_a_replay_that_dies_is_taken_up_wherever_it_dies(
    table: Table, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the mark, after what is refused again is in quarantine, after the commit: each time the next replay
    begins where the last one ended.
    """
    for where, dies_at in DIES.items():

        def progress(phase: str, dies_at: str = dies_at) -> None:
            if phase == dies_at:
                raise Died

        with monkeypatch.context() as patch:
            if where == "quarantined":  # nothing cleans up after a process that was killed
                patch.setattr(quarantine.Staged, "undo", lambda _: None)
            with pytest.raises(Died):
                table.replay(settings={"hints": {"more": "boolean"}}, progress=progress)
        assert len(rows(table)) == (2 if where == "committed" else 1), where
    table.replay(settings={"hints": {"more": "boolean"}})
    assert [r["id"] for r in rows(table)] == [1, 4]
    assert table.quarantine().waiting == 4
    proven(table, file)
    table.replay(settings={"policy": "preserve"})
    assert [r["id"] for r in rows(table)] == [1, 2, 3, 4]
    proven(table, file)


def micro_batch(table: Table, file: Path, dies_at: str = "") -> None:
    """Ingest a file as a capture's first micro-batch, which may die at a phase."""

    def progress(phase: str) -> None:
        if phase == dies_at:
            raise Died

    options = attempts.Options(token=Token("orders", "stream", 0), progress=progress)
    attempts.ingest(table.format, JsonFiles(spark=table.format.spark, files=[str(file)]), options)


def killed_at_its_commit(table: Table, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `micro_batch` of a process that was killed: its rejects are in quarantine, and nothing cleaned up."""
    with monkeypatch.context() as patch:
        patch.setattr(quarantine.Staged, "undo", lambda _: None)
        with pytest.raises(Died):
            micro_batch(table, file, dies_at="committing")


@pytest.mark.nightly
@pytest.mark.iceberg_only("a DuckLake's rejects land with the rows")
def test_what_a_capture_has_left_that_died_is_held_back(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture brings it again; a copy that had been sent through meanwhile would be there twice."""
    table, late = lake.table(table_name), tmp_path / "late.jsonl"
    (tmp_path / "in.jsonl").write_text("\n".join(LINES))
    table.ingest(tmp_path / "in.jsonl", settings=STRICT)
    late.write_text('{"id": 7, "n": "late"}')

    killed_at_its_commit(table, late, monkeypatch)
    again = table.replay(settings={"policy": "preserve"})
    assert (again.written, again.stay, again.held) == (3, 2, 1)
    micro_batch(table, late)
    again = table.replay()
    assert (again.written, again.held) == (0, 0)
    assert [r["id"] for r in rows(table)] == [1, 2, 3, 4, 7]
    proven(table, [tmp_path / "in.jsonl", late])


@pytest.mark.nightly
@pytest.mark.format_has_no_say("a quarantine is a table as any other, and its rows are read by Spark")
def test_new_rejects_meanwhile_wait_for_the_next_one(
    table: Table, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": 9, "n": "z"}')
    ingest = attempts.ingest

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(replay, "ingest", ingest)
        table.ingest(other)
        return ingest(*args, **kwargs)

    monkeypatch.setattr(replay, "ingest", interrupted)
    assert table.replay(settings={"policy": "preserve"}).written == 3
    assert table.quarantine().waiting == 3
    assert table.replay().written == 1
    assert [r["id"] for r in rows(table)] == [1, 2, 3, 4, 9]
    proven(table, [file, other])


@pytest.mark.nightly
@pytest.mark.format_has_no_say("a quarantine is a table as any other, and its rows are read by Spark")
def test_records_without_any_column_yet(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": []}\n{"a": null}')
    table.ingest(file)
    assert table.quarantine().waiting == 2
    assert not table.format.load().exists
    again = table.replay(settings={"hints": {"a": "list<long>"}})
    assert again.written == 2
    assert sorted(str(r.a) for r in table.read().collect()) == ["None", "[]"]
    assert table.quarantine().waiting == 0


@pytest.mark.nightly
@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_a_quarantine_of_an_earlier_version(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(LINES))
    table.ingest(file, settings=STRICT)
    lake.sql(f"alter table lake.{table_name}__quarantine drop column replay")
    assert table.quarantine().waiting == 5
    assert table.replay(settings={"policy": "preserve"}).written == 3
    proven(table, file)


def test_no_quarantine(table: Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no table"):
        table.quarantine()
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}')
    table.ingest(file)
    assert table.quarantine().waiting == 0
    assert table.replay().results == ()
    assert table.export_quarantine(tmp_path / "out") == 0


def test_a_lake_lists_its_tables_without_their_quarantines(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a":\n')
    lake.table(table_name).ingest(tmp_path / "a.jsonl")
    names = [table.name for table in lake.tables()]
    assert table_name in names
    assert names == sorted(names)
    assert not any(name.endswith("__quarantine") for name in names)


def test_records_that_are_refused_again_before_there_is_a_table_wait_once(
    table: Table, tmp_path: Path
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 1, "n": -1}\n{"id": 2, "n": -2}\n')
    table.ingest(file, key="id", expect={"n": "n >= 0 else quarantine"})
    for _ in range(2):
        again = table.replay()
        assert (again.written, again.back) == (0, 2)
        assert "no record has" not in str(again)
        assert (table.quarantine().waiting, table.stats().quarantined) == (2, 2)
        assert table.verify(file, exactly=True).ok
    assert table.replay(settings={"expect": {"n": "n >= -1 else quarantine"}}).written == 1
    assert table.quarantine().waiting == 1
    assert table.verify(file, exactly=True).ok


@pytest.mark.parametrize("refused_again", [0, 2], ids=["at once", "behind replays that brought no row"])
def test_records_of_a_replay_that_is_undone_wait_again_each_once(
    table: Table, tmp_path: Path, refused_again: int
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 1, "n": 5}\n{"id": 2, "n": -2}\n{"id": 3, "n": -2, "m": -3}\n')
    expect = {"n": "n >= 0 else quarantine", "m": "m >= 0 else quarantine"}
    table.ingest(file, key="id", expect={"n": expect["n"]})
    for _ in range(2):
        again = table.replay(settings={"expect": expect | {"n": ""}})
        assert (again.written, again.back) == (1, 1)
        assert [row["id"] for row in rows(table)] == [1, 2]
        assert [table.replay().back for _ in range(refused_again)] == [1] * refused_again
        assert table.undo(yes=True).batch is not None
        assert [row["id"] for row in rows(table)] == [1]
        assert (table.quarantine().waiting, table.quarantine().replayed) == (2, 0)
        assert table.verify(file, exactly=True).ok


@pytest.mark.nightly
def test_an_undo_of_a_replay_that_dies_behind_its_commit_loses_no_record(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 1, "n": 5}\n{"id": 2, "n": -2}\n')
    table.ingest(file, key="id", expect={"n": "n >= 0 else quarantine"})
    table.replay(settings={"expect": {"n": ""}})
    monkeypatch.setattr(replay.Replayed, "wait_once", lambda _: None)
    table.undo(yes=True)
    assert (table.quarantine().waiting, table.replay().written) == (1, 1)
    assert table.verify(file, exactly=True).ok
