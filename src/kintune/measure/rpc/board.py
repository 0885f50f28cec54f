"""A board behind an RPC server as a device worker's device."""

from __future__ import annotations

import json

import tvm

from kintune.doctor.machine import Machine
from kintune.errors import DeviceError
from kintune.graph.elementary import ELEMENTARY
from kintune.measure.about import DeviceAbout, Peak
from kintune.measure.cores import choose_cores
from kintune.measure.outcome import Outcome
from kintune.measure.peak import host_pulse, measure_peak
from kintune.measure.protocol import DeviceType, Protocol
from kintune.measure.pulse import Pulse
from kintune.measure.requests import ProfileContext, ProfileItem
from kintune.measure.rpc.address import Address
from kintune.measure.rpc.arena import BoardArena
from kintune.measure.rpc.session import Session
from kintune.measure.rpc.stopwatch import FLUSHED
from kintune.measure.run import Runner
from kintune.measure.target import architecture_of, instruction_set

__all__ = ["Board", "describe_board"]

_MOST = 5_000  # programs in a session: a stock server keeps all of them loaded


class Board:
    """Implements `kintune.measure.device.Profiler`; raises DeviceError where the server cannot be used.

    A server has one session at a time, so ours is open from the first that needs it until `release`.
    """

    def __init__(self, address: Address, target: str, threads: int) -> None:
        """`target` is a canonical target (JSON), for so many threads."""
        self._address = address
        self._target = target
        self._threads = threads
        self._cores = choose_cores(1)
        self._session: Session | None = None
        self._runner: Runner | None = None
        self._pulse: Pulse | None = None
        self._programs = 0

    def pulse_us(self) -> float:
        """What the reference kernel takes on the board."""
        if self._pulse is None:
            self._pulse = host_pulse(self._target, self._threads, BoardArena(self._open(), self._threads))
        return self._pulse.microseconds()

    def peak(self) -> Peak:
        """What the board reaches at its best."""
        return measure_peak(self._target, self._threads, 0, BoardArena(self._open(), self._threads))

    def begin(self, context: ProfileContext) -> None:
        """See `Profiler`."""
        if self._programs >= _MOST:
            self.release()
        if self._runner is None:
            self._runner = Runner(self._cores, arena=BoardArena(self._open(), self._threads), threads=self._threads)
        self._runner.begin(context)

    def profile(self, item: ProfileItem) -> Outcome:
        """See `Profiler`."""
        if self._runner is None:
            raise DeviceError("no stage was begun")
        self._programs += 1
        return self._runner.profile(item)

    def release(self) -> None:
        """Leave the server to somebody else."""
        session, self._session, self._runner, self._pulse, self._programs = self._session, None, None, None, 0
        if session is not None:
            session.close()

    def _open(self) -> Session:
        if self._session is None:
            self._session = Session(self._address, self._threads)
        return self._session


def describe_board(target: str, threads: int) -> DeviceAbout:
    """What can be said of a board that cannot be asked: what its canonical target says."""
    config = json.loads(target)
    architecture = architecture_of(tvm.target.Target(config))
    isa = instruction_set(target)
    model = str(config.get("mcpu") or architecture)
    protocol = Protocol(threads=threads)
    return DeviceAbout(
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
