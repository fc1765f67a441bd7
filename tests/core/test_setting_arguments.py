"""Settings as keyword arguments: all that there are, and no other, with their values and defaults."""

import pytest

from driftline.core.settings.declarations import PATH_SETTINGS, SETTINGS, SettingArguments
from driftline.core.settings.properties import NEW_TABLE, as_properties, from_properties
from driftline.core.settings.table import TableSettings


def test_each_setting_is_an_argument():
    assert set(SettingArguments.__annotations__) == {*SETTINGS, *PATH_SETTINGS}


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        (SETTINGS["policy"], ("preserve", "widen", "strict")),
        (SETTINGS["maps"], ("auto", "hint", "off")),
        (PATH_SETTINGS["maps"], ("auto", "hint", "off")),
        (SETTINGS["allow_rewrite"], ("true", "false")),
        (PATH_SETTINGS["exclude"], ("true", "false")),
        (SETTINGS["format_version"], ("2", "3")),
        (SETTINGS["epoch"], int),
        (SETTINGS["key"], None),
        (PATH_SETTINGS["hints"], None),
    ],
)
def test_type_of_an_argument_states_the_values_of_its_setting(setting, values):
    assert setting.values == values


def test_settings_without_properties_are_those_of_older_tables():
    new, older = from_properties(NEW_TABLE), from_properties({})
    assert new == TableSettings()
    assert (new.beyond, new.max_fields, new.fields.maps) == ("rest", 1000, "auto")
    assert (older.beyond, older.max_fields, older.fields.maps) == ("quarantine", None, "hint")


def test_values_of_python_are_settings():
    chosen = SettingArguments(
        policy="widen", allow_rewrite=True, max_columns=9, hints={"a.b": "double"}, exclude=["c"]
    )
    assert as_properties(chosen) == {
        "driftline.policy": "widen",
        "driftline.allow-rewrite": "true",
        "driftline.max-columns": "9",
        "driftline.hints.a.b": "double",
        "driftline.exclude.c": "true",
    }
