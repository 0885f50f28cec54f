"""How the scheduler chooses; one file a policy."""

from kintune.scheduler.policies.sequential import Sequential

__all__ = ["Sequential"]
