"""The interface of a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from driftline.core.planning.plan import Settings
from driftline.core.schema.types import Field, Schema
from driftline.core.settings.row_key import RowKey
from driftline.errors import DataError
from driftline.runtime.spark_conf import FILES
from driftline.runtime.stores import is_stored
from driftline.sources.files import Stamp, stamps
from driftline.sources.scan import BatchScan, ScanRequest


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """The place of one batch of records, and how they are read; nothing of it changes.

    ``files``: theirs, where they are; ``names``: the names of files that were copied or unpacked before, as a
    person used them, and ``originals``: the versions of those. ``columns``: those that the source fills
    itself. ``in_order``: tasks make the rows in the order of the records. ``tells_absent``: a record that
    lacks a field is told from one that has null there. ``as_text``: records are texts of JSON, which may be
    messages in an envelope. ``conf``: settings of the Spark session that reading
    it needs.
    """

    files: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    originals: Mapping[str, Stamp] | None = None
    columns: Sequence[Field] = ()
    in_order: bool = True
    tells_absent: bool = True
    as_text: bool = False
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    @abstractmethod
    def open(self, schema: Schema, settings: Settings, before: BatchScan | None = None) -> BatchScan:
        """Open the batch, as it is now, for a table.

        ``before``: a scan of the batch for an earlier state of the table, which may know the files already.
        """

    def reads_messages(self, row_key: RowKey) -> bool:
        """True if the records may be messages in an envelope, of a table whose rows are known so."""
        return self.as_text

    def at_fault(self) -> str | None:
        """The file, and its column, that cannot be read; None if all can, or tasks say it themselves."""
        return None

    def request(self, schema: Schema, settings: Settings) -> ScanRequest:
        """The request for a scan of the files as they are now.

        Raises DataError for columns where the table reads messages in an envelope.
        """
        row_key = settings.row_key
        if row_key is not None and row_key.envelope and not self.reads_messages(row_key):
            merge = ", and merge = 'patch', which needs absent fields told from null ones" * row_key.patch
            raise DataError(
                f"the table has envelope = {row_key.envelope!r}{merge}, and these records come as columns",
                "an envelope is read of JSON, Avro and dicts, and, for merge = replace, of Parquet, Protobuf, Arrow "
                "tables and DataFrames",
            )
        versions = stamps(file for file in self.files if not is_stored(file))
        return ScanRequest(schema, settings, versions, self.names)
