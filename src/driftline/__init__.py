"""driftline: schema-evolving ingestion into lakehouse tables, on PySpark; nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftline.lake import Lake, Table

__version__ = "0.1.0"

__all__ = ["Lake", "Table", "__version__"]


def __getattr__(name: str) -> Any:
    # Spark is imported only when a lake is used.
    if name in ("Lake", "Table"):
        from driftline import lake

        return getattr(lake, name)
    raise AttributeError(f"module 'driftline' has no attribute {name!r}")
