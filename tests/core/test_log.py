"""The log of metadata files: what stands before and after each change, with few of the files read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.formats.iceberg.versions import changes_in_log


def versions(schemas: list[int]) -> list[dict[str, Any]]:
    """One version a commit, by the schema that it has; each has the log of those before."""
    return [
        {
            "place": i,
            "current-schema-id": schema,
            "default-spec-id": 0,
            "default-sort-order-id": 0,
            "schemas": [{"schema-id": id_} for id_ in sorted({*schemas[: i + 1]})],
            "partition-specs": [{}],
            "sort-orders": [{}],
            "metadata-log": [{"metadata-file": str(place)} for place in range(i)],
        }
        for i, schema in enumerate(schemas)
    ]


class Files:
    def __init__(self, found: list[dict[str, Any]], gone: set[int]) -> None:
        self.found, self.gone, self.read = found, gone, 0

    def __call__(self, location: str) -> dict[str, Any] | None:
        self.read += 1
        return None if int(location) in self.gone else self.found[int(location)]


@given(st.lists(st.booleans(), min_size=1, max_size=120), st.integers(0, 130))
def test_all_changes_are_found(changed: list[bool], gone: int) -> None:
    schemas = [sum(changed[: i + 1]) for i in range(len(changed))]
    found = versions(schemas)
    read = Files(found, set(range(min(gone, len(found) - 1))))
    there = [of["place"] for of in changes_in_log(found[-1], read)]
    first = min(gone, len(found) - 1)
    wanted = {first, len(found) - 1}
    wanted |= {place for a in range(first, len(found) - 1) if changed[a + 1] for place in (a, a + 1)}
    assert wanted <= set(there)
    assert there == sorted(set(there))
    assert read.read <= len(found)


def test_few_files_are_read() -> None:
    found = versions([0] * 60 + [1] * 41)
    read = Files(found, set())
    assert len(changes_in_log(found[-1], read)) < 12
    assert read.read < 12
    steady = Files(versions([3] * 101), set())
    assert len(changes_in_log(steady.found[-1], steady)) == 2
    assert steady.read == 1


@pytest.mark.parametrize("gone", [{0}, {3}, {50}, {0, 50}, {49, 50, 51}, set(range(100))])
def test_what_is_older_than_a_file_that_is_gone_is_not_tied_to_the_rest(gone: set[int]) -> None:
    found = versions(list(range(101)))
    there = [of["place"] for of in changes_in_log(found[-1], Files(found, gone))]
    assert there == list(range(max(gone) + 1, 101))


def test_what_others_changed_and_changed_back() -> None:
    found = versions([0] * 40 + [1] + [0] * 40)
    there = [of["current-schema-id"] for of in changes_in_log(found[-1], Files(found, set()))]
    assert [(a, b) for a, b in pairwise(there) if a != b] == [(0, 1), (1, 0)]
