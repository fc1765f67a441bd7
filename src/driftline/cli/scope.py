"""What the options of all commands say, and what commands get by it: the settings, the lake."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from driftline import config
from driftline.errors import UsageError

if TYPE_CHECKING:
    from driftline.cli.terminal import Progress
    from driftline.lake import Lake


@dataclass
class Scope:
    """One run of the command line. ``lake`` and ``file`` are flags."""

    lake: Path | None = None
    file: Path | None = None
    progress: Progress | None = field(default=None, repr=False)

    @cached_property
    def config(self) -> config.Config:
        return config.load(self.lake, self.file)

    def open(self, progress: Progress, *, must_exist: bool = False) -> Lake:
        """The lake; with ``must_exist`` none is made where there is none."""
        here = self.config
        if must_exist and not here.lake.exists() and all(key.startswith("spark.") for key in here.catalog):
            raise UsageError(
                f"there is no lake in {here.lake}", hint="name it with --lake; `driftline ingest` makes one"
            )
        from driftline.lake import Lake

        progress.phase("starting Spark")
        lake = Lake.open(here.lake, properties=here.catalog, notify=progress.notice)
        progress.spark = lake.spark
        return lake

    def redact(self, text: str) -> str:
        """The text without secrets of the settings."""
        with suppress(UsageError):
            return self.config.redact(text)
        return text
