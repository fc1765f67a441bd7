"""When Spark has so little to do that Java's quick compiler is the better one."""

import os
from types import SimpleNamespace

import pytest

from driftline.cli import scope
from driftline.cli.scope import LITTLE, Invocation, little
from driftline.errors import UsageError
from driftline.runtime.java import QUICK


@pytest.mark.parametrize(
    ("kind", "name", "size", "is_little"),
    [
        ("json", "a.jsonl", LITTLE - 1, True),
        ("json", "a.jsonl", LITTLE, False),
        ("csv", "a.csv.gz", LITTLE // 8 - 1, True),
        ("csv", "a.csv.gz", LITTLE // 8, False),
        ("csv", "a.csv.zip", LITTLE // 8, False),
        ("parquet", "a.parquet", LITTLE // 8, False),
    ],
)
def test_little_data_are_so_by_what_they_unfold_to(tmp_path, kind, name, size, is_little):
    file = tmp_path / name
    with file.open("wb") as out:
        out.truncate(size)
    assert little(kind, [str(file)]) is is_little
    assert not little(kind, [str(file)] * 20)


@pytest.mark.parametrize("given", [None, "-Xint"])
@pytest.mark.parametrize("brief", [True, False])
def test_what_the_user_has_java_told_goes_before(tmp_path, monkeypatch, given, brief):
    monkeypatch.setattr(scope, "_opened", lambda *_: SimpleNamespace(spark=None))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", given or "")
    if given is None:
        monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    Invocation(lake=str(tmp_path)).open(SimpleNamespace(phase=lambda _: None), brief=brief)
    quick = QUICK if brief else None
    assert os.environ.get("SPARK_SUBMIT_OPTS") == (given or quick)


def test_files_of_dropped_tables_are_refused_where_the_catalog_lists_none(tmp_path):
    config = tmp_path / "driftline.toml"
    config.write_text('[catalog]\ntype = "rest"\nuri = "http://catalog.example"\n')
    invocation = Invocation(file=config)
    assert invocation.dropped(delete=False) == []
    with pytest.raises(UsageError, match="keeps no list of dropped tables") as refusal:
        invocation.dropped(delete=True)
    assert "--purge" in refusal.value.hint
