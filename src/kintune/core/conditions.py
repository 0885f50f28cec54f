"""Under which conditions knowledge was gained, and may be used again."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Conditions"]


class Conditions(NamedTuple):
    """A device type (its digest), the compiler's version, and the version of the features."""

    device_type: str
    compiler: str
    feature_version: str
