"""The request of a tuning job: model, target, budget, and how its search proceeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from kintune.core.constraints import Section, fields_of, option
from kintune.core.latency_target import COMPARED
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol, operands_for
from kintune.core.model import ModelRef
from kintune.core.workload import Subgraph, by_combination
from kintune.errors import InputError

__all__ = [
    "COMPILE_FIELDS",
    "DEFAULT_MAX_ERROR",
    "DEFAULT_TRIALS",
    "Budget",
    "FamilyAlgorithm",
    "Foresee",
    "JobSpec",
    "Metric",
    "Options",
    "OtherShapes",
    "PolicyName",
    "Precision",
    "SharedOptions",
    "Strategy",
    "TuneConfig",
    "WeightBits",
    "named_files",
    "refuse_random_sets",
]

FamilyAlgorithm: TypeAlias = Literal["op", "hash", "ind", "none", "measured"]
"""How subgraphs are grouped (`kintune.search.family`): by core operator, by all operators, each alone, all together, or
by samples."""

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

DEFAULT_TRIALS = 1000
"""The budget in trials where no limit is given."""

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

    # fmt: off
    families: Annotated[FamilyAlgorithm, option(
        "Groups that share a cost model: op, hash, measured, ind, none.", Section.SEARCH, see="families.md"
    )] = "op"
    foresee: Annotated[Foresee, option(
        "Short rounds in a family: guarded, published or none.", Section.SEARCH
    )] = "guarded"
    carry: Annotated[bool, option(
        "Try a subgraph's good programs on others of its family.", Section.SEARCH,
        off="Do not try a subgraph's good programs on others of its family.",
    )] = True
    rules: Annotated[bool, option("Let the rule propose programs.", Section.SEARCH)] = True
    survey: Annotated[tuple[int, ...], option(
        "Programs that every subgraph gets first, for each round.", Section.SEARCH
    )] = (1, 3, 4)
    budget: Annotated[Budget, option("Which subgraph gets the next round.", Section.SEARCH)] = "gradient"
    round_size: Annotated[int, option("Number of programs in a full round.", Section.SEARCH, ge=1)] = 32
    foresee_size: Annotated[int, option("Number of programs in a foresee round.", Section.SEARCH, ge=1)] = 16
    width: Annotated[int, option("Number of subgraphs that share a round.", Section.SEARCH, ge=1)] = 1
    thrift: Annotated[bool, option("Discount the scores of programs that take long to build.", Section.SEARCH)] = True
    draft: Annotated[bool, option("Rank candidates in bulk before any is replayed.", Section.SEARCH)] = False
    again: Annotated[int, option("Fastest programs that are timed again in each round.", Section.SEARCH, ge=0)] = 3
    # fmt: on


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


_STRATEGY = fields_of(Strategy)
_TOLERANCE: Any = {"hint": "How far outputs may be from those of the model", "step": 1e-3, "told": ""}


# fmt: off


class SharedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every tuning run, whether a command, a Python program or a job of a service starts it.

    An option is declared here, or in `TuneConfig` where only this machine can have it: its type, default and limits,
    and what is said of it.  The command line, Python, the REST API, the portal's form, the words of jobs and reports,
    and the tables of the documentation are made from that.
    """

    trials: Annotated[int, option(
        "Stop after measuring this many programs.", Section.BUDGET, ge=1, without=f"{DEFAULT_TRIALS} if no other limit",
        label="Programs at most", hint="Empty: as many as the time allows", told="",
    )] | None = None
    minutes: Annotated[float, option(
        "Stop after this many minutes.", Section.BUDGET, gt=0,
        label="Minutes at most", hint="It ends earlier once nothing more is gained", told="",
    )] | None = None
    until: Annotated[str, option(
        "Stop once the model is estimated to take at most this long: milliseconds (2.5), or a share of what another"
        " runtime takes (onnxruntime*0.8).", Section.BUDGET, see="cli.md#baselines-come-first", told="",
        label="Target latency",
        hint="Milliseconds, or a share of a runtime: onnxruntime*0.8. Empty: as fast as it gets",
    )] | None = None
    precision: Annotated[Precision, option(
        "The precision of the result: fp32, which is the types of the model; bf16 as well, where that is faster; int8"
        " as well, which needs inputs (calibrate); or auto, all that the processor supports.", Section.PRECISION,
        words={"fp32": "fp32 (as the model)", "bf16": "bf16 where it is faster", "int8": "int8 where it is faster",
               "auto": "the fastest within the error"}, told="", see="precision.md",
    )] = "fp32"
    weights: Annotated[WeightBits, option(
        "Quantise the large constant weights of products to 4 or 8 bits.", Section.PRECISION, label="Large weights",
        hint="Constant weights of large products", words={0: "as they are", 4: "4 bits", 8: "8 bits"}, told="",
        see="precision.md#weights-of-4-and-8-bits",
    )] | None = None
    max_error: Annotated[float, option(
        "With a narrower precision or quantised weights: the error allowed at the outputs, as a share of their norm.",
        Section.PRECISION, gt=0, le=1, without=f"{DEFAULT_MAX_ERROR:g}", label="Largest error", step=1e-3,
        hint="Of the outputs, as a share of their norm", told="", see="precision.md",
    )] | None = None
    rtol: Annotated[float, option(
        "Relative tolerance of outputs.", Section.CHECKS, ge=0, label="Relative tolerance", **_TOLERANCE
    )] = 1e-3
    atol: Annotated[float, option(
        "Absolute tolerance of outputs.", Section.CHECKS, ge=0, label="Absolute tolerance", **_TOLERANCE
    )] = 1e-3
    random_sets: Annotated[int, option(
        "Number of random sets of inputs that outputs are compared on, where no inputs are given.", Section.CHECKS,
        ge=1, le=64, label="Random sets of inputs", hint="To compare outputs on, where none are given",
        told="outputs compared on {} random sets of inputs",
    )] = 1
    keep_denormals: Annotated[bool, option(
        "Compute with denormal numbers (below 1.2e-38 in float32) instead of flushing them to zero.", Section.PLACEMENT,
        label="Keep denormal numbers", hint="Numbers below 1.2e-38 are not flushed to zero, which is slower",
        told="denormal numbers are kept", see="models.md#denormal-numbers",
    )] = False
    onnxruntime: Annotated[bool, option(
        "Run nodes in onnxruntime that cannot be compiled, or are not faster compiled.", Section.PLACEMENT,
        off="Run no node in onnxruntime: refuse nodes that cannot be compiled, and keep slower ones.",
        label="Run no node in onnxruntime", told="nothing runs in onnxruntime", see="hybrid.md",
    )] = True
    other_shapes: Annotated[OtherShapes, option(
        "How the result handles shapes that were not tuned: refuse or onnxruntime.", Section.PLACEMENT,
        label="Other shapes run in onnxruntime", part=Section.MODEL.part, told="other shapes run in {}",
        see="shapes.md#other-shapes",
    )] = "refuse"
    seed: Annotated[int, option(
        "Seed of all random choices.", Section.SEED, ge=0, hint="Of all random choices", told=""
    )] = 0


