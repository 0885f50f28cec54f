"""The versions of Kintune, of its elementary functions and of the features of candidates."""

from __future__ import annotations

__all__ = ["COMPILER_ONLY", "ELEMENTARY", "FEATURES", "__version__"]


__version__ = "0.1.0"


ELEMENTARY = "elementary-1"
"""The version of the functions: times of programs that were compiled with others are not comparable."""


FEATURES = "traits-1, per-store-pooled-1"
"""Version of what `kintune.search.features` and `kintune.compiler.space.features` tell of a candidate.

Models and records that name another are not comparable.
"""

COMPILER_ONLY = "per-store-pooled-1"
"""The version before: rows of what the compiler tells, nothing else."""
