"""The nulls of a column, by the metadata of all branches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from driftline.core.changelog import last_changes
from driftline.core.changelog.retention import DELETES_BRANCH
from driftline.core.changes import NullCount
from driftline.core.schema.schema_json import from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.core.schema.types import Field


def nulls(spark: SparkSession, full_name: str, java: Any, column: Field) -> NullCount:
    """The number of nulls in a column of a loaded Java table, ``full_name`` in Spark's SQL, over main and
    every other branch.

    Remembered deletes are no rows. All branches are read with the table's schema.
    """
    jvm: Any = spark._jvm
    metadata = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(java.operations().current()))
    refs = metadata.get("refs", {}).items()
    heads = {ref["snapshot-id"] for name, ref in refs if ref["type"] == "branch" and name != DELETES_BRANCH}
    written_with = _Schemas(metadata)
    count = NullCount()
    for head in sorted(heads):
        rows = spark.sql(
            f"""select snapshot_id, file_sequence_number, sum(data_file.record_count) as records,
            sum(data_file.null_value_counts[{column.id}]) as nulls,
            sum(if(data_file.null_value_counts[{column.id}] is null, data_file.record_count, 0)) as unknown
            from {full_name}.entries version as of {head}
            where status <> 2 and data_file.content = 0 group by all"""
        ).collect()
        for row in rows:
            count += NullCount(row.nulls or 0)
            if written_with.lacks(column.id, row):
                count += NullCount(row.unknown if column.initial_default is None else 0)
            else:
                count += NullCount(unknown=row.unknown)
    return count


class _Schemas:
    """Which columns files were written with: by their commits, or by the changes that the table remembers."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._ids = {s["schema-id"]: _ids(s) for s in metadata["schemas"]}
        self._by_snapshot = {s["snapshot-id"]: s.get("schema-id") for s in metadata.get("snapshots", ())}
        changes = last_changes.read(metadata.get("properties", {}))
        self._since = last_changes.written_with(changes, metadata["current-schema-id"])[::-1]

    def lacks(self, column: int, row: Any) -> bool:
        """True if files of a commit certainly lack the column."""
        schema = self._by_snapshot.get(row.snapshot_id)
        if schema is None:
            sequence = row.file_sequence_number or 0
            schema = next((schema for since, schema in self._since if sequence >= since), None)
        return schema in self._ids and column not in self._ids[schema]


def _ids(schema: Any) -> Iterable[int]:
    return frozenset(f.id for _, f in from_json(schema).walk())
