"""Audited batches: written, checked, and then committed as any other, or nothing of them is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline import AuditError
from driftline.capture.targets import Batch
from driftline.errors import DataError, UsageError
from driftline.formats import commit
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from driftline.runtime.spark_conf import FEW_ROWS
from lake.formats import catalog_file, database
from lake.proof import proven

FIRST = '{"id": 1, "n": 5}\n'
NEWLINE = "\n"
DRIFTED = '{"id": 2, "n": 6}\n{"id": 3, "n": "x"}\n'
SIBLING = {"audit": True, "fail_on": "sibling"}


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def put(file: Path, lines: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(lines)
    return file


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().select("id").collect())


def appends(file: Path, line: str, phase: str) -> None:
    """A line comes into the file after it was written, and before it is checked: as if the batch had lost it."""
    if phase == "auditing":
        file.write_text(file.read_text() + line)


def data_files(table: Table) -> set[str]:
    """The files in the folders of the table and its quarantine, but for those that a catalog names itself."""
    name = table.name.partition(".")[2]
    folders = [folder for folder in Path(str(table.lake.warehouse)).rglob(f"{name}*") if folder.is_dir()]
    return {str(file) for folder in folders for file in folder.rglob("*") if file.is_file()}


def waiting(table: Table) -> list[tuple[str, Any]]:
    rows = quarantine.of(table.format).read().where("replay is null").collect()
    return sorted((row.reason, json.loads(row.raw)["id"]) for row in rows)


@pytest.mark.parametrize("key", [None, "id"])
def test_batch_that_fails_leaves_nothing(table: Table, tmp_path: Path, key: str | None) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST), key=key)
    before, files = table.format.load(), data_files(table)
    with pytest.raises(
        AuditError, match="fails its audit, and nothing of it is committed: 1 fail-on sibling"
    ) as raised:
        table.ingest(put(tmp_path / "b.jsonl", DRIFTED + "no record\n"), **SIBLING)
    assert "n_string" in str(raised.value.hint)
    assert "b.jsonl:2" in str(raised.value.hint)
    result = raised.value.result
    (violation,) = result.to_dict()["audit"]
    assert (violation["check"], violation["path"], violation["sample"]) == (
        "fail-on sibling",
        "n_string",
        "x",
    )
    assert violation["seen_in"].endswith("b.jsonl:2")
    assert (result.rows_written, result.rows_quarantined, result.snapshot) == (0, 0, None)
    assert table.format.load() == before
    assert not quarantine.of(table.format).load().exists
    assert data_files(table) == files
    # What failed is not taken, so the same file goes in once its drift is allowed.
    assert table.ingest(tmp_path / "b.jsonl").rows_written == 2


def test_first_batch_that_fails_makes_no_table(table: Table, tmp_path: Path) -> None:
    file = put(tmp_path / "a.jsonl", FIRST + "no record\n")
    with pytest.raises(AuditError, match="2 fail-on new, 1 fail-on quarantine"):
        table.ingest(file, audit=True, fail_on=["new", "quarantine"])
    assert not table.format.load().exists
    assert not quarantine.of(table.format).load().exists
    assert not data_files(table)


@pytest.mark.nightly
def test_batch_that_passes_is_committed_as_any_other(table: Table, tmp_path: Path) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST))
    result = table.ingest(
        put(tmp_path / "b.jsonl", DRIFTED + "no record\n"), audit=True, fail_on=["rest", "widen"]
    )
    assert (result.rows_written, result.rows_quarantined, result.audit) == (2, 1, ())
    assert "audit" not in result.to_dict()
    proven(table, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])


def test_refused_record_fails_an_audit(table: Table, tmp_path: Path) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST))
    with pytest.raises(AuditError) as raised:
        table.ingest(put(tmp_path / "b.jsonl", DRIFTED), policy="strict", audit=True, fail_on=["quarantine"])
    assert [violation.path for violation in raised.value.result.audit] == ["n"]
    assert ids(table) == [1]


EXPECTED = {"n": "n < 10", "id": "id < 3 else quarantine"}
VIOLATIONS = 4
UNEXPECTED = '{"id": 2, "n": 10}\n{"id": 3, "n": 1}\n{"id": 4, "n": 11}\n'


def test_batch_with_more_violations_of_expectations_than_allowed_is_not_committed(
    table: Table, tmp_path: Path
) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST), expect=EXPECTED)
    file = put(tmp_path / "b.jsonl", UNEXPECTED)
    before, files = table.format.load(), data_files(table)
    with pytest.raises(AuditError, match="2 at-most 2") as raised:
        table.ingest(file, audit=True, at_most=2)
    assert [(v.check, v.path, v.seen_in.rpartition("/")[2]) for v in raised.value.result.audit] == [
        ("at-most 2", "id", "b.jsonl:2"),
        ("at-most 2", "n", "b.jsonl:1"),
    ]
    assert (table.format.load(), data_files(table)) == (before, files)
    result = table.ingest(file, audit=True, at_most=VIOLATIONS)
    assert (result.rows_written, result.rows_quarantined, result.audit) == (1, 2, ())


@pytest.mark.nightly
def test_first_batch_is_audited_by_the_expectations_that_it_brings(table: Table) -> None:
    with pytest.raises(AuditError, match="1 at-most 0"):
        table.ingest([{"id": 3}], expect=EXPECTED, audit=True, at_most=0)
    assert not table.format.load().exists
    assert table.ingest([{"id": 1}], expect=EXPECTED, audit=True, at_most=0).rows_written == 1


@pytest.mark.nightly
@pytest.mark.format_has_no_say(
    "a batch is audited before a format commits it, over which other kinds of batches run too"
)
def test_capture_goes_on_behind_a_batch_with_too_many_violations(table: Table, tmp_path: Path) -> None:
    source = tmp_path / "in"
    put(source / "a.jsonl", UNEXPECTED)
    waits = {"audit": True, "at_most": 0, "on_audit": "quarantine", "expect": EXPECTED}
    (batch,) = captured(table, source, **waits)
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (0, 3)
    assert {violation.check for violation in batch.result.audit} == {"at-most 0"}
    assert captured(table, source, **waits) == []
    assert sum(expected.violations for expected in table.stats().expectations) == VIOLATIONS


@pytest.mark.iceberg_only("refused before a table is asked")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"audit": True}, "nothing to check"),
        ({"fail_on": "sibling"}, "fail_on says what an audit does"),
        ({"audit": True, "fail_on": ["siblings"]}, "no kind of finding"),
        ({"audit": True, "fail_on": "new", "dry_run": True}, "a dry run"),
    ],
)
def test_audit_without_sense_is_refused(table: Table, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        table.ingest([{"id": 1}], **arguments)
    assert raised.value.hint


# Captures ------------------------------------------------------------------------------------------------------


def captured(table: Table, folder: Path, **options: Any) -> list[Batch]:
    batches: list[Batch] = []
    query = table.capture(folder, name="orders", on_batch=batches.append, **options)
    assert query.awaitTermination(120)
    return batches


@pytest.mark.format_has_no_say(
    "a batch is audited before a format commits it, over which other kinds of batches run too"
)
def test_capture_stops_before_the_batch_that_fails(table: Table, tmp_path: Path) -> None:
    source = tmp_path / "in"
    put(source / "a.jsonl", FIRST)
    captured(table, source, **SIBLING)
    put(source / "b.jsonl", DRIFTED)
    before, files = table.format.load(), data_files(table)
    for _ in range(2):
        with pytest.raises(AuditError, match="1 fail-on sibling"):
            captured(table, source, **SIBLING)
    assert table.format.load() == before
    assert not [file for file in data_files(table) - files if "/_captures/" not in file]
    (batch,) = captured(table, source)
    assert (batch.epoch, batch.result.rows_written) == (1, 2)
    proven(table, [source / "a.jsonl", source / "b.jsonl"])


@pytest.mark.nightly
@pytest.mark.parametrize("exists", [True, False])
def test_batch_that_fails_waits_whole_and_the_capture_goes_on(
    table: Table, tmp_path: Path, exists: bool
) -> None:
    source, waits = tmp_path / "in", {"audit": True, "fail_on": "sibling", "on_audit": "quarantine"}
    if exists:
        put(source / "a.jsonl", FIRST)
        captured(table, source, **waits)
    drifted, sibling = (DRIFTED, "n_string") if exists else (FIRST + DRIFTED, "n_long")
    put(source / "b.jsonl", drifted)
    (batch,) = captured(table, source, **waits)
    records = drifted.count("\n")
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (0, records)
    assert [violation.path for violation in batch.result.audit] == [sibling]
    assert batch.to_dict()["audit"][0]["check"] == "fail-on sibling"
    assert table.format.load().exists == exists
    if exists:
        assert "n_string" not in table.read().columns
    assert waiting(table) == [("audit", json.loads(line)["id"]) for line in drifted.splitlines()]
    assert captured(table, source, **waits) == []
    put(source / "c.jsonl", '{"id": 9, "n": 7}\n')
    (batch,) = captured(table, source, **waits)
    assert (batch.result.rows_written, batch.result.audit) == (1, ())
    replayed = table.replay()
    assert (replayed.written, replayed.back, replayed.held) == (records, 0, 0)
    assert ids(table) == [1, 2, 3, 9]
    assert waiting(table) == []
    proven(table, sorted(source.iterdir()))


@pytest.mark.nightly
@pytest.mark.format_has_no_say(
    "a batch is audited before a format commits it, over which other kinds of batches run too"
)
def test_records_of_a_first_batch_that_waits_are_replayed_after_another_capture_made_the_table(
    table: Table, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    put(source / "a.jsonl", DRIFTED)
    captured(table, source, audit=True, fail_on=["sibling"], on_audit="quarantine")
    table.ingest(put(tmp_path / "b.jsonl", FIRST))
    assert table.replay().written == 2
    assert captured(table, source) == []
    assert ids(table) == [1, 2, 3]


@pytest.mark.nightly
def test_capture_that_dies_behind_the_quarantine_takes_its_records_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, waits = tmp_path / "in", {"audit": True, "fail_on": "new", "on_audit": "quarantine"}
    put(source / "a.jsonl", FIRST)
    make_visible = commit.make_visible

    def dies(transactions: Any) -> None:
        """Commit, and end as a process does that is killed."""
        make_visible(transactions)
        raise DataError("dies", "here")

    with monkeypatch.context() as patched:
        patched.setattr(commit, "make_visible", dies)
        with pytest.raises(DataError, match="dies"):
            captured(table, source, **waits)
    assert table.replay().written == 1
    assert captured(table, source, **waits) == []
    assert ids(table) == [1]


@pytest.mark.nightly
@pytest.mark.format_has_no_say(
    "a batch is audited before a format commits it, over which other kinds of batches run too"
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_of_columns_that_fail_wait_whole_too(table: Table, tmp_path: Path, kind: str) -> None:
    source, waits = tmp_path / "in", {"audit": True, "fail_on": ["new"], "on_audit": "quarantine"}
    source.mkdir()
    if kind == "csv":
        put(source / "a.csv", "id,n\n2,6\n3,x\n")
    else:
        pq.write_table(pa.table({"id": [2, 3], "n": ["6", "x"]}), source / "a.parquet")
    (batch,) = captured(table, source, **waits)
    assert (batch.result.rows_quarantined, waiting(table)) == (2, [("audit", 2), ("audit", 3)])
    assert table.replay().written == 2
    assert captured(table, source, **waits) == []
    assert ids(table) == [2, 3]


# verify --------------------------------------------------------------------------------------------------------

VERIFY: dict[str, Any] = {"audit": True, "verify": True}
KEYED = (
    '{"id": 1, "n": 5, "at": 1}\n{"id": 2, "n": 6, "at": 1}\n',
    '{"id": 1, "n": "x", "at": 2}\n{"id": 2, "n": 1, "at": 0}\n{"id": 3, "more": [1.5], "at": 3}\nno record\n',
)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"key": "id", "delete_when": "at = 0"},
        {"key": "id", "order_by": "at"},
        {"partition_by": "n", "sort_by": "id"},
    ],
)
def test_batch_is_verified_before_anyone_sees_it(
    table: Table, tmp_path: Path, settings: dict[str, Any]
) -> None:
    first, second = (put(tmp_path / f"{n}.jsonl", lines) for n, lines in enumerate(KEYED))
    table.ingest(first, **VERIFY, **settings)  # also the batch that makes the table
    assert table.ingest(second, **VERIFY).rows_quarantined == 1
    proven(table, [first, second])


@pytest.mark.parametrize(
    ("merge", "late", "counts"), [("replace", 0, 9), pytest.param("keep", 9, 0, marks=pytest.mark.nightly)]
)
def test_batch_of_a_table_with_an_order_is_verified_beside_rows_from_before(
    table: Table, tmp_path: Path, merge: str, late: int, counts: int
) -> None:
    settings = {"key": "id", "order_by": "at", "merge": merge}
    table.ingest(put(tmp_path / "a.jsonl", '{"id": 1, "n": 5, "at": 1}\n'), **settings, **VERIFY)
    second = f'{{"id": 1, "n": "late", "at": {late}}}\n{{"id": 2, "n": 1, "at": 1}}\n'
    file = put(tmp_path / "b.jsonl", second)

    def changes(phase: str) -> None:
        """A record that counts comes into the file after it was written, and before it is checked."""
        if phase == "auditing":
            file.write_text(second + f'{{"id": 1, "n": 5, "at": {counts}}}\n')

    with pytest.raises(AuditError, match="1 verify") as raised:
        table.ingest(file, **VERIFY, progress=changes)
    assert raised.value.result.audit[0].seen_in.endswith("b.jsonl:3")
    table.ingest(put(file, second), **VERIFY)
    assert sorted(row.n for row in table.read().select("n").collect()) == [1, 5]


@pytest.mark.parametrize(
    ("order_by", "words"),
    [("at", "cannot be verified alone"), (None, "do not tell a null from an absent field")],
)
def test_batch_of_patches_that_does_not_tell_its_rows_is_not_verified(
    table: Table, tmp_path: Path, order_by: str | None, words: str
) -> None:
    data = put(tmp_path / "a.jsonl", KEYED[0]) if order_by else pa.table({"id": [1]})
    with pytest.raises(UsageError, match=words):
        table.ingest(data, key="id", order_by=order_by, merge="patch", **VERIFY)
    assert not data_files(table)


def test_batch_whose_record_is_missing_is_not_committed(table: Table, tmp_path: Path) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST))
    file = put(tmp_path / "b.jsonl", DRIFTED)
    before, files = table.format.load(), data_files(table)

    def changes(phase: str) -> None:
        """A record comes into the file after it was written, and before it is checked."""
        if phase == "auditing":
            file.write_text(DRIFTED + '{"id": 4, "n": 7}\n')

    with pytest.raises(AuditError, match="1 verify") as raised:
        table.ingest(file, **VERIFY, progress=changes)
    (violation,) = raised.value.result.audit
    assert violation.seen_in.endswith("b.jsonl:3")
    assert table.format.load() == before
    assert data_files(table) == files


def test_batch_is_not_verified_by_an_equal_row_or_reject_from_before(table: Table, tmp_path: Path) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST + "no record\n"), partition_by="n")
    lost = ((DRIFTED, FIRST), (DRIFTED + "neither\n", "no record\n"), ("neither\n", FIRST))
    for kept, line in lost:
        file = put(tmp_path / "b.jsonl", kept)
        with pytest.raises(AuditError, match="1 verify") as raised:
            table.ingest(file, **VERIFY, progress=partial(appends, file, line))
        (violation,) = raised.value.result.audit
        assert violation.seen_in.endswith(f"b.jsonl:{kept.count(NEWLINE) + 1}")
    assert table.ingest(put(file, DRIFTED + FIRST), **VERIFY).rows_written == FIRST.count(NEWLINE) + 2


@pytest.mark.format_has_no_say("the policy is `widen`, whose rewrites both formats take alike")
def test_batch_that_rewrites_its_table_is_verified_by_the_number_of_rows_too(
    table: Table, tmp_path: Path
) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST), policy="widen", allow_rewrite=True)
    file = put(tmp_path / "b.jsonl", '{"id": 2, "n": "x"}\n')
    with pytest.raises(AuditError, match="1 verify") as raised:
        table.ingest(file, **VERIFY, progress=partial(appends, file, '{"id": 1, "n": "5"}\n'))
    assert "3 rows are due, and the table would have 2" in raised.value.hint
    assert table.ingest(put(file, '{"id": 2, "n": "x"}\n'), **VERIFY).rows_written == 1


@pytest.mark.format_has_no_say(
    "a batch is audited before a format commits it, over which other kinds of batches run too"
)
def test_rows_of_python_and_other_formats_are_verified(table: Table, tmp_path: Path) -> None:
    table.ingest([{"id": 1, "n": 5}, {"id": 2, "n": "x"}], **VERIFY)
    table.ingest(pa.table({"id": [3], "n": [1.5]}), **VERIFY)
    table.ingest(put(tmp_path / "a.csv", "id,n\n4,7\n5,\n"), **VERIFY, keep=False, delimiter=",")
    assert ids(table) == [1, 2, 3, 4, 5]


@pytest.mark.nightly
def test_capture_verifies_its_batches(table: Table, tmp_path: Path) -> None:
    source = tmp_path / "in"
    put(source / "a.jsonl", FIRST)
    put(source / "b.jsonl", DRIFTED + "no record\n")
    batches = captured(table, source, max_files=1, **VERIFY)
    assert [batch.result.audit for batch in batches] == [(), ()]
    proven(table, sorted(source.iterdir()))


@pytest.mark.iceberg_only("a DuckLake has Parquet files alone")
def test_rows_of_spark_s_own_writer_are_verified(table: Table, tmp_path: Path) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST))
    table.lake.sql(f"alter table lake.{table.name} set tblproperties ('write.format.default' = 'orc')")
    table.ingest(put(tmp_path / "b.jsonl", DRIFTED), **VERIFY)
    assert any(file.endswith(".orc") for file in data_files(table))
    assert ids(table) == [1, 2, 3]


@pytest.mark.iceberg_only("refused before a table is asked")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda table: table.lake.spark.range(1), "a Spark DataFrame"),
        (lambda _: iter([{"id": 1}]), "an iterator"),
    ],
)
def test_data_that_verify_cannot_read_again_are_refused(table: Table, data: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"verify cannot read {words}") as raised:
        table.ingest(data(table), **VERIFY)
    assert raised.value.hint
    assert not table.format.load().exists


@pytest.mark.format_has_no_say(
    "a batch is audited before a format commits it, over which other kinds of batches run too"
)
def test_capture_verifies_the_lines_that_were_appended(table: Table, tmp_path: Path) -> None:
    source = tmp_path / "in"
    file = put(source / "a.jsonl", FIRST + '{"id": 2')
    appended = {"changed_files": "append", **VERIFY}
    captured(table, source, **appended)
    put(file, FIRST + '{"id": 2}\n' + DRIFTED + "no record\n")
    (batch,) = captured(table, source, **appended)
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (3, 1)
    proven(table, [file])


@pytest.mark.nightly
@pytest.mark.iceberg_only("refused before a table is asked")
def test_lines_of_csv_that_may_be_appended_are_not_verified(table: Table, tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.csv", "id,n\n1,5\n")
    with pytest.raises(UsageError, match="parts of files of JSON alone"):
        captured(table, tmp_path / "in", changed_files="append", **VERIFY)


# Others --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "id"])
def test_batch_that_another_writer_overtakes_is_checked_again(
    table: Table, tmp_path: Path, key: str | None
) -> None:
    table.ingest(put(tmp_path / "a.jsonl", FIRST), key=key)
    other, audits = table.lake.table(table.name), 0

    def overtakes(phase: str) -> None:
        """Another writer brings a column while the batch is checked for the first time."""
        nonlocal audits
        audits += phase == "auditing"
        if phase == "auditing" and audits == 1:
            other.ingest([{"id": 9, "n": 1, "more": True}])

    result = table.ingest(put(tmp_path / "b.jsonl", DRIFTED), audit=True, fail_on="map", progress=overtakes)
    assert (audits, result.rows_written) == (2, 2)
    assert ids(table) == [1, 2, 3, 9]


def test_batch_that_fails_only_after_another_writer_is_not_committed(table: Table, tmp_path: Path) -> None:
    table.ingest(put(tmp_path / "a.jsonl", '{"id": 1}\n'))
    other, audits = table.lake.table(table.name), 0

    def overtakes(phase: str) -> None:
        """Another writer is the first to bring the column, and gives it another type."""
        nonlocal audits
        audits += phase == "auditing"
        if phase == "auditing" and audits == 1:
            other.ingest([{"id": 9, "n": 1}])

    with pytest.raises(AuditError, match="1 fail-on sibling"):
        table.ingest(put(tmp_path / "b.jsonl", '{"id": 2, "n": "x"}\n'), **SIBLING, progress=overtakes)
    assert (audits, ids(table)) == (2, [1, 9])


KILLED = """
import json, os, sys
from pathlib import Path
from driftline import Lake
place, ducklake, name, source, phase, few_rows = json.loads(sys.argv[1])

