"""The page of a visitor's uploads: models, each with its best result, and sets of inputs; each can be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import ui
from pydantic import Field

from kintune.errors import KintuneError, OrderError
from kintune.service.access import Forbidden, NotFound, Scope, Unauthorized
from kintune.service.job_listing import BestResult
from kintune.service.model_store import INPUTS, MODEL, Findings, Storage, StoredModel
from kintune.service.portal.frame import READ_ONLY, PageContext, ago, heading, markup, moment, page
from kintune.service.portal.markup import MarkupColumn, action, actions, choice, dialog, link, notice, table, tag, text
from kintune.service.portal.shape_words import spelled
from kintune.service.web.authentication import ApplicationOf, address_of, require_own_origin, visitor_of
from kintune.service.web.uploads import delete_upload
from kintune.terminal.comparison import describe_share
from kintune.terminal.formatting import count, counted, milliseconds

__all__ = ["forget_uploads", "models_page", "router"]

router = APIRouter(include_in_schema=False)
_A_PAGE = 50
_FEW = 8  # uploads that need no search
_MOST_AT_ONCE = 200
_MOST_ARRAYS = 4  # that are named
_KINDS = {"models": MODEL, "inputs": INPUTS}

_REFUSED = {
    "needed": "an unfinished job needs it",
    "gone": "it is not there any more",
    "forbidden": "your token may only read",
    "failed": "the service could not do it now",
}
_MODELS = (
    MarkupColumn(tag("span", "Choose", class_="hidden"), "check", label=""), MarkupColumn("model", "name", label=""),
    MarkupColumn("size", "num"), MarkupColumn("weights", "num"), MarkupColumn("best result", "num"),
    MarkupColumn("submitted", "num"),
)  # fmt: skip
_INPUTS = (
    MarkupColumn(tag("span", "Choose", class_="hidden"), "check", label=""),
    MarkupColumn("set of inputs", "name", label=""),
    MarkupColumn("size", "num"), MarkupColumn("arrays", "reason", label=""), MarkupColumn("submitted", "num"),
)  # fmt: skip
_QUESTION = "These uploads are deleted for good; what jobs have made of them stays."


@page("/models", "Models")
async def models_page(context: PageContext) -> None:
    """The models, newest first, and the sets of inputs."""
    query = context.query
    asked = query.get("q", "").strip()[:200]
    last = {name: _number(query.get(name, "")) for name in ("before", "before_inputs")}
    found = await asyncio.to_thread(_read, context, asked, last["before"], last["before_inputs"])
    with ui.element("div").classes("line between"):
        heading("Models")
        if found.may_submit:
            markup(link("New job", "/new", class_="button main"))
    if number := _number(query.get("forgotten", "")):
        markup(notice(f"{counted(number, 'upload')} deleted.", "good"))
    names = {each.id: each.name for each in (*found.models, *found.inputs)}
    for why, words in _REFUSED.items():
        if ids := [number for each in query.get(why, "").split(",") if (number := _number(each)) is not None]:
            listed = ", ".join(names.get(each, f"number {each}") for each in ids)
            markup(notice(f"Not deleted, since {words}: {listed}.", "bad"))
    if not found.may_submit:
        markup(notice(READ_ONLY))
    if asked or len(found.models) + len(found.inputs) > _FEW or last["before"] is not None:
        markup(_search(asked), "card")
    now = context.application.now()
    if found.models:
        markup(_form("models", _MODELS, [_model_row(each, found, now) for each in found.models], found), "card")
    else:
        parts = [
            tag("h2", "No model matches" if asked else "No models yet" if last["before"] is None else "No more models"),
            tag("p", "Submit an ONNX file to have it tuned.", class_="faint"),
            link("New job", "/new", class_="button main"),
        ]
        markup(tag("div", parts, class_="card empty"))
    if found.inputs or last["before_inputs"] is not None:
        rows = [_inputs_row(each, now, found.may_submit) for each in found.inputs]
        markup(tag("h2", "Sets of inputs") + _form("inputs", _INPUTS, rows, found), "card")
    storage = found.storage
    if storage.used:
        both = "uploads and results" if storage.results else "uploads"
        said = f"Your {both} take {storage.used / (1 << 20):.1f} of {storage.most >> 20} MB"
        said += f", of which {storage.results / (1 << 20):.1f} MB are results." if storage.results else "."
        markup(tag("p", said, class_="faint small"))


class _Found(NamedTuple):
    """What the page shows; `asked` is in the names of all of it."""

    models: list[StoredModel]
    best: dict[int, BestResult]
    inputs: list[StoredModel]
    storage: Storage
    may_submit: bool
    asked: str


def _number(said: str) -> int | None:
    return int(said) if said.isascii() and said.isdigit() and len(said) < 18 else None


def _read(context: PageContext, asked: str, before: int | None, before_inputs: int | None) -> _Found:
    visitor, application = context.visitor, context.application
    models = application.models.page(visitor, before, _A_PAGE, text=asked)
    best = application.listing.best(visitor, (model.id for model in models))
    inputs = application.models.page(visitor, before_inputs, _A_PAGE, INPUTS, asked)
    return _Found(models, best, inputs, application.models.storage(visitor.user), visitor.may_submit, asked)


def _search(asked: str) -> str:
    field = tag("input", type="search", name="q", value=asked, placeholder="part of a name", class_="native", id="q")
    parts = [tag("label", [tag("span", "Search"), field], class_="field")]
    parts.append(tag("button", "Search", type="submit", class_="button"))
    parts.append(link("All models", "/models") if asked else "")
    return tag("form", tag("div", parts, class_="line filters"), method="get", action="/models", role="search")


def _form(kind: str, columns: Sequence[MarkupColumn], rows: Sequence[Sequence[str]], shown: _Found) -> str:
    """The uploads of a kind, of which some can be chosen and forgotten, and a link to those before."""
    found, name = (shown.models, "before") if kind == "models" else (shown.inputs, "before_inputs")
    key, asked = f"ask-{kind}", {"q": shown.asked} if shown.asked else {}
    forget = action("Forget", type="button", data_asks=key, class_="button danger", id=f"forget-{kind}")
    parts = [actions([forget], f"Actions on the selected {kind}")] if shown.may_submit and rows else []
    parts.append(table("Models" if kind == "models" else "Sets of inputs", columns, rows))
    target = f"/{kind}/forget{'?' if asked else ''}{urlencode(asked)}"
    form = tag("form", parts, method="post", action=target, class_="stack", id=f"list-{kind}")
    form += dialog(key, _QUESTION, "Forget them", "Keep them", form=f"list-{kind}") if shown.may_submit else ""
    if len(found) == _A_PAGE:
        older = link("Older", f"/models?{urlencode({**asked, name: found[-1].id})}", class_="button")
        form += tag("nav", older, class_="pages", aria_label="Pages")
    return tag("div", form, class_="stack")


def _model_row(model: StoredModel, shown: _Found, now: float) -> list[str]:
    found, result = model.findings or Findings(), shown.best.get(model.id)
    name = link(model.name, f"/new?model={model.id}") if not found.problem else text(model.name)
    if found.problem:
        name += tag("span", text(f"cannot be used: {found.problem}"), class_="under bad")
    best = ""
    if result is not None and result.latency_ms is not None:
        best = link(milliseconds(result.latency_ms), f"/jobs/{result.job}")
        against = "" if result.fastest_baseline is None else describe_share(result.fastest_baseline)
        best += tag("span", text(f"{against}{against and ', '}of {counted(result.done, 'job')}"), class_="under")
    return [
        choice("upload", str(model.id), model.name) if shown.may_submit else "",
        name,
        _size(model.size),
        count(found.parameters) if found.parameters else "",
        best,
        _when(model, now),
    ]


def _inputs_row(stored: StoredModel, now: float, may_submit: bool) -> list[str]:
    arrays = stored.findings.inputs if stored.findings is not None else ()
    named = ", ".join(f"{each.name}: {spelled(each)}" for each in arrays[:_MOST_ARRAYS])
    more = f" and {len(arrays) - _MOST_ARRAYS} more" if len(arrays) > _MOST_ARRAYS else ""
    box = choice("upload", str(stored.id), stored.name) if may_submit else ""
    return [box, text(stored.name), _size(stored.size), text(f"{named}{more}"), _when(stored, now)]


def _when(stored: StoredModel, now: float) -> str:
    kept = "" if stored.expires is None else f"kept until {moment(stored.expires)} UTC"
    return tag("time", ago(stored.created, now), title=kept or None)


@router.post("/{kind}/forget")
def forget_uploads(
    kind: Literal["models", "inputs"],
    request: Request,
    application: ApplicationOf,
    upload: Annotated[list[Annotated[int, Field(ge=1, lt=1 << 62)]], Form(max_length=_MOST_AT_ONCE)],
) -> Response:
    """Delete models or sets of inputs, as `DELETE /api/v1/models/ID` does each; the list says why one was refused."""
    came: dict[str, list[int]] = {}
    forgotten, called = 0, _KINDS[kind]
    try:
        require_own_origin(request)
        visitor = visitor_of(request, application)
        visitor.require(Scope.SUBMIT)
    except Unauthorized:
        return RedirectResponse("/sign-in", 303)
    except Forbidden:
        return _listed(request, {"forbidden": ",".join(map(str, upload))})
    for each in upload:
        try:
            delete_upload(application, visitor, each, called, address_of(request))
            forgotten += 1
        except KintuneError as error:
            reasons = ((OrderError, "needed"), (NotFound, "gone"))
            why = next((why for error_class, why in reasons if isinstance(error, error_class)), "failed")
            came.setdefault(why, []).append(each)
    said = {why: ",".join(map(str, ids)) for why, ids in came.items()}
    return _listed(request, said | ({"forgotten": str(forgotten)} if forgotten else {}))


def _listed(request: Request, said: Mapping[str, str]) -> Response:
    """Redirects to the list, which shows the outcome."""
    asked = {"q": request.query_params["q"]} if "q" in request.query_params else {}
    return RedirectResponse(f"/models?{urlencode({**asked, **said}, safe=',')}", 303)


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
