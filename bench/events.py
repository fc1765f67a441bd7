"""Drifting events for benchmarks: seeded, about 410 bytes and 25 leaves each, as JSON lines in several files."""

from __future__ import annotations

import json
import random
from pathlib import Path

_COUNTRIES = ("DE", "FR", "IL", "US", "JP", "BR", "IN")
_KINDS = ("view", "click", "cart", "order", "refund")


def event(i: int, rng: random.Random) -> dict[str, object]:
    """One event without drift."""
    stamp = f"2026-03-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:{i % 59:02d}Z"
    return {
        "id": i,
        "event": rng.choice(_KINDS),
        "at": stamp,
        "user": {
            "id": rng.randrange(10**9),
            "name": f"user-{i % 9973}",
            "country": rng.choice(_COUNTRIES),
            "vip": i % 17 == 0,
        },
        "session": f"{rng.getrandbits(64):016x}",
        "amount": round(rng.random() * 500, 2),
        "quantity": rng.randrange(1, 9),
        "code": rng.randrange(100, 999),
        "device": {"os": "linux", "version": f"{i % 12}.{i % 7}", "screen": {"w": 1920, "h": 1080}},
        "tags": [f"t{rng.randrange(50)}" for _ in range(3)],
        "items": [
            {
                "sku": f"sku-{rng.randrange(10_000)}",
                "price": round(rng.random() * 90, 2),
                "n": rng.randrange(1, 4),
            }
            for _ in range(2)
        ],
        "referrer": None if i % 3 else "https://example.org/landing?campaign=spring",
        "ok": i % 2 == 0,
    }


def drifted(record: dict[str, object], rng: random.Random) -> dict[str, object]:
    """The same event with one field of another type: four in five that had numbers, one that had texts."""
    match rng.randrange(5):
        case 0:
            record["quantity"] = f"{record['quantity']} pieces"
        case 1:
            record["quantity"] = {"value": record["quantity"], "unit": "kg"}
        case 2:
            record["code"] = f"E{record['code']}"
        case 3:
            record["code"] = {"major": 1, "minor": record["code"]}
        case _:
            record["session"] = rng.getrandbits(40)
    return record


def write(
    folder: Path, records: int, drift: float, *, malformed: float = 0, files: int = 8, seed: int = 7
) -> int:
    """Writes the events, a share ``drift`` of them drifted, and a share ``malformed`` cut off in the middle of their
    lines; returns the bytes. The same call writes the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    total = 0
    for f in range(files):
        path = folder / f"part-{f:02d}.jsonl"
        with path.open("w") as out:
            for i in range(f * records // files, (f + 1) * records // files):
                record = event(i, rng)
                if rng.random() < drift:
                    record = drifted(record, rng)
                line = json.dumps(record, separators=(",", ":"))
                if malformed and rng.random() < malformed:
                    line = line[: len(line) // 2]
                out.write(line + "\n")
        total += path.stat().st_size
    return total
