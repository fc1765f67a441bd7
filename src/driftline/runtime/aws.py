"""Amazon's own client, for features that Arrow lacks: queues of messages, and listings that begin behind a
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from driftline.errors import SetupError
from driftline.runtime.store_answers import without_secrets

_ATTEMPTS = 6  # at a request, each after a longer pause
_CONNECT, _REQUEST = 5.0, 60.0  # seconds
_KEYS = {
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "region_name",
    "endpoint": "endpoint_url",
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
    given = {word: options[key] for key, word in _KEYS.items() if key in options}
    with explaining(service, options):
        return Session().create_client(service, config=config, **given)


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
