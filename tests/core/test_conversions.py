"""The conversions between types, as tables to hold against section 3 of the rules and the seed's reference."""

from __future__ import annotations

from itertools import permutations

import pytest

from core.shapes import batch, primitive
from driftline.core.planning.conversions import ROUTES_TOO, exact, fits, join, widens_in_place
from driftline.core.planning.policies import preserve
from driftline.core.planning.shape import Facet, Profile
from driftline.core.schema.types import Primitive, SourceLocation

SHORT = {
    "bool": "boolean",
    "dbl": "double",
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
    "str": "string",
    "bin": "binary",
    "fixed": "fixed[4]",
    "dec5,2": "decimal(5, 2)",
    "dec12,2": "decimal(12, 2)",
    "dec21,2": "decimal(21, 2)",
    "dec38,0": "decimal(38, 0)",
    "dec38,18": "decimal(38, 18)",
}

# The row fits the column: y yes, e where the value is exact there, . no, = the type itself.
FITS = """
            bool  int  long  float  dbl  dec5,2  dec38,0  dec38,18  date  time  ts  ntz  str  uuid  bin  fixed  variant
  bool      =     y    y     y      y    y       y        y         .     .     .   .    y    .     .    .      y
  int       .     =    y     .      y    .       y        y         .     .     .   .    y    .     .    .      y
  long      .     .    =     .      e    .       y        y         .     .     .   .    y    .     .    .      y
  float     .     .    .     =      y    .       .        .         .     .     .   .    y    .     .    .      y
  dbl       .     .    .     .      =    .       .        .         .     .     .   .    y    .     .    .      y
  dec5,2    .     .    .     .      .    =       .        y         .     .     .   .    y    .     .    .      y
  dec38,0   .     .    .     .      .    .       =        .         .     .     .   .    y    .     .    .      y
  dec38,18  .     .    .     .      .    .       .        =         .     .     .   .    y    .     .    .      y
  date      .     .    e     .      e    .       .        .         =     .     y   y    y    .     .    .      y
  time      .     .    .     .      .    .       .        .         .     =     .   .    y    .     .    .      y
  ts        .     .    e     .      e    .       .        .         .     .     =   .    y    .     .    .      y
  ntz       .     .    e     .      e    .       .        .         .     .     .   =    y    .     .    .      y
  str       .     .    .     .      .    .       .        .         .     .     .   .    =    .     .    .      y
  uuid      .     .    .     .      .    .       .        .         .     .     .   .    y    =     .    .      y
  bin       .     .    .     .      .    .       .        .         .     .     .   .    .    .     =    .      y
  fixed     .     .    .     .      .    .       .        .         .     .     .   .    .    .     y    =      y
  variant   .     .    .     .      .    .       .        .         .     .     .   .    .    .     .    .      =
"""

# What the row and the column have in common; the table is symmetric.
JOINS = """
            bool  int   long  float  dbl    dec5,2   date  time  ts   ntz  str  uuid
  bool      bool  int   long  float  dbl    dec5,2   str   str   str  str  str  str
  int       -     int   long  dbl    dbl    dec12,2  str   str   str  str  str  str
  long      -     -     long  dbl    dbl    dec21,2  long  str   long long str  str
  float     -     -     -     float  dbl    str      str   str   str  str  str  str
  dbl       -     -     -     -      dbl    str      dbl   str   dbl  dbl  str  str
  dec5,2    -     -     -     -      -      dec5,2   str   str   str  str  str  str
  date      -     -     -     -      -      -        date  str   ts   ntz  str  str
  time      -     -     -     -      -      -        -     time  str  str  str  str
  ts        -     -     -     -      -      -        -     -     ts   str  str  str
  ntz       -     -     -     -      -      -        -     -     -    ntz  str  str
  str       -     -     -     -      -      -        -     -     -    -    str  str
  uuid      -     -     -     -      -      -        -     -     -    -    -    uuid
"""


