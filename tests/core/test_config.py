from pathlib import Path

import pytest

from driftline.config import Config, catalog_in, hide_secrets, load, redacted
from driftline.errors import DataError, UsageError


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        file = tmp_path / "driftline.toml"
        file.write_text(text)
        return file

    return write


def at(folder: Path, **more) -> Config:
    return load(folder=folder, env={}, **more)


def test_without_a_file_the_lake_is_a_folder_named_lake(tmp_path):
    assert at(tmp_path) == Config(Path("lake"), {}, {})


def test_the_file_in_the_working_directory_counts(write, tmp_path):
    write('lake = "data/lake"')
    assert at(tmp_path).lake == tmp_path / "data" / "lake"


def test_flag_before_environment_before_file_before_default(write, tmp_path):
    write('lake = "c"')
    assert load("a", folder=tmp_path, env={"DRIFTLINE_LAKE": "b"}).lake == Path("a")
    assert load(folder=tmp_path, env={"DRIFTLINE_LAKE": "b"}).lake == Path("b")
    assert load(folder=tmp_path, env={}).lake == tmp_path / "c"


def test_a_tilde_that_no_shell_has_read_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    home = tmp_path / "home" / "lake"
    assert load("~/lake", folder=tmp_path, env={}).lake == home
    assert load(folder=tmp_path, env={"DRIFTLINE_LAKE": "~/lake"}).lake == home


@pytest.mark.parametrize(
    "named", ["ducklake:x.ducklake", "sqlite:x.db", "postgres:host=h password=pw", "postgres://me:pw@host/db"]
)
@pytest.mark.parametrize("installed", [True, False])
def test_a_catalog_is_no_lake(write, tmp_path, monkeypatch, named, installed):
    monkeypatch.setattr("driftline.config.find_spec", lambda name: object() if installed else None)
    file = write(f'lake = "{named}"')
    elsewhere = tmp_path / "elsewhere"
    for given in (
        {"lake": named, "env": {}, "folder": elsewhere},
        {"env": {"DRIFTLINE_LAKE": named}, "folder": elsewhere},
        {"env": {}, "file": file},
    ):
        with pytest.raises(UsageError, match="names a catalog, and a lake is a folder or a URI") as error:
            load(**given)
        assert "pw" not in error.value.message
        assert 'format = "ducklake"' in error.value.hint
        assert ("pip install 'driftline[ducklake]'" in error.value.hint) is not installed
    assert load("./ducklake:x", folder=elsewhere, env={}).lake == Path("ducklake:x")


def test_another_file_can_be_named_and_must_be_there(write, tmp_path):
    file = write('[tables."shop.orders"]\ndates = "off"')
    assert load(file=file, env={}).tables == {"shop.orders": {"dates": "off"}}
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read"):
        load(file=tmp_path / "none.toml", env={})


def test_properties_of_a_catalog_may_have_dotted_names(write, tmp_path):
    write(
        '[catalog]\ntype = "jdbc"\njdbc.schema-version = "V1"\njdbc.useSSL = true\nclients = 4\nspark.sql.ansi = "x"'
    )
    assert at(tmp_path).catalog == {
        "type": "jdbc",
        "jdbc.schema-version": "V1",
        "jdbc.useSSL": "true",
        "clients": "4",
        "spark.sql.ansi": "x",
    }


def test_an_empty_flag_names_no_lake_and_an_empty_variable_is_not_set(tmp_path):
    with pytest.raises(UsageError, match="an empty path names no lake"):
        load("", env={}, folder=tmp_path)
    assert load(env={"DRIFTLINE_LAKE": ""}, folder=tmp_path).lake == Path("lake")


def test_a_lake_by_flag_leaves_the_catalog_of_the_file_aside_but_not_spark(write, tmp_path):
    write('[catalog]\ntype = "rest"\nuri = "http://x"\nspark.driver.memory = "2g"')
    assert at(tmp_path, lake="l") == Config(Path("l"), {"spark.driver.memory": "2g"}, {})


def test_settings_may_be_numbers(write, tmp_path):
    write('[tables."shop.orders"]\nmax_columns = 50\nepoch-unit = "s"')
    assert at(tmp_path).tables == {"shop.orders": {"max_columns": "50", "epoch_unit": "s"}}


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ("hooks.push", {"policy": "widen", "dates": "on", "hints.id": "string"}),
        (
            "hooks.pull_request",
            {"policy": "widen", "dates": "instant", "hints.id": "long", "epoch_unit": "ms"},
        ),
        ("hooks._other", {"policy": "widen", "dates": "off", "hints.id": "string"}),
        ("eu.hooks", {"policy": "strict"}),
        ("eu.hooks.push", {}),
        ("shop.orders", {}),
        ("hooksXpush", {}),
    ],
)
def test_settings_of_a_table_are_those_of_all_names_that_fit_it_the_more_exact_ones_first(
    write, tmp_path, table, settings
):
    write("""
        [tables."*.hooks"]
        policy = "strict"
        [tables."hooks.push"]
        dates = "on"
        [tables."hooks.*"]
        policy = "widen"
        dates = "off"
        [tables."hooks.*".hints]
        id = "string"
        [tables."hooks.pull_*"]
        dates = "instant"
        hints.id = "long"
        epoch-unit = "s"
        [tables."hooks.pull_request"]
        epoch_unit = "ms"
    """)
    assert at(tmp_path).settings_of(table) == settings


