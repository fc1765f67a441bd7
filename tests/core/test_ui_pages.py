"""The pages make no tag of anything that is data."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from core.test_ui_guard import Response
from driftline.capture.status import CaptureStatus
from driftline.core.changes import AddColumn
from driftline.core.history.batch_properties import REST_SINCE
from driftline.core.history.entries import Entry, Version
from driftline.core.schema.definition import Definition
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import DataError, UsageError
from driftline.ingest.route import Route
from driftline.operations.history import History
from driftline.operations.listing import Quarantine, RejectGroup
from driftline.report.page import replan_page
from driftline.ui.lake import CaptureState, ServedLake
from driftline.ui.limited_query import QueryAnswer
from driftline.ui.pages import LakePages
from driftline.ui.writes import Writes
from stats_models import AT, HOSTILE, QUOTES, hostile, replan, small

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
        one, other = (Version(AT, Definition(schema)) for schema in schemas.values())
        first = Entry(AT, "batch", None, one, (), makes_table=True)
        last = Entry(AT, QUOTES, one, other, (AddColumn((), Field(HOSTILE, LONG)),))
        return History(name, (first, last), schemas, whole=True)

    def state(self, name):
        return SimpleNamespace(properties={}, schema=None)

    def quarantine(self, name):
        group = RejectGroup(HOSTILE, QUOTES, HOSTILE, BROKEN, 2, BROKEN, QUOTES, NOW, NOW, HOSTILE)
        return Quarantine(name, 2, 0, 0, (group,))

    def has_rest(self, name):
        return QUOTES

    def patterns(self):
        return ["{" + HOSTILE + "}"]

    def captures(self, name):
        failed = CaptureStatus(7, has_ended=True, error=HOSTILE)
        return [
            CaptureState(HOSTILE, QUOTES, BROKEN, True, 1, AT, AT),
            CaptureState(HOSTILE, QUOTES, BROKEN, False, 1, AT, AT, failed),
        ]

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


class Refusing:
    """A table, each of whose writes fails with markup in its message; it counts them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.written = 0
        self.last = {}

    def resolve(self, field, type_, *, dry_run, drop_rest, progress):
        self.last = {"field": field, "type": type_}
        return self._failed(writes=not dry_run)

    def promote(self, *paths, everything, dry_run, progress):
        self.last = {"paths": paths, "everything": everything}
        return self._failed(writes=not dry_run)

    def replan(self, *paths, apply, progress):
        self.last = {"paths": paths}
        return self._failed(writes=apply)

    def replay(self, *, settings, progress):
        return self._failed()

    def discard_quarantine(self, source):
        self.last = {"source": source}
        return self._failed()

    def undo(self, *, yes):
        return self._failed()

    def _failed(self, *, writes: bool = True):
        self.written += writes
        raise UsageError(HOSTILE, f"--yes {QUOTES}") if self.written % 2 else ValueError(BROKEN)


@pytest.fixture(scope="module")
def shown():
    table = Refusing(HOSTILE)
    lake = SimpleNamespace(
        embedded=None, warehouse=HOSTILE, catalog="lake", _configured=(), table=lambda _: table
    )
    shown = Shown(lake)
    shown._queries = SimpleNamespace()
    return shown


@pytest.fixture(scope="module")
def pages(shown):
    return LakePages(shown).application()


@pytest.fixture(scope="module")
def writing(shown):
    """The pages where writes are allowed."""
    writes = Writes(shown, lambda _: {})
    yield LakePages(shown, writes).application()
    writes.close()


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
    assert_no_tag_of_data(response.text)


