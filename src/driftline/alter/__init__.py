"""Evolution by hand: ALTER TABLE statements, or changes as values, applied together in one commit, or none."""

from driftline.alter.alter import Altered, alter, local_name
from driftline.alter.parse import Statement, parse
from driftline.alter.request import Request

__all__ = ["Altered", "Request", "Statement", "alter", "local_name", "parse"]
