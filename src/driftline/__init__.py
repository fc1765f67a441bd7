"""driftline: schema-evolving ingestion into lakehouse tables, on PySpark; nothing is lost.

The names in ``__all__`` are the public interface. Within one minor version they keep their arguments and
meaning.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftline.errors import DataError, DriftlineError, SetupError, UsageError

if TYPE_CHECKING:
    from driftline.capture.query import CaptureQuery
    from driftline.capture.seeking import Seek
    from driftline.capture.targets import Batch, PatternBatch
    from driftline.core.changes import AddColumn, Reason, RelaxColumn, RewriteColumn, WidenColumn
    from driftline.formats.home import Relocation
    from driftline.ingest.fan_out import FanOutAuditError, FanOutError, FanOutResult
    from driftline.ingest.result import AuditError, Result
    from driftline.lake import Lake, PatternTables, Table, TableSchema
    from driftline.operations.alter import Altered
    from driftline.operations.history import History
    from driftline.operations.layout import Layout
    from driftline.operations.listing import Quarantine
    from driftline.operations.promote import Promoted
    from driftline.operations.replan import Replan
    from driftline.operations.replay import Discarded, Replay
    from driftline.operations.resolve import Resolved
    from driftline.operations.split import TableSplit
    from driftline.operations.undo import Undone
    from driftline.operations.view import View
    from driftline.runtime.jars import PACKAGES
    from driftline.runtime.session import prepare_environment
    from driftline.stats import Stats
    from driftline.stats.lake import LakeStats
    from driftline.ui.notebook import NotebookPage
    from driftline.verify import PatternVerdict, Verdict

__version__ = "0.1.0"

__all__ = [
    "PACKAGES",
    "AddColumn",
    "Altered",
    "AuditError",
    "Batch",
    "CaptureQuery",
    "DataError",
    "Discarded",
    "DriftlineError",
    "FanOutAuditError",
    "FanOutError",
    "FanOutResult",
    "History",
    "Lake",
    "LakeStats",
    "Layout",
    "NotebookPage",
    "PatternBatch",
    "PatternTables",
    "PatternVerdict",
    "Promoted",
    "Quarantine",
    "Reason",
    "RelaxColumn",
    "Relocation",
    "Replan",
    "Replay",
    "Resolved",
    "Result",
    "RewriteColumn",
    "Seek",
    "SetupError",
    "Stats",
    "Table",
    "TableSchema",
    "TableSplit",
    "Undone",
    "UsageError",
    "Verdict",
    "View",
    "WidenColumn",
    "__version__",
    "prepare_environment",
]

# Spark is imported only when a lake is used: each of these comes with its module, when it is asked for.
_MODULES = {
    "capture.query": ("CaptureQuery",),
    "capture.seeking": ("Seek",),
    "capture.targets": ("Batch", "PatternBatch"),
    "formats.home": ("Relocation",),
    "core.changes": ("AddColumn", "Reason", "RelaxColumn", "RewriteColumn", "WidenColumn"),
    "ingest.result": ("AuditError", "Result"),
    "lake": ("Lake", "PatternTables", "Table", "TableSchema"),
    "operations.alter": ("Altered",),
    "operations.history": ("History",),
    "operations.erase": ("Erased",),
    "operations.expire": ("Expired",),
    "operations.layout": ("Layout",),
    "operations.promote": ("Promoted",),
    "operations.listing": ("Quarantine",),
    "operations.replan": ("Replan",),
    "operations.replay": ("Discarded", "Replay"),
    "operations.resolve": ("Resolved",),
    "operations.split": ("TableSplit",),
    "operations.undo": ("Undone",),
    "operations.view": ("View",),
    "ingest.fan_out": ("FanOutAuditError", "FanOutError", "FanOutResult"),
    "runtime.jars": ("PACKAGES",),
    "runtime.session": ("prepare_environment",),
    "stats": ("Stats",),
    "stats.lake": ("LakeStats",),
    "ui.notebook": ("NotebookPage",),
    "verify": ("PatternVerdict", "Verdict"),
}
_MODULE_OF = {name: f"driftline.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'driftline' has no attribute {name!r}")
