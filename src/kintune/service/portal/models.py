"""The page of a visitor's models: each with its best result, a link to a new job, and a button to delete it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import RedirectResponse, Response

from kintune.errors import KintuneError
from kintune.service.access import Scope
from kintune.service.job_listing import BestResult
from kintune.service.model_store import Findings, StoredModel
from kintune.service.portal.frame import PageContext, ago, heading, markup, moment, page
from kintune.service.portal.markup import Heading, link, notice, table, tag, text
from kintune.service.web.authentication import ApplicationOf, address_of, require_own_origin, visitor_of
from kintune.terminal.comparison import describe_share
from kintune.terminal.formatting import count, milliseconds

__all__ = ["forget_model", "models_page", "router"]

router = APIRouter(include_in_schema=False)
_A_PAGE = 50


@page("/models", "Models")
async def models_page(context: PageContext) -> None:
    """The models, newest first."""
    before = context.query.get("before", "")
    last = int(before) if before.isascii() and before.isdigit() and len(before) < 18 else None
    models, best = await asyncio.to_thread(_read, context, last)
    heading("Models")
    if context.query.get("refused"):
        markup(notice("That model was not deleted: an unfinished job needs it.", "bad"))
    if not models:
        parts = [
            tag("h2", "No models yet" if last is None else "No more models"),
            tag("p", "Submit an ONNX file to have it tuned.", class_="faint"),
            link("New job", "/new", class_="button main"),
        ]
        markup(tag("div", parts, class_="card empty"))
        return
    names = (
        ("model", False),
        ("size", True),
        ("weights", True),
        ("best result", True),
        ("submitted", True),
        ("", False),
    )
    headings = [Heading(name or tag("span", "what to do", class_="hidden"), number) for name, number in names]
    now = context.application.now()
    rows = [_row(model, best.get(model.id), now) for model in models]
    more = ""
    if len(models) == _A_PAGE:
        more = tag("nav", link("Older", f"/models?before={models[-1].id}", class_="button"), aria_label="Pages")
    markup(table("Models", headings, rows, class_="cards") + more, "card stack")


def _read(context: PageContext, before: int | None) -> tuple[list[StoredModel], dict[int, BestResult]]:
    visitor, application = context.visitor, context.application
    models = application.models.page(visitor, before, _A_PAGE)
    return models, application.listing.best(visitor, (model.id for model in models))


def _row(model: StoredModel, result: BestResult | None, now: float) -> str:
    found = model.findings or Findings()
    name = link(model.name, f"/new?model={model.id}") if not found.problem else text(model.name)
    if found.problem:
        name += tag("span", text(f"cannot be used: {found.problem}"), class_="under bad")
    best = label = ""
    if result is not None and result.latency_ms is not None:
        label = f"best of {result.done}"
        best = link(milliseconds(result.latency_ms), f"/jobs/{result.job}")
        if result.fastest_baseline is not None:
            best += tag("span", text(describe_share(result.fastest_baseline)), class_="under")
    forget = tag("button", "Forget", type="submit", class_="button danger", aria_label=f"Forget {model.name}")
    kept = "" if model.expires is None else f"kept until {moment(model.expires)} UTC"
    cells = [
        tag("td", name, class_="name"),
        tag("td", _size(model.size), class_="num", data_label="size"),
        tag("td", count(found.parameters) if found.parameters else "", class_="num", data_label="weights"),
        tag("td", best, class_="num", data_label=label or None),
        tag("td", tag("time", ago(model.created, now), title=kept or None), class_="num", data_label="submitted"),
        tag("td", tag("form", forget, method="post", action=f"/models/{model.id}/forget")),
    ]
    return tag("tr", cells)


@router.post("/models/{model}/forget")
def forget_model(
    model: Annotated[int, Path(ge=1, lt=1 << 62)], request: Request, application: ApplicationOf
) -> Response:
    """Forget a model, as `DELETE /api/v1/models/ID` does; the list says where that was refused."""
    try:
        require_own_origin(request)
        visitor = visitor_of(request, application)
        visitor.require(Scope.SUBMIT)
        now = application.now()
        with application.database.transaction():
            application.models.delete(visitor, model, now)
            application.audit_log.note(now, "delete", f"model {model}", visitor, address_of(request))
    except KintuneError:
        return RedirectResponse("/models?refused=1", 303)
    return RedirectResponse("/models", 303)


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
