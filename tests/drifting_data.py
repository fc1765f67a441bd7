"""Drifting data that tests read: made by seeded generators, or a person's own files.

`DRIFTLINE_DATA` names a folder of files `*.jsonl` of real data; without it, tests of them are skipped.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REAL = Path(os.environ.get("DRIFTLINE_DATA", "no folder is named"))

needs_real_data = pytest.mark.skipif(
    not REAL.is_dir(), reason="real data: DRIFTLINE_DATA=FOLDER names a folder of *.jsonl"
)


def telemetry(path: Path, pings: int = 120) -> Path:
    """Write pings of a browser to ``path``: most of their keys are data.

    Histograms have buckets as keys, add-ons their ids, measurements their labels; the same measurement is a
    number in one ping, an object or a list in another.
    """
    rng = random.Random(8)
    with path.open("w") as file:
        file.writelines(json.dumps(_ping(rng, number)) + "\n" for number in range(pings))
    return path


def _ping(rng: random.Random, number: int) -> dict[str, Any]:
    ping: dict[str, Any] = {
        "type": rng.choice(("main", "crash", "event", "bhr")),
        "id": f"{rng.getrandbits(32):08x}-00b0-4df0-915d-{number:012x}",
        "creationDate": f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T06:53:10.{number:03}Z",
        "version": 4 if number % 9 else "4.1",
        "application": {
            "name": "Fennec",
            "buildId": f"2026{rng.randint(0, 10**6):010}",
            "xpcomAbi": "arm-eabi",
        },
        "environment": {
            "addons": {f"{{{rng.getrandbits(64):016x}}}@example.org": _addon(rng) for _ in range(6)},
            "settings": {
                "userPrefs": dict(_preferences(rng)),
                "locale": "de" if number % 7 else ["de", "en"],
            },
        },
        "payload": {
            "histograms": {name: _histogram(rng) for name in _names(rng, "HISTOGRAM", 25)},
            "keyedHistograms": {
                name: {f"https://{rng.getrandbits(24):06x}.example.org": _histogram(rng) for _ in range(3)}
                for name in _names(rng, "KEYED", 12)
            },
            "simpleMeasurements": {name: rng.randint(0, 10**5) for name in _names(rng, "measured", 15)},
            "info": {"reason": "daily", "subsessionLength": rng.randint(1, 90_000)},
        },
    }
    if number % 11 == 0:
        ping["payload"]["info"] = ["shutdown", rng.random()]
    return ping


def _names(rng: random.Random, prefix: str, count: int) -> list[str]:
    return [f"{prefix}_{n}" for n in sorted(rng.sample(range(30), count))]


def _histogram(rng: random.Random) -> dict[str, Any]:
    buckets = {str(2 ** rng.randint(0, 40)): rng.randint(1, 900) for _ in range(rng.randint(2, 9))}
    return {"range": [1, 2**40], "bucket_count": 40, "histogram_type": 0, "values": buckets, "sum": 7}


def _addon(rng: random.Random) -> dict[str, Any]:
    addon = {"version": f"{rng.randint(1, 9)}.0", "scope": rng.randint(1, 4), "isSystem": rng.random() < 0.5}
    return addon if rng.random() < 0.8 else {**addon, "version": rng.randint(1, 9), "blocked": None}


def _preferences(rng: random.Random) -> Iterator[tuple[str, Any]]:
    for _ in range(8):
        yield f"browser.{rng.getrandbits(20):05x}.enabled", rng.choice((True, 1, "default"))
