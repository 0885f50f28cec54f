"""The stages of a tuning job and their results; free of TVM, since the front process reads them."""

from __future__ import annotations

import msgspec

from kintune.core.call_times import CallTimes
from kintune.core.candidate import Candidate, Sketch
from kintune.core.device import Peak
from kintune.core.keeping import Keeping
from kintune.core.knowledge import Knowledge, ModelVersion
from kintune.core.model import Combination, Constant, Tensor
from kintune.core.outcome import Outcome
from kintune.core.plan import RoundEntry
from kintune.core.quantiles import quantile
from kintune.core.quantisation import Quantised
from kintune.core.verdict import Verdict
from kintune.core.workload import Subgraph

__all__ = [
    "ALONE_FILE",
    "BOARD_FILE",
    "EXPORTED_FILE",
    "QUANTISED_DATA",
    "QUANTISED_FILE",
    "UNPROVEN",
    "UNTUNED_FILE",
    "BaselineLatencies",
    "DraftPrograms",
    "DraftResult",
    "KnowledgeUse",
    "KnownCandidate",
    "Packaged",
    "PerProgramCheck",
    "Pick",
    "Prepared",
    "Profiled",
    "Selected",
    "SlowPart",
    "StageName",
    "SubgraphEnd",
    "Summary",
    "Taught",
    "Updated",
    "ValidationResult",
]


UNPROVEN = ".unproven"
"""Suffix of the executable until its validation was accepted."""

ALONE_FILE = ".alone"
"""Suffix of the network that computes each subgraph twice, by its program and the untuned one."""

UNTUNED_FILE = ".untuned"
"""Suffix of the untuned executable, which is there only to compare with."""

QUANTISED_FILE = ".int8.onnx"
"""Suffix of the model once it is quantised, where the user has asked for that."""

QUANTISED_DATA = ".data"
"""Suffix, after that or `EXPORTED_FILE`, of the weights of a model, where they are too large for the file itself."""

EXPORTED_FILE = ".exported.onnx"
"""Suffix, after the digest of a program of PyTorch, of the ONNX file to which it was exported."""

BOARD_FILE = ".board"
"""Suffix, after any of the others, of the same network for the virtual machine of a board behind an RPC server."""


class StageName:
    """The kinds of stages of a tuning job."""

    PREPARE = "prepare"
    SELECT = "select"
    BUILD = "build"
    PROFILE = "profile"
    UPDATE = "update"
    CONFIRM = "confirm"
    PACKAGE = "package"
    PROVE = "prove"
    DRAFT = "draft"  # compile the network to have it checked, before tuning or when a proof has failed
    CHECK = "check"  # run the draft once and compare its outputs
    PRECISION = "precision"  # compile the network in precisions that are tried
    ERROR = "error"  # run that and measure the error of its outputs
    EXPLAIN = "explain"  # find the node at fault, once nothing has helped
    BASELINE = "baseline"  # time other runtimes on the model, before anything is tuned
    PEAK = "peak"  # what the device reaches at its best, once for a device type
    KNOWN = "known"  # not scheduled: what records already tell, committed right after PREPARE
    KIN = "kin"  # likewise: what records tell of other workloads, committed right after KNOWN


class Prepared(msgspec.Struct, frozen=True):
    """PREPARE's result.

    `modules` maps workload digests to serialised programs.  `conservative` says that the network was lowered without
    layout conversion and rewrites, since the usual lowering failed; `notes` has a line on each thing that the user
    should know.  `inputs` and `outputs` have the first combination of shapes, `more` has the others.  `hybrid` says
    that part of the model runs in onnxruntime, because the nodes `handed_over` failed in this network or others cannot
    be compiled.  `can_hand_over` says that further nodes may be moved to onnxruntime, `may_return` that parts which are
    slower than onnxruntime, or the whole result, may run there.
    `quantised` says what became of a model that was to be quantised, None where that was not asked for; `on_bytes` are
    the workloads (digests) that its quantised layers became.
    """

    model_name: str
    model_digest: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    subgraphs: tuple[Subgraph, ...]
    modules: dict[str, bytes]
    sketches: tuple[Sketch, ...]
    conservative: bool = False
    notes: tuple[str, ...] = ()
    more: tuple[Combination, ...] = ()
    hybrid: bool = False
    handed_over: tuple[str, ...] = ()
    can_hand_over: bool = False
    may_return: bool = False
    quantised: Quantised | None = None
    on_bytes: tuple[str, ...] = ()

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """What the network takes and gives with each combination of shapes, at least one."""
        return (Combination(self.inputs, self.outputs), *self.more)


