"""Every subgraph is its own family: the control without sharing."""

from __future__ import annotations

from kintune.core.workload import Subject

__all__ = ["family_of"]


def family_of(subject: Subject) -> str:
    """Return the key: the workload digest."""
    return f"ind:{subject.workload}"
