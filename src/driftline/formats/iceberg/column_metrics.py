"""Metrics of wide tables: by default Iceberg writes those of 100 columns, driftline those of all."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.core.schema.types import Schema

PREFIX = "write.metadata.metrics."
LIMIT = PREFIX + "max-inferred-column-defaults"
_BY_DEFAULT = 100  # columns that have metrics unless a property says otherwise
_ALL = "1000000"


def metrics_of_all(schema: Schema, properties: Mapping[str, str]) -> dict[str, str]:
    """The property with which files have metrics of all columns of ``schema``; none where Iceberg's default
    does, or where ``properties`` of the table say anything of metrics.
    """
    owner_decides = any(key.startswith(PREFIX) for key in properties)
    wide = sum(1 for _ in schema.walk()) > _BY_DEFAULT  # with what is nested, as Iceberg counts
    return {LIMIT: _ALL} if wide and not owner_decides else {}
