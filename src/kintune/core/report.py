"""The outcome of a tuning run: the value behind the final summary, `--json` and `Result.report`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from kintune.core.config import Options
from kintune.core.kernel_bounds import KernelBounds
from kintune.core.kernel_call import readable
from kintune.core.latency_target import COMPARED, COMPARED_FLUSHING, COMPARED_NARROW
from kintune.core.paired_ratio import PairedRatio
from kintune.core.profile import Profile
from kintune.core.quantiles import quantile
from kintune.core.quantisation import INT8, Quantised
from kintune.core.stage_results import KnowledgeUse

__all__ = [
    "REPORT_SCHEMA",
    "WAITING",
    "BaselineVerdict",
    "CampaignReport",
    "CombinationReport",
    "CurvePoint",
    "FailedRun",
    "FamilyProgress",
    "FastestBaseline",
    "Latencies",
    "LatencyForecast",
    "ModelIdentity",
    "ProgressReport",
    "RegionReport",
    "RunReport",
    "Spread",
    "StageSeconds",
    "StopReason",
    "SubgraphReport",
    "doubts_of",
]


REPORT_SCHEMA = 2
"""Version of the JSON document; raised when a key changes its meaning or goes."""


WAITING = "waiting for"
"""The phase of a run that waits for what another process holds begins with these words."""


class StopReason(str, Enum):
    """Why the search ended."""

    TRIALS = "trials"
    TIME = "time"
    TARGET_MET = "target met"
    CONVERGED = "converged"
    INTERRUPTED = "interrupted"
    COMPILED = "compiled"


class BaselineVerdict(str, Enum):
    """How the latency of a network compares with a baseline's."""

    FASTER = "faster"
    LEVEL = "level"
    SLOWER = "slower"
    UNCERTAIN = "uncertain"


_LEVEL_SHARE, _LEVEL_MS = 0.02, 0.005
"""Latencies are level that differ by at most this share of the baseline's, or this many milliseconds."""


class ModelIdentity(msgspec.Struct, frozen=True):
    """The model by name and by content."""

    name: str
    digest: str


class Spread(msgspec.Struct, frozen=True):
    """The 10th and the 90th percentile of the latencies of runs, in milliseconds, and the number of runs."""

    p10: float
    p90: float
    runs: int


class Latencies(msgspec.Struct, frozen=True):
    """Median latencies of interleaved runs in milliseconds; None for a runtime that could not run.

    `spread` is by the same names.  `paired` has the ratio of the tuned network's latency to that of each other, over
    the rounds in which both had a turn; what was not timed in the same rounds has none.
    """

    untuned: float | None = None
    tuned: float | None = None
    onnxruntime: float | None = None
    openvino: float | None = None
    torch: float | None = None
    openvino_bf16: float | None = None
    onnxruntime_flushing: float | None = None
    spread: dict[str, Spread] = {}
    paired: dict[str, PairedRatio] = {}

    @classmethod
    def of(
        cls, samples: Mapping[str, Sequence[float]], rounds_ms: Mapping[str, Sequence[float]] | None = None
    ) -> Latencies:
        """Medians and spreads of `samples`: times in milliseconds by runtime; one without times is left out.

        `rounds_ms` has the median of each round by the same names, as far as they had turns in the same rounds.
        """
        known = {name: sorted(times) for name, times in samples.items() if times}
        medians = {name: statistics.median(times) for name, times in known.items()}
        spread = {name: Spread(quantile(times, 0.1), quantile(times, 0.9), len(times)) for name, times in known.items()}
        rounds = {name: times for name, times in (rounds_ms or {}).items() if times and name in known}
        ours = rounds.pop("tuned", ())
        paired = {
            name: PairedRatio.of(ours[: len(times)], times[: len(ours)]) for name, times in rounds.items() if ours
        }
        return cls(**medians, spread=spread, paired=paired)

    @property
    def gain(self) -> float | None:
        """How many times faster than untuned the tuned network is; None unless both ran."""
        return self.untuned / self.tuned if self.untuned and self.tuned else None

    @property
    def fastest_baseline(self) -> FastestBaseline | None:
        """The fastest of the other runtimes that ran beside the tuned network; None if none did."""
        return FastestBaseline.of(self.rivals, self.tuned, self.paired)

    @property
    def rivals(self) -> dict[str, float]:
        """The medians of the other runtimes that ran, fastest first."""
        times = {name: getattr(self, name) for name in (*COMPARED, *COMPARED_NARROW, *COMPARED_FLUSHING)}
        ran = ((name, time) for name, time in times.items() if time is not None)
        return dict(sorted(ran, key=lambda item: item[1]))


