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
from selenium.webdriver.support.expected_conditions import presence_of_element_located

from answering import Commands
from system.conftest import by_axe, look, until

pytestmark = pytest.mark.nightly
T = "shop.orders"
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
    lines = {"1.jsonl": '{"id": 1, "total": 5}', DRIFTED: '{"id": 2, "total": "n/a"}\n{no'}
    for name, line in lines.items():
        (tmp_path / name).write_text(f"{line}\n")
    command_line.each(tmp_path, {name: ["ingest", name, "--into", T] for name in lines})


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
        "/": T,
    }
    for page, text in shown.items():
        for dark, width in ((False, 1280), (True, 390)):
            look(browser, width, 900, dark=dark)
            browser.get(home + page)
            assert text in body(browser), page
            assert_accessible(browser, width)


def enter(browser, url: str) -> None:
    """Open the URL with its token, from whose page the browser goes on to the tables."""
    browser.get(url)
    until(browser, presence_of_element_located((By.LINK_TEXT, T)))


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
        button = f"//button[normalize-space()='{name}']"
        browser.find_element(By.XPATH, button).click()
        for _ in range(12):  # the first one starts Spark
            if not (again := browser.find_elements(By.LINK_TEXT, "Look again")):
                break
            again[0].click()
        everywhere()

    def everywhere() -> None:
        for dark, width in ((False, 1280), (True, 390)):
            look(browser, width, 900, dark=dark)
            assert_accessible(browser, width)

    look(browser, 1280, 900)
    enter(browser, writable)
    for link in (T, "total", "total_string"):
        browser.find_element(By.LINK_TEXT, link).click()
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
    browser.find_element(By.LINK_TEXT, "Undo …").click()
    assert "(resolve)" in body(browser)
    press("Undo")
    assert "taken back" in body(browser)
    browser.find_element(By.LINK_TEXT, "History").click()
    assert "undo" in body(browser)
    browser.find_element(By.LINK_TEXT, "Quarantine").click()
    press("Discard …")
    assert "1 record in quarantine" in body(browser)
