"""`/api/v1/jobs`."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse

from kintune.errors import InputError
from kintune.service.access import NotFound, Visitor
from kintune.service.docket import Job
from kintune.service.life import State, Wish
from kintune.service.wanted import check
from kintune.service.web.doors import Reader, RoomsOf, Submitter, address_of
from kintune.service.web.rooms import Rooms
from kintune.service.web.wire import ErrorOut, JobIn, JobOut, JobPage, PriorityIn

__all__ = ["router"]

router = APIRouter(
    prefix="/api/v1/jobs",
    tags=["jobs"],
    responses={code: {"model": ErrorOut} for code in (401, 403, 404, 409, 422, 503)},
)


@router.post("", status_code=201)
def submit(
    asked: JobIn,
    request: Request,
    response: Response,
    visitor: Submitter,
    rooms: RoomsOf,
    idempotency_key: Annotated[str | None, Header(max_length=128, pattern=r"^[\x21-\x7e]+$")] = None,
) -> JobOut:
    """Have a model made fast.  With the same `Idempotency-Key`, asking again answers with the same job (200)."""
    wanted = check(asked.wanted.wanted(), rooms.settings.minutes)
    model = rooms.library.get(visitor, asked.model)
    if model.findings is not None and model.findings.problem:
        raise InputError(f"model {model.id} cannot be used: {model.findings.problem}")
    now = rooms.now()
    with rooms.database.transaction():
        job, is_new = rooms.docket.submit(visitor, model.id, wanted, now, key=idempotency_key)
        if is_new:
            rooms.diary.note(now, "submit", f"job {job.id}", visitor, address_of(request), {"model": model.id})
    if is_new:
        request.app.state.poke()
    else:
        response.status_code = 200
    return JobOut.of(job)


@router.get("")
def list_jobs(
    visitor: Reader,
    rooms: RoomsOf,
    state: Annotated[list[State] | None, Query()] = None,
    everybody: bool = False,
    after: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> JobPage:
    """Your jobs, newest first; with `everybody`, all jobs, for who may see them."""
    found = rooms.docket.page(
        visitor,
        everybody=everybody and visitor.sees(-1),
        states=frozenset(state) if state else None,
        before=_cursor(after),
        limit=limit,
    )
    next_page = f"{found[-1].created!r}~{found[-1].id}" if len(found) == limit else None
    return JobPage(jobs=[JobOut.of(job) for job in found], next=next_page)


@router.get("/{job}")
def show(job: str, visitor: Reader, rooms: RoomsOf) -> JobOut:
    """One job, with all its steps."""
    found = rooms.docket.get(visitor, job)
    return JobOut.of(found, rooms.docket.steps(found))


@router.post("/{job}/cancel", status_code=202)
def cancel(job: str, request: Request, visitor: Submitter, rooms: RoomsOf) -> JobOut:
    """End a job without a result; what it has measured is kept."""
    return _wish(job, Wish.CANCEL, request, visitor, rooms)


@router.post("/{job}/finish", status_code=202)
def finish(job: str, request: Request, visitor: Submitter, rooms: RoomsOf) -> JobOut:
    """End a job with what there is."""
    return _wish(job, Wish.FINISH, request, visitor, rooms)


@router.post("/{job}/priority", status_code=202)
def prioritize(job: str, asked: PriorityIn, request: Request, visitor: Submitter, rooms: RoomsOf) -> JobOut:
    """Give a job another priority."""
    return _wish(job, Wish.PRIORITY, request, visitor, rooms, asked.priority)


@router.post("/{job}/retry", status_code=201)
def retry(job: str, request: Request, response: Response, visitor: Submitter, rooms: RoomsOf) -> JobOut:
    """A new job that goes on where one that failed or was cancelled ended; while it is at it, the same again (200)."""
    old, now = rooms.docket.get(visitor, job), rooms.now()
    rooms.library.get(visitor, old.model)
    with rooms.database.transaction():
        new, is_new = rooms.docket.retry(visitor, old, now)
        if is_new:
            rooms.diary.note(now, "retry", f"job {new.id}", visitor, address_of(request), {"of": old.id})
    if is_new:
        request.app.state.poke()
    else:
        response.status_code = 200
    return JobOut.of(new)


@router.get("/{job}/report")
def report(job: str, visitor: Reader, rooms: RoomsOf) -> dict[str, Any]:
    """What came of a job: gain, errors, subgraphs with their families, curve; the document of `kintune tune --json`."""
    with rooms.content.open(_file(rooms.docket.get(visitor, job), "report")) as file:
        document: dict[str, Any] = msgspec.json.decode(file.read())
    return document


@router.get("/{job}/executable")
def executable(job: str, visitor: Reader, rooms: RoomsOf) -> FileResponse:
    """The tuned model, one `.kt` file."""
    found = rooms.docket.get(visitor, job)
    path = rooms.content.path(_file(found, "executable"))
    name = rooms.library.of_job(found.model).name
    return FileResponse(path, media_type="application/octet-stream", filename=f"{name}.kt")


@router.get("/{job}/log")
def log(job: str, visitor: Reader, rooms: RoomsOf) -> FileResponse:
    """What the job's processes have said."""
    found = rooms.docket.get(visitor, job)
    return FileResponse(rooms.content.path(_file(found, "log")), media_type="text/plain", filename=f"{found.id}.log")


def _wish(job: str, wish: Wish, request: Request, visitor: Visitor, rooms: Rooms, value: float | None = None) -> JobOut:
    found = rooms.docket.get(visitor, job)
    now = rooms.now()
    with rooms.database.transaction():
        rooms.docket.wish(found, wish, now, value)
        rooms.diary.note(now, wish.value, f"job {found.id}", visitor, address_of(request))
    request.app.state.poke()
    return JobOut.of(rooms.docket.get(visitor, job))


def _file(job: Job, what: str) -> str:
    digest: str | None = getattr(job, what)
    if digest is None:
        raise NotFound(f"job {job.id} has no {what} (it is {job.state.value})")
    return digest


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
