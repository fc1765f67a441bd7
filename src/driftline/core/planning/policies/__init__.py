"""Policies, one file each: the columns that a field needs for its observed values.

`POLICIES` has them all.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftline.core.planning.policies.policy import Policy
from driftline.core.planning.policies.preserve import Preserve
from driftline.core.planning.policies.strict import Strict
from driftline.core.planning.policies.widen import Widen

_WHERE_ALL_IS_NEW = Preserve()
_ALL: tuple[Policy, ...] = (Preserve(), Widen(), Strict())
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _ALL}


def policy_of(name: str, *, new_struct: bool = False) -> Policy:
    """The policy of this name.

    In a struct that is itself new, ``strict`` accepts the fields of its first batch.
    """
    policy = POLICIES[name]
    return policy if policy.makes_columns or not new_struct else _WHERE_ALL_IS_NEW
