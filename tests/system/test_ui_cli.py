"""`driftline ui` as a process, and its pages in a real browser.

`DRIFTLINE_PICTURES=docs/images` makes the picture of its docs anew.
"""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located, staleness_of

from answering import Commands
from system.conftest import by_axe, look, until

pytestmark = pytest.mark.nightly
T, HELD, PATTERN = "shop.orders", "shop.held", "hooks.{event}"
DRIFTED = f"{'2' * 120}.jsonl"  # no page is wider than a phone for a long name


@pytest.fixture
def url(tmp_path, command_line: Commands):
    """The printed URL of a server over a lake with a drifted table, and a record in its quarantine."""
    drifted(tmp_path, command_line)
    with served(tmp_path) as url:
        yield url


@pytest.fixture
def writable(tmp_path, command_line: Commands):
    """The same, of a server that may write."""
    drifted(tmp_path, command_line)
    with served(tmp_path, "--allow-writes") as url:
        yield url


def drifted(tmp_path, command_line: Commands) -> None:
    lines = {
        "1.jsonl": ('{"id": 1, "total": 5}', T), DRIFTED: ('{"id": 2, "total": "n/a"}\n{no', T),
        "held1.jsonl": ('{"id": 1}', HELD), "held2.jsonl": ('{"id": 2, "new": 7}', HELD),
        "hooks.jsonl": ('{"event": "push"}\n{"event": "ping"}', PATTERN),
    }  # fmt: skip
    for name, (line, _) in lines.items():
        (tmp_path / name).write_text(f"{line}\n")
    more = {HELD: ("--set", "new_fields=hold")}
    ingests = {
        name: ["ingest", name, "--into", table, *more.get(table, ())] for name, (_, table) in lines.items()
    }
    assert {done.code for done in command_line.each(tmp_path, ingests).values()} <= {0, 1}


@contextmanager
def served(tmp_path, *flags: str):
    serve = [sys.executable, "-m", "driftline", "ui", "--no-open", "--port", "0", *flags]
    with subprocess.Popen(
        serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
    assert (server.returncode, errors) == (0, "")


def test_who_has_the_printed_url_finds_the_drift_and_axe_finds_nothing(url: str, browser) -> None:
    home = f"http://{urlsplit(url).netloc}"
    browser.get(f"{home}/")
    assert "Refused" in browser.title
    enter(browser, url)
    shown = {
        f"/table?name={T}": "total_string",
        f"/field?table={T}&path=total_string": DRIFTED,
        f"/history?name={T}": "total_string",
        f"/quarantine?name={T}": "{no",
        "/captures": "",
        f"/query?sql=select+id+from+{T}": "2",
        "/?open=hooks.%7Bevent%7D": "hooks.push",
        "/": f"{PATTERN} 2 tables",
    }
    for page, text in shown.items():
        for dark, width in ((False, 1280), (True, 390)):
            look(browser, width, 900, dark=dark)
            browser.get(home + page)
            assert text in body(browser), page
            assert_accessible(browser, width)
    assert "hooks.push" not in body(browser)
    click(browser, By.LINK_TEXT, PATTERN)
    assert "hooks.push" in body(browser)


def enter(browser, url: str) -> None:
    """Open the URL with its token, from whose page the browser goes on to the tables."""
    browser.get(url)
    until(browser, presence_of_element_located((By.LINK_TEXT, T)))


def click(browser, by: str, text: str) -> None:
    """Click what leads to another page, and wait for it: it may take ten seconds, and a click does not wait."""
    clicked = browser.find_element(by, text)
    clicked.click()
    until(browser, staleness_of(clicked))


def body(browser) -> str:
    return browser.find_element(By.TAG_NAME, "body").text


def assert_accessible(browser, width: int) -> None:
    """The page is no wider than the window, and axe finds nothing."""
    page = browser.current_url
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
    found = by_axe(browser)
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]] == [], (
        page
    )


def test_who_sees_the_drift_settles_it_with_a_look_and_takes_it_back_on_a_phone_too(
    writable: str, browser, tmp_path
) -> None:
    def press(name: str) -> None:
        click(browser, By.XPATH, f"//button[normalize-space()='{name}']")
        for _ in range(12):  # the first one starts Spark
            if not browser.find_elements(By.LINK_TEXT, "Look again"):
                break
            browser.refresh()
        everywhere()

    def everywhere() -> None:
        for dark, width in ((False, 1280), (True, 390)):
            look(browser, width, 900, dark=dark)
            assert_accessible(browser, width)

    look(browser, 390, 900)
    enter(browser, writable)
    click(browser, By.LINK_TEXT, T)
    (_, told) = browser.find_elements(By.CSS_SELECTOR, ".card small")
    assert "since 20" in told.text and f"first in {DRIFTED}:1" in told.text
    assert told.rect["x"] + told.rect["width"] <= 390, "nothing is to be scrolled sideways for it"
    look(browser, 1280, 900)
    for link in ("total", "total_string"):
        click(browser, By.LINK_TEXT, link)
    assert "n/a" in body(browser) and f"{DRIFTED}:1" in body(browser), "the row, the file and the line"
    everywhere()
    wanted = browser.find_element(By.NAME, "type")
    wanted.clear()
    wanted.send_keys("long")
    press("Dry run of a resolve")
    assert f"driftline resolve {T} total --as long" in body(browser)
    assert "1 value would not convert: n/a" in body(browser)
    look(browser, 900, 900)
    picture = Path(os.environ.get("DRIFTLINE_PICTURES", tmp_path), "ui-resolve.png")
    assert browser.find_element(By.TAG_NAME, "main").screenshot(str(picture))
    press("Resolve")
    assert "1 value kept in total_string: n/a" in body(browser)
    browser.refresh()  # sends nothing again
    assert "1 value kept in total_string: n/a" in body(browser)
    click(browser, By.LINK_TEXT, "Undo …")
    assert "(resolve)" in body(browser)
    press("Undo")
    assert "taken back" in body(browser)
    click(browser, By.LINK_TEXT, "History")
    assert "undo" in body(browser)
    click(browser, By.LINK_TEXT, "Quarantine")
    press("Discard …")
    assert "1 record in quarantine" in body(browser)
    click(browser, By.LINK_TEXT, "Table")
    press("Dry run of a replan")
    assert f"driftline replan {T} --apply" in body(browser)
    assert "total_string string × 1 → total string" in body(browser)

    browser.get(f"http://{urlsplit(writable).netloc}/table?name={HELD}")
    click(browser, By.LINK_TEXT, "_rest")
    browser.find_element(By.CSS_SELECTOR, "input[name=path][value=new]").click()
    press("Dry run of a promote")
    assert f"driftline promote {HELD} new" in body(browser) and "1 value would get columns" in body(browser)
    press("Promote")
    assert "1 value got columns" in body(browser)
