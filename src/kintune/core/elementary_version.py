"""The version of our elementary functions; free of TVM."""

from __future__ import annotations

__all__ = ["ELEMENTARY"]

ELEMENTARY = "elementary-1"
"""The version of the functions: times of programs that were compiled with others are not comparable."""
