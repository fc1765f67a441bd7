"""Deals the rows of Excel's sheets by table into files, from which each table reads its share."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driftline.core.schema.naming import in_case_of
from driftline.core.settings.csv import FOLD
from driftline.core.settings.table import TableSettings
from driftline.ingest.deal import RecordValues, Share, SpoolSlice, share_of
from driftline.ingest.deal_rows import Tables
from driftline.ingest.pattern import Pattern, of_file
from driftline.readers.excel import read_sheet
from driftline.readers.json.splits import Split


@dataclass(slots=True)
class SheetDeal:
    """Sheets that were dealt.

    Attributes:
        folder: for files with the rows of a sheet that one table has.
        shares: of the tables.
        splits: the sheets, by the numbers of slices.
    """

    folder: Path
    shares: dict[str, Share] = field(default_factory=dict)
    splits: list[Split] = field(default_factory=list)

    def deal(
        self,
        sheets: Sequence[Split],
        pattern: Pattern,
        names: Mapping[str, str],
        tables: Tables,
        read_by: TableSettings,
    ) -> None:
        """Deal the rows of sheets.

        Args:
            sheets: in order.
            pattern: of the tables.
            names: other names of files.
            tables: the tables of values, which come in the order in which they are first seen.
            read_by: the settings by which the sheets are read.
        """
        reader, dialect = RecordValues(pattern, names), read_by.csv
        paths = [pattern.path(number) for number in range(len(pattern.braces))]
        keys = [path[0] for path in paths if path is not None]
        for split in sheets:
            sheet = read_sheet(split, dialect)
            if sheet is None:
                continue
            columns = in_case_of(sheet.names, keys) if dialect.names == FOLD else sheet.names
            file = of_file(names.get(split.path, split.path))
            beside = [file.get(brace) for brace in pattern.braces]
            texts = sheet.texts(dialect, columns, split)
            values = {place: reader.of_text(text, beside) for place, text in enumerate(texts) if text}
            named = tables(list(dict.fromkeys(values.values())))
            places: dict[str, list[int]] = {}
            for place, of_row in values.items():
                share_of(self.shares, named[of_row], of_row)
                places.setdefault(named[of_row], []).append(place)
            for table, of_table in places.items():
                size = sum(len(texts[place]) for place in of_table)
                path = self.folder / f"sheet-{len(self.splits)}"
                path.write_bytes(pickle.dumps(sheet.picked(of_table)))
                self.shares[table].slices.append(SpoolSlice(len(self.splits), split.path, size))
                self.splits.append(
                    Split(split.path, 0, size, document=True, sheet=split.sheet, dealt=str(path))
                )
