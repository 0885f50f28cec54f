"""`kintune worker start` and `kintune device start`: this machine works for a service, as an agent."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from kintune.errors import InputError
from kintune.hardware.locks import DeviceLock, cores_lock
from kintune.hardware.software import require_tried_versions
from kintune.measure.rpc.address import parse_address
from kintune.tuning.front.placement import DEVICE, choose_devices, holding, memory_mb
from kintune.workers.fleet.agent import Agent
from kintune.workers.fleet.file_transfer import sweep
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.offer import OfferedBoard, OfferedDevices, offer_board, offer_cores, offer_devices
from kintune.workers.fleet.sockets import PATH, call

__all__ = ["agent_url", "joining_options", "run_agent", "start_device", "start_worker", "token_of"]


TOKEN_VARIABLE = "KINTUNE_AGENT_TOKEN"

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}

Command = TypeVar("Command", bound=Callable[..., Any])


def joining_options(command: Command) -> Command:
    """Add the options `--service`, `--token-file` and `--name`."""
    command = click.option(
        "--service",
        required=True,
        metavar="ADDRESS",
        help="The service's address for machines, HOST:PORT; wss://HOST:PORT behind TLS.",
    )(command)
    command = click.option(
        "--token-file",
        metavar="FILE",
        help=f"A file with this machine's token.  [default: ${TOKEN_VARIABLE}]",
    )(command)
    return click.option(
        "--name", metavar="NAME", default=platform.node, help="This machine's name at the service.  [default: its own]"
    )(command)


def agent_url(service: str) -> str:
    """Return the URL of the service's agent listener.

    Raises:
        InputError: `service` is no address.
    """
    try:
        parts = urlsplit(service if "://" in service else f"ws://{service}")
        fine = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.path in ("", "/", PATH)
        fine = fine and not any(character.isspace() for character in service)
        _ = parts.port
    except ValueError:
        fine = False
    if not fine:
        raise InputError(f"--service {service!r}: is not an address; give HOST:PORT, or wss://HOST:PORT")
    return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{PATH}"


def token_of(file: str | None) -> str:
    """Return the token in `file`, or in the environment without one.

    Raises:
        InputError: there is none.
    """
    if file is None:
        text = os.environ.get(TOKEN_VARIABLE, "")
        source = f"${TOKEN_VARIABLE}"
    else:
        source = f"--token-file {file}"
        try:
            text = Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{source}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    token = text.strip()
    if not token or len(token.split()) > 1:
        raise InputError(
            f"{source}: holds no token; make one on the service's machine with: "
            "kintune service add-token --data DIR --user NAME --scope machine"
        )
    return token


def run_agent(url: str, token: str, join: Callable[[], Join]) -> None:
    """Work for the service at `url` until Ctrl-C; `join` returns what this machine offers.

    Raises:
        InputError: the service refuses this machine.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM cleans up as Ctrl-C does
    sweep()
    agent = Agent(join(), note)
    asyncio.run(agent.serve(lambda: call(url, token)))


def note(line: str) -> None:
    """Write a line to standard error."""
    click.echo(f"kintune: {line}", err=True)


_GB = 1024  # memory is reported in whole GB, so that a system update does not change it


@click.command("start", short_help="Build programs here for a service.")
@joining_options
@click.option("-j", "--cores", type=int, metavar="N", help="How many cores to lend.  [default: all]")
def start_worker(service: str, token_file: str | None, name: str, cores: int | None) -> None:
    """Join a service as a host that builds programs, until Ctrl-C.

    It connects to the service: it needs no open port.  After a lost connection it connects again.
    """
    require_tried_versions()
    usable = tuple(sorted(os.sched_getaffinity(0)))
    if cores is not None and not 1 <= cores <= len(usable):
        raise InputError(f"--cores {cores}: this process may use {len(usable)}")
    lent = usable[:cores]
    url, token = agent_url(service), token_of(token_file)  # before it waits for the cores
    with cores_lock(lent, lambda holder: note(f"waiting for the cores, held by process {holder}; see --cores")):
        run_agent(url, token, lambda: offer_cores(name, lent, memory_mb() // _GB * _GB))


_NATIVE = "native"


@click.command("start", short_help="Measure programs here for a service.")
@joining_options
@click.option("--type", "type_", required=True, metavar="TYPE", help="The device type's name at the service.")
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
    "machine's end of a tunnel to it. HOST:PORT/KEY: a board that a tracker has under that key.",
)
@click.option("--threads", type=click.IntRange(1, 1024), help="With --rpc: the threads of programs on the board.")
def start_device(
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

    This machine's properties and peak are measured first.  It connects to the service: it needs no open port.  After
    a lost connection it connects again.  No other program may use its cores meanwhile.
    """
    require_tried_versions()
    if rpc is not None:
        board = _board(rpc, type_, target, threads, plain=device == DEVICE and not urgent)
        held: AbstractContextManager[None] = DeviceLock(f"rpc-{board.address}").holding(_waiting)

        def join() -> Join:
            return offer_board(name, board, target, note)

    else:
        if threads is not None:
            raise InputError("--threads is for --rpc; for this machine, select cores, as in --device cpu:2-3")
        chosen = choose_devices(device)
        gpus = {one: own.gpu.index for one, own in chosen.items() if own.gpu is not None}
        devices = OfferedDevices(type_, {one: own.cores for one, own in chosen.items()}, gpus)
        held = holding([core for own in chosen.values() for core in own.cores], gpus.values(), _waiting)

        def join() -> Join:
            return offer_devices(name, devices, target, note, urgent=urgent)

    url, token = agent_url(service), token_of(token_file)  # before it waits for the device
    with held:
        run_agent(url, token, join)


def _board(rpc: str, type_: str, target: str, threads: int | None, *, plain: bool) -> OfferedBoard:
    """Return the board at the address `rpc`; `plain` when no option for devices of this machine was given.

    Raises:
        InputError: an option is missing, or does not go with `--rpc`.
        TargetError: `rpc` is no address.
    """
    address = parse_address(rpc)
    if target == _NATIVE or threads is None:
        raise InputError(
            f"--rpc {rpc}: the board cannot describe itself; name its CPU and its cores, for instance with "
            "--target 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72' --threads 4"
        )
    if not plain:
        raise InputError(f"--rpc {rpc}: leave --device and --urgent out; they are for devices of this machine")
    return OfferedBoard(type_, address, threads)


def _waiting(holder: str) -> None:
    note(f"waiting for the device, held by process {holder}")
