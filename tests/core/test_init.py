"""`driftline init`: what it writes is a settings file, as it stands and with its comments taken off."""

import tomllib

from driftline.cli.tables import text
from driftline.config import Config, load
from driftline.core.settings.declarations import PATH_SETTINGS, SETTINGS


def test_what_is_written_changes_nothing(tmp_path):
    (tmp_path / "driftline.toml").write_text(text())
    assert load(env={}, folder=tmp_path) == Config()


def test_without_its_comments_it_is_a_settings_file_with_every_setting(tmp_path):
    keys = (*SETTINGS, "[", *(f'"{name}.' for name in PATH_SETTINGS))
    lines = [line.removeprefix("# ") for line in text().splitlines()]
    settings = "\n".join(line for line in lines if line.startswith(keys) and "catalog" not in line)
    (tmp_path / "driftline.toml").write_text(settings)
    table = load(env={}, folder=tmp_path).tables["shop.orders"]
    assert {key.partition(".")[0] for key in table} == {*SETTINGS, *PATH_SETTINGS}
    assert "catalog" in tomllib.loads(
        "\n".join(line for line in lines if line.startswith(("[catalog]", "token")))
    )


def test_it_is_read_in_80_columns():
    assert max(map(len, text().splitlines())) <= 80
    assert 'One of ".", ",".' in text()
