"""What PROVE is asked; free of TVM, so that every process can write it.  The answer is a `Proof`."""

from __future__ import annotations

import msgspec

from kintune.core.payloads import Constant

__all__ = ["ProveContext", "ProveItem", "output_name", "workload_of"]


class ProveContext(msgspec.Struct, frozen=True):
    """Under which conditions a proof is made.

    Everyone runs in fp32 on the same `threads` physical cores.  Outputs agree when |a - b| <= `atol` + `rtol` |b|.
    Latencies are taken in at most `rounds` rounds in which each contender has one turn of at most `runs` timed runs;
    after `min_rounds`, no round is started once `race_seconds` have passed.  `prepare_seconds` bound the loading and
    compiling of each contender, `untuned_seconds` its loading and single run.
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


class ProveItem(msgspec.Struct, frozen=True):
    """Prove one executable: `tuned` is its path, `untuned` that of the same network under the default schedule.

    The model itself is `onnx` (a file) or `exported` (a PyTorch exported program), whichever there is; `compare` names
    the rivals to run on it, which are given `constants` for the inputs that the executables lack.  `inputs` are
    `.npz` files by the inputs' names, a set each, called `input_names`; without any they are drawn from `seed`.
    Outputs are compared on each set, times are those on the first.

    Where the outputs agree only on account of what rounding does, the network `alone` is run as well, whose subgraphs
    are called `titles` by workload; those in `left_out` are not in it.

    With `timed` False the executable only runs once, beside the references, and no latency is taken; the references are
    then all that know the model, whatever `compare` says.
    """

    tuned: str
    untuned: str | None = None
    onnx: str | None = None
    exported: str | None = None
    constants: dict[str, Constant] = {}
    inputs: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    seed: int = 0
    alone: str | None = None
    titles: dict[str, str] = {}
    left_out: tuple[str, ...] = ()
    compare: tuple[str, ...] = ("onnxruntime", "openvino", "torch")
    timed: bool = True


def output_name(workload: str, number: int) -> str:
    """The name of an output of a network that computes each subgraph twice: the workload, and the output's place."""
    return f"{workload} {number}"


def workload_of(name: str) -> str:
    """The workload that an output called so is of."""
    return name.partition(" ")[0]
