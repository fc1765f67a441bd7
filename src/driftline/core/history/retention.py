"""Selects the snapshots that a table's metadata can drop. Pure, over Iceberg's JSON metadata.

The last snapshots of the main branch stay; older ones are thinned to one for each ten minutes of five days.
Of remembered deletes the last snapshot stays. The owner's settings of branches, tags and ages take
precedence. A snapshot goes only if it is driftline's, and it and the next one took no data file away: that
one has all its data files, so none becomes unreachable. In a table with a key or with compactions some
files may become so: delete files that later ones replaced, and driftline's data files whose rows were
rewritten. They are for `clean`.

Thinning leaves gaps: parents that are gone. Snapshots name only their parent, so a property keeps the ids
behind the first gap, in the order of the branch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, takewhile
from typing import Any

from driftline.core.history.entries import BATCH, COMPACTED, MOVED, OTHERS

KEEP = 100  # snapshots of the main branch, by default
# Each commit rewrites the metadata, and a table fed every minute would have 1,440 snapshots a day in it.
SLOT = 10 * 60_000  # milliseconds, of which one snapshot stays
SPAN = 5 * 24 * 60 * 60_000  # milliseconds: Iceberg's default age
FEW = 10  # nothing is done for less
# Without this list nobody could tell a thinned snapshot from one that was rolled back.
BEHIND = "driftline.thinned"
# The branch of the deletes that a table with a key remembers
DELETES_BRANCH = "driftline_deletes"
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
MAX_AGE = "history.expire.max-snapshot-age-ms"
MAX_REF_AGE = "history.expire.max-ref-age-ms"

_LISTED = 1_500  # ids of `BEHIND`: catalogs limit the length of a property

Snapshot = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RetentionLimit:
    """The older snapshots that a person wants to stay.

    ``since``: a time in milliseconds since 1970, from which on all stay; ``last``: the number of the last
    ones of a branch that stay at any age.
    """

    since: int
    last: int = 1


@dataclass(frozen=True, slots=True)
class Expirable:
    """The snapshots that can end.

    Attributes:
        ids: theirs.
        remaining: the number of those that stay.
        since: the time from which on all stay of the main branch, in milliseconds since 1970.
        held: by the name of a branch or tag with its kind, the number that would end without it.
    """

    ids: tuple[int, ...]
    remaining: int
    since: int | None = None
    held: Mapping[str, int] = field(default_factory=dict)


def expirable(metadata: Mapping[str, Any], now: int, limit: RetentionLimit | None = None) -> Expirable:
    """Select the snapshots that can end by the rules of Iceberg's own expiry.

    A branch's own settings may keep more than the ``limit`` does; a tag keeps its snapshot.

    Args:
        now: milliseconds.
        limit: without one, nothing stays but the present rows and the remembered deletes.
    """
    snapshots, refs = metadata.get("snapshots", ()), metadata.get("refs", {})
    staying = {metadata.get("current-snapshot-id"), refs.get(DELETES_BRANCH, {}).get("snapshot-id")}
    by_ref: dict[str, int] = {}
    if limit is not None:
        branch = refs.get("main", {"type": "branch", "snapshot-id": metadata.get("current-snapshot-id")})
        staying |= _younger(snapshots, limit.since) | _kept(metadata, branch, now, limit)
        of_refs = {
            f"{ref['type']} {name}": _kept(metadata, ref, now, limit) - staying
            for name, ref in refs.items()
            if name not in ("main", DELETES_BRANCH)
        }
        by_ref = {name: len(ids) for name, ids in of_refs.items() if ids}
        staying = staying.union(*of_refs.values())
    gone = tuple(s["snapshot-id"] for s in snapshots if s["snapshot-id"] not in staying)
    newest = takewhile(lambda s: s["snapshot-id"] in staying, main(metadata))
    since = min((s["timestamp-ms"] for s in newest), default=None)
    return Expirable(gone, len(snapshots) - len(gone), since, by_ref)


def _kept(metadata: Mapping[str, Any], ref: Mapping[str, Any], now: int, limit: RetentionLimit) -> set[int]:
    """The snapshots that a branch or tag keeps."""
    if ref["type"] == "tag":
        return {ref["snapshot-id"]}
    branch, age = _ancestors(metadata, ref["snapshot-id"]), ref.get("max-snapshot-age-ms")
    least = max(1, int(ref.get("min-snapshots-to-keep", limit.last)))
    since = limit.since if age is None else now - int(age)
    return {s["snapshot-id"] for s in branch[:least]} | _younger(branch, since)


def dispensable(metadata: Mapping[str, Any], now: int, schemas: int = KEEP) -> tuple[int, ...]:
    """The ids of snapshots that can go; none if they are too few to be worth a commit.

    Args:
        now: milliseconds.
        schemas: the number of schemas that may stay for thinned snapshots alone.
    """
    branch, least, age = main(metadata), *_of_main(metadata)
    deletes = _deletes(metadata, branch)
    needed = {s["snapshot-id"] for s in branch[:least]} | _held(metadata, [*branch, *deletes])
    needed |= _younger(branch, now - age) if age is not None else _thinned(branch, least, now, schemas)
    for name, ref in metadata.get("refs", {}).items():
        if name not in ("main", DELETES_BRANCH) and ref["type"] == "branch":
            needed |= _of_branch(metadata, ref, now)
    own = ((child, s) for child, s in pairwise(branch) if s.get("summary", {}).keys() & {BATCH, COMPACTED})
    # A snapshot goes only if the one after it took no file away either (see the module's docstring).
    spare = tuple(
        s["snapshot-id"]
        for child, s in chain(own, pairwise(deletes))
        if s["snapshot-id"] not in needed and keeps(s) and keeps(child)
    )
    return spare if len(spare) >= worth(least) else ()


def _deletes(metadata: Mapping[str, Any], branch: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots of remembered deletes, the newest first, of which only that one is ever read."""
    ref, on_main = metadata.get("refs", {}).get(DELETES_BRANCH, {}), {s["snapshot-id"] for s in branch}
    return [s for s in _ancestors(metadata, ref.get("snapshot-id")) if s["snapshot-id"] not in on_main]


