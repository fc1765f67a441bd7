"""Java without Spark: where it is not tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.errors import NeedsSpark
from driftline.runtime import bare_java, class_data


@pytest.fixture(autouse=True)
def _jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in class_data.FOLDERS:
        monkeypatch.delenv(name, raising=False)
    names = (
        "org.apache.iceberg_iceberg-spark-runtime-4.1.jar",
        "org.xerial_sqlite-jdbc-3.jar",
        "org.tukaani_xz.jar",
    )
    monkeypatch.setattr(bare_java, "cached_jars", lambda: [tmp_path / name for name in names])


def test_its_jars_are_iceberg_s_and_what_that_needs(tmp_path: Path) -> None:
    jars = bare_java.class_path()

    ours = [jar.name for jar in jars if jar.parent == tmp_path]
    assert ours == ["org.apache.iceberg_iceberg-spark-runtime-4.1.jar", "org.xerial_sqlite-jdbc-3.jar"]
    sparks = {jar.name.partition("-")[0] for jar in jars if jar.parent != tmp_path}
    assert {"py4j", "hadoop", "slf4j", "jackson"} <= sparks
    assert "spark" not in sparks


def test_java_s_own_log_takes_its_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    def logs() -> bool:
        return any(jar.name.startswith("log4j-core") for jar in bare_java.class_path())

    monkeypatch.delenv("DRIFTLINE_DEBUG", raising=False)
    assert not logs()
    monkeypatch.setenv("DRIFTLINE_DEBUG", "1")
    assert logs()


@pytest.mark.parametrize("name", class_data.FOLDERS)
def test_settings_that_say_where_files_are_take_spark(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/etc/hadoop")
    with pytest.raises(NeedsSpark):
        bare_java.class_path()


def test_jars_that_are_yet_to_come_take_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare_java, "cached_jars", list)
    with pytest.raises(NeedsSpark):
        bare_java.class_path()
