"""SQL that writes is refused before Spark starts, where its first word says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline import cli
from driftline.cli import scope


def query(monkeypatch: pytest.MonkeyPatch, folder: Path, sql: str, toml: str = "") -> None:
    """Run the command where Spark cannot start."""

    def started(*_: object) -> None:
        raise NotImplementedError("Spark would start now")

    monkeypatch.setattr(scope, "_opened", started)
    file = folder / "driftline.toml"
    file.write_text(f"lake = '{folder}'\n{toml}")
    with pytest.raises(SystemExit):
        cli.main(["--config", str(file), "query", sql])


@pytest.mark.parametrize(
    ("toml", "hint"), [("", "`Lake.sql` in Python runs it"), ('format = "ducklake"', "DuckDB runs it")]
)
@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        (" -- gone\n/* for\ngood */ DROP  VIEW x", "drop view"),
        ("delete from x", "delete from"),
        ("update x set a = 1", "update"),
        ("merge into x using y on true", "merge into"),
        ("truncate table x", "truncate table"),
    ],
)
def test_what_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    toml: str, hint: str, sql: str, kind: str,
) -> None:  # fmt: skip
    query(monkeypatch, tmp_path, sql, toml)
    assert capsys.readouterr().err == (
        f"error: SQL: a query only reads, and this is '{kind}'; nothing of it was run\n  {hint}\n"
    )


def test_query_that_drops_a_table_is_sent_to_drop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query(monkeypatch, tmp_path, "drop table x")
    assert capsys.readouterr().err == (
        "error: SQL: a query only reads, and this is 'drop table'; nothing of it was run\n"
        "  `driftline drop` drops a table\n"
    )


def test_what_fills_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query(monkeypatch, tmp_path, "insert into x values (1)")
    assert capsys.readouterr().err == (
        "error: SQL: a query only reads, and this is 'insert into'; nothing of it was run\n"
        "  `driftline ingest` fills tables\n"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "/* drop table x */ select 1",
        "/* a */ select '*/ drop table x '",
        "/* a /* b */ drop table x */ select 1",
        " -- a\\\ndrop table x\nselect 1",
        "with x as (select 1) insert into y",
        "dropped",
        "",
        " -- drop",
    ],
)
def test_of_all_else_spark_judges(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, sql: str
) -> None:
    query(monkeypatch, tmp_path, sql)
    assert "Spark would start now" in capsys.readouterr().err
