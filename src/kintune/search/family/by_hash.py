"""Families by operator sequence: subgraphs that fuse the same operators in the same order are one family."""

from __future__ import annotations

from kintune.core.workload import Subject

__all__ = ["family_of"]


def family_of(subject: Subject) -> str:
    """Return the key: the core operator and the operator sequence."""
    return f"hash:{subject.operator}:{subject.signature}"
