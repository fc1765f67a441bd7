"""Evolution by hand: ALTER TABLE statements, or changes as values,
applied together in one commit, or none.
"""

from driftline.operations.alter.alter import Altered, alter, local_name
from driftline.operations.alter.parse import AlterRequest, parse

__all__ = ["AlterRequest", "Altered", "alter", "local_name", "parse"]
