"""The answers of servers, by their HTTP status."""

from __future__ import annotations

_BUSY = (408, 425, 429)


def passes(code: int) -> bool:
    """True if a server that answers with this HTTP status may answer otherwise soon.

    >>> passes(503), passes(429), passes(404)
    (True, True, False)
    """
    return code in _BUSY or code >= 500
