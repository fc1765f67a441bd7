"""A queue that speaks SQS: what is received, deleted, and said where it cannot be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driftline.capture import finding
from driftline.errors import SetupError
from driftline.runtime import aws
from servers.queue import Queue

KEYS = {"access_key": "key", "secret_key": "hush", "session_token": "hush-hush", "region": "us-east-1"}


@pytest.fixture
def queue(monkeypatch) -> Iterator[Queue]:
    monkeypatch.setattr(finding, "_WAIT", 0)
    with Queue() as running:
        yield running


def texts(channel: finding.Channel) -> set[str]:
    return {message.text for message in channel.receive()}


def test_messages_come_until_they_are_deleted(queue):
    queue.hidden = 0
    queue.send(*map(str, range(25)))
    channel = finding.channel(queue.url, KEYS)
    first = list(channel.receive())
    channel.delete([message.receipt for message in first if int(message.text) < 20])

    assert {message.text for message in first} == set(map(str, range(10)))  # the first ones came again
    assert set(queue.messages) == set(map(str, range(10, 25)))
    queue.hidden = 30
    assert texts(finding.channel(queue.url, KEYS)) == set(map(str, range(10, 25)))
    assert texts(finding.channel(queue.url, KEYS)) == set()
    assert queue.credentials == {"key"}


def test_a_queue_that_is_not_there_is_one_sentence(queue):
    with pytest.raises(SetupError, match=r"/other: .*there is no such queue") as raised:
        list(finding.channel(queue.url.replace("objects", "other"), KEYS).receive())
    assert "hush" not in str(raised.value)


def test_a_queue_that_is_away_is_one_sentence(queue, monkeypatch):
    monkeypatch.setattr(aws, "_ATTEMPTS", 1)
    channel = finding.channel(queue.url, KEYS)
    queue.stop()
    with pytest.raises(SetupError, match="/objects: Could not connect to the endpoint URL"):
        list(channel.receive())


def test_a_queue_that_is_busy_is_asked_again(queue):
    queue.send("a")
    queue.failures = [503]
    assert texts(finding.channel(queue.url, KEYS)) == {"a"}


@pytest.mark.parametrize(
    ("status", "asked", "sentence"), [(403, 1, "may not be received"), (503, 2, "the queue is too busy")]
)
def test_a_queue_that_refuses_is_one_sentence(status, asked, sentence, queue, monkeypatch):
    monkeypatch.setattr(aws, "_ATTEMPTS", 2)
    queue.failures = [status] * 5
    channel = finding.channel(queue.url, KEYS)
    with pytest.raises(SetupError, match=f"/objects: .*{sentence}") as raised:
        list(channel.receive())
    assert "hush" not in str(raised.value)
    assert len(queue.failures) == 5 - asked
