"""What a contestant's process is asked and what it answers; free of TVM.

A contestant is a worker (see `kintune.wire.worker_loop`) of the kind `CONTESTANT`: the context of its one stage is a
`ContestContext`, its items are `Order`s.
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
    "CONTESTANT",
    "STAGES",
    "ContestContext",
    "ContestProgram",
    "Failure",
    "Go",
    "Halted",
    "Order",
    "Ours",
    "PrepareContestant",
    "Ready",
    "Stock",
    "StockFamily",
    "Teach",
    "Tell",
    "Tools",
    "Tuner",
    "Turned",
]

CONTESTANT = "contestant"
"""The kind of worker, and of its stage."""

STAGES = ("select", "build", "profile", "update", "other")
"""What a turn's seconds are divided into."""


class Stock(msgspec.Struct, frozen=True, tag="stock"):
    """`tune_relax` with its defaults, and as many trials as `trials_per_subgraph` for each of its tasks."""

    trials_per_subgraph: int


class StockFamily(msgspec.Struct, frozen=True, tag="stock_family"):
    """The same, with our cost model and task scheduler as arguments."""

    trials_per_subgraph: int
    families: str
    foresee: Foresee


Tools: TypeAlias = Literal["stock", "own"]
"""Whose builder, runner and protocol."""


class Ours(msgspec.Struct, frozen=True, tag="kintune"):
    """Our search, with the stock builder and runner, or with `kintune tune`'s own workers and protocol."""

    strategy: Strategy
    tools: Tools = "stock"


Tuner: TypeAlias = Stock | StockFamily | Ours


class ContestContext(msgspec.Struct, frozen=True):
    """Who tunes what: everything but `tuner` is the same for all contestants of a race.

    `directory` is the contestant's own, and empty.
    """

    tuner: Tuner
    model: ModelRef
    threads: int
    seed: int
    directory: str


class PrepareContestant(msgspec.Struct, frozen=True, tag="prepare"):
    """Import and lower the model; answered by `Ready`.  No time is charged for it."""


class Teach(msgspec.Struct, frozen=True, tag="teach"):
    """What was learnt before, for our search: knowledge of other workloads, and own programs to measure first.

    Comes before the first turn; answered by nothing.
    """

    knowledge: Knowledge = Knowledge()
    suggestions: tuple[Candidate, ...] = ()


class Go(msgspec.Struct, frozen=True, tag="go"):
    """Tune for one round; answered by `Halted` as soon as it is over."""


class Tell(msgspec.Struct, frozen=True, tag="tell"):
    """Say what the last turn brought; answered by `Turned`.  No time is charged for it."""


Order: TypeAlias = PrepareContestant | Teach | Go | Tell


class Ready(msgspec.Struct, frozen=True):
    """The lowered network: its subgraphs, and their programs (serialised) by workload.

    `target` is canonical (JSON), `tasks` the number of subgraphs that stock would tune, `search_threads` with how many
    threads stock searches.
    """

    target: str
    subgraphs: tuple[Subgraph, ...]
    modules: dict[str, bytes]
    tasks: int
    search_threads: int


class Halted(msgspec.Struct, frozen=True):
    """A turn is over; `finished` when there will be no more."""

    finished: bool


class ContestProgram(msgspec.Struct, frozen=True):
    """A program that is now the fastest its tuner knows for a workload, with the time it measured.

    `structure` is the structural hash of the program it built, so that a replay can be compared.
    """

    candidate: Candidate
    time_us: float
    structure: str = ""


class Failure(msgspec.Struct, frozen=True):
    """A candidate without a time: how it ended, and why in a line (see `kintune.core.outcome.Outcome`).

    Stock's candidates are not taken apart for this, so theirs is None.
    """

    workload: str
    status: Status
    cause: str
    candidate: Candidate | None = None


class Turned(msgspec.Struct, frozen=True):
    """What a turn brought.

    `trials` counts candidates measured, whether they ran or not, `failures` those that did not,
    `measured` the trials of each workload.  `seconds` by stage are the contestant's own clock.  `programs` are the
    incumbents that changed, `sketches` those they fill in that were not told before.
    """

    trials: int
    failures: tuple[Failure, ...]
    measured: dict[str, int]
    seconds: dict[str, float]
    programs: tuple[ContestProgram, ...]
    sketches: tuple[Sketch, ...]
