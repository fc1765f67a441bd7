"""A process of driftline's commands, and Debian's Chromium, without a window."""

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from answering import Commands, commands
from driftline.report.page import page
from servers.machine import chromium


@pytest.fixture(scope="session")
def command_line() -> Iterator[Commands]:
    """A process that runs commands, so that Java starts once for all files of tests."""
    with commands() as process:
        yield process


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    found, driver = chromium()
    options = webdriver.ChromeOptions()
    options.binary_location = found
    # As root, and in containers with little shared memory, Chromium starts only so.
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))  # so Selenium downloads none
    yield chrome
    chrome.quit()


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of statistics in a window of this size."""

    def show(of, width: int = 1280, height: int = 900, *, dark: bool = False) -> webdriver.Chrome:
        file = tmp_path / "page.html"
        file.write_text(of if isinstance(of, str) else page(of))
        look(browser, width, height, dark=dark)
        browser.get_log("browser")
        browser.get(file.as_uri())
        return browser

    return show


def until(browser, has: Callable[[webdriver.Chrome], object]) -> None:
    """Wait until a browser has what a page's script or another page brings."""
    WebDriverWait(browser, 30).until(has)


def look(browser, width: int, height: int, *, dark: bool = False) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
    media = [{"name": name, "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def by_axe(browser, **options: object) -> dict[str, Any]:
    """The findings of axe on the present page, by its ``options``."""
    browser.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text())
    script = "axe.run(document, arguments[0]).then(arguments[1])"
    found: dict[str, Any] = browser.execute_async_script(script, options)
    return found
