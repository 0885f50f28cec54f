"""`/api/v1/jobs`."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse

from kintune.errors import InputError
from kintune.service.access import Gone, NotFound, Visitor
from kintune.service.exports import ExportKind
from kintune.service.job_listing import JobFilter
from kintune.service.job_repository import Job
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import ApplicationOf, Reader, Submitter, UseCasesOf, address_of
from kintune.service.web.schemas import ErrorOut, JobIn, JobOut, JobPage, PriorityIn
from kintune.service.webhooks import Webhooks

__all__ = ["router"]

router = APIRouter(
    prefix="/api/v1/jobs",
    tags=["jobs"],
    responses={code: {"model": ErrorOut} for code in (401, 403, 404, 409, 410, 422, 429, 503)},
)


@router.post("", status_code=201)
async def submit(
    asked: JobIn,
    request: Request,
    response: Response,
    visitor: Submitter,
    use_cases: UseCasesOf,
    idempotency_key: Annotated[str | None, Header(max_length=128, pattern=r"^[\x21-\x7e]+$")] = None,
) -> JobOut:
    """Have a model made fast.  With the same `Idempotency-Key`, asking again answers with the same job (200)."""
    wanted = asked.wanted.wanted()
    await use_cases.check_webhook(wanted.webhook)
    address = address_of(request)
    job, is_new = await asyncio.to_thread(use_cases.submit, visitor, address, asked.model, wanted, idempotency_key)
    response.status_code = 201 if is_new else 200
    return JobOut.of(job)


@router.get("")
def list_jobs(
    visitor: Reader,
    application: ApplicationOf,
    state: Annotated[list[JobStatus] | None, Query()] = None,
    text: Annotated[str, Query(max_length=200, description="Words, each in the id, model, device or user.")] = "",
    device: Annotated[str, Query(max_length=64)] = "",
    model: Annotated[int | None, Query(ge=1, lt=1 << 62)] = None,
    everybody: bool = False,
    after: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> JobPage:
    """Your jobs, newest first; with `everybody`, all jobs, for who may see them."""
    wanted = JobFilter(text=text, states=frozenset(state or ()), device=device, model=model, everybody=everybody)
    found = application.listing.page(visitor, wanted, before=_cursor(after), limit=limit)
    next_page = f"{found[-1].job.created!r}~{found[-1].job.id}" if len(found) == limit else None
    return JobPage(jobs=[JobOut.of(job, name=name, owner=owner) for job, name, owner in found], next=next_page)


@router.get("/{job}")
def show(job: str, visitor: Reader, application: ApplicationOf) -> JobOut:
    """One job, with all its steps."""
    with application.database.snapshot():
        found = application.jobs.get(visitor, job)
        name = application.models.names([found.model]).get(found.model, "")
        owner = application.users.names([found.owner]).get(found.owner, "")
        calls = Webhooks(application.database).of_job(found.id)
        return JobOut.of(found, application.jobs.steps(found), name, owner, calls)


@router.post("/{job}/cancel", status_code=202)
def cancel(job: str, request: Request, visitor: Submitter, use_cases: UseCasesOf) -> JobOut:
    """End a job without a result; what it has measured is kept."""
    return JobOut.of(use_cases.command(visitor, address_of(request), job, JobCommand.CANCEL))


@router.post("/{job}/finish", status_code=202)
def finish(job: str, request: Request, visitor: Submitter, use_cases: UseCasesOf) -> JobOut:
    """End a job with what there is."""
    return JobOut.of(use_cases.command(visitor, address_of(request), job, JobCommand.FINISH))


@router.post("/{job}/priority", status_code=202)
def prioritize(job: str, asked: PriorityIn, request: Request, visitor: Submitter, use_cases: UseCasesOf) -> JobOut:
    """Give a job another priority."""
    return JobOut.of(use_cases.command(visitor, address_of(request), job, JobCommand.PRIORITY, asked.priority))


@router.post("/{job}/retry", status_code=201)
def retry(job: str, request: Request, response: Response, visitor: Submitter, use_cases: UseCasesOf) -> JobOut:
    """A new job that goes on where one that failed or was cancelled ended; while it is at it, the same again (200)."""
    new, is_new = use_cases.retry(visitor, address_of(request), job)
    response.status_code = 201 if is_new else 200
    return JobOut.of(new)


@router.delete("/{job}/files", status_code=204)
def delete_files(job: str, request: Request, visitor: Submitter, use_cases: UseCasesOf) -> Response:
    """Delete the executable and the log of a job that has ended; its numbers and its report stay."""
    use_cases.delete_files(visitor, address_of(request), job)
    return Response(status_code=204)


@router.get("/{job}/report")
def report(job: str, visitor: Reader, application: ApplicationOf) -> dict[str, Any]:
    """What came of a job: gain, errors, subgraphs with their families, curve; the document of `kintune tune --json`."""
    with application.blobs.open(_file(application.jobs.get(visitor, job), "report")) as file:
        document: dict[str, Any] = msgspec.json.decode(file.read())
    return document


@router.get("/{job}/executable")
def executable(job: str, visitor: Reader, application: ApplicationOf) -> FileResponse:
    """The tuned model, one `.kt` file."""
    path, name = _executable(application, visitor, job)
    return FileResponse(path, media_type="application/octet-stream", filename=f"{name}.kt")


@router.get("/{job}/export/{kind}", response_class=FileResponse)
async def export(job: str, kind: ExportKind, visitor: Reader, application: ApplicationOf) -> FileResponse:
    """The tuned model for programs without Kintune: a wheel, or a zip with what onnxruntime or a program in C needs."""
    path, name = await asyncio.to_thread(_executable, application, visitor, job)
    made = await application.exports.get(visitor, path, kind, name)
    return FileResponse(made, media_type="application/octet-stream", filename=made.name)


@router.get("/{job}/log")
def log(job: str, visitor: Reader, application: ApplicationOf) -> FileResponse:
    """What the job's processes have said."""
    found = application.jobs.get(visitor, job)
    return FileResponse(
        application.blobs.existing(_file(found, "log")), media_type="text/plain", filename=f"{found.id}.log"
    )


def _executable(application: ApplicationState, visitor: Visitor, job: str) -> tuple[Path, str]:
    """The file with the result of a job, and the name of its model."""
    found = application.jobs.get(visitor, job)
    return application.blobs.existing(_file(found, "executable")), application.models.of_job(found.model).name


def _file(job: Job, what: str) -> str:
    digest: str | None = getattr(job, what)
    if digest is None:
        if job.files_removed is not None and (what == "log" or job.state is JobStatus.DONE):
            again = "" if what == "log" else "; a new job with its model makes it again from what was measured"
            raise Gone(f"the {what} of job {job.id} was removed on {_day(job.files_removed)}{again}")
        hint = "" if job.state.over else "; wait until the job has ended"
        raise NotFound(f"job {job.id} has no {what} (it is {job.state.value}){hint}")
    return digest


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).date().isoformat()


def _cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    created, separator, id = text.partition("~")
    try:
        at = float(created)
    except ValueError:
        at = math.nan
    if not separator or not math.isfinite(at):
        raise InputError("after: is no 'next' of a page")
    return at, id
