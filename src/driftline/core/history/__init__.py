"""A table's memory: its changes, who made them, and the batches it has."""

from __future__ import annotations
