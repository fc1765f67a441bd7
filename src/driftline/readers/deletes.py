"""Reads records that delete rows: only their key and order count (section 11.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, json
from numpy.typing import NDArray

from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Path, Struct
from driftline.core.settings.condition import (
    Condition,
    Junction,
    KeyAlone,
    OneOf,
    leaves_of,
    of_message,
    of_record,
    paths_of,
)
from driftline.core.support import gc_paused, lines_with
from driftline.core.values import Malformed, Number, parse, raw_members, reason
from driftline.keys.filling import Test, holds, record_test
from driftline.keys.slices import DELETE_FLAG
from driftline.observe.decoder import REFUSED
from driftline.observe.expect import ExpectedField
from driftline.readers.task import AdmissionTerms

# Fields by key, each with those below it that are needed; none: all of it is.
Fields: TypeAlias = "Mapping[str, Fields]"

_OBJECT = ord("{")
# Observed in place of a value that is no record, and not even text of JSON
NO_RECORD = b'""'


@dataclass(frozen=True)
class DeleteFilter:
    """Cuts records that delete down to their ``fields`` of key and order, before they are observed.

    Attributes:
        condition: true for records that delete.
    """

    condition: Condition
    fields: Fields

    @classmethod
    def of(cls, terms: AdmissionTerms) -> DeleteFilter | None:
        """The filter for a table; None if no record deletes."""
        row_key = terms.settings.row_key
        if row_key is None or row_key.delete_when is None:
            return None
        condition = row_key.delete_when
        if row_key.deletes_by_null:
            condition = of_record(condition)
        return cls(condition, _required(terms.expected))

    @gc_paused()
    def lines(self, lines: Sequence[bytes]) -> tuple[Sequence[bytes], NDArray[np.bool_]]:
        """Cut lines of JSON, and flag those that delete. A line that is no record is left as it is."""
        flags = np.zeros(len(lines), np.bool_)
        cut = list(lines)
        decode, deletes = self._decode, self._test
        for place in self._suspects(lines):
            line = lines[place]
            try:
                record = decode(line)
            except REFUSED:
                try:
                    record = parse(line)
                except Malformed:
                    continue
            # The condition is asked of the record as it came: in a column that became text, 1 and "1" are
            # one.
            # The decoder reads only what the condition asks for, so the line may still be no record.
            if deletes(record) and reason(line) is None:
                flags[place] = True
                # Without its other fields, a record that deletes cannot drift the table.
                cut[place] = _cut_text(line, self.fields)
        return cut, flags

    def messages(
        self, lines: Sequence[bytes], nulls: Sequence[int]
    ) -> tuple[Sequence[bytes], NDArray[np.bool_]]:
        """Cut lines of a topic as `lines` does; at ``nulls`` are keys whose message has a null value.

        Those that delete nothing are no records.
        """
        records, flags = self.of_message(null=False).lines(lines)
        if not nulls:
            return records, flags
        cut = list(records)
        keys, flags[nulls] = self.of_message(null=True).lines([lines[place] for place in nulls])
        for place, key in zip(nulls, keys, strict=True):
            cut[place] = key if flags[place] else NO_RECORD
        return cut, flags

    # In a topic, `value is null` asks for the message's value. No record has a field `value`, so each would
    # delete its row.
    def of_message(self, *, null: bool) -> DeleteFilter:
        """The filter for messages of a topic, whose value is ``null`` or a record."""
        return self._of_null if null else self._of_record

    @cached_property
    def _of_null(self) -> DeleteFilter:
        return replace(self, condition=of_message(self.condition, null=True))

    @cached_property
    def _of_record(self) -> DeleteFilter:
        return replace(self, condition=of_message(self.condition, null=False))

    def rows(self, batch: pa.RecordBatch, struct: Struct) -> tuple[pa.RecordBatch, pa.Array]:
        """Cut rows of columns, and flag those that delete.

        Args:
            struct: the types, by key.
        """
        flags = pc.fill_null(holds(self.condition, batch, struct), False)
        arrays = batch.columns
        if pc.any(flags).as_py():
            changes = pa.array(np.arange(len(batch)), mask=flags.to_numpy(zero_copy_only=False))
            arrays = _cut_columns(arrays, struct, self.fields, changes)
        # With or without deletes, batches have one schema.
        schema = pa.schema([f.with_nullable(True) for f in batch.schema])
        return pa.RecordBatch.from_arrays(arrays, schema=schema), flags

    def shape(self, shape: RecordShape) -> RecordShape:
        """The part of a shape that records which delete have."""
        return _cut_shape(shape, self.fields)

    def _suspects(self, lines: Sequence[bytes]) -> Sequence[int]:
        """The places of lines that may delete."""
        # Decoding every line would cost all batches, so only lines with a text that the condition needs are
        # decoded.
        signs = _signs(self.condition)
        if signs is None:
            return range(len(lines))
        # Any text may be escaped
        return lines_with(lines, {sign: re.escape(sign) for sign in (*signs, b"\\")})

    @cached_property
    def _decode(self) -> Any:
        """The decoder of the fields that the condition asks for; it skips those that do not matter."""
        if any(isinstance(leaf, KeyAlone) for leaf in leaves_of(self.condition)):
            return json.Decoder(dict[str, object], float_hook=Number).decode
        return json.Decoder(fields_type(list(paths_of(self.condition))), float_hook=Number).decode

    @cached_property
    def _test(self) -> Test:
        return record_test(self.condition)


def flagged(rows: pa.RecordBatch, deletes: pa.Array | None) -> pa.RecordBatch:
    """Rows of a table with flags of those that delete, if some may."""
    return rows if deletes is None else rows.append_column(DELETE_FLAG, deletes)


def _required(expected: ExpectedField) -> Fields:
    """The fields that each record must have.

    Rows are known or ordered by them, or their columns are required.
    """
    return {key: _required(field) for key, field in expected.fields.items() if field.required}


def _signs(condition: Condition) -> frozenset[bytes] | None:
    """Texts of which each line without an escape has one if the condition is true; None if there are none."""
    match condition:
        case OneOf(_, values):
            texts = [_sign(value) for value in values if not isinstance(value, Decimal)]
            return frozenset(texts) if len(texts) == len(values) else None
        case Junction(parts, any_of):
            signs = list(map(_signs, parts))
            known_signs = [part_signs for part_signs in signs if part_signs is not None]
            if any_of:
                return frozenset().union(*known_signs) if len(known_signs) == len(signs) else None
            return known_signs[0] if known_signs else None
    return None


def _sign(value: str | bool) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return b'"%b"' % value.encode()


def fields_type(paths: Sequence[Path]) -> Any:
    """Return a type for msgspec of records in which these paths alone are read."""
    keys = dict.fromkeys(path[0] for path in paths)
    tails_of = {key: [path[1:] for path in paths if path[0] == key] for key in keys}
    types = {key: fields_type(tails) | None if all(tails) else object for key, tails in tails_of.items()}
    return TypedDict("Asked", types, total=False)  # type: ignore[operator]


def _cut_text(text: bytes | Raw, fields: Fields) -> bytes:
    """A record with these fields alone. Of a key that it has twice, the last value counts."""
    record: dict[str, bytes | Raw] = raw_members(text)  # type: ignore[assignment]
    members = []
    for key, inside in fields.items():
        if key in record:
            value = record[key]
            if inside and memoryview(value)[0] == _OBJECT:
                value = _cut_text(value, inside)
            members.append(json.encode(key) + b":" + value)
    return b"{%b}" % b",".join(members)


def _cut_columns(
    arrays: Sequence[pa.Array], struct: Struct, fields: Fields, changes: pa.Array
) -> list[pa.Array]:
    """Columns whose other fields are null in rows that delete.

    Args:
        changes: the rows, null for those.
    """
    cut = []
    for f, array in zip(struct.fields, arrays, strict=True):
        if f.name not in fields:
            array = array.take(changes)
        elif fields[f.name] and isinstance(f.type, Struct):
            children = [array.field(i) for i in range(len(f.type.fields))]
            children = _cut_columns(children, f.type, fields[f.name], changes)
            array = pa.StructArray.from_arrays(children, fields=list(array.type), mask=array.is_null())
        cut.append(array)
    return cut


def _cut_shape(shape: RecordShape, fields: Fields) -> RecordShape:
    cut = shape.having(fields.__contains__)
    for key, field in cut.fields.items():
        if fields[key]:
            facets = {
                facet: profile
                if profile.record is None
                else replace(profile, record=_cut_shape(profile.record, fields[key]))
                for facet, profile in field.facets.items()
            }
            cut.fields[key] = replace(field, facets=facets)
    return cut
