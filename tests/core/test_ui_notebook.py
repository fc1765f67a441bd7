"""The pages that a process serves of a lake that it has open: who gets one, and until when."""

from __future__ import annotations

import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from core.test_ui_pages import Tags
from driftline import NotebookPage, SetupError, UsageError
from driftline.lake import Lake
from stats_models import HOSTILE, QUOTES

LEFT_OPEN = """
import sys
from driftline import Lake

page = Lake.open(sys.argv[1]).ui(allow_writes=True)
print(page.url)
"""


class Visit:
    """A visit of a browser to a page's address: the answer to it, and to the paths asked for with its cookie."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url).netloc
        self.headers: dict[str, str] = {}
        self.status, self.text = self.ask(url.partition(self._server)[2])
        self.cookie = self.headers.get("set-cookie", "").partition(";")[0]

    def ask(self, path: str, cookie: str | None = None) -> tuple[int, str]:
        connection = HTTPConnection(self._server, timeout=60)
        try:
            connection.request("GET", path, headers={"cookie": cookie} if cookie else {})
            answer = connection.getresponse()
            self.headers = {name.lower(): text for name, text in answer.getheaders()}
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def page(self, path: str) -> str:
        status, text = self.ask(path, self.cookie)
        assert status == 200, text
        return text


@pytest.fixture
def lake(tmp_path: Path):
    with Lake.open(tmp_path / "a lake") as lake:
        yield lake
    assert "_engine" not in vars(lake), "Spark was started"


def test_a_page_answers_who_has_its_token_until_it_is_closed(lake: Lake) -> None:
    with lake.ui() as page:
        visit = Visit(page.url)
        assert visit.ask("/")[0] == 401
        assert "Read-only" in visit.page("/") and "a lake" in visit.page("/")
        assert "--into NAMESPACE.TABLE --lake" in visit.page("/"), (
            "pasted into another folder it meets this lake"
        )
        assert page.url in repr(page) and "reads" in repr(page)
        assert lake.ui().url == page.url, "a cell that runs again gives the same address"
    with pytest.raises(ConnectionRefusedError):
        visit.ask("/")
    assert "closed" in repr(page) and page.url not in repr(page) + page._repr_html_()
    page.close()  # does nothing
    assert lake.ui().url != page.url


def test_a_lake_that_is_closed_ends_its_pages_and_those_that_write_are_others(lake: Lake) -> None:
    reads, writes = lake.ui(), lake.ui(allow_writes=True)
    assert reads.url != writes.url
    visit = Visit(writes.url)
    assert "Writes are allowed" in visit.page("/") and "reads and writes" in repr(writes)
    lake.close()
    for page in (reads, writes):
        assert "closed" in repr(page)
        with pytest.raises(ConnectionRefusedError):
            Visit(page.url)


def test_a_table_that_is_not_there_has_no_page_and_leaves_no_server(lake: Lake) -> None:
    with pytest.raises(UsageError, match=r"there is no table s\.t"):
        lake.table("s.t").ui()
    assert lake._servers._threads == {}


def test_pages_without_their_extra_say_what_to_install(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "driftline.ui.server", raising=False)
    with pytest.raises(SetupError, match="uvicorn is not installed") as raised:
        lake.ui()
    assert raised.value.hint == "pip install 'driftline[ui]'"


def test_a_name_makes_no_tag_in_a_notebook() -> None:
    server = SimpleNamespace(
        url_of=lambda _: f"http://127.0.0.1:1/?name={QUOTES}",
        title=HOSTILE,
        guard=SimpleNamespace(writes=False),
    )
    for is_open in (True, False):
        page = NotebookPage(SimpleNamespace(server=server, is_open=is_open), QUOTES + HOSTILE)  # type: ignore[arg-type]
        tags = Tags(page._repr_html_())
        assert tags.tags == ({"p": 1, "a": 1, "small": 1} if is_open else {"p": 1})
        assert tags.active == []
        assert "window.hit=1" in page._repr_html_(), "the names are shown"


@pytest.mark.parametrize(
    ("ducklake", "options"),
    [
        (None, ("--lake", "{}")),
        ("sqlite", ("--lake", "{}")),
        ("sqlite:catalog.sqlite", ("--lake", "{}")),
        ("sqlite:other.db", ("--config", "FILE")),
        ("postgres:dbname=x", ("--config", "FILE")),
    ],
)
def test_commands_name_the_lake_where_its_folder_does(
    tmp_path: Path, ducklake: str | None, options: tuple[str, str]
) -> None:
    lake = Lake.open(tmp_path, ducklake=ducklake)
    assert lake._options == tuple(option.format(tmp_path) for option in options)
    assert (
        Lake.open(tmp_path / "x", properties={"type": "rest", "uri": "http://x/"})._options[0] == "--config"
    )


def test_a_process_that_leaves_its_pages_open_ends_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", LEFT_OPEN, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        Visit(ended.stdout.strip())
