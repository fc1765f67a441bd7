"""The work of Spark's tasks in this process, for a source and a table that are both small: no Java starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from driftline.errors import NeedsSpark
from driftline.verify.frames import plain_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD

    from driftline.verify.files import Read

T = TypeVar("T")


class LocalDataset(Generic[T]):
    """The members of Spark's RDD that verify uses, over what ``read`` yields; each use reads it again."""

    # The names are Spark's, as the code that calls them runs over both.
    def __init__(self, read: Callable[[], Iterable[T]]) -> None:
        self._read = read

    def getNumPartitions(self) -> int:  # noqa: N802
        """One, which is this process."""
        return 1

    def map(self, function: Callable[[T], Any]) -> LocalDataset[Any]:
        """Apply a function to each item."""
        return type(self)(lambda: map(function, self._read()))

    def flatMap(self, function: Callable[[T], Iterable[Any]]) -> LocalDataset[Any]:  # noqa: N802
        """Chain what a function makes of each item."""
        return type(self)(lambda: chain.from_iterable(map(function, self._read())))

    def filter(self, function: Callable[[T], bool]) -> LocalDataset[T]:
        """Select items."""
        return type(self)(lambda: filter(function, self._read()))

    def mapPartitions(self, function: Callable[[Iterator[T]], Iterable[Any]]) -> LocalDataset[Any]:  # noqa: N802
        """Apply a function to all items at once."""
        return type(self)(lambda: function(iter(self._read())))

    def union(self, other: LocalDataset[T]) -> LocalDataset[T]:
        """Add the items of another dataset."""
        return type(self)(lambda: chain(self._read(), other._read()))

    def values(self) -> LocalDataset[Any]:
        """Select the values of pairs."""
        return self.map(_value)

    def distinct(self) -> LocalDataset[T]:
        """Leave out equal items."""
        return type(self)(lambda: dict.fromkeys(self._read()))

    def repartitionAndSortWithinPartitions(  # noqa: N802
        self, _: int, __: Callable[[Any], Any], keyfunc: Callable[[Any], Any]
    ) -> LocalDataset[T]:
        """Sort pairs by their keys."""
        return type(self)(lambda: iter(sorted(self._read(), key=lambda pair: keyfunc(pair[0]))))  # type: ignore[index]

    def reduceByKey(self, function: Callable[[Any, Any], Any], _: int = 1) -> LocalDataset[Any]:  # noqa: N802
        """Merge the values of each key."""
        return type(self)(lambda: cast("Iterable[Any]", self._by_key(function).items()))

    def leftOuterJoin(self, other: LocalDataset[Any], _: int = 1) -> LocalDataset[Any]:  # noqa: N802
        """Join with another dataset, of whose keys each is there once."""

        def joined() -> Iterator[Any]:
            by_key = other.collectAsMap()
            return ((key, (value, by_key.get(key))) for key, value in cast("Iterable[Any]", self._read()))

        return type(self)(joined)

    def collect(self) -> list[T]:
        """Return all items."""
        return list(self._read())

    def collectAsMap(self) -> dict[Any, Any]:  # noqa: N802
        """Return pairs as a dict."""
        return dict(cast("Iterable[Any]", self.collect()))

    def sum(self) -> Any:
        """Add all items up."""
        return sum(cast("Iterable[Any]", self.collect()))

    def fold(self, start: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Merge all items, from a first one."""
        return reduce(function, self.collect(), start)

    def takeOrdered(self, number: int, key: Callable[[T], Any]) -> list[T]:  # noqa: N802
        """Return the first items by a sort key."""
        return nsmallest(number, self.collect(), key)

    def _by_key(self, function: Callable[[Any, Any], Any]) -> dict[Any, Any]:
        by_key: dict[Any, Any] = {}
        for key, value in cast("Iterable[Any]", self._read()):
            by_key[key] = function(by_key[key], value) if key in by_key else value
        return by_key


@dataclass(frozen=True, slots=True)
class LocalRows:
    """The rows of a table that this process reads; ``batches`` reads them again each time."""

    columns: Sequence[str]
    batches: Callable[[], Iterator[pa.RecordBatch]]
    dataset: type[LocalDataset[Any]] = LocalDataset

    def records(
        self, chosen: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] | None = None
    ) -> RDD[dict[str, Any]]:
        """The rows in plain Python. ``chosen``: filters their batches."""

        def read() -> Iterator[dict[str, Any]]:
            batches = self.batches() if chosen is None else chosen(self.batches())
            return chain.from_iterable(plain_rows(self.columns, batch) for batch in batches)

        return _as_rdd(self.dataset(read))

    def pieces(
        self, pieces: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: Collection[int]
    ) -> Iterator[pa.RecordBatch]:
        """Apply ``pieces`` to the rows."""
        return pieces(self.batches())


class LocalTasks:
    """This process, which does what tasks of Spark would."""

    cores = 1
    dataset: ClassVar[type[LocalDataset[Any]]] = LocalDataset

    def session(self) -> AbstractContextManager[None]:
        """Nothing to set up."""
        return nullcontext()

    def parallelize(self, items: Sequence[T]) -> RDD[T]:
        """The items, each of which would be a task's."""
        return _as_rdd(self.dataset(lambda: items))

    def typed(self, paths: Sequence[str], fmt: str) -> tuple[RDD[Read], int]:
        """Raise NeedsSpark: this format is not read here."""
        raise NeedsSpark(f"{fmt} is read by Spark")

    def rows(self, stored: LocalRows) -> LocalRows:
        """The rows of a table."""
        return stored

    def quarantined(self, quarantine: LocalRows, unmet: str) -> RDD[tuple[bytes, bool]]:
        """The raw bytes of each quarantined record, flagged if its reason begins with ``unmet``, a text."""

        def flagged(row: dict[str, Any]) -> tuple[bytes, bool]:
            return _raw(row), bool(unmet) and str(row.get("reason", "")).startswith(unmet)

        return quarantine.records().map(flagged)

    @contextmanager
    def kept(self, dataset: RDD[T]) -> Iterator[RDD[T]]:
        """The dataset, to be read several times."""
        kept = dataset.collect()
        yield _as_rdd(self.dataset(lambda: kept))


def _value(pair: Any) -> Any:
    return pair[1]


def _as_rdd(dataset: LocalDataset[T]) -> RDD[T]:
    return cast("RDD[T]", dataset)


def _raw(row: dict[str, Any]) -> bytes:
    raw = row.get("raw_bytes")
    return raw if raw is not None else str(row.get("raw", "")).encode()