class Pick(msgspec.Struct, frozen=True):
    """A candidate chosen for measurement: where it comes from, what was predicted, its features (float32 bytes)."""

    candidate: Candidate
    origin: str
    predicted: float | None = None
    features: bytes = b""


class Selected(msgspec.Struct, frozen=True):
    """SELECT's result: the picks of round number `round`, for the plan's `entries`."""

    round: int
    picks: tuple[Pick, ...]
    entries: tuple[RoundEntry, ...] = ()
    invalid: int = 0  # candidates drafted that could not be replayed


class Profiled(msgspec.Struct, frozen=True):
    """PROFILE's and CONFIRM's result for one candidate (its digest), as committed."""

    candidate: str
    outcome: Outcome


class Updated(msgspec.Struct, frozen=True):
    """UPDATE's result: the models trained, and their bytes (`TrainedModel`) by blob digest.

    `families` has the new family of each workload that has changed to another one, `rounds` the numbers of those that
    were learnt from.
    """

    versions: tuple[ModelVersion, ...]
    blobs: dict[str, bytes]
    families: dict[str, str] = {}
    rounds: tuple[int, ...] = ()


class KnownCandidate(msgspec.Struct, frozen=True):
    """What the records tell about one candidate of this job's workloads."""

    candidate: Candidate
    outcome: Outcome
    features: bytes = b""
    confirmed: Outcome | None = None
    suggestion: bool = False  # measured by another compiler or protocol: to be measured again, not believed


class Taught(msgspec.Struct, frozen=True):
    """What the records tell of other workloads, and of the device: its `peak`, if that was measured.

    `lost` counts the programs and models that were chosen before and cannot be read now.
    """

    knowledge: Knowledge
    lost: int = 0
    peak: Peak | None = None


class DraftPrograms(msgspec.Struct, frozen=True):
    """The request of DRAFT and PACKAGE: the programs, by workload digest, to compile the network with.

    With `alone`, also the network that computes each subgraph a second time with the untuned program.  With
    `keeping`, tensors are kept in bf16 between kernels where they can be.  With `beside`, the network of these programs
    is written as well, to be timed beside it.  With `untuned`, PACKAGE also compiles the network under the default
    schedule.
    """

    chosen: dict[str, Candidate]
    alone: bool = False
    keeping: Keeping = Keeping.NONE
    beside: dict[str, Candidate] = {}
    untuned: bool = True


class Packaged(msgspec.Struct, frozen=True):
    """PACKAGE's result: the files written, and the candidate (digest) that ships for each workload.

    `tuned` is the executable, not yet proven; `untuned` the same network under the default schedule, None when that
    cannot be compiled or was not asked for; `onnx` or `exported` the model itself, for others to run, which they do
    with `constants` for the inputs that the executable no longer has.  `each_alone`, where it was asked for, has
    for each combination of shapes the network that computes subgraphs twice, None where there is none.  Each subgraph
    is in one of them, except those in `left_out` (workload digests), which take too long untuned or cannot be compiled
    so.  With `hybrid`, the tuned executable runs partly in onnxruntime.  `quantised` is the model as it was quantised,
    which the executable was compiled from; None where it was compiled from the user's own.  `kept` is the number of
    tensors between kernels that the executable keeps in bf16.  `beside` is the network to be timed beside it, without
    such tensors or in fp32; None where that was not asked for.  `digests` has the SHA-256 of each network's file:
    another run may have written files of these names.
    """

    tuned: str
    chosen: dict[str, str]
    untuned: str | None = None
    onnx: str | None = None
    exported: str | None = None
    constants: dict[str, Constant] = {}
    each_alone: tuple[str | None, ...] = ()
    left_out: tuple[str, ...] = ()
    hybrid: bool = False
    quantised: str | None = None
    kept: int = 0
    beside: str | None = None
    digests: dict[str, str] = {}


class PerProgramCheck(msgspec.Struct, frozen=True):
    """The networks that compute subgraphs twice: a file for each combination of shapes, None where there is none, and
    the subgraphs that are in none of them.  `digests` are as in `Packaged`.
    """

    paths: tuple[str | None, ...]
    left_out: tuple[str, ...] = ()
    digests: dict[str, str] = {}


