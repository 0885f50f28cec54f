"""The models of a visitor: hand one in, read what was found, ask for a job."""

from __future__ import annotations

from typing import NamedTuple

from nicegui import events, ui

from kintune.core.config import DEFAULT_MAX_ERROR
from kintune.service.job_request import JobRequest, read_constants, read_shape
from kintune.service.model_store import Findings, StoredModel
from kintune.service.portal.frame import PageContext, moment, page, telling
from kintune.service.web.inputs import receive_inputs
from kintune.service.web.models import receive
from kintune.terminal.formatting import count

__all__ = ["findings_card", "models_page", "submit_form"]


@page("/models", "Your models")
async def models_page(context: PageContext) -> None:
    """Drop a file; below, what is there."""
    place = ui.column().classes("w-full gap-4")

    async def came(upload: events.UploadEventArguments) -> None:
        with telling():
            model = await receive(
                context.application, context.submitter, upload.file.name, upload.file.iterate(), context.address
            )
            with place:
                findings_card(context, model, opened=True)

    ui.upload(
        label="Drop an ONNX file here, or press +", on_upload=came, auto_upload=True,
        max_file_size=context.visitor.quota.upload_mb << 20,
        on_rejected=lambda: ui.notify("That file is larger than you may hand in.", type="negative"),
    ).props('accept=".onnx"').classes("w-full").mark("upload")  # fmt: skip
    place.move(target_index=-1)
    for model in context.application.models.page(context.visitor, limit=50):
        findings_card(context, model, opened=False)


def findings_card(context: PageContext, model: StoredModel, *, opened: bool) -> None:
    """One model: what was found in words, and the form to have it made fast."""
    found = model.findings or Findings()
    with (
        ui.expansion(f"{model.name}  ({_size(model.size)}, {moment(model.created)})", value=opened)
        .classes("w-full border rounded")
        .mark(f"model-{model.id}")
    ):
        if found.problem:
            ui.label(f"It cannot be used: {found.problem}.").classes("text-negative")
            return
        for one in found.inputs:
            shape = " x ".join("?" if extent is None else str(extent) for extent in one.shape)
            ui.label(f"input {one.name}: {shape or 'a number'}, {one.dtype}")
        most = ", ".join(f"{name} x{times}" for name, times in list(found.operators.items())[:8])
        ui.label(f"{count(found.parameters)} weights; operators: {most}")
        open_inputs = [one.name for one in found.inputs if None in one.shape]
        if open_inputs:
            ui.label(f"These inputs need shapes: {', '.join(open_inputs)}").classes("text-warning")
        submit_form(context, model, open_inputs)


def submit_form(context: PageContext, model: StoredModel, open_inputs: list[str]) -> None:
    """What is wanted of a model."""
    with ui.row().classes("items-end gap-4 flex-wrap"):
        until = ui.input("Until, ms or a share", placeholder="8, or onnxruntime*0.8").props("clearable").mark("until")
        devices = context.application.devices
        device = ui.select(list(devices), label="Device", value=devices[0]).mark("device")
        device.set_visibility(len(devices) > 1)
        minutes = ui.number("Minutes at most", value=context.application.settings.minutes, min=0.1).mark("minutes")
        shapes = {name: ui.input(f"Shape of {name}", placeholder="1x3x224x224, or 1x{32,64}") for name in open_inputs}
        constants = ui.textarea("Constant inputs", placeholder="sizes=1,3,8,8 (one a line)").props("autogrow rows=1")
        constants.mark("constants")
        others = ui.checkbox("Other shapes run in onnxruntime").mark("other-shapes")
        others.set_visibility(bool(open_inputs))
        precision = ui.select(
            {
                "fp32": "fp32 (as the model)",
                "bf16": "bf16 where it is faster",
                "int8": "int8 where it is faster",
                "auto": "the fastest within the error",
            },
            label="Precision",
            value="fp32",
        ).mark("precision")
        max_error = ui.number("Largest error", value=DEFAULT_MAX_ERROR, min=1e-6, max=0.99, step=1e-3)
        max_error.mark("max-error").bind_visibility_from(precision, "value", lambda chosen: chosen != "fp32")
        calibrate = _calibration(context)
        calibrate.place.bind_visibility_from(precision, "value", lambda chosen: chosen in ("int8", "auto"))
        alone = ui.checkbox("Leave nothing to onnxruntime").mark("no-onnxruntime")
        only_compile = ui.checkbox("Only compile, measure nothing").mark("only-compile")

        def submit() -> None:
            with telling():
                fixed = read_constants(constants.value or "")
                wanted = JobRequest(
                    device=str(device.value),
                    until=str(until.value).strip() or None if until.value else None,
                    minutes=None if minutes.value is None else float(minutes.value),
                    shapes={
                        name: read_shape(name, field.value or "") for name, field in shapes.items() if name not in fixed
                    },
                    constants=fixed,
                    search=not only_compile.value,
                    onnxruntime=not alone.value,
                    other_shapes="onnxruntime" if others.value else "refuse",
                    precision=precision.value,
                    max_error=None if precision.value == "fp32" else max_error.value,
                    calibrate=tuple(calibrate.ids) if precision.value in ("int8", "auto") else (),
                )
                job, _ = context.use_cases.submit(context.submitter, context.address, model.id, wanted)
                ui.navigate.to(f"/jobs/{job.id}")

        ui.button("Make it fast", on_click=submit).mark("submit")


class _Calibration(NamedTuple):
    """The field for sets of inputs to quantise with, and the ids of those that were uploaded."""

    place: ui.upload
    ids: list[int]


def _calibration(context: PageContext) -> _Calibration:
    ids: list[int] = []

    async def came(upload: events.UploadEventArguments) -> None:
        with telling():
            stored = await receive_inputs(
                context.application, context.submitter, upload.file.name, upload.file.iterate(), context.address
            )
            if stored.id not in ids:
                ids.append(stored.id)

    place = ui.upload(
        label="Inputs to quantise with (.npz)", on_upload=came, auto_upload=True, multiple=True,
        max_file_size=context.visitor.quota.upload_mb << 20,
        on_rejected=lambda: ui.notify("That file is larger than you may hand in.", type="negative"),
    ).props('accept=".npz"').mark("calibrate")  # fmt: skip
    return _Calibration(place, ids)


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
