"""Statistics made up for tests of what shows them."""

from driftline.core.columns.replanning import ColumnAt, ReplannedField
from driftline.core.columns.statistics import CommittedBatch, CountedBatch, Numbers, SeenIn
from driftline.core.schema.types import DOUBLE, LONG, STRING, Field, List, Struct, Type
from driftline.operations.replan import CountedField, Replan
from driftline.stats.model import (
    ChangeText,
    ColumnStatistics,
    DriftedField,
    Event,
    ExpectationOverTime,
    Stats,
    TypeShare,
    WaitingRecords,
)

AT = 1_772_438_400_000  # 2026-03-02 08:00 UTC
HOSTILE = "<script>window.hit=1</script>"
QUOTES = "\"'><img src=x onerror=window.hit=2>"


def column(i: int, *path: str, type_: Type = LONG, key: str | None = None, **numbers) -> ColumnStatistics:
    return ColumnStatistics(path, i, type_, key, Numbers(of=100, **numbers))


def made(columns, drifted=(), events=(), waiting=(), **more) -> Stats:
    given = {
        "table": "shop.orders", "records": 100, "batches": 2, "leaves": sum(not c.nested for c in columns),
        "quarantined": sum(w.records for w in waiting), "recent": (CommittedBatch(AT, "b1" * 16, 60), CommittedBatch(AT + 60_000, "b2" * 16, 40)),
    }  # fmt: skip
    given["known"] = given["recent"]
    return Stats(
        schema=1, at=AT, exact=False, columns=tuple(columns), drifted=tuple(drifted), events=tuple(events),
        waiting=tuple(waiting), **(given | more),
    )  # fmt: skip


# Of a day before, of a batch, and of one that had none.
EXPECTED = ExpectationOverTime(
    "price", "price >= 0", "quarantine", 54, 1060,
    (CountedBatch(AT - 86_400_000, "", 1000, 50), CountedBatch(AT, "b1" * 16, 60, 4), CountedBatch(AT + 60_000, "b2" * 16, 40, 0)),
)  # fmt: skip


def small() -> Stats:
    """Two columns of one field, and one beside."""
    seen = SeenIn(AT, "b1" * 16)
    columns = [
        column(1, "id", values=100, low=1, high=100, first=seen, last=seen, trend=(1.0, 1.0)),
        column(2, "price", values=70, trend=(1.0, 0.25)),
        column(3, "price_string", type_=STRING, key="price", values=30, low="1 EUR", high="9 EUR", trend=(0.0, 0.75)),
        column(4, "tags", type_=List(STRING)),
    ]  # fmt: skip
    parts = (
        TypeShare((("price",),), (LONG,), 70, share=0.7, sample="12", first=seen),
        TypeShare((("price_string",),), (STRING,), 30, share=0.3, sample="1 EUR", first=seen, rule="sibling", seen_in="in/2.jsonl:7"),
    )  # fmt: skip
    step = ChangeText(
        "price_string string", "add", "price_string", "price", "sibling", "in/2.jsonl:7", "1 EUR"
    )
    events = [
        Event(AT, 0, "batch", "b1" * 16, (ChangeText("id long", "add", "id"),), makes_table=True),
        Event(AT + 60_000, 1, "batch", "b2" * 16, (), (step,)),
    ]
    return made(
        columns,
        [DriftedField(("price",), parts, periods={0: (60, 0), 1: (10, 30)})],
        events,
        [WaitingRecords("invalid JSON", 3, '{"id": ', "in/2.jsonl:9", "2026-03-02T08:01:00Z")],
        refused={"invalid JSON": (CommittedBatch(AT + 59_000, "b2" * 16, 3),)},
    )


def hostile() -> Stats:
    """Markup wherever data can stand."""
    columns = [
        column(1, HOSTILE, values=1, low=QUOTES, high=HOSTILE, sample=QUOTES),
        column(2, QUOTES, key=HOSTILE),
    ]
    part = TypeShare(
        ((HOSTILE,), (QUOTES,)), (STRING,), 1, share=1.0, sample=HOSTILE, rule=QUOTES, seen_in=f"in/{HOSTILE}"
    )
    step = ChangeText(HOSTILE, "add", HOSTILE, QUOTES, HOSTILE, QUOTES, HOSTILE)
    event = Event(AT, 0, "alter", QUOTES, (step,), (step,))
    waiting = WaitingRecords(HOSTILE, 1, QUOTES, HOSTILE, QUOTES)
    expected = ExpectationOverTime(HOSTILE, QUOTES, "warn", 1, 1, (CountedBatch(AT, HOSTILE, 1, 1),))
    return made(
        columns,
        [DriftedField((HOSTILE,), (part,), periods={0: (1,), 1: (0,)})],
        [event],
        [waiting],
        table=HOSTILE,
        refused={HOSTILE: (CommittedBatch(AT, QUOTES, 1),)},
        expectations=(expected,),
    )


def wide(groups: int = 50, each: int = 100) -> Stats:
    """Structs of many columns; every tenth of the first struct has a sibling by its mark."""
    columns = []
    inner = Struct((Field("x", LONG, 1),))
    for g in range(groups):
        columns.append(column(len(columns) + 1, f"group_{g:02}", type_=inner, values=90, at_least=True))
        for i in range(each):
            drifts = g == 0 and i % 10 == 1
            columns.append(
                column(
                    len(columns) + 1, f"group_{g:02}", f"field_{i:03}_string" if drifts else f"field_{i:03}",
                    type_=STRING if drifts else LONG, key=f"field_{i - 1:03}" if drifts else None,
                    values=0 if i == 5 else 50, low=i, high=1000, trend=(0.5,) * 12,
                )
            )  # fmt: skip
    by_path = [("group_00", f"field_{i:03}") for i in range(0, each, 10)]
    drifted = [
        DriftedField(path, (TypeShare((path,), (LONG,), 40, share=0.8), TypeShare(((path[0], f"field_{int(path[1][-3:]) + 1:03}_string"),), (STRING,), 10, share=0.2)))
        for path in by_path
    ]  # fmt: skip
    return made(columns, drifted)


def replan(name: str = "shop.orders", *, fields: int = 1, dry_run: bool = True) -> Replan:
    """A replan of fields of two columns with values in the rest, one that stays, and a note."""
    now = (ColumnAt((name, "size"), LONG), ColumnAt((name, "size_double"), DOUBLE))
    other = CountedField(
        ReplannedField((name, "size"), now, (ColumnAt((name, "size"), DOUBLE),), f"why {name}"), (2, 3), 1
    )
    stays = CountedField(
        ReplannedField((name,), (), (ColumnAt((name,), List(STRING)),), "it is fixed"), (), 4
    )
    return Replan(
        name, dry_run, 3, 1, (other,) * fields, (stays,), (f"a note on {name}",), 0 if dry_run else 1
    )
