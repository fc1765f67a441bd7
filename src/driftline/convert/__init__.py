"""Converts records to table columns in Arrow: a pure function of a plan and a batch of records."""

from driftline.convert.converter import LOST, Converter, DriftedValues, Lost
from driftline.convert.types import arrow_schema, arrow_type

__all__ = ["LOST", "Converter", "DriftedValues", "Lost", "arrow_schema", "arrow_type"]
