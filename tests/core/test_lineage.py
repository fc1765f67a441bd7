"""OpenLineage's events: what they say, where they go, and that no batch waits for them or fails by them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import OpenLineageClient
from openlineage.client.serde import Serde
from openlineage.client.transport.file import FileConfig, FileTransport

from core.shapes import batch, schema
from driftline.core.history.batch_properties import BatchIsInError
from driftline.core.planning.planner import plan
from driftline.core.schema.types import SourceLocation
from driftline.errors import DataError
from driftline.ingest.fan_out import FanOutAuditError, FanOutError, FanOutResult
from driftline.ingest.result import ExpectationOutcome, Result, result
from driftline.observe.observation import Observation, Tally, Violations
from driftline.report import lineage, listeners
from driftline.report.dataset_names import DatasetName
from driftline.report.lineage import Lineage, wanted
from driftline.report.lineage_events import LineageRun, RunEvents

FOLDER = DatasetName("file", "/in")
MOMENT = "2026-03-02T08:00:00+00:00"
RUN = "7f0f7bd2-6f40-4d39-9b1c-3a2a55a7f8f5"


def objects(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


def lists(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def facets(**properties: dict[str, Any]) -> dict[str, Any]:
    """Facets of one kind: each says who made it and what it follows; none is there that is not named."""
    anyone = objects("_producer", "_schemaURL", _producer=TEXT, _schemaURL=TEXT)
    return objects(**{name: {"allOf": [anyone, one]} for name, one in properties.items()}) | {
        "additionalProperties": False
    }


# What OpenLineage 2-0-2, and its facets, require of the events that are sent.
TEXT, COUNT = {"type": "string"}, {"type": "integer"}
UUID = TEXT | {"format": "uuid"}
JOB = objects("namespace", "name", namespace=TEXT, name=TEXT)
COLUMN = objects("name", name=TEXT, type=TEXT, description=TEXT, fields=lists({"$ref": "#/$defs/column"}))
COUNTS = objects(rowCount=COUNT, size=COUNT, fileCount=COUNT)
CHANGE = objects("type", type={"enum": ["DIRECT", "INDIRECT"]}, subtype=TEXT, description=TEXT)
ORIGIN = objects(
    "namespace", "name", "field", namespace=TEXT, name=TEXT, field=TEXT, transformations=lists(CHANGE)
)
LINES = objects("inputFields", inputFields=lists(ORIGIN))
OF_DATASETS = facets(
    schema=objects(fields=lists({"$ref": "#/$defs/column"})),
    version=objects("datasetVersion", datasetVersion=TEXT),
    columnLineage=objects("fields", fields={"type": "object", "additionalProperties": LINES}),
)
OF_RUNS = facets(
    processing_engine=objects("version", version=TEXT, name=TEXT),
    errorMessage=objects("message", "programmingLanguage", message=TEXT, programmingLanguage=TEXT),
    parent=objects("run", "job", run=objects("runId", runId=UUID), job=JOB),
)
OF_JOBS = facets(
    jobType=objects("processingType", "integration", processingType=TEXT, integration=TEXT, jobType=TEXT)
)
DATASET = {"allOf": [JOB, objects(facets=OF_DATASETS)]}
ASSERTION = objects("assertion", "success", assertion=TEXT, success={"type": "boolean"}, column=TEXT)
ASSERTIONS = objects("assertions", assertions=lists(ASSERTION))
EVENT = objects(
    "eventTime", "producer", "schemaURL", "eventType", "run", "job",
    producer=TEXT | {"pattern": r"^\w+:"},
    schemaURL={"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
    eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
    run=objects("runId", runId=UUID, facets=OF_RUNS),
    job={"allOf": [JOB, objects(facets=OF_JOBS)]},
    inputs=lists({"allOf": [DATASET, objects(inputFacets=facets(inputStatistics=COUNTS, dataQualityAssertions=ASSERTIONS))]}),
    outputs=lists({"allOf": [DATASET, objects(outputFacets=facets(outputStatistics=COUNTS))]}),
) | {"$defs": {"column": COLUMN}}  # fmt: skip


def of(table: str, *, data: str) -> Result:
    planned = plan(schema(table), batch(data))
    seen = Observation(batch(data), Tally(records=2))
    return replace(result("shop.orders", "b1", seen, planned, 2), snapshot=7)


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """The events that were sent so far."""
    file = tmp_path / "events.jsonl"
    own = lineage.Outbox("lineage")
    client = OpenLineageClient(transport=FileTransport(FileConfig(str(file), append=True)))
    monkeypatch.setattr(lineage, "_outbox", lambda: own)
    monkeypatch.setattr(lineage, "_client", lambda: client)

    def sent() -> list[dict[str, Any]]:
        own.flush(30)
        return [json.loads(line) for line in file.read_text().splitlines()]

    return sent


def test_a_batch_is_a_run(events: Callable[[], list[dict[str, Any]]]) -> None:
    listener = Lineage([FOLDER])
    listener.begins("shop.orders", "b1")
    drifted = of("a: long, s: {n: int}", data="a: long | string, s: {n: long}, l: {x: date}[1]")
    figures = {"bytes_read": 70, "files_written": 3, "bytes_written": 900}
    listener.ended(Result(**{**vars_of(drifted), **figures, "location": "/lake/shop/orders"}))
    start, complete = events()
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["job"]["name"] == "driftline.ingest.shop.orders"
    assert start["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert [(i["namespace"], i["name"]) for i in complete["inputs"]] == [FOLDER]
    counts = complete["inputs"][0]["inputFacets"]["inputStatistics"]
    assert (counts["rowCount"], counts["size"]) == (2, 70)
    read = {f["name"]: f for f in complete["inputs"][0]["facets"]["schema"]["fields"]}
    assert set(read["a"]["type"].split(" | ")) == {"long", "string"}
    assert read["l"]["fields"][0] == {"name": "x", "type": "date"}
    (table,) = complete["outputs"]
    assert (table["namespace"], table["name"]) == ("file", "/lake/shop/orders")
    counts = table["outputFacets"]["outputStatistics"]
    assert (counts["rowCount"], counts["fileCount"], counts["size"]) == (2, 3, 900)
    assert table["facets"]["version"]["datasetVersion"] == "7"
    columns = {f["name"]: f for f in table["facets"]["schema"]["fields"]}
    assert (columns["a"]["type"], columns["a_string"]["type"]) == ("long", "string")
    assert columns["l"]["type"] == "list<struct>"
    assert columns["l"]["fields"][0]["fields"] == [{"name": "x", "type": "date"}]
    by_column = table["facets"]["columnLineage"]["fields"]
    assert by_column.keys() == {"a", "a_string", "s.n", "l.element.x"}
    (origin,) = by_column["l.element.x"]["inputFields"]
    assert (origin["namespace"], origin["name"], origin["field"]) == (*FOLDER, "l.element.x")
    assert origin["transformations"] == [{"type": "DIRECT", "subtype": "IDENTITY"}]
    (origin,) = by_column["a_string"]["inputFields"]
    assert origin["field"] == "a"


@pytest.mark.parametrize("capture", [None, "nightly"])
@pytest.mark.parametrize("kind", ["START", "COMPLETE", "FAIL", "ABORT"])
def test_events_are_as_openlineage_wants_them(
    kind: str, capture: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"air/flow/dag.task/{RUN}")
    drifted = of("a: long, s: {n: int}", data="a: long | string, s: {n: long}, l: {x: date}[1], e: {}")
    figures = {"location": "/lake/shop/orders", "bytes_read": 70, "files_written": 3, "bytes_written": 900}
    more: dict[str, Any] = {
        "START": {},
        "COMPLETE": {"results": [Result(**{**vars_of(drifted), **figures})]},
    }.get(kind, {"error": "DataError"})
    event = RunEvents().event(kind, MOMENT, LineageRun(RUN, "shop.orders", capture, [FOLDER]), **more)
    sent = json.loads(Serde.to_json(event))
    Draft202012Validator(EVENT, format_checker=FormatChecker()).validate(sent)
    assert datetime.fromisoformat(sent["eventTime"]).tzinfo is not None
    assert sent["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def test_expectations_are_assertions_about_the_input() -> None:
    unmet = Violations(SourceLocation("a.jsonl", 3), "-1", 2)
    outcomes = {"price": ExpectationOutcome("quarantine", unmet), "at": ExpectationOutcome("warn")}
    checked = replace(of("a: long", data="a: long"), expect=outcomes)
    event = RunEvents().event(
        "COMPLETE", MOMENT, LineageRun(RUN, "shop.orders", None, [FOLDER]), results=[checked]
    )
    sent = json.loads(Serde.to_json(event))
    Draft202012Validator(EVENT, format_checker=FormatChecker()).validate(sent)

    assertions = sent["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(each["assertion"], each["success"]) for each in assertions] == [("price", False), ("at", True)]


def test_records_of_several_inputs_are_counted_for_none_of_them() -> None:
    inputs = [FOLDER, DatasetName("file", "/more")]
    drifted = of("a: long", data="a: long")
    several = RunEvents().event(
        "COMPLETE", MOMENT, LineageRun(RUN, "shop.orders", None, inputs), results=[drifted]
    )
    assert [one.inputFacets for one in several.inputs] == [{}, {}]


def vars_of(value: Result) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def test_batches_of_two_tables_at_once_are_a_run_each(events: Callable[[], list[dict[str, Any]]]) -> None:
    listener, both = Lineage([FOLDER]), Barrier(2, timeout=10)

    def ingest(table: str) -> None:
        listener.begins(table, "b1")
        both.wait()
        listener.failed(DataError("no"))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(ingest, ["shop.a", "shop.b"]))
    found = events()
    runs = {(one["job"]["name"], one["run"]["runId"]) for one in found}
    assert len(found) == 4
    assert sorted(name for name, _ in runs) == ["driftline.ingest.shop.a", "driftline.ingest.shop.b"]


def test_a_batch_into_many_tables_is_one_run_with_an_output_for_each(
    events: Callable[[], list[dict[str, Any]]],
) -> None:
    unmet = Violations(SourceLocation("a.jsonl", 3), "-1", 2)
    expected = [{"n": ExpectationOutcome("warn", unmet)}, {"n": ExpectationOutcome("warn")}]
    seen = ["a: long, s: {n: int}, l: {x: date}[1]", "a: string, s: {n: long, m: boolean}, b: null"]
    results = tuple(
        replace(
            of("a: long", data=data), table=f"hooks.{name}", location=f"/lake/hooks/{name}", bytes_read=30, expect=expect
        )
        for name, data, expect in zip(("push", "ping"), seen, expected, strict=True)
    )  # fmt: skip
    done = FanOutResult("hooks.{event}", results)
    lacking = replace(done, failed={"hooks.ping": DataError("no permission")})
    listener = Lineage([FOLDER], "nightly")
    ends = [lambda: listener.ended(done), lambda: listener.failed(FanOutError(lacking)),
            lambda: listener.failed(FanOutAuditError(done))]  # fmt: skip
    for end in ends:
        listener.begins("hooks.{event}", "b1")
        end()
    sent = events()
    for event in sent:
        event["run"]["facets"].pop("tags")  # which the client adds
        Draft202012Validator(EVENT, format_checker=FormatChecker()).validate(event)
    assert [event["eventType"] for event in sent] == ["START", "COMPLETE", "START", "FAIL", "START", "FAIL"]
    assert {event["job"]["name"] for event in sent} == {"driftline.capture.hooks.{event}.nightly"}
    assert len({event["run"]["runId"] for event in sent}) == 3
    assert [[output["name"] for output in event["outputs"]] for event in sent[1::2]] == [
        ["/lake/hooks/push", "/lake/hooks/ping"], ["/lake/hooks/push"], [],
    ]  # fmt: skip
    (read,) = sent[1]["inputs"]
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert read["inputFacets"]["inputStatistics"]["size"] == 60
    (assertion,) = read["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"]) == ("n", False)
    fields = {field["name"]: field for field in read["facets"]["schema"]["fields"]}
    assert {name: field["type"] for name, field in fields.items()} == {
        "a": "long | string", "s": "record", "l": "list<record>", "b": "unknown",
    }  # fmt: skip
    assert [(inside["name"], inside["type"]) for inside in fields["s"]["fields"]] == [
        ("n", "int | long"), ("m", "boolean"),
    ]  # fmt: skip


def test_a_batch_that_fails_tells_no_message(events: Callable[[], list[dict[str, Any]]]) -> None:
    listener = Lineage([FOLDER], "nightly")
    for error in (DataError("token s3cr3t"), BatchIsInError()):
        listener.begins("shop.orders", "b1")
        listener.failed(error)
    found = events()
    assert [one["eventType"] for one in found] == ["START", "FAIL", "START", "ABORT"]
    assert len({one["run"]["runId"] for one in found}) == 2
    assert found[1]["job"]["name"] == "driftline.capture.shop.orders.nightly"
    assert found[1]["run"]["facets"]["errorMessage"]["message"].startswith("DataError: ")
    assert "s3cr3t" not in json.dumps(found)


def test_events_that_cannot_be_sent_are_one_line_and_no_delay(caplog: pytest.LogCaptureFixture) -> None:
    held, own = threading.Event(), lineage.Outbox("lineage")

    def never() -> None:
        held.wait(30)
        raise OSError("http://me:pw@host")

    began = time.monotonic()
    for _ in range(lineage.MOST + 10):
        own.put(never)
    assert time.monotonic() - began < 1
    own.flush(0.1)
    assert caplog.records[0].getMessage().startswith("lineage: cannot be sent")
    held.set()
    own.flush(30)
    own.put(lambda: None)
    own.put(never)
    own.flush(30)
    shown = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(shown) == 3, shown  # too many; not in time; and once more, after one that worked
    assert "pw" not in caplog.text


def test_who_says_nothing_of_it_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not wanted({})
    assert wanted({"OPENLINEAGE_URL": "http://host"})
    assert not wanted({"OPENLINEAGE_URL": "http://host", "OPENLINEAGE_DISABLED": "True"})
    (tmp_path / "openlineage.yml").touch()
    assert wanted({})
    monkeypatch.setattr(lineage, "_installed", lambda: False)
    assert not wanted({"OPENLINEAGE_URL": "http://host"})


def test_process_asks_once_for_a_destination_of_lineage(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(lineage, "wanted", lambda: asked.append(False))
    listeners._sends_lineage.cache_clear()

    for _ in range(3):
        listeners.listeners([])
    listeners._sends_lineage.cache_clear()

    assert len(asked) == 1


def test_micro_batches_with_one_plan_share_its_facets() -> None:
    first = of("a: long", data="a: long")
    again = Result(**{**vars_of(first), "batch": "b2", "rows_written": 7})
    other = of("a: long", data="a: long | string")
    events = RunEvents()
    facets = events._of_plan(first, [FOLDER])
    assert events._of_plan(again, [FOLDER]) is facets
    assert events._of_plan(other, [FOLDER])["columnLineage"].fields.keys() == {"a", "a_string"}
    assert events._of_plan(other, []).keys() == {"schema"}


def test_a_run_names_the_one_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    batch_run = LineageRun(RUN, "shop.orders", None, [FOLDER])
    start = partial(RunEvents().event, "START", MOMENT, batch_run)
    for name in ("", "nothing", "a/b", "//", "a/b/no-uuid", f"/b/{RUN}"):
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", name)
        assert "parent" not in start().run.facets
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"air/flow/dag.task/{RUN}")
    parent = start().run.facets["parent"]
    assert (parent.job.namespace, parent.job.name, parent.run.runId) == ("air/flow", "dag.task", RUN)