def main(metadata: Mapping[str, Any]) -> list[Snapshot]:
    """The snapshots of the main branch, the newest first, over the gaps that driftline has made."""
    return _ancestors(metadata, metadata.get("current-snapshot-id"))


def rolled_back(metadata: Mapping[str, Any], ids: Collection[int]) -> set[int]:
    """The snapshots that exist but are no longer part of the main branch.

    The branch is known down to its root, or to a gap; snapshots behind a gap are never reported.
    """
    branch = main(metadata)
    on_branch = {s["snapshot-id"] for s in branch}
    beside = [
        s
        for s in metadata.get("snapshots", ())
        if s["snapshot-id"] in ids and s["snapshot-id"] not in on_branch
    ]
    to_root = not branch or branch[-1].get("parent-snapshot-id") is None
    return {s["snapshot-id"] for s in beside if to_root or _age(s) >= _age(branch[-1])}


def first_gap(branch: Sequence[Snapshot]) -> int:
    """The index of the snapshot whose parent is gone though older ones are left.

    It is that of the last one if there is no gap.
    """
    for place, (child, s) in enumerate(pairwise(branch)):
        if child.get("parent-snapshot-id") != s["snapshot-id"]:
            return place
    return max(0, len(branch) - 1)


def behind(branch: Sequence[Snapshot]) -> str:
    """The value of the property `BEHIND` for such a branch: the ids from the first gap on."""
    ids = [str(s["snapshot-id"]) for s in branch[first_gap(branch) :]]
    return " ".join(ids[:_LISTED]) if len(ids) > 1 else ""


def least_of_main(ref: int | None, properties: Mapping[str, str]) -> int:
    """The number of snapshots of the main branch that stay at any age.

    Args:
        ref: the branch's own setting.
    """
    return max(1, int(properties.get(MIN_SNAPSHOTS, KEEP)) if ref is None else ref)


def worth(least: int) -> int:
    """The number of snapshots that makes a commit worthwhile, if ``least`` stay."""
    return max(FEW, min(least, KEEP))


def keeps(snapshot: Snapshot) -> bool:
    """True if the snapshot only adds data or delete files, or rewrote driftline's own files."""
    summary = snapshot.get("summary", {})
    # Of rewritten files only our own may become unreachable: `clean` knows their names, and nobody would take
    # care of those that others wrote.
    marks = "added-delete-files" in summary and "deleted-data-files" not in summary
    return marks or (MOVED in summary and OTHERS not in summary) or summary.get("operation") == "append"


