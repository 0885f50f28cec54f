"""What is going on now: `/api/v1/jobs/ID/events` as server-sent events, `/api/v1/resources`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from kintune.errors import KintuneError
from kintune.service.access import Scope
from kintune.service.faces import said
from kintune.service.job_repository import Job
from kintune.service.orchestrator.events import Changed
from kintune.service.web.authentication import ApplicationOf, Reader, visitor_of
from kintune.service.web.live_state import LiveState
from kintune.service.web.schemas import ErrorOut, JobOut

__all__ = ["router"]
_MINUTES_S = 300.0
_STILL_HERE_S = 15.0  # a proxy may close a silent connection; as often, the token is checked again

router = APIRouter(prefix="/api/v1", tags=["live"], responses={code: {"model": ErrorOut} for code in (401, 403, 404)})


@router.get("/jobs/{job}/events", response_class=StreamingResponse)
def events(job: str, request: Request, visitor: Reader, application: ApplicationOf) -> StreamingResponse:
    """The job as it is, then its news as they come, until it is over; `text/event-stream`."""
    found = application.jobs.get(visitor, job)
    live_state: LiveState = request.app.state.live_state

    def still() -> Job:
        """The job as it is, if whoever asked may still see it: a token may be revoked meanwhile."""
        again = visitor_of(request, application)
        again.require(Scope.READ)
        return application.jobs.get(again, job)

    async def stream() -> AsyncIterator[bytes]:
        with live_state.watching(found.id) as next_news:
            now = await asyncio.to_thread(application.jobs.get, visitor, job)
            yield _event("job", JobOut.of(now).model_dump_json().encode())
            if now.state.over:
                return
            looked = time.monotonic()
            while True:
                wait = looked + _STILL_HERE_S - time.monotonic()
                try:
                    each = await asyncio.wait_for(next_news(), wait) if wait > 0 else None
                except asyncio.TimeoutError:
                    each = None
                if each is None:
                    yield b": still here\n\n"
                    looked = time.monotonic()
                    try:
                        now = await asyncio.to_thread(still)
                    except KintuneError:
                        return  # a new request is told why
                    if now.state.over:  # the news of it were lost
                        yield _event("job", JobOut.of(now).model_dump_json().encode())
                        return
                    continue
                if isinstance(each, Changed):
                    each = msgspec.structs.replace(each, reason=said(each.reason))
                yield _event(type(each).__name__.lower(), msgspec.json.encode(each))
                if isinstance(each, Changed) and each.state.over:
                    now = await asyncio.to_thread(application.jobs.get, visitor, job)
                    yield _event("job", JobOut.of(now).model_dump_json().encode())
                    return

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@router.get("/resources")
def resources(request: Request, visitor: Reader, application: ApplicationOf) -> dict[str, Any]:
    """Hosts and devices, the precisions that each type lacks, and why nothing runs on those that are lost.

    There are the stages of the last ten minutes (others' jobs have no name), and of the last five the share of time in
    which each was busy, how much was measured, and how often it was disturbed.
    """
    live_state: LiveState = request.app.state.live_state
    known = live_state.stages()
    mine = application.jobs.models_of(visitor, (stage.job for stage in known))
    stages = [
        {
            "job": stage.job if stage.job in mine or visitor.sees(-1) else None,
            "kind": stage.kind,
            "host": stage.placement.host,
            "cores": stage.placement.cores,
            "device": stage.placement.device,
            "begin": stage.begin,
            "end": stage.end,
        }
        for stage in known
    ]
    tallies = {device: msgspec.to_builtins(tally) for device, tally in live_state.tallies(_MINUTES_S).items()}
    return {
        "now": application.now(),
        "device_types": list(application.devices),
        "lacks": {device: application.lacks(device) for device in application.devices},
        "resources": [msgspec.to_builtins(standing) for standing in live_state.standings],
        "stages": stages,
        "use": live_state.use(_MINUTES_S),
        "measurements": tallies,
    }


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
