"""The home of a lake: its id and its original path, as its own catalog records them.

Table metadata contains absolute paths. If a lake is copied or moved, files and catalog, it still names the
files at its home, which belong to another lake or no longer exist.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict
from uuid import uuid4

from driftline.core.support import as_json
from driftline.errors import UsageError


@dataclass(frozen=True, slots=True)
class Home:
    """The path at which a lake's catalog was made, and the lake's id."""

    path: str
    id: str

    @classmethod
    def new(cls, path: str) -> Home:
        """That of a lake whose catalog begins at this path."""
        return cls(path, uuid4().hex)


@dataclass(frozen=True, slots=True)
class DisplacedLake:
    """A lake that lies at another place than it was made at.

    ``lake``: its folder now; ``home``: where it was made; ``is_copy``: that lake still stands, False: it was
    moved.
    """

    lake: str
    home: str
    is_copy: bool

    def refusal(self) -> UsageError:
        """The error for what this lake cannot do as it is."""
        command = f"driftline --lake {shlex.quote(self.lake)} relocate --yes"
        if self.is_copy:
            return UsageError(
                f"{self.lake} is a copy of the lake at {self.home}, whose files its tables name",
                f"{command} makes it a lake of its own; --dry-run shows what it would do",
            )
        return UsageError(
            f"{self.lake} is a lake that was made at {self.home}, where its tables look for their files",
            f"{command} repairs its paths; --dry-run shows what it would do",
        )


@dataclass(frozen=True, slots=True)
class Relocation:
    """The move of a lake's paths to its place, or of a copy of one table's to another lake.

    ``lake``: its folder, or what the other lake's catalog calls itself; ``home``: where it was made, or the
    lake that the table was copied from; ``files``: the number of metadata files that are written anew;
    ``copied``: the number of files copied as they are, ``bytes`` in all; ``is_done`` False: it was a dry run.
    """

    lake: str
    home: str
    is_copy: bool
    tables: tuple[str, ...]
    files: int
    is_done: bool
    copied: int = 0
    bytes: int = 0

    def to_dict(self) -> RelocationJson:
        """The form that JSON output has."""
        return as_json(RelocationJson, self, copy=self.is_copy, done=self.is_done)


class RelocationJson(TypedDict):
    """A `Relocation`, in JSON."""

    lake: str
    home: str
    copy: bool
    tables: list[str]
    files: int
    copied: int
    bytes: int
    done: bool


def displaced(
    lake: str, catalog: str, home: Home, id_at: Callable[[str], str | None]
) -> DisplacedLake | None:
    """The ``lake`` whose catalog is at this path, if it was made at another.

    ``id_at``: the id of the lake whose catalog is at a path.
    """
    if catalog == home.path or is_same(catalog, home.path):
        return None
    # If a lake of this id still stands at the old path, this one is a copy; otherwise it was moved.
    return DisplacedLake(lake, str(Path(home.path).parent), id_at(home.path) == home.id)


def is_same(path: str, second: str) -> bool:
    """True if two paths, as a mount may make them, lead to the very same file."""
    try:
        return Path(path).samefile(second)
    except OSError:
        return False
