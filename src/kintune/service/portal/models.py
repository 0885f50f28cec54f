"""The page of a visitor's uploads: models, each with its best result, and sets of inputs; each can be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Path, Request
from fastapi.responses import RedirectResponse, Response

from kintune.errors import KintuneError, OrderError
from kintune.service.access import Forbidden, NotFound, Scope, Unauthorized
from kintune.service.job_listing import BestResult
from kintune.service.model_store import INPUTS, MODEL, Findings, Storage, StoredModel
from kintune.service.portal.frame import READ_ONLY, PageContext, ago, heading, markup, moment, page
from kintune.service.portal.markup import Heading, link, notice, table, tag, text
from kintune.service.portal.shape_words import spelled
from kintune.service.web.authentication import ApplicationOf, address_of, require_own_origin, visitor_of
from kintune.terminal.comparison import describe_share
from kintune.terminal.formatting import count, milliseconds

__all__ = ["forget_upload", "models_page", "router"]

router = APIRouter(include_in_schema=False)
_A_PAGE = 50
_MOST_ARRAYS = 4  # that are named
_KINDS = {"models": MODEL, "inputs": INPUTS}

_REFUSED = {
    "needed": "That upload was not deleted: an unfinished job needs it.",
    "gone": "That upload was deleted before.",
    "forbidden": "That upload was not deleted: your token may only read.",
    "failed": "That upload was not deleted, since the service could not do it now; try again.",
}


@page("/models", "Models")
async def models_page(context: PageContext) -> None:
    """The models, newest first, and the sets of inputs."""
    last = {name: _number(context.query.get(name, "")) for name in ("before", "before_inputs")}
    found = await asyncio.to_thread(_read, context, last["before"], last["before_inputs"])
    heading("Models")
    if (why := context.query.get("refused", "")) in _REFUSED:
        markup(notice(_REFUSED[why], "bad"))
    if not found.may_submit:
        markup(notice(READ_ONLY))
    now = context.application.now()
    if found.models:
        markup(_models(found, now), "card stack")
    else:
        parts = [
            tag("h2", "No models yet" if last["before"] is None else "No more models"),
            tag("p", "Submit an ONNX file to have it tuned.", class_="faint"),
            link("New job", "/new", class_="button main"),
        ]
        markup(tag("div", parts, class_="card empty"))
    if found.inputs or last["before_inputs"] is not None:
        markup(_inputs(found, now), "card stack")
    storage = found.storage
    if storage.used:
        both = "uploads and results" if storage.results else "uploads"
        said = f"Your {both} take {storage.used / (1 << 20):.1f} of {storage.most >> 20} MB"
        said += f", of which {storage.results / (1 << 20):.1f} MB are results." if storage.results else "."
        markup(tag("p", said, class_="faint small"))


class _Found(NamedTuple):
    """What the page shows."""

    models: list[StoredModel]
    best: dict[int, BestResult]
    inputs: list[StoredModel]
    storage: Storage
    may_submit: bool


def _number(said: str) -> int | None:
    return int(said) if said.isascii() and said.isdigit() and len(said) < 18 else None


def _read(context: PageContext, before: int | None, before_inputs: int | None) -> _Found:
    visitor, application = context.visitor, context.application
    models = application.models.page(visitor, before, _A_PAGE)
    best = application.listing.best(visitor, (model.id for model in models))
    inputs = application.models.page(visitor, before_inputs, _A_PAGE, INPUTS)
    return _Found(models, best, inputs, application.models.storage(visitor.user), visitor.may_submit)


def _models(found: _Found, now: float) -> str:
    names = (
        ("model", False),
        ("size", True),
        ("weights", True),
        ("best result", True),
        ("submitted", True),
        ("", False),
    )
    rows = [_model_row(model, found, now) for model in found.models]
    return table("Models", _headings(names), rows, class_="cards") + _older(found.models, "before")


def _inputs(found: _Found, now: float) -> str:
    names = (("set of inputs", False), ("size", True), ("arrays", False), ("submitted", True), ("", False))
    rows = [_inputs_row(one, found, now) for one in found.inputs]
    shown = table("Sets of inputs", _headings(names), rows, class_="cards") + _older(found.inputs, "before_inputs")
    return tag("h2", "Sets of inputs") + shown


def _headings(names: Sequence[tuple[str, bool]]) -> list[Heading]:
    return [Heading(name or tag("span", "what to do", class_="hidden"), number) for name, number in names]


def _older(found: Sequence[StoredModel], name: str) -> str:
    """A link to those before, if there may be some."""
    if len(found) < _A_PAGE:
        return ""
    return tag("nav", link("Older", f"/models?{name}={found[-1].id}", class_="button"), aria_label="Pages")


def _model_row(model: StoredModel, shown: _Found, now: float) -> str:
    found, result = model.findings or Findings(), shown.best.get(model.id)
    name = link(model.name, f"/new?model={model.id}") if not found.problem else text(model.name)
    if found.problem:
        name += tag("span", text(f"cannot be used: {found.problem}"), class_="under bad")
    best = label = ""
    if result is not None and result.latency_ms is not None:
        label = f"best of {result.done}"
        best = link(milliseconds(result.latency_ms), f"/jobs/{result.job}")
        if result.fastest_baseline is not None:
            best += tag("span", text(describe_share(result.fastest_baseline)), class_="under")
    cells = [
        tag("td", name, class_="name"),
        tag("td", _size(model.size), class_="num", data_label="size"),
        tag("td", count(found.parameters) if found.parameters else "", class_="num", data_label="weights"),
        tag("td", best, class_="num", data_label=label or None),
        *_last_cells(model, "models", shown, now),
    ]
    return tag("tr", cells)


def _inputs_row(stored: StoredModel, shown: _Found, now: float) -> str:
    arrays = stored.findings.inputs if stored.findings is not None else ()
    named = ", ".join(f"{each.name}: {spelled(each)}" for each in arrays[:_MOST_ARRAYS])
    more = f" and {len(arrays) - _MOST_ARRAYS} more" if len(arrays) > _MOST_ARRAYS else ""
    cells = [
        tag("td", text(stored.name), class_="name"),
        tag("td", _size(stored.size), class_="num", data_label="size"),
        tag("td", text(f"{named}{more}"), class_="reason"),
        *_last_cells(stored, "inputs", shown, now),
    ]
    return tag("tr", cells)


def _last_cells(stored: StoredModel, kind: str, shown: _Found, now: float) -> list[str]:
    """When something was uploaded, and the button that deletes it, for who may."""
    forget = tag("button", "Forget", type="submit", class_="button danger", aria_label=f"Forget {stored.name}")
    kept = "" if stored.expires is None else f"kept until {moment(stored.expires)} UTC"
    return [
        tag("td", tag("time", ago(stored.created, now), title=kept or None), class_="num", data_label="submitted"),
        tag("td", tag("form", forget, method="post", action=f"/{kind}/{stored.id}/forget") if shown.may_submit else ""),
    ]


@router.post("/{kind}/{upload}/forget")
def forget_upload(
    kind: Literal["models", "inputs"],
    upload: Annotated[int, Path(ge=1, lt=1 << 62)],
    request: Request,
    application: ApplicationOf,
) -> Response:
    """Delete a model or a set of inputs, as `DELETE /api/v1/models/ID` does; the list says why that was refused."""
    try:
        require_own_origin(request)
        visitor = visitor_of(request, application)
        visitor.require(Scope.SUBMIT)
        now, called = application.now(), _KINDS[kind]
        with application.database.transaction():
            application.models.delete(visitor, upload, now, called)
            application.audit_log.note(now, "delete", f"{called} {upload}", visitor, address_of(request))
    except Unauthorized:
        return RedirectResponse("/sign-in", 303)
    except KintuneError as error:
        reasons = ((OrderError, "needed"), (NotFound, "gone"), (Forbidden, "forbidden"))
        why = next((why for error_class, why in reasons if isinstance(error, error_class)), "failed")
        return RedirectResponse(f"/models?refused={why}", 303)
    return RedirectResponse("/models", 303)


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
