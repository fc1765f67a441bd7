"""Converts records to the table's columns: a pure function of a plan and a batch of records, in Arrow."""

from driftline.convert.converter import Converter
from driftline.convert.drifted_values import DriftedValues
from driftline.convert.fill import LOST, Lost
from driftline.convert.types import arrow_schema, arrow_type

__all__ = ["LOST", "Converter", "DriftedValues", "Lost", "arrow_schema", "arrow_type"]
