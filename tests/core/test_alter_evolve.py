"""Changes over definitions: what holds of any sequence of them. The single rules are in tests/alter."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.shapes import schema
from driftline.core.changes import (
    AddColumn,
    AddPartitionField,
    ColumnChange,
    DropColumn,
    MoveColumn,
    Position,
    Refused,
    RelaxColumn,
    RenameColumn,
    ReplaceColumns,
    SetDefault,
    SetDoc,
    SetIdentifiers,
    SetSortOrder,
    SortTerm,
    Term,
    WidenColumn,
    apply,
    diff,
    in_words,
    stages,
)
from driftline.core.changes.evolve import evolved as evolved_with
from driftline.core.history.restoring import restoration
from driftline.core.schema.definition import Definition
from driftline.core.schema.naming import caseless, mark, marked_key
from driftline.core.schema.types import (
    DOUBLE,
    INT,
    LONG,
    STRING,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    decimal,
)
from driftline.core.settings.table import TableSettings
from driftline.operations.alter import notes

START = schema(
    "a: int!required, b: float!required, s: {x: int!required, y: string, t: {u: decimal(5, 2)}}!required, "
    "l: {p: int, q: string}[1]!elements, m: map<string, {v: int, w: date}>!values"
)
NAMES = "abcdexyz"
TYPES: list[Type] = [
    INT,
    STRING,
    Struct((Field("p", INT), Field("q", LONG))),
    List(Struct((Field("x", INT),))),
    Map(STRING, INT),
]
WIDER = {"int": LONG, "float": DOUBLE, "decimal": decimal(9, 2)}


def defined(of: Schema) -> Definition:
    return Definition(of, format_version=3, last_column=of.highest_id())


def change(of: Schema, dice: Random) -> ColumnChange:
    """A change that has a chance."""
    fields = list(of.walk())
    structs = [(), *(path for path, f in fields if isinstance(f.type, Struct))]
    path, f = dice.choice(fields)
    siblings = [p[-1] for p, _ in fields if p[:-1] == path[:-1]]
    match dice.randrange(8):
        case 0:
            return AddColumn(dice.choice(structs), Field(dice.choice(NAMES), dice.choice(TYPES)))
        case 1:
            return DropColumn(path)
        case 2:
            return RenameColumn(path, dice.choice(NAMES))
        case 3:
            return MoveColumn(path, Position(dice.choice([None, *siblings])))
        case 4:
            return WidenColumn(path, WIDER.get(getattr(f.type, "name", ""), LONG))
        case 5:
            return RelaxColumn(path)
        case 6:
            return SetDoc(path, dice.choice([None, "one", "two"]))
        case _:
            return SetDefault(path, dice.randrange(10))


def evolved(seed: int) -> tuple[Schema, list[ColumnChange], Schema]:
    """A schema, changes that are made in one call, and the schema after them."""
    dice = Random(seed)
    before, made = defined(START), list[ColumnChange]()
    for _ in range(dice.randrange(4)):
        before = _evolve(before, [change(before.schema, dice)])
    now = before
    while not made or dice.randrange(5):
        made.append(change(now.schema, dice))
        try:
            now = evolve(before, made)
        except Refused:
            made.pop()
    return before.schema, made, now.schema


CASES = st.integers(0, 2**32).map(evolved)


def evolve(before: Definition, changes: list[ColumnChange], **options: bool) -> Definition:
    """The definition after the changes."""
    return evolved_with(before, changes, **options)[0]


def _evolve(of: Definition, changes: list[ColumnChange]) -> Definition:
    try:
        return evolve(of, changes)
    except Refused:
        return of


@settings(deadline=None)
@given(CASES)
def test_ids_are_unique_and_what_stays_keeps_its_own(case: tuple[Schema, list[ColumnChange], Schema]) -> None:
    before, _, after = case
    old = {f.id: f for _, f in before.walk()}
    ids = [f.id for _, f in after.walk()]
    assert len(set(ids)) == len(ids)
    for _, f in after.walk():
        if f.id in old:
            assert type(f.type) is type(old[f.id].type)
        else:
            assert f.id > before.highest_id()


@settings(deadline=None)
@given(CASES)
def test_names_in_a_struct_are_apart(case: tuple[Schema, list[ColumnChange], Schema]) -> None:
    for struct in (case[2].struct, *(f.type for _, f in case[2].walk())):
        names = [caseless(f.name) for f in children(struct)]
        assert len(set(names)) == len(names)


@settings(deadline=None)
@given(CASES)
def test_a_renamed_column_still_has_its_key(case: tuple[Schema, list[ColumnChange], Schema]) -> None:
    before, made, after = case
    assume(not any(isinstance(c, AddColumn) for c in made))
    keys = {f.id: _key(f) for _, f in before.walk()}
    assert all(_key(f) == keys[f.id] for _, f in after.walk())


def _key(f: Field) -> str:
    key = marked_key(f.doc)
    return f.name if key is None else key


@settings(deadline=None)
@given(CASES)
def test_the_difference_leads_from_one_to_the_other(
    case: tuple[Schema, list[ColumnChange], Schema],
) -> None:
    before, _, after = case
    reached = before
    for start, end in stages(before, after):
        assert start == reached or start.struct == reached.struct
        reached = end
        made = apply(start, diff(start, end))
        assert _shape(made.struct) == _shape(end.struct)
    assert reached == after
    assert diff(after, after) == ()


def _shape(type_: Type) -> object:
    """A type without ids and docs."""
    return (
        type(type_),
        getattr(type_, "args", None),
        [(f.name, f.required, _shape(f.type)) for f in children(type_)],
    )


@settings(deadline=None)
@given(CASES)
def test_what_is_undone_is_as_it_was(case: tuple[Schema, list[ColumnChange], Schema]) -> None:
    before, _, after = case
    plan = restoration(defined(after), defined(before), [before, after])
    back = {f.id: (path, f) for path, f in plan.after.schema.walk()}
    types = {f.id: f.type for _, f in after.walk()}
    assert [path for path, _ in before.walk()] == [path for path, _ in plan.after.schema.walk()]
    for path, f in before.walk():
        at, now = back[f.id]
        assert at == path and now.doc == f.doc
        if not children(f.type):
            assert now.type == types.get(f.id, f.type), "as wide as it became"
        assert f.required or not now.required
    again = restoration(plan.after, defined(after), [before, after, plan.after.schema])
    assert _names(again.after.schema) == _names(after)


def _names(of: Schema) -> list[tuple[Path, int]]:
    return [(path, f.id) for path, f in of.walk()]


def test_a_swap_through_a_third_name_or_none() -> None:
    for changes in (
        [RenameColumn(("a",), "b"), RenameColumn(("b",), "a")],
        [RenameColumn(("a",), "tmp"), RenameColumn(("b",), "a"), RenameColumn(("tmp",), "b")],
    ):
        after = evolve(defined(START), changes)
        assert [(f.name, f.id) for f in after.schema.struct.fields][:2] == [("b", 1), ("a", 2)]
        assert apply(START, diff(START, after.schema)) == after.schema


def test_a_name_that_another_gives_up_takes_two_stages() -> None:
    renamed = RenameColumn(("s", "x"), "z")
    after = evolve(defined(START), [renamed, AddColumn(("s",), Field("x", STRING))]).schema
    (start, middle), (again, end) = stages(START, after)
    assert (start, again, end) == (START, middle, after)
    assert [c.action for c in diff(start, middle)] == ["comment", "rename"]
    assert [c.action for c in diff(middle, end)] == ["add"]
    dropped = evolve(defined(START), [DropColumn(("s", "x")), AddColumn(("s",), Field("x", STRING))]).schema
    assert stages(START, dropped) == [(START, dropped)]


def test_hidden_and_back() -> None:
    before = defined(START)
    after = evolve(
        before,
        [
            DropColumn(("s",)),
            DropColumn(("l", "element", "p")),
            AddColumn((), Field("n", Struct((Field("o", INT),)))),
        ],
    )
    plan = restoration(after, before, [before.schema, after.schema])
    assert plan.hidden == (("n",),)
    assert plan.back == (("s",), ("l", "element", "p"))


def test_a_widened_or_relaxed_column_stays() -> None:
    before = defined(START)
    after = evolve(before, [WidenColumn(("a",), LONG), RelaxColumn(("b",))])
    plan = restoration(after, before, [before.schema, after.schema])
    assert plan.changes_nothing
    assert plan.stays == (
        "a stays long: files may hold values that int cannot",
        "b stays optional: existing rows may be null",
    )


def test_a_column_widened_and_then_dropped_comes_back_wide() -> None:
    first = defined(START)
    wide = evolve(first, [WidenColumn(("a",), LONG)])
    gone = evolve(wide, [DropColumn(("a",))])
    plan = restoration(gone, first, [first.schema, wide.schema, gone.schema])
    assert plan.after.schema.struct.fields[0].type == LONG


def test_a_required_column_that_was_dropped_comes_back_optional() -> None:
    first = defined(START)
    gone = evolve(first, [DropColumn(("b",))])
    (found,) = [
        f for f in restoration(gone, first, [first.schema]).after.schema.struct.fields if f.name == "b"
    ]
    assert not found.required


def test_which_change_is_refused() -> None:
    for changes, step in (
        ([RenameColumn(("a",), "b"), SetDoc(("a",), "x")], 1),
        ([RenameColumn(("a",), "c"), RenameColumn(("b",), "C"), SetDoc(("s",), "x")], 1),
        ([AddPartitionField(Term(("a",))), DropColumn(("a",))], 1),
        ([SetSortOrder((SortTerm(Term(("a",))),)), SetDoc(("a",), "x"), DropColumn(("a",))], 2),
    ):
        with pytest.raises(Refused) as caught:
            evolve(defined(START), changes)  # type: ignore[arg-type]
        assert caught.value.step == step


def test_the_layout_follows_a_rename() -> None:
    after = evolve(defined(START), [AddPartitionField(Term(("a",))), RenameColumn(("a",), "z")])
    (found,) = after.partition
    assert (found.name, after.path_of(found.source)) == ("a", ("z",))


def test_names_in_any_letter_case_where_one_is_meant() -> None:
    """Engines refuse such a table; those that tell letter cases apart make it all the same."""
    both = defined(schema("id: int, ID: int, s: {Key: int, kEY: int, other: int}"))
    assert evolve(both, [DropColumn(("ID",))]).schema.struct.get("id") is not None
    assert evolve(both, [DropColumn(("S", "kEY"))]).schema.find(("s", "Key")) is not None
    for change, named in (
        (DropColumn(("Id",)), "Id could be id and ID"),
        (DropColumn(("s", "key"), if_exists=True), "s.key could be s.Key and s.kEY"),
        (AddPartitionField(Term(("iD",))), "iD could be id and ID"),
        (SetSortOrder((SortTerm(Term(("s", "KEY"))),)), "s.KEY could be s.Key and s.kEY"),
        (MoveColumn(("s", "other"), Position("key")), "s.key could be s.Key and s.kEY"),
        (SetIdentifiers((("Id",),)), "Id could be id and ID"),
        (WidenColumn(("s",), Struct((Field("KEY", INT),))), "s.KEY could be s.Key and s.kEY"),
    ):
        with pytest.raises(Refused) as caught:
            evolve(both, [change])
        assert caught.value.error.message == named


def test_a_whole_type_is_told_as_what_it_comes_to() -> None:
    wanted = Struct(
        (Field("X", LONG), Field("n", Primitive("int16")), Field("t", Struct((Field("u", decimal(5, 2)),))))
    )
    _, made = evolved_with(defined(START), [WidenColumn(("S",), wanted)])
    assert [in_words(change) for change in made] == ["s.x is now long", "new s.n int", "s.y dropped"]


@settings(deadline=None)
@given(st.permutations(["a", "b", "s", "l", "m", "new", "other"]), st.integers(1, 7))
def test_columns_are_replaced_in_the_order_given(names: list[str], n: int) -> None:
    there = {f.name: f for f in START.struct.fields}
    wanted = tuple(there.get(name, Field(name, INT)) for name in names[:n])
    after, made = evolved_with(
        defined(START), [ReplaceColumns(tuple(replace(f, required=False) for f in wanted))]
    )
    assert [f.name for f in after.schema.struct.fields] == names[:n]
    for f in after.schema.struct.fields:
        assert f == there.get(f.name, f), "with its id, type and all"
    assert {c.path for c in made if isinstance(c, DropColumn)} == {
        (name,) for name in there.keys() - set(names[:n])
    }


def test_an_upgrade_is_part_of_it() -> None:
    before = replace(defined(START), format_version=2)
    with pytest.raises(Refused, match="--upgrade"):
        evolve(before, [SetDefault(("a",), 1)])
    assert evolve(before, [SetDefault(("a",), 1)], upgrade=True).format_version == 3


@pytest.mark.parametrize(
    ("table", "path", "advised"),
    [
        ("a: int, m: map<string, {p: int}>", ("m", "value", "p"), "m"),
        ("a: int, l: {q: int}[1]", ("l", "element", "q"), "l"),
        ("a: int, l: int[1]", ("l", "element"), "l"),
        ("a: int, s: {x: {y: int}}", ("s", "x", "y"), "s"),
        ("s: {a: int, x: {y: int}}", ("s", "x", "y"), "s.x"),
    ],
)
def test_advice_on_a_column_that_cannot_be_dropped_names_one_that_can(
    table: str, path: Path, advised: str
) -> None:
    before = schema(table)
    with pytest.raises(Refused) as refused:
        evolved_with(Definition(before, last_column=before.highest_id()), [DropColumn(path)])

    assert refused.value.error.hint == f"drop {advised}"
    evolved_with(Definition(before, last_column=before.highest_id()), [DropColumn(tuple(advised.split(".")))])


def test_rename_names_the_statements_for_the_other_columns_of_the_field() -> None:
    origin = mark("amount")
    columns = (
        Field("amount", LONG, 2),
        Field("amount_string", STRING, 3, doc=origin),
        Field("amount_a b", STRING, 4, doc=origin),
        Field("amount_due", LONG, 5),
    )
    before = Schema(Struct((Field("pay", Struct(columns), 1), Field("n", LONG, 6), Field("n_m", LONG, 7))))
    for path, name, expected in (
        (
            ("pay", "amount"), "eur",
            ["2 other columns of amount can follow (--siblings): RENAME pay.amount_string TO eur_string; RENAME pay.\"amount_a b\" TO \"eur_a b\""],
        ),
        (
            ("pay", "amount"), "amount_eur",
            ["2 other columns of amount can follow (--siblings): RENAME pay.amount_string TO amount_eur_string; RENAME pay.\"amount_a b\" TO \"amount_eur_a b\""],
        ),
        (("pay", "amount_due"), "due", []),
        (("n",), "m", []),
    ):  # fmt: skip
        changes = [RenameColumn(path, name)]
        after, _ = evolved_with(Definition(before), changes)
        assert list(notes(before, after.schema, changes, TableSettings()))[1:] == expected
