"""The page in a real browser: Debian's Chromium, without a window.

`DRIFTLINE_PICTURES=docs/images` makes the pictures of the README anew.
"""

import json
import os
import shlex
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

import driftline
from answering import Commands, Done
from driftline.sql.lost import WaitingValues
from stats_models import HOSTILE, hostile, small, wide

SECOND = 1000  # milliseconds
DEMO = Path(driftline.__file__).parent / "demo" / "data"
README = Path(__file__).parents[2] / "README.md"

# Ten fields, and what becomes of them the next day.
BEFORE = {
    "n": 1, "flag": True, "day": "2026-03-02", "who": {"id": 7, "mail": "a@b.c"}, "size": 4, "at": "2026-03-02T08:00:00Z",
    "tags": ["x"], "box": {"w": 1}, "items": [{"sku": 5, "qty": 1}],
}  # fmt: skip
AFTER = {
    "n": "one", "flag": "yes", "day": 20260303, "who": {"id": "u-7", "mail": {"work": "a@b.c"}}, "size": 2.3, "at": "soon",
    "tags": {"a": 1}, "box": [{"w": 1}], "items": [{"sku": "five", "qty": 1}],
}  # fmt: skip
DRIFTED = {
    "n", "flag", "day", "who.id", "who.mail", "size", "at", "tags", "box", "items.element.sku"
}  # fmt: skip


def names(browser) -> list[str]:
    """The columns in sight."""
    return [e.text for e in browser.find_elements(By.CSS_SELECTOR, ".row .name")]


def find(browser, text: str) -> None:
    box = browser.find_element(By.ID, "find")
    box.clear()
    box.send_keys(text)


def count(browser) -> str:
    return browser.find_element(By.ID, "count").text


def tree(browser):
    return browser.find_element(By.ID, "tree")


# What a person does -------------------------------------------------------------------------------------------


def test_the_numbers_of_the_page_are_those_of_the_table(show):
    browser = show(small())
    tiles = {e.find_element(By.TAG_NAME, "dt").text: e.find_element(By.TAG_NAME, "dd").text
             for e in browser.find_elements(By.CSS_SELECTOR, ".overview dl div")}  # fmt: skip
    assert tiles == {
        "records": "100",
        "batches": "2",
        "columns": "3",
        "drifted field": "1",
        "in quarantine": "3",
    }
    bar = browser.find_element(By.CSS_SELECTOR, ".card .bar")
    assert bar.accessible_name == "70 % long, 30 % string"
    widths = [float(e.get_attribute("width")) for e in bar.find_elements(By.TAG_NAME, "rect")]
    assert widths[0] / sum(widths) == pytest.approx(0.7, abs=0.02)
    over_time = browser.find_element(By.CSS_SELECTOR, ".card .by-batch .chart svg")
    assert over_time.accessible_name == (
        "Types of price by batch. 2026-03-02 08:00Z: 100 % long; 2026-03-02 08:01Z: 25 % long, 75 % string"
    )
    assert "1 EUR" in browser.find_element(By.CSS_SELECTOR, ".event.drift").text
    assert "invalid JSON" in browser.find_element(By.CSS_SELECTOR, ".reasons").text
    assert names(browser)[:4] == ["id", "price", "price_string← price", "tags"]


def test_search_finds_columns_with_what_is_above_them(show):
    browser = show(wide())
    find(browser, "group_07 field_042")
    assert [n.strip() for n in names(browser)] == ["▾group_07", "field_042"]
    assert count(browser) == "1 of 5,050 columns"
    find(browser, "no such column")
    assert (names(browser), count(browser)) == ([], "0 of 5,050 columns")


def test_of_many_drifted_fields_the_first_are_in_sight_and_all_a_click_away(show):
    of = small()
    many = tuple(replace(of.drifted[0], path=(f"price_{i}",)) for i in range(30))
    rest = tuple(WaitingValues(f"payload.k{i}", 100 - i, "[1]") for i in range(21))
    browser = show(replace(of, drifted=many, rest=rest))
    cards = browser.find_elements(By.CSS_SELECTOR, ".card")
    assert [card.is_displayed() for card in cards] == [True] * 20 + [False] * 10
    folds = browser.find_elements(By.CSS_SELECTOR, ".older > summary")
    assert [fold.text for fold in folds] == ["10 more", "1 more"]
    folds[0].click()
    assert cards[-1].is_displayed()
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert folds[1].find_element(By.XPATH, "..").get_attribute("open"), "a print has all of them"
    links = browser.find_elements(By.CSS_SELECTOR, "header nav a")
    assert [link.text for link in links] == ["Drift", "Columns", "Changes", "The rest", "Quarantine"]
    tops = [
        browser.find_element(By.ID, link.get_attribute("href").partition("#")[2]).rect["y"] for link in links
    ]
    assert tops == sorted(tops)


