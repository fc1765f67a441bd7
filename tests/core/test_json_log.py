"""The log of batches by Python's logging, and as lines of JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from driftline.cli import process
from driftline.config import Config
from driftline.core.changes import AddColumn, Reason
from driftline.core.schema.types import STRING, Field
from driftline.ingest.batch import Listeners
from driftline.ingest.result import Result
from driftline.report.listeners import Log

SIBLING = AddColumn((), Field("a_string", STRING, doc="upsolver_evolved_from:a"), Reason("sibling"))
RESULT = Result("shop.orders", "b", 6, 5, 1, (SIBLING,), snapshot=7)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Standard error, with lines of JSON on it."""
    root, ours = logging.getLogger(), logging.getLogger("driftline")
    before = root.handlers[:], root.level, ours.level
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    process.log_as_json(Config(catalog={"token": "s3cr3t"}).redact, debug=False)
    yield out
    root.handlers[:], root.level = before[:2]
    ours.setLevel(before[2])
    logging.captureWarnings(False)
    assert not process.logs_json()


def test_a_batch_is_a_record_with_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "driftline")
    listener = Log("nightly")
    listener.begins("shop.orders", "b")
    listener.ended(RESULT)
    (record,) = caplog.records
    assert (
        record.getMessage()
        == "shop.orders: 6 records read, 5 written, 1 in quarantine, 1 change of the schema"
    )
    fields = vars(record)
    assert (fields["event"], fields["capture"], fields["table"], fields["batch"]) == (
        "batch", "nightly", "shop.orders", "b",
    )  # fmt: skip
    assert (fields["rows_read"], fields["changes"], fields["snapshot"]) == (6, {"sibling": 1}, 7)
    assert 0 <= fields["seconds"] < 60


def test_the_sentence_counts_changes_as_the_figures_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "driftline")
    inside = replace(SIBLING, parent=("s",), within=True)
    Log().ended(replace(RESULT, changes=(SIBLING, inside), rest=("x",)))
    (record,) = caplog.records
    assert record.getMessage().endswith("1 in quarantine, 1 change of the schema")
    assert vars(record)["changes"] == {"sibling": 1, "rest": 1}


def test_lines_are_objects_without_secrets(lines: io.StringIO) -> None:
    listener = Log()
    listener.begins("shop.orders", "b")
    listener.ended(RESULT)
    process.log_phase("committing to http://me:pw@host/ by s3cr3t")
    logging.getLogger("other").warning("old\nnews")
    logging.getLogger("other").info("is not shown")
    process.log_failure("no", "try s3cr3t", ValueError(), 3, trace=False)
    batch, phase, other, error = map(json.loads, lines.getvalue().splitlines())
    assert (batch["level"], batch["logger"], batch["event"], batch["rows_written"]) == (
        "info", "driftline", "batch", 5,
    )  # fmt: skip
    assert batch["time"].endswith("+00:00")
    assert (phase["event"], phase["message"]) == ("phase", "committing to http://***@host/ by ***")
    assert (other["level"], other["message"]) == ("warning", "old\nnews")
    assert (error["error"], error["exit_code"], error["hint"]) == ("ValueError", 3, "try ***")


def test_a_traceback_is_in_the_line_and_without_secrets(lines: io.StringIO) -> None:
    try:
        raise ValueError("s3cr3t")
    except ValueError as error:
        process.log_failure("no", None, error, 1, trace=True)
    (line,) = lines.getvalue().splitlines()
    assert "ValueError: ***" in json.loads(line)["traceback"]


def test_what_listens_never_fails_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def begins(self, table: str, batch: str) -> None:
            raise ValueError("token s3cr3t")

        def ended(self, result: Result) -> None:
            raise AssertionError("it is told no more")

        failed = ended

    caplog.set_level(logging.INFO, "driftline")
    listeners = Listeners([Broken(), Log()])
    listeners.begins("shop.orders", "b")
    listeners.ended(RESULT)
    listeners.failed(ValueError())
    assert [(r.levelname, r.getMessage().partition(":")[0]) for r in caplog.records] == [
        ("WARNING", "broken ends"), ("INFO", "shop.orders"),
    ]  # fmt: skip
    assert "s3cr3t" not in caplog.text
