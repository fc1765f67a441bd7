"""Records of the quarantine that nobody will replay: discarded, they are kept, and wait no longer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import UsageError
from driftline.lake import Lake, Table
from driftline.operations import replay
from driftline.quarantine import table as quarantine
from driftline.quarantine.pending import Pending
from lake.test_replay import (
    LINES,
    STRICT,
    Died,
    file,
    killed_at_its_commit,
    rows,
    table,
    waiting_in_statistics,
)

__all__ = ["file", "table"]


def discarded_of(table: Table) -> tuple[int, int, int]:
    found = table.quarantine()
    assert waiting_in_statistics(table) == found.waiting == sum(group.count for group in found.groups)
    return found.waiting, found.replayed, found.discarded


@pytest.mark.nightly
def test_what_is_discarded_is_kept_and_waits_no_longer_until_it_is_restored(
    table: Table, file: Path, tmp_path: Path
) -> None:
    assert table.discard_quarantine().records == 5
    assert table.replay(settings={"policy": "preserve"}).written == 0
    table.restore_quarantine()
    assert table.replay(settings={"policy": "preserve"}).written == 3
    assert [row["id"] for row in rows(table)] == [1, 2, 3, 4]
    assert discarded_of(table) == (2, 3, 0)
    done = table.discard_quarantine()
    assert done.to_dict() == {"table": table.name, "discarded": 2, "restored": 0, "held": 0}
    assert discarded_of(table) == (0, 3, 2)
    assert quarantine.of(table.format).read().count() == 5
    assert table.replay().results == ()
    assert table.export_quarantine(tmp_path / "out") == 0
    assert table.discard_quarantine().records == 0
    assert table.restore_quarantine().to_dict()["restored"] == 2  # none of those that were replayed
    assert discarded_of(table) == (2, 3, 0)
    assert table.restore_quarantine().records == 0
    assert table.replay().written == 0


@pytest.mark.nightly
def test_the_records_of_one_file(table: Table, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other's.jsonl"
    other.write_text('{"id": 9, "n": "z"}')
    table.ingest(other)
    assert table.discard_quarantine("other's.jsonl").records == 1
    assert discarded_of(table) == (5, 0, 1)
    with pytest.raises(UsageError, match=r"no record of n\.jsonl waits\nthere are records of .*in\.jsonl"):
        table.discard_quarantine("n.jsonl")
    with pytest.raises(UsageError, match=r"no record of .*in\.jsonl is discarded"):
        table.restore_quarantine(str(file))
    with pytest.raises(UsageError, match=r"no record of n\.jsonl waits"):
        table.discard_quarantine([str(file), "n.jsonl"])
    with pytest.raises(UsageError, match="source names no file and no topic"):
        table.discard_quarantine([])
    assert discarded_of(table) == (5, 0, 1)
    assert table.restore_quarantine().records == 1
    assert table.discard_quarantine([str(file), "other's.jsonl"]).records == 6
    assert table.restore_quarantine("./other's.jsonl").records == 1
    assert discarded_of(table) == (1, 0, 5)


@pytest.mark.nightly
def test_verify_counts_what_is_discarded_as_kept(table: Table, file: Path, tmp_path: Path) -> None:
    table.discard_quarantine()
    verdict = table.verify([str(file)], "json", exactly=True)
    assert (verdict.ok, verdict.found, verdict.quarantined) == (True, 1, 5)
    # The same records come again, and are taken: the discarded copies are none too many.
    records = tmp_path / "again.jsonl"
    records.write_text("\n".join(LINES[1:4]))
    table.ingest(records, settings={"policy": "preserve"})
    verdict = table.verify([str(file)], "json", exactly=True)
    assert (verdict.ok, verdict.found, verdict.quarantined, verdict.extra) == (True, 4, 2, 0)
    # What is lost is lost.
    table.format.delete("n_string", "x")
    (tmp_path / "new.jsonl").write_text('{"id": 100, "n": 1}')
    verdict = table.verify([str(tmp_path / "new.jsonl")], "json")
    assert (verdict.ok, verdict.missing, verdict.quarantined) == (False, 1, 0)


def test_a_table_with_a_key(table: Table, tmp_path: Path) -> None:
    """A discarded change counts as kept, and not as one that its row does not have."""
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 1, "n": 5}\n{"id": 2, "n": "x"}')
    table.ingest(file, settings={"key": "id", "hints": {"n": "long"}, "policies": {"n": "strict"}})
    table.discard_quarantine()
    verdict = table.verify([str(file)], "json", exactly=True)
    assert (verdict.ok, verdict.quarantined) == (True, 1)
    table.ingest(file, settings={"policies": {"n": "preserve"}}, again=True)
    verdict = table.verify([str(file)], "json", exactly=True)
    assert (verdict.ok, verdict.quarantined) == (True, 0)


@pytest.mark.iceberg_only("a DuckLake's rejects land with the rows")
def test_a_captures_unfinished_batch_is_held(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture takes these records back and brings them again, so they would wait again."""
    table, late = lake.table(table_name), tmp_path / "late.jsonl"
    (tmp_path / "in.jsonl").write_text("\n".join(LINES))
    table.ingest(tmp_path / "in.jsonl", settings=STRICT)
    late.write_text('{"id": 7, "n": "late"}')

    killed_at_its_commit(table, late, monkeypatch)
    done = table.discard_quarantine()
    assert (done.records, done.held) == (5, 1)
    done = table.discard_quarantine("late.jsonl")
    assert (done.records, done.held) == (0, 1)


@pytest.mark.nightly
def test_a_replay_that_died_holds_its_records(
    table: Table, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*args: Any, **kwargs: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(replay, "ingest", dying)
        with pytest.raises(Died):
            table.replay(settings={"policy": "preserve"})
    done = table.discard_quarantine()
    assert (done.records, done.held) == (2, 3)
    assert table.replay(settings={"policy": "preserve"}).written == 3
    assert discarded_of(table) == (0, 3, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("other", ["rejects", "replay"])
def test_others_write_meanwhile(
    table: Table, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The records are chosen again in the quarantine as the other writer left it."""
    late, mark = tmp_path / "late.jsonl", Pending.assign_replay
    late.write_text('{"id": 9, "n": "z"}')

    def overtaken(pending: Pending, *args: Any) -> int:
        monkeypatch.setattr(Pending, "assign_replay", mark)
        if other == "rejects":
            table.ingest(late)
        else:
            assert table.replay(settings={"policy": "preserve"}).written == 3
        return mark(pending, *args)

    monkeypatch.setattr(Pending, "assign_replay", overtaken)
    assert table.discard_quarantine().records == {"rejects": 6, "replay": 2}[other]
    assert discarded_of(table) == {"rejects": (0, 0, 6), "replay": (0, 3, 2)}[other]


@pytest.mark.nightly
def test_a_table_that_does_not_exist_yet(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("no JSON\n{")
    table.ingest(file)
    assert table.discard_quarantine().records == 2
    found = table.quarantine()
    assert (found.waiting, found.discarded) == (0, 2)
    assert json.dumps(found.to_dict())
    assert table.verify([str(file)], "json").quarantined == 2
    with pytest.raises(UsageError, match="there is no table"):
        table.lake.table(f"{table.name}_other").discard_quarantine()
