"""Iceberg's catalog of a Spark session, as a reader of its tables asks for it."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.errors import DataError, SetupError
from driftline.formats.iceberg import reader
from driftline.formats.iceberg.commit import begin
from driftline.formats.iceberg.reader import IcebergReader

CATALOG = object()


class Catalogs:
    """Spark's catalogs, of which the first ``failures`` requests fail."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def catalog(self, name: str) -> Any:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError(f"duplicate column name in {name}")
        return SimpleNamespace(icebergCatalog=lambda: CATALOG)


def iceberg_reader(failures: int) -> IcebergReader:
    state = SimpleNamespace(catalogManager=lambda: Catalogs(failures))
    opened = object.__new__(IcebergReader)
    opened.catalog, opened._catalog_of = "lake", opened._iceberg_catalog
    opened.spark = SimpleNamespace(_jsparkSession=SimpleNamespace(sessionState=lambda: state))  # type: ignore[assignment]
    return opened


@pytest.fixture(autouse=True)
def inactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "activate", lambda spark: None)


def test_a_catalog_that_another_one_makes_at_the_same_moment_is_asked_again() -> None:
    assert iceberg_reader(1).java_catalog is CATALOG


def test_a_catalog_that_does_not_answer_is_named() -> None:
    with pytest.raises(SetupError, match=r"catalog 'lake'.*duplicate"):
        _ = iceberg_reader(99).java_catalog


def test_change_ahead_of_the_clock_in_a_rest_catalog_is_refused_until_a_named_time() -> None:
    """A server dates and checks by itself; its client keeps no metadata to be dated anew."""
    last = datetime(2126, 1, 2, 3, 4, 30, tzinfo=UTC)
    kind = SimpleNamespace(getDeclaredFields=list, getSuperclass=lambda: None)
    base = SimpleNamespace(lastUpdatedMillis=lambda: int(last.timestamp() * 1000))
    operations = SimpleNamespace(current=lambda: base, getClass=lambda: kind)
    table: Any = SimpleNamespace(name="s.t")
    java = SimpleNamespace(operations=lambda: operations)
    with pytest.raises(
        DataError, match=r"s\.t: .* ahead of this machine's clock, .* before 2126-01-02 03:04:00 UTC"
    ):
        begin(table, java)
