"""Listeners to a table's batches: Python's log, and notices to a URL.

The log is `driftline`: one line for each batch, with its figures as fields of the record.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from driftline.core.changes import Change, apply, to_dict
from driftline.core.columns.siblings import SiblingGroup, families
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.text import counted
from driftline.core.schema.types import List, Map, Path, Schema, Struct, Type
from driftline.ingest.batch import Listener, Listeners
from driftline.ingest.fan_out import FanOutError, FanOutResult
from driftline.ingest.result import Result
from driftline.report import lineage
from driftline.report.dataset_names import inputs
from driftline.report.findings import findings, schema_changes
from driftline.report.metrics import Telemetry
from driftline.sources.inputs import given_paths

if TYPE_CHECKING:
    from driftline.capture.targets import Batch

LOGGER = logging.getLogger("driftline")


def listeners(data: Any, capture: str | None = None) -> Listeners[Result]:
    """All listeners to the batches of one call into a table.

    ``data``: the data that it ingests; ``capture``: the capture whose micro-batches they are.
    """
    told_of_each: list[Listener[Result]] = [Log(capture)]
    if _sends_lineage():
        told_of_each.append(lineage.Lineage(inputs(given_paths(data)), capture))
    return Listeners([*told_of_each, *_telemetry(capture)])


def listeners_by_table(capture: str | None = None) -> Listeners[Result]:
    """Those listeners to a batch into the tables of a pattern that are told of each table's share."""
    return Listeners([Log(capture), *_telemetry(capture)])


def pattern_listeners(
    data: Any, on_change: str | None, capture: str | None = None
) -> Listeners[FanOutResult]:
    """Those listeners to batches into the tables of a pattern that are told of all tables at once.

    ``data``: the data that are ingested; ``on_change``: the destination of notices.
    """
    told_of_each: list[Listener[FanOutResult]] = []
    if _sends_lineage():
        told_of_each.append(lineage.Lineage(inputs(given_paths(data)), capture))
    if on_change:
        told_of_each.append(PatternNotices(Notice(on_change), capture))
    return Listeners(told_of_each)


def _telemetry(capture: str | None) -> list[Listener[Result]]:
    return [Telemetry(capture)] if is_measured() else []


def is_measured() -> bool:
    """True if the program uses OpenTelemetry: nobody can have set it up without importing its module."""
    return "opentelemetry.metrics" in sys.modules


@cache
def _sends_lineage() -> bool:
    """Ask once in a process: nothing that tells of a destination changes in one that runs."""
    return lineage.wanted()


class Log:
    """Logs each committed batch. ``capture``: the capture whose micro-batches they are."""

    def __init__(self, capture: str | None = None) -> None:
        self._own = {} if capture is None else {"capture": capture}

    def begins(self, table: str, batch: str) -> None:
        """Log the beginning of a batch, at level DEBUG."""
        fields = {"event": "begin", **self._own, "table": table, "batch": batch}
        LOGGER.debug("%s: batch %s begins", table, batch, extra=fields)

    def ended(self, result: Result) -> None:
        """Log the batch in a sentence, with its figures as fields, at level INFO."""
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        fields = {**self._own, **figures(result)}
        LOGGER.info("%s: %s", result.table, _sentence(result), extra={"event": "batch", **fields})

    def failed(self, error: BaseException) -> None:
        """Log nothing: whoever the error is raised to reports it."""


def figures(result: Result) -> dict[str, Any]:
    """The counts of a batch, with schema changes and reasons for quarantine by kind."""
    return {
        "table": result.table,
        "batch": result.batch,
        "rows_read": result.rows_read,
        "rows_written": result.rows_written,
        "rows_quarantined": result.rows_quarantined,
        **(result.outcomes if result.by_key is not None else {}),
        "changes": dict(Counter(finding.kind for finding in findings(result))),
        "snapshot": result.snapshot,
        "bytes_read": result.bytes_read,
        "files_written": result.files_written,
        "bytes_written": result.bytes_written,
        "seconds": round(result.seconds, 3),
        "commit_seconds": round(result.commit_seconds, 3),
        "retries": result.retries,
    }


