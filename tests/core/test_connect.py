"""Objects of Spark Connect are refused in one sentence."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import SetupError, UsageError
from driftline.lake import Lake
from driftline.runtime.session import open_session
from driftline.sources.opening import opened

MODULES = {"SparkSession": "session", "DataFrame": "dataframe"}


def of_connect(name: str) -> Any:
    members = {"__module__": f"pyspark.sql.connect.{MODULES[name]}", "selectExpr": None}
    return type(name, (), members)()


def test_a_session_and_a_dataframe_of_spark_connect_are_refused() -> None:
    with pytest.raises(UsageError, match="a SparkSession of Spark Connect cannot be used") as raised:
        Lake.attach(of_connect("SparkSession"))
    assert "classic session" in str(raised.value.hint)
    assert "docs/spark-connect.md" in str(raised.value.hint)
    with (
        pytest.raises(UsageError, match="a DataFrame of Spark Connect cannot be used"),
        opened(None, of_connect("DataFrame")),  # type: ignore[arg-type]
    ):
        pass


# Read, not imported: that wants gRPC. `make test-sparks` runs it over 3.5 and 4.0.
@pytest.mark.parametrize("name", MODULES)
def test_pyspark_has_its_classes_where_the_refusal_looks_for_them(name: str) -> None:
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None
    text = Path(pyspark.origin).with_name("sql").joinpath("connect", f"{MODULES[name]}.py").read_text()
    assert name in {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("mode", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_a_lake_does_not_start_where_pyspark_makes_sessions_of_spark_connect_only(
    mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(mode, "1")
    with pytest.raises(SetupError, match=f"{mode} is set") as raised:
        open_session(tmp_path / "lake")
    assert "docs/spark-connect.md" in str(raised.value.hint)
    assert not (tmp_path / "lake").exists()