class FastestBaseline(msgspec.Struct, frozen=True):
    """The fastest other runtime, its latency in milliseconds, and how the network's latency compares with it.

    `ratio` is the network's latency divided by the runtime's, below 1 where the network is faster; None while the
    network's is not known.  Where both had turns in the same rounds, it is the median of the ratios of rounds, and
    `low` and `high` are the ends of its interval (see `PairedRatio`); else these are None.
    """

    name: str
    ms: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(
        cls,
        baselines_ms: Mapping[str, float],
        network_ms: float | None,
        paired: Mapping[str, PairedRatio] | None = None,
    ) -> FastestBaseline | None:
        """Return the fastest of the baselines, from milliseconds by name; None if there is none.

        `paired` has the ratios of those that were timed in turns with the network.
        """
        if not baselines_ms:
            return None
        name, ms = min(baselines_ms.items(), key=lambda item: item[1])
        if network_ms is not None and paired and (found := paired.get(name)) is not None:
            return cls(name, ms, found.ratio, found.low, found.high)
        return cls(name, ms, network_ms / ms if network_ms is not None and ms > 0 else None)

    @property
    def level(self) -> float:
        """How far from 1 the ratio may be for both to be level: 2 %, or 5 us."""
        return (1 + 1e-9) * max(_LEVEL_SHARE, _LEVEL_MS / max(self.ms, 1e-9))  # binary fractions are not exact

    @property
    def interval(self) -> PairedRatio | None:
        """The ratio with its interval, which is a point where both were not timed in the same rounds."""
        if self.ratio is None:
            return None
        low, high = self.low, self.high
        return PairedRatio(self.ratio, self.ratio if low is None else low, self.ratio if high is None else high, 0)

    @property
    def tells(self) -> bool:
        """Whether its ratio is known, and no less certain than what it claims; see `PairedRatio.tells`."""
        return self.interval is not None and self.interval.tells(self.level)

    @property
    def verdict(self) -> BaselineVerdict | None:
        """Whether the network is faster; None while its latency is not known."""
        ratio = self.interval
        if ratio is None:
            return None
        if ratio.is_level(self.level):
            return BaselineVerdict.LEVEL
        if not ratio.is_decided:
            return BaselineVerdict.UNCERTAIN
        return BaselineVerdict.FASTER if ratio.high < 1.0 else BaselineVerdict.SLOWER


class StageSeconds(msgspec.Struct, frozen=True):
    """Seconds spent in each of the four repeating stages; `other` is the rest, the tuner's own overhead included."""

    select: float = 0.0
    build: float = 0.0
    profile: float = 0.0
    update: float = 0.0
    other: float = 0.0


class SubgraphReport(msgspec.Struct, frozen=True):
    """One distinct subgraph: it occurs `weight` times, each run takes `flops`; `best_us` is its best program's time.

    `precision` is what that computes in: the model's types, called fp32, or narrower ones.  `workload` is the digest of
    its program, by which the executable's manifest knows the kernel that computes it.  `name` is the compiler's;
    `titles` has the places where it occurs in the user's words, without what the names of all nodes begin with.
    """

    name: str
    weight: int
    flops: float
    family: str
    trials: int
    best_us: float | None
    failures: dict[str, int] = {}
    untuned_us: float | None = None
    precision: str = "fp32"
    workload: str = ""
    titles: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The first place where it occurs, in the user's words; its operators where no place is known."""
        return self.titles[0] if self.titles else readable(self.name)


class RegionReport(msgspec.Struct, frozen=True):
    """A region of a result that runs partly in onnxruntime: its name in the host graph, the number of the user's nodes,
    and how many of its subgraphs compute in which precision.
    """

    name: str
    nodes: int
    precisions: dict[str, int]


class CombinationReport(msgspec.Struct, frozen=True):
    """The result of one combination of shapes: `shapes` are the requested ones; the rest is as in `RunReport`."""

    shapes: dict[str, tuple[int, ...]]
    kernels_ms: float | None
    latency_ms: Latencies
    max_abs_error: float | None
    max_rel_error: float | None
    within_tolerance: bool | None = None


