"""The device worker, the only process that times anything on its device.

Started by the engine: `python -m kintune.workers.device_worker --fd N --target native --threads 0`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from kintune.core.capabilities import GPU, capabilities_of
from kintune.core.device import DeviceDescription
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.errors import DeviceUnwell, TargetError
from kintune.hardware.cores import choose_cores, set_realtime_priority
from kintune.hardware.cpu import inspect_machine
from kintune.hardware.gpus import ORDER_VARIABLE, VISIBLE_VARIABLE
from kintune.hardware.software import forbid_torch
from kintune.measure.rpc.address import parse_address
from kintune.wire import worker_loop as worker
from kintune.workers.device import DeviceHandler

__all__ = ["KIND", "main", "open_board", "open_device"]

KIND = "device"
"""The kind of worker, as in `Work.worker`."""


def open_device(
    target: str,
    threads: int,
    *,
    gpu: int | None = None,
    urgent: bool = False,
    pulse: bool = False,
    pulse_us: float = 0.0,
    alike: float = 1.5,
) -> tuple[DeviceDescription, DeviceHandler]:
    """Get this process ready to measure programs for `target` with `threads` threads (0: all physical cores).

    With `gpu`, the device is the GPU that the driver counts under this number, and the native target is that GPU.
    With `urgent`, candidates are timed at real-time priority, where that is allowed.  With `pulse`, the description
    holds the latency of the reference kernel on this device, in microseconds.  `pulse_us` is the latency that is
    expected: nothing is timed while the measured one differs from it by more than a factor of `alike`.

    Must come before the compiler's runtime runs anything in parallel: its pool reads the number of threads once.

    Raises:
        TargetError: no such target, or this machine lacks the cores, the instructions or the GPU for it.
        OrderError: something that programs for GPUs need is not installed.
    """
    cores = choose_cores(threads)
    os.environ["TVM_NUM_THREADS"] = str(len(cores))
    if gpu is not None:
        os.environ[ORDER_VARIABLE] = "PCI_BUS_ID"  # as the driver's own program counts them
        os.environ[VISIBLE_VARIABLE] = str(gpu)

    import tvm

    from kintune.core.version import ELEMENTARY
    from kintune.measure.hardware import gpu_hardware, host_hardware
    from kintune.measure.health import check_health, undisturbed
    from kintune.measure.run import Runner
    from kintune.runtime.target import NATIVE, instruction_set, missing_features, resolve_target

    canonical = resolve_target(GPU if gpu is not None and target == NATIVE else target, len(cores))
    on_host = capabilities_of(canonical).on_host
    if gpu is None and not on_host:
        raise TargetError(
            f"target {target!r}: a GPU is named as a device, with --device cuda, and its target is native"
        )
    if gpu is not None and on_host:
        raise TargetError(f"target {target!r} is no GPU, and device cuda:{gpu} is one; leave the target away")
    if missing := missing_features(canonical):
        raise TargetError(f"target {target!r}: this machine cannot run its programs, it lacks {', '.join(missing)}")
    machine = inspect_machine()
    if on_host:
        hardware = host_hardware(canonical, cores, machine)
    else:
        cores = cores[:1]  # which starts the kernels
        hardware = gpu_hardware(canonical)
    protocol = MeasurementProtocol(threads=len(cores))
    about = DeviceDescription(
        device_type=DeviceType(
            target=canonical,
            model=hardware.model,
            isa=instruction_set(canonical),
            threads=len(cores),
            protocol=f"{protocol.version}-{protocol.operands}",
        ),
        protocol=protocol,
        cores=cores,
        machine=machine,
        compiler=f"tvm {tvm.__version__}, {ELEMENTARY}",
        cool_bytes=hardware.cool_bytes,
    )
    check: Callable[[], None] = _no_check
    if pulse or pulse_us:
        beat = hardware.reference_kernel()
        about = msgspec.structs.replace(about, pulse_us=undisturbed(beat) if pulse else beat())
        if pulse_us:
            check = partial(check_health, beat, pulse_us, alike)
    runner = Runner(cores, backend=hardware.backend)
    set_urgent = set_realtime_priority if urgent else _keep_priority
    return about, DeviceHandler(runner, _prove, _time_baselines, hardware.peak, set_urgent, check, hardware.narrow)


def open_board(
    address: str, target: str, threads: int, *, pulse: bool = False, pulse_us: float = 0.0, alike: float = 1.5
) -> tuple[DeviceDescription, DeviceHandler]:
    """As `open_device`, for a board that is reached through the compiler's RPC server at `address`.

    `threads` is the number of threads that programs have on the board.

    Raises:
        TargetError: no such target; the address is malformed or not on this machine; or no server there can be used.
    """
    place = parse_address(address)

    from kintune.measure.health import undisturbed
    from kintune.measure.rpc.board import RpcBoard, describe_board
    from kintune.runtime.target import NATIVE, resolve_target

    canonical = resolve_target(target, threads)
    if threads < 1 or target == NATIVE or not capabilities_of(canonical).on_host:
        raise TargetError(f"RPC server {address!r}: name the board's CPU as --target, and how many --threads it has")
    about = describe_board(canonical, threads)
    board = RpcBoard(place, canonical, threads)
    try:
        board.check()
        if pulse or pulse_us:
            time_us = board.reference_us
            about = msgspec.structs.replace(about, pulse_us=undisturbed(time_us) if pulse else time_us())
    except DeviceUnwell as error:
        raise TargetError(str(error)) from error
    return about, DeviceHandler(
        board, partial(_prove, board=address), _time_baselines, board.peak, check=partial(board.check, pulse_us, alike)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    worker.main(KIND, _start, argv)


def _start(arguments: list[str]) -> tuple[bytes, DeviceHandler]:
    forbid_torch()
    parser = argparse.ArgumentParser(prog="device_worker", allow_abbrev=False)
    parser.add_argument("--target", default="native")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--rpc", default="")
    parser.add_argument("--urgent", action="store_true")
    parser.add_argument("--pulse", action="store_true")
    parser.add_argument("--pulse-us", type=float, default=0.0)
    parser.add_argument("--alike", type=float, default=1.5)
    options = parser.parse_args(arguments)
    watched = {"pulse": options.pulse, "pulse_us": options.pulse_us, "alike": options.alike}
    if options.rpc:
        about, handler = open_board(options.rpc, options.target, options.threads, **watched)
    else:
        about, handler = open_device(options.target, options.threads, gpu=options.gpu, urgent=options.urgent, **watched)
    return msgspec.msgpack.encode(about), handler


def _no_check() -> None:
    """The health of the device is not watched."""


def _keep_priority(urgent: bool) -> None:
    """Candidates are timed at the priority that the process has."""
    del urgent


def _prove(context: bytes, payload: bytes, board: str = "") -> bytes:
    from kintune.profiling.slow_parts import validate_with_slow_parts

    return validate_with_slow_parts(context, payload, board)


def _time_baselines(context: bytes, payload: bytes) -> bytes:
    from kintune.validate.baseline_timing import time_baselines

    return time_baselines(context, payload)


if __name__ == "__main__":
    main()
