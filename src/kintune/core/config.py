"""The request of a tuning job: model, target, budget, and how its search proceeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from kintune.core.latency_target import COMPARED
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol, operands_for
from kintune.core.model import ModelRef
from kintune.core.workload import Subgraph, by_combination

__all__ = [
    "COMPILE_FIELDS",
    "DEFAULT_MAX_ERROR",
    "DEFAULT_TRIALS",
    "Budget",
    "Foresee",
    "JobSpec",
    "Metric",
    "Options",
    "OtherShapes",
    "PolicyName",
    "Precision",
    "Strategy",
    "TuneConfig",
    "WeightBits",
    "named_files",
]

Foresee: TypeAlias = Literal["none", "published", "guarded"]
"""What follows a full round.  "none": nothing.  "published": a small round for the subgraph of the same family with the
largest expected gain, as in FamilySeer.  "guarded": the same, as long as the predictions of the family's model hold."""

Budget: TypeAlias = Literal["gradient", "balanced", "prospect"]
"""Which subgraph gets the next round.  "gradient": the one with the largest expected gain.  "balanced": the one with
the fewest trials.  "prospect": as with "gradient", but the device's peak limits the expected gain and the round's
size."""

OtherShapes: TypeAlias = Literal["refuse", "onnxruntime"]
"""What the result does with inputs of shapes that were not tuned: it refuses them, or runs the model in onnxruntime."""


Precision: TypeAlias = Literal["fp32", "bf16", "int8", "auto"]
"""The precisions in which the result may compute.  "fp32": the model's own types.  "bf16": bf16 as well.  "int8": bf16
and integers of 8 bits as well.  "auto": all of these that the processor supports."""

DEFAULT_MAX_ERROR = 1e-2
"""The error allowed with a narrower precision where none is given."""

WeightBits: TypeAlias = Literal[4, 8]
"""The bits to which the weights of products may be quantised."""


PolicyName: TypeAlias = Literal["sequential", "synchronous", "uncontrolled", "greedy", "fair", "predictive"]
"""The scheduling policies (`kintune.scheduler.policies`)."""


class Strategy(msgspec.Struct, frozen=True):
    """The parameters of a search.

    `families` names the family algorithm.  A full round has `round_size` candidates, shared by the `width` subgraphs
    with the largest expected gain; a foresee round has `foresee_size`.  `survey` has the number of candidates that
    every subgraph gets in each round of the warm-up, before any full round; without numbers there is no warm-up.
    `rules` lets the rule propose candidates; `carry` transfers good programs between subgraphs of a family.  With
    `thrift`, the scores of candidates that take long to build are discounted.  Up to `again` of a subgraph's fastest
    programs are timed again in each of its rounds, at most one for every eight new ones.  With `draft`, candidates are
    evolved and ranked in bulk by analytic features before any is replayed.
    """

    families: str = "op"
    foresee: Foresee = "guarded"
    carry: bool = True
    rules: bool = True
    survey: tuple[int, ...] = (1, 3, 4)
    budget: Budget = "gradient"
    round_size: int = 32
    foresee_size: int = 16
    width: int = 1
    thrift: bool = True
    draft: bool = False
    again: int = 3


class Metric(msgspec.Struct, frozen=True):
    """The user's own score of a network: `function` of `module`, a module's name or a file, found from `folder`.

    Higher is better.  At most `max_drop` may be lost of the original model's score, which is `reference`; to compute
    that took so many `seconds`.  Both are 0 until the original was scored.
    """

    module: str
    function: str
    folder: str
    max_drop: float
    reference: float = 0.0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """How the user calls it."""
        return f"{self.module}:{self.function}"

    @property
    def limit_s(self) -> float:
        """How many seconds one score may take where a stage is limited, since an untuned network may be slower."""
        return 60.0 + 5.0 * self.seconds


_LONG_MINUTES, _LONG_TRIALS = 5.0, 500