class DraftResult(msgspec.Struct, frozen=True):
    """DRAFT's result: the files written, or None and, in a line, why the network cannot be compiled.

    `at_fault` are the workloads (digests) whose programs are known to be the reason.
    """

    packaged: Packaged | None
    failure: str = ""
    at_fault: tuple[str, ...] = ()


class BaselineLatencies(msgspec.Struct, frozen=True):
    """BASELINE's result: what other runtimes take, before anything is tuned.

    `each` has, for each combination of shapes in order, the milliseconds of each timed run by the runtime's name, taken
    in alternation.  `failures` says of each runtime that could not be timed why, in a line; `absent` those that are not
    installed, or that do not run such a model.
    """

    each: tuple[dict[str, tuple[float, ...]], ...]
    failures: dict[str, str] = {}
    absent: dict[str, str] = {}

    def quartiles_ms(self) -> tuple[dict[str, float], ...]:
        """Return the milliseconds that a quarter of the runs undercut, by runtime, for each combination of shapes.

        Other processes only make a run slower.  Candidates that they disturb are timed again, and these runs are not:
        their median would promise too much.
        """
        return tuple({name: quantile(sorted(of), 0.25) for name, of in one.items() if of} for one in self.each)

    def together_ms(self) -> dict[str, float]:
        """Return the same of one run with each combination, for the runtimes that ran with all of them."""
        quartiles = self.quartiles_ms()
        first = quartiles[0] if quartiles else {}
        return {name: sum(of[name] for of in quartiles) for name in first if all(name in of for of in quartiles)}


class SlowPart(msgspec.Struct, frozen=True):
    """A part of a network that has no fast kernel: its nodes, as messages name them, and what it takes in microseconds.

    `title` is that of its slowest call.  `onnxruntime_us` is what the same nodes take in onnxruntime, None where it did
    not run them.  `gflops` is the rate of the slowest call in GFLOP/s, 0 where it is not known.
    """

    nodes: tuple[str, ...]
    title: str
    us: float
    onnxruntime_us: float | None = None
    gflops: float = 0.0


