"""What a tuning job is asked for, and what its stages yield; free of TVM, since the front process reads it too."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.device import Peak
from kintune.core.knowledge import Knowledge
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol, operands_for
from kintune.core.outcome import Outcome
from kintune.core.plan import RoundEntry
from kintune.core.strategy import Strategy
from kintune.core.version import ModelVersion

__all__ = [
    "ALONE_FILE",
    "UNPROVEN",
    "UNTUNED_FILE",
    "Apart",
    "Constant",
    "Draft",
    "Drafted",
    "JobSpec",
    "KnowledgeUse",
    "Known",
    "ModelRef",
    "Options",
    "Packaged",
    "Pick",
    "Prepared",
    "Profiled",
    "Proof",
    "Selected",
    "StageName",
    "Subgraph",
    "SubgraphEnd",
    "Summary",
    "Taught",
    "Tensor",
    "Updated",
]


UNPROVEN = ".unproven"
"""Suffix of the executable until its proof has been looked at."""

ALONE_FILE = ".alone"
"""Suffix of the network that computes each subgraph twice, by its program and the untuned one."""

UNTUNED_FILE = ".untuned"
"""Suffix of the untuned executable, which is there only to compare with."""


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
    EXPLAIN = "explain"  # find the node at fault, once nothing has helped
    PEAK = "peak"  # what the device reaches at its best, once for a device type
    KNOWN = "known"  # not scheduled: what records already tell, committed right after PREPARE
    KIN = "kin"  # likewise: what records tell of other workloads, committed right after KNOWN


class Constant(msgspec.Struct, frozen=True):
    """The value that an input of a model has for good, as it was given; the model's own type and shape decide.

    `dtype` is numpy's name of the elements' type and `shape` their shape.  The elements are in `data`, one after
    another in row-major order and little endian, or in the .npy file `path` when there are many.  `digest` is that of
    type, shape and elements.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: str
    data: bytes = b""
    path: str = ""


class ModelRef(msgspec.Struct, frozen=True):
    """Where a model comes from: `kind` is "onnx", "exported" (a PyTorch exported program) or "zoo".

    `source` is a path, or a zoo name; `shapes` binds dynamic inputs; `options` are the zoo's (batch, sequence);
    `constants` has the inputs whose values are fixed for good, and which the result no longer has.
    `own` files are the user's, who named them: weights behind links are found within a Hugging Face cache; what others
    handed in never leads through a link.
    """

    kind: str
    source: str
    name: str
    shapes: dict[str, tuple[int, ...]] = {}
    options: dict[str, int] = {}
    constants: dict[str, Constant] = {}
    own: bool = False


class Options(msgspec.Struct, frozen=True):
    """What the user asked for.  At least one of the three limits is set; whichever is reached first ends the search.

    With `kin`, the search starts from what the records know of other workloads.  Without `search`, the network is
    compiled from what the records, or the rule, suggest, and checked.
    """

    trials: int | None = None
    minutes: float | None = None
    until_ms: float | None = None
    strategy: Strategy = Strategy()
    kin: bool = True
    seed: int = 0
    rtol: float = 1e-3
    atol: float = 1e-3
    compare: tuple[str, ...] = ("onnxruntime", "openvino", "torch")
    search: bool = True  # False: nothing is measured, what is known ships


class JobSpec(msgspec.Struct, frozen=True):
    """Everything a job process needs to know."""

    run_id: str
    model: ModelRef
    device_type: DeviceType
    protocol: MeasurementProtocol
    options: Options
    output: str
    input_files: tuple[str, ...] = ()  # .npz files with the user's own inputs for the proof, a set each
    cores: int = 1  # of the host, for selecting and building
    device: str = "cpu"  # the type of device to time on, as the scheduler knows it
    devices: int = 1  # how many of them there are
    caches: tuple[int, ...] = ()  # bytes of data that the device's caches hold, by level; 0: not known
    inflight: int = 1  # rounds that may be under way at once; more than one pays where the device is not the host
    cool_bytes: int = 0  # of a network that stay in the device's last cache, as in `DeviceAbout`
    conservative: bool = False  # lower the network without layout conversion and rewrites

    def of_network(self, subgraphs: Sequence[Subgraph]) -> JobSpec:
        """The same, with protocol and device type as they are for a network of these subgraphs."""
        operands = operands_for(subgraphs, self.cool_bytes)
        if operands == "cold":
            return self
        protocol, device_type = self.protocol.with_operands(operands), self.device_type.with_operands(operands)
        return msgspec.structs.replace(self, protocol=protocol, device_type=device_type)


class Tensor(msgspec.Struct, frozen=True):
    """A named input or output of a model.

    `bounds` holds the least and the greatest value that an integer input may have, where the model uses it as an index;
    None where any value will do.  `values` says what an input stands for, as far as its use tells: "ids" (less than
    `below`), "mask", "bytes", "counts", "lengths", "image" or nothing; inputs are drawn accordingly.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bounds: tuple[int, int] | None = None
    values: str = ""
    below: int = 0


class IndexCheck(msgspec.Struct, frozen=True):
    """An index that the network computes, and what it must lie in.

    The index is the result numbered `result` of the network, after its `outputs`.  `node` names the user's node that
    reads by it.  It means one axis of `sizes[0]` entries, or, by its last dimension, several of `sizes`, of which
    `axis` is the first.  Where `negative`, values below 0 count from the end.
    """

    node: str
    result: int
    sizes: tuple[int, ...]
    axis: int
    negative: bool


class Subgraph(msgspec.Struct, frozen=True):
    """One distinct subgraph of a network.

    `workload` is the digest of its program, `weight` how often it occurs, `flops` per run, `operator` its core
    operator (conv2d, depthwise, dense ...), `signature` the sequence of its operators; `tunable` is False for trivial
    ones, which take a rule's program and no budget.  `sketches` lists the digests of its sketches, `weight_bytes` is
    the size of its weights, `bytes` that of all its arguments.  `nodes` are the user's nodes
    that it may compute, as messages name them.
    """

    name: str
    workload: str
    weight: int
    flops: float
    operator: str
    signature: str
    tunable: bool
    sketches: tuple[str, ...] = ()
    weight_bytes: float = 0.0
    bytes: float = 0.0
    nodes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name, and up to three of the user's nodes that it may compute."""
        if not self.nodes:
            return self.name
        more = f" and {len(self.nodes) - 3} more" if len(self.nodes) > 3 else ""
        return f"{self.name} ({', '.join(self.nodes[:3])}{more})"


