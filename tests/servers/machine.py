"""Programs that tests take from the machine, as no wheel brings them: without them they are skipped, in CI they fail."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def lacking(what: str, install: str) -> NoReturn:
    """Skips the test at hand, with what to install. Where ``CI`` is ``true`` the test fails: CI installs all."""
    message = f"there is no {what} here: {install}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def chromium() -> tuple[str, str]:
    """The browser and its driver, as paths; `lacking` where one of them is not there."""
    browser = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    driver = shutil.which("chromedriver")
    if browser is None:
        lacking("Chromium", "apt-get install chromium chromium-driver")
    if driver is None:
        lacking("chromedriver", "apt-get install chromium-driver")
    return browser, driver
