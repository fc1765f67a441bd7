"""The data files of a table, grouped by their partitioning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from driftline.core.history.entries import Version, partition_text, sort_text
from driftline.core.schema.definition import Definition, PartitionField
from driftline.core.support import as_json
from driftline.runtime.shown import Shown

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable


class FileGroupJson(TypedDict):
    """Files of one partition spec. ``current``: new files join."""

    spec: int
    by: list[str]
    files: int
    records: int
    bytes: int
    current: bool


class LayoutJson(TypedDict):
    """The data files of a table, by their partitioning."""

    table: str
    partitions: list[FileGroupJson]
    sort: list[str]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition spec. ``by``: its fields as SQL has them; ``bytes``:
    their size. ``current``: new files join.
    """

    spec: int
    by: tuple[str, ...]
    files: int
    records: int
    bytes: int
    current: bool


@dataclass(frozen=True, slots=True, repr=False)
class Layout(Shown):
    """A table's layout: ``groups`` of files, each by its partitioning, and the ``sort`` order of new rows."""

    table: str
    groups: tuple[FileGroup, ...]
    sort: tuple[str, ...]

    def to_dict(self) -> LayoutJson:
        """The form that `--json` prints."""
        return as_json(LayoutJson, self, partitions=[as_json(FileGroupJson, group) for group in self.groups])


def layout(table: CatalogTable) -> Layout:
    """A table's data files by partition spec; specs without files are left out, but for the current one."""
    now = table.definition()
    groups = tuple(
        FileGroup(
            group.spec, _text(now, group.fields), group.files, group.records, group.bytes, group.current
        )
        for group in table.laid()
    )
    return Layout(table.name, groups, tuple(sort_text(Version(0, now))))


def _text(now: Definition, fields: tuple[PartitionField, ...]) -> tuple[str, ...]:
    return tuple(partition_text(Version(0, replace(now, partition=fields))))
