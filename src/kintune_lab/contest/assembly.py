"""What an assembler is asked; free of TVM."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.model import ModelRef

__all__ = ["ASSEMBLER", "Assemble", "AssemblyOrder", "Ingredients", "Replay"]

ASSEMBLER = "assembler"
"""The kind of worker, and of its stage."""


class Ingredients(msgspec.Struct, frozen=True):
    """The network, and the sketches of all programs that may be asked for."""

    model: ModelRef
    threads: int
    sketches: tuple[Sketch, ...]


class Assemble(msgspec.Struct, frozen=True, tag="assemble"):
    """Compile the network with these programs, one a workload at most, and write it to `path` (a `.kt` file).

    Workloads without a program, or with the untuned one, take the compiler's default schedule.  Answered by nothing.
    """

    path: str
    programs: tuple[Candidate, ...]


class Replay(msgspec.Struct, frozen=True, tag="replay"):
    """Replay these programs; answered by the structural hash of each, empty where one cannot be replayed."""

    programs: tuple[Candidate, ...]


AssemblyOrder: TypeAlias = Assemble | Replay