def type_of(short: str) -> Primitive:
    return primitive(SHORT.get(short, short))


def cells(table: str) -> list[tuple[str, str, str]]:
    """(row, column, cell) for each cell."""
    head, *rows = [line.split() for line in table.strip().splitlines()]
    return [(row[0], column, cell) for row in rows for column, cell in zip(head, row[1:], strict=True)]


WORST = Profile(SourceLocation(), wide=True, fraction=6, far=True)


@pytest.mark.parametrize(("t", "u", "cell"), cells(FITS))
def test_fits(t: str, u: str, cell: str) -> None:
    assert fits(type_of(t), type_of(u)) == (cell in "y=e")
    if cell in "y=e":
        assert exact(type_of(t), type_of(u), WORST, "ns") == (cell in "y=")


@pytest.mark.parametrize(
    ("t", "u", "yes"),
    [
        ("boolean", "decimal(1, 0)", True),
        ("boolean", "decimal(3, 2)", True),
        ("boolean", "decimal(2, 2)", False),
        ("int", "decimal(10, 0)", True),
        ("int", "decimal(12, 2)", True),
        ("int", "decimal(9, 0)", False),
        ("int", "decimal(11, 2)", False),
        ("long", "decimal(19, 0)", True),
        ("long", "decimal(21, 2)", True),
        ("long", "decimal(18, 0)", False),
        ("long", "decimal(20, 2)", False),
        ("decimal(5, 2)", "decimal(6, 2)", True),
        ("decimal(5, 2)", "decimal(6, 3)", True),
        ("decimal(5, 2)", "decimal(6, 4)", False),
        ("decimal(5, 2)", "decimal(6, 1)", False),
        ("decimal(5, 2)", "decimal(4, 2)", False),
        ("fixed[4]", "fixed[8]", False),
    ],
)
def test_fits_by_digits(t: str, u: str, yes: bool) -> None:
    assert fits(primitive(t), primitive(u)) == yes


# The seed's "Calculating the Widest Type for Primitives", row by row. Its row of long says both "wider than
# timestamp" and "incompatible with timestamp": a timestamp fits a long, a long does not fit a timestamp.
SEED = [
    ("boolean", "", "long double string", "date timestamp"),
    ("long", "boolean timestamp", "double string", "date timestamp"),
    ("double", "boolean long", "string", "date timestamp"),
    ("date", "", "long double timestamp string", "boolean"),
    ("timestamp", "date", "long double string", "boolean"),
    ("string", "boolean long double date timestamp", "", ""),
]


@pytest.mark.parametrize(("t", "wider", "narrower", "incompatible"), SEED, ids=[row[0] for row in SEED])
def test_the_seeds_reference_table(t: str, wider: str, narrower: str, incompatible: str) -> None:
    here = primitive(t)
    assert all(fits(primitive(o), here) for o in wider.split())
    assert all(fits(here, primitive(o)) for o in narrower.split())
    assert not any(fits(here, primitive(o)) for o in incompatible.split())


def test_the_seeds_footnote_a_long_is_routed_to_timestamps() -> None:
    assert ROUTES_TOO == {"long": ("timestamp", "timestamp_ntz")}


@pytest.mark.parametrize(("t", "u", "cell"), [c for c in cells(JOINS) if c[2] != "-"])
def test_join(t: str, u: str, cell: str) -> None:
    pair = type_of(t), type_of(u)
    assert join(pair) == join(reversed(pair)) == type_of(cell)


