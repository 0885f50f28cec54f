"""The requests and results of BUILD and PROFILE; free of TVM, so that every process can read it."""

from __future__ import annotations

import math

import msgspec

from kintune.core.candidate import FULL_PRECISION, Candidate, Sketch
from kintune.core.config import Metric
from kintune.core.latency_target import COMPARED
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.model import Constant, Tensor
from kintune.core.outcome import Outcome

__all__ = [
    "BaselineItem",
    "BuildContext",
    "BuildItem",
    "Built",
    "KernelArgument",
    "ProfileContext",
    "ProfileItem",
    "ValidationContext",
    "ValidationItem",
    "kernel_name",
    "output_name",
    "workload_of",
]


class KernelArgument(msgspec.Struct, frozen=True):
    """One argument of a built kernel, in call order; the last ones are outputs.

    `role` is "activation", "weight" (constant between runs, laid out as the candidate wants it) or "output".
    """

    shape: tuple[int, ...]
    dtype: str
    role: str


class BuildContext(msgspec.Struct, frozen=True):
    """What the items of one BUILD stage share: target (JSON), serialised workloads and sketches, both by digest."""

    target: str
    workloads: dict[str, bytes]
    sketches: dict[str, Sketch]


class BuildItem(msgspec.Struct, frozen=True):
    """Build one candidate."""

    candidate: Candidate


class Built(msgspec.Struct, frozen=True):
    """A built candidate: a shared library that exports `main`, with its operands; or the outcome that says why not.

    `object_file` holds the same kernel as the function `kernel_name(candidate)`, to be linked into the network; it is
    empty where the target's programs cannot be linked one by one.

    `precision` is that of its sketch: what computes with shorter numbers than its workload is compared with the
    reference by norm.  `instructions` are extensions of the CPU that it needs, beyond those which any kernel may use.
    `unproven` has the accesses that were not proven to lie inside of their buffers; None where nobody looked.
    """

    candidate: str
    artifact: bytes = b""
    operands: tuple[KernelArgument, ...] = ()
    failure: Outcome | None = None
    object_file: bytes = b""
    precision: str = FULL_PRECISION
    instructions: tuple[str, ...] = ()
    unproven: tuple[str, ...] | None = None

    def without_object_file(self) -> Built:
        """The same for processes that only run it."""
        return msgspec.structs.replace(self, object_file=b"")


def kernel_name(candidate: str) -> str:
    """The function that the object file of a built candidate (its digest) defines."""
    return f"kernel_{candidate}"


class ProfileContext(msgspec.Struct, frozen=True):
    """What the items of one PROFILE or CONFIRM stage share.

    `references` maps a workload digest to its built untuned program, against which every candidate's output is checked
    once: activations are filled from a seed, weights with one constant, so that the layout of weights does not matter.
    `best_us` has the best times known of some workloads: a candidate that takes more than `slow` times as long, or as
    the fastest of the stage so far, is not timed again.  `again` are candidates (digests) that were measured
    before; the others are compared with their new times.  Denormal numbers are flushed to zero, as in the result,
    unless `keep_denormals`.
    """

    protocol: MeasurementProtocol
    references: dict[str, Built]
    rtol: float = 1e-3
    atol: float = 1e-3
    best_us: dict[str, float] = {}
    slow: float = math.inf
    again: tuple[str, ...] = ()
    keep_denormals: bool = False


class ProfileItem(msgspec.Struct, frozen=True):
    """Time one built candidate of `workload`; the answer is an `Outcome`."""

    workload: str
    built: Built


