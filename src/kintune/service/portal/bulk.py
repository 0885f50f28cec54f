"""Actions on several jobs at once: a plain form of the list, answered with the same list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from kintune.errors import KintuneError, OrderError
from kintune.service.access import Forbidden, NotFound, Scope, Unauthorized
from kintune.service.job_status import JobCommand
from kintune.service.portal.jobs import JobQuery
from kintune.service.web.authentication import ApplicationOf, UseCasesOf, address_of, require_own_origin, visitor_of

__all__ = ["change_jobs", "router"]

router = APIRouter(include_in_schema=False)
_MOST = 200
_LONGEST_ID = 16
_REASONS = ((OrderError, "refused"), (Forbidden, "limited"), (NotFound, "gone"))
"""Why a job was not changed, as the address of the list has it; `failed` for anything else."""


@router.post("/jobs/actions")
def change_jobs(
    request: Request,
    application: ApplicationOf,
    use_cases: UseCasesOf,
    action: Annotated[Literal["cancel", "finish", "retry", "delete-files"], Form()],
    job: Annotated[list[str], Form(max_length=_MOST)] = [],  # noqa: B006 - FastAPI's way to say that there may be none
) -> Response:
    """Cancel, finish or retry jobs, or delete their files, each as if it were asked for alone.

    The list says which were refused, and why.  What follows the question mark is the list's own, so that the answer
    leads back to it.
    """
    try:
        require_own_origin(request)
        visitor = visitor_of(request, application)
        visitor.require(Scope.SUBMIT)
    except Unauthorized:
        return RedirectResponse("/sign-in", 303)
    except Forbidden:
        return _list(request, {"forbidden": job})
    came: dict[str, list[str]] = {}
    for each in job:
        try:
            if action == "retry":
                use_cases.retry(visitor, address_of(request), each)
            elif action == "delete-files":
                use_cases.delete_files(visitor, address_of(request), each)
            else:
                use_cases.command(visitor, address_of(request), each, JobCommand(action))
            said = "deleted" if action == "delete-files" else "did"
        except KintuneError as error:
            said = next((why for kind, why in _REASONS if isinstance(error, kind)), "failed")
        came.setdefault(said, []).append(each)
    return _list(request, came)


def _list(request: Request, came: Mapping[str, Sequence[str]]) -> Response:
    """Redirects to the list, which shows the outcome of the action for each job."""
    query = JobQuery(request.query_params, request.query_params.getlist("state"))
    address = query.address(page=query.page)
    if said := {name: ",".join(each[:_LONGEST_ID] for each in jobs) for name, jobs in came.items() if jobs}:
        address += f"{'&' if '?' in address else '?'}{urlencode(said, safe=',')}"
    return RedirectResponse(address, 303)