def refuse_random_sets(chosen: SharedOptions, *, is_given: bool) -> None:
    """Refuse a number of random sets of inputs where inputs to compare on, or to quantise with, are given.

    Raises:
        InputError: both were given.
    """
    if is_given and chosen.random_sets != fields_of(SharedOptions)["random_sets"].default:
        raise InputError(
            "random_sets and given inputs do not go together: outputs are compared on the inputs alone; leave one out"
        )


class TuneConfig(SharedOptions, frozen=True, kw_only=True):
    """How a model is tuned: everything that may be chosen beside the model.

    Paths are texts.  The fields in `COMPILE_FIELDS` hold for a compilation without search as well.
    """

    target: Annotated[str, option("What to tune for; 'native' is this machine.", Section.TARGET)] = "native"
    device: Annotated[str, option(
        "The device that times programs: 'cpu' (all cores, shared) or dedicated cores: cpu:1, cpu:2-3, cpu:2+cpu:3; a"
        " GPU: cuda, cuda:1.", Section.TARGET, see="together.md#a-device-of-its-own",
    )] = "cpu"
    threads: Annotated[int, option(
        "Threads that the model will run on.", Section.TARGET, ge=1, without="all physical cores"
    )] | None = None
    families: Annotated[FamilyAlgorithm, _STRATEGY["families"].meta] = Strategy().families
    foresee: Annotated[Foresee, _STRATEGY["foresee"].meta] = Strategy().foresee
    carry: Annotated[bool, _STRATEGY["carry"].meta] = Strategy().carry
    round_size: Annotated[int, option(
        "Number of programs in a full round.", Section.SEARCH, ge=1, without=str(Strategy().round_size)
    )] | None = None
    inputs: Annotated[str, option(
        "Compare on these inputs.", Section.MODEL, flag="--input", metavar="FILE.npz|DIR", without="random ones"
    )] | None = None
    metric: Annotated[str, option(
        "With a narrower precision, instead of an error: your own score of the network, a function MODULE:FUNCTION or"
        " FILE.py:FUNCTION that is called with the runnable network; higher is better.", Section.PRECISION,
        see="precision.md#your-own-score",
    )] | None = None
    max_drop: Annotated[float, option("The largest loss of that score.", Section.PRECISION, ge=0)] | None = None
    calibrate: Annotated[str, option(
        "With precision int8 or auto: quantise the model, with ranges found on these inputs.", Section.PRECISION,
        metavar="FILE.npz|DIR", see="precision.md#integers",
    )] | None = None
    strict: Annotated[bool, option(
        "Fail, with the result written, if an output was not compared or a number is uncertain.", Section.ACCEPTANCE
    )] = False
    isolate: Annotated[bool, option(
        "Read, compile and run the model in processes without network that see its files alone, for models of"
        " strangers.", Section.ACCEPTANCE, see="service.md#isolation",
    )] = False
    records: Annotated[str, option(
        "The records file.", Section.RECORDS, metavar="FILE", without="one in your data directory"
    )] | None = None
    fresh: Annotated[bool, option(
        "Neither continue an unfinished run nor reuse stored measurements.", Section.REUSE
    )] = False
    kin: Annotated[bool, option(
        "Start from programs and models of other networks' subgraphs.", Section.REUSE,
        off="Do not start from the programs and models of other networks' subgraphs.",
    )] = True
    output: Annotated[str, option(
        "The executable to write; a directory for several models.", Section.OUTPUT, short="-o", metavar="FILE.kt",
        without="MODEL.kt in the working directory",
    )] | None = None
    log: Annotated[str, option(
        "The file of the detailed log.", Section.LOGS, metavar="FILE", without="one in your log directory"
    )] | None = None
    priority: Annotated[float, option(
        "A model of priority 2 gets twice as much of a scarce resource as one of 1.", Section.MODELS, gt=0
    )] = 1.0


