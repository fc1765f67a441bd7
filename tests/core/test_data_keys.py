"""The looks of keys, as a table that can be read against section 9."""

from __future__ import annotations

import pytest

from driftline.core.planning.maps import KeyForm, key_form

LOOKS = {
    KeyForm.sure: """
        123456 20240131 -1234567890 2024-01-31 2024-01-31T08:00:00Z 2024-01-31T08:00:00.25+02:00
        0b9e3a52-2d1c-4a5e-9a67-1f6f3c0d9d11 user:0b9e3a52-2d1c-4a5e-9a67-1f6f3c0d9d11 a/b /usr/lib application/json
        @types/node someone@example.org d41d8cd98f00b204e9800998ecf8427e
    """,
    KeyForm.data: """
        0 7 2026 -3 1.5 v1.2 1.2.3 v1.2.3-rc1 2024-01 10.0.0.1 10.0.0.1:8080 2001:db8::1 ::1 0x1f
        01ARZ3NDEKTSV4RRFFQ69G5FAV a1b2c3d4 deadbee5 cus_9s6XKzkNRiz8i3 sub-1a2b3c4d
    """,
    KeyForm.code: "Q42 P31 H1 A1B2 CVE-2021-1 T1059",
    KeyForm.neutral: "default * . other unknown all none null undefined",
    KeyForm.word: """
        id name created_at createdAt v1 ipv4 utf-8 US de en-GB deadbeef facade user-100000 SHA256 h1 sha-1 line_2
        first.name $ref _id x 3d i18n histogram_modules12345678 payload@v2 Default
    """,
}


@pytest.mark.parametrize(
    ("key", "kind"), [(key, kind) for kind, keys in LOOKS.items() for key in keys.split()]
)
def test_a_key_looks_like(key: str, kind: KeyForm) -> None:
    assert key_form(key) is kind


def test_the_empty_key_is_neither_for_nor_against() -> None:
    assert key_form("") is KeyForm.neutral


def test_no_name_of_a_field_is_as_long_as_a_text() -> None:
    assert key_form("lorem ipsum " * 100) is KeyForm.sure
