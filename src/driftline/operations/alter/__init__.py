"""Evolution by hand: ALTER TABLE statements, or changes as values,
applied together in one commit, or none.
"""

from driftline.operations.alter.alter import Altered, alter, local_name
from driftline.operations.alter.parse import Statement, parse
from driftline.operations.alter.request import AlterRequest

__all__ = ["AlterRequest", "Altered", "Statement", "alter", "local_name", "parse"]
