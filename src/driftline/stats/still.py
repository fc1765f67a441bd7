"""The statistics of a table of the embedded lake, without Java, where its metadata files tell all of them."""

from __future__ import annotations

from driftline.formats.iceberg.still import StillTable
from driftline.history import history
from driftline.quarantine import SUFFIX
from driftline.settings import from_properties
from driftline.stats import resolved
from driftline.stats.build import Known, build
from driftline.stats.manifests import rows
from driftline.stats.metadata import forgotten, plain, snapshots, summed
from driftline.stats.model import Stats
from driftline.stats.samples import by_bounds
from driftline.stats.shares import drifted


def stats(table: StillTable) -> Stats | None:
    """What `driftline.stats.stats` tells. None where Spark is needed for it: values are to be looked up as samples, or
    records wait in quarantine."""
    state = table.load()
    entries = table.entries()
    if entries is None or not table.is_empty(table.name + SUFFIX):
        return None
    schema, mark, file = state.schema, from_properties(state.properties).mark, table.metadata
    summed_up = rows(entries, tuple(snapshots(file)), plain(schema), forgotten(file))
    told = summed(file, schema, summed_up)
    fields = list(drifted(schema, mark))
    samples, missing = by_bounds(fields, told)
    if missing:
        return None
    known = Known(told, history(table), samples=samples, resolved=resolved(state.properties))
    return build(table.name, schema, mark, fields, known)
