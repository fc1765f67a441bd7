"""Settings as keyword arguments: all that there are, and no other."""

from typing import Literal, get_args, get_origin, get_type_hints

from driftline.core.settings.properties import PATH_SETTINGS, SETTINGS, SettingArguments, as_properties


def test_each_setting_is_an_argument():
    assert set(SettingArguments.__annotations__) == {*SETTINGS, *PATH_SETTINGS}


def test_type_of_an_argument_names_the_values_of_its_setting():
    """So that pyright and mypy see a slip such as "strcit"."""
    types = get_type_hints(SettingArguments)
    named = {name: get_args(types[name]) for name in types if get_origin(types[name]) is Literal}
    assert named == {name: SETTINGS[name].values for name in named}
    texts = {name for name, type_ in types.items() if type_ is str}
    assert {name for name in texts & {*SETTINGS} if isinstance(SETTINGS[name].values, tuple)} == set()


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
