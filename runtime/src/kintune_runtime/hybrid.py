"""An opened `.kt` file that runs partly in onnxruntime: some nodes as Kintune's kernels, the others in onnxruntime.

onnxruntime runs the host graph.  A *region* is one node of it, and runs as a plan of Kintune's kernels, on the threads
of the session.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any

import numpy as np

from .base import BaseExecutable, Inputs
from .copying import NotCopied
from .cores import usable_cores
from .dtypes import numpy_dtype
from .embedded import EmbeddedExecutable
from .errors import InputError, RunError
from .evaluation import KernelTime
from .executable import Context, Executable
from .forking import watch_forks
from .inputs import Array, Tensor, arrange_inputs, as_array, draw_inputs
from .library import denormal_calls, library
from .onnx_inputs import named_extents
from .onnxruntime_session import import_onnxruntime, make_session, raise_run_error
from .session_folder import SessionFolder, make_folder
from .variant import Variant

__all__ = ["HybridContext", "HybridExecutable", "is_hybrid"]

_MANIFEST, _GRAPH = "manifest.json", "graph.onnx"
_MOST_THREADS = 4096
_LARGEST = 1 << 63
_NODE_TIME = "_kernel_time"  # how onnxruntime's profile ends the names of nodes
_OPTIONAL = "optional"  # the kind of an output that may be nothing


def is_hybrid(path: str | os.PathLike[str]) -> bool:
    """Whether a file runs partly in onnxruntime; False where it cannot be read."""
    try:
        if not os.path.isfile(path):  # a pipe, for one, cannot be read again
            return False
        with zipfile.ZipFile(path) as archive:
            return _GRAPH in archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError):
        return False


class HybridExecutable(BaseExecutable):
    """A network of which some nodes run as Kintune's kernels, and the others in onnxruntime.

    It may be shared between threads, which run it at once.
    """

    def __init__(self, path: str | os.PathLike[str], variant: int | None = None, name: str = "") -> None:
        """Open the file at `path`; messages call it `name`, by default by its path.

        Raises:
            InputError: as for `kintune_runtime.open`.
            RunError: as for `kintune_runtime.open`.
            KintuneError: as for `kintune_runtime.open`.
        """
        self._name = name or os.fspath(path)
        if variant:
            raise InputError(f"{self._name}: has no variant {variant}: what runs partly in onnxruntime has one")
        self._lock = threading.Lock()
        self._sessions: dict[int, Any] = {}
        self._folder: SessionFolder | None = None
        self._descriptor = _opened(path, self._name)
        self._stamp = _stamp_of(self._descriptor)
        self._checksums: dict[str, int] = {}  # of members that were read
        self._finalizer = weakref.finalize(self, _remove, None, self._descriptor, os.getpid())
        watch_forks(self)
        self._manifest = self._read_manifest()
        try:
            self._describe(self._manifest["executable"])
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise _damaged(self._name, f"{_MANIFEST}: {error}") from error
        self._whole: Executable | None = None
        self._idle: dict[tuple[int, int], list[Context]] = {}  # contexts of the whole network: plan, threads
        self._load()

    def _describe(self, about: dict[str, Any]) -> None:
        """Take what the manifest says of the model."""
        self._threads = max(1, int(about["threads"]))
        self._flush = int(not about.get("keep_denormals", False))
        self._set_denormals, self._restore_denormals = denormal_calls()
        self._usual_threads = min(self._threads, usable_cores())
        self._plans = [_ends(each) for each in (about, *about.get("more", ()))]
        self._expected = [_expected(inputs) for inputs, _ in self._plans]
        self._output_names = [tensor.name for tensor in self._plans[0][1]]
        hybrid = about["hybrid"]
        self._regions = [(tuple(each["inputs"]), tuple(each["outputs"])) for each in hybrid["regions"]]
        self._takes_other_shapes = bool(hybrid.get("other_shapes"))
        kept = hybrid.get("plans")
        self._chooses_by_shape = self._takes_other_shapes or kept is not None
        tuned = self._plans if kept is None else [self._plans[number] for number in kept]
        self._tuned = [inputs for inputs, _ in tuned]
        self._tuned_shapes = [[tensor.shape for tensor in inputs] for inputs in self._tuned]

    def _load(self) -> None:
        """Make the session of the usual number of threads, so that errors in the file are reported now."""
        self._session(0)

    @property
    def description(self) -> dict[str, Any]:
        """The file's `manifest.json`: the model's name, versions, what runs where, and what its inputs stand for."""
        return self._manifest

    @property
    def variant(self) -> Variant:
        """The only variant of the file: the CPU that its regions are for."""
        about = self._manifest["executable"]
        isa = tuple(about.get("isa", ()))
        return Variant(0, 1, about.get("machine", ""), about.get("cpu", ""), isa, self._threads)

    def run(self, *inputs: Inputs, threads: int = 0) -> dict[str, Array]:
        """Run once: arrays by input name, or one positional array an input; their shapes choose the plans of regions.

        The outputs are arrays by name that belong to the caller.  `threads` is the number of the session's threads; 0
        means as many as the network was tuned for, but no more than cores.

        Raises:
            InputError: an input is missing, unknown, or of another dtype or shape than the model's, or the model was
                not tuned for these shapes; an index, given or computed, is outside of what it indexes; the executable
                is closed.
            RunError: no memory or no thread is left, or a node failed.
        """
        if self._chooses_by_shape:
            return self._run_any_shape(inputs, threads)
        session = self._sessions.get(threads) or self._session(threads)
        plan = 0 if len(self._plans) == 1 else self._plan_for(inputs)
        return self._run_fed(session, _feed(self._expected[plan], self._plans[plan][0], inputs))

    def context(self, threads: int = 0, plan: int = 0) -> HybridContext:
        """Make a context.  Contexts of as many threads share a session, and so its threads.

        Raises:
            InputError: there is no such plan, or no such number of threads.
            RunError: no memory or no thread is left.
        """
        if not 0 <= plan < len(self._plans):
            raise InputError(f"there is no plan {plan}, there are {len(self._plans)}")
        return HybridContext(self, threads, plan)

    def profile(self, *inputs: Inputs, seed: int = 0, threads: int = 0) -> list[KernelTime]:
        """Run once in a session of its own, and return the time of each node in the order of their ends.

        A region is one node.  `place` is the number of the node in the graph as onnxruntime has optimised it, where
        several user's nodes may be one; times are whole microseconds.  A node that runs others (Loop, If) has their
        times as well.

        Raises:
            InputError: as for `run`.
            RunError: as for `run`.
        """
        return self.profiles(*inputs, repeats=1, seed=seed, threads=threads)[0]

    def profiles(self, *inputs: Inputs, repeats: int = 50, seed: int = 0, threads: int = 0) -> list[list[KernelTime]]:
        """Run `repeats` times in a session of its own, each as `profile` does.

        Raises:
            InputError: as for `run`, or there is no repeat.
            RunError: as for `run`.
        """
        if repeats < 1:
            raise InputError(f"profiles needs at least 1 repeat, got {repeats}")
        given: tuple[Any, ...] = inputs or (draw_inputs(self.described_inputs(), seed),)
        plan = self._plan_for(given)
        number = self._number(threads)
        with self._lock:
            session = self._make_session(number, profile=True)
        for _ in range(repeats + 1):  # the first one allocates
            self._run(session, plan, given)
        file = Path(session.end_profiling())
        try:
            return _runs_of(json.loads(file.read_bytes()))[-repeats:]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"onnxruntime's profile cannot be read: {error}") from error
        finally:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Free everything; contexts that were made keep what they need.  Closing twice is fine."""
        with self._lock:
            self._sessions.clear()
            self._idle.clear()
            self._whole = None  # contexts that were made have it still
            self._finalizer()

    def _after_fork(self) -> None:
        """In the child process: sessions are made anew, since the threads of the parent's do not exist here."""
        for session in {id(each): each for each in self._sessions.values()}.values():
            _keep(session)
        self._sessions = {}
        self._lock = threading.Lock()

    def _run(self, session: Any, plan: int, inputs: tuple[Inputs, ...]) -> dict[str, Array]:
        return self._run_fed(session, _feed(self._expected[plan], self._plans[plan][0], inputs))

    def _run_any_shape(self, inputs: tuple[Inputs, ...], threads: int) -> dict[str, Array]:
        """Run inputs of tuned shapes without onnxruntime if one region is the whole network; others in the session."""
        fed, plan = self._feed_any_shape(inputs)
        if plan is None or (whole := self._whole_network()) is None:
            return self._run_fed(self._session(threads), fed)
        idle = self._idle.setdefault((plan, threads), [])
        try:
            context = idle.pop()
        except IndexError:  # others run at this moment, or none has run yet
            context = whole.context(threads, whole._plan_for((fed,)))
        try:
            return context.run(fed)
        finally:
            idle.append(context)

    def _run_fed(self, session: Any, fed: dict[str, Array]) -> dict[str, Array]:
        """Run once; returns the outputs by name.

        Written out, since the call itself is most of what small networks take.
        """
        names = self._output_names
        before = self._set_denormals(self._flush)
        try:
            made = session.run(names, fed)
        except Exception as error:
            raise_run_error(error, self._folder, self._name)
        finally:
            self._restore_denormals(before)
        if self._regions:
            self._check_computed(made)
        return {names[0]: made[0]} if len(names) == 1 else dict(zip(names, made, strict=True))

    def _check_computed(self, made: Sequence[Any]) -> None:
        """Check that operators of Kintune's have computed their outputs: before onnxruntime 1.17 they cannot say so."""
        for tensor, value in zip(self._plans[0][1], made, strict=True):
            if value is None and tensor.dtype != _OPTIONAL:
                raise RunError(f"output {tensor.name!r} was not computed: a node failed, and standard error says why")

    def _feed_any_shape(self, inputs: tuple[Inputs, ...]) -> tuple[dict[str, Array], int | None]:
        """The arrays by name, in the model's order, and the number of the tuned shapes that they have, None if none."""
        if not self._takes_other_shapes:
            self._plan_for(inputs)  # which refuses shapes that are not in the file
        tensors = self._plans[0][0]
        first: Any = inputs[0] if len(inputs) == 1 else None
        given: Any = first if isinstance(first, Mapping) else dict(zip((t.name for t in tensors), inputs, strict=False))
        shapes = {name: as_array(name, value).shape for name, value in given.items()}
        for tensor in tensors:
            if tensor.name in shapes and len(shapes[tensor.name]) != len(tensor.shape):
                raise InputError(
                    f"input {tensor.name} has {len(shapes[tensor.name])} axes, {len(tensor.shape)} are needed"
                )
        given_shapes = [shapes.get(tensor.name, tensor.shape) for tensor in tensors]
        plan = self._tuned_shapes.index(given_shapes) if given_shapes in self._tuned_shapes else None
        bounded = tensors if plan is None else self._tuned[plan]  # what an index may be can depend on the shapes
        described = [
            tensor._replace(shape=shape, bounds=None if plan is None else tensor.bounds)
            for tensor, shape in zip(bounded, given_shapes, strict=True)
        ]
        arrays = arrange_inputs(described, inputs)
        fed = {
            tensor.name: np.ascontiguousarray(array).reshape(array.shape)
            for tensor, array in zip(tensors, arrays, strict=True)
        }
        return fed, plan

    def _whole_network(self) -> Executable | None:
        """The executable of the whole network, where one region has all of it."""
        tensors, outputs = self._plans[0]
        ends = (tuple(t.name for t in tensors), tuple(t.name for t in outputs))
        if self._regions != [ends] or not self._finalizer.alive:
            return None
        with self._lock:
            if self._whole is None:
                self._whole = EmbeddedExecutable(f"/proc/self/fd/{self._descriptor}", "region0.kt", self._name)
        return self._whole

    def _session(self, threads: int) -> Any:
        """The session of so many threads; 0: the usual number."""
        number = self._number(threads)
        with self._lock:
            made = self._sessions.get(number)
            if made is None:
                made = self._make_session(number)
            self._sessions[number] = self._sessions[threads] = made
        return made

    def _number(self, threads: int) -> int:
        if not 0 <= threads <= _MOST_THREADS:
            raise InputError(f"{threads} threads; 0 to {_MOST_THREADS} are possible")
        return threads or self._usual_threads

    def _make_session(self, threads: int, profile: bool = False) -> Any:
        if not self._finalizer.alive:
            raise InputError("the executable is closed; open it again")
        import_onnxruntime()  # raises before anything is made if it is missing or too old
        if self._folder is None or not self._folder.path.is_dir():  # a child process uses that of its parent
            folder = make_folder(f"/proc/self/fd/{self._descriptor}")
            if self._folder is not None:
                self._folder.release()
            self._folder = folder
            self._finalizer.detach()
            self._finalizer = weakref.finalize(self, _remove, folder, self._descriptor, os.getpid())
        graph = self._read(_GRAPH)
        extents = self._fixed_extents(graph)
        return make_session(self._folder.path, self._name, graph, threads, extents, profile, bool(self._flush))

    def _fixed_extents(self, graph: bytes) -> dict[str, int]:
        """The extents that have a name in the graph, and the same number in all plans.

        Without regions there are none, unless the file asks for it: the graph is the user's, and runs as onnxruntime
        runs it.
        """
        about = self._manifest["executable"]["hybrid"]
        if self._chooses_by_shape or not (about["regions"] or about.get("fixed")):
            return {}
        try:
            names = named_extents(graph)
        except ValueError as error:
            raise _damaged(self._name, f"{_GRAPH}: {error}") from error
        found: dict[str, set[int]] = {}
        for inputs, _ in self._plans:
            for tensor in inputs:
                for name, extent in zip(names.get(tensor.name, ()), tensor.shape, strict=False):
                    found.setdefault(name, set()).add(extent)
        return {name: min(extents) for name, extents in found.items() if name and len(extents) == 1}

    def _read_manifest(self) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads(self._read(_MANIFEST))
            if not isinstance(manifest["executable"]["hybrid"], dict):
                raise ValueError("it does not say what runs where")
            return manifest
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(self._name, f"{_MANIFEST}: {error}") from error

    def _read(self, member: str) -> bytes:
        """The content of a member, whose checksum is verified."""
        try:
            with open(f"/proc/self/fd/{self._descriptor}", "rb") as file, zipfile.ZipFile(file) as archive:
                info = archive.getinfo(member)
                if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                    raise ValueError(f"{member} is not stored plainly")
                content, checksum = archive.read(member), info.CRC
            if self._checksums.setdefault(member, checksum) != checksum:
                raise ValueError(f"another {member}")
            return content
        except OSError as error:
            raise InputError(f"{self._name}: cannot be read: {error.strerror or error}") from error
        except (zipfile.BadZipFile, KeyError, EOFError, ValueError, RuntimeError, zlib.error) as error:
            if _stamp_of(self._descriptor) != self._stamp:
                raise InputError(
                    f"{self._name}: was changed in place while it was open; open it again, and replace such files by"
                    " renaming (mv), or open a private copy"
                ) from error
            raise _damaged(self._name, str(error).strip("'\"") or type(error).__name__) from error


