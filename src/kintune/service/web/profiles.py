"""`/api/v1/jobs/{job}/profile`: where the time of a result goes, as JSON, as a page and as a trace."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Response

from kintune.core.profile import Profile
from kintune.core.report import RunReport
from kintune.errors import OrderError
from kintune.profiling.page import html_page
from kintune.profiling.trace import trace_json
from kintune.service.access import NotFound, Visitor
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.attachments import attachment
from kintune.service.web.authentication import ApplicationOf, Reader
from kintune.service.web.schemas import ErrorOut

__all__ = ["router"]

router = APIRouter(
    prefix="/api/v1/jobs", tags=["jobs"], responses={code: {"model": ErrorOut} for code in (401, 403, 404, 409, 503)}
)


@router.get("/{job}/profile")
def profile(job: str, visitor: Reader, application: ApplicationOf) -> dict[str, Any]:
    """The kernel calls of a result by the nodes of your model, as timed inside the network: as `kintune profile`."""
    found: dict[str, Any] = msgspec.to_builtins(_profile(job, visitor, application))
    return found


@router.get("/{job}/profile/page", response_class=Response)
def page(job: str, visitor: Reader, application: ApplicationOf) -> Response:
    """The same as one HTML page without scripts or outside files."""
    found = _profile(job, visitor, application)
    return _file(html_page(found), "text/html; charset=utf-8", f"{found.model}.profile.html")


@router.get("/{job}/profile/trace", response_class=Response)
def trace(job: str, visitor: Reader, application: ApplicationOf) -> Response:
    """One run of the result in Chrome's trace-event format, which ui.perfetto.dev shows."""
    found = _profile(job, visitor, application)
    return _file(trace_json(found), "application/json", f"{found.model}.trace.json")


def _profile(job: str, visitor: Visitor, application: ApplicationState) -> Profile:
    """The profile in the report of a job.

    Raises:
        NotFound: there is no such job, or it has no profile.
        OrderError: another version has written its report.
    """
    found = application.jobs.get(visitor, job)
    name = application.models.of_job(found.model).name
    if found.report is None:
        raise NotFound(f"job {found.id} has no report (it is {found.state.value})")
    try:
        with application.blobs.open(found.report) as file:
            report = msgspec.json.decode(file.read(), type=RunReport)
    except msgspec.MsgspecError as error:
        raise OrderError(f"job {found.id}: its report was written by another version; retry the job") from error
    if report.profile is None:
        raise NotFound(f"job {found.id} has no profile; download its result and call kintune profile")
    return msgspec.structs.replace(report.profile, executable=f"{name}.kt", model=name)  # not where it lies here


def _file(content: bytes, kind: str, name: str) -> Response:
    return Response(content, media_type=kind, headers=attachment(name))
