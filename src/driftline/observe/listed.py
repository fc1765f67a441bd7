"""Records in a list inside of documents of JSON, as answers of web services have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from driftline.core.planning.shape import RECORD, Facet, RecordShape
from driftline.core.schema.types import Path, dotted
from driftline.core.values import UnlistedDocument

_NULL = b"null"
_RECORD, _RECORDS = Facet(0, RECORD), Facet(1, RECORD)


class ListedRecords:
    """Takes records out of the list at a path of each document.

    Values beside the list are no part of a record: they are counted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._others: Counter[str] = Counter()

    def of(self, document: bytes) -> Iterator[bytes]:
        """Yield the text of each element of the list; a null is an empty one.

        A document without the list comes as an `UnlistedDocument`.

        >>> listed = ListedRecords(("data", "rows"))
        >>> list(listed.of(b'{"data": {"rows": [{"a": 1}, {"a": 2}], "page": 7}, "next": null}'))
        [b'{"a": 1}', b'{"a": 2}']
        >>> listed.taken()
        Counter({'data.page': 1})
        """
        others: list[str] = []
        text: bytes | msgspec.Raw = document
        try:
            for depth, key in enumerate(self._path):
                members: dict[str, msgspec.Raw] = _decoded(text, dict[str, msgspec.Raw])
                text = members.pop(key)
                outside = self._path[:depth]
                others += [
                    dotted((*outside, name)) for name, value in members.items() if bytes(value) != _NULL
                ]
            records: list[msgspec.Raw] = _decoded(text, list[msgspec.Raw] | None) or []
        except (KeyError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            yield UnlistedDocument.of(document, dotted(self._path))
            return
        self._others.update(others)
        yield from map(bytes, records)

    def taken(self) -> Counter[str]:
        """The number of documents with a value at each path beside the list, since the last call."""
        others, self._others = self._others, Counter()
        return others


def lists_of_records(shape: RecordShape, path: Path = ()) -> Iterator[Path]:
    """The paths of lists of objects in documents, as far as objects alone lead there."""
    for key, field in shape.fields.items():
        for facet, profile in field.facets.items():
            if facet == _RECORDS:
                yield (*path, key)
            elif facet == _RECORD and profile.record is not None:
                yield from lists_of_records(profile.record, (*path, key))


def _decoded(text: bytes | msgspec.Raw, type_: Any) -> Any:
    return msgspec.json.decode(text, type=type_)
