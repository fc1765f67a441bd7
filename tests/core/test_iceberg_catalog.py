"""Iceberg's catalog of a Spark session, as a reader of its tables asks for it."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.errors import DataError, SetupError
from driftline.formats.iceberg import handle
from driftline.formats.iceberg.commit import begin
from driftline.formats.iceberg.handle import plugin_of

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


def plugin(failures: int) -> Any:
    state = SimpleNamespace(catalogManager=lambda: Catalogs(failures))
    spark: Any = SimpleNamespace(_jsparkSession=SimpleNamespace(sessionState=lambda: state))
    return plugin_of(spark, "lake")


@pytest.fixture(autouse=True)
def inactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "activate", lambda spark: None)


def test_a_catalog_that_another_one_makes_at_the_same_moment_is_asked_again() -> None:
    assert plugin(1).icebergCatalog() is CATALOG


def test_a_catalog_that_does_not_answer_is_named() -> None:
    with pytest.raises(SetupError, match=r"catalog 'lake'.*duplicate"):
        plugin(99)


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
