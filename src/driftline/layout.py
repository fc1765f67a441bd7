"""Which files follow which partitioning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from driftline.core.definition import Definition
from driftline.core.history import Version, partition_text, sort_text
from driftline.formats.iceberg.alteration import Alteration
from driftline.formats.iceberg.versions import partition_specs

if TYPE_CHECKING:
    from driftline.formats.iceberg import IcebergTable


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition spec. ``by``: its fields as SQL has them; ``bytes``: their size. ``current``: new files join."""

    spec: int
    by: tuple[str, ...]
    files: int
    records: int
    bytes: int
    current: bool


@dataclass(frozen=True, slots=True)
class Layout:
    table: str
    groups: tuple[Group, ...]
    sort: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "partitions": [
                {
                    "spec": g.spec,
                    "by": list(g.by),
                    "files": g.files,
                    "records": g.records,
                    "bytes": g.bytes,
                    "current": g.current,
                }
                for g in self.groups
            ],
            "sort": list(self.sort),
        }


def layout(table: IcebergTable) -> Layout:
    """A table's data files by partition spec; specs without files are left out, but for the current one."""
    now = Alteration(table).before
    specs, current = partition_specs(table)
    rows = (
        table.spark.table(f"{table.full_name}.files")
        .where("content = 0")
        .groupBy("spec_id")
        .agg({"*": "count", "record_count": "sum", "file_size_in_bytes": "sum"})
        .selectExpr(
            "spec_id", "`count(1)` as files", "`sum(record_count)` as n", "`sum(file_size_in_bytes)` as size"
        )
    )
    counts = {row.spec_id: (row.files, row.n, row.size) for row in rows.collect()}
    groups = [
        Group(spec, _text(now, fields), *counts.get(spec, (0, 0, 0)), spec == current)
        for spec, fields in sorted(specs.items())
        if spec in counts or spec == current
    ]
    return Layout(table.name, tuple(groups), tuple(sort_text(Version(0, now))))


def _text(now: Definition, fields: Any) -> tuple[str, ...]:
    return tuple(partition_text(Version(0, replace(now, partition=fields))))
