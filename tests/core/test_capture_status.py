"""The status that a capture keeps in its checkpoint for those who look at it."""

from __future__ import annotations

import json
import os

import pytest

from driftline.capture.status import CaptureStatus, StatusFile
from driftline.errors import DataError


def test_status_of_a_capture_that_runs_then_ends_is_read_from_its_checkpoint(tmp_path) -> None:
    assert CaptureStatus.of(tmp_path) is None
    status = StatusFile(str(tmp_path))
    status.begin()
    assert CaptureStatus.of(tmp_path) == CaptureStatus()
    status.note_lag(3)
    assert CaptureStatus.of(tmp_path) == CaptureStatus(3)
    status.end()
    assert CaptureStatus.of(tmp_path) == CaptureStatus(3, has_ended=True)
    status.begin()
    assert CaptureStatus.of(tmp_path) == CaptureStatus()


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (DataError("in is gone", "put it back"), "in is gone\nput it back"),
        (DataError("in is gone"), "in is gone"),
        (RuntimeError(), "RuntimeError"),
        (DataError("401 for hunter2 at http://me:pw@host/"), "401 for *** at http://***@host/"),
    ],
)
def test_error_that_ends_a_capture_stands_in_its_status_without_secrets(tmp_path, failure, error) -> None:
    StatusFile(str(tmp_path), [{"sasl.password": "hunter2"}]).end(failure)
    assert CaptureStatus.of(tmp_path) == CaptureStatus(has_ended=True, error=error)


def test_error_of_a_capture_that_does_not_begin_stands_in_its_status(tmp_path) -> None:
    with pytest.raises(DataError), StatusFile(str(tmp_path)).failing():
        raise DataError("no such topic")
    status = CaptureStatus.of(tmp_path)
    assert status is not None and status.error == "no such topic"


@pytest.mark.parametrize("text", ["", "{", "[1]", json.dumps({"of a later version": 1})])
def test_status_that_cannot_be_read_is_none(tmp_path, text) -> None:
    (tmp_path / "status.json").write_text(text)
    assert CaptureStatus.of(tmp_path) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_status_that_cannot_be_written_ends_no_capture(tmp_path) -> None:
    tmp_path.chmod(0o500)
    StatusFile(str(tmp_path)).begin()
    tmp_path.chmod(0o700)


def test_checkpoint_in_a_store_has_no_status() -> None:
    status = StatusFile("s3://bucket/checkpoint")
    status.begin()
    status.note_lag(1)
    status.end()
