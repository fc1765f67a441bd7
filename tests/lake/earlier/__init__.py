"""Lakes that an earlier version made, moved to where a test runs; `make` beside this made them."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import fastavro

ARCHIVE = Path(__file__).with_name("lakes.tar.xz")


def moved(folder: Path, catalog: str) -> None:
    """Unpacks the lakes into the folder, as if they had been made there, with an Iceberg catalog of this name."""
    with tarfile.open(ARCHIVE) as archive:
        # Python before 3.11.4 has no filters; later ones ask for one.
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    before, after = json.loads((folder / "where.json").read_text()), str(folder)
    lengths = {}
    for path in sorted(folder.rglob("*.avro"), key=lambda path: path.name.startswith("snap-")):
        lengths[str(path)] = _rewritten(path, before, after, lengths)
    for path in folder.rglob("*"):
        texts = path.suffix == ".json" or "spark" in path.parts
        if texts and path.is_file() and path.parent.name != "in":
            path.write_text(path.read_text().replace(before, after))
    with sqlite3.connect(folder / "iceberg/lake/catalog.db") as database:
        database.execute(
            "update iceberg_tables set catalog_name = ?, metadata_location = replace(metadata_location, ?, ?)",
            (catalog, before, after),
        )
        database.execute("update iceberg_namespace_properties set catalog_name = ?", (catalog,))
    with sqlite3.connect(folder / "ducklake/lake/catalog.sqlite") as database:
        database.execute(
            "update ducklake_metadata set value = replace(value, ?, ?) where key = 'data_path'",
            (before, after),
        )


def _rewritten(path: Path, before: str, after: str, lengths: dict[str, int]) -> int:
    """A manifest, or a list of them, with other paths; its length."""
    with path.open("rb") as file:
        reader: Any = fastavro.reader(file)
        records: Any = [_replaced(record, before, after) for record in reader]
    for record in records:
        if "manifest_length" in record:
            record["manifest_length"] = lengths[record["manifest_path"]]
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    schema = json.loads(reader.metadata["avro.schema"])  # with all that Iceberg has put there
    with path.open("wb") as out:
        fastavro.writer(out, schema, records, metadata=metadata)
    return path.stat().st_size


def _replaced(value: Any, before: str, after: str) -> Any:
    match value:
        case str():
            return value.replace(before, after)
        case dict():
            return {key: _replaced(inner, before, after) for key, inner in value.items()}
        case list():
            return [_replaced(inner, before, after) for inner in value]
        case _:
            return value
