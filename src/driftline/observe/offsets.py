"""The setting that reads timestamps with offsets, pointed out where new fields of text have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from driftline.core.changes import AddColumn, Change
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import STRING, Path, dotted, peel
from driftline.core.settings.fields import toml_line
from driftline.core.values import OFFSET_PATTERN, TIMESTAMP_PATTERN

_OTHER_OFFSET = re.compile(f"(?!{TIMESTAMP_PATTERN}$){OFFSET_PATTERN}").fullmatch


def offset_notes(shape: RecordShape, changes: Sequence[Change], dates: str) -> list[str]:
    """A note for a person on new columns of text that begin with a timestamp with an offset; at most one.

    ``changes``: those that a batch of this ``shape`` makes; ``dates``: the table's setting. Columns of typed
    sources have no such note: the setting is of texts.
    """
    if dates != "on":
        return []
    new = {c.reason.field for c in changes if isinstance(c, AddColumn) and peel(c.type)[1] == STRING}
    paths = [dotted(path) for path in _with_offsets(shape) if path in new] if new else []
    return [instant_line(f"as in {', '.join(paths)}")] if paths else []


def instant_line(where: str) -> str:
    """The setting to paste. ``where``: a phrase with the columns that have such timestamps."""
    why = f"reads timestamps with offsets, {where}; for a column that is there: resolve --as timestamptz"
    return toml_line("dates", (), "instant", why)


def _with_offsets(shape: RecordShape, above: Path = ()) -> Iterator[Path]:
    """The fields whose first text is a timestamp with another offset than UTC."""
    for key, field in shape.fields.items():
        for facet, profile in field.facets.items():
            path = (*above, key)
            if profile.record is not None:
                yield from _with_offsets(profile.record, (*path, *["element"] * facet.dim))
            elif facet.base == STRING and not profile.typed and _OTHER_OFFSET(profile.sample):
                yield path
