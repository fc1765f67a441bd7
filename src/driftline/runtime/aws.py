"""boto3, for features that Arrow lacks: message queues, and listings that start after a name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from driftline.errors import SetupError
from driftline.runtime.stores import without_secrets

_ATTEMPTS = 6  # at a request, each after a longer pause
_CONNECT, _REQUEST = 5.0, 60.0  # seconds
_KEYS = {
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "region_name",
    "endpoint": "endpoint_url",
}
_VARIABLES = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


def client(service: str, options: Mapping[str, str]) -> Any:
    """A client of a service. ``options``: as of ``[store.s3]``; keys that are not there come from the
    environment. Raises SetupError where the client is not installed, or knows no region.
    """
    try:
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.session import Session
    except ImportError as error:
        raise SetupError(
            "Amazon's client, botocore, is not installed.", "pip install 'driftline[s3]'"
        ) from error
    style = "virtual" if options.get("path_style") == "false" else "path"
    config = Config(
        connect_timeout=_CONNECT,
        read_timeout=_REQUEST,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        s3={"addressing_style": style if "endpoint" in options else "auto"},
        signature_version=UNSIGNED if options.get("anonymous") == "true" else None,
    )
    credentials = {word: options[key] for key, word in _KEYS.items() if key in options}
    with explaining(service, options):
        return Session().create_client(service, config=config, **credentials)


def keys(options: Mapping[str, str]) -> dict[str, str]:
    """The keys that the environment has for S3, as ``[store.s3]`` has them; none where it has none.

    Without Amazon's client these are the variables alone.
    """
    found = {word: value for word, name in _VARIABLES.items() if (value := os.environ.get(name))}
    if "access_key" in found:
        return found
    try:
        from botocore.session import Session
    except ImportError:
        return {}
    with explaining("S3", options):
        credentials = Session().get_credentials()
        if credentials is None:
            return {}
        now = credentials.get_frozen_credentials()
    parts = {"access_key": now.access_key, "secret_key": now.secret_key, "session_token": now.token}
    return {word: value for word, value in parts.items() if value}


@contextmanager
def explaining(place: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn a service's answer into a SetupError of one sentence, without secrets of the options."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise SetupError(
            f"{place}: {without_secrets(str(error), options)}",
            hint="check the address, the region, and what the keys allow",
        ) from error