class CurvePoint(msgspec.Struct, frozen=True, array_like=True):
    """After `seconds` and `trials` the network was estimated to take `latency_ms`; a row of three in JSON."""

    seconds: float
    trials: int
    latency_ms: float


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run that tuned a model, or only compiled it.

    `notes` has a line on each thing about the result that the user should know.

    `trials` were measured in this run, `disturbed` of them more than once, since others used the device's cores
    meanwhile; `reused_records` were known before it.  `seconds` is active run time, of all sessions of a run that was
    resumed; `stage_seconds` are those of the last session.
    `max_abs_error` and `max_rel_error` compare the tuned outputs with the untuned build's and onnxruntime's, and are
    None when nothing was compared; so is `norm_error`, the largest norm of an output's error as a share of the norm of
    that output.  Where parts compute narrower, it was measured on `held_back` sets of inputs that the choice of these
    parts had not seen, or, if that is 0, on those of the choice.  `score` is the user's own, by `options.metric`.
    `quantised` says what became of a model that was to be quantised (`calibrate`), None where that was not asked for;
    `precisions` counts its products by what they compute in.
    `kept_tensors` counts the tensors between kernels that are kept in bf16.
    `profile` is that of the network, whose kernel calls were timed inside it at the end; None where they were not.
    Of a result that runs partly in onnxruntime, `regions` are what Kintune's kernels compute.
    `output` is where the executable lies, `log` where the details are; `skipped` says of each runtime that was not
    compared why.  `kernels_ms` is the weighted sum of the shipped kernels' times, which the network should hardly
    exceed; `overhead_seconds` are those of this session in which no stage ran; `knowledge` is what the search was told
    of other workloads.

    `bound` is a line on the bound that decided that the outputs are right: the place where an error comes nearest to
    what is allowed.  `extreme_inputs` names the sets of extreme inputs on which they were compared as well, and right.
    `not_compared` has a line on each comparison with a reference that could not be made, with the reason.  `uncertain`
    has a line on each number that is out of proportion: a time whose spread exceeds the gain that is claimed, or one
    far from its estimate.  `bounds` says of each plan how many of its kernels are proven to stay inside of their
    buffers; it is empty for a GPU.

    `fastest_baseline` says how the result stands against the fastest other runtime that was timed beside it.
    `baselines_before_ms` are the times of other runtimes before the search, from which limits and progress were told.

    Where the result runs with several combinations of shapes, `combinations` has a report of each.  Latencies are those
    of one run with each then, and a subgraph's weight is how often it occurs in all of their networks.
    """

    schema_version: int = REPORT_SCHEMA
    run_id: str
    model: ModelIdentity
    target: str
    options: Options
    seeds: dict[str, int]
    versions: dict[str, str]
    reason: StopReason
    trials: int
    reused_records: int
    disturbed: int = 0
    seconds: float
    stage_seconds: StageSeconds
    subgraphs: tuple[SubgraphReport, ...]
    curve: tuple[CurvePoint, ...]
    latency_ms: Latencies
    max_abs_error: float | None
    max_rel_error: float | None
    within_tolerance: bool | None = None
    output: str
    log: str | None = None
    skipped: dict[str, str] = {}
    resumed: bool = False
    kernels_ms: float | None = None
    overhead_seconds: float = 0.0
    knowledge: KnowledgeUse = KnowledgeUse()
    notes: tuple[str, ...] = ()
    combinations: tuple[CombinationReport, ...] = ()
    fastest_baseline: FastestBaseline | None = None
    baselines_before_ms: dict[str, float] = {}
    norm_error: float | None = None
    held_back: int = 0
    score: float | None = None
    quantised: Quantised | None = None
    kept_tensors: int = 0
    profile: Profile | None = None
    regions: tuple[RegionReport, ...] = ()
    bound: str = ""
    extreme_inputs: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    bounds: tuple[KernelBounds, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """A line on each thing that `TuneConfig.strict` does not accept."""
        return doubts_of(msgspec.structs.asdict(self))

    @property
    def narrow(self) -> dict[str, str]:
        """The precisions of subgraphs that compute narrower than the model's types, by name."""
        return {each.name: each.precision for each in self.subgraphs if each.precision != "fp32"}

    @property
    def precisions(self) -> dict[str, int]:
        """How many products compute in which precision, of a model that was quantised; empty for others."""
        if self.quantised is None:
            return {}
        others = Counter[str]()
        for each in self.subgraphs:
            if each.precision not in (INT8, "fp32"):
                others[each.precision] += each.weight
        wide = max(0, self.quantised.products - self.quantised.int8 - others.total())
        return {self.quantised.form: self.quantised.int8, **others, "fp32": wide}

    @property
    def failures(self) -> dict[str, int]:
        """Failed candidates of all subgraphs, by cause, most frequent first."""
        counts: dict[str, int] = {}
        for subgraph in self.subgraphs:
            for cause, count in subgraph.failures.items():
                counts[cause] = counts.get(cause, 0) + count
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def doubts_of(report: Mapping[str, Any]) -> tuple[str, ...]:
    """`RunReport.doubts` of the document of a report, which may be of another version."""
    kinds = {"not compared": "not_compared", "uncertain": "uncertain"}
    return tuple(f"{kind}: {line}" for kind, field in kinds.items() for line in report.get(field) or ())


