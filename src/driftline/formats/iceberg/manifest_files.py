"""Manifests of a table on this machine, read without Java."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driftline.formats.iceberg.manifests import ManifestEntry

_MANIFESTS = 8 * 2**20  # bytes, of more than which Spark makes shorter work
_DELETED = 2


def entries_of(metadata: Mapping[str, Any], snapshot: int) -> Iterator[ManifestEntry]:
    """The files of a snapshot, delete files too. Raises ValueError if there are too many manifests, and
    whatever a bad one raises.
    """
    listed = _avro(next(s["manifest-list"] for s in metadata["snapshots"] if s["snapshot-id"] == snapshot))
    if sum(manifest["manifest_length"] for manifest in listed) > _MANIFESTS:
        raise ValueError("too large")
    for manifest in listed:
        for entry in _avro(manifest["manifest_path"]):
            if entry["status"] != _DELETED:
                # What was not known when the manifest was written is the same for all of it.
                added_in, sequence = entry["snapshot_id"], entry.get("file_sequence_number")
                yield _manifest_entry(
                    manifest["added_snapshot_id"] if added_in is None else added_in,
                    manifest.get("sequence_number", 0) if sequence is None else sequence,
                    entry["data_file"],
                )


def _manifest_entry(snapshot: int, sequence: int, file: Mapping[str, Any]) -> ManifestEntry:
    # Avro has no maps with numbers as keys.
    values, nulls, lows, highs = (
        {pair["key"]: pair["value"] for pair in file.get(name) or ()}
        for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    )
    is_data = file.get("content", 0) == 0
    return ManifestEntry(snapshot, sequence, file["record_count"], values, nulls, lows, highs, is_data)


def _avro(location: str) -> list[Any]:
    from fastavro import reader

    with local_path(location).open("rb") as file:
        return list(reader(file))


def local_path(location: str) -> Path:
    """A location as a file of this machine. ValueError: it is elsewhere."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise ValueError(location)
    # Hadoop writes paths as they are, without escapes.
    return Path(location.removeprefix("file:")) if parts.scheme else Path(location)
