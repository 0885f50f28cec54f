"""The versions of Kintune, of its elementary functions and of the features of candidates."""

from __future__ import annotations

__all__ = ["COMPILER_ONLY", "ELEMENTARY", "FEATURES", "__version__"]


__version__ = "0.1.0"


ELEMENTARY = "elementary-1"
"""Version of the elementary functions: times of programs that were compiled with other ones are not comparable."""


FEATURES = "traits-1, per-store-pooled-1"
"""Version of the features that `kintune.search.features` and `kintune.compiler.space.features` extract.

Feature rows of another version cannot be used with these, nor can models that were trained on such rows.
"""

COMPILER_ONLY = "per-store-pooled-1"
"""An earlier version, whose rows have only the features that the compiler extracts, no analytic features."""
