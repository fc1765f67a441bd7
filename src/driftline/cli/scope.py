"""Options shared by all commands, and the settings and the lake that follow from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from driftline import config
from driftline.cli.process import Interrupt
from driftline.core.schema.naming import QUARANTINE, caseless, nearest
from driftline.core.schema.types import name_text
from driftline.core.settings.surfaces import Words, in_flags, in_toml
from driftline.errors import NeedsSpark, UsageError
from driftline.files.endings import is_packed
from driftline.formats.lakes import BY_DUCKDB, BY_PYTHON, DroppedFolder, OfflineTable, Orphan
from driftline.formats.open import EmbeddedLake, dropped, located, relocate, relocate_table
from driftline.runtime.stores import configure

if TYPE_CHECKING:
    import pyarrow as pa

    from driftline.cli.terminal import Progress
    from driftline.formats.base import AlterableTable
    from driftline.formats.home import Relocation
    from driftline.lake import Lake
    from driftline.operations.listing import Quarantine
    from driftline.stats import Stats
    from driftline.verify import Verdict


LITTLE = 48 * 2**20  # bytes of text; at 400 MB, half the time goes the other way
_LISTED = 8  # tables that are named where one is not there
_SIMILAR = 0.8  # names of tables, whose namespaces are often the same
T = TypeVar("T")


@dataclass
class Invocation:
    """One run of the command line. ``lake`` and ``file`` are flags; ``env`` is the environment."""

    lake: str | None = None
    file: Path | None = None
    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    interrupt: Interrupt = field(default_factory=Interrupt)
    advice: Words = in_flags  # spells the hints of errors

    @cached_property
    def config(self) -> config.Config:
        """The settings, of the file and the flags."""
        loaded = config.load(self.lake, self.file, self.env)
        for kind, options in loaded.stores.items():
            configure(kind, options)
        if loaded.uri is None or loaded.ducklake is not None:
            return loaded
        from driftline.runtime.session import in_store

        return replace(loaded, catalog=in_store(loaded.uri, loaded.catalog))

    def options(self) -> list[str]:
        """The options by which another command finds the same lake."""
        given = {"--lake": self.lake, "--config": None if self.file is None else str(self.file)}
        return [word for option, place in given.items() if place is not None for word in (option, place)]

    @property
    def folder(self) -> Path | None:
        """The lake's folder; None if only its catalog knows it."""
        from driftline.runtime.session import is_embedded

        configured = self.config
        if not isinstance(configured.place, Path):
            return None
        within = configured.ducklake is not None or is_embedded(configured.catalog)
        return configured.lake if within else None

    def open(
        self,
        progress: Progress,
        *,
        must_exist: bool = False,
        table: str | None = None,
        brief: bool = False,
        writes: bool = False,
    ) -> Lake:
        """Open the lake. With ``must_exist``, or a ``table`` that must exist, no lake is created.

        ``brief``: Spark has little to do; ``writes``: the command writes, which a copied lake refuses.
        """
        from driftline.runtime.java import QUICK  # late: help and completion do without

        configured = self.config
        if (embedded := self._embedded) is not None:
            embedded.check_open(writes=writes)
        if must_exist or table is not None:
            self._must_exist()
        if table is not None:
            self.must_have(table)
        if brief:  # then Java's better compiler takes longer than it saves
            # Never for captures or the Python API: they run long enough for the better compiler to pay.
            os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK)
        progress.phase("starting Spark")
        with suppress(ImportError):  # which opening explains
            import pyspark.sql  # noqa: F401  before there are two threads, as its modules import each other
        lake = _elsewhere(lambda: _opened(configured, progress))
        spark: Any = lake.spark
        progress.spark = self.interrupt.spark = spark
        return lake

    def served(self) -> Lake:
        """The lake, which starts Spark once something needs it. Raises UsageError if there is none."""
        from driftline.lake import Lake

        configured = self.config
        self._must_exist()
        if (embedded := self._embedded) is not None:
            embedded.check_open(writes=False)
        return Lake.open(
            configured.place,
            properties=configured.catalog,
            ducklake=configured.ducklake,
            durability="full" if configured.durable else "off",
        )

    def _must_exist(self) -> None:
        """Raise UsageError if the lake is one of a folder that is not there."""
        from driftline.runtime.session import is_embedded

        configured = self.config
        if configured.ducklake is not None and isinstance(configured.place, str):
            exists = located("ducklake", configured.ducklake, configured.place).exists()
        else:
            exists = not is_embedded(configured.catalog) or configured.lake.exists()
        if not exists:
            raise UsageError(
                f"there is no lake in {configured.place}",
                hint="pass its folder with --lake; `driftline ingest` creates one",
            )

    def must_have(self, table: str) -> None:
        """Raise UsageError if the lake has no such table, as far as that is known without Spark."""
        # Before Spark starts a typo costs one second, not fifteen.
        names = self._tables()
        ours = {caseless(table), caseless(f"{table}{QUARANTINE}")}
        if names is None or any(caseless(name) in ours for name in names):
            return
        shown = sorted(name for name in names if not name.endswith(QUARANTINE))
        listed = ", ".join(shown[:_LISTED]) + (", …" if len(shown) > _LISTED else "")
        hint = nearest(table, shown, _SIMILAR) or f"it has {listed or 'no table yet'}; --lake names another"
        raise UsageError(f"there is no table {table} in {self._shown}", hint)

    @property
    def _shown(self) -> str:
        place = self.config.place
        return place if isinstance(place, str) else str(place.absolute())

    def _tables(self) -> list[str] | None:
        """The names of the lake's tables and views; None if it takes Spark to know them."""
        configured = self.config
        if configured.ducklake is not None:
            return located("ducklake", configured.ducklake, configured.place).tables()
        embedded = self._embedded
        return None if embedded is None else embedded.names(views=True)

    @property
    def _embedded(self) -> EmbeddedLake | None:
        """The lake, to be read without Spark; None if only Spark knows its catalog."""
        configured = self.config
        folder = configured.place if configured.ducklake is not None else self.folder
        durable = configured.durable
        return None if folder is None else EmbeddedLake(folder, configured.ducklake, durable=durable)

    def relocate(self, progress: Progress, table: str | None, to: str | None, *, dry_run: bool) -> Relocation:
        """Relocate the lake, or copy a ``table`` to another, as `Lake.relocate` does. ``to``: as `--lake` and
        `--config` name one. Raises UsageError if there is no lake, too.
        """
        self._must_exist()
        if table is None or to is None:
            progress.phase("relocating")
            return relocate(self._embedded, dry_run=dry_run)
        self.must_have(table)
        other = replace(self, lake=to)
        # The lake that it names, whatever the environment does
        if Path(to).suffix == ".toml":
            env = {name: value for name, value in self.env.items() if name != "DRIFTLINE_LAKE"}
            other = replace(self, lake=None, file=Path(to), env=env)
        lake = other.open(progress, writes=True)
        progress.phase(f"copying {table}")
        return relocate_table(self._embedded, table, lake.format, dry_run=dry_run)

    def dropped(self, *, delete: bool) -> list[DroppedFolder]:
        """The dropped tables whose files are still there, as `Lake.dropped` has them. Raises as it does."""
        return dropped(self._embedded, delete=delete)

    def tables(self) -> list[str] | None:
        """The names of the lake's tables; None if there is no lake yet, or it takes Spark to know them."""
        embedded = self._embedded
        return None if embedded is None or not embedded.exists() else embedded.names()

    def offline(self, table: str) -> OfflineTable | None:
        """The table read from its metadata, without Spark; None if only Spark knows its catalog."""
        embedded = self._embedded
        return None if embedded is None else embedded.table(table)

    def alterable(self, table: str, *, renames: bool) -> AbstractContextManager[AlterableTable]:
        """The table, to be altered without Spark. ``renames``: its name changes, which its view follows.

        Raises UsageError if there is no lake, NeedsSpark if only Spark knows its catalog, or does the work.
        """
        return self._writable_alone().alterable(table, renames=renames)

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Delete files that no snapshot has, as `Lake.clean` does, without Spark. Raises as `alterable`."""
        from driftline.sources.spooled import leftovers  # late: the other commands do without

        embedded, seconds = self._writable_alone(), older_than * 3600
        orphans = embedded.clean(seconds, dry_run=dry_run)
        return [*orphans, *leftovers(str(Path(embedded.folder).resolve()), seconds, dry_run=dry_run)]

    def _writable_alone(self) -> EmbeddedLake:
        """The lake, to be written without Spark. Raises UsageError if there is none, NeedsSpark if only Spark
        knows its catalog.
        """
        self._must_exist()
        embedded, has_settings = self._embedded, bool(self.config.catalog)
        if embedded is None or (embedded.ducklake is None and has_settings):
            raise NeedsSpark("the catalog has settings of its own")
        return embedded

    @contextmanager
    def in_duckdb(self, sql: str) -> Iterator[pa.RecordBatchReader]:
        """The rows of a SELECT statement that DuckDB runs on the lake, without Spark.

        Raises UsageError if there is no lake, or only Spark knows its catalog.
        """
        from driftline.operations.duckdb_query import query  # late: the other commands do without

        embedded = self._embedded
        if embedded is None:
            raise UsageError(
                "DuckDB reads the lake of a folder and a DuckLake, and this one has a catalog of its own",
                "leave out --engine duckdb: Spark reads it",
            )
        self._must_exist()
        embedded.check_open(writes=False)
        with query(embedded.in_duckdb(sql), sql) as batches:
            yield batches

    def waiting(self, table: str) -> Quarantine | None:
        """The records in the table's quarantine, without Java; None if that takes Spark.

        Raises UsageError if there is no such table.
        """
        from driftline.operations.listing import by_duckdb  # late: the other commands do without

        if (embedded := self._embedded) is None:
            return None
        embedded.check_open(writes=False)
        self._must_exist()
        self.must_have(table)
        return by_duckdb(embedded, table)

    def naming_split(self, measured: Stats, offline: OfflineTable) -> Stats:
        """The statistics of a table that were read without Spark, with the field that would split it best."""
        from driftline.stats.split import rows_by_duckdb, split_of  # late: the other commands do without

        assert self._embedded is not None
        rows = rows_by_duckdb(self._embedded, offline.name)
        return replace(measured, split=split_of(measured, offline.load, rows))

    def verify(self, table: str, files: Sequence[str], kind: str, *, exactly: bool) -> Verdict:
        """Check a small table against small files without Java. Raises NeedsSpark where that takes Spark."""
        from driftline.verify.embedded import check_small  # late: the other commands do without

        self._must_exist()
        if (embedded := self._embedded) is None:
            raise NeedsSpark("the lake has a catalog of its own")
        with self.naming_similar(table):
            return check_small(embedded, table, files, kind, exactly=exactly)

    @contextmanager
    def naming_similar(self, table: str) -> Iterator[None]:
        """Have the error for a table that is not there name tables with similar names."""
        try:
            yield
        except UsageError:
            self.must_have(table)
            raise

    def settings(self, table: str) -> Mapping[str, Any]:
        """The settings of a table in `driftline.toml`; hints of errors are then its lines, too."""
        self.advice = self.words(table)
        return self.config.settings_of(table)

    def words(self, table: str) -> Words:
        """Return the function that spells hints for a table: as flags, or as lines of a `driftline.toml` that
        has settings of the table.
        """
        return in_toml if self.config.settings_of(table) else in_flags

    @property
    def writes(self) -> str:
        """The engine that runs SQL that writes, for errors about such in a query."""
        return BY_PYTHON if self.config.ducklake is None else BY_DUCKDB

    def redact(self, text: str) -> str:
        """The text without secrets of the settings."""
        with suppress(UsageError):
            return self.config.redact(text)
        return text


def _opened(configured: config.Config, progress: Progress) -> Lake:
    # The lake finds this session; what it needs besides is imported while Java starts.
    if configured.ducklake is None:
        from driftline.runtime.session import open_session, with_durability

        open_session(
            configured.lake,
            properties=with_durability(configured.catalog, durable=configured.durable),
            notify=progress.notice,
        )
    from driftline.lake import Lake

    lake = Lake.open(
        configured.place,
        properties=configured.catalog,
        ducklake=configured.ducklake,
        durability="full" if configured.durable else "off",
        notify=progress.notice,
    )
    progress.spark = lake.spark  # which starts with this
    return lake


def _elsewhere(work: Callable[[], T]) -> T:
    """Does the work in another thread: started in the main one, pyspark would put its own handler of Ctrl-C
    in place of ours, and the wait for it could not be broken off.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    with suppress(ImportError):
        import driftline.lake  # noqa: F401  what comes next, while Java starts
    return future.result()


def little(kind: str, files: Sequence[str]) -> bool:
    """True if Java's better compiler would take longer than it saves, because the files are small.

    A pipe or a URL may bring much.
    """
    from driftline.sources.files import stamps
    from driftline.sources.spooled import is_pipe, is_url

    if any(is_pipe(file) or is_url(file) for file in files):
        return False
    plain = kind in ("json", "csv") and not any(map(is_packed, files))
    stamped = stamps(files)
    return sum(stamped[file].size for file in files if file in stamped) < LITTLE / (1 if plain else 8)


def title_of(files: Sequence[str]) -> str:
    """The title of a batch of files."""
    from driftline.sources.spooled import is_pipe, is_url, shown

    if len(files) != 1:
        return f"{len(files)} files"
    (file,) = files
    if file == "-":
        return "standard input"
    return file if is_pipe(file) else name_text(Path(shown(file) if is_url(file) else file).name)
