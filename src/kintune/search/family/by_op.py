"""Kin by core operator: all convolutions are one family, all depthwise ones another.  The published method's choice."""

from __future__ import annotations

from kintune.core.workload import Subject

__all__ = ["family_of"]


def family_of(subject: Subject) -> str:
    """The core operator."""
    return f"op:{subject.operator}"
