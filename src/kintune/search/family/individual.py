"""No kin: every subgraph is a family of its own.  The control that shows what sharing is worth."""

from __future__ import annotations

from kintune.core.workload import Subject

__all__ = ["family_of"]


def family_of(subject: Subject) -> str:
    """The workload itself."""
    return f"ind:{subject.workload}"
