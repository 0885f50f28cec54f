"""A schedule as lines of JSON: how it was made, then each event with the decisions it led to.

What was recorded can be played again: the same events lead to the same decisions.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.scheduler.decisions import Decision
from kintune.scheduler.events import Event

__all__ = ["RECORDING_VERSION", "Header", "Line", "RecordedStep", "decode_line", "encode_line"]

RECORDING_VERSION = 1


class Header(msgspec.Struct, frozen=True, tag="schedule"):
    """The first line: the policy and the limits that decided, and what people call the jobs."""

    policy: str
    bundling: bool = False
    names: dict[str, str] = {}
    version: int = RECORDING_VERSION


class RecordedStep(msgspec.Struct, frozen=True, tag="step"):
    """One event, and what was decided at once."""

    event: Event
    decisions: tuple[Decision, ...] = ()


Line: TypeAlias = Header | RecordedStep

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """One line, with its end."""
    return _encoder.encode(line) + b"\n"


def decode_line(text: bytes) -> Line:
    """The line; raises msgspec.MsgspecError where it is none."""
    return _decoder.decode(text)
