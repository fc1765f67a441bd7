"""The pages of a whole lake in a real browser; and of all pages, what a link, a printer and axe find there."""

import base64
import re
from dataclasses import replace
from functools import partial

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import text_to_be_present_in_element
from selenium.webdriver.support.ui import Select

from driftline.core.columns.statistics import SeenIn
from driftline.core.schema.types import LONG, STRING, Field, Struct
from driftline.ingest.route import Route
from driftline.report.page import INDEX, page, pages, replan_page
from driftline.sql.lost import WaitingValues as Rest
from driftline.stats.lake import LakeStats
from stats_models import AT, HOSTILE, column, hostile, made, replan, small, wide
from system.conftest import by_axe, until

DAY = 86_400_000  # milliseconds


def lake() -> LakeStats:
    """A table that drifts and has what waits, an empty one, a hostile one, and one that drifted long ago."""
    orders = replace(small(), rest=(Rest("a.b", 7, "1"),), records=5_000)
    old = replace(small(), table="Shop.Old", records=20, quarantined=0, waiting=(), at=AT - 30 * DAY)
    old = replace(old, events=tuple(replace(event, at=AT - 30 * DAY) for event in old.events))
    empty = made([column(1, "id")], table="shop.empty", records=0)
    return LakeStats("lake", (old, hostile(), empty, orders), at=AT + DAY)


@pytest.fixture
def folder(tmp_path):
    for name, text in pages(lake()):
        (tmp_path / name).write_text(text)
    return tmp_path


def cells(browser, place: int) -> list[str]:
    return [
        row.find_elements(By.XPATH, "./*")[place].text
        for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    ]


def test_the_tables_are_sorted_by_their_heads(show, folder):
    browser = show((folder / INDEX).read_text())
    assert cells(browser, 0) == ["Shop.Old", HOSTILE, "shop.empty", "shop.orders"]
    table, records, *_, commit = browser.find_elements(By.CSS_SELECTOR, "th button")
    records.click()
    assert cells(browser, 1) == ["5,000", "100", "20", "0"]
    assert records.find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"
    records.click()
    assert cells(browser, 1) == ["0", "20", "100", "5,000"]
    commit.click()
    assert cells(browser, 0)[-1] == "Shop.Old"
    table.click()
    assert cells(browser, 0)[0] == HOSTILE
    assert len(browser.find_elements(By.CSS_SELECTOR, "th[aria-sort]")) == 1


def test_the_line_of_a_pattern_opens_its_tables_which_stay_behind_it(show):
    names = ("push", "ping")
    made_so = (
        replace(small(), table=f"hooks.{name}", records=n, route=Route("hooks.{event}", ((name,),)))
        for n, name in enumerate(names)
    )
    alone = made([column(1, "id")], table="a.alone", records=7)
    browser = show(dict(pages(LakeStats("lake", (alone, *made_so), at=AT)))[INDEX])
    opened, closed = ["a.alone", "hooks.push", "hooks.ping"], ["a.alone", "", ""]
    pattern = browser.find_element(By.CSS_SELECTOR, "tbody button")
    for clicks, tables in enumerate((closed, opened, closed, opened)):
        if clicks:
            pattern.click()
        named = cells(browser, 0)
        assert named[1] == "hooks.{event} 2 tables" and [named[0], *named[2:]] == tables
    records = browser.find_elements(By.CSS_SELECTOR, "thead button")[1]
    for counts in (["7", "1", "1", "0"], ["1", "0", "1", "7"]):
        records.click()
        assert cells(browser, 1) == counts


def test_the_index_leads_to_what_drifted_and_what_waits(show, folder):
    browser = show((folder / INDEX).read_text())
    drift = browser.find_elements(By.CSS_SELECTOR, ".event")
    assert len(drift) == 2, "what drifted long ago is not told"
    assert "price_string string" in drift[0].text
    waits = browser.find_element(By.CSS_SELECTOR, ".reasons").text
    assert "3 in quarantine: invalid JSON" in waits and "7 in the rest: a.b" in waits
    browser.get((folder / INDEX).as_uri())
    for name in ("shop.orders", HOSTILE, "Shop.Old"):
        browser.find_element(By.LINK_TEXT, name).click()
        assert browser.find_element(By.TAG_NAME, "h1").text == name
        browser.find_element(By.LINK_TEXT, "all tables").click()
        assert browser.find_element(By.TAG_NAME, "h1").text == "lake"
    assert browser.execute_script("return window.hit") is None
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_index_is_no_wider_than_the_window(show, folder, width):
    browser = show((folder / INDEX).read_text(), width, 800)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["small", "lake"])
def test_what_stands_below_begins_where_the_rest_does(show, folder, name):
    browser = show((folder / INDEX).read_text() if name == "lake" else small(), 1600, 800)
    edges = (
        "return ['header', 'main', 'footer'].map(n => document.querySelector(n).getBoundingClientRect().left)"
    )
    assert len(set(browser.execute_script(edges))) == 1


