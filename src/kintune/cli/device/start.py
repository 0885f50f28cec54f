"""`kintune device start`: measure here what a service wants to know."""

from __future__ import annotations

import click

from kintune.cli.joining import attend, joining_options, note
from kintune.doctor.software import require_tried_versions
from kintune.fleet.messages import Join
from kintune.fleet.offer import Devices, offer_devices
from kintune.front.place import choose_devices, holding

__all__ = ["command"]


@click.command("start", short_help="Measure here what a service wants to know.")
@joining_options
@click.option("--type", "type_", required=True, metavar="TYPE", help="What devices like this one are called there.")
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="All cores of this machine, or some of them: 'cpu:2-3'; a GPU: 'cuda:0'; several devices as 'cpu:2+cpu:3'.",
)
@click.option("--target", default="native", show_default=True, help="What programs are compiled for.")
@click.option("--urgent", is_flag=True, help="Measure at real-time priority, where that is allowed.")
def command(
    service: str, token_file: str | None, name: str, type_: str, device: str, target: str, urgent: bool
) -> None:
    """Join a service as a device, until Ctrl-C.

    What this machine is and reaches at its best is measured first.  It dials out: no port of it has to be open.  When
    the line is cut it dials again.  Nobody else may use its cores meanwhile.
    """
    require_tried_versions()
    chosen = choose_devices(device)
    gpus = {one: own.gpu.index for one, own in chosen.items() if own.gpu is not None}
    devices = Devices(type_, {one: own.cores for one, own in chosen.items()}, gpus)
    everything = [core for own in chosen.values() for core in own.cores]

    def join() -> Join:
        return offer_devices(name, devices, target, note, urgent=urgent)

    with holding(everything, gpus.values(), lambda holder: note(f"waiting for the cores, held by process {holder}")):
        attend(service, token_file, join)
