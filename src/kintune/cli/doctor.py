"""`kintune doctor`: check that this machine can tune."""

from __future__ import annotations

import click
import msgspec

import kintune
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.core.capabilities import FOR_BF16, FOR_INT8
from kintune.core.device import Machine
from kintune.doctor.checks import (
    check_gpus,
    check_isolation,
    check_narrow,
    check_peak,
    check_quota,
    check_records,
    check_temporary_folder,
)
from kintune.hardware.check import Check, HardwareVerdict
from kintune.hardware.cpu import extensions, inspect_machine
from kintune.hardware.software import check_software
from kintune.terminal.formatting import count

__all__ = ["DoctorReport", "command"]

_MARKS = {HardwareVerdict.GOOD: "ok  ", HardwareVerdict.NOTE: "note", HardwareVerdict.PROBLEM: "BAD "}


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune doctor --json`; `can_tune` is False when any check found a problem."""

    schema_version: int = 1
    kintune: str
    can_tune: bool
    machine: Machine
    checks: tuple[Check, ...]


@click.command("doctor", short_help="Check that this machine can tune.")
@records_option
@click.option("--measure", is_flag=True, help="Measure the peak of this machine again.")
@json_option
def command(records: str | None, measure: bool, json_target: JsonTarget) -> int:
    """Check that this machine can tune: software, compiler, cores, records.

    Its peak, in arithmetic and memory bandwidth, is measured once and kept in the records, where searches
    read it.  The exit code is 1 if something must be fixed first.
    """
    machine = inspect_machine()
    checks = [*check_software(), *check_gpus(), *check_quota(), check_temporary_folder(), *check_records(records)]
    checks += check_isolation()
    if all(check.verdict is not HardwareVerdict.PROBLEM for check in checks):
        checks.append(check_peak(records, again=measure, on_wait=_waiting))
        if (FOR_BF16 | FOR_INT8).intersection(extensions(machine.features)):
            checks += check_narrow(records, again=measure, on_wait=_waiting)
    can_tune = all(check.verdict is not HardwareVerdict.PROBLEM for check in checks)
    write_document(
        json_target,
        DoctorReport(kintune=kintune.__version__, can_tune=can_tune, machine=machine, checks=tuple(checks)),
    )
    for line in [*_describe(machine), "", *_list(checks), "", _conclude(can_tune)]:
        echo(line, json_target)
    return 0 if can_tune else 1


def _waiting(holder: str) -> None:
    click.echo(f"waiting for the cores, held by process {holder}", err=True)


def _describe(machine: Machine) -> list[str]:
    caches = ", ".join(f"L{c.level} {c.kind} {c.size // 1024} KiB" for c in machine.caches) or "unknown"
    threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
    return [
        f"{'CPU':<16} {machine.cpu} ({machine.architecture})",
        f"{'cores':<16} {machine.physical_cores} physical, {machine.logical_cores} logical, "
        f"{machine.usable_cores} usable by this process; Kintune uses {threads}",
        f"{'memory':<16} {count(machine.memory, 'B')}",
        f"{'caches':<16} {caches}",
        f"{'instructions':<16} {' '.join(machine.features) or 'none that Kintune uses'}",
    ]


def _list(checks: list[Check]) -> list[str]:
    lines = []
    for check in checks:
        lines.append(f"{_MARKS[check.verdict]} {check.name:<20} {check.finding}")
        if check.remedy:
            lines.append(f"     {'':<20} -> {check.remedy}")
    return lines


def _conclude(can_tune: bool) -> str:
    return "This machine can tune." if can_tune else "This machine cannot tune before the checks marked BAD are fixed."
