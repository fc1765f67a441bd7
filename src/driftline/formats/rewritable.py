"""Chooses the data files of a table that are worth writing anew, and says why the others stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from driftline.core.schema.naming import spelled_name
from driftline.errors import UsageError
from driftline.formats.base import Rewritable
from driftline.keys.anew import RewriteBudget, RewriteCandidate, choose

MEANWHILE = "another writer changed its files meanwhile"
_ENOUGH = "large enough, or too few small ones in their partition"


def unsorted(name: str) -> UsageError:
    """The error for a table without an order, when files are to be sorted by it."""
    return UsageError(
        f"{name} has no sort order",
        f"set one first: driftline alter {quote(f'ALTER TABLE {spelled_name(name)} WRITE ORDERED BY COLUMN')}",
    )


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The data files of a table, as a format knows them by their paths.

    Attributes:
        sizes: the bytes of each.
        unreadable: the reason for which the rows that are left of a file cannot be read; None if they can.
        candidate: a readable file, as the rules judge it.
        immovable: the reasons for which another file could not have all values of each of some readable ones.
    """

    sizes: Mapping[str, int]
    unreadable: Callable[[str], str | None]
    candidate: Callable[[str], RewriteCandidate]
    immovable: Callable[[Sequence[str]], Sequence[str | None]]

    def behind_batch(self) -> Rewritable:
        """Choose what is written anew behind a batch, in groups, each for one commit."""
        budget = RewriteBudget.behind_batch()
        small = (path for path, size in self.sizes.items() if size < budget.small)
        # Each look at deleted rows, and at a footer, takes a read: only files that would be taken get one.
        candidates = (self.candidate(path) for path in small if self.unreadable(path) is None)
        groups = choose(candidates, budget, lambda path: self.immovable([path]) == [None])
        return Rewritable(groups, files=len(self.sizes))

    def of_compaction(self, target: int, spec: int, sort_order: int | None = None) -> Rewritable:
        """Choose what a compaction writes anew, in groups, each for one commit.

        Args:
            target: bytes that a file should have.
            spec: the id of the present partition spec.
            sort_order: the id of the order that all files should be sorted by; None if any is right.
        """
        budget = RewriteBudget.of_compaction(target, spec, sort_order)
        reasons: Counter[str] = Counter()
        worth: list[RewriteCandidate] = []
        for path in self.sizes:
            reason = self.unreadable(path)
            if reason is None:
                candidate = self.candidate(path)
                if candidate.size < budget.small or budget.wants(candidate):
                    worth.append(candidate)
                    continue
            reasons[reason or _ENOUGH] += 1
        why = self.immovable([candidate.path for candidate in worth])
        reasons.update(filter(None, why))
        candidates = [candidate for candidate, reason in zip(worth, why, strict=True) if reason is None]
        groups = choose(candidates, budget)
        staying = len(candidates) - sum(map(len, groups))
        if staying:
            reasons[_ENOUGH] += staying
        return Rewritable(groups, reasons, len(self.sizes), sum(self.sizes.values()), target)
