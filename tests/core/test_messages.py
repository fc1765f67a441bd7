"""A store's messages about new objects, and the files that a capture finds by them: each once, whatever becomes of messages."""

from __future__ import annotations

import json
import random
from urllib.parse import quote_plus

import pytest

from driftline.capture import finding
from driftline.capture.finding import Created, Finder, ListedFile, Message, MessageFiles, channel, created
from driftline.capture.folder import FileLog
from driftline.errors import DataError, SetupError, UsageError
from driftline.sources.listing import may_hold

SOURCE = "s3://bucket/in"


def event(path: str, size: int | None = 1, name: str = "ObjectCreated:Put") -> str:
    """S3's message about an object."""
    bucket, _, key = path.partition("://")[2].partition("/")
    about = {"key": quote_plus(key)} | ({} if size is None else {"size": size})
    record = {"eventName": name, "s3": {"bucket": {"name": bucket}, "object": about}}
    return json.dumps({"Records": [record]})


BRIDGE = {
    "source": "aws.s3",
    "detail-type": "Object Created",
    "detail": {"bucket": {"name": "b"}, "object": {"key": "a+b%20.json", "size": 3}},
}


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        (event("s3://b/ä b+%.json"), [Created("b", "ä b+%.json", 1)]),
        (event("s3://b/a", None, "s3:ObjectCreated:CompleteMultipartUpload"), [Created("b", "a", None)]),
        (event("s3://b/a", name="ObjectRemoved:Delete"), []),
        (json.dumps({"Type": "Notification", "Message": event("s3://b/a")}), [Created("b", "a", 1)]),
        (json.dumps({"MessageId": "1", "Body": json.dumps({"Message": event("s3://b/a")})}), [Created("b", "a", 1)]),
        (json.dumps(BRIDGE), [Created("b", "a+b%20.json", 3)]),
        (json.dumps({**BRIDGE, "detail-type": "Object Deleted"}), []),
        ('{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}', []),
        ('{"Records": [1, null, {"eventName": 1}, {"s3": {}}]}', []),
    ],
)  # fmt: skip
def test_objects_of_a_message(text, objects):
    assert created(text) == objects


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", "1", '{"Message": "x"}', '{"Records": 1}', "[" * 100_000,
     '{"Message": "{\\"Message\\": \\"{}\\"}"}'],
)  # fmt: skip
def test_what_is_no_message(text):
    with pytest.raises(ValueError):  # noqa: PT011  JSON's own, too
        created(text)


@pytest.mark.parametrize(
    ("source", "path", "fits"),
    [
        (SOURCE, "s3://bucket/in/a/b c.json", True),
        (SOURCE, "s3://bucket/in2/a.json", False),
        (SOURCE, "s3://other/in/a.json", False),
        (SOURCE, "s3://bucket/in/_a/b.json", False),
        (SOURCE, "s3://bucket/in/../../x.json", False),
        (SOURCE, "s3://bucket/in//x.json", False),
        ("s3://bucket", "s3://bucket/x.json", True),
        ("s3://bucket/in/*/x-?.json", "s3://bucket/in/1/x-2.json", True),
        ("s3://bucket/in/*/x-?.json", "s3://bucket/in/1/2/x-2.json", False),
        ("s3://bucket/in/a.json", "s3://bucket/in/a.json", True),
    ],
)
def test_paths_that_a_source_may_hold(source, path, fits):
    assert may_hold(source)(path) == fits


