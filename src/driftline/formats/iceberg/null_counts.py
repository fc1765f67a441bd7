"""The nulls of a column, by the metadata of all branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from driftline.core.changes import NullCount
from driftline.core.history import entries as last_changes
from driftline.core.history.retention import DELETES_BRANCH
from driftline.core.schema.schema_json import from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.core.schema.types import Field
    from driftline.formats.iceberg.manifests import ManifestEntry


class FileNulls(NamedTuple):
    """The nulls of a column in files of one commit. ``unknown``: records of files that do not count them."""

    snapshot: int | None
    sequence: int | None
    nulls: int
    unknown: int


def null_count(
    metadata: Mapping[str, Any], column: Field, files_of: Callable[[int], Iterable[FileNulls]]
) -> NullCount:
    """The number of nulls in a column of a table, over main and every other branch.

    ``metadata``: in JSON form; ``files_of``: the data files of a snapshot by its id. Remembered deletes are
    no rows. All branches are read with the table's schema.
    """
    refs = metadata.get("refs", {}).items()
    heads = {ref["snapshot-id"] for name, ref in refs if ref["type"] == "branch" and name != DELETES_BRANCH}
    written_with = _Schemas(metadata)
    count = NullCount()
    for head in sorted(heads):
        for files in files_of(head):
            count += NullCount(files.nulls)
            if written_with.lacks(column.id, files):
                count += NullCount(files.unknown if column.initial_default is None else 0)
            else:
                count += NullCount(unknown=files.unknown)
    return count


def by_spark(spark: SparkSession, table: str, column: int, snapshot: int) -> list[FileNulls]:
    """The nulls in the data files of a snapshot of a ``table`` by its name in Spark's SQL."""
    rows = spark.sql(
        f"""select snapshot_id, file_sequence_number,
        coalesce(sum(data_file.null_value_counts[{column}]), 0) as nulls,
        sum(if(data_file.null_value_counts[{column}] is null, data_file.record_count, 0)) as unknown
        from {table}.entries version as of {snapshot}
        where status <> 2 and data_file.content = 0 group by all"""
    )
    return [FileNulls(*row) for row in rows.collect()]


def by_entries(entries: Iterable[ManifestEntry], column: int) -> Iterator[FileNulls]:
    """The nulls in the data files among the entries of manifests."""
    for entry in entries:
        if entry.is_data:
            nulls = entry.nulls.get(column)
            yield FileNulls(entry.snapshot, entry.sequence, nulls or 0, entry.records if nulls is None else 0)


class _Schemas:
    """The columns that files were written with, by their commits or by the changes that a table remembers."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._ids = {s["schema-id"]: _ids(s) for s in metadata["schemas"]}
        self._by_snapshot = {s["snapshot-id"]: s.get("schema-id") for s in metadata.get("snapshots", ())}
        changes = last_changes.last_changes(metadata.get("properties", {}))
        self._since = last_changes.written_with(changes, metadata["current-schema-id"])[::-1]

    def lacks(self, column: int, files: FileNulls) -> bool:
        """True if files of a commit certainly lack the column."""
        schema = self._by_snapshot.get(files.snapshot)
        if schema is None:
            sequence = files.sequence or 0
            schema = next((schema for since, schema in self._since if sequence >= since), None)
        return schema in self._ids and column not in self._ids[schema]


def _ids(schema: Any) -> Iterable[int]:
    return frozenset(f.id for _, f in from_json(schema).walk())
