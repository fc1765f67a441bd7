import pytest

from driftline.errors import SetupError
from driftline.operations import doctor
from driftline.operations.doctor import checks
from driftline.runtime import session

from .conftest import SETTINGS


@pytest.mark.embedded_only("of the catalog in a lake's folder")
def test_all_is_well(spark, folder):
    found = checks(folder, SETTINGS)
    assert [check.name for check in found] == ["python", "spark", "java", "lake", "jars", "catalog"]
    assert all(check.ok and check.detail and not check.fix for check in found)


def test_a_failing_check_says_what_to_do_and_ends_the_dearer_ones(tmp_path):
    (tmp_path / "file").write_text("")
    found = checks(tmp_path / "file" / "lake")
    assert [check.name for check in found] == ["python", "spark", "java", "lake"]
    assert found[-1].to_dict() == {
        "name": "lake",
        "ok": False,
        "detail": f"Cannot make the lake folder {tmp_path}/file/lake: Not a directory.",
        "fix": "Pass another folder: --lake FOLDER.",
    }


def test_who_asks_the_doctor_is_not_sent_there(monkeypatch, tmp_path):
    def fails(*_: object, **__: object) -> None:
        raise SetupError("Spark did not start: no memory", session.HINT)

    monkeypatch.setattr(doctor, "open_session", fails)
    found = checks(tmp_path, SETTINGS)[-1]
    assert (found.name, found.detail) == ("catalog", "Spark did not start: no memory")
    assert found.fix == "See all of it with DRIFTLINE_DEBUG=1."


def test_a_catalog_that_is_away_is_told_in_one_line(spark, tmp_path):
    found = checks(
        tmp_path, {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/absent/c.db", "warehouse": str(tmp_path)}
    )
    assert [check.name for check in found if not check.ok] == ["catalog"]
    assert found[-1].fix
    assert "\n" not in found[-1].detail
    assert "lake" not in [check.name for check in found]