def is_counted(snapshot: Snapshot) -> bool:
    """True if the snapshot is a batch's, and counts among those that are thinned: a compaction is none."""
    return keeps(snapshot) and not is_compaction(snapshot)


def is_compaction(snapshot: Snapshot) -> bool:
    """True if the snapshot only wrote driftline's files anew."""
    return COMPACTED in snapshot.get("summary", {})


def _age(snapshot: Snapshot) -> tuple[int, int]:
    """A sort key for the snapshots of all branches; those of format v1 have no sequence number."""
    return snapshot.get("sequence-number", 0), snapshot["timestamp-ms"]


def _ancestors(metadata: Mapping[str, Any], latest: int | None) -> list[Snapshot]:
    remaining = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
    listed = metadata.get("properties", {}).get(BEHIND, "").split()
    over = dict(pairwise(int(id_) for id_ in listed if id_.isdecimal()))
    ancestors, snapshot_id = [], latest
    while snapshot_id is not None and snapshot_id in remaining:
        ancestors.append(remaining.pop(snapshot_id))
        parent = ancestors[-1].get("parent-snapshot-id")
        # Over a gap that thinning left, the property tells which snapshot is next.
        snapshot_id = parent if parent in remaining else over.get(snapshot_id)
    return ancestors


def _of_main(metadata: Mapping[str, Any]) -> tuple[int, int | None]:
    """The number of snapshots of the main branch that stay, and for how many milliseconds; None: not set."""
    ref, properties = metadata.get("refs", {}).get("main", {}), metadata.get("properties", {})
    age = ref.get("max-snapshot-age-ms", properties.get(MAX_AGE))
    return least_of_main(ref.get("min-snapshots-to-keep"), properties), None if age is None else int(age)


def _of_branch(metadata: Mapping[str, Any], ref: Mapping[str, Any], now: int) -> set[int]:
    """The snapshots that Iceberg's own expiry keeps for a branch.

    The branch is not driftline's to drop, however old.
    """
    properties = metadata.get("properties", {})
    branch = _ancestors(metadata, ref["snapshot-id"])
    longest = ref.get("max-ref-age-ms", properties.get(MAX_REF_AGE))
    if not branch or (longest is not None and now - branch[0]["timestamp-ms"] > int(longest)):
        return set()
    least = int(ref.get("min-snapshots-to-keep", properties.get(MIN_SNAPSHOTS, 1)))
    age = int(ref.get("max-snapshot-age-ms", properties.get(MAX_AGE, SPAN)))
    return {s["snapshot-id"] for s in branch[:least]} | _younger(branch, now - age)


def _younger(branch: Sequence[Snapshot], since: int) -> set[int]:
    return {s["snapshot-id"] for s in branch if s["timestamp-ms"] >= since}


def _thinned(branch: Sequence[Snapshot], least: int, now: int, schemas: int) -> set[int]:
    """The last snapshot of each ten minutes behind the first ``least``, until they need too many schemas."""
    slots = {s["timestamp-ms"] // SLOT for s in branch[:least]}
    needed = {s.get("schema-id") for s in branch[:least]}
    most, staying = len(needed) + schemas, set()
    for s in branch[least:]:
        slot, schema = s["timestamp-ms"] // SLOT, s.get("schema-id")
        # Each schema that stays is written with every commit: 129 MB of metadata in a table of 3,000 columns
        # that changes with each batch, so their number has a bound.
        if s["timestamp-ms"] < now - SPAN or slot in slots or (schema not in needed and len(needed) >= most):
            continue
        slots.add(slot)
        needed.add(schema)
        staying.add(s["snapshot-id"])
    return staying


def _held(metadata: Mapping[str, Any], branch: Sequence[Snapshot]) -> set[int]:
    """Return snapshots that branches and tags name, that begin other branches, or that have statistics."""
    ids = {s["snapshot-id"] for s in branch}
    named = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    beside = {
        s.get("parent-snapshot-id") for s in metadata.get("snapshots", ()) if s["snapshot-id"] not in ids
    }
    kinds = ("statistics", "partition-statistics")
    return named | beside | {s["snapshot-id"] for kind in kinds for s in metadata.get(kind, ())}