class FailedRun(msgspec.Struct, frozen=True):
    """A model without a result, and the cause."""

    model: str
    error: str
    reason: str


class CampaignReport(msgspec.Struct, frozen=True, kw_only=True):
    """Several models that were tuned at once."""

    schema_version: int = REPORT_SCHEMA
    policy: str
    runs: tuple[RunReport, ...]
    failed: tuple[FailedRun, ...] = ()


class FamilyProgress(msgspec.Struct, frozen=True):
    """The progress of one family of subgraphs.

    `subgraphs` is how many it has, `trials` how many measurements they got in this run, `best_gain` the largest
    untuned / best latency among them (1.0 while nothing better is known).
    """

    key: str
    subgraphs: int
    trials: int
    best_gain: float = 1.0


class LatencyForecast(msgspec.Struct, frozen=True):
    """What a network will likely take once its search is over: between `low_ms` and `high_ms` milliseconds.

    `little_left` says that the search will likely gain no more than a few percent.
    """

    low_ms: float
    high_ms: float
    little_left: bool = False


class ProgressReport(msgspec.Struct, frozen=True):
    """The progress of a tuning job.

    `stage` is the kind of the stage now running (see `kintune.core.stage_results.StageName`), `phase` a few words for
    people ("waiting for the device, held by process 4711").  `trials` of `trials_total` are done; the total is None
    when the budget is not counted in trials, and 0 of a run that only compiles.  Times are seconds of active run time;
    `time_left_s` is None while it is unknown.
    `best_ms` and `untuned_ms` estimate the network's latency in milliseconds as the weighted sum of its kernels'.  Of a
    network that is `partial`, they leave out what runs in onnxruntime, and are not compared with other runtimes.
    `baselines` are other runtimes as they were timed before the search, in milliseconds by name;
    `fastest_baseline` is the fastest of them, and how the estimate stands against it.  `target_ms` is the latency at
    which the search ends, None while there is none or it is unknown, and where there is one for each of several
    combinations of shapes.
    `forecast` is what the result will likely take; None in the first minute, and where the end of a search is unknown.
    `subgraph` is the one being worked on, `failures` counts candidates that failed by cause, `reused_records` those
    whose measurement was already known, `disturbed` those that were timed again since others used the cores.
    """

    stage: str
    phase: str = ""
    trials: int = 0
    trials_total: int | None = None
    elapsed_s: float = 0.0
    time_left_s: float | None = None
    best_ms: float | None = None
    untuned_ms: float | None = None
    families: tuple[FamilyProgress, ...] = ()
    subgraph: str = ""
    failures: dict[str, int] = {}
    reused_records: int = 0
    disturbed: int = 0
    baselines: dict[str, float] = {}
    fastest_baseline: FastestBaseline | None = None
    target_ms: float | None = None
    forecast: LatencyForecast | None = None
    partial: bool = False

    @property
    def searches(self) -> bool:
        """Whether candidates are measured; a run that only compiles measures none."""
        return self.trials_total != 0

    @property
    def gain(self) -> float | None:
        """How many times faster than untuned the network is estimated to be; None while either time is unknown."""
        if not self.best_ms or not self.untuned_ms:
            return None
        return self.untuned_ms / self.best_ms
