"""The form of a new job: first what everybody chooses, folded away what few need, and the button."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement
from nicegui.elements.mixins.value_element import ValueElement

from kintune.core.config import DEFAULT_MAX_ERROR
from kintune.errors import InputError
from kintune.service.job_request import JobRequest, check, read_constants, read_shape
from kintune.service.model_store import Findings, Input, StoredModel
from kintune.service.portal.calibration import InputsField
from kintune.service.portal.frame import PageContext, PageRegion, markup
from kintune.service.portal.job_words import LABELS, spoken
from kintune.service.portal.markup import notice, tag
from kintune.service.portal.shape_words import dimension_names, shape_text, spelled

__all__ = ["JobForm", "prefilled", "problem_of", "shape_problem"]

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
_LONG = 20  # name of an input that a label has no room for
_SHOW = """
    const field = document.getElementById('%s');
    field.closest('details')?.setAttribute('open', '');
    field.scrollIntoView({block: 'center'});
    field.querySelector('input, textarea')?.focus({preventScroll: true});
"""


class _FieldError(InputError):
    """A field of the form cannot be read, as is said below it."""

    def __init__(self, field: ValidationElement[Any]) -> None:
        super().__init__(f"{field.props['label']}: {field.error}")
        self.field: ValueElement[Any] = field


class JobForm:
    """The form of a new job for a model; `request` returns what its fields say, which at first is what is `usual`."""

    def __init__(
        self, context: PageContext, model: StoredModel, usual: JobRequest, submit: Callable[[], Awaitable[None]]
    ) -> None:
        self._context = context
        self._usual = usual
        self._inputs = (model.findings or Findings()).inputs
        self._fields: dict[str, ValueElement[Any]] = {}
        self._conversions: dict[str, Callable[[Any], Any]] = {}
        with ui.element("section").classes("card stack"):
            with _row():
                self._first(model.id)
            with ui.element("details").props("id=more") as more:
                with ui.element("summary"):
                    markup("More options", "within")
                with _row("Inputs", shown=bool(self._inputs)):
                    self._fixed_inputs()
                with _row("Precision and runtime"):
                    self._ways()
                with _row("Comparison of outputs"):
                    self._comparison(model.id)
                with _row("The run"):
                    self._run()
        plain = JobRequest()
        if any(getattr(usual, name) != getattr(plain, name) for name in _FOLDED):
            more.props("open")
        with ui.element("div").classes("submit"):
            ui.button("Make it fast", on_click=submit, color=None).props("unelevated no-caps").classes("button main")
            self._problem = PageRegion()
        self._adapt()

    def request(self) -> JobRequest:
        """What the fields say.

        Raises:
            InputError: one of them cannot be read.
        """
        _validate(self._fields.values())
        wanted = {name: self._conversions[name](field.value) for name, field in self._fields.items()}
        if wanted["precision"] == "fp32" and not wanted["weights"]:
            del wanted["max_error"]
        sets = self._calibration.chosen() if wanted["precision"] in _QUANTISING else ()
        if wanted["precision"] == "int8" and not sets:
            raise InputError(
                "calibrate: int8 needs inputs to find the ranges of the values; choose .npz files, or bf16"
            )
        if sets and wanted["weights"]:
            raise InputError("weights: calibration inputs quantise the model as well; leave one of the two out")
        given = {name: field for name, field in self._shapes.items() if name not in wanted["constants"]}
        _validate(given.values())
        shapes = {name: read_shape(name, field.value) for name, field in given.items()}
        return JobRequest(**wanted, shapes=shapes, calibrate=sets, inputs=self._compared.chosen())

    def say(self, error: Exception) -> None:
        """Shows why the request was refused, beside the button and at its field, until a field is changed."""
        if isinstance(error, _FieldError):
            field: ValueElement[Any] | None = error.field
            said = str(error)
        else:
            name, words = spoken(str(error)) if isinstance(error, InputError) else ("", str(error))
            field, said = self._fields.get(name), f"{LABELS[name]}: {words}" if name else words
            if isinstance(field, ValidationElement):
                field.error = words
        if field is not None:
            ui.run_javascript(_SHOW % field.html_id)
        self._problem.show(notice(said, "bad"))

    def _add(self, name: str, field: Any, hint: str = "", convert: Callable[[Any], Any] = lambda said: said) -> None:
        """Takes in the field of the request that has this name; what is written there is checked at once."""
        self._fields[name], self._conversions[name] = field, convert
        if isinstance(field, ValidationElement):
            if not isinstance(field, ui.select):
                field.validation = lambda said: problem_of(name, said, convert)
            field.props("outlined stack-label").props["hint"] = hint
        field.on_value_change(self._changed)

    def _changed(self) -> None:
        """Takes back what was said of a request, since it is another one now."""
        self._problem.show("")
        self._adapt()

    def _first(self, model: int) -> None:
        usual, application = self._usual, self._context.application
        self._lacks = {device: application.lacks(device) for device in application.devices}
        hint = "Milliseconds, or a share of a runtime: onnxruntime*0.8. Empty: as fast as it gets"
        self._add("until", _text("until", usual.until), hint, _stripped)
        self._add("minutes", _number("minutes", usual.minutes), "It ends earlier once nothing more is gained")
        self._precision = ui.select(_PRECISIONS, label=LABELS["precision"], value=usual.precision)
        self._add("precision", self._precision)
        devices = list(self._lacks)
        chosen = usual.device if usual.device in devices else devices[0]
        self._add("device", ui.select(devices, label=LABELS["device"], value=chosen))
        self._fields["device"].set_visibility(len(devices) > 1)
        hint = "Of the outputs, as a share of their norm"
        self._add("max_error", _number("max_error", usual.max_error or DEFAULT_MAX_ERROR, 1e-3), hint)
        self._calibration = InputsField(self._context, model, "calibrate", usual.calibrate, self._changed)
        self._shapes: dict[str, ui.input] = {}
        for each in self._inputs:
            if None not in each.shape:
                continue
            known = usual.shapes.get(each.name)
            value = prefilled(each) if known is None else shape_text(known)
            field = ui.input(f"Shape of {each.name}", value=value, validation=partial(shape_problem, each))
            whole = f" of {each.name}" if len(each.name) > _LONG else ""
            hint = f"The file says {spelled(each)}{whole}; 1x{{32,64}} for several"
            field.props("outlined stack-label").props["hint"] = hint
            field.on_value_change(self._changed)
            self._shapes[each.name] = field

    def _fixed_inputs(self) -> None:
        said = "\n".join(
            f"{name}={msgspec.json.encode(value).decode()}" for name, value in self._usual.constants.items()
        )
        field = ui.textarea(LABELS["constants"], value=said, placeholder="sizes=1,3,8,8").props("autogrow rows=1")
        self._add("constants", field, "One a line; fixed for good", lambda said: read_constants(said or ""))
        box = ui.checkbox(LABELS["other_shapes"], value=self._usual.other_shapes == "onnxruntime")
        self._add("other_shapes", box, convert=lambda chosen: "onnxruntime" if chosen else "refuse")
        box.set_visibility(bool(self._shapes))

    def _ways(self) -> None:
        usual = self._usual
        field = ui.select(_WEIGHTS, label=LABELS["weights"], value=usual.weights or 0)
        self._add("weights", field, "Constant weights of large products", lambda bits: bits or None)
        for name, wanted in (("onnxruntime", not usual.onnxruntime), ("search", not usual.search)):
            self._add(name, ui.checkbox(LABELS[name], value=wanted), convert=lambda chosen: not chosen)
        box = ui.checkbox(LABELS["keep_denormals"], value=usual.keep_denormals)
        self._add("keep_denormals", box.tooltip("Numbers below 1.2e-38 are not flushed to zero, which is slower"))

    def _comparison(self, model: int) -> None:
        usual, hint = self._usual, "How far outputs may be from those of the model"
        for name in ("rtol", "atol"):
            self._add(name, _number(name, getattr(usual, name), 1e-3), hint, partial(_or_default, name))
        self._compared = InputsField(self._context, model, "inputs", usual.inputs, self._changed)
        self._compared.set_visibility(bool(self._inputs))

    def _run(self) -> None:
        usual = self._usual
        hint = "Empty: as many as the time allows"
        self._add("trials", _number("trials", usual.trials), hint, lambda said: None if said is None else _whole(said))
        hint = "2 gets twice as much of a scarce resource as 1"
        self._add("priority", _number("priority", usual.priority), hint, partial(_or_default, "priority"))
        self._add("seed", _number("seed", usual.seed), "Of all random choices", lambda said: _whole(said or 0))
        hint = "An address that is called when the job ends"
        self._add("webhook", _text("webhook", usual.webhook), hint, _stripped)
        self._add("share", ui.checkbox(LABELS["share"], value=usual.share))

    def _adapt(self) -> None:
        """Shows the fields that matter, and the precisions that the device has."""
        precision, weights = self._precision, self._fields["weights"]
        lacks = self._lacks[str(self._fields["device"].value)]
        offered = {name: words for name, words in _PRECISIONS.items() if name not in lacks}
        if list(offered) != list(precision.options):
            precision.set_options(offered, value=precision.value if precision.value in offered else "fp32")
        precision.props["hint"] = " ".join(f"Not offered: {name}, since {why}." for name, why in lacks.items() if why)
        self._fields["max_error"].set_visibility(precision.value != "fp32" or bool(weights.value))
        self._calibration.set_visibility(precision.value in _QUANTISING)


_FOLDED = (
    "constants", "other_shapes", "weights", "keep_denormals", "onnxruntime", "search", "rtol", "atol", "inputs",
    "trials", "priority", "seed", "webhook", "share",
)  # fmt: skip
"""The fields of a request that are folded away."""


def _validate(fields: Iterable[ValueElement[Any]]) -> None:
    """Checks what is in these fields.

    Raises:
        InputError: one cannot be read.
    """
    for field in fields:
        if isinstance(field, ValidationElement) and field.visible and not field.validate():
            raise _FieldError(field)


@contextmanager
def _row(heading: str = "", *, shown: bool = True) -> Iterator[None]:
    """A part of the form, whose fields stand on the same columns as those of the others."""
    with ui.element("div").classes("stack") as part:
        if heading:
            markup(tag("h3", heading))
        with ui.element("div").classes("formrow"):
            yield
    part.set_visibility(shown)


def _text(name: str, value: str | None) -> ui.input:
    return ui.input(LABELS[name], value=value or "").props("clearable")


def _number(name: str, value: float | None, step: float | None = None) -> ui.number:
    return ui.number(LABELS[name], value=value, step=step)


def _stripped(said: str | None) -> str | None:
    return (said or "").strip() or None


def _or_default(name: str, said: float | None) -> float:
    """A number, or what holds for an empty field."""
    return getattr(JobRequest(), name) if said is None else said


def _whole(said: float) -> float:
    """A number as it is needed where it is whole; others are refused by their type."""
    return int(said) if said == int(said) else said


def problem_of(name: str, said: Any, convert: Callable[[Any], Any] = lambda said: said) -> str | None:
    """Returns what is wrong with a field of a request as entered by a user, None if nothing is."""
    try:
        value = convert(said)
        if value is not None:
            check(JobRequest(**{"precision": "bf16", name: value}))
    except (InputError, OverflowError, ValueError) as error:
        return spoken(str(error))[1]
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
