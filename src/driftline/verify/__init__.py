"""Proof that nothing was lost: source and table compared value by value.

An independent check: it shares nothing with observing and routing, and reads both sides plainly. `match`
decides if a row holds a record, `matching_key` brings the two together, `comparison` handles what is left
over, `job` does it for all.
"""

from driftline.verify.in_memory import PICKLED
from driftline.verify.in_memory import write as pickled
from driftline.verify.job import Stored, compared_columns, dealt_by_table, verify, verify_dealt
from driftline.verify.messages import MESSAGES
from driftline.verify.messages import write as written_messages
from driftline.verify.verdict import Mismatch, PatternVerdict, Verdict

__all__ = [
    "MESSAGES",
    "PICKLED",
    "Mismatch",
    "PatternVerdict",
    "Stored",
    "Verdict",
    "compared_columns",
    "dealt_by_table",
    "pickled",
    "verify",
    "verify_dealt",
    "written_messages",
]
