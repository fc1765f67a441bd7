"""A capture into the tables of a pattern: each gets each of its records once, wherever the capture dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.folder import FileLog
from driftline.capture.resuming import Resumption
from driftline.capture.targets import PatternBatch
from driftline.core.history.batch_properties import Captured as CapturedBatch
from driftline.core.history.batch_properties import Token
from driftline.core.settings.surfaces import in_python
from driftline.errors import DataError, DriftlineError, UsageError
from driftline.ingest import attempts, fan_out, pipeline
from driftline.ingest.attempts import UNKNOWN
from driftline.ingest.fan_out import FanOutAuditError, FanOutError
from driftline.ingest.pattern import Pattern
from driftline.ingest.route import named_values
from driftline.keys.stored import KeyCache
from driftline.lake import Lake, PatternTables, check_pattern, check_sources
from driftline.sources.json_files import JsonFiles
from driftline.verify import messages
from lake.test_fan_out import columns, message, rejected, rows
from servers.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = ("a", "b", "c", "d")


class Died(Exception):
    pass


def batch(number: int) -> list[str]:
    """Records of each kind, which drift, one of no kind, and a text that is no record."""
    records: list[dict[str, Any]] = [
        {"kind": kind, "id": number, f"c{number}": place, "n": "x" if number == 1 else place}
        for place, kind in enumerate(KINDS)
    ]
    return [*map(json.dumps, [*records, {"id": number}, {"kind": "A", "id": number}]), f"broken {number}"]


class Captured:
    """A capture of the folder ``source`` into tables by ``kind``."""

    def __init__(self, lake: Lake, namespace: str, folder: Path) -> None:
        self.lake, self.namespace, self.source, self.place = (
            lake,
            namespace,
            folder / "in",
            folder / "checkpoint",
        )
        self.source.mkdir()
        self.data: Any = self.source
        self.by = "{kind}"
        self.batches = 0

    def tables(self, **options: Any) -> PatternTables:
        return self.lake.fan_out(f"{self.namespace}.{self.by}", **options)

    def of_topics(self, kafka: Kafka, *endings: str, by: str) -> list[str]:
        """Have it take topics of its own in place of the folder."""
        topics = [f"{self.namespace}-{ending}" for ending in endings]
        self.data, self.by = f"kafka://{kafka.address}/{','.join(topics)}", by
        return topics

    def put(self, *lines: str) -> Path:
        file = self.source / f"{self.batches}.jsonl"
        file.write_text("\n".join(lines or batch(self.batches)) + "\n")
        self.batches += 1
        return file

    def start(self, *, max_tables: int = 200, **options: Any) -> list[PatternBatch]:
        batches: list[PatternBatch] = []
        query = self.tables(max_tables=max_tables).capture(
            self.data, name="kinds", checkpoint=self.place, on_batch=batches.append, **options
        )
        assert query.awaitTermination(120)
        return batches

    def goes_on(self) -> None:
        """Each table is as one into which its records were ingested alone, and no record is there twice."""
        self.start()
        assert self.start() == []
        for kind in (KINDS[0], KINDS[-1]):
            alone = self.lake.table(f"{self.namespace}_alone.{kind}")
            for number in range(self.batches):
                file = self.source.parent / f"{number}-{kind}.jsonl"
                names = (f'"kind": "{kind}"', f'"kind": "{kind.upper()}"')
                file.write_text(
                    "\n".join(text for text in batch(number) if any(name in text for name in names))
                )
                alone.ingest(file)
            table = self.lake.table(f"{self.namespace}.{kind}")
            assert (columns(table), rows(table)) == (columns(alone), rows(alone))
            self.lake.format.drop(alone.name, purge=False, dry_run=False)
        others = self.lake.table(f"{self.namespace}._other")
        assert [row.id for row in others.read().orderBy("id").collect()] == [*range(self.batches)]
        assert sorted(rejected(others)) == [
            (f"{number}.jsonl", len(KINDS) + 3) for number in range(self.batches)
        ]


@pytest.fixture
def captured(lake: Lake, table_name: str, tmp_path: Path) -> Iterator[Captured]:
    namespace = table_name.replace(".", "_")
    yield Captured(lake, namespace, tmp_path)
    for name in lake.format.tables():
        if name.startswith(f"{namespace}.") and not name.endswith("__quarantine"):
            lake.format.drop(name, purge=False, dry_run=False)


def followed_by(change: Callable[[], None]) -> Callable[..., None]:
    """A `Checkpoint.assign` behind which, once all tables are written, somebody changes one."""
    assign = Checkpoint.assign

    def assign_and_change(checkpoint: Checkpoint, *given: Any) -> None:
        assign(checkpoint, *given)
        change()

    return assign_and_change


def dying(method: Callable[..., Any], call: int, *, behind: bool) -> Callable[..., Any]:
    """A method that dies at one of its calls, before its work or behind it."""
    calls = count(1)

    def dies(*arguments: Any, **options: Any) -> Any:
        is_last = next(calls) == call
        if is_last and not behind:
            raise Died
        ended = method(*arguments, **options)
        if is_last:
            raise Died
        return ended

    return dies


# In the order in which a micro-batch of five tables comes to them.
DEATHS: list[tuple[Any, str, int, bool]] = [
    (Checkpoint, "assign", 1, False),
    (Checkpoint, "assign", 1, True),
    (pipeline.PreparedRows, "begin_commit", 3, False),
    (pipeline.PreparedRows, "begin_commit", 5, True),
    (pipeline.PreparedRows, "report", 1, False),
    (pipeline.PreparedRows, "report", 3, True),
    (Checkpoint, "remember_tables", 1, False),
    (FileLog, "finish", 1, False),
    (FileLog, "finish", 1, True),
]


@pytest.mark.nightly
def test_each_table_is_as_if_its_records_had_come_alone_wherever_the_capture_dies(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        type(captured.lake.format), "commits_at_once", 1
    )  # else another thread goes on meanwhile
    for owner, name, call, behind in DEATHS:
        if captured.batches < 3:
            captured.put()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), call, behind=behind))
            with pytest.raises(Died):
                captured.start()
    captured.goes_on()


def test_a_later_attempt_gives_each_value_the_table_that_it_had(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps({"kind": kind, "id": number}) for number, kind in enumerate("abc")]
    captured.put(*lines)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remember_tables", dying(Checkpoint.remember_tables, 1, behind=False))
        with pytest.raises(Died):
            captured.start(max_tables=1)
    captured.put(*lines)  # which has no table so far
    first, second = captured.start(max_files=1)
    named = [f"{captured.namespace}.{name}" for name in ("a", "_other", "b", "c")]
    assert first.result.passed_over == tuple(named[:2]) and not first.results
    assert [(result.table, result.rows_written) for result in second.results] == [
        (named[0], 1), (named[2], 1), (named[3], 1),
    ]  # fmt: skip
    others = captured.lake.table(named[1]).read()
    assert sorted(row.kind for row in others.collect()) == ["b", "c"]


@pytest.mark.nightly
@pytest.mark.iceberg_only("the tables of a DuckLake commit at once")
def test_tables_that_are_dropped_or_made_between_two_attempts_double_and_lose_no_record(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(captured.lake.format), "commits_at_once", 1)
    captured.put()
    with monkeypatch.context() as patch:
        commit = pipeline.PreparedRows.commit
        patch.setattr(pipeline.PreparedRows, "commit", dying(commit, 2, behind=True))
        with pytest.raises(Died):
            captured.start(max_tables=3)
    names = {name: f"{captured.namespace}.{name}" for name in (*KINDS, "_other")}
    captured.lake.format.drop(names["a"], purge=False, dry_run=False)
    captured.lake.table(names["d"]).ingest([{"kind": "d", "id": 7}])
    (ended,) = captured.start()
    assert ended.result.passed_over == (names["b"],)
    captured.put()
    captured.start()
    found = {name: captured.lake.table(table).read().collect() for name, table in names.items()}
    assert {name: sorted((row.kind, row.id) for row in found[name]) for name in "abcd"} == {
        "a": [("A", 0), ("A", 1), ("a", 0), ("a", 1)], "b": [("b", 0), ("b", 1)], "c": [("c", 0), ("c", 1)],
        "d": [("d", 1), ("d", 7)],
    }  # fmt: skip
    # While the first batch came, three tables were all that the pattern made: the fourth kind stays there.
    assert sorted((str(row.kind), row.id) for row in found["_other"]) == [("None", 0), ("None", 1), ("d", 0)]


@pytest.mark.nightly
def test_a_table_that_is_altered_behind_its_writing_is_written_again_and_the_others_commit(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured.put()
    captured.start()
    captured.put()
    name = f"{captured.namespace}.b"

    def alter() -> None:
        captured.lake.alter(f"ALTER TABLE {name} RENAME COLUMN n TO m")
        captured.lake.alter(f"ALTER TABLE {name} ADD COLUMN c1 string")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "assign", followed_by(alter))
        (ended,) = captured.start()
    assert len(ended.results) == len(KINDS) + 1
    first, second = map(json.loads, rows(captured.lake.table(name)))
    empty = {"kind": "b", "c0": None, "c1": None, "m": None, "n_string": None}
    assert first == {**empty, "id": 0, "c0": 1, "m": 1}
    assert second == {**empty, "id": 1, "c1": "1", "n_string": "x"}
    captured.goes_on()


@pytest.mark.nightly
def test_a_table_that_is_dropped_behind_its_writing_has_its_records_wait(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured.put()
    captured.start()
    captured.put()
    name = f"{captured.namespace}.b"

    def drop() -> None:
        captured.lake.format.drop(name, purge=False, dry_run=False)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "assign", followed_by(drop))
        with pytest.raises(FanOutError, match="1 table did not get") as failed:
            captured.start(on_table_error="quarantine")
    assert failed.value.result.waiting == (name,)
    assert captured.lake.table(name).replay().written == 1
    assert [row.id for row in captured.lake.table(name).read().collect()] == [1]
    assert [len(rows(captured.lake.table(f"{captured.namespace}.{other}"))) for other in "acd"] == [4, 2, 2]


@pytest.mark.parametrize("phase", ["observing", "committing"])
def test_a_table_that_another_process_brings_meanwhile_keeps_the_batch_from_no_other_one(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    monkeypatch.setattr(fan_out, "_TABLES_AT_ONCE", 1)
    monkeypatch.setattr(type(captured.lake.format), "commits_at_once", 1)
    captured.put()
    (first,) = captured.start()
    captured.put()
    faster = captured.lake.table(f"{captured.namespace}.{KINDS[-1]}")
    last = CapturedBatch.of("kinds", faster.state().properties)
    assert last is not None
    file = captured.source.parent / "faster.jsonl"
    file.write_text(batch(1)[len(KINDS) - 1] + "\n")
    left = [attempts.Options(token=Token("kinds", last.stream, first.epoch + 1))]

    def brought(now: str) -> None:
        """Has the other process, which died behind this one table, bring it once."""
        if now == phase and left:
            attempts.ingest(
                faster.format, JsonFiles(spark=captured.lake.spark, files=[str(file)]), left.pop()
            )

    (ended,) = captured.start(progress=brought)
    assert ended.result.passed_over == (faster.name,)
    assert len(ended.results) == len(KINDS) and not ended.result.failed
    captured.goes_on()


@pytest.mark.nightly
@pytest.mark.iceberg_only("of the checkpoint alone")
def test_a_table_that_is_dropped_while_the_capture_runs_is_told(captured: Captured) -> None:
    captured.put()
    batches: list[PatternBatch] = []

    def drop(ended: PatternBatch) -> None:
        batches.append(ended)
        captured.lake.format.drop(f"{captured.namespace}.a", purge=False, dry_run=False)
        captured.put()

    query = captured.tables().capture(
        captured.source, name="kinds", checkpoint=captured.place, every=0.5, on_batch=drop
    )
    with pytest.raises(DataError, match="a was dropped") as refused:
        query.awaitTermination(120)
    assert len(batches) == 1 and "--resume-from" not in str(refused.value)


@pytest.mark.nightly
def test_a_table_that_fails_loses_no_record_of_another_one(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = pipeline.PreparedRows.begin_commit

    def fails(prepared: pipeline.PreparedRows) -> None:
        if prepared.planned.batch.table.name.endswith(".b"):
            raise DataError("no permission")
        begin(prepared)

    captured.put()
    with monkeypatch.context() as patch:
        patch.setattr(pipeline.PreparedRows, "begin_commit", fails)
        with pytest.raises(FanOutError, match="1 table did not get") as failed:
            captured.start()
    assert len(failed.value.result.results) == 4
    captured.put()
    captured.goes_on()


@pytest.mark.nightly
def test_records_of_a_table_that_is_gone_wait_once_while_the_capture_goes_on_wherever_it_dies(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(captured.lake.format), "commits_at_once", 1)
    captured.put()
    captured.start()
    name = f"{captured.namespace}.a"
    captured.lake.alter(f"ALTER TABLE {name} RENAME TO away")
    for owner, method, call, behind in (
        (pipeline.Prepared, "begin_commit", 1, True),
        (pipeline.PreparedRows, "report", 1, True),
        (Checkpoint, "remember_tables", 1, False),
        (FileLog, "finish", 1, False),
    ):
        if captured.batches < 3:
            captured.put()
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, dying(getattr(owner, method), call, behind=behind))
            with pytest.raises(Died):
                captured.start(on_table_error="quarantine")
    with pytest.raises(FanOutError, match="1 table did not get") as failed:
        captured.start(on_table_error="quarantine")
    assert failed.value.result.waiting == (name,)
    captured.lake.alter(f"ALTER TABLE {captured.namespace}.away RENAME TO a")
    assert captured.lake.table(name).replay().written == 4
    captured.goes_on()


@pytest.mark.parametrize(
    ("kind", "runs"),
    # The checkpoint asks b for the last batch, as the last of the tables that have it.
    [("b", False), *(pytest.param("a", runs, marks=pytest.mark.nightly) for runs in (False, True))],
)
def test_a_capture_goes_on_with_a_dropped_table_once_what_waits_is_replayed(
    captured: Captured, kind: str, runs: bool
) -> None:
    name = f"{captured.namespace}.{kind}"
    captured.put('{"kind": "a", "id": 0}', '{"kind": "b", "id": 0}')
    captured.start()
    captured.lake.format.drop(name, purge=False, dry_run=False)
    captured.put('{"kind": "a", "id": 1}', '{"kind": "b", "id": 1}')
    with pytest.raises(DataError, match=f"{kind} was dropped") as dropped:
        captured.start()
    assert dropped.value.hint is not None and 'on_table_error="quarantine"' in in_python(dropped.value.hint)

    def replay(ended: PatternBatch) -> None:
        if runs and ended.result.waiting:
            assert captured.lake.table(name).replay().written == 1

    tolerant: dict[str, Any] = {"on_table_error": "quarantine", "max_files": 1}
    if runs:
        captured.put(json.dumps({"kind": kind, "id": 2}))
    with pytest.raises(FanOutError, match="1 table did not get"):
        captured.tables().capture(
            captured.source, name="kinds", checkpoint=captured.place, on_batch=replay, **tolerant
        ).awaitTermination(120)
    if not runs:
        verdict = captured.tables().verify([*captured.source.iterdir()])
        assert (verdict.missing, verdict.quarantined) == (1, 1)  # what was dropped, and what waits
        assert captured.lake.table(name).replay().written == 1
    captured.put(json.dumps({"kind": kind, "id": 3}))
    (ended,) = captured.start()
    assert [(of.table, of.rows_written) for of in ended.results] == [(name, 1)]
    assert sorted(row.id for row in captured.lake.table(name).read().collect()) == [1, *[2] * runs, 3]
    verdict = captured.tables().verify([*captured.source.iterdir()], exactly=True)
    assert (verdict.missing, verdict.extra) == (1, 0)  # what was dropped
    pattern = Pattern.of(f"{captured.namespace}.{{kind}}")
    assert named_values(pattern, captured.lake.table(name).format.load().properties) == ((kind,),)


@pytest.mark.nightly
def test_records_of_tables_that_fail_their_audit_wait_and_the_others_get_theirs(captured: Captured) -> None:
    captured.put()
    captured.start()
    captured.put('{"kind": "a", "n": "x"}', '{"kind": "b", "n": 2}')
    audit = {"audit": True, "fail_on": "sibling"}
    with pytest.raises(DataError, match="1 fail-on sibling in 1 table"):
        captured.start(**audit)
    (ended,) = captured.start(**audit, on_audit="quarantine")
    a, b = (f"{captured.namespace}.{name}" for name in "ab")
    assert {result.table: (result.rows_written, result.rows_quarantined) for result in ended.results} == {
        a: (0, 1), b: (1, 0),
    }  # fmt: skip
    assert [len(result.audit) for result in ended.results] == [1, 0]
    assert captured.start(**audit) == []
    assert captured.lake.table(a).replay().written == 1
    assert captured.start() == []


def test_what_a_file_grew_by_is_dealt_and_nothing_of_it_twice(captured: Captured) -> None:
    file = captured.put()
    captured.start()
    with file.open("a") as more:
        more.write("\n".join(batch(1)) + "\n")
    (ended,) = captured.start(changed_files="append")
    assert (ended.result.rows_read, ended.result.rows_quarantined) == (7, 1)
    assert ended.notes == (f"{file}: 7 lines more",)
    assert len(rows(captured.lake.table(f"{captured.namespace}.a"))) == 4


def test_a_capture_verifies_the_share_of_each_table(captured: Captured) -> None:
    for _ in range(2):
        captured.put()
    for ended in captured.start(audit=True, verify=True, max_files=1):
        assert [(result.audit, result.rows_read) for result in ended.results] == [
            ((), 2),
            *[((), 1)] * 3,
            ((), 2),
        ]
    assert captured.batches == 2


def test_a_micro_batch_that_brings_nothing_is_settled(captured: Captured) -> None:
    captured.put()
    captured.start()
    captured.put("")
    (ended,) = captured.start()
    assert (ended.results, ended.result.rows_read, ended.lag) == ((), 0, 0)
    assert captured.start() == []
    sums = list(ended.to_dicts())
    assert [(printed["capture"], printed["epoch"], printed["rows_read"]) for printed in sums] == [
        ("kinds", 1, 0)
    ]


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_micro_batches_that_bring_nothing_are_settled_whether_their_last_table_can_be_loaded_or_not(
    captured: Captured,
) -> None:
    lake, namespace = captured.lake, captured.namespace
    tolerant = {"on_table_error": "quarantine"}
    captured.put('{"kind": "a"}')
    captured.start(**tolerant)
    lake.alter(f"ALTER TABLE {namespace}.a RENAME TO away")
    captured.put("")
    assert len(captured.start(**tolerant)) == 1
    lake.alter(f"ALTER TABLE {namespace}.away RENAME TO a")
    assert captured.start() == []
    captured.put("")
    assert len(captured.start()) == 1
    lake.alter(f"ALTER TABLE {namespace}.a RENAME TO away")
    assert captured.start(**tolerant) == []
    lake.alter(f"ALTER TABLE {namespace}.away RENAME TO a")


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_a_micro_batch_that_only_deletes_rows_is_the_last_one_of_its_table(captured: Captured) -> None:
    settings = {"key": "kind,id", "delete_when": "gone = true"}
    for record in ({"kind": "a", "id": 1}, {"kind": "a", "id": 1, "gone": True}):
        captured.put(json.dumps(record))
        captured.start(settings=settings)
    entries = json.loads((captured.place / "capture.json").read_text())["tables"]
    assert [epoch for _, epoch in entries.values()] == [1]
    assert captured.start(settings=settings) == []
    assert rows(captured.lake.table(f"{captured.namespace}.a")) == []


@pytest.mark.iceberg_only("of the capture alone")
def test_tables_with_a_key_share_one_cache_of_keys(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches: list[KeyCache] = []
    get = KeyCache.get

    def kept(cache: KeyCache, key: Any) -> Any:
        caches.append(cache)
        return get(cache, key)

    monkeypatch.setattr(KeyCache, "get", kept)
    for number in range(3):
        captured.put(*(json.dumps({"kind": kind, "id": 1, "n": number}) for kind in "ab"))
    captured.start(settings={"key": "kind,id"}, max_files=1)
    assert len({id(cache) for cache in caches}) == 1
    files = {str(key).partition("/data/")[0].rpartition("/")[2] for key in caches[0]._files}
    assert len(files) == 2
    assert [
        row.n for kind in "ab" for row in captured.lake.table(f"{captured.namespace}.{kind}").read().collect()
    ] == [2, 2]


def changed(captured: Captured, change: str) -> None:
    """Has a table, or the checkpoint, be of another time than the rest."""
    lake, name = captured.lake, f"{captured.namespace}.a"
    state = lake.table(name).format.load()
    match change:
        case "dropped":
            lake.format.drop(name, purge=False, dry_run=False)
        case "made again":
            lake.format.drop(name, purge=False, dry_run=False)
            lake.table(name).ingest([{"kind": "a"}])
        case "restored":
            set_property(captured, name, state.properties["driftline.capture.kinds"].replace(":1", ":0"))
        case "ahead":
            set_property(captured, name, state.properties["driftline.capture.kinds"].replace(":1", ":7"))
        case "of another checkpoint":
            set_property(captured, name, "another:1")


def set_property(captured: Captured, table: str, text: str) -> None:
    captured.lake.alter(f"ALTER TABLE {table} SET TBLPROPERTIES ('driftline.capture.kinds' = '{text}')")


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_a_table_of_another_capture_of_that_name_keeps_none_back_until_records_go_there(
    captured: Captured, tmp_path: Path
) -> None:
    single = captured.lake.table(f"{captured.namespace}.single")
    captured.put('{"kind": "a"}')
    single.capture(captured.source, name="kinds", checkpoint=tmp_path / "of single").awaitTermination(120)
    (ended,) = captured.start()
    assert [result.table for result in ended.results] == [f"{captured.namespace}.a"]
    captured.put('{"kind": "a"}', '{"kind": "single"}')
    with pytest.raises(
        DataError, match=r"single has the batches of capture kinds .* by another check"
    ) as refused:
        captured.start()
    assert "give the capture another name" in str(refused.value.hint)
    assert len(rows(captured.lake.table(f"{captured.namespace}.a"))) == 1


@pytest.mark.iceberg_only("of the checkpoint alone")
def test_seek_moves_a_capture_whose_tables_have_all_of_its_last_batch(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, files = captured.tables(), [captured.put()]
    place: dict[str, Any] = {"name": "kinds", "checkpoint": captured.place}
    with pytest.raises(DataError, match="has not begun"):
        tables.seek(captured.source, **place, to="earliest")
    captured.start()
    captured.put("")
    captured.start()
    files += [captured.source / "1.jsonl", captured.put()]
    sought = tables.seek(captured.source, **place, to="earliest", dry_run=True)
    assert (sought.table, sought.again, sought.passed) == (tables.pattern, tuple(map(str, files[:2])), ())
    with monkeypatch.context() as patch:
        patch.setattr(type(captured.lake.format), "commits_at_once", 1)
        patch.setattr(pipeline.PreparedRows, "commit", dying(pipeline.PreparedRows.commit, 2, behind=True))
        with pytest.raises(Died):
            captured.start()
    with pytest.raises(DataError, match="was broken off in batch 2, which some tables may have"):
        tables.seek(captured.source, **place, to="earliest")
    captured.start()
    tables.seek(captured.source, **place, to="earliest")
    assert [ended.result.rows_read for ended in captured.start()] == [14]
    counts = [len(rows(captured.lake.table(f"{captured.namespace}.{kind}"))) for kind in ("a", "b", "_other")]
    assert counts == [8, 4, 4]
    tables.seek(captured.source, **place, to="latest")
    assert captured.start() == []


@pytest.mark.iceberg_only("of the source alone")
def test_seek_moves_a_capture_of_topics_into_tables(captured: Captured, kafka: Kafka) -> None:
    topic, place = captured.namespace, {"name": "kinds", "checkpoint": captured.place}
    captured.data = f"kafka://{kafka.address}/{topic}"
    kafka.send(topic, [line.encode() for line in batch(0)], partition=0)
    captured.start()
    sought = captured.tables().seek(captured.data, **place, to="earliest")
    assert sought.again == (f"{topic}/0: offsets 0 to 6",)
    (ended,) = captured.start()
    assert (ended.result.rows_read, len(rows(captured.lake.table(f"{captured.namespace}.a")))) == (7, 4)


# In the order in which a seek comes to them: of files, and of a topic. It dies behind each.
SEEKS: dict[str, list[tuple[Any, str]]] = {
    "files": [
        (FileLog, "leave_out"),
        (FileLog, "append_again"),
        (Checkpoint, "settle"),
        (Checkpoint, "renumber"),
    ],
    "topic": [(Checkpoint, "settle"), (Checkpoint, "renumber"), (Checkpoint, "replace_offsets")],
}


@pytest.mark.nightly
@pytest.mark.iceberg_only("of the checkpoint alone")
@pytest.mark.parametrize("source", SEEKS)
@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_a_capture_goes_on_where_it_was_or_where_it_is_sought_wherever_its_seek_dies(
    captured: Captured, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, source: str, to: str
) -> None:
    topic, tables = captured.namespace, captured.tables()
    captured.data = captured.source if source == "files" else f"kafka://{kafka.address}/{topic}"

    def more() -> None:
        lines = [json.dumps({"kind": kind, "id": captured.batches}) for kind in "ab"]
        captured.put(*lines)
        if source == "topic":
            kafka.send(topic, [line.encode() for line in lines], partition=0)

    def times() -> list[int]:
        """The number of times that each record came, into both tables."""
        found = [captured.lake.table(f"{captured.namespace}.{kind}").read().collect() for kind in "ab"]
        ids = [[row.id for row in of_table] for of_table in found]
        assert sorted(ids[0]) == sorted(ids[1])
        return [ids[0].count(number) for number in range(captured.batches)]

    more()
    captured.start()
    for owner, name in SEEKS[source]:
        before = times()
        more()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), 1, behind=True))
            with pytest.raises(Died):
                tables.seek(captured.data, name="kinds", checkpoint=captured.place, to=to)
        captured.start()
        *now, last = times()
        again = {after - earlier for after, earlier in zip(now, before, strict=True)}
        assert (again, last) in ([({0}, 1), ({1}, 1)] if to == "earliest" else [({0}, 0), ({0}, 1)])
        assert captured.start() == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("dropped", "a was dropped"),
        ("made again", "a is another one"),
        ("restored", "batches up to 0 of capture kinds, which brought it batch 1"),
        ("ahead", "up to 7, and its checkpoint is at 1"),
        ("of another checkpoint", "by another checkpoint"),
    ],
)
@pytest.mark.iceberg_only("of the checkpoint alone")
def test_a_table_of_another_time_than_the_checkpoint_is_told_before_anything_comes(
    captured: Captured, change: str, error: str
) -> None:
    for _ in range(2):
        captured.put()
        captured.start()
    changed(captured, change)
    captured.put()
    with pytest.raises(DriftlineError, match=error) as refused:
        captured.start()
    assert "--resume-from" not in str(refused.value)
    assert sorted(row.id for row in captured.lake.table(f"{captured.namespace}._other").read().collect()) == [
        0,
        1,
    ]


@pytest.mark.iceberg_only("of the source alone")
def test_messages_of_a_topic_go_into_tables_wherever_the_capture_dies(
    captured: Captured, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = captured.namespace
    captured.data = f"kafka://{kafka.address}/{topic}"
    monkeypatch.setattr(type(captured.lake.format), "commits_at_once", 1)
    options: dict[str, Any] = {"kafka_metadata": True, "max_records": len(KINDS) + 4}
    for owner, name, call, behind in DEATHS[:-2]:
        kafka.send(topic, [*(line.encode() for line in batch(captured.batches)), None], partition=0)
        captured.batches += 1
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), call, behind=behind))
            with pytest.raises(Died):
                captured.start(**options)
    captured.start(**options)
    assert captured.start(**options) == []
    offset = captured.batches * (len(KINDS) + 4)
    for kind in KINDS:
        table = captured.lake.table(f"{captured.namespace}.{kind}").read()
        assert sorted(row.id for row in table.collect()) == sorted(
            [*range(captured.batches)] * (1 + (kind == "a"))
        )
        offsets = {row._kafka.offset for row in table.collect()}
        assert len(offsets) == table.count() and max(offsets) < offset
    others = captured.lake.table(f"{captured.namespace}._other")
    assert sorted(row.id for row in others.read().collect()) == [*range(captured.batches)]
    quarantine = captured.lake.format.sql_name(f"{others.name}__quarantine")
    kept = captured.lake.sql(f"SELECT topic, offset, raw FROM {quarantine} ORDER BY offset").collect()
    assert [tuple(row) for row in kept] == [
        (topic, number * (len(KINDS) + 4) + len(KINDS) + 2, f"broken {number}")
        for number in range(captured.batches)
    ]


VERIFIED: dict[str, Any] = {"audit": True, "verify": True}


@pytest.mark.iceberg_only("of the source alone")
def test_messages_of_a_topic_are_verified_before_any_of_their_tables_commits(
    captured: Captured, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, tables = captured.namespace, captured.lake.format.tables
    captured.data = f"kafka://{kafka.address}/{topic}"
    kafka.send(topic, [*(line.encode() for line in batch(0)), None], partition=0)
    kafka.send(topic, [b'{"kind": "a", "id": 7}', b'{"kind": 7.0, "id": 8}'], partition=1)
    (ended,) = captured.start(**VERIFIED)
    assert (ended.result.rows_written, ended.result.rows_quarantined) == (8, 1)

    def twice(frame: DataFrame, *args: Any, **options: Any) -> dict[str, str]:
        """The messages, each of them twice, as if a row of each had been lost."""
        return messages.write(frame.union(frame), *args, **options)

    kafka.send(topic, [b'{"kind": "a", "id": 9}', b'{"kind": "e", "id": 10}', None], partition=1)
    monkeypatch.setattr(check_sources, "written_messages", twice)
    with pytest.raises(FanOutAuditError, match="2 verify in 2 tables") as raised:
        captured.start(**VERIFIED)
    assert [of.audit[0].seen_in for of in raised.value.result.results] == [f"{topic}/1:2", f"{topic}/1:3"]
    assert f"{captured.namespace}.e" not in tables()
    assert len(rows(captured.lake.table(f"{captured.namespace}.a"))) == 3


@pytest.mark.nightly
def test_nothing_is_lost_or_doubled_or_left_behind_where_a_verified_audit_of_a_topic_dies(
    captured: Captured, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = captured.namespace
    captured.data = f"kafka://{kafka.address}/{topic}"
    deaths = [
        (check_sources, "written_messages", 1), (check_pattern, "dealt_by_table", 1), (check_pattern, "not_found", 1),
        (check_pattern, "not_found", 4),
    ]  # fmt: skip
    for number, (owner, name, call) in enumerate(deaths):
        kafka.send(topic, [line.encode() for line in batch(number)], partition=0)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), call, behind=True))
            with pytest.raises(Died):
                captured.start(**VERIFIED, max_records=len(KINDS) + 3)
        assert not [name for name in captured.lake.format.tables() if name.startswith(f"{topic}.")]
    captured.start(**VERIFIED)
    assert captured.start() == []
    for kind in KINDS:
        ids = [row.id for row in captured.lake.table(f"{captured.namespace}.{kind}").read().collect()]
        assert sorted(ids) == sorted([*range(len(deaths))] * (1 + (kind == "a")))
    assert captured.lake.table(f"{captured.namespace}._other").quarantine().waiting == len(deaths)
    assert [orphan for orphan in captured.lake.clean(0) if f"/{captured.namespace}" in orphan.path] == []


@pytest.mark.iceberg_only("of the source alone")
def test_messages_are_verified_in_the_tables_that_their_topic_and_key_name(
    captured: Captured, kafka: Kafka
) -> None:
    first, second = captured.of_topics(kafka, "a", "b", by="{_topic}_{_key.shop}")
    settings = {"key": "_key.id", "delete_when": "value is null"}
    key = b'{"shop": %d, "id": %d}'
    kafka.send(first, [(key % (7, number), b'{"n": %d}' % number) for number in range(3)], partition=0)
    kafka.send(
        second,
        [(b'{"shop": 7.0, "id": 3}', b'{"n": 3}'), (key % (7, 4), b"bad"), (b"x", b'{"n": 4}')],
        partition=1,
    )
    (ended,) = captured.start(settings=settings, **VERIFIED)
    assert (len(ended.results), ended.result.rows_quarantined) == (3, 1)
    kafka.send(
        first, [(key % (7, 0), None), (key % (7, 1), b'{"n": "x"}'), (b"\xff", b'{"n": 5}')], partition=0
    )
    (ended,) = captured.start(**VERIFIED)
    named = Pattern.of(f"{captured.namespace}.{captured.by}").named([first, "7"])
    assert {row._key.id: row.n or row.n_string for row in captured.lake.table(named).read().collect()} == {
        1: "x",
        2: 2,
    }


@pytest.mark.iceberg_only("of the source alone")
def test_messages_go_where_their_topic_and_key_say_and_null_ones_are_counted_there(
    captured: Captured, kafka: Kafka
) -> None:
    first, second = captured.of_topics(kafka, "a", "b", by="{_topic}_{_key.shop}")
    kafka.send(first, [(b'{"shop": 7}', b'{"id": 1}'), (b"plain", b'{"id": 2}')], partition=0)
    kafka.send(
        second, [(b'{"shop": 7.0}', b'{"id": 3}'), (b'{"shop": "7"}', None), (None, None)], partition=1
    )
    (ended,) = captured.start()
    named = Pattern.of(f"{captured.namespace}.{captured.by}").named
    assert {result.table: (result.rows_written, result.tombstones) for result in ended.results} == {
        named([first, "7"]): (1, 0),
        named([second, "7"]): (1, 1),
        f"{captured.namespace}._other": (1, 0),
    }
    with pytest.raises(UsageError, match=r"'a\.\.b' is no path"):
        captured.lake.fan_out("t.{_key.a..b}")


@pytest.mark.iceberg_only("of the source alone")
def test_messages_of_a_database_change_rows_of_one_table_for_each_of_its_tables(
    captured: Captured, kafka: Kafka
) -> None:
    first, second = captured.of_topics(kafka, "orders", "users", by="{source.table}")
    settings = {"key": "id", "envelope": "debezium"}
    key, row = b'{"id": 1}', {"id": 1, "n": 1}
    messages = [
        message("c", "orders", 1, None, row), message("u", "orders", 2, row, {"id": 1, "n": "x"}),
        message("c", "users", 3, None, row), message("d", "users", 4, row, None),
        message("c", "users", 5, None, {"id": 2, "n": 2}),
    ]  # fmt: skip
    for topic, part in ((first, messages[:2]), (second, messages[2:4])):
        kafka.send(topic, [(key, value.encode()) for value in part], partition=0)
    kafka.send(second, [(key, None), (b'{"id": 2}', messages[4].encode())], partition=0)
    captured.start(settings=settings, max_records=2)
    orders, users = (
        captured.lake.table(f"{captured.namespace}.{name}").read() for name in ("orders", "users")
    )
    assert [(row.id, row.n_string) for row in orders.collect()] == [(1, "x")]
    assert [(row.id, row.n) for row in users.collect()] == [(2, 2)]


@pytest.mark.iceberg_only("of the source alone")
def test_null_values_that_delete_rows_have_to_name_their_table(captured: Captured, kafka: Kafka) -> None:
    topic = captured.namespace
    captured.data = f"kafka://{kafka.address}/{topic}"
    settings = {"key": "_key,kind", "delete_when": "value is null"}
    kafka.send(topic, [(b"k", b'{"kind": "a"}'), (b"l", b'{"kind": "a"}'), (b"k", None)], partition=0)
    with pytest.raises(UsageError, match="deletes rows by null values"):
        captured.start(settings=settings)
    captured.by, captured.place = "{_topic}", captured.place.with_name("other")
    captured.start(settings={**settings, "key": "_key"})
    (row,) = captured.lake.table(Pattern.of(captured.tables().pattern).named([topic])).read().collect()
    assert row._key == "l"


@pytest.mark.format_has_no_say
@pytest.mark.parametrize("of_pattern", [False, True])
def test_errors_about_times_that_differ_advise_a_choice_that_a_pattern_does_not_have_only_without_one(
    of_pattern: bool,
) -> None:
    table: Any = SimpleNamespace(name="t.a")
    checkpoint: Any = SimpleNamespace(epoch_of=int)
    state = replace(UNKNOWN, properties={"driftline.capture.kinds": "s:4"})
    resumption = Resumption("kinds", table, state, checkpoint, None, of_pattern=of_pattern)
    for error in (resumption.behind(5, 6, "t/0: offsets 1 to 2"), resumption.unknown("records")):
        assert ("--resume-from" in str(error.hint)) is not of_pattern
        assert ("to one time" in str(error.hint)) is of_pattern


@pytest.mark.iceberg_only("of no format")
def test_what_cannot_be_dealt_is_refused_before_the_capture_begins(captured: Captured) -> None:
    with pytest.raises(UsageError, match="values in avro need the registry"):
        captured.tables().capture("kafka://localhost:1/topic", name="kinds", value_format="avro")
    with pytest.raises(UsageError, match="files have no topic"):
        captured.lake.fan_out("t.{_topic}").capture(captured.source, name="kinds")
    assert not captured.place.exists()
