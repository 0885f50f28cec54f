"""An opened `.kt` file, and the contexts in which it runs."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .base import BaseExecutable, Inputs
from .copying import NotCopied
from .dtypes import name_of, numpy_dtype
from .errors import InputError, RunError
from .evaluation import Evaluation, KernelTime
from .forking import watch_forks
from .inputs import Array, Tensor, arrange_inputs, as_array, draw_inputs, given_shapes
from .library import Buffer, Described, Hook, OpenOptions, Options, Range, Shape, library, raise_for
from .output_memory import OutputMemory, address_of
from .signature import Key
from .source import Source, located
from .variant import BEST, Variant, check_number, variant_of

if TYPE_CHECKING:
    from .hybrid import HybridExecutable

__all__ = ["Context", "Evaluation", "Executable", "Inputs", "KernelTime", "Tensor", "Variant", "open"]

_KEPT_SHAPES = 8  # whose memory for outputs a context keeps, besides those of now
_BUSY = "the context is running in another thread; make a context for each"


def open(
    source: Source, variant: int | None = None, *, private: bool = False, trusted: Key | None = None
) -> Executable | HybridExecutable:
    """Open a `.kt` file: the one at a path, or the contents of one, as bytes or in a file object.

    It holds machine code that will run with your rights: open only what you trust.  Of a file for several CPUs, the
    variant that suits this one best is taken, or the one of number `variant`; `Executable.variant` says which.  What
    runs partly in onnxruntime is opened as a `HybridExecutable`.

    The file at a path is mapped.  It may be renamed, deleted or replaced by renaming; if it is overwritten or cut in
    place, runs raise `InputError` from then on.  With `private` it is copied into memory, and not needed afterwards.

    With `trusted`, it must be signed by `kintune sign`: a public key of Ed25519, as the path or the content of a PEM
    file, or as 32 bytes.  It is copied, and what was checked is what is loaded.  This needs the package `cryptography`.

    Raises:
        InputError: the file is missing, damaged or no Kintune executable, or made for another format or CPU, or there
            is no such variant; it is not signed with the trusted key, or was altered since then; it runs partly in
            onnxruntime, which is not installed or too old.
        RunError: no memory is left.
        KintuneError: the library of the runtime is missing, or cannot be loaded.
    """
    with located(source, private, trusted) as (place, name):
        try:
            return Executable(place, variant, name)
        except InputError:
            from .hybrid import HybridExecutable, is_hybrid

            if not is_hybrid(place):
                raise
        return HybridExecutable(place, variant, name)


class Executable(BaseExecutable):
    """A network ready to run on this machine's CPU.

    It may be shared between threads: runs of the executable itself take turns, those of its contexts do not.
    """

    def __init__(self, path: str | os.PathLike[str], variant: int | None = None, name: str = "") -> None:
        """Open the file at `path`; messages call it `name`, by default by its path.

        Raises:
            InputError: as for `open`.
            RunError: as for `open`.
            KintuneError: as for `open`.
        """
        self._native = library()
        self._model: ctypes.c_void_p | None = None
        self._lock = threading.Lock()
        self._contexts: dict[tuple[int, int], Context] = {}
        self._manifest: dict[str, Any] | None = None
        self._plans: list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = []
        watch_forks(self)
        self._load(os.fspath(path), variant, name or os.fspath(path))

    def _load(self, path: str, variant: int | None, name: str) -> None:
        """Open the file, and read what it takes and gives."""
        number = BEST if variant is None else check_number(variant)
        options = OpenOptions(ctypes.sizeof(OpenOptions), number, 0, os.fsencode(name))
        model = ctypes.c_void_p()
        self._take(self._native.kt_open_with(os.fsencode(path), ctypes.byref(options), ctypes.byref(model)), model)

    def _take(self, status: int, model: ctypes.c_void_p) -> None:
        """Keep a model that was opened with this status."""
        if status:
            raise_for(status)
        self._model = model
        self._plans = [self._tensors(plan) for plan in range(self._native.kt_plan_count(model))]

    @property
    def variant(self) -> Variant:
        """Which of the file's variants was chosen, and for which CPU it is.

        Raises:
            InputError: the executable is closed.
        """
        return variant_of(self._handle())

    @property
    def description(self) -> dict[str, Any]:
        """The file's `manifest.json`: the model's name, versions, and what its inputs stand for."""
        if self._manifest is None:
            size = ctypes.c_size_t()
            text = self._native.kt_manifest(self._handle(), ctypes.byref(size))
            try:
                self._manifest = json.loads(ctypes.string_at(text, size.value)) if text else {}
            except (ValueError, RecursionError) as error:
                raise InputError(
                    f"its manifest is damaged ({error}); copy the file again, or build it again"
                ) from error
        return self._manifest

    def run(self, *inputs: Inputs, threads: int = 0) -> dict[str, Array]:
        """Run once: arrays by input name, or one positional array an input; their shapes choose the plan.

        The outputs are arrays by name that belong to the caller.  `threads` bounds the threads of this run; 0 means as
        many as the network was tuned for, but no more than cores.

        Raises:
            InputError: an input is missing, unknown, or of another dtype or shape than the model's, or the model was
                not tuned for these shapes; an index, given or computed, is outside of what it indexes; the executable
                is closed.
            RunError: no memory or no thread is left, or a kernel failed.
        """
        with self._lock:
            context = self._contexts.get((0, threads)) if len(self._plans) == 1 else None
            return (context or self._context_for(inputs, threads)).run(*inputs)

    def context(self, threads: int = 0, plan: int = 0) -> Context:
        """Make a context, which one thread at a time may run while others run theirs.

        `threads` bounds those of its runs, up to 4096; 0 means as many as the network was tuned for.  `plan` is a place
        in `plans`.

        Raises:
            InputError: there is no such plan, or no such number of threads; the executable is closed.
            RunError: no memory or no thread is left.
        """
        return Context(self, threads, plan)

    def profile(self, *inputs: Inputs, seed: int = 0, threads: int = 0) -> list[KernelTime]:
        """Run once, and return the time of each kernel in microseconds, in the order of their calls.

        Without inputs they are drawn from `seed`; `threads` is as for `run`.

        Raises:
            InputError: as for `run`.
            RunError: as for `run`.
        """
        given: tuple[Any, ...] = inputs or (draw_inputs(self.described_inputs(), seed),)
        with self._lock:
            return self._context_for(given, threads).profile(*given)

    def close(self) -> None:
        """Free everything; contexts that were made keep what they need.  Closing twice is fine."""
        with self._lock:
            for context in self._contexts.values():
                context.close()
            self._contexts.clear()
            model, self._model = self._model, None
        if model is not None:
            self._native.kt_close(model)

    def __del__(self) -> None:
        if getattr(self, "_model", None) is not None:
            self._native.kt_close(self._model)

    def _after_fork(self) -> None:
        """In the child process: a thread that held the lock exists only in the parent."""
        self._lock = threading.Lock()

    def _handle(self) -> ctypes.c_void_p:
        if self._model is None:
            raise InputError("the executable is closed; open it again")
        return self._model

    def _tensors(self, plan: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        native, model = self._native, self._handle()
        inputs = _described(native.kt_input_count(model), partial(native.kt_describe_input, model, plan))
        outputs = _described(native.kt_output_count(model), partial(native.kt_describe_output, model, plan))
        return tuple(self._ranged(plan, place, each) for place, each in enumerate(inputs)), outputs

    def _ranged(self, plan: int, place: int, tensor: Tensor) -> Tensor:
        """The input with the ranges of its extents, if any is open."""
        found, ranges = Range(), []
        for axis in range(len(tensor.shape)):
            if status := self._native.kt_describe_range(self._handle(), plan, place, axis, ctypes.byref(found)):
                raise_for(status)
            ranges.append((found.least, found.greatest, found.step))
        return tensor._replace(ranges=tuple(ranges)) if any(least < most for least, most, _ in ranges) else tensor

    def _context_for(self, inputs: tuple[Inputs, ...], threads: int) -> Context:
        plan = self._plan_for(inputs)
        context = self._contexts.get((plan, threads))
        if context is None:
            context = self._contexts[plan, threads] = Context(self, threads, plan)
        return context


class Context(NotCopied):
    """The memory and the threads that one caller needs to run an executable; made by `Executable.context`.

    One thread at a time may run it.
    """

    def __init__(self, executable: Executable, threads: int = 0, plan: int = 0) -> None:
        self._native = executable._native
        options = Options(ctypes.sizeof(Options), threads, None, None)
        context = ctypes.c_void_p()
        status = self._native.kt_context_create(
            executable._handle(), plan, ctypes.byref(options), ctypes.byref(context)
        )
        if status:
            raise_for(status)
        self._context: int | None = context.value
        self._run = self._native.kt_run
        self._inputs, outputs = executable._plans[plan]
        self._names = [tensor.name for tensor in self._inputs] if any(t.ranges for t in self._inputs) else None
        self._known: OrderedDict[tuple[tuple[int, ...], ...], _Ends] = OrderedDict()
        self._shapes = tuple(tensor.shape for tensor in self._inputs)
        self._take(_Ends.of(self._inputs, outputs))
        self._users: dict[str, int] = {}  # the thread that runs it now, if any
        self._hook: Any = None  # what the library may still call
        watch_forks(self)

    def run(self, *inputs: Inputs) -> dict[str, Array]:
        """Run once, as `Executable.run`.

        Raises:
            InputError: as for `Executable.run`, or the context is closed.
            RunError: as for `Executable.run`, or the context runs in another thread.
        """
        me = get_ident()
        if self._users.setdefault("run", me) != me:  # from now on the buffers are this thread's
            raise RunError(_BUSY)
        try:
            return self._compute(inputs)
        finally:
            self._users.pop("run", None)

    def profile(self, *inputs: Inputs) -> list[KernelTime]:
        """Run once, and return the time of each kernel in the order of their calls.

        Raises:
            InputError: as for `run`.
            RunError: as for `run`.
        """
        noted: list[tuple[int, bytes, int, int]] = []
        clock, add = time.perf_counter_ns, noted.append

        def note(_user: int, kernel: bytes, place: int, nanoseconds: int) -> None:
            add((place, kernel, nanoseconds, clock()))

        me = get_ident()
        if self._users.setdefault("run", me) != me:
            raise RunError(_BUSY)
        try:
            if self._context is None:
                raise InputError("the context is closed; make another one")
            with self._hooked(Hook(note)):
                begun = clock()
                self._compute(inputs)
        finally:  # the hook is gone
            self._users.pop("run", None)
        return [
            KernelTime(place, kernel.decode(errors="replace"), taken / 1e3, (ended - taken - begun) / 1e3)
            for place, kernel, taken, ended in noted
        ]

    def close(self) -> None:
        """End the threads and free the memory.  Closing twice is fine.

        Raises:
            RunError: the context runs in another thread.
        """
        me = get_ident()
        if self._users.setdefault("run", me) != me:
            raise RunError(_BUSY)
        context, self._context = self._context, None
        if context is not None:
            self._native.kt_context_close(context)
        self._users.pop("run", None)

    def _after_fork(self) -> None:
        """In the child process: a thread that ran the context exists only in the parent."""
        self._users = {}

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_context", None) is not None:
            self.close()

    def _compute(self, inputs: tuple[Inputs, ...]) -> dict[str, Array]:
        """Run once, in the thread that uses the context."""
        if self._context is None:
            raise InputError("the context is closed; make another one")
        if self._names is not None:
            self._fit(self._names, inputs)
        arrays = self._arrays(inputs)
        given, given_at = self._given
        taken, taken_at = self._taken
        place = 0
        for array in arrays:
            given[place] = address_of(array)
            place += 2
        outputs: dict[str, Array] = {}
        place = 0
        for name, memory in self._made:
            outputs[name] = output = memory.array()
            taken[place] = address_of(output)
            place += 2
        if status := self._run(self._context, given_at, len(arrays), taken_at, len(outputs)):
            raise_for(status)
        return outputs

    def _fit(self, names: Sequence[str], inputs: tuple[Inputs, ...]) -> None:
        """Take inputs of the shapes of these from now on; where some are missing, `_arrays` says so."""
        found = given_shapes(names, inputs)
        shapes = None if found is None else tuple(found)
        if shapes is None or shapes == self._shapes:
            return
        given = (Shape * len(shapes))()
        for to, shape in zip(given, shapes, strict=True):
            to.extents, to.rank = (ctypes.c_int64 * len(shape))(*shape), len(shape)
        if status := self._native.kt_context_set_shapes(self._context, given, len(shapes)):
            raise_for(status)
        self._known[self._shapes] = self._ends
        if len(self._known) > _KEPT_SHAPES:
            self._known.popitem(last=False)
        self._shapes = shapes
        self._take(self._known.pop(shapes) if shapes in self._known else self._ends_now())

    def _ends_now(self) -> _Ends:
        described = [
            _described(count, partial(describe, self._context))
            for count, describe in (
                (len(self._inputs), self._native.kt_context_describe_input),
                (len(self._made), self._native.kt_context_describe_output),
            )
        ]
        inputs = (now._replace(ranges=each.ranges) for now, each in zip(described[0], self._inputs, strict=True))
        return _Ends.of(tuple(inputs), described[1])

    def _take(self, ends: _Ends) -> None:
        self._ends = ends
        self._inputs, self._expected, self._made, self._given, self._taken = ends

    def _arrays(self, inputs: tuple[Inputs, ...]) -> list[Array]:
        """The inputs in order and as contiguous arrays; those that do not fit as they are go to `arrange_inputs`."""
        first = inputs[0] if len(inputs) == 1 else None
        if len(self._expected) == 1:  # the usual case, made fast
            name, shape, dtype = self._expected[0]
            only = first.get(name) if type(first) is dict and len(first) == 1 else first
            if type(only) is np.ndarray and only.dtype is dtype and only.shape == shape and only.flags.c_contiguous:
                return [only]
        given: Sequence[Any] = inputs
        if type(first) is dict or (type(first) is not np.ndarray and isinstance(first, Mapping)):
            given = [first.get(name) for name, _, _ in self._expected] if len(first) == len(self._expected) else ()
        arrays: list[Array] = []
        if len(given) == len(self._expected):
            for value, (name, shape, dtype) in zip(given, self._expected, strict=True):
                array = value if type(value) is np.ndarray else as_array(name, value)
                if (array.dtype is not dtype and array.dtype != dtype) or array.shape != shape:
                    break
                arrays.append(array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(shape))
            else:
                return arrays
        return [np.ascontiguousarray(a).reshape(a.shape) for a in arrange_inputs(self._inputs, inputs)]

    @contextmanager
    def _hooked(self, hook: Any) -> Iterator[None]:
        if status := self._native.kt_set_hook(self._context, hook, None):
            raise_for(status)
        self._hook = hook
        try:
            yield
        finally:
            if self._native.kt_set_hook(self._context, Hook(), None) == 0:
                self._hook = None


class _Ends(NamedTuple):
    """What a context takes and gives for some shapes of its inputs, and the memory in which a run finds them."""

    inputs: tuple[Tensor, ...]
    expected: tuple[tuple[str, tuple[int, ...], Any], ...]
    made: tuple[tuple[str, OutputMemory], ...]
    given: tuple[memoryview, int]
    taken: tuple[memoryview, int]

    @classmethod
    def of(cls, inputs: tuple[Tensor, ...], outputs: Sequence[Tensor]) -> _Ends:
        expected = tuple((t.name, t.shape, numpy_dtype(t.dtype)) for t in inputs)
        sizes = [int(np.prod(t.shape, dtype=np.int64)) * numpy_dtype(t.dtype).itemsize for t in outputs]
        made = tuple(
            (t.name, OutputMemory(t.shape, numpy_dtype(t.dtype), nbytes))
            for t, nbytes in zip(outputs, sizes, strict=True)
        )
        given = _buffers([int(np.prod(shape, dtype=np.int64)) * d.itemsize for _, shape, d in expected])
        return cls(inputs, expected, made, given, _buffers(sizes))


def _described(count: int, describe: Callable[[int, Any], int]) -> tuple[Tensor, ...]:
    """The inputs or outputs, `count` of them, that a function of the library describes by their places."""
    found, tensors = Described(), []
    for place in range(count):
        if status := describe(place, ctypes.byref(found)):
            raise_for(status)
        name = found.name.decode(errors="replace")
        tensors.append(Tensor(name, tuple(found.shape[: found.rank]), name_of(found.kind, found.bits)))
    return tuple(tensors)


def _buffers(sizes: Sequence[int]) -> tuple[memoryview, int]:
    """Memory for a `kt_buffer` of each size: pairs of an address and a size, and where it lies."""
    memory = (Buffer * max(1, len(sizes)))()
    view = memoryview(memory).cast("B").cast("Q")
    for place, nbytes in enumerate(sizes):
        view[2 * place + 1] = nbytes
    return view, ctypes.addressof(memory)