def dies(now):
    if now == phase:
        os._exit(9)  # neither Python's cleaning up nor Java's

lake = Lake.open(place, ducklake=ducklake, properties=few_rows, durability="off")
lake.table(name).capture(
    Path(source), name="orders", audit=True, verify=True, fail_on="sibling", on_audit="quarantine", progress=dies
).awaitTermination()
"""
KILLS = {"iceberg": ("auditing", "quarantining", "committing", "committed"), "ducklake": ("committing",)}


@pytest.mark.nightly
@pytest.mark.embedded_only("processes that are killed open the lake's folder")
def test_capture_killed_in_each_step_of_an_audited_batch_in_turn_brings_its_records_once(
    table: Table, tmp_path: Path
) -> None:
    """Each capture takes up what the one before left, and dies one step later."""
    table.ingest(put(tmp_path / "a.jsonl", FIRST))
    source = put(tmp_path / "in" / "b.jsonl", DRIFTED).parent
    catalog = database(table.lake)
    opened = (
        [str(catalog_file(table.lake).parent), None]
        if catalog is None
        else [str(Path(catalog.data).parent), f"duckdb:{catalog.target}"]
    )
    for phase in KILLS["iceberg" if catalog is None else "ducklake"]:
        argument = json.dumps([*opened, table.name, str(source), phase, FEW_ROWS])
        command = [sys.executable, "-c", KILLED, argument]
        died = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert died.returncode == 9, f"{phase}: {died.stderr}"
        assert ids(table) == [1], phase
    captured(table, source, **VERIFY, fail_on="sibling", on_audit="quarantine")
    assert len(waiting(table)) == 2
    assert table.replay().written == 2
    assert ids(table) == [1, 2, 3]
