"""One question that the doctor asks, answered."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["Check", "Verdict"]


class Verdict(str, Enum):
    """What an answer means for tuning."""

    GOOD = "good"
    NOTE = "note"  # tuning works; something is worth knowing
    PROBLEM = "problem"  # tuning will not work before this is mended


class Check(msgspec.Struct, frozen=True):
    """What was looked at (`name`), what was found, and, where something can be done, what (`remedy`)."""

    name: str
    verdict: Verdict
    finding: str
    remedy: str = ""
