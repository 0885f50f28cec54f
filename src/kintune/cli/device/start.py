"""`kintune device start`: measure here what a service wants to know."""

from __future__ import annotations

from contextlib import AbstractContextManager

import click

from kintune.cli.joining import attend, joining_options, note
from kintune.errors import InputError
from kintune.hardware.locks import DeviceLock
from kintune.hardware.software import require_tried_versions
from kintune.measure.rpc.address import parse_address
from kintune.tuning.front.placement import DEVICE, choose_devices, holding
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.offer import OfferedBoard, OfferedDevices, offer_board, offer_devices

__all__ = ["command"]

_NATIVE = "native"


@click.command("start", short_help="Measure here what a service wants to know.")
@joining_options
@click.option("--type", "type_", required=True, metavar="TYPE", help="What devices like this one are called there.")
@click.option(
    "--device",
    default=DEVICE,
    show_default=True,
    help="All cores of this machine, or some of them: 'cpu:2-3'; a GPU: 'cuda:0'; several devices as 'cpu:2+cpu:3'.",
)
@click.option("--target", default=_NATIVE, show_default=True, help="What programs are compiled for.")
@click.option("--urgent", is_flag=True, help="Measure at real-time priority, where that is allowed.")
@click.option(
    "--rpc",
    metavar="HOST:PORT",
    help="Instead of a device of this machine, a board without Python, where TVM's RPC server runs; HOST:PORT is this "
    "machine's end of a tunnel to it. HOST:PORT/KEY: what a tracker has under that key.",
)
@click.option("--threads", type=click.IntRange(1, 1024), help="With --rpc: how many threads programs have there.")
def command(
    service: str,
    token_file: str | None,
    name: str,
    type_: str,
    device: str,
    target: str,
    urgent: bool,
    rpc: str | None,
    threads: int | None,
) -> None:
    """Join a service as a device, until Ctrl-C.

    What this machine is and reaches at its best is measured first.  It dials out: no port of it has to be open.  When
    the line is cut it dials again.  Nobody else may use its cores meanwhile.
    """
    require_tried_versions()
    if rpc is not None:
        board = _board(rpc, type_, target, threads, plain=device == DEVICE and not urgent)
        held: AbstractContextManager[None] = DeviceLock(f"rpc-{board.address}").holding(_waiting)

        def join() -> Join:
            return offer_board(name, board, target, note)

    else:
        if threads is not None:
            raise InputError("--threads goes with --rpc; of this machine's cores name some, as in --device cpu:2-3")
        chosen = choose_devices(device)
        gpus = {one: own.gpu.index for one, own in chosen.items() if own.gpu is not None}
        devices = OfferedDevices(type_, {one: own.cores for one, own in chosen.items()}, gpus)
        held = holding([core for own in chosen.values() for core in own.cores], gpus.values(), _waiting)

        def join() -> Join:
            return offer_devices(name, devices, target, note, urgent=urgent)

    with held:
        attend(service, token_file, join)


def _board(rpc: str, type_: str, target: str, threads: int | None, *, plain: bool) -> OfferedBoard:
    """Raises InputError where something is missing, or too much; TargetError for what is no address here."""
    address = parse_address(rpc)
    if target == _NATIVE or threads is None:
        raise InputError(
            f"--rpc {rpc}: the board cannot be asked what it is; name its CPU and its cores, for instance with "
            "--target 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72' --threads 4"
        )
    if not plain:
        raise InputError(f"--rpc {rpc}: leave --device and --urgent away; they are for devices of this machine")
    return OfferedBoard(type_, address, threads)


def _waiting(holder: str) -> None:
    note(f"waiting for the device, held by process {holder}")
