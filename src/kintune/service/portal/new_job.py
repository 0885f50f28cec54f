"""The page of a new job: upload or choose a model, see what its inspection found, and set the options."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from nicegui import ui

from kintune.errors import KintuneError
from kintune.service.access import NotFound, Unauthorized
from kintune.service.job_listing import JobFilter
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.known_operators import left_to_onnxruntime
from kintune.service.model_store import Findings, StoredModel
from kintune.service.portal.frame import READ_ONLY, PageContext, heading, markup, page
from kintune.service.portal.job_form import JobForm
from kintune.service.portal.job_words import headline
from kintune.service.portal.markup import link, name, notice, tag, text
from kintune.service.portal.outlook import describe_outlook
from kintune.service.portal.shape_words import spelled
from kintune.terminal.comparison import describe_share
from kintune.terminal.formatting import count, counted

__all__ = ["new_job_page", "submission_key", "upload_zone"]

_MOST_MODELS = 30


@page("/new", "New job")
async def new_job_page(context: PageContext) -> None:
    """First the model, then the options of the job."""
    heading("New job")
    may_submit = context.visitor.may_submit
    if not may_submit:
        markup(notice(READ_ONLY))
    chosen = context.query.get("model", "")
    if not chosen:
        if may_submit:
            markup(upload_zone(context))
        markup(await asyncio.to_thread(_known_models, context))
        return
    if not (chosen.isascii() and chosen.isdigit() and len(chosen) < 18):
        raise NotFound(f"there is no model {chosen[:16]}")
    model = context.application.models.get(context.visitor, int(chosen))
    findings = model.findings or Findings()
    past = [] if findings.problem else await asyncio.to_thread(_past, context, model)
    markup(_found(model, past), "card")
    if findings.problem:
        markup(link("Submit another file", "/new", class_="button main"))
        return
    if not may_submit:
        return
    usual, opened = await asyncio.to_thread(_usual, context, model), secrets.token_hex(16)

    async def submit() -> None:
        try:
            wanted = form.request()
            key = submission_key(opened, wanted)
            await context.use_cases.check_webhook(wanted.webhook)
            job, _ = context.use_cases.submit(context.submitter, context.address, model.id, wanted, key)
            ui.navigate.to(f"/jobs/{job.id}")
        except Unauthorized:
            ui.navigate.to("/sign-in")
        except (KintuneError, TypeError, ValueError) as error:
            form.say(error)

    form = JobForm(context, model, usual, submit)


def _usual(context: PageContext, model: StoredModel) -> JobRequest:
    """What the form says at first: the request of the job that the address names, if it was for this model."""
    if like := context.query.get("like", ""):
        with suppress(NotFound):
            job = context.application.jobs.get(context.visitor, like)
            if job.model == model.id:
                return job.wanted
    return JobRequest(minutes=context.application.settings.minutes)


def submission_key(opened: str, wanted: JobRequest) -> str:
    """The idempotency key of a request from a form that was `opened` once: a second click makes no second job."""
    return hashlib.sha256(opened.encode() + msgspec.json.encode(wanted)).hexdigest()


def upload_zone(context: PageContext) -> str:
    """Where a file is dropped or chosen; it is sent at once."""
    most = context.visitor.quota.upload_mb
    field = tag("input", type="file", accept=".onnx", aria_label="An ONNX file", id="file")
    parts = [
        tag("p", tag("strong", "Drop an ONNX file here, or choose one")),
        field,
        tag("progress", value="0", max="1", hidden=True, aria_label="Sent"),
        tag("p", "", role="status"),
        tag("p", f"One file with its weights, up to {most} MB. It is checked at once.", class_="faint small"),
    ]
    return tag("div", parts, class_="drop", data_most=most << 20)


def _known_models(context: PageContext) -> str:
    models = context.application.models.page(context.visitor, limit=_MOST_MODELS)
    usable = [model for model in models if model.findings is not None and not model.findings.problem]
    if not usable:
        return ""
    items = (tag("li", link(model.name, f"/new?model={model.id}")) for model in usable)
    return tag(
        "section", [tag("h2", "Or choose one of your models"), tag("ul", items, class_="columns")], class_="card"
    )


def _found(model: StoredModel, past: Sequence[str]) -> str:
    """What the inspection has found in a model, and what is known of jobs with it, in lines of markup."""
    findings = model.findings or Findings()
    parts = [tag("h2", name(model.name))]
    if findings.problem:
        return "".join([*parts, notice(f"The model cannot be used: {findings.problem}.", "bad")])
    inputs = (
        tag("li", [tag("code", text(each.name)), text(f": {spelled(each)}, {each.dtype}")]) for each in findings.inputs
    )
    weights = "1 weight" if findings.parameters == 1 else f"{count(findings.parameters)} weights"
    parts.append(tag("p", text(f"{counted(len(findings.inputs), 'input')}, {weights}")) + tag("ul", inputs))
    if left := left_to_onnxruntime(findings.operators):
        named = ", ".join(f"{name} x{times}" for name, times in left.items())
        parts.append(notice(f"These operators will run in onnxruntime, since they cannot be compiled: {named}."))
    kinds = f"{counted(sum(findings.operators.values()), 'operator')} of {counted(len(findings.operators), 'kind')}"
    named = ", ".join(f"{name} x{times}" for name, times in findings.operators.items())
    parts.append(tag("details", [tag("summary", kinds, class_="plain"), tag("p", text(named))], id="kinds"))
    parts += [tag("p", line, class_="faint small") for line in past]
    return tag("div", parts, class_="stack tight")


def _past(context: PageContext, model: StoredModel) -> list[str]:
    """The results of earlier jobs with this model, and the forecast for a new one, as markup."""
    application, parts = context.application, []
    wanted = JobFilter(model=model.id, states=frozenset({JobStatus.DONE}))
    try:
        earlier, _ = application.listing.find(context.visitor, wanted, limit=3)
    except KintuneError:
        earlier = []
    for each in earlier:
        fastest = each.job.fastest_baseline
        words = headline(each.model, each.job, None) + (f", {describe_share(fastest)}" if fastest is not None else "")
        parts.append(f"Earlier: {link(words, f'/jobs/{each.job.id}')}")
    device = application.devices[0]
    said = describe_outlook(
        application.listing.past(device), *application.listing.minutes_ahead(), application.settings.jobs_at_once
    )
    return [*parts, text(" ".join(said))]