@pytest.mark.parametrize(
    ("text", "says", "todo"),
    [
        ("lakes = 'x'", "there is no 'lakes'", "did you mean 'lake'?"),
        ("[table]", "there is no 'table'", "did you mean 'tables'?"),
        ("zzz = 1", "there is no 'zzz'", "there are lake, format, catalog, store, tables"),
        ("lake = 1", "lake = 1 is not a path", ""),
        ("lake = ''", "lake = '' is not a path", ""),
        ("catalog = 1", "catalog is not a table", "write [catalog]"),
        ("[catalog]\nuri = ['a']", "catalog.uri is not one value", "a text, a number, true or false"),
        (
            "lake = 'x'\n[catalog]\ntype = 'rest'",
            "lake and [catalog] each name a lake",
            "leave one of them out",
        ),
        ("[tables.'a.b']\ndate = 'off'", "there is no setting 'date'", "did you mean 'dates'?"),
        ("[tables.'a.b']\ndates = 'no'", "dates = 'no' is not possible", "one of on, off, instant"),
        ("[tables.a.b]\ndates = 'off'", "tables.a is not a table's settings", 'write [tables."a.b"]'),
        ("lake = ", "Invalid value", ""),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_what_to_do(write, tmp_path, text, says, todo):
    file = write(text)
    with pytest.raises(UsageError) as failed:
        at(tmp_path)
    assert failed.value.message.startswith(f"{file}: ")
    assert says in failed.value.message
    assert todo in (failed.value.hint or "")


@pytest.mark.parametrize(
    ("text", "catalog"),
    [
        ("format = 'ducklake'", "duckdb"),
        ("format = 'ducklake'\ncatalog = 'sqlite'", "sqlite"),
        ("format = 'ducklake'\nlake = 'x'\n[catalog]\nuri = 'postgres:dbname=x'", "postgres:dbname=x"),
        ("format = 'iceberg'", None),
    ],
)
def test_a_ducklake_has_one_catalog(write, tmp_path, text, catalog):
    write(text)
    assert at(tmp_path).ducklake == catalog


def test_a_ducklake_in_the_folder_that_a_flag_names_is_found(tmp_path):
    assert at(tmp_path, lake=str(tmp_path)).ducklake is None
    (tmp_path / "catalog.sqlite").touch()
    assert at(tmp_path, lake=str(tmp_path)).ducklake == "sqlite"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format = 'delta'", "format = 'delta' is not possible"),
        ("format = 'ducklake'\n[catalog]\ntype = 'rest'", "has no 'type'"),
    ],
)
def test_a_format_is_one_of_two(write, tmp_path, text, says):
    write(text)
    with pytest.raises(UsageError, match=says):
        at(tmp_path)


def test_a_password_of_postgres_is_hidden():
    assert Config(ducklake="postgres:host=h password=s3cret").redact("no s3cret here") == "no *** here"


def test_secrets_are_hidden():
    config = Config(
        catalog={
            "token": "abc123",
            "credential": "id:s3cret",
            "uri": "https://host",
            "s3.secret-access-key": "KEY",
        }
    )
    assert config.redact("https://host abc123 id:s3cret KEY") == "https://host *** *** ***"
    assert config.redact("jdbc:postgresql://me:pw@db/x") == "jdbc:postgresql://***@db/x"


def test_values_come_from_the_environment_at_any_depth(write, tmp_path):
    write('''lake = "${ROOT}/lake"
        [catalog]
        spark.a.token = "Bearer ${TOKEN}"
        [tables."shop.orders"]
        mark = "$${TOKEN} ${TOKEN}"''')
    config = load(env={"ROOT": "/data", "TOKEN": "s3cret"}, folder=tmp_path)
    assert config.lake == Path("/data/lake")
    assert config.catalog == {"spark.a.token": "Bearer s3cret"}
    assert config.tables["shop.orders"] == {"mark": "${TOKEN} s3cret"}
    assert config.redact("401 for Bearer s3cret") == "401 for ***"


def test_a_variable_that_is_not_there_is_named(write, tmp_path):
    write('lake = "${ROOT}/lake"')
    with pytest.raises(UsageError, match="there is no ROOT in the environment"):
        load(env={}, folder=tmp_path)


def test_stores_have_options_from_the_environment_and_no_secret_is_told(write, tmp_path):
    write('[store.s3]\nendpoint = "http://x"\nsecret_key = "${KEY}"\npath_style = true')
    found = load(folder=tmp_path, env={"KEY": "hush"}, lake="l")

    assert found.stores == {"s3": {"endpoint": "http://x", "secret_key": "hush", "path_style": "true"}}
    assert found.redact("403 for hush") == "403 for ***"


