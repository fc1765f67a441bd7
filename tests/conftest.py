"""What all tests share: their folder is their marker."""

import pytest

from servers.fixtures import cluster, kafka, rest  # noqa: F401

MARKED = {"lake", "system"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in MARKED & set(item.path.parts):
            item.add_marker(name)