def test_filters_show_what_drifted_and_what_is_empty(show):
    browser = show(wide())
    for label, hits in (("Drifted", "20 of"), ("Empty", "50 of"), ("All", "5,050 columns")):
        browser.find_element(By.XPATH, f"//label[span='{label}']").click()
        assert count(browser).startswith(hits)
    browser.find_element(By.CSS_SELECTOR, "#kind option[value=text]").click()
    assert count(browser).startswith("10 of")


def test_rows_open_and_show_their_details(show):
    browser = show(wide())
    assert len(names(browser)) <= 50
    browser.find_element(By.CSS_SELECTOR, ".row i").click()
    assert names(browser)[1].strip() == "field_000"
    browser.find_element(By.ID, "c1").click()
    assert "group_00.field_000" in browser.find_element(By.ID, "detail").text
    assert "50 of 100" in browser.find_element(By.ID, "detail").text
    browser.find_element(By.ID, "close").click()
    assert names(browser)[1] == "▸group_01"


def test_the_keyboard_reaches_everything(show):
    browser = show(wide())
    keys = ActionChains(browser)
    tree(browser).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    assert browser.find_element(By.CSS_SELECTOR, "#detail h3").text == "group_00.field_001_string"
    active = tree(browser).get_attribute("aria-activedescendant")
    assert browser.find_element(By.ID, active).get_attribute("aria-selected") == "true"
    tree(browser).send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert len(names(browser)) <= 50
    assert browser.find_element(By.ID, "c0").get_attribute("aria-expanded") == "false"
    tree(browser).send_keys(Keys.END)
    # At once: scrolling draws the rows anew, and an element that was found may be of before.
    assert browser.execute_script("return document.querySelector('.row.at').textContent").startswith(
        "▸group_49"
    )
    browser.find_element(By.ID, "find").send_keys(Keys.TAB)
    reached = []
    for _ in range(6):
        reached.append(browser.switch_to.active_element.get_attribute("id"))
        keys.send_keys(Keys.TAB).perform()
    assert {"kind", "open", "close", "tree"} <= set(reached)


def test_the_time_axis_is_of_batches_or_of_dates_and_its_numbers_open_by_keyboard(show):
    browser = show(small())
    shown = {axis: browser.find_elements(By.CSS_SELECTOR, f".by-{axis}") for axis in ("batch", "date")}
    assert [{e.is_displayed() for e in shown[axis]} for axis in shown] == [{True}, {False}]
    browser.find_element(By.ID, "axis-batch").send_keys(Keys.ARROW_RIGHT)
    assert [{e.is_displayed() for e in shown[axis]} for axis in shown] == [{False}, {True}]
    numbers = browser.find_element(By.CSS_SELECTOR, ".card .by-date .numbers")
    numbers.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert numbers.find_element(By.TAG_NAME, "table").text.splitlines()[1:] == [
        "2026-03-02 08:00Z · b1b1b1b1, 2026-03-02 08:00Z 60 · 100 % 0 · 0 %",
        "2026-03-02 08:01Z · b2b2b2b2, 2026-03-02 08:01Z 10 · 25 % 30 · 75 %",
    ]
    assert "3" in browser.find_element(By.CSS_SELECTOR, "#quarantine ~ .by-date").get_attribute("textContent")
    browser.find_element(By.CSS_SELECTOR, ".overview a[href='#drift']").click()
    assert browser.current_url.endswith("#drift")


def test_a_screen_reader_finds_its_way(show):
    browser = show(small())
    for tag, role in (
        ("main", "main"),
        ("header", "banner"),
        ("nav", "navigation"),
        ("footer", "contentinfo"),
    ):
        assert browser.find_element(By.TAG_NAME, tag).aria_role == role
    for control in browser.find_elements(
        By.CSS_SELECTOR, "input, select, button, [role=img], [role=treegrid]"
    ):
        if browser.execute_script("return arguments[0].checkVisibility()", control):
            assert control.accessible_name, control.get_attribute("outerHTML")
    levels = [int(h.tag_name[1]) for h in browser.find_elements(By.CSS_SELECTOR, "h1, h2, h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    row = browser.find_element(By.ID, "c2")
    assert (row.aria_role, row.get_attribute("aria-level")) == ("row", "1")
    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"


# How it looks, and how fast -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [320, 400, 768, 1280])
def test_nothing_is_wider_than_the_window(show, width):
    for of in (small(), hostile()):
        browser = show(of, width, 800)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_by_day_and_by_night(show, dark):
    browser = show(small(), dark=dark)
    for selector in ("h1", ".about", "dt", "dd", ".lead", ".share", ".count", "small", "q", ".by", ".version", "nav a",
                     ".row .type", ".row .range", ".row em", ".warm dd", ".hot dd"):  # fmt: skip
        assert browser.execute_script(CONTRAST, selector) >= 4.5, selector


def test_print_of_a_page_by_night_is_dark_on_white(show):
    browser = show(small(), dark=True)
    night = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [night]})
    try:
        assert browser.execute_script("return getComputedStyle(document.body).color") == "rgb(29, 31, 36)"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


