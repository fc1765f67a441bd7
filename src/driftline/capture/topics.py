"""The topics of a capture, known by the ids that Kafka gives them: one that is deleted and made again under
its name is another, whose offsets begin anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.kafka_admin import Admin, Topic
from driftline.capture.lost import LostOffsets, Offsets, lost
from driftline.errors import DataError

_LOG = logging.getLogger("driftline")


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics ``names``. ``skip_lost``: the capture goes on where Kafka has records no more."""

    names: tuple[str, ...]
    admin: Admin
    checkpoint: Checkpoint
    skip_lost: bool

    def begin(self) -> None:
        """Makes sure that offsets of the checkpoint are of these topics: with ``skip_lost``, those of a topic
        that was made again become its beginning. Raises as `check`.
        """
        if self.skip_lost and (again := self._made_again()):
            self._begin_anew(again)
        self.check()

    def check(self) -> None:
        """Raises DataError where a topic was made again."""
        if again := ", ".join(self._made_again()):
            raise DataError(
                f"topic {again} was deleted and made again: the offsets of its last batch say nothing of it",
                hint="with skip_lost (--skip-lost) the capture takes all of the new topic, from its beginning; "
                "what it had not taken of the one before is gone",
            )

    def lost(self, epoch: int) -> tuple[LostOffsets, ...]:
        """What of a micro-batch was gone when it was read, and is gone without."""
        return lost(self.admin, Offsets(self.checkpoint), epoch) if self.skip_lost else ()

    def _made_again(self) -> dict[str, Topic]:
        known = self.checkpoint.topics
        now = {name: topic for name, topic in self.admin.topics(self.names).items() if topic.id}
        if new := {name: topic.id for name, topic in now.items() if topic.id and name not in known}:
            self.checkpoint.remember_topics(new)
        return {name: topic for name, topic in now.items() if known.get(name, topic.id) != topic.id}

    def _begin_anew(self, again: Mapping[str, Topic]) -> None:
        for name in self.checkpoint.offsets_in_use():
            offsets = self.checkpoint.spark_offsets(name)
            beginnings = {topic: dict.fromkeys(map(str, again[topic].partitions), 0) for topic in again}
            self.checkpoint.replace_offsets(name, {**offsets, **beginnings})
        self.checkpoint.keep()  # before the ids: they say that this is done
        self.checkpoint.remember_topics({name: topic.id for name, topic in again.items() if topic.id})
        _LOG.warning("topic %s was deleted and made again: it is taken from its beginning", ", ".join(again))