@pytest.mark.parametrize(
    ("types", "common"),
    [
        ("int float", "double"),
        ("int float long", "double"),
        ("int dec5,2", "dec12,2"),
        ("bool int dec5,2", "str"),
        ("long dec38,0", "dec38,0"),
        ("long dec38,18", "dec38,18"),
        ("dec38,0 dec38,18", "str"),
        ("decimal(10,2) decimal(12,0)", "decimal(14,2)"),
        ("decimal(30,0) decimal(10,8)", "decimal(38,8)"),
        ("decimal(31,0) decimal(10,8)", "str"),
        ("bool long dbl", "dbl"),
        ("date ts ntz", "str"),
        ("date ts ntz long", "long"),
        ("date ts dbl long", "dbl"),
        ("bool date long", "long"),
        ("bin long", "long"),
        ("bin fixed bool date", "str"),
        ("bin", None),
        ("bin fixed variant", None),
    ],
)
def test_join_of_more(types: str, common: str | None) -> None:
    for order in permutations(map(type_of, types.split())):
        assert join(order) == (type_of(common) if common else None)


def test_widened_in_place() -> None:
    widened = {(t, u) for t, u, _ in cells(FITS) if widens_in_place(type_of(t), type_of(u))}
    assert widened == {("int", "long"), ("float", "dbl")}


@pytest.mark.parametrize(
    ("t", "u", "yes"),
    [
        ("decimal(5, 2)", "decimal(6, 2)", True),
        ("decimal(5, 2)", "decimal(38, 2)", True),
        ("decimal(5, 2)", "decimal(5, 2)", False),
        ("decimal(5, 2)", "decimal(4, 2)", False),
        ("decimal(5, 2)", "decimal(7, 4)", False),
    ],
)
def test_decimals_widened_in_place(t: str, u: str, yes: bool) -> None:
    assert widens_in_place(primitive(t), primitive(u)) == yes


@pytest.mark.parametrize(
    ("facet", "column", "yes"),
    [
        ("long", "long", True),
        ("long", "long[1]", True),
        ("long", "string[3]", True),
        ("long[1]", "long[2]", True),
        ("long[2]", "long[1]", False),
        ("long[1]", "string", False),
        ("string", "long[1]", False),
        ("{x: long}", "{x: long}[1]", True),
        ("{x: long}[1]", "{x: long}", False),
        ("{x: long}", "string", False),
        ("long", "{x: long}", False),
        ("map<string, long>", "map<string, long>[1]", True),
        ("map<string, long>", "map<int, long>", False),
        ("map<string, long>", "{x: long}", False),
        ("{x: long}", "map<string, long>", False),
        ("map<string, long>", "string", False),
        ("long", "variant", True),
        ("{x: long}", "variant", True),
        ("map<string, long>", "variant", True),
    ],
)
def test_dimensions_and_what_is_nested(facet: str, column: str, yes: bool) -> None:
    assert preserve.takes(one(column)[0], one(facet)[0]) == yes


# Whether what was seen is exact in the column, by the field's epoch unit.
EXACT = """
                         s  ms  us  ns
  long          double   y  y   y   y
  long!wide     double   .  .   .   .
  long!wide     string   y  y   y   y
  date          long     y  y   y   y
  date!far      long     y  y   y   .
  date          double   y  y   y   .
  date!far      double   y  y   .   .
  timestamp     long     y  y   y   y
  timestamp!ms  long     .  y   y   y
  timestamp!us  long     .  .   y   y
  timestamp!far long     y  y   y   .
  timestamp     double   y  y   y   .
  timestamp!ms  double   .  y   y   .
  timestamp!us  double   .  .   y   .
  timestamp!far double   y  y   .   .
  timestamp!us  string   y  y   y   y
  timestamp_ntz!us long  .  .   y   y
  date!far      timestamp y y   y   y
"""


@pytest.mark.parametrize("line", EXACT.strip().splitlines()[1:])
def test_exact(line: str) -> None:
    what, column, *cells = line.split()
    facet, seen = one(what)
    assert isinstance(facet.base, Primitive)
    for unit, cell in zip(("s", "ms", "us", "ns"), cells, strict=True):
        assert exact(facet.base, primitive(column), seen, unit) == (cell == "y"), unit


def one(text: str) -> tuple[Facet, Profile]:
    """The one facet that the text names."""
    ((facet, seen),) = batch(f"f: {text}").fields["f"].facets.items()
    return facet, seen
