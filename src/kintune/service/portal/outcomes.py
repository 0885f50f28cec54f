"""What came of jobs: their reports, what their executables say of themselves, and the signs that lists show."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.hybrid import Hybrid
from kintune.core.report import FastestBaseline, RunReport
from kintune.errors import KintuneError
from kintune.runtime.manifest import Manifest
from kintune.service.job_repository import Job
from kintune.service.portal.frame import PageContext
from kintune.service.portal.operators import manifests_in

__all__ = ["JobOutcome", "Signs", "outcome_of", "signs_of"]


class JobOutcome(NamedTuple):
    """The outcome of a finished job; without `manifests` if its executable is gone or cannot be read."""

    report: RunReport
    manifests: tuple[Manifest, ...]
    size: int | None

    @property
    def hybrid(self) -> Hybrid | None:
        """What runs where, of a result that runs partly in onnxruntime."""
        return self.manifests[0].hybrid if self.manifests else None

    @property
    def has_exports(self) -> bool:
        """Whether it can be exported for programs without Kintune."""
        return bool(self.manifests) and self.manifests[0].capabilities.plans


class Signs(msgspec.Struct, frozen=True):
    """The parts of a report that are shown of a job in a list; see `RunReport`."""

    uncertain: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    fastest_baseline: FastestBaseline | None = None


def outcome_of(context: PageContext, job: Job) -> JobOutcome | None:
    """The report of a job, and what its executable says of itself; None without a report that this version can read."""
    if job.report is None:
        return None
    try:
        with context.application.blobs.open(job.report) as file:
            report = msgspec.json.decode(file.read(), type=RunReport)
    except (KintuneError, msgspec.MsgspecError):
        return None
    manifests: tuple[Manifest, ...] = ()
    size = None
    try:
        if job.executable is not None:
            path = context.application.blobs.path(job.executable)
            manifests, size = manifests_in(path), path.stat().st_size
    except (KintuneError, OSError):
        pass  # the page says what the report knows
    return JobOutcome(report, manifests, size)


def signs_of(context: PageContext, job: Job) -> Signs:
    """What a list shows of the report of a job; nothing where it has none that can be read."""
    try:
        return Signs() if job.report is None else _signs(context.application.blobs.path(job.report))
    except (KintuneError, OSError, msgspec.MsgspecError):
        return Signs()


@lru_cache(4096)
def _signs(report: Path) -> Signs:
    """The signs in a report, which never changes: its file is named by its content."""
    return msgspec.json.decode(report.read_bytes(), type=Signs)
