"""The road of a steady batch, which is to be read in few files."""

import pytest

import batch_trace


@pytest.mark.nightly
def test_steady_batch_enters_few_files_and_few_for_one_function() -> None:
    """Ceilings to be lowered as the figures of `make house` fall."""
    road = batch_trace.road()

    assert len(road.functions) <= 65
    assert len(road.single) <= 1, road.single
    assert len(road.trunk) <= 14, road.trunk
