"""Messages of other tools than Debezium in tables of both formats, replayed and checked against files."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest

from core.test_change_feeds import Feed
from core.test_upsert import same_key
from driftline.core.settings.row_key import ENVELOPES
from driftline.lake import Lake
from lake.test_keyed import held, put


@pytest.mark.parametrize("envelope", ENVELOPES[1:])
def test_two_files_of_messages(lake: Lake, table_name: str, tmp_path: Path, envelope: str) -> None:
    """The later file is taken first, and both have a message that cannot be read."""
    table = lake.table(table_name)
    feed = Feed(random.Random(9), "maxwell" if envelope == "auto" else envelope)
    messages = [message for _ in range(40) for message in feed.step()]
    files = [str(tmp_path / "2.jsonl"), str(tmp_path / "1.jsonl")]
    for file, part in zip(files, (messages[20:], messages[:25]), strict=True):
        put(Path(file), [*part, {"none": "of them"}])
        result = table.ingest(file, settings={"key": "id", "envelope": envelope})
        assert (result.rows_quarantined, result.hints) == (1, ())
    assert held(table) == {same_key(id_): row["n"] for id_, row in feed.rows.items()}
    verdict = table.verify(files, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, 2)
    assert verdict.found == len(feed.rows)


@pytest.mark.parametrize("envelope", ["debezium", "canal"])
def test_messages_that_count_as_they_arrive(
    lake: Lake, table_name: str, tmp_path: Path, envelope: str
) -> None:
    """They do not say where in the log they stood, as those that Flink writes."""
    table = lake.table(table_name)
    batches = [
        [("c", None, {"id": n, "v": "first"}) for n in (1, 2, 3)],
        [
            ("u", {"id": 1, "v": "first"}, {"id": 1, "v": "second"}),
            ("u", {"id": 1, "v": "second"}, {"id": 1, "v": "third"}),
            ("d", {"id": 2, "v": "first"}, None),
            ("u", {"id": 3, "v": "first"}, {"id": 4, "v": "moved"}),
        ],
        [("c", None, {"id": 2, "v": "written again"}), ("d", {"id": 1, "v": "third"}, None)],
    ]
    files = []
    for number, batch in enumerate(batches):
        messages = [without_place(envelope, *change) for change in batch]
        files.append(str(put(tmp_path / f"{number}.jsonl", messages)))
        settings = {"key": "id", "envelope": envelope, "order_by": "_arrival"} if number == 0 else None
        assert table.ingest(files[-1], settings=settings).rows_quarantined == 0
    rows = {row["id"]: row.asDict() for row in table.read().collect()}
    assert {id_: row["v"] for id_, row in rows.items()} == {2: "written again", 4: "moved"}
    assert "_order" not in rows[2]
    verdict = table.verify(files, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined, verdict.found) == (0, 0, 0, 2)


def test_messages_without_position_get_the_hint_at_arrival(lake: Lake, table_name: str) -> None:
    table, settings = lake.table(table_name), {"key": "id", "envelope": "debezium"}
    first = without_place("debezium", "c", None, {"id": 1, "v": "first"})
    waiting = table.ingest([first], settings=settings)
    (hint,) = waiting.hints
    assert waiting.rows_quarantined == 1 and "--order-by _arrival takes them as they come" in hint

    place = {"connector": "mysql", "file": "b.1", "pos": 1}
    table.ingest([{"op": "c", "after": {"id": 1, "v": "placed"}, "source": place}], settings=settings)
    (hint,) = table.ingest([first]).hints
    lake.alter(shlex.split(hint.partition("driftline alter ")[2])[0].removesuffix(","))
    result = table.ingest([without_place("debezium", "u", {"id": 1}, {"id": 1, "v": "second"})])
    assert (result.rows_quarantined, result.hints) == (0, ())
    rows = [row.asDict() for row in table.read().collect()]
    assert [row["v"] for row in rows] == ["second"] and "_order" not in rows[0]


def without_place(
    envelope: str, op: str, before: dict[str, object] | None, after: dict[str, object] | None
) -> dict[str, object]:
    """A message of a change, in one of the two envelopes that Flink writes."""
    if envelope == "debezium":
        return {"before": before, "after": after, "op": op, "source": {"db": "shop", "table": "people"}}
    kind = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
    return {
        "old": [before] if op == "u" else None,
        "data": [after or before],
        "type": kind,
        "pkNames": ["id"],
    }
