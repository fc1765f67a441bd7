"""`--log-format json`: standard error as one JSON object a line, by Python's logging."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

_LOG = logging.getLogger("driftline")
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class _Lines(logging.Formatter):
    """A record as an object: time, level, logger and message, then its fields."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line, without secrets of the settings."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _USUAL},
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps({key: self._shown(value) for key, value in fields.items()}, ensure_ascii=False)

    def _shown(self, value: Any) -> Any:
        return self._redact(value) if isinstance(value, str) else value


def as_json(redact: Callable[[str], str], *, debug: bool) -> None:
    """From now on, standard error has lines of JSON; of other libraries too, from warnings up."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(redact))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    _LOG.setLevel(logging.DEBUG if debug else logging.INFO)


def is_json() -> bool:
    """True if the log of this process is JSON."""
    return any(isinstance(handler.formatter, _Lines) for handler in logging.getLogger().handlers)


def phase(text: str) -> None:
    """Log the phase that begins."""
    _LOG.info(text, extra={"event": "phase"})


def failed(message: str, todo: str | None, error: Exception, code: int, *, trace: bool) -> None:
    """Log the error that ends the command, with advice (``todo``), exit code and, with ``trace``, its
    trace.
    """
    fields = {"event": "error", "error": type(error).__name__, "hint": todo, "exit_code": code}
    _LOG.error(message, extra=fields, exc_info=error if trace else None)
