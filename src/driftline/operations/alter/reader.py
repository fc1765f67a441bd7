"""Reading statements: types with all that a column can have, and literals."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from driftline.core.changes.values import Literal
from driftline.core.schema.type_text import TypeReader
from driftline.core.schema.types import Field
from driftline.core.schema.words import TokenKind


class StatementReader(TypeReader):
    """A cursor over a statement. Errors are UsageErrors that point at the word they stumble over."""

    def field(self) -> Field:
        field = TypeReader.field(self)
        while True:
            if self.got("NOT", "NULL"):
                field = replace(field, required=True)
            elif self.got("COMMENT"):
                field = replace(field, doc=self.text("a comment"))
            else:
                return field

    def literal(self) -> Literal:
        for word, value in (("NULL", None), ("TRUE", True), ("FALSE", False)):
            if self.got(word):
                return value
        for word in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NTZ", "TIME", "UUID"):
            if self.sees(word) and self.tokens[self.at + 1].kind is TokenKind.text:
                self.next()
        sign = "-" if self.got("-") else ""
        token = self.now
        if token.kind is TokenKind.number or (token.kind is TokenKind.text and not sign):
            self.next()
            number = token.kind is TokenKind.number
            return _number(sign + token.value) if number else token.value
        if token.kind is TokenKind.bytes and not sign:
            if len(token.value) % 2:
                self.stop("bytes have two digits each")
            return bytes.fromhex(self.next().value)
        if token.kind is TokenKind.quoted:
            self.stop(f"{token.value!r} in these quotes is a name", "a text stands in single quotes")
        return self.stop(
            "a default is a literal", "a number, 'text', TRUE, FALSE, NULL, DATE '2026-01-31', X'00ff'"
        )


def _number(text: str) -> int | Decimal:
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)
