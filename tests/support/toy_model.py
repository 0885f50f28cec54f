"""Models whose kernels are `toy_kernels.c`, for tests of the runtime without the compiler."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from kintune.core.execution_plan import ExecutionPlan, KernelCall, Operation, PlannedTensor
from kintune.core.model import Combination, IndexCheck, Tensor
from kintune.runtime.package import Block, EncodedPlan, Manifest, PackageVariant, pack_weights, write_package
from kintune.runtime.plan_format import encode_plan
from kintune_runtime.library import checksum

__all__ = ["ADDING", "adding", "calling", "encoded", "kernels", "manifest", "packed", "planned", "write_model"]

_SOURCE = Path(__file__).with_name("toy_kernels.c")


@cache
def kernels() -> bytes:
    """The shared library of the kernels."""
    library = Path(mkdtemp(prefix="kintune-toy-")) / "kernels.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
    subprocess.run(command, check=True)
    content = library.read_bytes()
    library.unlink()
    library.parent.rmdir()
    return content


def planned(place: str, offset: int, shape: tuple[int, ...], dtype: str = "float32") -> PlannedTensor:
    """A tensor of a plan."""
    return PlannedTensor(place, offset, dtype, shape)  # type: ignore[arg-type]


def adding(count: int = 1000) -> ExecutionPlan:
    """out = x + w + w, in two calls with a tensor in between; w is the one weight."""
    shape = (count,)
    return ExecutionPlan(
        tensors=(
            planned("input", 0, shape),
            planned("weights", 0, shape),
            planned("arena", 0, shape),
            planned("output", 0, shape),
        ),
        operations=(KernelCall("add", (0, 1, 2)), KernelCall("add", (2, 1, 3))),
        input_tensors=(0,),
        output_tensors=(3,),
        inputs=(Tensor("x", shape, "float32"),),
        outputs=(Tensor("out", shape, "float32"),),
        arena_bytes=-(-4 * count // 64) * 64,
    )


ADDING = adding()


def calling(
    kernel: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    threads: int = 0,
    title: str = "",
    checks: tuple[IndexCheck, ...] = (),
    hidden: Sequence[Tensor] = (),
) -> ExecutionPlan:
    """One call of a kernel with all inputs and outputs; `hidden` outputs hold the indices of `checks`."""
    given = [planned("input", i, t.shape, t.dtype) for i, t in enumerate(inputs)]
    made = [planned("output", i, t.shape, t.dtype) for i, t in enumerate([*outputs, *hidden])]
    numbers = tuple(range(len(given) + len(made)))
    operations: tuple[Operation, ...] = (KernelCall(kernel, numbers, threads, title),)
    return ExecutionPlan(
        tensors=(*given, *made),
        operations=operations,
        input_tensors=numbers[: len(given)],
        output_tensors=numbers[len(given) :],
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        arena_bytes=0,
        checks=checks,
    )


def manifest(
    plan: ExecutionPlan,
    *more: ExecutionPlan,
    machine: str = platform.machine(),
    isa: Sequence[str] = (),
    threads: int = 2,
    cpu: str = "",
    digest: str = "0" * 32,
    keep_denormals: bool = False,
) -> Manifest:
    """A manifest, by default for this machine; `more` are the plans for other combinations of shapes."""
    return Manifest(
        model_name="toy", model_digest=digest, target="{}", machine=machine, isa=tuple(isa), threads=threads, cpu=cpu,
        inputs=plan.inputs, outputs=plan.outputs, chosen={}, created="2026-01-01T00:00:00+00:00", kintune="0", tvm="0",
        more=tuple(Combination(other.inputs, other.outputs, other.checks) for other in more),
        keep_denormals=keep_denormals,
    )  # fmt: skip


def encoded(
    plan: ExecutionPlan,
    weights: np.ndarray,
    library: bytes | None = None,
    *,
    machine: str = platform.machine(),
    isa: Sequence[str] = (),
    threads: int = 2,
    number: int = 0,
    total: int = 1,
    variant: int = 0,
    cpu: str = "",
    keep_denormals: bool = False,
) -> bytes:
    """The bytes of a plan for these weights, as they lie in a file."""
    content = kernels() if library is None else library
    return encode_plan(
        plan, machine=machine, isa=isa, threads=threads, weights_bytes=weights.nbytes,
        weights_checksum=checksum(weights), library_bytes=len(content), library_checksum=checksum(content),
        checksum=checksum, number=number, total=total, variant=variant, cpu=cpu,
        keep_denormals=keep_denormals,
    )  # fmt: skip


def packed(weights: Sequence[np.ndarray]) -> np.ndarray:
    """The content of `weights.bin`."""
    blocks = [Block(each.shape, str(each.dtype), each.reshape(-1).view(np.uint8)) for each in weights]
    return pack_weights(blocks)[1]


def write_model(
    path: Path,
    plans: Sequence[ExecutionPlan] = (ADDING,),
    weights: Sequence[np.ndarray] = (np.arange(1000, dtype=np.float32),),
    *,
    machine: str = platform.machine(),
    isa: Sequence[str] = (),
    threads: int = 2,
    cpu: str = "",
    digest: str = "0" * 32,
    library: bytes | None = None,
    keep_denormals: bool = False,
) -> Path:
    """Write a `.kt` file for one CPU; returns its path.

    `library` has the kernels of all plans, by default `kernels`.
    """
    built = library or kernels()
    content = packed(weights)
    made = [
        encoded(
            plan, content, built, machine=machine, isa=isa, threads=threads, cpu=cpu, number=number, total=len(plans),
            keep_denormals=keep_denormals,
        )
        for number, plan in enumerate(plans)
    ]  # fmt: skip
    described = manifest(
        *plans, machine=machine, isa=isa, threads=threads, cpu=cpu, digest=digest, keep_denormals=keep_denormals
    )
    write_package(path, [PackageVariant(described, tuple(EncodedPlan(plan, built) for plan in made))], content)
    return path
