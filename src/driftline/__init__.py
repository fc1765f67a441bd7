"""driftline: schema-evolving ingestion into lakehouse tables, on PySpark; nothing is lost."""

from driftline.lake import Lake, Table

__version__ = "0.1.0"

__all__ = ["Lake", "Table", "__version__"]
