"""Verifies tables against the topics that captures have filled them from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from driftline.capture.kafka import TopicReading
from driftline.capture.taken import Taken, TopicsAgain
from driftline.core.settings.properties import from_properties
from driftline.core.settings.row_key import RowKey
from driftline.errors import DataError, UsageError, no_table
from driftline.formats.base import CatalogTable, State
from driftline.lake.check import Contents, compared
from driftline.lake.check_sources import SourceFiles, messages_of
from driftline.quarantine.table import with_feed
from driftline.sources.spooled import place_of, told_where
from driftline.verify import PatternVerdict, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 3  # where a capture brings more meanwhile
_Verdict = TypeVar("_Verdict", Verdict, PatternVerdict)


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """A check of tables against the topics of a URL.

    Attributes:
        name: of the table, or the pattern.
        lake: the folder of the lake, if known.
        exactly: the tables may have nothing else.
    """

    spark: SparkSession
    name: str
    lake: str | None
    url: str
    reading: TopicReading
    exactly: bool

    def settled(
        self,
        tables: Callable[[], Sequence[Mapping[str, str]]],
        check: Callable[[TopicsAgain, Taken], _Verdict],
    ) -> _Verdict:
        """The verdict on what the tables have taken, whose properties ``tables`` returns.

        Where one is not as it should be, and the tables have got more meanwhile, they are checked again.
        Raises UsageError if they have taken nothing.
        """
        with TopicsAgain.opened(self.spark, self.url, self.reading) as again:
            taken = again.taken(tables())
            for attempt in range(_ATTEMPTS):
                if not taken.ends:
                    raise UsageError(
                        f"no capture has brought anything of {again.name} into {self.name}",
                        "capture the topic first; or verify a copy of its messages in files",
                    )
                verdict = check(again, taken)
                now = again.taken(tables()) if not verdict.ok and attempt < _ATTEMPTS - 1 else taken
                if now == taken:
                    break
                taken = now
            return verdict

    @contextmanager
    def messages(
        self, again: TopicsAgain, taken: Taken, row_key: RowKey | None, *, dealt: bool = False
    ) -> Iterator[tuple[SourceFiles, int]]:
        """The messages that were taken, as files, and the number of offsets that Kafka no longer has.

        ``row_key``, ``dealt``: as of `messages_of`. Raises as `_must_be_told`.
        """
        room = place_of(self.spark, self.lake)
        with (
            told_where(self.spark, room),
            messages_of(again.source(taken), room, row_key, dealt=dealt) as files,
        ):
            if gone := again.gone(taken):
                self._must_be_told(again.name, gone)
            yield files._replace(waiting=taken.waiting() if self.exactly else ""), gone

    def _must_be_told(self, topics: str, gone: int) -> None:
        """Raise UsageError for a question that has no answer without the offsets that are gone."""
        if self.exactly:
            raise UsageError(
                f"{topics}: {gone} offsets that {self.name} has taken are gone, so nobody knows which rows are too many",
                "leave out --exactly: what is there is looked for in the table",
            )


def checked_topics(
    table: CatalogTable, lake: str | None, url: str, reading: TopicReading, *, exactly: bool
) -> Verdict:
    """Check that a table has each message that captures have taken, as `Table.verify` promises."""
    check = TopicCheck(table.spark, table.name, lake, url, reading, exactly)

    def loaded() -> State:
        """The table as it is now."""
        return with_feed(table, table.load())

    def verdict(again: TopicsAgain, taken: Taken) -> Verdict:
        """Compare the messages with the table."""
        state = loaded()
        row_key = from_properties(state.properties).row_key
        with check.messages(again, taken, row_key) as (files, gone):
            contents = Contents.of(table, state)
            contents = part_of(contents, row_key) if gone else contents
            of_files = compared(contents, files, table.defaults(), exactly=exactly)
        return replace(of_files, gone=gone)

    if not loaded().exists:
        raise no_table(table.name)
    return check.settled(lambda: [loaded().properties], verdict)


def part_of(contents: Contents, row_key: RowKey | None) -> Contents:
    """A table of whose records only a part is there to be compared: others may count instead of these.

    Raises DataError if fields of rows may be from others.
    """
    if row_key is not None and row_key.patch and row_key.order_by:
        raise DataError(
            f"{contents.table.name}: fields of patched rows count by their own order, and messages that had some are gone",
            "verify a copy of all messages in files",
        )
    return contents._replace(before=contents.state)
