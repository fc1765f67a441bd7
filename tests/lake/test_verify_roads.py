"""What the road in does lawfully, and `verify` once took for a loss, over both formats."""

from __future__ import annotations

from pathlib import Path

from driftline.lake import Lake

BATCHES = [
    # A list column is younger than the first lists; -0.0 keeps its sign.
    ['{"id": 1, "f": "2026-01-01T00:00:00Z", "tags": [], "s": {"y": []}}'],
    [
        '{"id": 2, "f": "x", "tags": [], "x": -0.0, "s": {"y": [1]}}',
        '{"id": 3, "tags": ["a", null], "x": 0.0, "s": {"y": []}}',
        '{"id": 3, "tags": ["a", null], "x": 0.0, "s": {"y": []}}',
    ],
    # An instant, by rule, and a text: the number itself has no column of its own.
    ['{"id": 4, "f": 9223372036854775807, "z": [-0.0, 1.5]}', '{"id": 5, "f": 1767225600, "tags": [[], ["b"]]}'],
]  # fmt: skip


def test_nothing_lawful_is_taken_for_a_loss(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, files = lake.table(table_name), []
    for i, lines in enumerate(BATCHES):
        files.append(tmp_path / f"{i}.jsonl")
        files[-1].write_text("\n".join(lines) + "\n")
        table.ingest([str(files[-1])])
    paths = [str(file) for file in files]

    verdict = table.verify(paths, "json", exactly=True)
    assert (verdict.mismatches, verdict.records, verdict.extra) == ((), 6, 0)

    table.ingest(paths[:1])
    doubled = table.verify(paths, "json", exactly=True)
    assert (doubled.missing, doubled.extra, len(doubled.mismatches)) == (0, 1, 1)
    assert table.verify(paths, "json").ok


def test_a_cell_whose_quotes_end_before_it_does(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table, file = lake.table(table_name), tmp_path / "a.csv"
    file.write_text('id,text,more\n1,"a\\"b",x\n2,"a ""b""","c,d"\n')
    table.ingest([str(file)])

    verdict = table.verify([str(file)], "csv", exactly=True)
    assert verdict.ok, verdict.to_dict()
