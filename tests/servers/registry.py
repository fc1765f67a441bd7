"""A schema registry as far as clients of Confluent's API ask for one: in this process, kept in memory."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from servers.http_server import started, stopped
from servers.process import Server

JSON = "application/vnd.schemaregistry.v1+json"


class Registry(Server):
    """``login``: NAME:PASSWORD that clients must have; ``tls``: it speaks HTTPS, by this. ``asked``: how often
    for each path; ``failures``: what is answered next, in place of an answer.
    """

    def __init__(self, login: str | None = None, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.login = login
        self.asked: Counter[str] = Counter()
        self.failures: list[int] = []
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port, self._tls = port, tls

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = started(_handler(self), self._port, self._tls)
        self._port = self._server.server_address[1]

    def stop(self) -> None:
        if self._server is not None:
            stopped(self._server)
            self._server = None

    def register(self, subject: str, schema: Any, kind: str = "AVRO", **references: tuple[str, int]) -> int:
        """The id of a schema, new or known. ``references``: subjects and versions, by the names in the schema,
        with ``__`` for a dot.
        """
        named = [
            {"name": name.replace("__", "."), "subject": of, "version": version}
            for name, (of, version) in references.items()
        ]
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.add(subject, {"schema": text, "schemaType": kind, "references": named})

    def add(self, subject: str, schema: Mapping[str, Any]) -> int:
        """The id of a schema as clients send it."""
        wanted = {"schemaType": "AVRO", "references": [], **schema}
        given = {key: wanted[key] for key in ("schema", "schemaType", "references")}
        with self._lock:
            number = next((n for n, one in self.schemas.items() if one == given), len(self.schemas) + 1)
            self.schemas[number] = given
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def answer(self, method: str, path: list[str], body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The API's answer; None: 404, with the reason from ``missing``."""
        match method, path:
            case "GET", ["schemas", "ids", number]:
                return _as_told(self.schemas.get(int(number)))
            case "GET", ["subjects", subject, "versions", version] if subject in self.subjects:
                versions = self.subjects[subject]
                place = len(versions) if version == "latest" else int(version)
                if not 0 < place <= len(versions):
                    return None
                return self._version(subject, place)
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self.add(subject, body)}
            case "POST", ["subjects", subject] if subject in self.subjects:
                number = self.add(subject, body)
                return self._version(subject, self.subjects[subject].index(number) + 1)
        return None

    def _version(self, subject: str, place: int) -> dict[str, Any]:
        number = self.subjects[subject][place - 1]
        return {"subject": subject, "version": place, "id": number, **(_as_told(self.schemas[number]) or {})}


def _as_told(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Of Avro the kind is not told, nor that there are no references."""
    if schema is None:
        return None
    return {k: v for k, v in schema.items() if v and (k, v) != ("schemaType", "AVRO")}


_MISSING = {"schemas": (40403, "Schema not found"), "subjects": (40401, "Subject not found")}


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            path = [unquote(step) for step in urlsplit(self.path).path.strip("/").split("/")]
            registry.asked["/".join(path)] += 1
            login = base64.b64encode((registry.login or "").encode()).decode()
            if registry.login and self.headers.get("Authorization") != f"Basic {login}":
                self._send(401, {"error_code": 401, "message": "Unauthorized"})
            elif registry.failures:
                code = registry.failures.pop(0)
                self._send(code, {"error_code": code, "message": HTTPStatus(code).phrase})
            elif (answer := registry.answer(self.command, path, body)) is not None:
                self._send(200, answer)
            else:
                code, message = _MISSING.get(path[0], (404, "Not found"))
                self._send(404, {"error_code": code, "message": message})

        def _send(self, status: int, answer: Mapping[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", JSON)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