class Options(msgspec.Struct, frozen=True):
    """What the user asked for.  At least one of the three limits is set; whichever is reached first ends the search.

    `until` is written as a `kintune.core.latency_target.LatencyTarget` writes itself.  The runtimes in `compare` are
    timed before the search, and at its end beside the result.  With `kin`, the search starts from what the records know
    of other workloads.  Without `search`, the network is compiled from what the records, or the rule, suggest, and
    checked.
    """

    trials: int | None = None
    minutes: float | None = None
    until: str | None = None
    strategy: Strategy = Strategy()
    kin: bool = True
    seed: int = 0
    rtol: float = 1e-3
    atol: float = 1e-3
    compare: tuple[str, ...] = COMPARED
    search: bool = True  # False: nothing is measured, what is known ships
    onnxruntime: bool = True  # nodes that cannot be compiled, or gain nothing, run in onnxruntime
    other_shapes: OtherShapes = "refuse"
    precision: Precision = "fp32"
    max_error: float = DEFAULT_MAX_ERROR
    metric: Metric | None = None
    weights: int = 0  # bits of the constant weights of large products; 0: as they are
    keep_denormals: bool = False  # on a CPU; else the result flushes them to zero while it runs

    @property
    def precisions(self) -> frozenset[str]:
        """The precisions, narrower than the model's types, in which programs may compute.

        A model is quantised before there are any programs, so int8 is none of them.
        """
        return frozenset(() if self.precision == "fp32" else ("bf16",))

    @property
    def budgeted_trials(self) -> int | None:
        """The most trials; None where their number is not limited, 0 without a search."""
        return self.trials if self.search else 0

    @property
    def is_long(self) -> bool:
        """Whether the search is long enough for the device's peak to be measured first, which takes some seconds."""
        long_enough = (self.minutes or _LONG_MINUTES) >= _LONG_MINUTES
        return self.search and long_enough and (self.trials or _LONG_TRIALS) >= _LONG_TRIALS

    @property
    def error_budget(self) -> float | None:
        """The error allowed at the outputs, as a share of their norm, or what may be lost of the user's own score; None
        where nothing may be narrower.
        """
        if not self.precisions and not self.weights:
            return None
        return self.max_error if self.metric is None else self.metric.max_drop

    @property
    def is_proven(self) -> bool:
        """Whether the job ends with a result that is packaged and validated.

        Without a search, and in the model's own types, the result is the network that the first check has compared.
        """
        return self.search or self.error_budget is not None


class TuneConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is tuned: everything that may be chosen beside the model.

    These options are defined only here.  The command line, the Python interface and the service take names,
    defaults, limits and help from here (`kintune.core.constraints`).  Paths are texts.  The fields in `COMPILE_FIELDS`
    hold for a compilation without search as well.
    """

    target: Annotated[str, Meta(description="What to tune for; 'native' is this machine.")] = "native"
    device: Annotated[
        str,
        Meta(
            description="The device that times programs: 'cpu' (all cores, shared) or dedicated cores: cpu:1, cpu:2-3,"
            " cpu:2+cpu:3; a GPU: cuda, cuda:1."
        ),
    ] = "cpu"
    threads: Annotated[int, Meta(ge=1, description="Threads that the model will run on.")] | None = None
    trials: Annotated[int, Meta(ge=1, description="Stop after measuring this many programs.")] | None = None
    minutes: Annotated[float, Meta(gt=0, description="Stop after this many minutes.")] | None = None
    until: (
        Annotated[
            str,
            Meta(
                description="Stop once the model is estimated to take at most this long: milliseconds (2.5), or a share"
                " of what another runtime takes (onnxruntime*0.8)."
            ),
        ]
        | None
    ) = None
    families: Annotated[str, Meta(description="Groups that share a cost model: op, hash, measured, ind, none.")] = "op"
    foresee: Annotated[Foresee, Meta(description="Short rounds in a family: guarded, published or none.")] = "guarded"
    carry: Annotated[bool, Meta(description="Try a subgraph's good programs on others of its family.")] = True
    kin: Annotated[bool, Meta(description="Start from programs and models of other networks' subgraphs.")] = True
    round_size: Annotated[int, Meta(ge=1, description="Number of programs in a full round.")] | None = None
    seed: Annotated[int, Meta(ge=0, description="Seed of all random choices.")] = 0
    inputs: Annotated[str, Meta(description="Compare on these inputs.")] | None = None
    rtol: Annotated[float, Meta(ge=0, description="Relative tolerance of outputs.")] = 1e-3
    atol: Annotated[float, Meta(ge=0, description="Absolute tolerance of outputs.")] = 1e-3
    onnxruntime: Annotated[
        bool, Meta(description="Run nodes in onnxruntime that cannot be compiled, or are not faster compiled.")
    ] = True
    other_shapes: Annotated[
        OtherShapes, Meta(description="How the result handles shapes that were not tuned: refuse or onnxruntime.")
    ] = "refuse"
    precision: Annotated[
        Precision,
        Meta(
            description="The precision of the result: fp32, which is the types of the model; bf16 as well, where"
            " that is faster; int8 as well, which needs inputs (calibrate); or auto, all that the processor"
            " supports."
        ),
    ] = "fp32"
    weights: (
        Annotated[
            WeightBits,
            Meta(description="Quantise the large constant weights of products to 4 or 8 bits."),
        ]
        | None
    ) = None
    keep_denormals: Annotated[
        bool,
        Meta(description="Compute with denormal numbers (below 1.2e-38 in float32) instead of flushing them to zero."),
    ] = False
    max_error: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1,
                description="With a narrower precision or quantised weights: the error allowed at the outputs, as"
                " a share of their norm.",
            ),
        ]
        | None
    ) = None
    metric: (
        Annotated[
            str,
            Meta(
                description="With a narrower precision, instead of an error: your own score of the network, a function"
                " MODULE:FUNCTION or FILE.py:FUNCTION that is called with the runnable network; higher is better."
            ),
        ]
        | None
    ) = None
    max_drop: Annotated[float, Meta(ge=0, description="The largest loss of that score.")] | None = None
    calibrate: (
        Annotated[
            str,
            Meta(description="With precision int8 or auto: quantise the model, with ranges found on these inputs."),
        ]
        | None
    ) = None
    strict: Annotated[
        bool, Meta(description="Fail, with the result written, if an output was not compared or a number is uncertain.")
    ] = False
    isolate: Annotated[
        bool,
        Meta(
            description="Read, compile and run the model in processes without network that see its files alone, for"
            " models of strangers."
        ),
    ] = False
    records: Annotated[str, Meta(description="The records file.")] | None = None
    output: Annotated[str, Meta(description="The executable to write; a directory for several models.")] | None = None
    fresh: Annotated[bool, Meta(description="Neither continue an unfinished run nor reuse stored measurements.")] = (
        False
    )
    log: Annotated[str, Meta(description="The file of the detailed log.")] | None = None
    priority: Annotated[
        float, Meta(gt=0, description="A model of priority 2 gets twice as much of a scarce resource as one of 1.")
    ] = 1.0


COMPILE_FIELDS = (
    "target", "device", "threads", "seed", "inputs", "rtol", "atol", "onnxruntime", "other_shapes",
    "precision", "weights", "max_error", "metric", "max_drop", "calibrate",
    "keep_denormals", "strict", "isolate", "records", "output", "log",
)  # fmt: skip
"""The fields of `TuneConfig` that a compilation without search uses."""

DEFAULT_TRIALS = 1000
"""The budget in trials where no limit is given."""


def named_files(model: ModelRef, *files: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the files that a job reads: its model, constants, and further `files`."""
    constants = (constant.path for constant in model.constants.values() if constant.path)
    own = () if model.kind == "zoo" else (model.source,)
    return (*own, *constants, *(path for each in files for path in each))


