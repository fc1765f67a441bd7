"""Lists without a value that the table has not: whether it had a column for them.

A batch whose field has no list column yet leaves nothing of a list without a value (2.4), later ones store it as it is.
Nothing tells which batch a record came in, but a file is in one: where a record of it has a list with values at the
same path, the column was there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

from driftline.verify.files import Place, Read
from driftline.verify.left import Left
from driftline.verify.match import Difference
from driftline.verify.values import is_nothing

if TYPE_CHECKING:
    from pyspark import RDD

Path: TypeAlias = "tuple[str, ...]"  # keys, without steps into lists
# Records that are alike: where their lists are, how many are in which file, how many need no list there.
Alike: TypeAlias = "tuple[tuple[Path, ...], tuple[tuple[str, int], ...], int]"


def emptied(
    differences: Sequence[Difference], places: Sequence[Place], held: int, record: bytes
) -> tuple[Alike, Left]:
    """Equal records at ``places``, of which ``held`` are accounted for; the others' rows lack lists."""
    paths = tuple(sorted({d.keys for d in differences}))
    files = tuple(sorted(Counter(place.file for place in places).items()))
    return (paths, files, held), Left(min(places), 1, record, "", tuple(differences))


def lost_lists(
    found: RDD[tuple[Alike, Left]], reads: RDD[Read], without: Callable[[Any], Any], *, typed: bool
) -> list[Left]:
    """Those of the records whose lists the table had columns for. ``typed``: a source's columns are the table's."""
    alike = found.reduceByKey(add).collect()
    wanted: dict[str, set[Path]] = {}
    for (paths, files, _), _left in alike:
        for file, _n in files:
            wanted.setdefault(file, set()).update(paths)
    there: set[tuple[str, Path]] = set()
    if wanted and not typed:
        there = set(reads.flatMap(lambda r: _lists(r, wanted, without)).distinct().collect())
    out = []
    for (paths, files, held), left in alike:
        n = sum(n for file, n in files if typed or any((file, path) in there for path in paths)) - held
        if n > 0:
            out.append(replace(left, n=n * left.n))
    return out


def _lists(
    read: Read, wanted: Mapping[str, set[Path]], without: Callable[[Any], Any]
) -> Iterator[tuple[str, Path]]:
    paths = wanted.get(read.place.file)
    if paths and read.record is not None:
        record = without(read.record)
        yield from ((read.place.file, path) for path in paths if _has_list(record, path))


def _has_list(v: Any, path: Path) -> bool:
    """Whether there is a list with a value at the path."""
    if isinstance(v, list):
        return not is_nothing(v) if not path else any(_has_list(x, path) for x in v)
    return bool(path) and isinstance(v, dict) and _has_list(v.get(path[0]), path[1:])
