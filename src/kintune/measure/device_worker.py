"""The device worker, the only process that times anything on its device.

Started by the engine: `python -m kintune.measure.device_worker --fd N --target native --threads 0`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

import msgspec

from kintune.doctor.machine import inspect_machine
from kintune.errors import TargetError
from kintune.measure.about import DeviceAbout, Peak
from kintune.measure.cores import choose_cores, pinned_to
from kintune.measure.device import DeviceHandler
from kintune.measure.protocol import DeviceType, Protocol
from kintune.measure.urgency import set_urgent
from kintune.wire import worker

__all__ = ["KIND", "main", "open_device"]

KIND = "device"
"""The kind of worker, as in `Work.worker`."""


def open_device(
    target: str, threads: int, *, urgent: bool = False, pulse: bool = False, pulse_us: float = 0.0, alike: float = 1.5
) -> tuple[DeviceAbout, DeviceHandler]:
    """Get this process ready to measure programs for `target` with `threads` threads (0: all physical cores).

    What is `urgent` times candidates at real-time priority, where that is allowed.  With `pulse` the device says what
    the reference kernel takes on it; with `pulse_us`, what that is known to take, up to a factor of `alike`, nothing is
    timed while it takes anything else.

    Must come before the compiler's runtime runs anything in parallel: its pool reads the number of threads once.

    Raises:
        TargetError: no such target, or this machine lacks the cores or the instructions for it.
    """
    cores = choose_cores(threads)
    os.environ["TVM_NUM_THREADS"] = str(len(cores))

    import tvm

    from kintune.graph.elementary import ELEMENTARY
    from kintune.measure.peak import Pulse, measure_peak
    from kintune.measure.pulse import check_pulse
    from kintune.measure.run import Runner
    from kintune.measure.target import instruction_set, missing_features, resolve_target

    canonical = resolve_target(target, len(cores))
    if missing := missing_features(canonical):
        raise TargetError(f"target {target!r}: this machine cannot run its programs, it lacks {', '.join(missing)}")
    machine = inspect_machine()
    protocol = Protocol(threads=len(cores))
    about = DeviceAbout(
        device_type=DeviceType(
            target=canonical,
            model=machine.cpu,
            isa=instruction_set(canonical),
            threads=len(cores),
            protocol=f"{protocol.version}-{protocol.operands}",
        ),
        protocol=protocol,
        cores=cores,
        machine=machine,
        compiler=f"tvm {tvm.__version__}, {ELEMENTARY}",
    )
    largest_cache = max((cache.size for cache in machine.caches), default=0)

    def peak() -> Peak:
        with pinned_to(cores[0]):  # where the runtime's other threads are not
            return measure_peak(canonical, len(cores), largest_cache)

    runner = Runner(cores)
    check: Callable[[], None] = _well
    if pulse or pulse_us:
        with pinned_to(cores[0]):
            kernel = Pulse(canonical, len(cores))
            about = msgspec.structs.replace(about, pulse_us=kernel.microseconds())

        def beat() -> None:
            with pinned_to(cores[0]):
                check_pulse(kernel.microseconds, pulse_us, alike)

        check = beat if pulse_us else _well
    return about, DeviceHandler(runner, _prove, peak, set_urgent if urgent else _at_leisure, check)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    worker.main(KIND, _start, argv)


def _start(arguments: list[str]) -> tuple[bytes, DeviceHandler]:
    parser = argparse.ArgumentParser(prog="device_worker", allow_abbrev=False)
    parser.add_argument("--target", default="native")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--urgent", action="store_true")
    parser.add_argument("--pulse", action="store_true")
    parser.add_argument("--pulse-us", type=float, default=0.0)
    parser.add_argument("--alike", type=float, default=1.5)
    options = parser.parse_args(arguments)
    about, handler = open_device(
        options.target,
        options.threads,
        urgent=options.urgent,
        pulse=options.pulse,
        pulse_us=options.pulse_us,
        alike=options.alike,
    )
    return msgspec.msgpack.encode(about), handler


def _well() -> None:
    """Nobody has asked."""


def _at_leisure(urgent: bool) -> None:
    """Times at the priority that it has."""
    del urgent


def _prove(context: bytes, payload: bytes) -> bytes:
    from kintune.measure.prove import prove

    return prove(context, payload)


if __name__ == "__main__":
    main()
