"""The border of the pages: who gets one, and with which headers; and which SQL the query box runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import duckdb
import pytest
from starlette.responses import PlainTextResponse

from driftline.errors import UsageError
from driftline.ui.guard import Address, Guard
from driftline.ui.limited_query import _check

PORT = 8642
HOME = f"127.0.0.1:{PORT}"


class Response:
    """The answer of an application to one request."""

    def __init__(self, app, path: str, headers: Mapping[str, str], method: str = "GET") -> None:
        sent = []
        place, _, query = path.partition("?")
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": place, "raw_path": place.encode(),
            "query_string": query.encode(), "scheme": "http", "root_path": "", "server": None, "client": None,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        asyncio.run(app(scope, receive, send))
        self.status = sent[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        self.text = b"".join(message.get("body", b"") for message in sent[1:]).decode()


@pytest.fixture
def guard() -> Guard:
    return Guard(PlainTextResponse("a page"), Address("127.0.0.1", PORT))


def asked(guard: Guard, path: str = "/", method: str = "GET", **headers: str) -> Response:
    given = {"host": HOME, "cookie": f"{guard.cookie}={guard.token}"} | headers
    return Response(
        guard, path, {name.replace("_", "-"): text for name, text in given.items() if text}, method
    )


def test_the_token_of_the_address_opens_the_pages_and_its_cookie_keeps_them_open(guard: Guard) -> None:
    entered = asked(guard, f"/?token={guard.token}", cookie="")
    assert entered.status == 200 and "a page" not in entered.text
    cookie = entered.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    page = asked(guard, cookie=cookie.partition(";")[0])
    assert (page.status, page.text) == (200, "a page")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "script" not in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"


def test_the_token_opens_the_page_that_it_comes_with_and_leads_to_no_other_server(guard: Guard) -> None:
    place = "/table?name=a%26b%22c"
    entered = asked(guard, guard.entry(guard.token, place).partition(HOME)[2], cookie="")
    assert (entered.status, "0;url=/table?name=a%26b%22c&quot;" in entered.text) == (200, False)
    assert '"0;url=/table?name=a%26b%22c"' in entered.text
    elsewhere = asked(guard, f'//evil.example/"?token={guard.token}&a="', cookie="")
    assert '"0;url=/evil.example/%22?a=%22"' in elsewhere.text


def test_a_browser_is_opened_with_a_token_that_counts_once(guard: Guard) -> None:
    once = f"/?token={guard.once}"
    assert [asked(guard, once, cookie="").status for _ in range(2)] == [200, 401]
    assert asked(guard, "/?token=", cookie="").status == 401, "a token that was used is no empty one"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"cookie": ""}, 401),
        ({"cookie": f"driftline-{PORT}=guessed"}, 401),
        ({"cookie": f"driftline-{PORT}=\xfc"}, 401),
        ({"host": f"evil.example:{PORT}"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:8000"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": f"http://{HOME}", "sec_fetch_site": "same-origin"}, 200),
        ({"host": f"localhost:{PORT}"}, 200),
    ],
)
def test_a_request_of_anybody_else_is_refused(guard: Guard, headers: dict[str, str], status: int) -> None:
    response = asked(guard, **headers)
    assert response.status == status
    assert (response.text == "a page") == (status == 200)
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_that_could_write_passes(guard: Guard, method: str) -> None:
    response = asked(guard, method=method)
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")


OURS = {"origin": f"http://{HOME}", "sec_fetch_site": "same-origin"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OURS, 200),
        ({"origin": f"http://{HOME}"}, 200),  # over the network browsers leave the other header out
        (OURS | {"cookie": ""}, 401),
        ({}, 403),
        ({"sec_fetch_site": "same-origin"}, 403),
        ({"origin": "null"}, 403),
        (OURS | {"origin": "http://evil.example"}, 403),
        (OURS | {"origin": "http://127.0.0.1:8000"}, 403),
        (OURS | {"origin": f"https://{HOME}"}, 403),
        (OURS | {"sec_fetch_site": "same-site"}, 403),
        (OURS | {"sec_fetch_site": "cross-site"}, 403),
        (OURS | {"sec_fetch_site": "none"}, 403),
        (OURS | {"host": f"evil.example:{PORT}"}, 421),
    ],
)
def test_a_write_passes_only_from_a_page_of_ours(headers: dict[str, str], status: int) -> None:
    guard = Guard(PlainTextResponse("written"), Address("127.0.0.1", PORT), writes=True)
    response = asked(guard, "/write?id=1", "POST", **headers)
    assert (response.status, response.text == "written") == (status, status == 200)
    assert response.headers["x-frame-options"] == "DENY", "nobody clicks on it in a frame"


def test_where_writes_are_allowed_a_token_in_the_url_of_one_is_none_and_other_methods_are_refused() -> None:
    guard = Guard(PlainTextResponse("written"), Address("127.0.0.1", PORT), writes=True)
    assert asked(guard, f"/write?token={guard.token}", "POST", cookie="", **OURS).status == 401
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        response = asked(guard, method=method, **OURS)
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD, POST")


def test_on_all_addresses_a_number_is_a_name_and_a_name_of_others_is_none() -> None:
    address = Address("0.0.0.0", PORT)
    assert [address.names(f"{host}:{PORT}") for host in ("192.0.2.7", "[2001:db8::1]", "evil.example")] == [
        True,
        True,
        False,
    ]
    assert address.url == f"http://{HOME}/"
    assert not address.is_local and Address("127.0.0.1", PORT).is_local and Address("::1", PORT).is_local


NAMES = frozenset({"shop.orders", "a.b.c"})


@pytest.mark.parametrize(
    "sql",
    [
        "select * from shop.orders",
        'SELECT * FROM "Shop"."ORDERS" o JOIN lake.shop.orders USING (id)',
        "with t as (select 1 as x), u as (select * from t) select * from u, range(3)",
        "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) select * from t",
        "select unnest([1, 2]), (select count(*) from shop.orders where exists (select 1 from shop.orders))",
    ],
)
def test_sql_over_the_tables_of_the_lake_is_run(sql: str) -> None:
    _check(duckdb.connect(), sql, NAMES)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from '/etc/passwd'",
        'select * from "/etc/passwd"',
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/etc/*')",
        "select (select content from read_text('/etc/passwd'))",
        "with t as (select * from parquet_scan('x')) select * from t",
        "select * from shop.orders where exists (from read_blob('x'))",
        "select * from query('select 1')",
        "select * from query_table('x')",
        "select * from sqlite_scan('x', 'y')",
        "select * from postgres_query('x', 'delete from y returning *')",
        "select * from iceberg_scan('/tmp/x')",
        "select * from duckdb_secrets()",
        "select * from duckdb_databases",
        "select * from information_schema.tables",
        "select * from pg_catalog.pg_settings",
        "select * from __ducklake_metadata_lake.ducklake_metadata",
        "select * from other.shop.orders",
        "select current_setting('home_directory')",
        "select [getenv('HOME') for x in [1]]",
        "from (describe shop.orders)",
        "copy (select 1) to '/tmp/x'",
        "select 1; select * from read_text('x')",
        "attach 'x.db'",
        "install httpfs",
        "set threads = 1",
        "drop table shop.orders",
    ],
)
def test_sql_that_names_anything_else_is_refused(sql: str) -> None:
    with pytest.raises(UsageError, match="SQL"):
        _check(duckdb.connect(), sql, NAMES)