def test_tables_of_a_pattern_are_one_line_that_opens(shown, pages, monkeypatch) -> None:
    pattern = "hooks.{" + HOSTILE + "}"
    made_so = {
        name: replace(small(), table=name, records=10 * n, leaves=n, route=Route(pattern, ((name,),)))
        for n, name in enumerate(("hooks.ping", "hooks.push"), 1)
    }
    monkeypatch.setattr(Shown, "names", lambda _: ["a.alone", *made_so, "shop.unread"])
    monkeypatch.setattr(Shown, "summaries", lambda *_: {"a.alone": small(), **made_so})

    def lines(query: str) -> list[str]:
        page = Response(pages, f"/?{query}", {"host": "x"}).text
        assert_no_tag_of_data(page)
        rows = re.findall("<tr.*?</tr>", page.partition("<tbody>")[2], re.DOTALL)
        return [unescape(re.sub(r"\s*<[^>]*>\s*", " ", row)).strip() for row in rows]

    closed = lines("")
    assert [line.split()[0] for line in closed] == [
        "a.alone",
        "hooks.{<script>window.hit=1</script>}",
        "shop.unread",
    ]
    assert " ".join(closed[1].split()[1:12]) == "2 tables read so far 2 6 2026-03-02 08:01Z 30 1–2"
    opened = lines(f"open={quote(pattern)}")
    assert [line.split()[0] for line in opened[2:4]] == ["hooks.ping", "hooks.push"] and len(opened) == 5
    assert len(lines("find=hooks")) == 3, "who looks for a name sees it"


def assert_no_tag_of_data(text: str) -> None:
    tags = Tags(text)
    assert tags.active == []
    assert not tags.tags.keys() & {"script", "img", "b", "iframe"}
    assert tags.tags["textarea"] <= 1 and tags.tags["title"] == 1
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "choices",
    [
        f"do=resolve&path={NAME}&type=string&drop_rest=1",
        f"do=promote&path={NAME}",
        "do=promote",
        "do=replan",
        f"do=replan&path={NAME}",
        "do=replay",
        f"do=discard&source={quote(QUOTES)}",
        "do=undo&yes=1",
        f"do={NAME}",
        f"do=resolve&path=no{NAME}&type=long",
        f"do=resolve&path={NAME}&type={NAME}",
    ],
)
def test_no_data_makes_a_tag_on_the_page_of_a_write(writing, choices: str) -> None:
    planned = Response(writing, f"/plan?table={NAME}&{choices}", {"host": "x"})
    if planned.status != 303:
        assert planned.status == 404
        assert_no_tag_of_data(planned.text)
        return
    place = planned.headers["location"]
    pages = [Response(writing, place, {"host": "x"}).text]
    if 'method="post"' in pages[0]:
        assert Response(writing, place, {"host": "x"}, "POST").status == 303
        pages.append(Response(writing, place, {"host": "x"}).text)
    for text in pages:
        assert "driftline" in text and "window.hit" in text
        assert_no_tag_of_data(text)


def test_paths_that_wait_are_boxes_of_the_form_and_make_no_tag(writing, monkeypatch) -> None:
    properties = {f"{REST_SINCE}{path}": "1" for path in (HOSTILE, QUOTES)}
    monkeypatch.setattr(Shown, "state", lambda *_: SimpleNamespace(properties=properties, schema=None))
    page = Response(writing, f"/field?table={NAME}&path={quote(QUOTES)}", {"host": "x"}).text
    assert page.count('type="checkbox" name="path"') == 2
    assert_no_tag_of_data(page)


def test_what_writes_is_neither_shown_nor_there_where_writes_are_off(pages) -> None:
    for path in ("/plan?do=undo&table=shop.orders", "/write?id=1"):
        for method in ("GET", "POST"):
            assert Response(pages, path, {"host": "x"}, method).status == 404
    for path in (
        "/table?name=shop.orders",
        "/field?table=shop.orders&path=price",
        "/quarantine?name=shop.orders",
    ):
        page = Response(pages, path, {"host": "x"}).text
        assert "/plan" not in page and "Read-only" in page


def test_a_write_begins_by_a_post_with_the_id_of_its_page_alone(shown, writing) -> None:
    table = shown.lake.table(HOSTILE)
    planned = Response(writing, f"/plan?table={NAME}&do=replay", {"host": "x"}).headers["location"]
    before = table.written
    assert Response(writing, planned, {"host": "x"}, "HEAD").status == 200
    assert Response(writing, "/write?id=guessed", {"host": "x"}, "POST").status == 404
    assert Response(writing, f"/plan?table={NAME}&do=replay", {"host": "x"}, "POST").status == 405
    assert table.written == before
    for _ in range(2):
        assert Response(writing, planned, {"host": "x"}, "POST").status == 303
        Response(writing, planned, {"host": "x"})
    assert table.written == before + 1, "the second press found the outcome of the first"
    resolve = Response(writing, f"/plan?table={NAME}&do=resolve&path={NAME}&type=string", {"host": "x"})
    assert "<form" not in Response(writing, resolve.headers["location"], {"host": "x"}).text, (
        "its dry run failed"
    )
    assert Response(writing, resolve.headers["location"], {"host": "x"}, "POST").status == 404
    assert table.written == before + 1


