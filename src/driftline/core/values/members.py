"""The members of a JSON object, each value as its text: what a value is may wait, and its digits stay."""

from __future__ import annotations

from typing import Final

from msgspec import Raw, json

raw_members: Final = json.Decoder(dict[str, Raw]).decode
"""Split an object's text, by key; of a key that stands twice, the last value. Raises DecodeError, or
RecursionError where it is nested too deeply.

>>> {key: bytes(value) for key, value in raw_members('{"id": 1.50, "tags": ["a"]}').items()}
{'id': b'1.50', 'tags': b'["a"]'}
"""
