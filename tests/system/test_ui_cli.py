"""`driftline ui` as a process, and its pages in a real browser."""

import signal
import subprocess
import sys
from importlib.resources import files
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By

from answering import Commands
from system.conftest import look

pytestmark = pytest.mark.nightly
AXE = files("axe_core_python").joinpath("axe.min.js").read_text()
T = "shop.orders"
DRIFTED = f"{'2' * 120}.jsonl"  # no page is wider than a phone for a long name


@pytest.fixture
def url(tmp_path, command_line: Commands):
    """The printed URL of a server over a lake with a drifted table, and a record in its quarantine."""
    lines = {"1.jsonl": '{"id": 1, "total": 5}', DRIFTED: '{"id": 2, "total": "n/a"}\n{no'}
    for name, line in lines.items():
        (tmp_path / name).write_text(f"{line}\n")
    command_line.each(tmp_path, {name: ["ingest", name, "--into", T] for name in lines})
    serve = [sys.executable, "-m", "driftline", "ui", "--no-open", "--port", "0"]
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
    browser.get(url)
    browser.find_element(By.PARTIAL_LINK_TEXT, T)
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
            assert text in browser.find_element(By.TAG_NAME, "body").text, page
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
            browser.execute_script(AXE)
            found = browser.execute_async_script("axe.run().then(arguments[0])")
            assert [
                (each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]
            ] == [], page
