"""Requests to the processes of a race, and their answers; free of TVM.

A tuner under test is a worker (see `kintune.wire.worker_loop`) of the kind `TUNER`: the context of its one stage is a
`TunerContext`, its items are `TunerRequest`s.  An assembler is one of the kind `ASSEMBLER`, with an `AssemblyContext`
and `AssemblyRequest`s.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.config import Foresee, Strategy
from kintune.core.knowledge import Knowledge
from kintune.core.model import ModelRef
from kintune.core.outcome import Status
from kintune.core.workload import Subgraph

__all__ = [
    "ASSEMBLER",
    "STAGES",
    "TUNER",
    "AssembleNetwork",
    "AssemblyContext",
    "AssemblyRequest",
    "BestProgram",
    "CandidateFailure",
    "KintuneSpec",
    "PrepareTuner",
    "ReplayPrograms",
    "ReportTurn",
    "RunTurn",
    "StockFamilySpec",
    "StockSpec",
    "ToolsName",
    "TunerContext",
    "TunerReady",
    "TunerRequest",
    "TunerSpec",
    "TurnEnded",
    "TurnReport",
    "WarmStart",
]


TUNER = "contestant"
"""The kind of worker, and of its stage, in messages."""

STAGES = ("select", "build", "profile", "update", "other")
"""What a turn's seconds are divided into."""


class StockSpec(msgspec.Struct, frozen=True, tag="stock"):
    """`tune_relax` with its defaults, and as many trials as `trials_per_subgraph` for each of its tasks."""

    trials_per_subgraph: int


class StockFamilySpec(msgspec.Struct, frozen=True, tag="stock_family"):
    """`tune_relax` as in `StockSpec`, with our cost model and task scheduler as arguments."""

    trials_per_subgraph: int
    families: str
    foresee: Foresee


ToolsName: TypeAlias = Literal["stock", "own"]
"""Which builder, runner and protocol: the stock tuner's or Kintune's."""


class KintuneSpec(msgspec.Struct, frozen=True, tag="kintune"):
    """Our search, with the stock builder and runner, or with `kintune tune`'s own workers and protocol."""

    strategy: Strategy
    tools: ToolsName = "stock"


TunerSpec: TypeAlias = StockSpec | StockFamilySpec | KintuneSpec


class TunerContext(msgspec.Struct, frozen=True):
    """What is tuned and how: everything but `tuner` and `directory` is the same for all tuners of a race.

    `directory` is empty, and the tuner's own.
    """

    tuner: TunerSpec
    model: ModelRef
    threads: int
    seed: int
    directory: str


class PrepareTuner(msgspec.Struct, frozen=True, tag="prepare"):
    """Import and lower the model; answered by `TunerReady`.  No time is charged for it."""


class WarmStart(msgspec.Struct, frozen=True, tag="teach"):
    """Knowledge from other networks for Kintune's search, and programs to measure first.

    Sent before the first turn; the answer is empty.
    """

    knowledge: Knowledge = Knowledge()
    suggestions: tuple[Candidate, ...] = ()


class RunTurn(msgspec.Struct, frozen=True, tag="go"):
    """Tune for one round; answered by `TurnEnded` when the round is complete."""


class ReportTurn(msgspec.Struct, frozen=True, tag="tell"):
    """Report the last turn; answered by `TurnReport`.  No time is charged for it."""


TunerRequest: TypeAlias = PrepareTuner | WarmStart | RunTurn | ReportTurn


class TunerReady(msgspec.Struct, frozen=True):
    """The lowered network: its subgraphs, and their programs (serialised) by workload.

    `target` is canonical (JSON), `tasks` the number of subgraphs that stock would tune, `search_threads` with how many
    threads stock searches.
    """

    target: str
    subgraphs: tuple[Subgraph, ...]
    modules: dict[str, bytes]
    tasks: int
    search_threads: int


class TurnEnded(msgspec.Struct, frozen=True):
    """A turn is over; `finished` if it was the last."""

    finished: bool


class BestProgram(msgspec.Struct, frozen=True):
    """A program that is now the fastest its tuner knows for a workload, with the time it measured.

    `structure` is the structural hash of the program it built, so that a replay can be compared.
    """

    candidate: Candidate
    time_us: float
    structure: str = ""


class CandidateFailure(msgspec.Struct, frozen=True):
    """A candidate without a time: how it ended, and why in a line (see `kintune.core.outcome.Outcome`).

    Stock's candidates are not taken apart for this, so theirs is None.
    """

    workload: str
    status: Status
    cause: str
    candidate: Candidate | None = None


class TurnReport(msgspec.Struct, frozen=True):
    """What a turn brought.

    `trials` counts candidates measured, whether they ran or not, `failures` those that did not,
    `measured` the trials of each workload.  `seconds` by stage are by the tuner's own clock.  `programs` are the
    best programs that changed, `sketches` those they fill in that were not told before.
    """

    trials: int
    failures: tuple[CandidateFailure, ...]
    measured: dict[str, int]
    seconds: dict[str, float]
    programs: tuple[BestProgram, ...]
    sketches: tuple[Sketch, ...]


ASSEMBLER = "assembler"
"""The kind of worker, and of its stage."""


class AssemblyContext(msgspec.Struct, frozen=True):
    """The network, and the sketches of all programs that may be asked for."""

    model: ModelRef
    threads: int
    sketches: tuple[Sketch, ...]


class AssembleNetwork(msgspec.Struct, frozen=True, tag="assemble"):
    """Compile the network with these programs, one a workload at most, and write it to `path` (a `.kt` file).

    Workloads without a program, or with the untuned one, take the compiler's default schedule.  Answered by nothing.
    """

    path: str
    programs: tuple[Candidate, ...]


class ReplayPrograms(msgspec.Struct, frozen=True, tag="replay"):
    """Replay these programs; answered by the structural hash of each, empty where one cannot be replayed."""

    programs: tuple[Candidate, ...]


AssemblyRequest: TypeAlias = AssembleNetwork | ReplayPrograms
