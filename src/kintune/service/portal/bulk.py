"""Actions on several jobs at once: a plain form of the list, answered with the list."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from kintune.errors import KintuneError
from kintune.service.access import Forbidden, Scope, Unauthorized
from kintune.service.job_status import JobCommand
from kintune.service.web.authentication import ApplicationOf, UseCasesOf, address_of, require_own_origin, visitor_of

__all__ = ["change_jobs", "router"]

router = APIRouter(include_in_schema=False)
_MOST = 200


@router.post("/jobs/actions")
def change_jobs(
    request: Request,
    application: ApplicationOf,
    use_cases: UseCasesOf,
    action: Annotated[Literal["cancel", "finish", "retry"], Form()],
    job: Annotated[list[str], Form(max_length=_MOST)] = [],  # noqa: B006 - FastAPI's way to say that there may be none
) -> Response:
    """Cancel, finish or retry jobs, each as if it were asked for alone; the list says how many were refused."""
    try:
        require_own_origin(request)
        visitor = visitor_of(request, application)
        visitor.require(Scope.SUBMIT)
    except Unauthorized:
        return RedirectResponse("/sign-in", 303)
    except Forbidden:
        return RedirectResponse("/?" + urlencode({"refused": len(job)}), 303)
    did = refused = 0
    for each in job:
        try:
            if action == "retry":
                use_cases.retry(visitor, address_of(request), each)
            else:
                use_cases.command(visitor, address_of(request), each, JobCommand(action))
            did += 1
        except KintuneError:
            refused += 1
    counts = {name: count for name, count in (("did", did), ("refused", refused)) if count}
    return RedirectResponse("/?" + urlencode(counts) if counts else "/", 303)
