"""The docs as a site: built with no warning and no network, its links lead somewhere, and so does its search."""

import os
import re
import subprocess
import sys
import time
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from system.conftest import by_axe, look
from system.docs_session import ROOT

# What people search for, and a page that they should find.
SEARCHED = {
    "upsert": "questions", "timezone": "questions", "resume": "questions", "excel": "commands", "undo": "alter",
    "incremental": "captures", "backfill": "operate", "merge": "questions", "dedupe": "questions",
    "header": "questions", "decimal comma": "commands",
}  # fmt: skip
# Blocks, tables and the page itself that are wider than their place.
# Pages that have, together, all that pages are made of; axe takes a quarter of an hour for all of them.
KINDS = ("index", "tutorial", "commands", "python", "operate", "performance", "api", "settings", "notebook")
WCAG_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
# The rule of colours looks at each text, which is most of axe's time; the others find the same in both schemes.
COLORS = ["color-contrast"]
NO_COLORS = {rule: {"enabled": False} for rule in COLORS}
# Leaves, of the elements that have the same tags and classes around and within them, the first two: an odd and an even one.
TWO_OF_EACH = """
const seen = new Map();
for (const element of document.querySelectorAll("body *")) {
    if (!element.isConnected) continue;
    let kind = element.innerHTML.replace(/>[^<]+/g, ">").replace(/ (?!class|style)[\\w-]+="[^"]*"/g, "");
    for (let around = element; around; around = around.parentElement) {
        kind += ` < ${around.tagName} ${around.className} ${around.getAttribute("style")}`;
    }
    seen.set(kind, (seen.get(kind) || 0) + 1);
    if (seen.get(kind) > 2) element.remove();
}
"""
WIDER = """
return [document.documentElement, ...document.querySelectorAll("pre > code, .md-typeset__scrollwrap")]
    .filter(place => place.scrollWidth > place.clientWidth + 1).map(place => place.innerText.slice(0, 80))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    unreachable = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
    )
    done = subprocess.run(
        [mkdocs, "build", "--quiet", "--site-dir", folder],
        cwd=ROOT, env=os.environ | unreachable | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_pages_have_what_is_generated(site: Path) -> None:
    pages = {path.stem: path.read_text() for path in site.rglob("*.html")}
    assert "--on-conflict" in pages["options"]
    for words in (
        "there is no setting",
        "the store denies access",
        "Java ran out of memory",
        "check that the broker is running",
    ):
        assert words in pages["messages"], words
    assert "orders.ingest(" in re.sub("<[^>]+>", "", pages["notebook"])


def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.stem != "404"}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        assert not re.findall(r'<(?:script|img)[^>]* src="https?:|<link[^>]* href="https?:', text), path.name
        for link in map(unescape, re.findall(r'\b(?:href|src)="([^"]+)"', text)):
            if not re.match(r"https?:|data:", link):
                url, part = urldefrag(link)
                target = (path.parent / unquote(url)).resolve() if url else path
                target = target / "index.html" if target.is_dir() else target
                assert target.is_file(), f"{path.name}: {link}"
                assert not part or unquote(part) in ids.get(target, ()), f"{path.name}: {link}"


def test_nothing_is_scrolled_sideways_at_1280_pixels(site: Path, browser) -> None:
    look(browser, 1280, 900)
    for path in site.rglob("*.html"):
        if path.stem != "404":  # which a server alone shows
            browser.get(path.as_uri())
            ends = time.monotonic() + 10  # a busy machine lays a page out behind its load
            while (wider := browser.execute_script(WIDER)) and time.monotonic() < ends:
                time.sleep(0.1)
            assert wider == [], path.name


def test_search_works_from_a_folder(site: Path, browser) -> None:
    look(browser, 1280, 900)
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    query = browser.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]")
    WebDriverWait(browser, 20).until(lambda _: query.is_displayed())
    for words, page in SEARCHED.items():
        query.clear()
        query.send_keys(words)
        found: list[str] = []
        ends = time.monotonic() + 20
        while page not in found and time.monotonic() < ends:
            links = browser.execute_script(
                "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.pathname)"
            )
            found = [Path(link).stem for link in links]
        assert page in found, f"{words}: {found}"


def test_first_page_shows_two_files_the_reports_the_table_and_the_picture(site: Path) -> None:
    text = unescape(re.sub("<[^>]+>", "", (site / "index.html").read_text()))
    for words in (
        "mon.jsonl",
        "tue.jsonl",
        "2 records read, 2 written",
        "total_string string   sibling",
        "select * from",
    ):
        assert words in text
    assert 'src="images/page.png"' in (site / "index.html").read_text()


def test_all_of_it_stands_in_one_screen(site: Path, browser) -> None:
    look(browser, 1280, 900)
    browser.get((site / "index.html").as_uri())
    shown = [*browser.find_elements(By.CSS_SELECTOR, ".glance pre, .glance img")]
    assert len(shown) == 4
    assert max(each.rect["y"] + each.rect["height"] for each in shown) <= 900
    picture = browser.find_element(By.CSS_SELECTOR, ".glance img")
    assert browser.execute_script("return arguments[0].naturalWidth", picture) > 1000


def test_titles_of_the_navigation_have_at_most_three_words() -> None:
    home, *groups = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert home == {"Home": "index.md"}
    titles = [title for group in groups for title in group]
    assert titles == ["Start", "How to", "Sources", "Operate", "Reference", "Inside"]
    pages = [page for group in groups for in_group in group.values() for page in in_group]
    titles += [title for page in pages for title in page]
    assert [title for title in titles if len(title.split()) > 3] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_violation_of_wcag_aa(site: Path, browser, dark: bool) -> None:
    """By all rules in light, and by that of colours in both schemes, on what differs in tags and classes."""
    look(browser, 1280, 900, dark=dark)
    browser.set_script_timeout(300)
    pages = [path for path in site.rglob("*.html") if path.stem in KINDS]
    assert len(pages) == len(KINDS)
    for path in pages:
        browser.get(path.as_uri())
        browser.execute_script("localStorage.clear()")  # the theme remembers the scheme of the page before
        browser.refresh()
        assert browser.execute_script("return document.body.dataset.mdColorScheme") == (
            "slate" if dark else "default"
        )
        violations = [] if dark else by_axe(browser, runOnly=WCAG_AA, rules=NO_COLORS)["violations"]
        browser.execute_script(TWO_OF_EACH)
        violations += by_axe(browser, runOnly={"type": "rule", "values": COLORS})["violations"]
        assert violations == [], (path.name, [(v["id"], v["nodes"][0]["html"]) for v in violations])