# The contrast of an element's text with what is behind it, as WCAG has it.
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  return canvas.getImageData(0, 0, 1, 1).data; };
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const element = document.querySelector(arguments[0]);
let behind = element;
while (rgba(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map((c) => light(rgba(c)));
return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
"""

# Milliseconds until the browser has laid out what an action changed.
TIMED = """
const done = arguments[1], start = performance.now();
(new Function(arguments[0]))();
requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
"""


def test_five_thousand_columns_answer_within_a_second(show):
    browser = show(wide())
    loaded = browser.execute_script(
        "const t = performance.getEntriesByType('navigation')[0]; return t.domComplete - t.responseEnd"
    )
    took = {"load": loaded}
    for name, action in {
        "search": "const box = document.getElementById('find'); box.value = 'field_04'; box.dispatchEvent(new Event('input'))",
        "filter": "document.querySelector('input[value=drifted]').click()",
        "all": "document.getElementById('find').value = ''; document.querySelector('input[value=all]').click()",
        "expand": "document.getElementById('open').click()",
        "end": "document.getElementById('tree').scrollTop = 1e9",
    }.items():
        took[name] = browser.execute_async_script(TIMED, action)
    assert max(took.values()) < SECOND, took
    assert names(browser)[-1].strip() == "field_099"
    assert len(browser.find_elements(By.CSS_SELECTOR, ".row")) < 60


def test_data_are_text_and_run_nothing(show):
    browser = show(hostile())
    browser.find_element(By.CSS_SELECTOR, ".row").click()
    time.sleep(0.2)  # an image that fails to load takes its time to say so
    assert browser.execute_script("return window.hit") is None
    assert browser.find_element(By.TAG_NAME, "h1").text == HOSTILE
    assert browser.find_element(By.CSS_SELECTOR, "#detail h3").text == HOSTILE
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


# From files to the page ---------------------------------------------------------------------------------------


def readme() -> dict[str, list[str]]:
    """The commands that the README gives once there is a table, with the names of this one."""
    told = README.read_text().partition("## Find the drift, settle it\n")[2].partition("\n## ")[0]
    for theirs, ours in {"shop.events": "t.ten", "events.html": "ten.html", "total": "size"}.items():
        told = told.replace(theirs, ours)
    typed = [shlex.split(line)[2:] for line in told.splitlines() if line.startswith("$ driftline ")]
    return {" ".join(["readme", words[0], *words[5:]]): words for words in typed}


@pytest.fixture(scope="module")
def ran(tmp_path_factory, command_line: Commands) -> tuple[Path, dict[str, Done]]:
    here = tmp_path_factory.mktemp("page")
    (here / "in").mkdir()
    (here / "in" / "1.jsonl").write_text(json.dumps(BEFORE) + "\n")
    (here / "in" / "2.jsonl").write_text(json.dumps(AFTER) + "\n")
    commands = {
        "ingest": ["ingest", "in", "--into", "t.ten", "--batch-per-file"],
        "demo": ["ingest", str(DEMO), "--into", "shop.events", "--batch-per-file"],
        "picture": ["stats", "shop.events", "--exact", "--html", "shop.html"],
        "text": ["stats", "t.ten"],
        "json": ["stats", "t.ten", "who.*", "--json"],
        "nothing": ["stats", "t.ten", "nothing"],
        "no table": ["stats", "t.none"],
        "no folder": ["stats", "t.ten", "--html", "none/x.html"],
        "which table": ["stats"],
        "lake": ["stats", "--all", "--html", "pages"],
        "lake json": ["stats", "--all", "--json"],
        **{name: words for name, words in readme().items() if words[0] != "resolve"},
        "settled": ["query", "select * from t.ten_settled order by n", "--json"],
        **readme(),
        "after": ["stats", "t.ten", "--html", "after.html"],
    }
    results = command_line.each(here, commands)
    wrong = {"nothing", "no table", "no folder", "which table"}
    assert {name: result for name, result in results.items() if result[0] and name not in wrong} == {}
    return here, results


def drifted(browser) -> set[str]:
    return {e.text for e in browser.find_elements(By.CSS_SELECTOR, ".card h3")}


def test_who_reads_the_readme_finds_all_drifts_reads_them_as_one_column_and_settles_one(ran, show):
    here, done = ran
    browser = show((here / "ten.html").read_text())
    assert drifted(browser) == DRIFTED
    browser.find_element(By.XPATH, "//label[span='Drifted']").click()
    assert "size_double← size" in "\n".join(names(browser))

    head, *fields = done["readme view"][1].splitlines()
    assert head == "t.ten_settled  view of t.ten, 10 drifted fields as one column each"
    assert {line.split()[0] for line in fields} == {path.replace(".element", "") for path in DRIFTED}
    assert [json.loads(line) for line in done["settled"][1].splitlines()] == [
        {
            "n": "1", "flag": "true", "day": 1772409600000, "who": {"id": "7", "mail": "a@b.c"}, "size": 4.0,
            "at": "2026-03-02T08:00:00Z", "tags": '["x"]', "box": [{"w": 1}], "items": [{"sku": "5", "qty": 1}],
        },
        {
            "n": "one", "flag": "yes", "day": 20260303, "who": {"id": "u-7", "mail": '{"work":"a@b.c"}'}, "size": 2.3,
            "at": "soon", "tags": '{"a":1}', "box": [{"w": 1}], "items": [{"sku": "five", "qty": 1}],
        },
    ]  # fmt: skip

    assert "2 of 2 values convert" in done["readme resolve --dry-run"][1]
    assert done["readme resolve"][1].startswith("t.ten  size is ")
    browser = show((here / "after.html").read_text())
    assert drifted(browser) == DRIFTED - {"size"}
    assert "resolve size --as" in browser.find_element(By.CSS_SELECTOR, ".event").text
    find(browser, "size")
    assert names(browser) == ["size"]


def test_the_command_tells_the_same_as_the_page(ran):
    _, done = ran
    assert done["readme stats"][1].startswith("ten.html  ")
    assert "10 drifted fields" in done["text"][1]
    found = json.loads(done["json"][1])
    assert {c["path"] for c in found["columns"]} >= {"who.id", "who.id_string"}
    assert {d["field"] for d in found["drifted"]} == {"who.id", "who.mail"}


def test_the_pages_of_the_whole_lake(ran, show):
    here, done = ran
    assert done["lake"][1].startswith("pages/index.html  2 tables, ")
    assert {file.name for file in (here / "pages").iterdir()} == {
        "index.html",
        "shop.events.html",
        "t.ten.html",
    }
    browser = show((here / "pages" / "index.html").read_text())
    assert browser.find_element(By.CSS_SELECTOR, "tbody").text.splitlines()[-1].split()[:4] == [
        "t.ten",
        "2",
        "21",
        "10",
    ]
    found = json.loads(done["lake json"][1])
    assert [one["table"] for one in found["tables"]] == ["shop.events", "t.ten"]
    assert {one["table"] for one in found["drift"]} == {"shop.events", "t.ten"}


def test_wrong_usage_is_told(ran):
    _, done = ran
    assert done["nothing"][0] == done["no table"][0] == done["no folder"][0] == 2
    assert (
        done["nothing"][2]
        == "error: t.ten has no column with 'nothing' in its path\n  --all lists every column\n"
    )
    assert "there is no table t.none" in done["no table"][2]
    assert "there is no folder none" in done["no folder"][2]
    assert done["which table"][0] == 2 and "pass a table, or --all" in done["which table"][2]


def test_pictures(ran, show, tmp_path):
    here, _ = ran
    to = Path(os.environ.get("DRIFTLINE_PICTURES", tmp_path))
    html = (here / "shop.html").read_text()
    for name, width, height, dark, at in (
        ("page", 1100, 860, False, "body"),
        ("page-columns", 1100, 700, True, "#columns"),
        ("page-phone", 390, 760, False, ".cards"),
    ):
        browser = show(html, width, height, dark=dark)
        browser.execute_script(
            "document.documentElement.style.scrollBehavior = 'auto'; document.querySelector(arguments[0]).scrollIntoView()",
            at,
        )
        assert browser.save_screenshot(str(to / f"{name}.png"))
        assert 10_000 < (to / f"{name}.png").stat().st_size < 300_000