def _sentence(result: Result) -> str:
    counts = [counted(result.rows_read, "record read", "records read"), *result.outcomes_in_words]
    if result.rows_quarantined:
        counts.append(f"{result.rows_quarantined} in quarantine")
    if changes := schema_changes(result):
        counts.append(counted(changes, "change of the schema", "changes of the schema"))
    return ", ".join(counts)


TIMEOUT = 10.0  # seconds
LISTED = 1000  # changes, and conflicts; the rest is counted


@dataclass(frozen=True, slots=True)
class Notice:
    """A destination of notices.

    ``to``: a URL, to which JSON is posted; or a shell command, which gets it on standard input. ``timeout``:
    seconds, for all of it.
    """

    to: str = field(repr=False)
    timeout: float = TIMEOUT

    def send(self, result: Result, extra: Mapping[str, Any] | None = None) -> bool:
        """Send a notice of a batch, if there is anything to report.

        True if one was sent. ``extra``: further members.
        """
        if not (result.changes or result.rows_quarantined):
            return True
        try:
            body = json.dumps({**contents(result), **(extra or {})}).encode()
            self._post(body) if self._is_url else self._call(body)
        except Exception as error:
            LOGGER.warning("on-change: %s: %s; the batch is in", self.shown, self._why(error))
            return False
        return True

    @property
    def _is_url(self) -> bool:
        return self.to.lower().startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """The destination without anything that may be secret: a URL's host, a command's name."""
        if not self._is_url:
            first = re.match(r"\s*([\w./+-]+)(?=\s|$)", self.to)
            return PurePath(first[1]).name if first else "the command"
        try:
            parts = urlsplit(self.to)
            return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
        except ValueError:
            return "the URL"

    def _post(self, body: bytes) -> None:
        """Post, in a thread: a socket's timeout restarts with each byte, and does not cover the look-up of
        the host.
        """
        went: list[Exception] = []

        def post() -> None:
            """Send the request; an error goes to ``went``."""
            try:
                with _OPENER.open(self._request(body), timeout=self.timeout):
                    pass
            except HTTPError as error:
                error.close()  # it is the answer
                went.append(error)
            except Exception as error:
                went.append(error)

        thread = threading.Thread(target=post, name="on-change", daemon=True)
        thread.start()
        thread.join(self.timeout)
        if thread.is_alive():
            raise TimeoutError
        if went:
            raise went[0]

    def _request(self, body: bytes) -> Request:
        parts = urlsplit(self.to)
        headers = {"Content-Type": "application/json", "User-Agent": "driftline"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        host = parts.netloc.rpartition("@")[2]
        return Request(urlunsplit((parts.scheme, host, parts.path, parts.query, "")), body, headers)  # noqa: S310  http and https only

    def _call(self, body: bytes) -> None:
        nowhere = subprocess.DEVNULL
        # A session of its own, so that what the shell has started ends with it.
        with subprocess.Popen(
            ["/bin/sh", "-c", self.to], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
        ) as shell:  # fmt: skip
            try:
                shell.communicate(body, self.timeout)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)
                raise
        if shell.returncode:
            raise subprocess.CalledProcessError(shell.returncode, "sh")

    def _why(self, error: Exception) -> str:
        match error:
            case HTTPError():
                return f"answered {error.code}"
            case subprocess.CalledProcessError():
                return f"ended with {error.returncode}"
            case subprocess.TimeoutExpired() | TimeoutError():
                return f"took longer than {self.timeout:g} s"
        # What an OSError says is the system's; what others say may have the URL in it.
        reason = getattr(error, "reason", error)
        return (isinstance(reason, OSError) and reason.strerror) or type(error).__name__


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: the notice and its credentials are for this host only."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_Stay)


