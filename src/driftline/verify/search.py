"""Finds the records that a table without a key and its quarantine lack, and rows beyond them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

from driftline.verify.comparison import EXTRA, LEFT, LISTLESS, TEXTS, TOTALS, Comparison, lost_lists
from driftline.verify.files import Read
from driftline.verify.match import in_text, listed, nearest, not_quarantined, order, quarantined_again
from driftline.verify.routing import LostRecords
from driftline.verify.verdict import LISTED, Verdict
from driftline.verify.whole_columns import ColumnMatching

if TYPE_CHECKING:
    from pyspark import RDD


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """Finds the records of ``reads`` that the table and its quarantine lack; ``engine``: runs the tasks."""

    engine: Any
    comparison: Comparison
    reads: RDD[Read]
    quarantined: RDD[tuple[bytes, bool]] | None
    lost: LostRecords | None = None

    def by_columns(self, matching: ColumnMatching) -> Verdict | None:
        """The verdict if each record has its row; None if all records must be compared with all rows."""
        unmatched, exactly = matching.unmatched(), self.comparison.terms.exactly
        if unmatched is None or (
            exactly and (unmatched.surplus or (unmatched.has_rows and not unmatched.places))
        ):
            return None
        equal = unmatched.records - unmatched.missing
        if not unmatched.places and not (exactly and self.quarantined is not None):
            return Verdict(equal, equal, 0, 0, (), 0 if exactly else None)
        stored = matching.rows(unmatched)
        verdict = self.verdict(matching.records(unmatched), stored) if stored is not None else None
        if verdict is None or not verdict.ok:
            return None
        return replace(verdict, records=unmatched.records, found=verdict.found + equal)

    def verdict(self, reads: RDD[Read], stored: RDD[dict[str, Any]]) -> Verdict:
        """The verdict of comparing each of these records with these rows."""
        comparison = self.comparison
        tasks = max(1, reads.getNumPartitions(), stored.getNumPartitions())
        both = reads.mapPartitions(comparison.keyed_records).union(
            stored.mapPartitions(comparison.keyed_rows)
        )
        sorted_ = both.repartitionAndSortWithinPartitions(tasks, itemgetter(0), keyfunc=_identity)
        # Read once for each kind below; without a copy, each time would sort and compare all again.
        with self.engine.kept(sorted_.mapPartitions(comparison.compared)) as compared:
            by_kind: list[RDD[Any]] = [compared.filter(partial(_is, kind)).values() for kind in range(4)]
            records, unheld, extra, listless = map(sum, zip(*by_kind[TOTALS].collect(), strict=True))
            unmatched = by_kind[LEFT].reduceByKey(add, tasks)
            quarantined = None
            if self.quarantined is not None:
                quarantined = self.quarantined.mapPartitions(comparison.keyed_raw).reduceByKey(add, tasks)
            missing, sample = 0, []
            if unheld:
                lost = (
                    unmatched.values()
                    if quarantined is None
                    else unmatched.leftOuterJoin(quarantined, tasks).flatMap(not_quarantined)
                )
                missing = lost.map(lambda x: x.n).sum()
                sample = lost.takeOrdered(LISTED, order) if missing else []
                if missing and self.lost is not None:
                    self.lost.keep(lost)
            waiting = unheld - missing
            # What waited in the rest may have become a column later, and left its empty lists behind.
            if listless and comparison.meeting.record.rest is None:
                emptied = lost_lists(
                    by_kind[LISTLESS], self.reads, comparison.without, typed=comparison.terms.fmt not in TEXTS
                )
                missing += emptied.map(lambda x: x.n).sum()
                sample = sorted([*sample, *emptied.takeOrdered(LISTED, order)], key=order)[:LISTED]
            mismatches = listed(nearest(comparison.meeting, sample, reads, stored))
            verdict = Verdict(records, records - waiting - missing, waiting, missing, tuple(mismatches))
            if not comparison.terms.exactly:
                return verdict
            surplus = by_kind[EXTRA]
            if quarantined is not None:
                # What waits more often than it is left over is either doubled, or in the table as well.
                again = quarantined.leftOuterJoin(unmatched, tasks).flatMap(quarantined_again)
                extra += again.map(lambda x: x.n).sum()
                surplus = surplus.union(again)
            mismatches += [x.listed() for x in surplus.takeOrdered(LISTED, in_text)] if extra else []
            return replace(verdict, mismatches=tuple(mismatches[:LISTED]), extra=extra)


def _is(kind: int, x: tuple[int, Any]) -> bool:
    return x[0] == kind


def _identity(k: Any) -> Any:
    return k