@pytest.mark.parametrize("choices", ["do=undo", "do=replay", "do=promote", "do=replan", "do=discard"])
def test_shown_commands_find_the_lake_that_is_served(shown, choices: str) -> None:
    with closing(Writes(shown, lambda _: {}, ["--lake", "my lake"])) as writes:
        application = LakePages(shown, writes).application()
        planned = Response(application, f"/plan?table=shop.orders&{choices}", {"host": "x"})
        page = unescape(Response(application, planned.headers["location"], {"host": "x"}).text)
    commands = re.findall(r"driftline (?:undo|quarantine|promote|replan) shop.orders [^`<]*", page)
    assert len(commands) == (2 if choices == "do=discard" else 1)
    assert all(command.strip().endswith("--lake 'my lake'") for command in commands), commands


def test_commands_of_pages_that_only_read_find_the_lake_too(shown) -> None:
    application = LakePages(shown, options=["--lake", HOSTILE]).application()
    for place, command in {
        "/field?table=shop.orders&path=price": "resolve shop.orders price --as TYPE --dry-run",
        "/quarantine?name=shop.orders": "quarantine shop.orders --replay",
        "/table?name=shop.orders": "replan shop.orders --html FILE",
    }.items():
        page = Response(application, place, {"host": "x"}).text
        assert f"driftline {command} --lake '{HOSTILE}'</code>" in unescape(page)
        assert_no_tag_of_data(page)


def test_a_form_takes_several_paths_and_several_files(shown, writing) -> None:
    table = shown.lake.table("shop.orders")

    def pressed(choices: str) -> str:
        planned = Response(writing, f"/plan?table=shop.orders&{choices}", {"host": "x"}).headers["location"]
        page = unescape(Response(writing, planned, {"host": "x"}).text)
        Response(writing, planned, {"host": "x"}, "POST")
        Response(writing, planned, {"host": "x"})
        return page

    chosen = pressed("do=promote&path=a&path=b.c&path=d%0D%0A+a%0D%0A")
    assert "driftline promote shop.orders a b.c d\n" in chosen.replace("<", "\n")
    assert table.last == {"paths": ("a", "b.c", "d"), "everything": False}
    everything = pressed("do=promote&path=")
    assert "driftline promote shop.orders --all" in everything
    assert table.last == {"paths": (), "everything": True}
    assert "'a..b' is not a path" in unescape(
        Response(writing, "/plan?table=shop.orders&do=promote&path=a&path=a..b", {"host": "x"}).text
    )
    files = pressed("do=discard&source=1.jsonl%0D%0Amy+2.jsonl&source=topic")
    assert "--discard --from 1.jsonl --from 'my 2.jsonl' --from topic\n" in files.replace("<", "\n")
    assert "The records of 1.jsonl, my 2.jsonl, topic in quarantine" in files
    assert table.last == {"source": ["1.jsonl", "my 2.jsonl", "topic"]}
    assert "--discard --from" not in pressed("do=discard&source=%0D%0A")
    assert table.last == {"source": None}, "no file is all"


def test_a_table_without_a_capture_is_not_read_for_the_page_of_captures(shown, monkeypatch) -> None:
    monkeypatch.setattr(ServedLake, "state", lambda *_: pytest.fail("its state is read"))
    assert ServedLake.captures(shown, "shop.orders") == []


def test_a_capture_into_a_pattern_of_tables_is_among_the_captures(tmp_path) -> None:
    place = tmp_path / "_captures" / "hooks.%7Bevent%7D" / "hooks"
    place.mkdir(parents=True)
    (place / "capture.json").write_text('{"source": "files of in", "table": "hooks.{event}"}')
    lake = SimpleNamespace(embedded=SimpleNamespace(), warehouse=str(tmp_path))
    served = ServedLake(lake)
    (capture,) = (capture for pattern in served.patterns() for capture in served.captures(pattern))
    assert (capture.table, capture.name, capture.source) == ("hooks.{event}", "hooks", "in")