class Prepared(msgspec.Struct, frozen=True):
    """PREPARE's result.

    `modules` maps workload digests to serialised programs.  `conservative` says that the network was lowered without
    layout conversion and rewrites, since the usual lowering failed; `notes` has a line on each thing that the user
    should know.
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


class Known(msgspec.Struct, frozen=True):
    """What the records tell about one candidate of this job's workloads."""

    candidate: Candidate
    outcome: Outcome
    features: bytes = b""
    confirmed: Outcome | None = None
    suggestion: bool = False  # measured by another compiler or protocol: to be measured again, not believed


class Taught(msgspec.Struct, frozen=True):
    """What the records tell of other workloads, and of the device: its `peak`, if that was measured.

    `lost` counts what was offered at first and cannot be read now.
    """

    knowledge: Knowledge
    lost: int = 0
    peak: Peak | None = None


class Draft(msgspec.Struct, frozen=True):
    """What DRAFT and PACKAGE are asked: to compile the network with these programs by workload digest.

    With `alone`, also the network that computes each subgraph a second time with the untuned program.
    """

    chosen: dict[str, Candidate]
    alone: bool = False


class Packaged(msgspec.Struct, frozen=True):
    """PACKAGE's result: the files written, and the candidate (digest) that ships for each workload.

    `tuned` is the executable, not yet proven; `untuned` the same network under the default schedule, None when that
    cannot be compiled; `onnx` or `exported` the model itself, for others to run, which they do with `constants` for
    the inputs that the executable no longer has.  `alone`, where it was asked for and can be compiled, is the network
    that computes subgraphs twice, each but those in `left_out` (workload digests), which take too long untuned.
    """

    tuned: str
    chosen: dict[str, str]
    untuned: str | None = None
    onnx: str | None = None
    exported: str | None = None
    constants: dict[str, Constant] = {}
    alone: str | None = None
    left_out: tuple[str, ...] = ()


class Apart(msgspec.Struct, frozen=True):
    """The network that computes subgraphs twice: its file, None where it cannot be compiled, and who is not in it."""

    path: str | None
    left_out: tuple[str, ...] = ()


class Drafted(msgspec.Struct, frozen=True):
    """DRAFT's result: the files written, or None and, in a line, why the network cannot be compiled."""

    packaged: Packaged | None
    failure: str = ""


class Proof(msgspec.Struct, frozen=True):
    """PROVE's result.

    `latency_ms` has the latencies in milliseconds by who ran ("tuned", "untuned", a rival's name), one entry a timed
    run, taken in alternation; an untuned network that is slow, or runs on a board, was timed before.  The errors are
    the tuned outputs' largest over all of `compared_with`; they and `within_tolerance` are None when there was nothing
    to compare with.  `disagreement` is one line on the first output that is out of tolerance.  `skipped` says of each
    who could not run why.  Where values were out of tolerance, `noise` is how far rounding alone moves the model's
    outputs, as a share of the deviation of their values, and `basis` is one line on what was allowed on its account.
    Then subgraphs are compared alone as well: those in `alone`, but not those in `not_alone`, by name; `wrong_alone`
    says by workload how those differ that do.
    """

    latency_ms: dict[str, tuple[float, ...]]
    max_abs_error: float | None
    max_rel_error: float | None
    within_tolerance: bool | None
    compared_with: tuple[str, ...]
    skipped: dict[str, str]
    disagreement: str = ""
    noise: float | None = None
    basis: str = ""
    alone: tuple[str, ...] = ()
    not_alone: dict[str, str] = {}
    wrong_alone: dict[str, str] = {}


class SubgraphEnd(msgspec.Struct, frozen=True):
    """How one subgraph ended: trials of this run, the time of the program that ships, failures by cause."""

    name: str
    workload: str
    weight: int
    flops: float
    family: str
    trials: int
    best_us: float | None
    untuned_us: float | None
    failures: dict[str, int]


class KnowledgeUse(msgspec.Struct, frozen=True):
    """What a job started from, and made of it.

    `programs` of other workloads and family `models` that it was told of; `measured` counts the candidates carried over
    from those programs that were measured; `lost` is what was damaged or gone before it was told.
    """

    programs: int = 0
    models: int = 0
    measured: int = 0
    lost: int = 0


class Summary(msgspec.Struct, frozen=True):
    """A job's last word.

    `notes` has a line on each thing about the result that the user should know.  `reason` says why the search ended;
    `curve` has rows of (seconds of active run time, trials, estimated latency in ms); `kernels_ms` is the weighted
    sum of the shipped programs' times; `disturbed` of the trials were timed again, since others used the device's cores
    meanwhile.
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
    proof: Proof | None
    knowledge: KnowledgeUse = KnowledgeUse()
    disturbed: int = 0
    notes: tuple[str, ...] = ()
