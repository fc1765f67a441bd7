"""Notices: a command is called, or a URL posted to, for each batch that changed the schema or left records in quarantine.

What goes wrong with one is said in the log, and never is the batch's failure. The log does not show what may be secret of it.
"""

from __future__ import annotations

import json
import logging
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from driftline.core.changes import Change, apply, to_dict
from driftline.core.schema_json import type_name
from driftline.core.siblings import families
from driftline.core.types import List, Map, Path, Schema, Struct, Type
from driftline.report.result import Result

TIMEOUT = 10.0  # seconds
LISTED = 1000  # changes, and conflicts; the rest is counted
_LOG = logging.getLogger("driftline")


@dataclass(frozen=True, slots=True)
class Notice:
    """``to``: a URL, to which JSON is posted; or a command of the shell, which gets it on standard input."""

    to: str = field(repr=False)
    timeout: float = TIMEOUT

    def send(self, result: Result, more: Mapping[str, Any] | None = None) -> bool:
        """Tells of a batch, if there is something to tell; whether that was told. ``more``: goes along."""
        if not (result.changes or result.rows_quarantined):
            return True
        body = json.dumps({**told(result), **(more or {})}, ensure_ascii=False).encode()
        try:
            self._post(body) if self._is_url else self._call(body)
        except Exception as error:
            _LOG.warning("on-change: %s: %s; the batch is in", self.shown, self._why(error))
            return False
        return True

    @property
    def _is_url(self) -> bool:
        return self.to.startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """Where it goes, without what may be secret: a URL's host, a command's name."""
        if not self._is_url:
            return PurePath(self.to.split(maxsplit=1)[0]).name if self.to.split() else "no command"
        try:
            parts = urlsplit(self.to)
            return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
        except ValueError:
            return "a URL"

    def _post(self, body: bytes) -> None:
        parts = urlsplit(self.to)
        headers = {"Content-Type": "application/json", "User-Agent": "driftline"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        host = parts.netloc.rpartition("@")[2]
        url = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
        with urlopen(Request(url, body, headers), timeout=self.timeout) as answer:  # noqa: S310  http and https only
            answer.read(1)

    def _call(self, body: bytes) -> None:
        subprocess.run(
            ["/bin/sh", "-c", self.to], input=body, capture_output=True, timeout=self.timeout, check=True
        )

    def _why(self, error: Exception) -> str:
        match error:
            case HTTPError():
                return f"answered {error.code}"
            case subprocess.CalledProcessError():
                said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
                return f"ended with {error.returncode}" + (f": {said[-1][:200]}" if said else "")
            case subprocess.TimeoutExpired() | TimeoutError():
                return f"took longer than {self.timeout:g} s"
            case _:
                reason = getattr(error, "reason", None)
                return str(reason or type(error).__name__)


def told(result: Result) -> dict[str, Any]:
    """What a notice says: the batch's counts; each change with the field's columns before and after it; what is in
    quarantine, and why."""
    whole = result.to_dict()
    conflicts = whole.get("conflicts", [])
    after = apply(result.before, result.changes)
    return {
        **{
            k: whole[k]
            for k in ("table", "batch", "rows_read", "rows_written", "rows_quarantined", "snapshot")
        },
        "changes": [
            {
                **to_dict(change),
                "before": _columns(result.before, change),
                "after": _columns(after, change),
            }
            for change in result.changes[:LISTED]
        ],
        "conflicts": conflicts[:LISTED],
        "malformed": list(result.rejected),
        "more": max(0, len(result.changes) - LISTED) + max(0, len(conflicts) - LISTED),
    }


def _columns(schema: Schema, change: Change) -> dict[str, str]:
    """The columns that the change's field has in a schema, by their names, each with its type."""
    path, of = change.path, change.reason.field or change.path
    struct = _struct(schema.struct, path[:-1])
    while struct is None and path:  # what is inside a list or a map is its column's
        path = path[:-1]
        struct = _struct(schema.struct, path[:-1])
    if struct is None or not path:
        return {}
    keys = {of[-1], path[-1]}
    return {
        column.name: type_name(column.type)
        for family in families([struct])
        if family.key in keys or any(c.name == path[-1] for c in family.columns)
        for column in family.columns
    }


def _struct(type_: Type, path: Path) -> Struct | None:
    for step in path:
        match type_:
            case Struct() if (found := type_.get(step)) is not None:
                type_ = found.type
            case List() if step == "element":
                type_ = type_.element
            case Map() if step == "value":
                type_ = type_.value
            case _:
                return None
    return type_ if isinstance(type_, Struct) else None
