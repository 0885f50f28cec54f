"""The scheduling policies, one file each, and the registry of their names."""

from __future__ import annotations

from kintune.errors import InputError
from kintune.scheduler.policies.fair import Fair
from kintune.scheduler.policies.greedy import Greedy
from kintune.scheduler.policies.predictive import Predictive
from kintune.scheduler.policies.sequential import Sequential
from kintune.scheduler.policies.synchronous import Synchronous
from kintune.scheduler.policies.uncontrolled import Uncontrolled
from kintune.scheduler.policy import Policy

__all__ = ["POLICIES", "Fair", "Greedy", "Predictive", "Sequential", "Synchronous", "Uncontrolled", "policy"]

POLICIES: dict[str, type[Policy]] = {
    each.name: each for each in (Sequential, Synchronous, Uncontrolled, Greedy, Fair, Predictive)
}
"""Policy classes by name."""


def policy(name: str) -> Policy:
    """Return a new policy of this name.

    Raises:
        InputError: there is no policy of this name.
    """
    if name not in POLICIES:
        raise InputError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]()
