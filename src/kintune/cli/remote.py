"""Options that all commands for a service share, and how jobs are told to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from kintune.terminal.quantities import duration, milliseconds, times

__all__ = ["JobDocument", "JobsDocument", "job_line", "service_options"]

_OVER = ("done", "failed", "cancelled")

Command = TypeVar("Command", bound=Callable[..., Any])


class JobDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune submit --json` and `kintune job show --json`: a job, as the API has it."""

    schema_version: int = 1
    job: dict[str, Any]


class JobsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune jobs --json`, newest first."""

    schema_version: int = 1
    jobs: list[dict[str, Any]]


def service_options(command: Command) -> Command:
    """`--service` and `--token`."""
    command = click.option(
        "--service", metavar="URL", help="The service.  [default: $KINTUNE_SERVICE, or this machine]"
    )(command)
    return click.option("--token", metavar="TOKEN", help="Who you are.  [default: $KINTUNE_TOKEN]")(command)


def job_line(job: Mapping[str, Any], now: float) -> str:
    """One job in a list."""
    age = duration(max(0.0, now - float(job["created"])))
    said = f" ({job['reason']})" if job["reason"] else ""
    progress = dict(job.get("progress") or {})
    if job["state"] in _OVER:
        progress.pop("time_left_s", None)
    return f"{job['id']}  {job['state']:10}  {age:>10} ago  {_progress(progress)}{said}".rstrip()


def _progress(report: Mapping[str, Any] | None) -> str:
    if not report:
        return ""
    parts = [f"{report['trials']} trials"]
    if best := report.get("best_ms"):
        parts.append(f"estimated {milliseconds(best)}")
        if untuned := report.get("untuned_ms"):
            parts.append(f"{times(untuned / best)} faster than untuned")
    if (left := report.get("time_left_s")) is not None:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)