COMPILE_FIELDS = tuple(
    name for name, field in fields_of(TuneConfig).items()
    if field.shown.section not in (Section.BUDGET, Section.REUSE, Section.MODELS, Section.SEARCH)
)
"""The fields of `TuneConfig` that a compilation without search uses."""

# fmt: on

_LONG_MINUTES, _LONG_TRIALS = 5.0, 500


class Options(SharedOptions, frozen=True, kw_only=True):
    """What the user asked for.  At least one of the three limits is set; whichever is reached first ends the search.

    `until` is written as a `kintune.core.latency_target.LatencyTarget` writes itself.  The runtimes in `compare` are
    timed before the search, and at its end beside the result.  With `kin`, the search starts from what the records know
    of other workloads.  Without `search`, the network is compiled from what the records, or the rule, suggest, and
    checked.
    """

    strategy: Strategy = Strategy()
    kin: bool = True
    compare: tuple[str, ...] = COMPARED
    search: bool = True  # False: nothing is measured, what is known ships
    max_error: float = DEFAULT_MAX_ERROR
    metric: Metric | None = None
    weights: int = 0  # type: ignore[assignment]  # 0: as they are

    @classmethod
    def of(cls, chosen: SharedOptions, **more: Any) -> Options:
        """Return the options of a run as `chosen`, and `more` fields that only a run has."""
        given = {name: getattr(chosen, name) for name in SharedOptions.__struct_fields__}
        kept = {"weights": chosen.weights or 0, "max_error": chosen.max_error or DEFAULT_MAX_ERROR}
        return cls(**{**given, **kept, **more})

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
