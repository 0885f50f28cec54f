"""Families by core operator, as in FamilySeer: all convolutions are one family, all depthwise ones another."""

from __future__ import annotations

from kintune.core.workload import Subject

__all__ = ["family_of"]


def family_of(subject: Subject) -> str:
    """Return the key: the core operator."""
    return f"op:{subject.operator}"
