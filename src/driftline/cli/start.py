"""`driftline init`."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import typer

from driftline.config import FILE
from driftline.core.settings.properties import PATH_SETTINGS, SETTINGS
from driftline.errors import UsageError

if TYPE_CHECKING:
    from driftline.core.settings.properties import Setting

_HEAD = """\
# Settings of driftline for commands that run in this folder. Commented lines
# show the defaults. ${NAME} in a value is taken from the environment.

# lake = "lake"         # the folder of the lake, relative to this file
# format = "iceberg"    # or "ducklake"

# An Iceberg catalog instead of a folder, with its Spark properties:
# [catalog]
# type = "rest"
# uri = "https://catalog.example.com"
# token = "${CATALOG_TOKEN}"

# Access to object stores, unless set in the environment
# (AWS_ACCESS_KEY_ID, ...):
# [store.s3]
# endpoint = "https://minio.example.com"
# region = "us-east-1"
# access_key = "${STORE_KEY}"
# secret_key = "${STORE_SECRET}"

# Clients of captures: Kafka, with settings of librdkafka or Java, and the
# schema registry, with settings of confluent-kafka.
# [kafka]
# security.protocol = "SASL_SSL"
# sasl.mechanism = "SCRAM-SHA-512"
# sasl.username = "alice"
# sasl.password = "${KAFKA_PASSWORD}"
# [registry]
# url = "https://registry.example.com"
# basic.auth.user.info = "me:${REGISTRY_PASSWORD}"

# Settings of a table; --set KEY=VALUE of a command overrides them.
# [tables."shop.orders"]
"""


def init() -> None:
    """Write a driftline.toml with all settings, commented out."""
    try:
        with Path(FILE).open("x", encoding="utf-8") as file:
            file.write(text())
    except FileExistsError:
        raise UsageError(f"there is a {FILE} in this folder already", "edit it, or rename it first") from None
    except OSError as error:
        raise UsageError(f"{FILE}: cannot be written: {error.strerror}") from error
    typer.echo(f"{FILE}  every setting, commented out")


def text() -> str:
    """The file: each setting with its default, what it decides and the values it may have."""
    lines = [_HEAD.rstrip()]
    for name, setting in SETTINGS.items():
        lines += [*_about(setting), f'# {name} = "{setting.default}"']
    for name, setting in PATH_SETTINGS.items():
        value = setting.default or (
            setting.values[0] if isinstance(setting.values, tuple) else "decimal(18,2)"
        )
        lines += [*_about(setting), f'# "{name}.payload.amount" = "{value}"']
    return "\n".join(lines) + "\n"


def _about(setting: Setting) -> list[str]:
    """A setting's purpose and its values, as lines of comment."""
    values = ", ".join(f'"{value}"' for value in setting.values) if isinstance(setting.values, tuple) else ""
    words = f"{setting.about} One of {values}." if values else setting.about
    return ["#", *(f"# {line}" for line in wrap(words, 78))]
