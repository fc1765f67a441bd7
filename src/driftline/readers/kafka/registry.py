"""A client of schema registries with Confluent's API."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, OpenerDirector, Request, build_opener

from driftline.config import nearest, redacted
from driftline.errors import SetupError, UsageError
from driftline.runtime.stores import RedirectError, Redirects, passes

_SETTINGS = (
    "url", "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location",
    "ssl.key.location", "ssl.key.password",
)  # fmt: skip
_PAUSES = (0.5, 1, 2, 4, 8)  # seconds before each further try
_PATIENCE = 10  # seconds for an answer
_LONGEST = 2**26  # bytes of a schema
# What Confluent's API says of a subject, a version, an id that is not there
_UNKNOWN = (40401, 40402, 40403)


class NoSchemaError(Exception):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as the registry has it.

    Attributes:
        kind: AVRO, PROTOBUF or JSON.
        references: schemas that it names, by those names, each after its own.
    """

    kind: str
    text: str
    references: Mapping[str, Registered] = field(default_factory=dict)


@dataclass(frozen=True)
class Registry:
    """A registry, with the settings of `confluent_kafka.schema_registry`; it is sent to tasks."""

    settings: Mapping[str, str] = field(repr=False)

    def __hash__(self) -> int:
        return hash(frozenset(self.settings.items()))

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Registry:
        """The registry that settings describe. Raises UsageError for invalid ones.

        The authority's certificate is read here; other files have to be where the tasks run, too.
        """
        for key in settings:
            if key not in _SETTINGS:
                raise UsageError(f"[registry] has no setting {key!r}", hint=nearest(key, _SETTINGS))
        url = settings.get("url", "")
        if not all(_is_web(one.strip()) for one in url.split(",")):
            raise UsageError(
                f"{redacted(url)!r} is not a registry URL", hint="write --registry https://HOST:PORT"
            )
        if file := settings.get("ssl.ca.location"):
            try:
                settings = {**settings, "ssl.ca.pem": Path(file).expanduser().read_text(encoding="ascii")}
            except (OSError, ValueError) as error:
                raise UsageError(f"[registry] ssl.ca.location: {file}: cannot be read: {error}") from error
        registry = cls(settings)
        _ = registry._opener  # which says what is wrong with certificates
        return registry

    def schema(self, number: int) -> Registered:
        """The schema of an id.

        Raises NoSchemaError; SetupError where the registry does not answer, after half a minute of tries.
        """
        return self._registered(self._get(f"/schemas/ids/{number}"), frozenset())

    def _registered(self, answer: Mapping[str, Any], above: frozenset[str]) -> Registered:
        references: dict[str, Registered] = {}
        for one in answer.get("references") or ():
            subject, version = str(one["subject"]), str(one["version"])
            place = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
            if place in above:
                raise NoSchemaError(f"{subject} refers to itself")
            inner = self._registered(self._get(place), above | {place})
            references |= inner.references
            references[str(one["name"])] = inner
        return Registered(answer.get("schemaType") or "AVRO", str(answer["schema"]), references)

    def _get(self, place: str) -> dict[str, Any]:
        urls = [url.strip() for url in self.settings["url"].split(",")]
        for turn, pause in enumerate((*_PAUSES, None)):
            # The next of several registries with each try, as one of them may be away.
            url = urls[turn % len(urls)]
            try:
                return self._answer(url, place)
            except HTTPError as error:
                failure = self._judged(url, place, error)
            except (URLError, OSError, HTTPException) as error:
                cause = error.reason if isinstance(error, URLError) else error
                if distrust := _distrust(cause):
                    raise self._error(url, distrust) from error
                failure = str(cause or type(cause).__name__)
            except RedirectError as error:
                raise self._error(url, str(error)) from error
            except ValueError as error:
                raise self._error(url, f"its answer is no JSON: {error}") from error
            if pause is not None:
                time.sleep(pause)
        raise self._error(url, failure)

    def _answer(self, url: str, place: str) -> dict[str, Any]:
        parts = urlsplit(url)
        bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
        request = Request(f"{bare.rstrip('/')}{place}")  # noqa: S310  http and https alone, by `of`
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if login := self._login(parts.username, parts.password):
            request.add_unredirected_header("Authorization", login)  # it must not reach another host
        with self._opener.open(request, timeout=_PATIENCE) as response:
            answer = json.loads(response.read(_LONGEST))
        if not isinstance(answer, dict) or "schema" not in answer:
            raise ValueError("it has no schema")
        return answer

    def _judged(self, url: str, place: str, error: HTTPError) -> str:
        """The reason in the registry's answer; raises if another try would not help."""
        with error:
            try:
                answer = json.loads(error.read(_LONGEST))
            except (ValueError, OSError, HTTPException):
                answer = {}
        answer = answer if isinstance(answer, dict) else {}
        reason = f"{error.code} {answer.get('message') or error.reason}"
        # A plain 404 may be a proxy's: only the registry's own codes say that the schema is not there.
        if error.code == HTTPStatus.NOT_FOUND and answer.get("error_code") in _UNKNOWN:
            raise NoSchemaError(str(answer.get("message") or place))
        if not passes(error.code):
            raise self._error(url, reason)
        return reason

    def _error(self, url: str, reason: str) -> SetupError:
        return SetupError(
            redacted(f"the schema registry {url} returned no schema: {reason}", self.settings),
            hint="see [registry] and --registry; then restart the capture: it resumes where it was",
        )

    def _login(self, user: str | None, password: str | None) -> str:
        if token := self.settings.get("bearer.auth.token"):
            return f"Bearer {token}"
        named = f"{user}:{password or ''}" if user else ""
        pair = self.settings.get("basic.auth.user.info") or named
        return f"Basic {base64.b64encode(pair.encode()).decode()}" if pair else ""

    @cached_property
    def _opener(self) -> OpenerDirector:
        try:
            context = ssl.create_default_context(cadata=self.settings.get("ssl.ca.pem"))
        except ssl.SSLError as error:
            raise UsageError("[registry] ssl.ca.location: this is not a PEM certificate") from error
        if file := self.settings.get("ssl.certificate.location"):
            key = self.settings.get("ssl.key.location", file)
            # Without a password it would ask the terminal for one.
            password = self.settings.get("ssl.key.password", "")
            try:
                context.load_cert_chain(Path(file).expanduser(), Path(key).expanduser(), password)
            except OSError as error:
                raise UsageError(
                    f"[registry] ssl.certificate.location: {file}: no certificate, or its key cannot be decrypted",
                    hint="see ssl.key.location and ssl.key.password, too; both files are PEM",
                ) from error
        # The client of confluent-kafka would bring librdkafka, httpx and authlib.
        return build_opener(HTTPSHandler(context=context), Redirects)

    def __reduce__(self) -> Any:
        return Registry, (self.settings,)  # a connection stays where it is


def _distrust(error: object) -> str:
    """The reason that TLS failed for good, by a certificate or a setting of one side; "" for other errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not count: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return f"no TLS with it: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return ""


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
