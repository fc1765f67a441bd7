"""The note of an Iceberg table: which batches first and last brought each column, of rows written anew.

It is a file next to the ledger, which the snapshot that wrote the rows anew names in its summary, so that
undoing the batch brings back the note before. A property names the last one, for snapshots are thinned. Both
have the bare name: a table that is moved keeps its note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

from driftline.core.columns.statistics import SeenIn, SeenNote
from driftline.core.history.entries import BATCH, SEEN
from driftline.core.history.retention import main
from driftline.formats.iceberg.manifests import brought

_PREFIX, _SUFFIX = "_driftline-seen-", ".json"
WRITTEN_NOTE = re.compile(rf"/{_PREFIX}[0-9a-f]{{32}}\{_SUFFIX}$")


def new_name() -> str:
    """Return the name of a note that is not there yet."""
    return f"{_PREFIX}{uuid4().hex}{_SUFFIX}"


def notes_of(metadata: Mapping[str, Any]) -> list[str]:
    """Return the paths of the notes that metadata name, in JSON form."""
    properties = metadata.get("properties", {})
    named = [s.get("summary", {}).get(SEEN) for s in metadata.get("snapshots", ())]
    beside = properties.get("write.metadata.path", f"{metadata['location']}/metadata").rstrip("/")
    return [f"{beside}/{name}" for name in {*named, properties.get(SEEN)} if name is not None]


def note_of(metadata: Mapping[str, Any], read: Callable[[str], bytes | None]) -> SeenNote | None:
    """Return the note of the current snapshot.

    Args:
        metadata: the table's, in JSON form.
        read: reads a note by its name; None if it is gone.

    Returns:
        None if no row was written anew, or the note cannot be read.
    """
    named = (s.get("summary", {}).get(SEEN) for s in main(metadata))
    name = next(filter(None, named), None)
    if name is not None:
        return _read(read(name))
    last = metadata.get("properties", {}).get(SEEN)
    note = None if last is None else _read(read(last))
    # Its snapshot is thinned, or was taken back, and with it all that it notes.
    snapshot_ids = {s["snapshot-id"] for s in metadata.get("snapshots", ())}
    return None if note is None or note.snapshot in snapshot_ids else note


def _read(content: bytes | None) -> SeenNote | None:
    return None if content is None else SeenNote.of(content)


def with_files(
    note: SeenNote | None, metadata: Mapping[str, Any], files: Iterable[tuple[int, Iterable[int]]]
) -> SeenNote:
    """Add files that go to what was noted before.

    Args:
        note: the one before.
        metadata: the table's, in JSON form, that has the files.
        files: each with the sequence number of its commit, and its columns that have values.
    """
    note = note or SeenNote()
    commits = {s.get("sequence-number"): s for s in main(metadata)}
    for sequence, columns in files:
        snapshot = commits.get(sequence)
        summary = {} if snapshot is None else snapshot.get("summary", {})
        if SEEN not in summary:  # else these are noted
            # Files that others wrote anew, like those of a thinned snapshot, do not tell.
            is_known = snapshot is not None and brought(summary)
            batch = (
                SeenIn(int(snapshot["timestamp-ms"]), summary.get(BATCH)) if snapshot and is_known else None
            )
            note = note.having(batch, columns)
    return note