def contents(result: Result) -> dict[str, Any]:
    """The contents of a notice: the batch's counts; each change with the field's columns before and after it;
    the records in quarantine, and why.
    """
    values = result.to_dict()
    conflicts = values.get("conflicts", [])
    before, after = _Fields(result.before), _Fields(apply(result.before, result.changes))
    return {
        **{
            k: values[k]
            for k in ("table", "batch", "rows_read", "rows_written", "rows_quarantined", "snapshot")
        },
        **(result.outcomes if result.by_key is not None else {}),
        "changes": [
            {
                **to_dict(change),
                "before": before.columns(change),
                "after": after.columns(change),
            }
            for change in result.changes[:LISTED]
        ],
        "conflicts": conflicts[:LISTED],
        "malformed": list(result.rejected),
        "more": max(0, len(result.changes) - LISTED) + max(0, len(conflicts) - LISTED),
    }


@dataclass(frozen=True, slots=True)
class PatternNotices:
    """Sends a notice for each table of a pattern whose share of a batch has anything to report.

    ``capture``: the capture whose micro-batches they are.
    """

    notice: Notice
    capture: str | None = None

    def begins(self, pattern: str, batch: str) -> None:
        """Send nothing."""

    def ended(self, result: FanOutResult) -> None:
        """Send the notices; the first that cannot be sent is the last one, as each may take its time."""
        extra = {"pattern": result.pattern, **({} if self.capture is None else {"capture": self.capture})}
        for of_table in result.results:
            if not self.notice.send(of_table, extra):
                return

    def failed(self, error: BaseException) -> None:
        """Send those of the tables that have their records, or have them wait."""
        if isinstance(error, FanOutError):
            self.ended(error.result)


_Index: TypeAlias = Mapping[str, SiblingGroup]


@dataclass(slots=True)
class _Fields:
    """The fields of a schema. ``known``: those of a struct at a path,
    by their key, and by their columns' names.
    """

    schema: Schema
    known: dict[Path, tuple[_Index, _Index]] = field(default_factory=dict)

    def columns(self, change: Change) -> dict[str, str]:
        """The columns that the change's field has, by their names, each with its type."""
        path, field = change.path, change.reason.field or change.path
        while path and (indexes := self._at(path[:-1])) is None:
            path = path[:-1]  # what is inside a list or a map is its column's
        if not path or indexes is None:
            return {}
        by_key, by_name = indexes
        fields = (by_key.get(field[-1]), by_key.get(path[-1]), by_name.get(path[-1]))
        return {c.name: type_name(c.type) for family in fields if family for c in family.columns}

    def _at(self, path: Path) -> tuple[_Index, _Index] | None:
        struct = _struct(self.schema.struct, path)
        if struct is None:
            return None
        if path not in self.known:  # looked up once: of a wide struct it takes its time
            fields = families([struct])
            self.known[path] = {f.key: f for f in fields}, {c.name: f for f in fields for c in f.columns}
        return self.known[path]


def _struct(type_: Type, path: Path) -> Struct | None:
    for step in path:
        match type_:
            case Struct() if (field := type_.get(step)) is not None:
                type_ = field.type
            case List() if step == "element":
                type_ = type_.element
            case Map() if step == "value":
                type_ = type_.value
            case _:
                return None
    return type_ if isinstance(type_, Struct) else None


def noticed(on_change: str | None, on_batch: Callable[[Batch], None]) -> Callable[[Batch], None]:
    """Also call ``on_change`` for a micro-batch, and report the lag after it."""
    notice = Notice(on_change) if on_change else None

    def tell(batch: Batch) -> None:
        """Report a batch of a capture: its own metrics, a notice if one is due, and then ``on_batch``."""
        if is_measured():
            Telemetry(batch.capture).captured(batch.result.table, batch.lag, batch.changed_files)
        if notice is not None:
            notice.send(batch.result, {"capture": batch.capture, "epoch": batch.epoch})
        on_batch(batch)

    return tell