def test_a_file_of_messages_is_read_on(tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text("one\n\ntw")
    files = MessageFiles(str(path))

    def texts() -> list[str]:
        return [message.text for message in files.receive()]

    assert (texts(), texts()) == (["one"], [])
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert texts() == ["two", "three"]
    path.write_text("new\n")
    assert texts() == ["new"]
    (tmp_path / "other").write_text("other\n")
    assert [message.text for message in MessageFiles(str(tmp_path)).receive()] == ["new", "other"]


@pytest.mark.parametrize(
    "where", ["ftp://x/y", "https://me:hush@sqs.eu-west-1.amazonaws.com/1/q", "https://host"]
)
def test_what_is_no_queue(where):
    with pytest.raises(UsageError, match=r"notify: .* is not a queue") as raised:
        channel(where, {})
    assert "hush" not in str(raised.value)


def test_messages_that_are_not_there(tmp_path):
    with pytest.raises(SetupError, match=r"none\.jsonl: cannot read messages"):
        list(channel(str(tmp_path / "none.jsonl"), {}).receive())


# What a capture finds ---------------------------------------------------------------------------------------


class Store:
    """Objects by their paths, and messages that come again until they are deleted, as a queue gives them."""

    def __init__(self) -> None:
        self.objects: dict[str, ListedFile] = {}
        self.messages: dict[str, str] = {}
        self.listings = 0

    def put(self, path: str, size: int = 1) -> None:
        self.objects[path] = ListedFile(path, size, len(self.objects))

    def entry_of(self, path: str) -> ListedFile:
        if path not in self.objects:
            raise DataError(path)
        return self.objects[path]

    def listed(self, source: str, fmt: str | None, _: str | None) -> list[ListedFile]:
        self.listings += 1
        return [entry for path, entry in self.objects.items() if path.startswith(f"{source}/")]

    def send(self, text: str) -> None:
        self.messages[str(len(self.messages) + random.random())] = text

    def receive(self) -> list[Message]:
        return [Message(text, number, number) for number, text in self.messages.items()]

    def delete(self, receipts: list[str]) -> None:
        for receipt in receipts:
            del self.messages[receipt]


@pytest.fixture
def store(monkeypatch) -> Store:
    store = Store()
    monkeypatch.setattr(finding, "entry_of", store.entry_of)
    monkeypatch.setattr(finding, "listed", store.listed)
    return store


def log_of(store: Store, folder, every: float = 900.0) -> FileLog:
    log = FileLog(Finder(SOURCE, folder, store, every), folder)
    log.open()
    return log


def paths(log: FileLog) -> list[str]:
    return [entry.path for entries in log.lists.values() for entry in entries]


@pytest.mark.parametrize("seed", range(20))
def test_each_object_once_whatever_becomes_of_messages(seed, store, tmp_path):
    rng = random.Random(seed)
    log = log_of(store, tmp_path)
    objects = [f"{SOURCE}/{n % 3}/ä +%{n}.json" for n in range(60)]
    late = []
    for number, path in enumerate(objects):
        store.put(path)
        copies = rng.choices([0, 1, 2], [1, 8, 1])[0]
        late += [event(path)] * copies
        late.append(
            rng.choice(["garbage", event("s3://other/in/a.json"), event(f"{SOURCE}/gone{number}.json"), "{}"])
        )
        rng.shuffle(late)
        for _ in range(rng.randrange(4)):
            if late:
                store.send(late.pop())
        if rng.random() < 0.3:
            log.finish(log.next - rng.randrange(3))
            log.add()
        if rng.random() < 0.1:  # it died, and is started again
            log = log_of(store, tmp_path)
    for text in late:
        store.send(text)
    log.add()
    log.finish(log.next)
    log.let_go()
    told = len(paths(log))
    log_of(store, tmp_path, every=1e-9).add()
    log = log_of(store, tmp_path)

    assert sorted(paths(log)) == sorted(objects)
    assert told < len(objects) or seed  # some messages were lost, and the listing told
    assert store.messages == {}
    assert store.listings == 2


def test_a_message_stays_until_its_file_is_in(store, tmp_path):
    log = log_of(store, tmp_path)
    log.add()
    store.put(f"{SOURCE}/a.json")
    store.send(event(f"{SOURCE}/a.json"))
    store.send(event(f"{SOURCE}/gone.json"))
    log.add()

    assert paths(log) == [f"{SOURCE}/a.json"]
    assert list(store.messages.values()) == [event(f"{SOURCE}/a.json")]
    again = log_of(store, tmp_path)
    again.add()
    assert list(store.messages.values()) == [event(f"{SOURCE}/a.json")]
    again.finish(0)
    again.let_go()
    assert (store.messages, store.listings) == ({}, 1)


def test_an_object_that_was_written_again_is_told_of(store, tmp_path):
    store.put(f"{SOURCE}/a.json")
    log = log_of(store, tmp_path)
    log.add()
    log.finish(0)
    store.put(f"{SOURCE}/a.json", size=2)
    store.send(event(f"{SOURCE}/a.json", 2))

    log.add()
    assert list(log.changes.refused.values()) == [
        f"{SOURCE}/a.json changed since it was ingested: 1 byte then, 2 now"
    ]
    log.let_go()
    assert len(store.messages) == 1  # so that the next start says the same


def test_a_name_that_cannot_be_looked_at_is_found_by_a_listing(store, tmp_path, monkeypatch):
    log = log_of(store, tmp_path)
    log.add()

    def refuse(path: str) -> ListedFile:
        raise SetupError(path)

    monkeypatch.setattr(finding, "entry_of", refuse)
    store.put(f"{SOURCE}/a.json")
    store.send(event(f"{SOURCE}/a.json"))
    log.add()

    assert (paths(log), store.listings) == ([f"{SOURCE}/a.json"], 2)
