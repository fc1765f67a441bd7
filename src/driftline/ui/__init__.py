"""The lake in a browser: pages that read it, on an address of this machine, behind a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.errors import SetupError

if TYPE_CHECKING:
    from driftline.ui.server import LakeServer

LOCAL = "127.0.0.1"


def lake_server() -> type[LakeServer]:
    """The class of the server. Raises SetupError where what serves the pages is not installed."""
    try:
        from driftline.ui.server import LakeServer
    except ImportError as error:
        raise SetupError(
            f"{error.name} is not installed, which serves the pages.", "pip install 'driftline[ui]'"
        ) from error
    return LakeServer