class HybridContext(NotCopied):
    """What one caller needs to run a network beside others; made by `HybridExecutable.context`."""

    def __init__(self, executable: HybridExecutable, threads: int, plan: int) -> None:
        self._executable = executable
        self._threads = threads
        self._plan = plan
        self._session: Any = executable._session(threads)
        self._forked = False
        self._whole = executable._whole_network() if executable._chooses_by_shape else None
        self._own: dict[int, Context] = {}  # by plan of the whole network
        self._running: list[int] = []  # threads that run it now
        watch_forks(self)

    def run(self, *inputs: Inputs) -> dict[str, Array]:
        """Run once, as `HybridExecutable.run`.

        Raises:
            InputError: as for `HybridExecutable.run`, or the context is closed.
            RunError: as for `HybridExecutable.run`.
        """
        me, running = get_ident(), self._running
        running.append(me)
        try:
            return self._run(inputs)
        finally:
            running.remove(me)

    def close(self) -> None:
        """Release the session.  Closing twice is fine.

        Raises:
            RunError: a thread runs it.
        """
        if self._running:
            raise RunError("the context is running in another thread; close it after that")
        self._session = self._whole = None
        self._own.clear()

    def _run(self, inputs: tuple[Inputs, ...]) -> dict[str, Array]:
        if self._session is None:
            raise InputError("the context is closed; make another one")
        if self._forked:
            self._session, self._forked = self._executable._session(self._threads), False
        session, whole = self._session, self._whole
        if not self._executable._chooses_by_shape:
            return self._executable._run(session, self._plan, inputs)
        fed, plan = self._executable._feed_any_shape(inputs)
        if plan is None or whole is None:
            return self._executable._run_fed(session, fed)
        context = self._own.get(plan)
        if context is None:
            context = self._own[plan] = whole.context(self._threads, whole._plan_for((fed,)))
        return context.run(fed)

    def _after_fork(self) -> None:
        self._running = []  # threads of the parent
        if self._session is not None:
            _keep(self._session)
            self._forked = True

    def __enter__(self) -> HybridContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _keep(session: Any) -> None:
    """Never destroy a session: in a child process that would wait for threads which exist only in the parent.

    onnxruntime itself waits for its own ones when the process ends: its destructors are left out.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
    if os.getpid() not in _children:
        _children.add(os.getpid())
        library().kt_skip_destructors()


_children: set[int] = set()
"""This process, where it is a child that keeps sessions, and those that it comes from."""


def _stamp_of(descriptor: int) -> tuple[int, ...]:
    """What differs after a file was changed in place."""
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def _opened(path: str | os.PathLike[str], name: str) -> int:
    """The descriptor of the file, by which it can be opened again even if another file takes its path."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{name}: not a regular file")
    return descriptor


