"""A board behind an RPC server as a device worker's device."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tvm

from kintune.core.device import DeviceDescription, Machine, Peak
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import ProfileContext, ProfileItem
from kintune.core.version import ELEMENTARY
from kintune.errors import DeviceError, DeviceUnwell
from kintune.hardware.cores import choose_cores
from kintune.measure.health import ReferenceKernel, check_health
from kintune.measure.peak import host_reference_kernel, measure_peak
from kintune.measure.rpc.address import Address
from kintune.measure.rpc.backend import BoardBackend
from kintune.measure.rpc.session import SESSION_S, RpcSession
from kintune.measure.rpc.timer import FLUSHED
from kintune.measure.run import Runner
from kintune.runtime.target import architecture_of, instruction_set

__all__ = ["RpcBoard", "describe_board"]

_MOST = 5_000  # programs in a session: a stock server keeps all of them loaded


class RpcBoard:
    """Implements `kintune.workers.device.Profiler`.

    A server has one session at a time, so ours is open from the first that needs it until `release`.  Where the server
    cannot be used (any more), everything but `profile` raises DeviceUnwell, and the next one begins with a new session.
    """

    def __init__(
        self, address: Address, target: str, threads: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`target` is a canonical target (JSON), for so many threads."""
        self._address = address
        self._target = target
        self._threads = threads
        self._clock = clock
        self._cores = choose_cores(1)
        self._arena: BoardBackend | None = None
        self._close: Callable[[], None] = _nothing
        self._runner: Runner | None = None
        self._pulse: ReferenceKernel | None = None
        self._programs = 0
        self._until = 0.0

    def pulse_us(self) -> float:
        """What the reference kernel takes on the board."""
        with self._connected() as arena:
            if self._pulse is None:
                self._pulse = host_reference_kernel(self._target, self._threads, arena)
            return self._pulse.microseconds()

    def check(self, known_us: float = 0.0, alike: float = 1.5) -> None:
        """See that it is there and, where that is known, that the reference kernel takes what it should.

        Raises:
            DeviceUnwell: it is not, or does not.
        """
        if self._programs >= _MOST or self._clock() >= self._until:
            self.release()
        if known_us:
            check_health(self.pulse_us, known_us, alike)
        else:
            with self._connected() as arena:
                arena.finish()

    def peak(self) -> Peak:
        """What the board reaches at its best."""
        with self._connected() as arena:
            return measure_peak(self._target, self._threads, 0, arena)

    def begin(self, context: ProfileContext) -> None:
        """See `Profiler`."""
        with self._connected() as arena:
            if self._runner is None:
                self._runner = Runner(self._cores, arena=arena, threads=self._threads)
        self._runner.begin(context)

    def profile(self, item: ProfileItem) -> Outcome:
        """See `Profiler`."""
        if self._runner is None:
            raise DeviceError("no stage was begun")
        self._programs += 1
        return self._runner.profile(item)

    def release(self) -> None:
        """Leave the server to somebody else."""
        close, self._close = self._close, _nothing
        self._arena, self._runner, self._pulse, self._programs = None, None, None, 0
        close()

    @contextmanager
    def _connected(self) -> Iterator[BoardBackend]:
        """A session, while it lasts."""
        try:
            if self._arena is None:
                session = RpcSession(self._address, self._threads)
                self._close, self._until = session.close, self._clock() + SESSION_S / 2
                self._arena = BoardBackend(session, self._threads)
            yield self._arena
        except (DeviceError, RuntimeError) as error:  # of which the latter is the runtime's own kind
            self.release()
            raise DeviceUnwell(str(error).strip().splitlines()[0]) from error


def describe_board(target: str, threads: int) -> DeviceDescription:
    """What can be said of a board that cannot be asked: what its canonical target says."""
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
    """There is no session to close."""
