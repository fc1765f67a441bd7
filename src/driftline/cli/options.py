"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    json = "json"
    csv = "csv"
    parquet = "parquet"
    avro = "avro"
    orc = "orc"


class Policy(StrEnum):
    preserve = "preserve"
    widen = "widen"
    strict = "strict"


class OnConflict(StrEnum):
    fail = "fail"
    quarantine = "quarantine"


Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE", help="Files, folders, globs; - is standard input.", show_default=False),
]
Into = Annotated[str, typer.Option(metavar="NAMESPACE.TABLE", help="The table; made if it is not there.")]
TableName = Annotated[str, typer.Argument(metavar="NAMESPACE.TABLE", show_default=False)]
PerFile = Annotated[bool, typer.Option("--batch-per-file", help="One batch for each file, in name order.")]
PolicyOption = Annotated[Policy, typer.Option(help="What drift does to the table.")]
Conflict = Annotated[
    OnConflict | None, typer.Option(help="What becomes of records that cannot be taken.", show_default=False)
]
FormatOption = Annotated[
    Format | None, typer.Option(help="Instead of what the files' endings tell.", show_default=False)
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the table.", show_default=False),
]
Strings = Annotated[bool, typer.Option("--strings", help="CSV cells stay text.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, and nothing else there.")]