def test_clients_of_kafka_and_of_a_registry(write, tmp_path):
    write(
        '[kafka]\nsasl.username = "alice"\nsasl.password = "${PW}"\n[registry]\nurl = "http://r"\nbasic.auth.user.info = "me:${PW}"'
    )
    read = load("l", folder=tmp_path, env={"PW": "s3cret"})
    assert read.kafka == {"sasl.username": "alice", "sasl.password": "s3cret"}
    assert read.registry == {"url": "http://r", "basic.auth.user.info": "me:s3cret"}
    assert read.redact("alice: s3cret, me:s3cret") == "alice: ***, ***"


def test_a_login_of_java_s_is_hidden():
    config = Config(kafka={"sasl.jaas.config": 'M required username="alice" password="s3 cret";'})
    assert config.redact('no: password="s3 cret" of alice') == 'no: password="***" of alice'


def test_a_lake_in_a_store_keeps_the_catalog_of_the_file(write, tmp_path):
    write('[catalog]\ntype = "rest"\nuri = "http://x"')
    named = at(tmp_path, lake="s3://bucket/lake")
    assert (named.uri, named.catalog) == ("s3://bucket/lake", {"type": "rest", "uri": "http://x"})
    write('lake = "s3://bucket/lake"\n[catalog]\ntype = "rest"\nuri = "http://x"')
    assert at(tmp_path) == named
    assert at(tmp_path, lake="folder").uri is None


@pytest.mark.parametrize("text", ['format = "ducklake"', 'format = "ducklake"\nlake = "s3://bucket/lake"'])
def test_the_files_of_a_ducklake_may_be_in_a_store(write, tmp_path, text):
    write(text)
    named = at(tmp_path, lake="s3://bucket/lake")
    assert (named.place, named.ducklake) == ("s3://bucket/lake", "duckdb")
    assert at(tmp_path, lake=str(tmp_path)).place == tmp_path


def test_the_name_of_a_container_is_no_secret():
    uri = "abfss://orders@account.dfs.core.windows.net/a.json"
    assert redacted(f"{uri} by https://me:pw@host/") == f"{uri} by https://***@host/"


def refused_attach() -> None:
    """Fail as a library does that puts its settings into its message."""
    try:
        raise OSError(5, "no s3cret", "https://me:pw@host/a")
    except OSError:
        raise ValueError("attach password=s3cret of hush")  # noqa: B904  both are behind it


def test_an_error_with_secrets_behind_it_is_printed_without_them():
    error = DataError("s.t: s3cret is refused", "look at s3cret")
    try:
        refused_attach()
    except ValueError as cause:
        error.__cause__ = cause
    hide_secrets(error, {"uri": "postgres:host=h password=s3cret", "credential": "me:hush"})

    assert (error.message, error.hint) == ("s.t: *** is refused", "look at ***")
    cause = error.__cause__
    assert "attach password=*** of ***" in str(cause)
    assert cause.__traceback__.tb_next.tb_frame.f_code.co_name == "refused_attach"  # still where it came from
    assert "***@host" in str(cause.__context__)
    assert "s3cret" not in str(cause.__context__)


def test_an_error_without_a_secret_keeps_its_cause():
    cause = ValueError("plain")
    error = DataError("s.t is refused")
    error.__cause__ = cause
    hide_secrets(error, {"token": "s3cret"})
    assert error.__cause__ is cause


@pytest.mark.parametrize(
    ("catalog", "named", "ducklake"),
    [
        ("catalog.ducklake", None, "duckdb"),
        ("catalog.sqlite", None, "sqlite"),
        ("catalog.db", None, None),
        ("catalog.ducklake", "duckdb", "duckdb"),
        ("catalog.sqlite", "sqlite:catalog.sqlite", "sqlite:catalog.sqlite"),
        ("", "sqlite", "sqlite"),
        ("", None, None),
    ],
)
def test_what_a_folder_has_decides_which_lake_it_is(tmp_path, monkeypatch, catalog, named, ducklake):
    monkeypatch.chdir(tmp_path)
    lake = tmp_path / "lake"
    lake.mkdir()
    if catalog:
        (lake / catalog).touch()

    assert catalog_in(lake, named) == ducklake
    if named is None:
        assert at(tmp_path).ducklake == load(str(lake), folder=tmp_path, env={}).ducklake == ducklake


@pytest.mark.parametrize("named", ["sqlite", "duckdb:other.ducklake", "postgres:dbname=lake password=pw"])
def test_a_folder_with_another_catalog_than_the_named_one_is_refused(tmp_path, named):
    (tmp_path / "catalog.db").touch()
    with pytest.raises(UsageError, match="is a lake already, with its catalog in") as refused:
        catalog_in(tmp_path, named)
    assert "pw" not in str(refused.value)


def test_a_folder_with_two_catalogs_is_refused(write, tmp_path):
    for name in ("catalog.db", "catalog.ducklake"):
        (tmp_path / name).touch()
    for load_it in (
        lambda: catalog_in(tmp_path, None),
        lambda: catalog_in(tmp_path, "duckdb"),
        lambda: load(str(tmp_path), folder=tmp_path, env={}),
    ):
        with pytest.raises(
            UsageError, match=r"has catalog.db and catalog.ducklake, the catalogs of two lakes"
        ):
            load_it()
