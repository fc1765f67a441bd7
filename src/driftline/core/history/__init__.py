"""The history of a table: its changes, their authors, and the batches it has."""

from __future__ import annotations
