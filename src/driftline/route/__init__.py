"""A plan to Spark: how the batch is read, and one SQL expression for each column of the table."""

from driftline.route.columns import select
from driftline.route.source import Source, json_source

__all__ = ["Source", "json_source", "select"]
