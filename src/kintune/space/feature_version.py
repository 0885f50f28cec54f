"""The version of the features; apart from their extraction, so that processes without the compiler can name it."""

from __future__ import annotations

__all__ = ["FEATURES"]

FEATURES = "per-store-pooled-1"
"""Version of the extraction in `kintune.space.features`; models and records that name another are not comparable."""