class JobSpec(msgspec.Struct, frozen=True):
    """Everything a job process needs to know."""

    run_id: str
    model: ModelRef
    device_type: DeviceType
    protocol: MeasurementProtocol
    options: Options
    output: str
    input_files: tuple[str, ...] = ()  # .npz files with the user's own inputs for the validation, one set each
    calibration_files: tuple[str, ...] = ()  # .npz files, a set of inputs each, to quantise the model with
    cores: int = 1  # of the host, for selecting and building
    device: str = "cpu"  # the type of device to time on, as the scheduler knows it
    devices: int = 1  # how many of them there are
    caches: tuple[int, ...] = ()  # bytes of data that the device's caches hold, by level; 0: not known
    inflight: int = 1  # rounds that may be under way at once; more than one pays where the device is not the host
    cool_bytes: int = 0  # as in `DeviceDescription`
    conservative: bool = False  # lower the network without layout conversion and rewrites
    handed_over: tuple[str, ...] = ()  # nodes, as messages name them, that run in onnxruntime; "*": all
    avoided: tuple[str, ...] = ()  # CPU extensions that no program may use, since they make nothing faster there

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files that the job reads: its model, constants, inputs and calibration files."""
        return named_files(self.model, self.input_files, self.calibration_files)

    def of_network(self, subgraphs: Sequence[Subgraph]) -> JobSpec:
        """Return the spec with the operands (`operands_for`) of networks of these subgraphs.

        With several combinations of shapes, they are cold if they are cold for the network of any combination.
        """
        if not self.cool_bytes:
            return self
        kinds = {operands_for(network, self.cool_bytes) for network in by_combination(subgraphs)}
        operands = "cold" if "cold" in kinds else "cool"  # also after a network that was smaller
        protocol, device_type = self.protocol.with_operands(operands), self.device_type.with_operands(operands)
        return msgspec.structs.replace(self, protocol=protocol, device_type=device_type)
