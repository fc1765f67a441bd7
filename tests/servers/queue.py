"""A queue that speaks as much of SQS as receiving and deleting takes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock
from typing import Any

from servers.http_server import started, stopped
from servers.process import Server

_FAILURES = {
    403: ("AccessDenied", "it may not be received from this queue"),
    503: ("ServiceUnavailable", "the queue is too busy"),
}


@dataclass
class _Held:
    body: str
    visible: float = 0.0  # since when it may be received, as `time.monotonic` tells it
    receipts: set[str] = field(default_factory=set)


class Queue(Server):
    """Messages come in any order, and again ``hidden`` seconds after they were received, until they are deleted.
    ``failures``: statuses that are answered next, in place of an answer.
    """

    def __init__(self, hidden: float = 30.0) -> None:
        self.hidden = hidden
        self.messages: dict[str, _Held] = {}
        self.failures: list[int] = []
        self.credentials: set[str] = set()  # which keys requests were signed with
        self._numbers, self._lock = count(), Lock()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}/000000000000/objects"

    def send(self, *bodies: str) -> None:
        with self._lock:
            self.messages |= {str(next(self._numbers)): _Held(body) for body in bodies}

    def start(self) -> None:
        queue = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                queue.credentials.add(self.headers["Authorization"].split("Credential=")[1].split("/")[0])
                action = self.headers["X-Amz-Target"].removeprefix("AmazonSQS.")
                if queue.failures:
                    status = queue.failures.pop(0)
                    name, message = _FAILURES[status]
                    answer = {"__type": f"com.amazonaws.sqs#{name}", "message": message}
                elif given["QueueUrl"] == queue.url:
                    status, answer = 200, queue._answer(action, given)
                else:
                    kind = "com.amazonaws.sqs#QueueDoesNotExist"
                    status, answer = 400, {"__type": kind, "message": "there is no such queue"}
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = started(Handler)

    def stop(self) -> None:
        if self._server is not None:
            stopped(self._server)
            self._server = None

    def _answer(self, action: str, given: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            match action:
                case "ReceiveMessage":
                    return {"Messages": self._received(given["MaxNumberOfMessages"])}
                case "DeleteMessageBatch":
                    deleted = {entry["ReceiptHandle"] for entry in given["Entries"]}
                    self.messages = {
                        id_: m for id_, m in self.messages.items() if m.receipts.isdisjoint(deleted)
                    }
                    return {"Successful": [{"Id": entry["Id"]} for entry in given["Entries"]], "Failed": []}
                case _:
                    raise AssertionError(action)

    def _received(self, most: int) -> list[dict[str, str]]:
        now = time.monotonic()
        given = []
        for id_, message in self.messages.items():
            if message.visible <= now and len(given) < most:
                receipt = f"{id_}-{next(self._numbers)}"
                message.receipts.add(receipt)
                message.visible = now + self.hidden
                given.append({"MessageId": id_, "ReceiptHandle": receipt, "Body": message.body})
        return given
