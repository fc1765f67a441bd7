"""Lists without a value that the table lacks, and the test if it had a column for them.

A batch whose field has no list column yet stores nothing of a list without a value (2.4); later ones store it
as it is. Nothing shows which batch a record came in, but a file is read from its start, in one batch or
several: if an earlier record of it has a list with values at the same path, the column was there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.verify.difference import RowDifference
from driftline.verify.files import Read, SourcePlace
from driftline.verify.match import MissingRecords
from driftline.verify.source_values import is_nothing

if TYPE_CHECKING:
    from pyspark import RDD

Path: TypeAlias = "tuple[str, ...]"  # keys, without steps into lists


@dataclass(frozen=True, slots=True)
class Listless:
    """Equal records at ``places``, of which ``held`` are accounted for; the others' rows lack lists."""

    places: tuple[SourcePlace, ...]
    held: int
    record: bytes
    differences: tuple[RowDifference, ...]

    @property
    def paths(self) -> set[Path]:
        """The paths of the lists that the rows lack."""
        return {d.keys for d in self.differences}

    def lost(self, first: Mapping[tuple[str, Path], SourcePlace] | None) -> Iterator[MissingRecords]:
        """The values for which the table had columns.

        ``first``: by file and path, the place of the first list with a value; None: a source's columns are
        the table's.
        """

        def had_column(place: SourcePlace) -> bool:
            """True if all lists at a place had columns by then; without knowledge of the files, too."""
            if first is None:
                return True
            starts = (first.get((place.file, path)) for path in self.paths)
            return any(start is not None and start <= place for start in starts)

        n = sum(map(had_column, self.places)) - self.held
        if n > 0:
            yield MissingRecords(min(self.places), n, self.record, "", self.differences)


def lost_lists(
    unproven: RDD[Listless], reads: RDD[Read], without: Callable[[Any], Any], *, typed: bool
) -> RDD[MissingRecords]:
    """The records whose lists had a column in the table. ``typed``: a source's columns are the table's."""
    if typed:
        return unproven.flatMap(lambda x: x.lost(None))
    paths: dict[str, set[Path]] = {}
    for file, path in unproven.flatMap(_wanted).distinct().collect():
        paths.setdefault(file, set()).add(path)
    first = reads.flatMap(lambda r: _lists(r, paths, without)).reduceByKey(min).collectAsMap()
    return unproven.flatMap(lambda x: x.lost(first))


def _wanted(x: Listless) -> Iterator[tuple[str, Path]]:
    for file in {place.file for place in x.places}:
        yield from ((file, path) for path in x.paths)


def _lists(
    read: Read, by_file: Mapping[str, set[Path]], without: Callable[[Any], Any]
) -> Iterator[tuple[tuple[str, Path], SourcePlace]]:
    """The paths at which the record has a list with a value."""
    paths = by_file.get(read.place.file)
    if paths and read.record is not None:
        record = without(read.record)
        yield from (((read.place.file, path), read.place) for path in paths if _has_list(record, path))


def _has_list(v: Any, path: Path) -> bool:
    """True if there is a list with a value at the path."""
    if isinstance(v, list):
        return not is_nothing(v) if not path else any(_has_list(x, path) for x in v)
    return bool(path) and isinstance(v, dict) and _has_list(v.get(path[0]), path[1:])
