"""Profiles candidates on a board behind an RPC server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tvm

from kintune.core.device import DeviceDescription, Machine, Peak
from kintune.core.measurement_protocol import FLUSHED, DeviceType, MeasurementProtocol
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import ProfileContext, ProfileItem
from kintune.core.version import ELEMENTARY
from kintune.errors import DeviceError, DeviceUnwell
from kintune.hardware.cores import choose_cores
from kintune.measure.health import ReferenceKernel, check_health
from kintune.measure.peak import host_reference_kernel, measure_peak
from kintune.measure.rpc.address import RpcAddress
from kintune.measure.rpc.backend import BoardBackend
from kintune.measure.rpc.session import SESSION_S, RpcSession
from kintune.measure.run import Runner
from kintune.runtime.target import architecture_of, instruction_set

__all__ = ["RpcBoard", "describe_board"]

_MOST = 5_000  # programs a session: a stock server keeps all of them loaded


class RpcBoard:
    """Implements `kintune.workers.device.Profiler`.

    A server has one session at a time.  It is opened by the first call that needs it, and closed by `release`.

    Raises:
        DeviceUnwell: the server cannot be used (all methods but `profile`); the next call opens a new session.
    """

    def __init__(
        self, address: RpcAddress, target: str, threads: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`target` is a canonical target (JSON), for so many threads."""
        self._address = address
        self._target = target
        self._threads = threads
        self._clock = clock
        self._cores = choose_cores(1)
        self._backend: BoardBackend | None = None
        self._close: Callable[[], None] = _nothing
        self._runner: Runner | None = None
        self._reference_kernel: ReferenceKernel | None = None
        self._programs = 0
        self._until = 0.0

    def reference_us(self) -> float:
        """Returns the microseconds of the reference kernel on the board."""
        with self._connected() as backend:
            if self._reference_kernel is None:
                self._reference_kernel = host_reference_kernel(self._target, self._threads, backend)
            return self._reference_kernel.microseconds()

    def check(self, known_us: float = 0.0, alike: float = 1.5) -> None:
        """Checks that the board answers and, with `known_us`, that the reference kernel takes that long.

        Raises:
            DeviceUnwell: it does not answer, or the kernel takes longer or shorter (see `check_health`).
        """
        if self._programs >= _MOST or self._clock() >= self._until:
            self.release()
        if known_us:
            check_health(self.reference_us, known_us, alike)
        else:
            with self._connected() as backend:
                backend.finish()

    def peak(self) -> Peak:
        """Measures the board's peak."""
        with self._connected() as backend:
            return measure_peak(self._target, self._threads, 0, backend)

    def begin(self, context: ProfileContext) -> None:
        """See `Profiler`."""
        with self._connected() as backend:
            if self._runner is None:
                self._runner = Runner(self._cores, backend=backend, threads=self._threads)
        self._runner.begin(context)

    def profile(self, item: ProfileItem) -> Outcome:
        """See `Profiler`."""
        if self._runner is None:
            raise DeviceError("no stage was begun")
        self._programs += 1
        return self._runner.profile(item)

    def release(self) -> None:
        """Closes the session, so that others can use the server."""
        close, self._close = self._close, _nothing
        self._backend, self._runner, self._reference_kernel, self._programs = None, None, None, 0
        close()

    @contextmanager
    def _connected(self) -> Iterator[BoardBackend]:
        """Provides the backend of an open session.

        Raises:
            DeviceUnwell: the server cannot be used, or the block failed.
        """
        try:
            if self._backend is None:
                session = RpcSession(self._address, self._threads)
                self._close, self._until = session.close, self._clock() + SESSION_S / 2
                self._backend = BoardBackend(session, self._threads)
            yield self._backend
        except (DeviceError, RuntimeError) as error:  # the runtime raises the latter
            self.release()
            raise DeviceUnwell(str(error).strip().splitlines()[0]) from error


def describe_board(target: str, threads: int) -> DeviceDescription:
    """Describes a board from its canonical target alone, since a stock server cannot be asked."""
    config = json.loads(target)
    architecture = architecture_of(tvm.target.Target(config))
    isa = instruction_set(target)
    model = str(config.get("mcpu") or architecture)
    protocol = MeasurementProtocol(threads=threads)
    return DeviceDescription(
        device_type=DeviceType(
            target=target,
            model=model,
            isa=isa,
            threads=threads,
            protocol=f"{protocol.version}-{protocol.operands}-{FLUSHED}",
        ),
        protocol=protocol,
        cores=tuple(range(threads)),
        machine=Machine(model, architecture, threads, threads, threads, threads, 0, (), isa),
        compiler=f"tvm {tvm.__version__}, {ELEMENTARY}",
    )


def _nothing() -> None:
    """Stands for `close` while there is no session."""
