"""The version of the features; apart from their extraction, so that processes without the compiler can name it."""

from __future__ import annotations

__all__ = ["COMPILER_ONLY", "FEATURES"]

FEATURES = "traits-1, per-store-pooled-1"
"""Version of what `kintune.search.traits` and `kintune.compiler.space.features` tell of a candidate.

Models and records that name another are not comparable.
"""

COMPILER_ONLY = "per-store-pooled-1"
"""The version before: rows of what the compiler tells, nothing else."""
