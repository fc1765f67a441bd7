"""What people read of changes by hand, of a table's history and of what was taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from driftline.core.changes import in_words
from driftline.report.text import Hanging, clean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from driftline.alter import Altered


def altered(of: Altered) -> Iterator[RenderableType]:
    """What `alter` did."""
    if not of.changes:
        yield Text.assemble((clean(of.table), "bold"), "  nothing to change")
        return
    schema = "" if of.schema is None else f"  schema {of.schema}"
    yield Text.assemble((clean(of.table), "bold"), schema)
    for change in of.changes:
        yield Hanging(Text(clean(in_words(change))), 2, 6)
    for note in of.notes:
        yield Hanging(Text(clean(note), "dim"), 6, 6)