def _remove(folder: SessionFolder | None, descriptor: int, process: int) -> None:
    """Remove what a session needed, in the process that made it; those left keep the library and the file mapped."""
    if folder is not None and os.getpid() == process:
        folder.remove()
    elif folder is not None:
        folder.release()
    os.close(descriptor)


def _damaged(name: str, what: str) -> InputError:
    return InputError(f"{name}: truncated or damaged ({what}); copy it again, or build it again")


def _ends(about: dict[str, Any]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs with one combination of shapes."""
    return tuple(map(_tensor, about["inputs"])), tuple(map(_tensor, about["outputs"]))


def _tensor(told: dict[str, Any]) -> Tensor:
    """One of them; a TypeError or ValueError where it is none."""
    bounds = told.get("bounds")
    least, greatest = map(_whole, bounds) if bounds else (0, 0)
    return Tensor(
        _text(told["name"]), tuple(map(_whole, told["shape"])), _text(told["dtype"]),
        (least, greatest) if bounds else None, _text(told.get("values", "")), _whole(told.get("below", 0)),
        tuple(map(_number, told.get("choices", ()))),
    )  # fmt: skip


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:60]} is no text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or not -_LARGEST <= value < _LARGEST:
        raise TypeError(f"{str(value)[:60]} is no whole number of 64 bits")
    return value


def _number(value: Any) -> float | int:
    return value if isinstance(value, float) else _whole(value)


_Expected = tuple[tuple[str, tuple[int, ...], "np.dtype[Any]"], ...]


def _expected(tensors: Iterable[Tensor]) -> _Expected | None:
    """What arrays must be to be taken as they are; None where the values of some must be looked at."""
    if any(tensor.bounds is not None for tensor in tensors):
        return None
    return tuple((tensor.name, tensor.shape, numpy_dtype(tensor.dtype)) for tensor in tensors)


def _feed(expected: _Expected | None, tensors: tuple[Tensor, ...], inputs: tuple[Inputs, ...]) -> dict[str, Array]:
    """The arrays by name; inputs that do not fit as they are go through `arrange_inputs`, which may raise."""
    fed: Any = inputs[0] if len(inputs) == 1 else None
    if expected is not None:
        if type(fed) is not dict and len(inputs) == len(expected):
            fed = (
                {expected[0][0]: fed}
                if fed is not None
                else dict(zip((each[0] for each in expected), inputs, strict=True))
            )
        if type(fed) is dict and len(fed) == len(expected):
            for name, shape, dtype in expected:
                array = fed.get(name)
                if type(array) is not np.ndarray or array.shape != shape:
                    break
                if (array.dtype is not dtype and array.dtype != dtype) or not array.flags.c_contiguous:
                    break
            else:
                return fed
    arrays = arrange_inputs(tensors, inputs)
    return {
        tensor.name: np.ascontiguousarray(array).reshape(array.shape)
        for tensor, array in zip(tensors, arrays, strict=True)
    }


def _runs_of(events: list[dict[str, Any]]) -> list[list[KernelTime]]:
    """The times of nodes in each run, from onnxruntime's profile."""
    runs: list[list[KernelTime]] = []
    begun = sorted(int(event["ts"]) for event in events if event.get("name") == "model_run")
    nodes = [event for event in events if event.get("cat") == "Node" and str(event["name"]).endswith(_NODE_TIME)]
    nodes.sort(key=lambda event: int(event["ts"]) + int(event["dur"]))
    for number, start in enumerate(begun):
        end = begun[number + 1] if number + 1 < len(begun) else float("inf")
        runs.append([_node_time(event, start) for event in nodes if start <= int(event["ts"]) < end])
    return runs


def _node_time(event: dict[str, Any], begun: int) -> KernelTime:
    about = event.get("args", {})
    operator = str(about.get("op_name", ""))
    place = int(about.get("node_index", 0))
    name = str(event["name"])[: -len(_NODE_TIME)]
    start = float(int(event["ts"]) - begun)
    return KernelTime(place, name or f"{operator or 'node'}_{place}", float(event["dur"]), start, operator)
