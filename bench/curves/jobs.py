"""The jobs of a curve at each size: those of this product and of plain Spark in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from contestants.driftline import OnIceberg
from contestants.spark import PlainSpark

from . import data

OURS, PLAIN = "driftline", "plain Spark"
LONG = 15.0  # seconds of a size, beyond which noise is small beside them


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement: which ``line`` of the curve, at which ``size``."""

    line: str
    size: int
    run: Callable[[], object]


class Jobs:
    """Makes the jobs, in one session for both."""

    def __init__(self, folder: Path, sides: Collection[str] = (OURS, PLAIN)) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.sides = {OURS: OnIceberg(), PLAIN: PlainSpark()}
        self.sides = {name: side for name, side in self.sides.items() if name in sides}
        for side in self.sides.values():
            side.open(folder / "lake")
        self._tables = 0
        for job in self._both("", 0, data.files(self.data, 3, 20_000)):
            job.run()

    def of(self, curve: str, sizes: list[int], rounds: int) -> Iterator[Job]:
        """All jobs of a curve, size by size, as often as there are rounds; what takes long, once."""
        make = {
            "rows": lambda n: self._one(data.rows(self.data, n), n),
            "files": lambda n: self._one(data.files(self.data, n, 50_000), n),
            "drifted": lambda n: self._one(data.drifting(self.data, n, 2_000), n),
            "columns": self._columns,
            "widening": self._widening,
            "depth": self._depth,
            "memory": self._memory,
            "tables": self._many,
        }[curve]
        for size in sizes:
            again, started = make(size), time.monotonic()
            for i in range(rounds):
                if i and time.monotonic() - started > LONG:
                    break
                yield from again(turned=i % 2 == 1)

    def _one(self, files: list[Path], size: int) -> Callable[..., Iterator[Job]]:
        return lambda turned: self._both("", size, files, turned)

    def _columns(self, count: int) -> Callable[..., Iterator[Job]]:
        first, second = data.columns(self.data, count, 20)

        def jobs(turned: bool) -> Iterator[Job]:
            tables = {name: self._table() for name in self.sides}
            yield from self._both(", first batch", count, first, turned, tables)
            yield from self._both(", nothing new", count, second, turned, tables)

        return jobs

    def _widening(self, count: int) -> Callable[..., Iterator[Job]]:
        whole, parts = data.widening(self.data, count, 20)

        def jobs(turned: bool) -> Iterator[Job]:
            yield from self._both(", one batch", count, whole, turned)
            tables = {name: self._table() for name in self.sides}
            for number, files in enumerate(parts, 1):
                yield from self._both(f", batch {number} of {len(parts)}", count, files, turned, tables)

        return jobs

    def _depth(self, depth: int) -> Callable[..., Iterator[Job]]:
        kinds = {", structs": data.structs, ", lists": data.lists}
        made = {name: write(self.data, depth, 2_000) for name, write in kinds.items()}

        def jobs(turned: bool) -> Iterator[Job]:
            for name, files in made.items():
                yield from self._both(name, depth, files, turned)

        return jobs

    def _memory(self, records: int) -> Callable[..., Iterator[Job]]:
        made = {
            ", many files": data.rows(self.data, records),
            ", one file": data.one_file(self.data, records),
        }

        def jobs(turned: bool) -> Iterator[Job]:
            for name, files in made.items():
                yield from self._both(name, records, files, turned)

        return jobs

    def _many(self, count: int) -> Callable[..., Iterator[Job]]:
        """A batch over so many tables, twice, and one into one of them. Only this product deals records over tables."""
        dealt, one = data.kinds(self.data, count, 5_000)

        def jobs(turned: bool) -> Iterator[Job]:
            del turned
            ours, namespace = self.sides[OURS].lake, self._table()
            tables = ours.fan_out(f"{namespace}.{{kind}}", max_tables=count)
            table = ours.table(f"{namespace}.k0")
            for what in (", new tables", ", again"):
                yield Job(OURS + what, count, lambda: tables.ingest(dealt, again=True))
            yield Job(f"{OURS}, one of them", count, lambda: table.ingest(one, again=True))

        return jobs

    def _both(
        self,
        what: str,
        size: int,
        files: list[Path],
        turned: bool = False,
        tables: dict[str, str] | None = None,
    ) -> Iterator[Job]:
        for name in [*self.sides][:: -1 if turned else 1]:
            side, table = self.sides[name], tables[name] if tables else self._table()
            yield Job(name + what, size, lambda side=side, table=table: side.take(files, table))

    def _table(self) -> str:
        self._tables += 1
        return f"t{self._tables}"
