"""Settings as keyword arguments: all that there are, and no other."""

from driftline.settings import PATH_SETTINGS, SETTINGS, SettingArguments, as_properties


def test_each_setting_is_an_argument():
    assert set(SettingArguments.__annotations__) == {*SETTINGS, *PATH_SETTINGS}


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
