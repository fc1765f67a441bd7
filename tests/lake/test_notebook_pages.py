"""The pages of tables that a process serves while it writes them."""

from __future__ import annotations

from html import unescape

import pytest

from core.test_ui_notebook import Visit
from driftline.lake import Lake
from driftline.runtime.session import session_beside
from driftline.runtime.spark_conf import LOOK, configured
from lake.formats import beside, without_spark


@pytest.mark.embedded_only("it reads the lake of a folder, or a DuckLake")
def test_a_table_opens_at_its_page_and_its_writes_name_the_lake(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1}])
    table.ingest([{"id": 2, "size": 3}])
    embedded = without_spark(lake)
    with Lake.open(embedded.folder, ducklake=embedded.ducklake) as opened:
        visit = Visit(opened.table(table_name.upper()).ui(allow_writes=True).url)
        assert f'url=/table?name={table_name}"' in visit.text
        assert "size" in visit.page(f"/table?name={table_name}")
        visit.ask(f"/plan?do=undo&table={table_name}", visit.cookie)
        planned = unescape(visit.page(visit.headers["location"]))
        assert f"driftline undo {table_name} --lake {embedded.folder}\n" in planned.replace("<", "\n")
        assert "_engine" not in vars(opened), "Spark was started"


@pytest.mark.nightly
def test_a_lake_of_a_session_is_shown_by_another_session_and_a_new_table_is_found(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1}])
    attached = beside(lake, lake.spark)
    with attached.table(table_name).ui() as page:
        visit = Visit(page.url)
        assert "id" in visit.page(f"/table?name={table_name}")
        lake.table(f"{table_name}_2").ingest([{"new": 1}])
        assert "new" in visit.page(Visit(attached.table(f"{table_name}_2").ui().url).text.split('"')[-2])


def test_a_session_beside_another_has_its_settings_and_not_those_of_open_blocks(lake: Lake) -> None:
    session = lake.spark.newSession()
    session.conf.set("spark.sql.catalog.late", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with configured(session, LOOK):
        other = session_beside(session)
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert other.conf.get("spark.sql.catalog.late") == "org.apache.iceberg.spark.SparkCatalog"
    assert other.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert other.conf.get("spark.sql.caseSensitive") == session.conf.get("spark.sql.caseSensitive")
    other.conf.set("spark.sql.session.timeZone", "UTC")
    assert session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
