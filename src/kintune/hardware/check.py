"""The result of one check of `kintune doctor`."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["Check", "HardwareVerdict"]


class HardwareVerdict(str, Enum):
    """What the result means for tuning."""

    GOOD = "good"
    NOTE = "note"  # tuning works; something is worth knowing
    PROBLEM = "problem"  # tuning will not work before this is mended


class Check(msgspec.Struct, frozen=True):
    """What was checked (`name`), what was found, and what can be done about it (`remedy`, may be empty)."""

    name: str
    verdict: HardwareVerdict
    finding: str
    remedy: str = ""
