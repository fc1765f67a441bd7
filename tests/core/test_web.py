"""Files behind a URL, from a server that fails as servers do."""

from base64 import b64encode
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from urllib.request import Request

import pytest

from driftline.errors import SetupError, UsageError
from driftline.runtime.stores import RedirectError, Redirects
from driftline.sources import spooled as web
from driftline.sources.files import expand
from driftline.sources.spooled import spooled
from servers.http_server import serving

BODY = b'{"a": 1}\n' * 1000


class Handler(BaseHTTPRequestHandler):
    answers: list[int]  # the codes of the next answers; 1: the answer is cut off
    logins: list[str | None]  # that came with requests
    elsewhere: str | None = None  # to which it leads

    def do_GET(self):
        self.logins.append(self.headers.get("Authorization"))
        code = self.answers.pop(0) if self.answers else 200
        self.send_response(200 if code == 1 else code)
        if code == 302:
            self.send_header("Location", self.elsewhere)
        if code == 503:
            self.send_header("Retry-After", "0")
        body = BODY if code in (1, 200) else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:100] if code == 1 else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setattr(web, "_PAUSE", 0.01)
    Handler.answers, Handler.logins = [], []
    with serving(Handler) as server:
        yield f"http://127.0.0.1:{server.server_port}/in/a.json?token=hush"


def test_a_url_is_read_once_and_named_without_what_is_secret(url):
    kind, files = expand([url])
    with spooled(files, kind) as ((path,), names):
        text = Path(path).read_bytes()

    assert (kind, text) == ("json", BODY)
    assert names == {path: url.partition("?")[0]}


@pytest.mark.parametrize("answers", [[503], [500, 429], [1], [1, 503, 1]])
def test_what_passes_is_waited_for(url, answers, tmp_path):
    Handler.answers = answers
    web.fetch(url, tmp_path / "a")

    assert (tmp_path / "a").read_bytes() == BODY


@pytest.mark.parametrize(
    ("answers", "kind", "sentence"),
    [
        ([404], UsageError, "there is no such file"),
        ([403], UsageError, "denies access"),
        ([503] * 9, SetupError, "says HTTP 503"),
        ([1] * 9, SetupError, "100 bytes came, of 9000"),
    ],
)
def test_what_does_not_is_one_sentence(url, answers, kind, sentence, tmp_path):
    Handler.answers = answers
    with pytest.raises(kind, match=sentence) as raised:
        web.fetch(url, tmp_path / "a")
    assert "hush" not in str(raised.value)


def test_a_login_goes_to_its_host_alone(url, tmp_path):
    with_login = url.replace("://", "://me%40here:p%3Aw@")
    Handler.answers = [503, 302, 200]
    Handler.elsewhere = url.replace("127.0.0.1", "localhost")
    web.fetch(with_login, tmp_path / "a")

    basic = "Basic " + b64encode(b"me@here:p:w").decode()
    assert (tmp_path / "a").read_bytes() == BODY
    assert Handler.logins == [basic, basic, None]


def test_login_follows_a_redirect_on_its_own_host(url, tmp_path):
    Handler.answers = [302, 200]
    Handler.elsewhere = "/in/b.json"
    web.fetch(url.replace("://", "://me:pw@"), tmp_path / "a")

    basic = "Basic " + b64encode(b"me:pw").decode()
    assert Handler.logins == [basic, basic]


@pytest.mark.parametrize("elsewhere", ["ftp://127.0.0.1/a.json", "file:///etc/passwd"])
def test_redirect_to_another_scheme_is_not_followed(url, elsewhere, tmp_path):
    Handler.answers = [302] * 9
    Handler.elsewhere = elsewhere
    with pytest.raises(UsageError, match=r"redirects to (ftp|file), not to http or https"):
        web.fetch(url, tmp_path / "a")
    assert len(Handler.logins) == 1


@pytest.mark.parametrize(
    ("start", "end", "login"),
    [
        ("https://h/a", "https://h/b", True),
        ("https://h/a", "https://h:443/b", True),
        ("https://H/a", "https://h/b", True),
        ("https://h/a", "https://h:444/b", False),
        ("https://h/a", "https://g/b", False),
        ("http://h/a", "https://h/b", False),
        ("http://h:8443/a", "https://h:8443/b", False),
    ],
)
def test_login_goes_to_its_scheme_host_and_port_alone(start, end, login):
    request = Request(start)
    request.add_unredirected_header("Authorization", "Basic bWU6cHc=")
    following = Redirects().redirect_request(request, BytesIO(), 302, "Found", {}, end)
    assert following.full_url == end
    assert following.has_header("Authorization") is login


def test_redirect_from_https_to_http_is_not_followed():
    with pytest.raises(RedirectError, match="https://h redirects to http, which is not encrypted"):
        Redirects().redirect_request(Request("https://h/a"), BytesIO(), 302, "Found", {}, "http://h/a")


def test_a_login_that_is_denied_is_not_shown(url, tmp_path):
    Handler.answers = [401] * 9
    with pytest.raises(UsageError, match="denies access") as raised:
        web.fetch(url.replace("://", "://me:hush@"), tmp_path / "a")
    assert "hush" not in str(raised.value)


def test_a_server_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(web, "_PAUSE", 0.01)
    with pytest.raises(SetupError, match="cannot be fetched"):
        web.fetch("http://127.0.0.1:1/a.json", tmp_path / "a")


def test_a_url_without_an_ending_wants_a_format():
    with pytest.raises(UsageError, match=r"https://example\.com/export: unknown file extension"):
        expand(["https://example.com/export?sig=hush"])
