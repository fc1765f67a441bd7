"""One batch into many tables: each is as if its records had come alone."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

from driftline.errors import DataError, UsageError
from driftline.formats import commit
from driftline.ingest import attempts, pipeline, together
from driftline.ingest.batch import Listeners
from driftline.ingest.fan_out import FanOutAuditError, FanOutError, FanOutResult
from driftline.ingest.split_by_field import SplitByField
from driftline.lake import Lake, Table
from driftline.lake import fan_out as front
from driftline.sources.opening import opened

RECORDS = [
    '{"event": "push", "size": 1, "by": {"name": "a"}}',
    '{"event": "ping", "zen": "x"}',
    "",
    '{"event": "Push", "size": "2", "extra": [1, 2]}',
    '{"event": "pull-request", "n": 1.50}',
    '{"event": "push", broken',
    '{"size": 7}',
    '{"event": "push", "size": 12345678901234567890}',
    "[1]",
]


def rows(table: Table) -> list[str]:
    return sorted(
        json.dumps(row.asDict(recursive=True), sort_keys=True, default=str) for row in table.read().collect()
    )


def columns(table: Table) -> list[str]:
    return str(table.schema()).split("\n")[1:]


def rejected(table: Table) -> set[tuple[str, int]]:
    """The places of the records in a table's quarantine."""
    quarantine = table.lake.format.sql_name(f"{table.name}__quarantine")
    found = table.lake.sql(f"SELECT source, line FROM {quarantine}").collect()
    return {(Path(row.source).name, row.line) for row in found}


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_table_is_as_if_its_records_had_come_alone(lake: Lake, space: str, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl", RECORDS), write(tmp_path / "b.jsonl", RECORDS[::-1])
    result = lake.fan_out(f"{space}.{{event}}").ingest([first, second], metadata="file,line")
    names = [f"{space}.{name}" for name in ("push", "ping", "pull_request_99c5ba", "_other")]
    assert [of_table.table for of_table in result.results] == names
    assert (result.rows_read, result.rows_written, result.rows_quarantined) == (16, 12, 4)
    assert result.by_case == {names[0]: ("push", "Push")}
    push, kind = lake.table(names[0]), '"push"'
    alone = lake.table(f"{space}.alone")
    files = [
        write(
            tmp_path / "alone" / file.name,
            [line if kind in line.lower() and "broken" not in line else "" for line in lines],
        )
        for file, lines in ((first, RECORDS), (second, RECORDS[::-1]))
    ]
    alone.ingest(files, metadata="file,line")
    assert columns(push) == columns(alone)
    assert [row.replace("alone/", "") for row in rows(alone)] == rows(push)
    assert rejected(lake.table(names[3])) == {
        ("a.jsonl", 6), ("a.jsonl", 9), ("b.jsonl", 4), ("b.jsonl", 1),
    }  # fmt: skip
    verdict = lake.fan_out(f"{space}.{{event}}").verify([first, second], exactly=True)
    assert verdict.ok and (verdict.records, verdict.found, verdict.quarantined) == (16, 12, 4)
    assert {name: of_table.records for name, of_table in verdict.verdicts.items()} == {
        names[0]: 6, names[1]: 2, names[2]: 2, names[3]: 6,
    }  # fmt: skip
    assert "nothing is doubled  16 records: 12 in 4 tables, 4 in quarantine" in repr(verdict)
    text = repr(result)
    assert "4 tables" in text and "6 written" in text and "differ in case alone" in text
    assert [printed["pattern"] for printed in result.to_dicts()] == [f"{space}.{{event}}"] * 5
    found = lake.fan_out(f"{space}.{{event}}").stats().tables
    assert {of_table.table: (of_table.named_by, of_table.records) for of_table in found} == {
        names[0]: ((("push",), ("Push",)), 6), names[1]: ((("ping",),), 2),
        names[2]: ((("pull-request",),), 2), names[3]: ((), 2),
    }  # fmt: skip


def test_verify_finds_records_that_wait_for_a_table_which_none_of_them_has_made(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    lines = ['{"event": "push", "size": 1}', '{"event": "ping", "size": -1}', '{"size": -2}']
    came = write(tmp_path / "a.jsonl", lines)
    tables = lake.fan_out(f"{space}.{{event}}")
    assert tables.ingest(came, expect={"size": "size >= 0 else quarantine"}).rows_quarantined == 2
    verdict = tables.verify(came, exactly=True)
    assert (verdict.ok, verdict.quarantined, verdict.missing) == (True, 2, 0)
    # The table that a replay makes of them is the pattern's.
    assert lake.table(f"{space}.ping").replay(settings={"expect": {"size": ""}}).written == 1
    (later,) = tables.ingest(write(tmp_path / "b.jsonl", lines[1:2])).results
    assert (later.table, later.rows_written) == (f"{space}.ping", 1)


def test_verify_names_the_table_and_the_line_of_each_record_that_is_in_no_table(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    few, pattern = lake.fan_out(f"{space}.{{event}}", max_tables=1), lake.fan_out(f"{space}.{{event}}")
    early = write(tmp_path / "early.jsonl", ['{"event": "push", "n": 1}', '{"event": "ping", "n": 2.50}'])
    late = write(tmp_path / "late.jsonl", ['{"event": "ping", "n": 3}', '{"event": "fork", "n": null}'])
    with pytest.raises(UsageError, match=re.escape(f"there is no table of {space}.{{event}}")):
        pattern.verify(early)
    few.ingest(early)
    pattern.ingest(late)
    # The first ping has come to `_other`, as another table was one too many.
    verdict = pattern.verify([early, late], exactly=True)
    assert verdict.ok and (verdict.records, verdict.found, verdict.missing, verdict.extra) == (4, 4, 0, 0)
    assert {name: of_table.records for name, of_table in verdict.verdicts.items()} == {
        f"{space}._other": 0, f"{space}.fork": 1, f"{space}.ping": 2, f"{space}.push": 1,
    }  # fmt: skip
    lines = ['{"event": "push", "n": 1}', '{"event": "ping", "n": 7}', '{"event": "gone", "n": 8}']
    verdict = pattern.verify([early, late, write(tmp_path / "lost.jsonl", lines)])
    assert not verdict.ok and (verdict.records, verdict.found, verdict.missing) == (7, 4, 3)
    lost = {
        name: [(Path(m.place).name, m.sample) for m in of_table.mismatches]
        for name, of_table in verdict.verdicts.items()
        if not of_table.ok
    }
    assert lost == {
        f"{space}._other": [("lost.jsonl:3", "{event: 'gone', n: 8}")],
        f"{space}.ping": [("lost.jsonl:2", "{event: 'ping', n: 7}")],
        f"{space}.push": [("lost.jsonl:1", "{event: 'push', n: 1}")],
    }
    *of_tables, sums = verdict.to_dicts()
    assert [printed["missing"] for printed in of_tables] == [0, 1, 1, 1]
    assert sums == {
        "pattern": f"{space}.{{event}}", "ok": False, "tables": 4, "records": 7, "found": 4, "quarantined": 0,
        "missing": 3, "extra": None,
    }  # fmt: skip
    text = repr(verdict)
    assert "3 not found" in text and "lost.jsonl:3" in text and f"in {space}.fork" not in text
    # A row that stands in the table of another value is one too many there, and missing in its own.
    lake.table(f"{space}.fork").ingest([{"event": "push", "n": 1}])
    verdict = pattern.verify([early, late], exactly=True)
    assert (verdict.missing, verdict.extra) == (0, 1)


@pytest.mark.nightly
def test_values_may_name_the_namespace_too(lake: Lake, space: str) -> None:
    records = [{"shop": shop, "kind": kind} for shop in ("a", "b") for kind in ("x", "y")]
    result = lake.fan_out(f"{space}_{{shop}}.{{kind}}").ingest([*records, {"shop": "a"}])
    rows_of = {f"{space}_{r['shop']}.{r['kind']}": r for r in records}
    rows_of |= {f"{space}_a._other": {"shop": "a"}}
    try:
        assert {name: [json.loads(row) for row in rows(lake.table(name))] for name in rows_of} == {
            name: [row] for name, row in rows_of.items()
        }
        assert [of_table.table for of_table in result.results] == list(rows_of)
    finally:
        for of_table in result.results:
            lake.format.drop(of_table.table, purge=False, dry_run=False)


def test_tables_that_are_written_at_once_do_not_mix(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"a": ("1", "long"), "b": ("1.5", "double"), "c": ('{"x": [1]}', "struct")}
    lines = [f'{{"event": "{kind}", "n": {value}, "{kind}": 1}}' for kind, (value, _) in values.items()]
    file = write(tmp_path / "a.jsonl", [*lines, *lines])
    met, written = Barrier(len(values), timeout=60), pipeline.BatchRun.write_rows

    def meeting(run: pipeline.BatchRun, *given: Any) -> pipeline.Written:
        met.wait()
        return written(run, *given)

    monkeypatch.setattr(pipeline.BatchRun, "write_rows", meeting)
    result = lake.fan_out(f"{space}.{{event}}").ingest(file, metadata="line")
    assert [of_table.table for of_table in result.results] == [f"{space}.{kind}" for kind in values]
    for number, (kind, (value, type_)) in enumerate(values.items()):
        row = {"event": kind, "n": json.loads(value), kind: 1}
        table = lake.table(f"{space}.{kind}")
        assert [json.loads(text) for text in rows(table)] == [
            {**row, "_source": {"line": number + 1}}, {**row, "_source": {"line": number + 4}},
        ]  # fmt: skip
        assert f"n {type_} #" in str(table.schema())


def test_what_is_missing_comes_with_the_same_call_again(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a.jsonl", ['{"event": "a", "n": 1}', '{"event": "b", "n": 2}', '{"event": "c"}'])
    tables, begin = lake.fan_out(f"{space}.{{event}}"), pipeline.PreparedRows.begin_commit

    def fails(prepared: pipeline.PreparedRows) -> None:
        if prepared.planned.batch.table.name.endswith(".b"):
            raise DataError("no permission")
        begin(prepared)

    monkeypatch.setattr(pipeline.PreparedRows, "begin_commit", fails)
    with pytest.raises(FanOutError, match="1 table did not get") as failed:
        tables.ingest(file)
    assert [result.table for result in failed.value.result.results] == [f"{space}.a", f"{space}.c"]
    assert f"{space}.b: no permission" in str(failed.value.hint)
    monkeypatch.undo()
    result = tables.ingest(file)
    assert result.passed_over == (f"{space}.a", f"{space}.c")
    assert [of_table.table for of_table in result.results] == [f"{space}.b"]
    with pytest.raises(DataError, match="all tables have the files already"):
        tables.ingest(file)
    planned = tables.ingest(file, dry_run=True)
    assert (planned.results, len(planned.passed_over)) == ((), 3)
    assert [len(rows(lake.table(f"{space}.{name}"))) for name in "abc"] == [1, 1, 1]


def in_error(monkeypatch: pytest.MonkeyPatch, lake: Lake, name: str, stage: str) -> None:
    """Has a table refuse at a stage of its batch, as for want of a permission."""
    owner, method = {
        "load": (type(lake.table(name).format), "load"),
        "write": (pipeline.BatchRun, "write_rows"),
        "commit": (commit, "make_visible"),
    }[stage]
    works = getattr(owner, method)

    def refuses(first: Any, *arguments: Any, **options: Any) -> Any:
        of = {"load": lambda: [first], "write": lambda: [first.batch.table]}.get(stage, lambda: first)()
        if name in [getattr(each, "table", each).name for each in of]:
            raise Py4JError("no permission")
        return works(first, *arguments, **options)

    monkeypatch.setattr(owner, method, refuses)
    if stage == "commit":
        monkeypatch.setattr(together, method, refuses)


@pytest.mark.parametrize("stage", ["load", "write", "commit"])
def test_records_of_a_table_in_error_wait_whole_and_the_others_commit(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    lines = ['{"event": "a", "n": 1}', '{"event": "b", "n": 2.50}', '{"event": "b"}', '{"event": "c"}']
    file = write(tmp_path / "a.jsonl", lines)
    tables, (a, b, c) = lake.fan_out(f"{space}.{{event}}"), [f"{space}.{name}" for name in "abc"]
    in_error(monkeypatch, lake, b, stage)
    with pytest.raises(DataError, match="no permission"):
        tables.ingest(file)
    quarantine = lake.table(f"{b}__quarantine")
    assert not quarantine.format.load().exists
    with pytest.raises(FanOutError, match="1 table did not get their records, ") as failed:
        tables.ingest(file, on_table_error="quarantine", again=True)
    result = failed.value.result
    assert (result.waiting, result.rows_written, result.rows_quarantined) == ((b,), 2, 2)
    assert f"{b} wait whole in quarantine" in str(failed.value.hint) and "the same" not in str(
        failed.value.hint
    )
    assert [(row.raw, row.reason, row.line) for row in quarantine.read().orderBy("line").collect()] == [
        (lines[1], "table", 2), (lines[2], "table", 3),
    ]  # fmt: skip
    monkeypatch.undo()
    with pytest.raises(DataError, match="all tables have the files already"):
        tables.ingest(file, on_table_error="quarantine")
    lake.table(b).replay()
    assert [len(rows(lake.table(name))) for name in (a, b, c)] == [
        1 + (stage == "commit"),
        2,
        1 + (stage == "commit"),
    ]
    assert tables.verify(file).ok


@pytest.mark.iceberg_only("a DuckLake has no files that nothing names")
def test_clean_deletes_what_a_dead_attempt_has_written_of_records_that_are_to_wait(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, name = write(tmp_path / "a.jsonl", ['{"event": "a", "n": 1}']), f"{space}.a"
    in_error(monkeypatch, lake, name, "load")
    tables = lake.fan_out(f"{space}.{{event}}")
    with monkeypatch.context() as dead:
        dead.setattr(commit, "make_visible", dies)
        dead.setattr(pipeline.Prepared, "abandon", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            tables.ingest(file, on_table_error="quarantine")
    with pytest.raises(FanOutError, match="1 table did not get"):
        tables.ingest(file, on_table_error="quarantine")
    left = [orphan.path for orphan in lake.clean(0) if f"/{space}/" in orphan.path]
    assert len([path for path in left if path.endswith(".parquet")]) == 1
    waiting = lake.table(f"{name}__quarantine")
    assert waiting.read().count() == 1
    assert "write.data.path" not in waiting.state().properties


def dies(*_: Any) -> None:
    raise KeyboardInterrupt


def test_audit_of_many_tables_keeps_nothing_of_any_if_one_fails(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    tables = lake.fan_out(f"{space}.{{event}}")
    first = write(tmp_path / "a.jsonl", ['{"event": "a", "n": 1}', '{"event": "b", "n": 1}'])
    tables.ingest(first, expect={"n": "n < 10"})
    before = lake.table(f"{space}.a").format.load()
    file = write(tmp_path / "b.jsonl", ['{"event": "a", "n": 11}', '{"event": "b", "n": "x"}', "bad"])
    with pytest.raises(FanOutAuditError, match="1 at-most 0, 1 fail-on sibling in 2 tables") as failed:
        tables.ingest(file, audit=True, fail_on="sibling", at_most=0)
    hint = str(failed.value.hint)
    assert f"{space}.b: fail-on sibling" in hint and f"{space}.a: at-most 0" in hint
    result = failed.value.result
    assert [(of.table, len(of.audit), of.rows_written) for of in result.results] == [
        (f"{space}.a", 1, 0), (f"{space}.b", 1, 0), (f"{space}._other", 0, 0),
    ]  # fmt: skip
    assert lake.table(f"{space}.a").format.load() == before
    assert not [
        name
        for name in lake.format.tables()
        if name.startswith(f"{space}.") and name.endswith(("_other", "quarantine"))
    ]
    assert tables.ingest(file, audit=True, fail_on="map", at_most=1).rows_written == 2


def test_audit_verifies_the_share_of_each_table_before_the_first_one_commits(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    tables, verified = lake.fan_out(f"{space}.{{event}}"), {"audit": True, "verify": True}
    result = tables.ingest(write(tmp_path / "a.jsonl", RECORDS), **verified)
    assert (result.rows_written, result.rows_quarantined) == (6, 2)
    assert tables.ingest([{"event": "push", "size": "3"}, {"event": "fork"}], **verified).rows_written == 2
    file = write(tmp_path / "b.jsonl", ['{"event": "push", "size": 4}', '{"event": "ping"}'])
    before = lake.table(f"{space}.push").format.load()

    def changes(phase: str) -> None:
        """Records come into the file after it was dealt, and before it is checked."""
        if phase == "auditing":
            write(
                file,
                [
                    '{"event": "push", "size": 4}',
                    '{"event": "ping"}',
                    '{"event": "ping", "n": 7}',
                    '{"n": 1}',
                ],
            )

    with pytest.raises(FanOutAuditError, match="2 verify in 2 tables") as failed:
        tables.ingest(file, **verified, progress=changes)
    hint = str(failed.value.hint)
    assert "b.jsonl:3" in hint and "1 record of the batch in no table" in hint
    assert lake.table(f"{space}.push").format.load() == before
    with pytest.raises(UsageError, match="cannot be verified alone"):
        lake.fan_out(f"{space}_keyed.{{event}}").ingest(
            file, **verified, key="event", merge="patch", order_by="size"
        )


def test_a_batch_is_told_once_with_all_tables_and_each_change_in_a_notice(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Any]] = []

    class Told:
        def begins(self, pattern: str, batch: str) -> None:
            told.append(("begins", pattern))

        def ended(self, result: FanOutResult) -> None:
            told.append(("ended", [of.table for of in result.results]))

        def failed(self, error: BaseException) -> None:
            told.append(("failed", type(error)))

    listeners = front.pattern_listeners
    monkeypatch.setattr(front, "pattern_listeners", lambda *given: Listeners([Told(), listeners(*given)]))
    tables, notices = lake.fan_out(f"{space}.{{event}}"), tmp_path / "notices"
    on_change = f"cat >> {notices}; echo >> {notices}"
    records = [{"event": "a", "n": 1}, {"event": "b", "n": 1}]
    tables.ingest(records, on_change=on_change, dry_run=True)
    tables.ingest(records, on_change=on_change)
    with pytest.raises(FanOutAuditError):
        tables.ingest([{"event": "b", "n": "x"}], audit=True, fail_on="sibling", on_change=on_change)
    tables.ingest([*records, {"event": "b", "n": "x"}], on_change=on_change)
    begins = ("begins", tables.pattern)
    both = ("ended", [f"{space}.a", f"{space}.b"])
    assert told == [begins, both, begins, ("failed", FanOutAuditError), begins, both]
    notified = [json.loads(line) for line in notices.read_text().splitlines()]
    assert [(one["table"], [change["path"] for change in one["changes"]]) for one in notified] == [
        (f"{space}.a", ["event", "n"]), (f"{space}.b", ["event", "n"]), (f"{space}.b", ["n_string"]),
    ]  # fmt: skip


@pytest.mark.nightly
def test_rows_of_columns_are_dealt_with_the_columns_that_they_fill(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    schema = pa.schema({
        "event": pa.string(), "by": pa.struct({"id": pa.int64(), "at": pa.string()}), "other": pa.list_(pa.int64()),
        "n": pa.decimal128(9, 2), "day": pa.date32(),
    })  # fmt: skip
    came = pa.Table.from_pylist(
        [
            {"event": "a", "by": {"id": 1}, "n": Decimal("1.50"), "day": date(2026, 3, 2)},
            {"event": "b", "by": {"at": "x"}, "other": [1, 2]},
            {"event": "A", "n": Decimal("2.25")},
            {"event": None},
            {"event": "a", "by": {"id": 2}},
            {"event": "b"},
        ],
        schema,
    )
    no_text = pa.array([None] * 5 + [b"\xff"], pa.binary()).cast(pa.string(), safe=False)
    files = [tmp_path / "all.parquet", tmp_path / "alone.parquet"]
    pq.write_table(came.append_column("text", no_text), files[0], row_group_size=2)
    by = schema.field("by").with_type(pa.struct({"id": pa.int64()}))
    kept = pa.schema([schema.field("event"), by, schema.field("n"), schema.field("day")])
    pq.write_table(pa.Table.from_pylist(came.take([0, 2, 4]).to_pylist(), kept), files[1])
    tables, alone = lake.fan_out(f"{space}.{{event}}"), lake.table(f"{space}.alone")
    result = tables.ingest(files[0], metadata="line")
    names = [f"{space}.{name}" for name in ("a", "b", "_other")]
    counts = [(of.table, of.rows_written, of.rows_quarantined) for of in result.results]
    assert counts == [(names[0], 3, 0), (names[1], 1, 0), (names[2], 1, 1)]
    assert result.by_case == {names[0]: ("a", "A")}
    alone.ingest(files[1], metadata="line")
    assert columns(lake.table(names[0])) == columns(alone)
    texts = rows(alone)
    for line, read in ((3, 5), (2, 3)):
        texts = [text.replace(f'"line": {line}', f'"line": {read}') for text in texts]
    assert rows(lake.table(names[0])) == texts
    assert [json.loads(text) for text in rows(lake.table(names[1]))] == [
        {"event": "b", "by": {"at": "x"}, "other": [1, 2], "_source": {"line": 2}}
    ]
    verdict = tables.verify(files[0], exactly=True)
    assert verdict.ok and (verdict.records, verdict.found, verdict.quarantined) == (6, 5, 1)
    with pytest.raises(DataError, match="all tables have the files already"):
        tables.ingest(files[0])
    by_number = lake.fan_out(f"{space}.{{by.id}}").ingest(came)
    assert [of.table.rpartition(".")[2] for of in by_number.results] == ["1", "_other", "2"]
    verdict = lake.fan_out(f"{space}.{{by.id}}").verify(came)
    assert verdict.ok and [of.records for of in verdict.verdicts.values()] == [1, 1, 4]
    by_day = lake.fan_out(f"{space}.{{day}}").ingest(came, dry_run=True)
    assert [(of.table.rpartition("_")[0], of.rows_read) for of in by_day.results] == [
        (f"{space}.2026_03_02", 1), (f"{space}.", 5),
    ]  # fmt: skip


@pytest.mark.nightly
def test_a_conflict_in_one_table_leaves_all_as_they_were(lake: Lake, space: str) -> None:
    tables = lake.fan_out(f"{space}.{{event}}", max_tables=2)
    first = tables.ingest([{"event": "a", "n": 1}, {"event": "b", "n": 1}, {"event": "c", "n": 1}])
    assert [result.table for result in first.results] == [f"{space}.{name}" for name in ("a", "b", "_other")]
    with pytest.raises(DataError, match=rf"{space}\.b"):
        tables.ingest([{"event": "A", "n": 2}, {"event": "b", "n": "x"}], policy="strict", on_conflict="fail")
    assert len(rows(lake.table(f"{space}.a"))) == 1
    # A table that is there takes no room, and one beyond the limit stays in `_other`.
    planned = tables.ingest([{"event": "B", "n": 2}, {"event": "c", "n": 3}], dry_run=True)
    assert [(result.table, result.rows_read) for result in planned.results] == [
        (f"{space}.b", 1),
        (f"{space}._other", 1),
    ]
    wider = lake.fan_out(f"{space}.{{event}}", max_tables=3)
    assert [result.table for result in wider.ingest([{"event": "c"}]).results] == [f"{space}.c"]


def test_what_is_not_dealt_is_refused(lake: Lake, space: str, tmp_path: Path) -> None:
    tables, record = lake.fan_out(f"{space}.{{event}}"), [{"event": "a", "id": 1}]
    for refused, data, arguments in (("a has a key, and {event} may change", record, {"key": "id"}),):
        with pytest.raises(UsageError, match=refused):
            tables.ingest(data, **arguments)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no topic"):
        lake.fan_out(f"{space}.{{_topic}}").ingest(record)
    with pytest.raises(UsageError, match="pattern of tables"):
        lake.table(f"{space}.{{event}}").ingest(record)
    assert not [name for name in lake.format.tables() if name.startswith(f"{space}.")]
    tables.ingest(record, max_record_bytes=1000)
    with pytest.raises(UsageError, match=r"max_record_bytes = 1000, and the files are read once"):
        tables.ingest(record)


def test_a_table_with_braces_in_its_name_is_renamed_as_the_error_says(lake: Lake, space: str) -> None:
    name = f"{space}.{{event}}"
    with opened(lake.spark, [{"id": 1}]) as source:  # as earlier versions took it
        attempts.ingest(lake.format.table(name), source)
    with pytest.raises(UsageError, match="pattern of tables") as refused:
        lake.table(name).ingest([{"id": 2}])
    (statement,) = re.findall("ALTER TABLE .* TO event", str(refused.value.hint))
    with pytest.raises(UsageError, match="braces stand in patterns"):
        lake.alter(statement.replace("TO event", "TO `{kind}`"))
    lake.alter(statement)
    assert len(rows(lake.table(f"{space}.event"))) == 1


def message(
    op: str, table: str, lsn: int, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> str:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table, "lsn": lsn}
    return json.dumps({"op": op, "before": before, "after": after, "source": source, "ts_ms": lsn})


def test_changes_of_a_database_go_into_one_table_for_each_of_its_tables(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    lines = [
        message("c", "orders", 1, None, {"id": 1, "total": 5}),
        message("c", "customers", 2, None, {"id": 1, "name": "a"}),
        message("u", "orders", 3, {"id": 1, "total": 5}, {"id": 1, "total": "7 EUR"}),
        message("c", "orders", 4, None, {"id": 2, "total": 6, "note": "x"}),
        json.dumps({"ts_ms": 9}),
        message("d", "customers", 6, {"id": 1, "name": "a"}, None),
        message("c", "customers", 5, None, {"id": 2, "name": "b"}),
        message("u", "orders", 2, {"id": 1, "total": 5}, {"id": 1, "total": 4}),
    ]
    settings = {"key": "id", "envelope": "debezium"}
    first, second = write(tmp_path / "a.jsonl", lines[:5]), write(tmp_path / "b.jsonl", lines[5:])
    for file in (first, second):
        lake.fan_out(f"{space}.{{source.table}}").ingest(file, settings=settings)
        for table in ("orders", "customers"):
            of_table = [
                line if f'"table": "{table}"' in line else "" for line in file.read_text().split("\n")
            ]
            alone = write(tmp_path / "alone" / f"{table}-{file.name}", of_table)
            lake.table(f"{space}.{table}_alone").ingest(alone, settings=settings)
    for table in ("orders", "customers"):
        dealt, alone = lake.table(f"{space}.{table}"), lake.table(f"{space}.{table}_alone")
        assert (columns(dealt), rows(dealt)) == (columns(alone), rows(alone))
    # It has records of many kinds, and so no key.
    assert rows(lake.table(f"{space}._other")) == ['{"ts_ms": 9}']
    verdict = lake.fan_out(f"{space}.{{source.table}}").verify([first, second], exactly=True)
    assert verdict.ok and [of.records for of in verdict.verdicts.values()] == [3, 4, 1]


def test_tables_with_a_key_take_no_values_that_may_change_or_share_a_table(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    settings = {"key": "kind,id"}
    tables = lake.fan_out(f"{space}.{{kind}}")
    tables.ingest([{"kind": "a", "id": 1, "n": 1}, {"kind": "b", "id": 1, "n": 1}], settings=settings)
    tables.ingest([{"kind": "a", "id": 1, "n": 2}], settings=settings)
    assert [row.n for row in lake.table(f"{space}.a").read().collect()] == [2]
    with pytest.raises(DataError, match="the values a, A differ in case alone"):
        tables.ingest([{"kind": "A", "id": 1, "n": 3}], settings=settings)
    for pattern in ("{_file.stem}", "{source.kind}"):
        file = write(
            tmp_path / "a.jsonl", ['{"kind": "a", "id": 1, "op": "c", "source": {"kind": "c", "lsn": 7}}']
        )
        with pytest.raises(UsageError, match="may change for a row"):
            lake.fan_out(f"{space}.{pattern}").ingest(file, settings=settings)
    for pattern in ("{source.lsn}", "{op}"):
        with pytest.raises(UsageError, match="may change for a row"):
            lake.fan_out(f"{space}.{pattern}").ingest(file, settings={"key": "id", "envelope": "debezium"})
    lake.table(f"{space}._other").ingest([{"kind": "", "id": 1}], settings=settings)
    with pytest.raises(UsageError, match="takes records of many kinds"):
        tables.ingest([{"kind": "", "id": 1}])


def test_the_plan_of_one_table_names_the_pattern_that_would_split_it(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    kinds = [json.dumps({"kind": kind, **{f"{kind}{n}": 1 for n in range(12)}}) for kind in "abc" * 4]
    file = write(tmp_path / "a.jsonl", kinds)
    table = lake.table(f"{space}.all")
    split = f"the pattern {space}.{{kind}} would make 3 tables of 13 columns (median), with 35% of the cells"
    hints = [hint for hint in table.ingest(file, dry_run=True).hints if hint.startswith(split)]
    assert len(hints) == 1 and "driftline split" not in hints[0]
    assert not any("the pattern" in hint for hint in table.ingest(file).hints)
    (hint,) = (hint for hint in table.ingest(file, dry_run=True, again=True).hints if hint.startswith(split))
    assert hint.endswith(f"`driftline split {table.name} --by kind` makes them of rows that are there")


def test_the_statistics_of_one_table_name_the_field_that_would_split_it(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    kinds = [json.dumps({"kind": kind, **{f"{kind}{n}": 1 for n in range(12)}}) for kind in "abc" * 80]
    table = lake.table(f"{space}.all")
    table.ingest(write(tmp_path / "few.jsonl", kinds[:150]))
    assert table.stats().split is None
    table.ingest(write(tmp_path / "more.jsonl", kinds[150:]))
    split = SplitByField(("kind",), 3, 13, 13 / 37, 240)
    assert table.stats().split == split == table.stats(exact=True).split
    assert f"driftline split {table.name} --by kind would make 3 tables" in " ".join(
        repr(table.stats()).split()
    )
    # What came first is of one kind, and more than is looked at.
    again = lake.table(f"{space}.again")
    again.ingest(write(tmp_path / "first.jsonl", [kinds[0]] * 5500))
    again.ingest(write(tmp_path / "later.jsonl", [kind for kind in kinds[1:3] for _ in range(4000)]))
    for found in (again.stats().split, again.stats(exact=True).split):
        assert found is not None and (found.field, found.tables, found.columns) == (("kind",), 3, 13)
        assert abs(found.records - 5000) < 500 and round(found.cells, 2) == 0.35
    table.ingest(
        write(tmp_path / "full.jsonl", [json.dumps({f"{k}{n}": 1 for k in "abc" for n in range(12)})] * 240)
    )
    assert table.stats().split is None
