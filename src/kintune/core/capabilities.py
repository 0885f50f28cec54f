"""What devices can do with kernels and results; asked in place of what kind of device they are.

A canonical target of the compiler (JSON) names its kind.  `_BY_KIND` says once what devices of each kind can do: a new
kind of device is a row there, a function in `kintune.runtime.target` that resolves what users call it, and a backend
in `kintune.measure` that times kernels on it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import lru_cache

import msgspec

from kintune.errors import TargetError

__all__ = [
    "CPU",
    "FOR_BF16",
    "FOR_INT8",
    "GPU",
    "Capabilities",
    "capabilities_named",
    "capabilities_of",
    "kind_named",
    "vector_shape",
]

CPU, GPU = "llvm", "cuda"
"""What the compiler calls its kinds of targets for CPUs, and for NVIDIA's GPUs."""

FOR_BF16 = frozenset({"amxbf16", "avx512bf16", "bf16"})
"""Extensions for products in bfloat16, as `hardware.cpu.extensions` spells them; one of them is enough."""

FOR_INT8 = frozenset({"avx512vnni", "avxvnni", "dotprod", "i8mm"})
"""The same for products of bytes."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a device can do, as far as its target says it.

    `noun` is what messages call such a device.  `extensions` of the instruction set are spelled as
    `hardware.cpu.extensions` does, and are empty where they are not known; `threads` is the number of threads.

    - `llvm_kernels`: LLVM compiles its kernels, which may be loops over vectors and LLVM's text: those that are written
      for vectors suit it.  Otherwise loops must be bound to the device's threads.
    - `on_host`: kernels run on the processor that calls them, in its memory; other devices are named by a number.
    - `plans`: its results are execution plans, which can be exported, and of which a file holds variants; others are
      run by TVM's virtual machine.
    - `several_shapes`: a result may have several combinations of shapes.
    - `one_architecture`: kernels run on devices of just the architecture that they were compiled for, and not on all
      those that have the extensions.
    - `flushes_denormals`: denormal numbers can be flushed to zero.
    - `other_runtimes`: onnxruntime and the other baselines run on it as it is measured.
    - `confined`: the processes that use it can be isolated.
    - `narrow`: it computes in the narrower types that its extensions are for.
    - `remote`: it is reached through the compiler's RPC server, so that no process of ours runs there.
    - `compiler`: the compiler that it needs beside LLVM; empty where it needs none.
    """

    noun: str = "CPU"
    llvm_kernels: bool = True
    on_host: bool = True
    plans: bool = True
    several_shapes: bool = True
    one_architecture: bool = False
    flushes_denormals: bool = True
    other_runtimes: bool = True
    confined: bool = True
    narrow: bool = True
    remote: bool = False
    compiler: str = ""
    extensions: tuple[str, ...] = ()
    threads: int = 1

    @property
    def a_device(self) -> str:
        """As `noun`, with its article."""
        return f"a {self.noun}"

    @property
    def precisions(self) -> frozenset[str]:
        """The precisions that it computes in by instructions of its own: "fp32", "bf16", "int8"."""
        needed = {"bf16": FOR_BF16, "int8": FOR_INT8} if self.narrow else {}
        return frozenset({"fp32", *(name for name, those in needed.items() if those.intersection(self.extensions))})

    @property
    def lanes(self) -> int:
        """The fp32 numbers of a vector."""
        return vector_shape(self.extensions)[0]

    @property
    def registers(self) -> int:
        """The number of vector registers."""
        return vector_shape(self.extensions)[1]

    def has(self, extensions: Collection[str]) -> bool:
        """Whether LLVM's kernels may use all of these extensions."""
        return self.llvm_kernels and set(extensions).issubset(self.extensions)


_BY_KIND = {
    CPU: Capabilities(),
    GPU: Capabilities(
        noun="GPU",
        llvm_kernels=False,
        on_host=False,
        plans=False,
        several_shapes=False,
        one_architecture=True,
        flushes_denormals=False,
        other_runtimes=False,
        confined=False,
        narrow=False,
        compiler="nvcc",
    ),
}


@lru_cache(256)
def capabilities_of(
    target: str, extensions: tuple[str, ...] = (), threads: int = 0, *, remote: bool = False
) -> Capabilities:
    """Return what the devices of a canonical target (JSON) can do that have these extensions.

    The target says how many `threads` there are, if that is 0.  One that names no kind is a CPU's.  A `remote` device
    is measured through the compiler's RPC server.

    Raises:
        TargetError: it is no target, or of a kind that this version does not know.
    """
    try:
        config = json.loads(target)
        kind, threads = str(config.get("kind", CPU)), threads or int(config.get("num-cores", 1))
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise TargetError(f"target {target[:80]!r} is none: JSON with a kind is needed") from error
    if kind not in _BY_KIND:
        raise TargetError(f"target of the kind {kind[:80]!r}: this version knows {' and '.join(_BY_KIND)}")
    found = msgspec.structs.replace(_BY_KIND[kind], extensions=extensions, threads=threads)
    if not remote:
        return found
    return msgspec.structs.replace(
        found, noun="board", remote=True, several_shapes=False, other_runtimes=False, narrow=False
    )


def kind_named(*words: str) -> str:
    """Return the kind of target that a user names, by the first of these devices and targets that says so: "cuda:1".

    "cpu", "native" and what is not known are a CPU's.
    """
    return next((kind for word in words for kind in _BY_KIND if word.startswith(kind)), CPU)


def capabilities_named(*words: str) -> Capabilities:
    """What a device can do, as far as what the user calls it (see `kind_named`) says that."""
    return capabilities_of(json.dumps({"kind": kind_named(*words)}))


def vector_shape(extensions: Collection[str]) -> tuple[int, int]:
    """Return the fp32 numbers of a vector and the number of vector registers, by the extensions of a CPU.

    Names may be spelled as in /proc/cpuinfo too.
    """
    if any(name.startswith("avx512f") for name in extensions):
        return 16, 32
    if "avx2" in extensions or "avx" in extensions:
        return 8, 16
    if "asimd" in extensions or "neon" in extensions:
        return 4, 32
    return 4, 16
