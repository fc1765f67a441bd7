"""Values that Debezium leaves out: too large, and unchanged, so that PostgreSQL does not send them again.

What stands in their place depends on the type of the column, and on the connector's setting
`unavailable.value.placeholder`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import md5
from uuid import UUID

from msgspec import Raw, json

from driftline.core.settings.row_key import placeholder_bytes
from driftline.core.values import raw_members
from driftline.readers.envelopes.change import EnvelopeTerms, NotReadable

_SHAPES = (
    "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==",  # a geometry: a point far out
    "AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==",  # a geography
)


class Placeholder:
    """The connector's placeholder ``text`` for such values, in the form that each type of column has it."""

    def __init__(self, text: str) -> None:
        raw = placeholder_bytes(text)
        spelled = raw.decode(errors="replace")
        in_base64 = b64encode(raw).decode()
        as_uuid = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        hstore = {spelled: spelled}
        self._texts = tuple(map(json.encode, (spelled, in_base64)))
        self._pair = json.encode(json.encode(hstore).decode())
        self._others = [[spelled], [in_base64], [as_uuid], list(raw), hstore]
        # A text without any of these has no such value.
        self._signs = *self._texts, self._pair, json.encode(as_uuid), b'"wkb"'
        self._numbers = re.compile(rb"\s*,\s*".join(b"%d" % number for number in raw[:3]))

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, text: str) -> Placeholder:
        """The placeholder of this text."""
        return cls(text)

    def may_be_in(self, text: bytes) -> bool:
        """True if a text, of a row or of many, may have such a value."""
        return any(sign in text for sign in self._signs) or self._numbers.search(text) is not None

    def taken_out(self, row: bytes | Raw) -> tuple[bytes | Raw, Sequence[str]]:
        """A row without the values that are left out, and the names of their fields. Raises NotReadable."""
        text = bytes(row)
        if not self.may_be_in(text):
            return row, ()
        members = raw_members(row)
        names = [name for name, value in members.items() if self._is_it(value)]
        available = json.encode({name: value for name, value in members.items() if name not in names})
        if any(sign in available for sign in self._texts):
            raise NotReadable("a value inside another that Debezium has left out as unavailable")
        return available, names

    def _is_it(self, value: Raw) -> bool:
        text = bytes(value)
        if text[:1] == b'"':
            return text in self._texts or text == self._pair
        if text[:1] not in (b"[", b"{"):
            return False
        decoded = json.decode(text)
        return decoded in self._others or (isinstance(decoded, dict) and decoded.get("wkb") in _SHAPES)


def available(row: bytes | Raw, terms: EnvelopeTerms) -> tuple[bytes | Raw, Sequence[str]]:
    """A row without the values that are left out, and the names of their fields. Raises NotReadable."""
    if not terms.placeholder_text:
        return row, ()
    return Placeholder.of(terms.placeholder_text).taken_out(row)
