"""What the commands for a service share: options, JSON documents, a job as a line, and the display of a job."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, TextIO, TypeVar

import click
import msgspec

from kintune.core.report import FastestBaseline, ProgressReport
from kintune.service.client import Client
from kintune.service.faces import COMMAND, FACE_HEADER
from kintune.terminal.comparison import describe_estimate, describe_share, share_of
from kintune.terminal.display import Display, open_display
from kintune.terminal.formatting import counted, duration, milliseconds
from kintune.terminal.table import Column, table_lines

__all__ = [
    "ENDED",
    "CommandClient",
    "JobDisplay",
    "JobDocument",
    "JobsDocument",
    "job_line",
    "job_table",
    "outliving",
    "service_options",
]


ENDED = ("done", "failed", "cancelled")
"""The states that a job does not leave."""

Command = TypeVar("Command", bound=Callable[..., Any])


class JobDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune submit --json` and `kintune job show --json`: a job, as the API has it."""

    schema_version: int = 1
    job: dict[str, Any]


class JobsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune jobs --json`, newest first, and of `kintune job delete-files --json`."""

    schema_version: int = 1
    jobs: list[dict[str, Any]]


def service_options(command: Command) -> Command:
    """Add the options `--service` and `--token`."""
    command = click.option(
        "--service", metavar="URL", help="The service's address.  [default: $KINTUNE_SERVICE, or this machine]"
    )(command)
    return click.option("--token", metavar="TOKEN", help="Your token.  [default: $KINTUNE_TOKEN]")(command)


class CommandClient(Client):
    """A client whose service answers in words of the command line."""

    headers: ClassVar[Mapping[str, str]] = {FACE_HEADER: COMMAND}


@contextlib.contextmanager
def outliving(job: str, say: Callable[[str], None]) -> Iterator[None]:
    """A block in which a job is waited for; where Ctrl-C ends it, it says that the job goes on."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"job {job} goes on: kintune job watch {job} shows it, kintune job cancel {job} ends it")
        raise


def job_line(job: Mapping[str, Any], now: float) -> str:
    """Describe a job in one line of a list; `now` in seconds since 1970."""
    age = duration(max(0.0, now - float(job["created"])))
    said = f" ({job['reason']})" if job["reason"] else ""
    progress = dict(job.get("progress") or {})
    if job["state"] in ENDED:
        progress.pop("time_left_s", None)
    done = _result(job) or _progress(progress)
    return f"{job['id']}  {job['state']:10}  {age:>10} ago  {done}{said}".rstrip()


def _result(job: Mapping[str, Any]) -> str:
    """The latency of a job that is done, as it was timed; empty where there is none."""
    if job["state"] != "done" or job.get("latency_ms") is None:
        return ""
    fastest = _read_fastest(job.get("fastest_baseline"))
    taken = milliseconds(job["latency_ms"])
    return taken if fastest is None else f"{taken}, {describe_share(fastest)}"


_JOB_COLUMNS = (
    Column("job"),
    Column("model", yields=True),
    Column("device", optional=True),
    Column("state"),
    Column("age", right=True, optional=True),
    Column("latency", right=True),
    Column("of fastest", right=True),
    Column("notes", yields=True),
)
_USER_PLACE = 2  # behind the model


def job_table(
    jobs: Sequence[Mapping[str, Any]], now: float, width: int | None, *, with_users: bool = False
) -> list[str]:
    """Jobs as a table, no wider than `width`; `now` in seconds since 1970.

    "of fastest" is the share of what the fastest other runtime takes.
    """
    columns, rows = list(_JOB_COLUMNS), [_job_cells(job, now) for job in jobs]
    if with_users:
        columns.insert(_USER_PLACE, Column("user", yields=True))
        for job, row in zip(jobs, rows, strict=True):
            row.insert(_USER_PLACE, str(job.get("owner") or ""))
    return table_lines(columns, rows, width)


def _job_cells(job: Mapping[str, Any], now: float) -> list[str]:
    progress = _read_progress(job.get("progress"))
    latency_ms, fastest, notes = job.get("latency_ms"), _read_fastest(job.get("fastest_baseline")), []
    if progress is not None:
        latency_ms = progress.best_ms if latency_ms is None else latency_ms
        fastest = fastest or progress.fastest_baseline
        if job["state"] not in ENDED and progress.time_left_s is not None:
            notes.append(f"about {duration(progress.time_left_s)} left")
    latency = "" if latency_ms is None else milliseconds(latency_ms)
    share = "" if fastest is None or fastest.ratio is None else f"{share_of(fastest)} {fastest.name}"
    if job["reason"]:
        notes.append(job["reason"])
    age = duration(max(0.0, now - float(job["created"])))
    name = str(job.get("model_name") or f"model {job.get('model', '')}")
    device = str(dict(job.get("wanted") or {}).get("device", ""))
    return [str(job["id"]), name, device, str(job["state"]), age, latency, share, "; ".join(notes)]


def _read_progress(report: Any) -> ProgressReport | None:
    with contextlib.suppress(msgspec.ValidationError):  # a report of another version
        return msgspec.convert({"stage": "", **report}, ProgressReport) if report else None
    return None


def _read_fastest(fastest: Any) -> FastestBaseline | None:
    with contextlib.suppress(msgspec.ValidationError):  # of another version
        return msgspec.convert(fastest, FastestBaseline) if fastest else None
    return None


def _progress(report: Mapping[str, Any] | None) -> str:
    if not report:
        return ""
    parts = [] if report.get("trials_total") == 0 else [counted(report["trials"], "trial")]
    with contextlib.suppress(msgspec.ValidationError):  # a report of another version
        progress = msgspec.convert({"stage": "", **report}, ProgressReport)
        if progress.best_ms is not None:
            parts.append(describe_estimate(progress))
    if (left := report.get("time_left_s")) is not None:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


class JobDisplay:
    """Shows a job's events: a line for each state by `say`, and the progress of the search on a display.

    The display is on `stream` (default: standard error).  It is closed when the job is over, or by the context.
    """

    def __init__(self, title: str, say: Callable[[str], None], stream: TextIO | None = None) -> None:
        self._title = title
        self._say = say
        self._stream = stream or sys.stderr
        self._display: Display | None = None
        self._last = ""

    def __enter__(self) -> JobDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, kind: str, data: Mapping[str, Any]) -> None:
        """Show an event of the service, of this kind and with this data."""
        if kind in ("job", "changed"):
            self._show_state(data)
            self._show(data.get("progress"))
        elif kind == "progressed":
            self._show(data.get("report"))

    def close(self) -> None:
        """Close the display, which leaves its last state on the terminal."""
        if self._display is not None:
            self._display.close()
            self._display = None

    def _show_state(self, job: Mapping[str, Any]) -> None:
        line = f"{job['state']}: {job['reason']}" if job.get("reason") else str(job["state"])
        if job["state"] in ENDED:
            self.close()
        elif self._display is not None:  # the display shows it
            return
        if line != self._last:  # after a reconnection, the first event repeats the last state
            self._last = line
            self._say(line)

    def _show(self, report: Any) -> None:
        if report is None or self._last.partition(":")[0] in ENDED:
            return
        with contextlib.suppress(msgspec.ValidationError):  # a report of another version is not shown
            converted = msgspec.convert(report, ProgressReport)
            if self._display is None:
                self._display = open_display(self._title, stream=self._stream, ticking=False)
            self._display.show(converted)
