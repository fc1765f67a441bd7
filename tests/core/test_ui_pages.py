"""The pages make no tag of anything that is data."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from core.test_ui_guard import Response
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import DataError
from driftline.operations.history import History
from driftline.operations.listing import Quarantine, RejectGroup
from driftline.ui.lake import CaptureState, ServedLake
from driftline.ui.limited_query import QueryAnswer
from driftline.ui.pages import LakePages
from stats_models import AT, HOSTILE, QUOTES, hostile, small

NOW = datetime(2026, 3, 2, tzinfo=UTC)
BROKEN = "<b>\x1b[2J\n\ud800"


class Shown(ServedLake):
    """A lake of made-up values, with markup wherever data can stand."""

    def names(self):
        return [HOSTILE, QUOTES, "shop.orders"]

    def summaries(self, names, seconds):
        return {HOSTILE: hostile(), QUOTES: None}

    def stats(self, name):
        return hostile() if name == HOSTILE else small()

    def history(self, name):
        schemas = {
            i: Schema(Struct((Field(HOSTILE, LONG, 1), Field(BROKEN, LONG, 2))[: i + 1]), i) for i in (0, 1)
        }
        return History(name, (), schemas, whole=True)

    def quarantine(self, name):
        group = RejectGroup(HOSTILE, QUOTES, HOSTILE, BROKEN, 2, BROKEN, QUOTES, NOW, NOW, HOSTILE)
        return Quarantine(name, 2, 0, 0, (group,))

    def has_rest(self, name):
        return QUOTES

    def captures(self, name):
        return [CaptureState(HOSTILE, QUOTES, BROKEN, True, 1, AT, AT, 1)]

    def ask(self, sql):
        if "fail" in sql:
            raise DataError(HOSTILE, QUOTES)
        return QueryAnswer(
            [HOSTILE, QUOTES, BROKEN], [[HOSTILE, None, BROKEN], [QUOTES, "1", '{"a": "<b>"}']], more=True
        )

    def rows_with(self, name, path):
        return HOSTILE, self.ask("")

    def waiting_records(self, name, text):
        return self.ask("")


class Tags(HTMLParser):
    """The tags of a page, and its attributes that would run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.active: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes) -> None:
        self.tags[tag] += 1
        self.active += [
            name for name, text in attributes if name.startswith("on") or name in ("style", "src")
        ]
        self.active += [text for _, text in attributes if (text or "").lower().startswith("javascript:")]


@pytest.fixture(scope="module")
def pages():
    lake = SimpleNamespace(embedded=None, warehouse=HOSTILE, catalog="lake", _configured=())
    shown = Shown(lake)
    shown._queries = SimpleNamespace()
    return LakePages(shown).application()


NAME = quote(HOSTILE)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        f"/?find={NAME}",
        f"/table?name={NAME}",
        f"/table?name={quote(QUOTES)}&find={NAME}&first=0",
        f"/field?table={NAME}&path={NAME}",
        f"/history?name={NAME}&from=0&to=1",
        f"/quarantine?name={NAME}&find={quote(QUOTES)}",
        "/captures",
        f"/query?sql={NAME}</textarea>",
        f"/query?sql={NAME}fail",
        f"/table?name=no{NAME}",
        f"/field?table={NAME}&path=no{NAME}",
        f"/no{NAME}",
    ],
)
def test_no_data_makes_a_tag(pages, path: str) -> None:
    response = Response(pages, path, {"host": "127.0.0.1:8642"})
    assert response.status == (404 if f"no{NAME}" in path else 200)
    assert "window.hit" in response.text or path in ("/captures", f"/no{NAME}"), "data are shown"
    tags = Tags(response.text)
    assert tags.active == []
    assert not tags.tags.keys() & {"script", "img", "b", "iframe"}
    assert tags.tags["textarea"] <= 1 and tags.tags["title"] == 1
    assert "\x1b" not in response.text


def test_the_page_of_statistics_keeps_its_own_policy(pages) -> None:
    response = Response(pages, "/statistics?name=shop.orders", {"host": "127.0.0.1:8642"})
    policy = response.headers["content-security-policy"]
    assert (
        "script-src 'sha256-" in policy
        and "default-src 'none'" in policy
        and "frame-ancestors 'none'" in policy
    )


def test_names_and_fields_are_found_again_by_the_links_to_them(pages) -> None:
    page = Response(pages, "/table?name=shop.orders", {"host": "127.0.0.1:8642"}).text
    assert 'href="/field?table=shop.orders&amp;path=price_string"' in page
    field = Response(pages, "/field?table=shop.orders&path=price_string", {"host": "127.0.0.1:8642"}).text
    assert "in/2.jsonl:7" in field and "1 EUR" in field
