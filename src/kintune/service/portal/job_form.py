"""The form of a new job: a list of fields, each of which adds its elements and says what it puts into the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nicegui import ui

from kintune.core.config import DEFAULT_MAX_ERROR
from kintune.core.latency_target import parse_target
from kintune.errors import InputError
from kintune.service.job_request import MOST_PRIORITY, JobRequest, check_webhook, read_constants, read_shape
from kintune.service.model_store import Findings, Input, StoredModel
from kintune.service.portal.calibration import InputsField
from kintune.service.portal.frame import PageContext, markup
from kintune.service.portal.markup import tag
from kintune.service.portal.shape_words import dimension_names, spelled

__all__ = ["FIELDS", "JobForm", "prefilled", "shape_problem", "until_problem", "webhook_problem"]

Reader = Callable[[dict[str, Any]], None]
"""Puts what a field holds into the request."""

_USUAL = {"batch": 1, "n": 1, "b": 1, "height": 224, "h": 224, "width": 224, "w": 224, "channels": 3, "c": 3}
_SEQUENCE = ("seq", "len", "token", "time")
_USUAL_SEQUENCE = 128
_PRECISIONS = {
    "fp32": "fp32 (as the model)",
    "bf16": "bf16 where it is faster",
    "int8": "int8 where it is faster",
    "auto": "the fastest within the error",
}
_QUANTISING = ("int8", "auto")
_WEIGHTS = {0: "as they are", 4: "4 bits", 8: "8 bits"}


class JobForm:
    """The form of a new job for a model; `request` returns what its fields say."""

    def __init__(self, context: PageContext, model: StoredModel) -> None:
        self.context = context
        self.model = model
        self.findings = model.findings or Findings()
        self.open_inputs = [each for each in self.findings.inputs if None in each.shape]
        self._readers: list[Reader] = []
        for heading, fields in FIELDS.items():
            markup(tag("h3", heading))
            with ui.element("div").classes("formrow"):
                for field in fields:
                    self._readers.append(field(self))

    def request(self) -> JobRequest:
        """What the fields say.

        Raises:
            InputError: one of them cannot be read.
        """
        wanted: dict[str, Any] = {}
        for read in self._readers:
            read(wanted)
        return JobRequest(**wanted)


def _until(form: JobForm) -> Reader:
    del form
    field = _outlined(
        ui.input(
            "Target latency",
            placeholder="8, or onnxruntime*0.8",
            validation=until_problem,
        )
    ).mark("until")
    field.props('clearable hint="Milliseconds, or a share of a runtime. Empty: as fast as it gets"')

    def read(wanted: dict[str, Any]) -> None:
        wanted["until"] = str(field.value).strip() or None if field.value else None

    return read


def _minutes(form: JobForm) -> Reader:
    field = _outlined(ui.number("Minutes at most", value=form.context.application.settings.minutes, min=0.1))
    field.mark("minutes")

    def read(wanted: dict[str, Any]) -> None:
        wanted["minutes"] = None if field.value is None else float(field.value)

    return read


def _device(form: JobForm) -> Reader:
    devices = form.context.application.devices
    field = _outlined(ui.select(list(devices), label="Device", value=devices[0])).mark("device")

    def read(wanted: dict[str, Any]) -> None:
        wanted["device"] = str(field.value)

    return read


def _shapes(form: JobForm) -> Reader:
    fields = {}
    for each in form.open_inputs:
        field = ui.input(
            f"Shape of {each.name}",
            value=prefilled(each),
            placeholder="1x3x224x224",
            validation=partial(shape_problem, each),
        )
        field.props["hint"] = f"The file says {spelled(each)}; 1x{{32,64}} for several"
        fields[each.name] = _outlined(field)

    def read(wanted: dict[str, Any]) -> None:
        fixed = wanted.get("constants", {})
        given = {name: field.value or "" for name, field in fields.items() if name not in fixed}
        wanted["shapes"] = {name: read_shape(name, said) for name, said in given.items()}

    return read


def _constants(form: JobForm) -> Reader:
    field = _outlined(ui.textarea("Constant inputs", placeholder="sizes=1,3,8,8 (one a line)"))
    field.props("autogrow rows=1").mark("constants")
    field.set_visibility(bool(form.findings.inputs))

    def read(wanted: dict[str, Any]) -> None:
        wanted["constants"] = read_constants(field.value or "")

    return read


def _other_shapes(form: JobForm) -> Reader:
    field = ui.checkbox("Other shapes run in onnxruntime").mark("other-shapes")
    field.set_visibility(bool(form.open_inputs))

    def read(wanted: dict[str, Any]) -> None:
        wanted["other_shapes"] = "onnxruntime" if field.value else "refuse"

    return read


def _precision(form: JobForm) -> Reader:
    chosen = _outlined(ui.select(_PRECISIONS, label="Precision", value="fp32")).mark("precision")
    weights = _outlined(ui.select(_WEIGHTS, label="Large weights", value=0)).mark("weights")
    error = _outlined(
        ui.number("Largest error", value=DEFAULT_MAX_ERROR, min=1e-6, max=0.99, step=1e-3).props(
            'hint="Of the outputs, as a share of their norm"'
        )
    )
    error.mark("max-error")
    calibration = InputsField(form.context, form.findings.inputs, "calibrate", "Calibration inputs")

    def may_err() -> bool:
        return chosen.value != "fp32" or bool(weights.value)

    def show() -> None:
        error.set_visibility(may_err())
        calibration.set_visibility(chosen.value in _QUANTISING)

    for each in (chosen, weights):
        each.on_value_change(show)
    show()

    def read(wanted: dict[str, Any]) -> None:
        sets = calibration.ids if chosen.value in _QUANTISING else ()
        if chosen.value == "int8" and not sets:
            raise InputError("int8 needs inputs to find the ranges of the values: upload .npz files, or choose bf16")
        if sets and weights.value:
            raise InputError("calibration inputs and Large weights both quantise the model: leave one out")
        wanted["precision"] = chosen.value
        wanted["weights"] = weights.value or None
        wanted["max_error"] = error.value if may_err() else None
        wanted["calibrate"] = sets

    return read


def _comparison(form: JobForm) -> Reader:
    usual = JobRequest()
    relative = _outlined(ui.number("Relative tolerance", value=usual.rtol, min=0, step=1e-3)).mark("rtol")
    absolute = _outlined(ui.number("Absolute tolerance", value=usual.atol, min=0, step=1e-3)).mark("atol")
    for field in (relative, absolute):
        field.props('hint="How far outputs may be from those of the model"')
    inputs = InputsField(form.context, form.findings.inputs, "inputs", "Inputs to compare outputs on")
    inputs.set_visibility(bool(form.findings.inputs))

    def read(wanted: dict[str, Any]) -> None:
        wanted["inputs"] = inputs.ids
        wanted["rtol"] = usual.rtol if relative.value is None else float(relative.value)
        wanted["atol"] = usual.atol if absolute.value is None else float(absolute.value)

    return read


def _denormals(form: JobForm) -> Reader:
    del form
    field = ui.checkbox("Keep denormal numbers").mark("keep-denormals")
    field.tooltip("Compute with numbers below 1.2e-38 instead of flushing them to zero, which is slower")

    def read(wanted: dict[str, Any]) -> None:
        wanted["keep_denormals"] = bool(field.value)

    return read


def _onnxruntime(form: JobForm) -> Reader:
    del form
    field = ui.checkbox("Run no node in onnxruntime").mark("no-onnxruntime")

    def read(wanted: dict[str, Any]) -> None:
        wanted["onnxruntime"] = not field.value

    return read


def _search(form: JobForm) -> Reader:
    del form
    field = ui.checkbox("Only compile, measure nothing").mark("only-compile")

    def read(wanted: dict[str, Any]) -> None:
        wanted["search"] = not field.value

    return read


def _further(form: JobForm) -> Reader:
    del form
    trials = _outlined(ui.number("Programs at most", min=1, step=1)).mark("trials")
    trials.props('clearable hint="Empty: as many as the time allows"')
    priority = _outlined(ui.number("Priority", value=1.0, min=0.01, max=MOST_PRIORITY)).mark("priority")
    priority.props('hint="2 gets twice as much of a scarce resource as 1"')
    seed = _outlined(ui.number("Seed", value=0, min=0, step=1)).mark("seed")
    webhook = _outlined(ui.input("Webhook", placeholder="https://host/path", validation=webhook_problem))
    webhook.props('clearable hint="A URL that is called when the job ends"').mark("webhook")
    share = ui.checkbox("Share the measurements with other users' jobs").mark("share")

    def read(wanted: dict[str, Any]) -> None:
        wanted["trials"] = None if trials.value is None else int(trials.value)
        wanted["priority"] = 1.0 if priority.value is None else float(priority.value)
        wanted["seed"] = int(seed.value or 0)
        wanted["webhook"] = str(webhook.value).strip() or None if webhook.value else None
        wanted["share"] = bool(share.value)

    return read


FIELDS: Mapping[str, tuple[Callable[[JobForm], Reader], ...]] = {
    "Target": (_until, _minutes, _device),
    "Inputs": (_constants, _shapes, _other_shapes),
    "Precision and runtime": (_precision, _denormals, _onnxruntime, _search),
    "Further options": (_comparison, _further),
}
"""The fields by their headings, in the order in which they are shown and read."""


def until_problem(said: str | None) -> str | None:
    """Returns what is wrong with a target as entered by a user, None if nothing is."""
    if not said or not said.strip():
        return None
    try:
        parse_target(said)
    except InputError as error:
        return str(error)
    return None


def webhook_problem(said: str | None) -> str | None:
    """Returns what is wrong with an address as entered by a user, None if nothing is."""
    if not said or not said.strip():
        return None
    try:
        check_webhook(said.strip())
    except InputError as error:
        return str(error)
    return None


def shape_problem(value: Input, said: str | None) -> str | None:
    """Returns what is wrong with the shape of an input as entered by a user, None if nothing is."""
    if not said or not said.strip():
        return "This input needs a shape, such as 1x3x224x224, or a value below Constant inputs"
    try:
        shape = read_shape(value.name, said)
    except InputError as error:
        return str(error)
    several = [one for one in shape if isinstance(one, tuple)] or [tuple(one for one in shape if isinstance(one, int))]
    for one in several:
        if len(one) != len(value.shape):
            return f"{value.name} has {len(value.shape)} dimensions ({spelled(value)}), and this has {len(one)}"
        for extent, fixed in zip(one, value.shape, strict=True):
            if fixed is not None and extent != fixed:
                return (
                    f"the file fixes a dimension of {value.name} to {fixed} ({spelled(value)}), and this has {extent}"
                )
    return None


def prefilled(value: Input) -> str:
    """Returns a usual shape for an input with open dimensions, by their names and positions; empty if none is known."""
    extents = []
    for place, (extent, name) in enumerate(zip(value.shape, dimension_names(value), strict=True)):
        guess = extent if extent is not None else _guess(place, name.lower(), len(value.shape))
        if guess is None:
            return ""
        extents.append(str(guess))
    return "x".join(extents)


def _guess(place: int, name: str, rank: int) -> int | None:
    if any(part in name for part in _SEQUENCE):
        return _USUAL_SEQUENCE
    for word in name.replace("-", "_").split("_"):
        if word in _USUAL:
            return _USUAL[word]
    if place == 0:
        return 1
    if rank == 4 and place >= 2:
        return _USUAL["height"]
    return None


def _outlined(element: Any) -> Any:
    return element.props("outlined stack-label")
