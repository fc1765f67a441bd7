"""Disks as a power cut leaves them, made from the record that shim.c keeps of one command.

A write, a new name and a deleted one are in memory, and the disk has of them what it likes, until the file or the folder
is synced. So a cut at one operation leaves many disks; five of them are made, from the one that has nothing that was not
synced to one in which a coin decides about each file and name.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_ENTRY = struct.Struct("4Iq")


class Left(StrEnum):
    """The part of what was not synced that the disk has all the same."""

    NOTHING = "nothing"
    NAMES = "all names, of files without their contents"
    DELETIONS = "deletions alone"
    DELETIONS_AND_CONTENTS = "deletions, and contents, of no new names"
    CHANCE = "what a coin decides"


@dataclass(slots=True)
class File:
    """``synced``: the contents that the disk has for sure."""

    content: bytearray
    synced: bytes = b""


@dataclass(slots=True)
class Folder:
    """``synced``: the names that the disk has for sure."""

    names: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)


Node = File | Folder
Contents = dict[str, bytes | None]  # by path below the lake; None: a folder


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the record: its kind, the paths below the lake, and the data from ``at`` on."""

    kind: str
    path: str
    other: str
    at: int
    data: bytes


def operations(record: Path, lake: Path) -> Iterator[Operation]:
    """The operations of a record, in their order."""
    content, place = record.read_bytes(), 0
    while place < len(content):
        kind, *sizes, at = _ENTRY.unpack_from(content, place)
        place += _ENTRY.size
        parts = []
        for size in sizes:
            parts.append(content[place : place + size])
            place += size
        path, other = (part.decode().removeprefix(str(lake)).strip("/") for part in parts[:2])
        yield Operation(chr(kind), path, other, at, parts[2])


class Disk:
    """A lake's folder in memory, with what of it is on the disk; it begins as ``base``, all of which is."""

    def __init__(self, base: Path) -> None:
        self._root = _loaded(base)

    def apply(self, operation: Operation) -> None:
        """Do what the command did."""
        path, kind = operation.path, operation.kind
        if kind == "S":
            self._sync(path, operation.data)
        elif kind in "WL":
            content = self._file(path).content
            content.extend(bytes(max(0, operation.at - len(content))))
            content[operation.at : operation.at + len(operation.data) if kind == "W" else None] = (
                operation.data
            )
        elif kind == "U":
            folder, name = self._named(path)
            del folder.names[name]
        else:
            folder, name = self._named(path)
            folder.names[name] = self._new(kind, operation.other)

    def _new(self, kind: str, other: str) -> Node:
        """The node that has the name from now on."""
        if kind in "CY":
            return File(bytearray())
        if kind == "M":
            return Folder()
        folder, name = self._named(other)
        return folder.names.pop(name) if kind == "N" else folder.names[name]

    def _sync(self, path: str, content: bytes) -> None:
        node = self._node(path)
        if isinstance(node, Folder):
            node.synced = dict(node.names)
        else:
            assert bytes(node.content) == content, f"the record lacks writes to {path}"
            node.synced = content

    def _named(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        node = self._node(folder)
        assert isinstance(node, Folder)
        return node, name

    def _node(self, path: str) -> Node:
        node: Node = self._root
        for name in filter(None, path.split("/")):
            assert isinstance(node, Folder)
            node = node.names[name]
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        assert isinstance(node, File)
        return node

    def now(self) -> Contents:
        """All that is there, as processes see it."""
        return dict(_contents(self._root, lambda folder: folder.names, lambda file: bytes(file.content)))

    def after_cut(self, left: Left, seed: int) -> Contents:
        """The contents of the disk after a power cut now."""
        coin = random.Random(seed)

        def names(folder: Folder) -> Mapping[str, Node]:
            """The names of a folder that survive."""
            if left == Left.NOTHING:
                return folder.synced
            if left == Left.NAMES:
                return folder.names
            if left == Left.CHANCE:
                both = dict.fromkeys([*folder.synced, *folder.names])
                states = {name: coin.choice((folder.synced, folder.names)).get(name) for name in both}
                return {name: node for name, node in states.items() if node is not None}
            return {name: node for name, node in folder.synced.items() if name in folder.names}

        def content(file: File) -> bytes:
            """The contents of a file that survive."""
            whole = left == Left.DELETIONS_AND_CONTENTS or (left == Left.CHANCE and coin.random() < 0.5)
            return bytes(file.content) if whole else file.synced

        return dict(_contents(self._root, names, content))


def _loaded(folder: Path) -> Folder:
    names: dict[str, Node] = {}
    for path in folder.iterdir():
        if path.is_dir():
            names[path.name] = _loaded(path)
        else:
            names[path.name] = File(bytearray(path.read_bytes()), path.read_bytes())
    return Folder(names, dict(names))


def _contents(
    folder: Folder,
    names: Callable[[Folder], Mapping[str, Node]],
    content: Callable[[File], bytes],
    place: str = "",
) -> Iterator[tuple[str, bytes | None]]:
    for name, node in sorted(names(folder).items()):
        if isinstance(node, Folder):
            yield f"{place}{name}", None
            yield from _contents(node, names, content, f"{place}{name}/")
        else:
            yield f"{place}{name}", content(node)


def written(folder: Path) -> Contents:
    """All that is in a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in paths}


def write(contents: Contents, folder: Path) -> None:
    """Make the folder, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path, content in contents.items():
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(content)


@dataclass(frozen=True, slots=True)
class Cut:
    """A disk after a cut behind ``at`` operations of ``count``, the last of which is ``operation``."""

    at: int
    count: int
    left: Left
    operation: Operation | None
    contents: Contents


def cuts(record: Sequence[Operation], base: Path, at: Sequence[int]) -> Iterator[Cut]:
    """The disks after cuts behind these numbers of operations; each once, if several are alike."""
    disk, known = Disk(base), set[int]()
    for number in range(len(record) + 1):
        if number:
            disk.apply(record[number - 1])
        if number in at:
            for left in Left:
                contents = disk.after_cut(left, number)
                if (print_ := hash(tuple(contents.items()))) not in known:
                    known.add(print_)
                    last = record[number - 1] if number else None
                    yield Cut(number, len(record), left, last, contents)