@pytest.mark.parametrize(
    ("runs", "status", "word", "error"),
    [
        (True, None, "runs", ""),
        (True, CaptureStatus(3, has_ended=True, error="of the run before"), "runs", ""),
        (False, None, "ended", ""),  # by an earlier version
        (False, CaptureStatus(0, has_ended=True), "ended", ""),
        (False, CaptureStatus(3, has_ended=True, error="in: is gone"), "failed", "in: is gone"),
        (False, CaptureStatus(3), "died", ""),
        (None, CaptureStatus(3), "?", ""),
    ],
)
def test_a_capture_s_state_is_told_by_its_lock_and_then_by_its_status(runs, status, word, error) -> None:
    state = CaptureState("shop.orders", "orders", "in", runs, status=status)
    assert (state.word, state.error, state.lag) == (word, error, status and status.lag)


def test_an_error_of_several_lines_is_shown_by_its_lines(shown, pages, monkeypatch) -> None:
    failed = CaptureStatus(3, has_ended=True, error="it fails its audit\nprice: <b>\x1b")
    state = CaptureState("shop.orders", "orders", "in", False, status=failed)
    monkeypatch.setattr(shown, "captures", lambda _: [state])
    page = Response(pages, "/captures", {"host": "x"}).text
    assert "<p>it fails its audit</p><p>price: &lt;b&gt;\\x1b</p>" in page


def test_each_colour_of_the_style_is_declared(pages) -> None:
    style = Response(pages, "/style.css", {"host": "x"}).text
    used = set(re.findall(r"var\((--[\w-]+)\)", style)) - {"--k"}
    assert used <= set(re.findall(r"(--[\w-]+):", style)) and "--text" in used


def test_quarantine_is_shown_by_batch_and_by_date(pages) -> None:
    page = Response(pages, "/quarantine?name=shop.orders", {"host": "x"}).text
    assert "Records in quarantine by batch" in page and "Records in quarantine by date" in page
    assert page.count('id="axis-date"') == 1


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


def test_a_table_and_a_field_show_the_drift_by_batch_and_a_column_that_did_not_drift_has_no_chart(
    pages,
) -> None:
    for place in ("/table?name=shop.orders", "/field?table=shop.orders&path=price_string"):
        page = Response(pages, place, {"host": "x"}).text
        assert "Types of price by batch" in page and "30 · 75 %" in page
    assert "<figure" not in Response(pages, "/field?table=shop.orders&path=id", {"host": "x"}).text


# The page of a replan ------------------------------------------------------------------------------------------


def text(page: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", page.partition("<body>")[2])).split())


def test_replanned_fields_are_shown_now_and_in_one_batch_with_the_reason_and_the_command() -> None:
    shown = text(replan_page(replan()))
    assert (
        "now long 2 values shop.orders.size double 3 values shop.orders.size_double in the rest 1 value "
        "in one batch double shop.orders.size why shop.orders" in shown
    )
    assert "driftline replan shop.orders --apply" in shown and "a note on shop.orders" in shown
    assert "field with other columns 1" in shown and "field that stays 1" in shown
    assert "in the rest 4 values in one batch list<string> shop.orders it is fixed" in shown


def test_applied_replan_is_told_as_done() -> None:
    shown = text(replan_page(replan(dry_run=False)))
    assert "then double" in shown and "--apply" not in shown and "driftline undo shop.orders" in shown
    assert "1 of the quarantine came behind it" in shown


@pytest.mark.parametrize(
    ("fields", "cards", "said"), [(20, 20, ""), (21, 21, "1 more"), (1002, 1000, "And 2 more: ")]
)
def test_of_many_replanned_fields_the_first_are_in_sight(fields: int, cards: int, said: str) -> None:
    page = replan_page(replan(fields=fields)).partition('id="stay"')[0]
    assert page.count("<article") == cards and said in text(page)


@pytest.mark.parametrize("name", [HOSTILE, QUOTES, BROKEN])
def test_no_data_makes_a_tag_on_the_page_of_a_replan(name: str) -> None:
    page = replan_page(replan(name))
    assert_no_tag_of_data(page)
    assert "script-src" not in page and "http" not in page.replace("http-equiv", "")