class ValidationContext(msgspec.Struct, frozen=True):
    """The conditions of a validation.

    All contenders run on the same `threads` physical cores.  Outputs agree when |a - b| <= `atol` + `rtol` |b|.
    Latencies are taken in at most `rounds` rounds in which each contender has one turn of at most `runs` timed runs;
    after `min_rounds`, no round is started once `race_seconds` have passed.  `prepare_seconds` bound the loading and
    compiling of each contender, `untuned_seconds` its loading and single run.  With `max_error`, outputs agree instead
    when the norm of their error is at most this share of the norm of the reference's.
    """

    threads: int
    rtol: float = 1e-3
    atol: float = 1e-3
    rounds: int = 10
    min_rounds: int = 3
    runs: int = 5
    race_seconds: float = 30.0
    prepare_seconds: float = 240.0
    untuned_seconds: float = 60.0
    max_error: float | None = None


class ValidationItem(msgspec.Struct, frozen=True):
    """Validate one executable: `tuned` is its path, `untuned` that of the same network under the default schedule.

    The model itself is `onnx` (a file) or `exported` (a PyTorch exported program), whichever there is; `compare` names
    the rivals to run on it, which are given `constants` for the inputs that the executables lack.  `inputs` are
    `.npz` files by the inputs' names, a set each, called `input_names`; without any, `draws` sets are drawn from `seed`
    and the seeds that follow.
    Outputs are compared on each set, times are those on the first.

    Of an executable that runs with several combinations of shapes each is validated by itself: on those sets of inputs
    that have its shapes, or else on inputs that are drawn.

    If the outputs agree only because rounding is allowed for, the network in `each_alone` of this combination of shapes
    is run as well.  `titles` has the names of its subgraphs by workload; those in `left_out` are in no such network.

    With `timed` False the executable only runs once, beside the references, and no latency is taken; the references are
    then all runtimes of the model, whatever `compare` says.  With `may_hand_over`, parts that are not faster than
    onnxruntime run there.  `untuned_s` are the seconds of a run of the untuned network, as far as they are known: where
    it takes long and another reference runs the model, it does not run.  `beside` is another executable of the model:
    with it and with `timed` False, the two are timed in turns.  With a `metric`, the network is right if it does
    not lose more of the user's score than that allows; `held_back` asks it for data that no choice has seen.  With
    `find_slow`, a network of so many `flops` that takes too long for them, or beside a reference, is profiled, so that
    the result names the parts without a fast kernel.  With `extremes`, it also runs on sets of extreme inputs, beside a
    runtime that runs the model itself: as many as there is time for, and always on the one that is `first_extreme`.
    With `only_alone`, nothing is done but the comparison of single subgraphs.
    """

    tuned: str
    untuned: str | None = None
    onnx: str | None = None
    exported: str | None = None
    constants: dict[str, Constant] = {}
    inputs: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    seed: int = 0
    each_alone: tuple[str | None, ...] = ()
    titles: dict[str, str] = {}
    left_out: tuple[str, ...] = ()
    compare: tuple[str, ...] = COMPARED
    timed: bool = True
    may_hand_over: bool = False
    untuned_s: float = 0.0
    draws: int = 1
    metric: Metric | None = None
    held_back: bool = False
    beside: str | None = None
    find_slow: bool = False
    flops: float = 0.0
    extremes: bool = False
    first_extreme: str = ""
    only_alone: bool = False


class BaselineItem(msgspec.Struct, frozen=True):
    """Time the runtimes in `compare` on the user's own model, in turns, with each combination of its inputs.

    `onnx` and `exported` are its files, as in `ValidationItem`; so are `constants`, `inputs` and `seed`.
    """

    combinations: tuple[tuple[Tensor, ...], ...]
    onnx: str | None = None
    exported: str | None = None
    constants: dict[str, Constant] = {}
    inputs: tuple[str, ...] = ()
    seed: int = 0
    compare: tuple[str, ...] = COMPARED


def output_name(workload: str, number: int) -> str:
    """The name of an output of a network that computes each subgraph twice: the workload, and the output's place."""
    return f"{workload} {number}"


def workload_of(name: str) -> str:
    """The workload to which an output of this name belongs."""
    return name.partition(" ")[0]
