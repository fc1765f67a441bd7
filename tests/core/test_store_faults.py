"""The errors of a store that refuses or fails, from a server that answers so."""

import io
from http.server import BaseHTTPRequestHandler

import pytest
from pyarrow.fs import LocalFileSystem

from driftline.errors import DataError, SetupError
from driftline.runtime import stores
from driftline.runtime.stores import explained
from servers.http_server import serving

BODY = b'{"a": 1}\n'
ERROR = "<Error><Code>{code}</Code><Message>{code} for hush</Message></Error>"


class Handler(BaseHTTPRequestHandler):
    answers: list[tuple[int, str]]  # status and code of the next answers to GET
    asked: list[str]
    body = BODY * 1000

    def do_HEAD(self):
        self._answer(200, self.body, only_head=True)

    def do_GET(self):
        self.asked.append(self.path)
        status, code = self.answers.pop(0) if self.answers else (206, "")
        self._answer(status, ERROR.format(code=code).encode() if code else self.body)

    def _answer(self, status: int, body: bytes, *, only_head: bool = False):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml")
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 15:00:00 GMT")
        self.end_headers()
        if not only_head:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def uri(monkeypatch):
    monkeypatch.setattr(stores, "_ATTEMPTS", 3)
    monkeypatch.setattr(stores, "_configured", {})
    Handler.answers, Handler.asked = [], []
    with serving(Handler) as server:
        options = {"endpoint": f"http://127.0.0.1:{server.server_port}", "region": "us-east-1"}
        stores.configure("s3", {**options, "access_key": "key", "secret_key": "hush"})
        yield "s3://bucket/a.json"
        stores._connected.cache_clear()  # its connections are closed with it


@pytest.fixture(params=["small", "large"])
def size(request, monkeypatch):
    """Arrow takes an answer that is longer than the object otherwise than others."""
    monkeypatch.setattr(Handler, "body", BODY if request.param == "small" else BODY * 1000)
    monkeypatch.setattr(stores, "_PAUSES", (0, 0, 0))


def text(uri: str) -> bytes:
    with stores.opened(uri) as (file, _):
        return file.read()


@pytest.mark.usefixtures("size")
def test_a_busy_store_is_asked_again(uri):
    Handler.answers = [(503, "SlowDown"), (500, "InternalError")]

    assert text(uri) == Handler.body
    assert len(Handler.asked) == 3


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        ((503, "SlowDown"), SetupError, "the store is too busy, after several tries"),
        ((400, "ExpiredToken"), SetupError, "the store's token has expired"),
        ((403, "AccessDenied"), SetupError, "the store denies access"),
        ((404, "NoSuchKey"), DataError, "the file no longer exists"),
        ((418, "Teapot"), SetupError, "the store says"),
    ],
)
def test_what_it_goes_on_to_refuse_is_one_sentence(answer, kind, sentence, uri):
    Handler.answers = [answer] * 9
    with pytest.raises(kind, match=f"s3://bucket/a.json: {sentence}") as raised:
        text(uri)
    assert "hush" not in str(raised.value)


def test_a_refusal_is_told_whatever_the_buffer_held(uri, monkeypatch):
    monkeypatch.setattr(stores, "_BUFFER", 100)
    with stores.opened(uri) as (file, size):
        Handler.answers = [(400, "ExpiredToken")]
        with pytest.raises(SetupError, match="the store's token has expired"):
            file.raw.readinto(bytearray(b"x" * size))


class Refusing(io.BytesIO):
    """A file as Google's store gives it: going to its end is refused, and so is what is behind it."""

    def readinto(self, buffer):
        self._must_be_before_the_end()
        return super().readinto(buffer)

    def seek(self, *place):
        super().seek(*place)
        self._must_be_before_the_end()

    def _must_be_before_the_end(self):
        if self.tell() >= self.size():
            raise OSError("OUT_OF_RANGE: The requested range cannot be satisfied")

    def size(self) -> int:
        return len(self.getvalue())


@pytest.mark.parametrize("name", ["gs://bucket/a.json", "s3://bucket/a.json"])
def test_nothing_is_asked_for_behind_the_end(name, monkeypatch):
    content = b"x" * 100
    monkeypatch.setattr(stores, "native", lambda *_: Refusing(content))
    monkeypatch.setattr(stores, "_BUFFER", 10)

    assert text(name) == content
    with stores.buffered(name) as file:
        assert (file.read(), file.read(1)) == (content, b"")
        assert (file.seek(0, io.SEEK_END), file.read(1), file.seek(-2, io.SEEK_END), file.read()) == (
            100, b"", 98, b"xx",
        )  # fmt: skip


@pytest.mark.parametrize("uri", ["abfss://c@a.dfs.core.windows.net/b/c.json", "gs://b/c.json"])
def test_what_is_away_or_denies_access_is_told_of_other_stores_too(uri):
    for said, sentence in (("CURL error [7]=Could not connect to server", "the store does not respond"),
                           ("Status(PERMISSION_DENIED: no", "the store denies access")):  # fmt: skip
        error = explained(uri, OSError(said), {})
        assert error.message == f"{uri}: {sentence}" and "AWS" not in (error.hint or "")


def test_a_file_of_an_azure_account_that_cannot_move_is_there_whole(tmp_path, monkeypatch):
    class Flat(LocalFileSystem):
        def move(self, *_):
            raise NotImplementedError

    monkeypatch.setattr(stores, "filesystem", lambda *_: (Flat(), str(tmp_path / "in" / "a.json")))
    for content in (b"1", b"22"):
        stores.put("abfss://c@a.dfs.core.windows.net/in/a.json", content)
        assert (tmp_path / "in" / "a.json").read_bytes() == content
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a.json"]