def test_the_tools_of_columns_are_one_line(show):
    browser = show(small())
    places = {one.rect["y"] for one in browser.find_elements(By.CSS_SELECTOR, ".tools > button")}
    assert len(places) == 1


def test_cells_of_a_column_stand_under_its_head(show):
    browser = show(small())
    for name in ("type", "values", "num", "range", "trend"):
        cells = browser.find_elements(By.CSS_SELECTOR, f".row .{name}")
        assert len({one.rect["x"] for one in cells}) == 1, name
    browser = show(replace(wide(2, 3), drifted=()))
    assert len({one.rect["x"] for one in browser.find_elements(By.CSS_SELECTOR, ".row .type")}) == 1


def test_one_is_not_several(show):
    one = replace(small(), records=1, batches=1, leaves=1)
    shown = [term.text for term in show(one).find_elements(By.CSS_SELECTOR, ".overview dt")]
    assert shown[:4] == ["record", "batch", "column", "drifted field"]
    shown = [
        term.text
        for term in show(dict(pages(LakeStats("lake", (one,), at=AT + DAY)))[INDEX]).find_elements(
            By.CSS_SELECTOR, ".overview dt"
        )
    ]
    assert shown[:3] == ["table", "record", "drift in 7 days"]


def test_a_link_leads_to_a_column(show):
    browser = show(wide())
    here = browser.current_url.partition("#")[0]
    browser.get("about:blank")
    browser.get(f"{here}#c:group_07.field_042")
    assert browser.find_element(By.CSS_SELECTOR, "#detail h3").text == "group_07.field_042"
    assert browser.find_element(By.CSS_SELECTOR, ".row.at .name").text.strip() == "field_042"
    # Whoever looks at another column has its address.
    browser.find_element(By.CSS_SELECTOR, ".card a[href*='field_001_string']").click()
    until(
        browser, text_to_be_present_in_element((By.CSS_SELECTOR, "#detail h3"), "group_00.field_001_string")
    )
    assert browser.current_url.endswith("#c:group_00.field_001_string")
    browser.get(f"{here}#c:%E0%A4%A")
    browser.get(f"{here}#c:nothing")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_columns_in_another_order(show):
    browser = show(small())
    order = Select(browser.find_element(By.ID, "sort"))

    def names():
        return [row.text.partition("←")[0] for row in browser.find_elements(By.CSS_SELECTOR, ".row .name")]

    assert names() == ["id", "price", "price_string", "tags"]
    order.select_by_value("least")
    assert names() == ["tags", "price_string", "price", "id"]
    order.select_by_value("most")
    assert names() == ["id", "price", "price_string", "tags"]
    order.select_by_value("last")
    assert names()[0] == "id"


def test_all_columns_are_printed_and_no_page_is_blank(show):
    browser = show(replace(wide(2, 400), drifted=()))
    browser.find_element(By.ID, "open").click()
    printed = base64.b64decode(
        browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    )
    count = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 10 < count < 30, "about forty columns a page"
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".row")) == 802
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".row")) < 60


def test_three_thousand_columns_take_less_than_a_megabyte():
    seen = SeenIn(AT, "b1" * 16)
    columns = []
    for group in range(30):
        top = f"pull_request_{group}"
        columns.append(
            column(
                len(columns) + 1, top, type_=Struct((Field("x", LONG, 1),)), values=90, first=seen, last=seen
            )
        )
        columns += [
            column(
                len(columns) + i + 1, top, f"organization_url_{i}", type_=STRING, values=57 + i, low="https://api.gith", high="https://api.gitz",
                low_cut=True, high_cut=True, first=seen, last=seen, trend=(0.512,) * 12,
            )
            for i in range(100)
        ]  # fmt: skip
    assert 300_000 < len(page(made(columns)).encode()) < 1_000_000


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["small", "hostile", "wide", "lake", "replan"])
def test_axe_finds_nothing(show, folder, name, width):
    dark = width < 1000  # by night on the phone
    shown = {
        "small": small, "hostile": hostile, "wide": wide, "lake": (folder / INDEX).read_text,
        "replan": partial(replan_page, replan(f"shop.{'x' * 90}")),
    }  # fmt: skip
    browser = show(shown[name](), width, 800, dark=dark)
    if name not in ("lake", "replan"):
        # At once: the page draws its rows anew when it has its width.
        browser.execute_script("document.querySelector('.row').click()")
        browser.execute_script("document.querySelectorAll('.numbers').forEach((one) => one.open = true)")
    found = by_axe(browser)
    assert found["violations"] == [], [
        (one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]
    ]
    assert len(found["passes"]) > 10
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
