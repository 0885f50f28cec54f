"""Runs a plan in Python, and chosen kernels of it between pages that nobody may touch: who does ends a child process.

`python -m kintune.runtime.guarded_process FILE` runs what the JSON on its standard input (a `_Request`) asks for, and
prints the side and the kernel of each guarded call before it is made.  `try_kernels` starts such children.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi

from kintune.core.dtypes import numpy_dtype
from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall, PlannedTensor
from kintune.runtime.executable import Executable
from kintune.runtime.inputs import draw_inputs
from kintune.runtime.package import ALIGNMENT, Package
from kintune.runtime.plan_format import decode_plan
from kintune_runtime.library import checksum

__all__ = ["Guards", "PlanRun", "TornError", "load_kernels", "main", "try_kernels"]

Bytes = npt.NDArray[np.uint8]

_GARBAGE = 0xA5  # what memory holds before anything is written there
_SECONDS = 300.0  # that a child may take
_CHILD = "kintune.runtime.guarded_process"
_TORN = 3  # exit status of a child that has found a `TornError`
_CRASHES = (signal.SIGSEGV, signal.SIGBUS)
_BEHIND = "behind"
_SIDES = (_BEHIND, "before")  # of an argument, where the pages are


class TornError(RuntimeError):
    """A kernel has written where it must not; the message is one line, which begins with its name if that is known."""


class Guards(NamedTuple):
    """Which kernels run between guard pages.

    The pages are right behind their arguments, or right before them; and around all arguments, or the one at the
    position `only` alone.  `tell` is called before each of these calls.
    """

    kernels: Collection[str]
    behind: bool = True
    only: int | None = None
    tell: Callable[[str], None] = print


class PlanRun:
    """A plan with its kernels and weights; `executed` has the numbers of the operations of the last run."""

    def __init__(self, plan: ExecutionPlan, library: bytes, weights: Bytes) -> None:
        self._plan = plan
        self._module = load_kernels(library)
        self._weights = _copied(weights)
        self.executed: list[int] = []

    def run(self, inputs: Sequence[npt.NDArray[Any]], guards: Guards | None = None) -> list[npt.NDArray[Any]]:
        """The outputs of one run, and then the indices of the plan's checks.

        Raises:
            TornError: a kernel has written beside an argument, or to an input or a weight.
        """
        plan = self._plan
        given = [_copied(np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)) for array in inputs]
        before = [self._weights.copy(), *(array.copy() for array in given)]
        outputs = [_memory(plan.tensors[number].nbytes) for number in plan.output_tensors]
        arena = _memory(plan.arena_bytes)
        places = {"input": given, "output": outputs}

        def bytes_of(tensor: PlannedTensor) -> Bytes:
            if tensor.place in places:
                return places[tensor.place][tensor.offset][: tensor.nbytes]
            memory = self._weights if tensor.place == "weights" else arena
            return memory[tensor.offset : tensor.offset + tensor.nbytes]

        memory = [bytes_of(tensor) for tensor in plan.tensors]
        self._execute(memory, guards)
        if not all(np.array_equal(*each) for each in zip(before, [self._weights, *given], strict=True)):
            raise TornError("a kernel has written to an input or a weight")
        return [
            memory[number].view(numpy_dtype(plan.tensors[number].dtype)).reshape(plan.tensors[number].shape)
            for number in plan.output_tensors
        ]

    def _execute(self, memory: Sequence[Bytes], guards: Guards | None) -> None:
        self.executed = []
        plan, at = self._plan, 0
        while at < len(plan.operations):
            self.executed.append(at)
            match plan.operations[at]:
                case KernelCall(kernel, numbers):
                    if guards is not None and kernel in guards.kernels:
                        self._call_guarded(kernel, numbers, memory, guards)
                    else:
                        self._module[kernel](*(_tensor(memory[each], plan.tensors[each]) for each in numbers))
                case Copy(source, target):
                    memory[target][:] = memory[source]
                case Branch(condition, otherwise):
                    size = numpy_dtype(plan.tensors[condition].dtype).itemsize
                    if not memory[condition][:size].any():
                        at = otherwise
                        continue
                case Jump(target):
                    at = target
                    continue
            at += 1

    def _call_guarded(self, kernel: str, numbers: Sequence[int], memory: Sequence[Bytes], guards: Guards) -> None:
        """Call a kernel with copies of its arguments; what it writes to them is copied back."""
        guards.tell(kernel)
        made: dict[int, _Guarded] = {}
        for position, number in enumerate(numbers):
            if number not in made:
                is_guarded = guards.only is None or guards.only == position
                made[number] = _Guarded(memory[number], guards.behind if is_guarded else None)
        self._module[kernel](*(_tensor(made[each].data, self._plan.tensors[each]) for each in numbers))
        for number, copy in made.items():
            if copy.is_torn:
                raise TornError(f"{kernel} writes beside its buffer {numbers.index(number)}")
            changed = copy.data != copy.before
            memory[number][changed] = copy.data[changed]


class _Guarded:
    """A copy of memory in pages of its own, with an untouchable one right behind it, or right before it.

    Kernels take addresses at multiples of `ALIGNMENT`: where the copy does not end at one, a pattern lies between it
    and the page behind.
    """

    def __init__(self, content: Bytes, behind: bool | None) -> None:
        self.before = content
        page = mmap.PAGESIZE
        whole = -(-max(content.nbytes, 1) // page) * page
        self._pages = mmap.mmap(-1, whole + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        everything: Bytes = np.frombuffer(self._pages, np.uint8)
        start = page
        if behind is not None:
            last = page + whole
            start = last - -(-content.nbytes // ALIGNMENT) * ALIGNMENT if behind else page
            for place in (0, last):
                _forbid(everything.ctypes.data + place, page)
        inside = everything[page : page + whole]
        inside[:] = _GARBAGE
        self.data: Bytes = everything[start : start + content.nbytes]
        self.data[:] = content
        self._beside = [inside[: start - page], inside[start - page + content.nbytes :]]

    @property
    def is_torn(self) -> bool:
        """Whether something was written beside the copy."""
        return any((each != _GARBAGE).any() for each in self._beside)


def _forbid(address: int, nbytes: int) -> None:
    """Make pages untouchable."""
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")


def load_kernels(library: bytes) -> Any:
    """The library, whose kernels report their errors to TVM."""
    with tempfile.NamedTemporaryFile(prefix="kintune-", suffix=".so") as file:
        file.write(library)
        file.flush()
        module = tvm_ffi.load_module(file.name, keep_module_alive=False)
        slot = ctypes.c_void_p.in_dll(ctypes.CDLL(file.name), "kintune_raise")
        slot.value = ctypes.cast(tvm_ffi.LIB.TVMFFIErrorSetRaisedFromCStrParts, ctypes.c_void_p).value
        return module


def _memory(nbytes: int) -> Bytes:
    """Memory at a multiple of `ALIGNMENT`, full of garbage."""
    memory = np.full(nbytes + ALIGNMENT, _GARBAGE, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _copied(content: Bytes) -> Bytes:
    memory = _memory(content.nbytes)
    memory[:] = content
    return memory


def _tensor(data: Bytes, tensor: PlannedTensor) -> Any:
    if math.prod(tensor.shape) == 0:
        return tvm.runtime.empty(tensor.shape, tensor.dtype)
    return tvm.runtime.from_dlpack(data)._create_view(tensor.shape, tensor.dtype)


# ---- children ----


class _Request(msgspec.Struct, frozen=True):
    """What a child runs: kernels of the plan of this number, once for each side; the rest is as in `Guards`."""

    plan: int
    kernels: tuple[str, ...]
    sides: tuple[str, ...] = _SIDES
    only: int | None = None


class _Ended(NamedTuple):
    """How a child ended: the kernel that it called last if it died there, on which side, and what it said."""

    died_in: str | None
    side: str
    code: int
    said: str


def try_kernels(executable: Executable, plan: int, kernels: Collection[str]) -> str:
    """Run kernels of a plan on drawn inputs with guard pages behind their arguments, and then before them.

    Returns what is wrong with the first that touches one, in a line that begins with its name; empty where nothing is.

    Raises:
        RuntimeError: the plan does not run here.
    """
    request = _Request(plan, tuple(sorted(kernels)))
    ended = _child(executable, request)
    if ended.code == _TORN:
        return ended.said
    if ended.died_in is None:
        if ended.code:
            raise RuntimeError(ended.said)
        return ""
    stored = Package.open(executable.place).variants[0]
    calls = decode_plan(stored.plans[plan].plan, checksum).plan.operations
    of_kernel = (each for each in calls if isinstance(each, KernelCall) and each.kernel == ended.died_in)
    count = len(next(of_kernel).tensors)
    alone = msgspec.structs.replace(request, kernels=(ended.died_in,), sides=(ended.side,))
    tried = (_child(executable, msgspec.structs.replace(alone, only=at)) for at in range(count))
    at = next((position for position, each in enumerate(tried) if each.died_in is not None), None)
    return f"{ended.died_in} accesses memory {ended.side} {'its buffers' if at is None else f'its buffer {at}'}"


def _child(executable: Executable, request: _Request) -> _Ended:
    command = [sys.executable, "-m", _CHILD, executable.place]
    with open(executable.place, "rb") as file:
        command[-1] = f"/proc/self/fd/{file.fileno()}"
        try:
            done = subprocess.run(
                command,
                input=msgspec.json.encode(request),
                capture_output=True,
                timeout=_SECONDS,
                pass_fds=(file.fileno(),),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _Ended(None, "", 1, f"it takes more than {_SECONDS:.0f} s")
    calls, said = done.stdout.decode().splitlines(), done.stderr.decode().strip().splitlines()
    side, died_in = calls[-1].split() if -done.returncode in _CRASHES and calls else ("", None)
    return _Ended(died_in, side, done.returncode, said[-1] if said else f"it ended with {done.returncode}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what standard input asks for."""
    (path,) = sys.argv[1:] if arguments is None else arguments
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    package = Package.open(Path(path))
    stored = package.variants[0]
    plan = decode_plan(stored.plans[request.plan].plan, checksum).plan
    inputs = draw_inputs(stored.manifest.combinations[request.plan].inputs)
    arrays = [np.asarray(inputs[tensor.name]) for tensor in plan.inputs]
    run = PlanRun(plan, stored.plans[request.plan].library, package.weights)
    try:
        for side in request.sides:
            tell = partial(print, side, flush=True)
            run.run(arrays, Guards(request.kernels, side == _BEHIND, request.only, tell))
    except TornError as error:
        print(error, file=sys.stderr)
        sys.exit(_TORN)
