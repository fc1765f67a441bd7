"""A registry behind TLS that wants certificates of its clients: what it is told, and what one sentence says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.errors import SetupError, UsageError
from driftline.readers.kafka import registry as source
from servers.certificates import Authority, Certificate
from servers.registry import Registry

PASSWORD = "k3y-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Certificate:
    return authority.issue("carol", PASSWORD)


@pytest.fixture(scope="module")
def registry(authority: Authority) -> Iterator[Registry]:
    with Registry(tls=authority.context("127.0.0.1")) as running:
        running.register("s", {"type": "string"})
        yield running


def settings(registry: Registry, authority: Authority, issued: Certificate) -> dict[str, str]:
    return {
        "url": registry.url,
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(issued.file),
        "ssl.key.location": str(issued.key),
        "ssl.key.password": issued.password,
    }


def test_both_sides_show_certificates(registry: Registry, authority: Authority, issued: Certificate) -> None:
    client = source.Registry.of(settings(registry, authority, issued))
    assert client.schema(1).text == '{"type": "string"}'


@pytest.mark.parametrize(
    ("left_out", "sentence"),
    [
        ("ssl.ca.location", "its certificate does not count: "),
        ("ssl.certificate.location", "no TLS with it: .*certificate.required"),
    ],
)
def test_one_that_is_not_trusted_is_told_at_once(
    left_out: str, sentence: str, registry: Registry, authority: Authority, issued: Certificate
) -> None:
    given = settings(registry, authority, issued)
    client = source.Registry.of({key: value for key, value in given.items() if key != left_out})
    start = time.monotonic()
    with pytest.raises(SetupError, match=sentence) as caught:
        client.schema(1)
    assert time.monotonic() - start < 5  # what passes is waited for, for a quarter of a minute
    assert PASSWORD not in str(caught.value)


def test_another_authority_s_word_does_not_count(
    registry: Registry, authority: Authority, issued: Certificate, tmp_path: Path
) -> None:
    given = settings(registry, authority, issued) | {"ssl.ca.location": str(Authority(tmp_path).file)}
    with pytest.raises(SetupError, match=r"returned no schema: its certificate does not count: self-signed"):
        source.Registry.of(given).schema(1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssl.key.password": "wr0ng"},
        {"ssl.key.password": ""},
        {"ssl.key.location": "nowhere.key"},
        {"ssl.certificate.location": "nowhere.pem"},
    ],
)
def test_a_key_that_does_not_open_is_told_before_anything_is_asked(
    wrong: dict[str, str], registry: Registry, authority: Authority, issued: Certificate
) -> None:
    with pytest.raises(UsageError, match="no certificate, or its key cannot be decrypted") as caught:
        source.Registry.of(settings(registry, authority, issued) | wrong)
    assert "wr0ng" not in str(caught.value) and PASSWORD not in str(caught.value)


def test_an_authority_that_is_no_certificate(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no PEM")
    with pytest.raises(UsageError, match=r"ssl\.ca\.location: this is not a PEM certificate"):
        source.Registry.of({"url": "https://h", "ssl.ca.location": str(tmp_path / "ca.pem")})