class ValidationResult(msgspec.Struct, frozen=True):
    """PROVE's result.

    `latency_ms` has the latencies in milliseconds by name ("tuned", "untuned", a rival's name), one entry a timed
    run, taken in alternation; an untuned network that is slow, or runs on a board, was timed before.  `rounds_ms` has
    the medians of the rounds in which they had turns, of those that had.  The errors are
    the tuned outputs' largest over all of `compared_with`; they are None when nothing was compared.  `verdict` is about
    the outputs that were compared; `not_compared` has a line on each of the others, and `bound` is one line on the
    bound that decided.  `disagreement` is one line on the first output that is out of tolerance; `doubtful`, on the
    first that is not compared since rounding alone moves it as far as that.  `skipped` has the reason
    for each that could not run.  Where values were out of tolerance, `noise` is how far rounding alone moves the
    model's outputs, as a share of the deviation of their values, and `basis` is one line on what was allowed for it.
    Then subgraphs are compared alone as well: those in `alone`, but not those in `not_alone`, by name; `wrong_alone`
    says by workload how those differ that do.  `thread_counts` has for each plan of the file, in order, the number of
    threads of calls that are faster on fewer than all, by place in the plan; the proof holds for the file with these.
    `regions` are those that the result keeps: None if all, empty if it runs in onnxruntime altogether; the proof holds
    for that, `region_threads` is as `thread_counts` for the one plan of each of them, and `lost_ms` has the latency
    of the network that was slower than onnxruntime, if it was.  `fixed` says that what runs altogether in onnxruntime
    is faster with the extents of its inputs fixed.  `norm_error` is the largest norm of an output's error, as a share
    of the norm of that output; None like the other errors.  `score` is by the user's own metric, if there is one.
    `beside_ms` has the median latency of each round of the tuned executable, and then of another that was timed beside
    it; it is empty where there was none.  `calls` are the kernel calls of the network, and its nodes in onnxruntime.
    `notes` has a line on each thing that the user should know.

    `once_ms` has the milliseconds of the single runs whose outputs are compared, by name; they are rough.  `slow` are
    the parts without a fast kernel, where that was asked for.  `extremes` names the sets of extreme inputs on which the
    outputs were compared as well; where they are wrong, `disagreement` says so, and `wrong_on` names the first such
    set.

    Of several combinations of shapes, `each` has the result of each; this one is of all together: its
    latencies are of one run with each, and who did not run with all of them has none.  `plans` are the combinations
    that the result keeps compiled, None if all; the others run in onnxruntime.
    """

    latency_ms: dict[str, tuple[float, ...]]
    max_abs_error: float | None
    max_rel_error: float | None
    verdict: Verdict
    compared_with: tuple[str, ...]
    skipped: dict[str, str]
    disagreement: str = ""
    noise: float | None = None
    basis: str = ""
    alone: tuple[str, ...] = ()
    not_alone: dict[str, str] = {}
    wrong_alone: dict[str, str] = {}
    thread_counts: tuple[dict[int, int], ...] = ()
    each: tuple[ValidationResult, ...] = ()
    regions: tuple[int, ...] | None = None
    lost_ms: tuple[float, ...] = ()
    norm_error: float | None = None
    score: float | None = None
    plans: tuple[int, ...] | None = None
    region_threads: tuple[dict[int, int], ...] = ()
    fixed: bool = False
    beside_ms: tuple[tuple[float, ...], ...] = ()
    calls: CallTimes | None = None
    rounds_ms: dict[str, tuple[float, ...]] = {}
    once_ms: dict[str, float] = {}
    slow: tuple[SlowPart, ...] = ()
    notes: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    bound: str = ""
    doubtful: str = ""
    extremes: tuple[str, ...] = ()
    wrong_on: str = ""

    def with_alone(self, other: ValidationResult) -> ValidationResult:
        """This result, with what another one says of single subgraphs; it is wrong if one of them is."""
        found = msgspec.structs.replace(
            self, alone=other.alone, not_alone=other.not_alone, wrong_alone=other.wrong_alone
        )
        if other.verdict is not Verdict.WRONG:
            return found
        return msgspec.structs.replace(found, verdict=other.verdict, disagreement=other.disagreement, basis="")

    @property
    def within_tolerance(self) -> bool | None:
        """Whether what was compared is right; None where nothing was."""
        return self.verdict.within_tolerance


class SubgraphEnd(msgspec.Struct, frozen=True):
    """How one subgraph ended: trials of this run, time and precision of the program that ships, failures by cause.

    `titles` are as in `Subgraph`.
    """

    name: str
    workload: str
    weight: int
    flops: float
    family: str
    trials: int
    best_us: float | None
    untuned_us: float | None
    failures: dict[str, int]
    precision: str = "fp32"
    titles: tuple[str, ...] = ()


class KnowledgeUse(msgspec.Struct, frozen=True):
    """The knowledge of other workloads that a job was given, and the use that it made of it; all are counts.

    `programs` of other workloads and family `models` were given.  `measured` candidates were adapted from those
    programs and measured.  `lost` programs and models were damaged or gone before they could be given.
    """

    programs: int = 0
    models: int = 0
    measured: int = 0
    lost: int = 0


class Summary(msgspec.Struct, frozen=True):
    """The summary of a finished job.

    `notes` has a line on each thing about the result that the user should know.  `reason` says why the search ended;
    `curve` has rows of (seconds of active run time, trials, estimated latency in ms); `kernels_ms` is the weighted
    sum of the shipped programs' times, and `kernels_each_ms` that of each combination of shapes, where there are
    several; `disturbed` of the trials were timed again, since others used the device's cores meanwhile.  `baselines`
    are other runtimes as they were timed before the search; None if they were not.  `quantised` is as in `Prepared`.
    `peak` is the device's, None where it is not known.
    """

    model_name: str
    model_digest: str
    reason: str
    trials: int
    reused: int
    subgraphs: tuple[SubgraphEnd, ...]
    curve: tuple[tuple[float, int, float], ...]
    kernels_ms: float
    packaged: Packaged | None
    proof: ValidationResult | None
    knowledge: KnowledgeUse = KnowledgeUse()
    disturbed: int = 0
    notes: tuple[str, ...] = ()
    kernels_each_ms: tuple[float, ...] = ()
    baselines: BaselineLatencies | None = None
    quantised: Quantised | None = None
    peak: Peak | None = None
