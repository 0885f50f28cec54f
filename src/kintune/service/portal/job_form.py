"""The form of a new job: first what everybody chooses, folded away what few need, and the button."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement
from nicegui.elements.mixins.value_element import ValueElement

from kintune.core.constraints import OptionField, Section, fields_of
from kintune.errors import InputError
from kintune.service.job_request import JobRequest, check, read_constants, read_shape
from kintune.service.model_store import Findings, Input, StoredModel
from kintune.service.portal.calibration import InputsField
from kintune.service.portal.frame import PageContext, PageRegion, markup
from kintune.service.portal.job_words import LABELS, spoken
from kintune.service.portal.markup import notice, tag
from kintune.service.portal.shape_words import alternatives_of, shape_text, spelled

__all__ = ["JobForm", "problem_of", "shape_problem"]

_LONG = 20  # name of an input that a label has no room for
_SHOW = """
    const field = document.getElementById('%s');
    field.closest('details')?.setAttribute('open', '');
    field.scrollIntoView({block: 'center'});
    field.querySelector('input, textarea')?.focus({preventScroll: true});
"""


def _is_box(option: OptionField) -> bool:
    """Whether a field is on or off: those stand below the others."""
    return option.kind is bool or (len(option.choices) == 2 and not option.optional)


_FIRST = ("until", "minutes", "precision", "device", "max_error", "calibrate", "shapes")
"""The fields of a request that everybody sees; the others are folded away, in these parts."""
_PARTS = (Section.MODEL.part, Section.PRECISION.part, Section.CHECKS.part, Section.BUDGET.part)
_FIELDS = fields_of(JobRequest)
_FOLDED = sorted((name for name in _FIELDS if name not in _FIRST), key=lambda name: _is_box(_FIELDS[name]))
_QUANTISING = ("int8", "auto")


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
        self._model = model
        self._inputs = (model.findings or Findings()).inputs
        self._lacks = {device: context.application.lacks(device) for device in context.application.devices}
        self._fields: dict[str, ValueElement[Any]] = {}
        self._conversions: dict[str, Callable[[Any], Any]] = {}
        self._sets: dict[str, InputsField] = {}
        self._shapes: dict[str, ui.input] = {}
        with ui.element("section").classes("card stack"):
            with _row():
                for name in _FIRST:
                    self._show(_FIELDS[name])
            with ui.element("details").props("id=more") as more:
                with ui.element("summary"):
                    markup("More options", "within")
                for part in _PARTS:
                    with _row(part, shown=part != Section.MODEL.part or bool(self._inputs)):
                        for field in map(_FIELDS.__getitem__, _FOLDED):
                            if (field.shown.part or field.shown.section.part) == part:
                                self._show(field)
        self._fields["device"].set_visibility(len(self._lacks) > 1)
        self._fields["other_shapes"].set_visibility(bool(self._shapes))
        self._sets["inputs"].set_visibility(bool(self._inputs))
        if any(getattr(usual, name) != _FIELDS[name].default for name in _FOLDED):
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
        sets = self._sets["calibrate"].chosen() if wanted["precision"] in _QUANTISING else ()
        if wanted["precision"] == "int8" and not sets:
            raise InputError(
                "calibrate: int8 needs inputs to find the ranges of the values; choose .npz files, or bf16"
            )
        if sets and wanted["weights"]:
            raise InputError("weights: calibration inputs quantise the model as well; leave one of the two out")
        given = {name: field for name, field in self._shapes.items() if name not in wanted["constants"]}
        _validate(given.values())
        if sets or wanted["weights"] or wanted["other_shapes"] == "onnxruntime":
            _require_shapes(given)
        shapes = {name: read_shape(name, field.value) for name, field in given.items() if _said(field)}
        return JobRequest(**wanted, shapes=shapes, calibrate=sets, inputs=self._sets["inputs"].chosen())

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

    def _show(self, option: OptionField) -> None:
        """Adds the element for a field of the request; what is written there is checked at once."""
        name = option.name
        if name == "shapes":
            self._show_shapes()
            return
        if option.kind is tuple:
            chosen = getattr(self._usual, name)
            self._sets[name] = InputsField(self._context, self._model.id, name, chosen, self._changed)
            return
        field, convert = self._element(option)
        self._fields[name], self._conversions[name] = field, convert
        if isinstance(field, ValidationElement):
            if not isinstance(field, ui.select):
                field.validation = lambda said: problem_of(name, said, convert)
            field.props("outlined stack-label").props["hint"] = option.shown.hint
        elif option.shown.hint:
            field.tooltip(option.shown.hint)
        field.on_value_change(self._changed)

    def _element(self, option: OptionField) -> tuple[ValueElement[Any], Callable[[Any], Any]]:
        """The element for a field of the request, and what makes the field's value of what is written there."""
        value, default, label, shown = getattr(self._usual, option.name), option.default, option.label, option.shown
        if option.name == "device":
            devices = list(self._lacks)
            return ui.select(devices, label=label, value=value if value in devices else devices[0]), str
        if option.name == "constants":
            lines = (f"{name}={msgspec.json.encode(one).decode()}" for name, one in value.items())
            area = ui.textarea(label, value="\n".join(lines), placeholder="sizes=1,3,8,8").props("autogrow rows=1")
            return area, lambda said: read_constants(said or "")
        if option.kind is bool:
            return ui.checkbox(label, value=value != default), lambda chosen: chosen != default
        if _is_box(option):
            other = next(each for each in option.choices if each != default)
            return ui.checkbox(label, value=value == other), lambda chosen: other if chosen else default
        if option.choices:
            words: dict[str | int, str] = {0: "not set"} if option.optional else {}
            words |= {**{each: str(each) for each in option.choices}, **shown.words}
            return ui.select(words, label=label, value=value or 0), lambda said: said or None
        if option.kind is str:
            return ui.input(label, value=value or "").props("clearable"), lambda said: (said or "").strip() or default
        if value is None:
            with suppress(ValueError):  # what holds without a value may be no number
                value = float(shown.without)
        return ui.number(label, value=value, step=shown.step), partial(_number, option)

    def _changed(self) -> None:
        """Takes back what was said of a request, since it is another one now."""
        self._problem.show("")
        self._adapt()

    def _show_shapes(self) -> None:
        """Adds a field for the shape of each input with dynamic dimensions."""
        for each in self._inputs:
            if None not in each.shape:
                continue
            known = self._usual.shapes.get(each.name)
            value = "" if known is None else shape_text(known)
            field = ui.input(f"Shape of {each.name}", value=value, validation=partial(shape_problem, each))
            whole = f" of {each.name}" if len(each.name) > _LONG else ""
            hint = (
                f"The file says {spelled(each)}{whole}; empty for ranges that Kintune chooses, "
                "1x{1..512} for others, 1x{32,64} for several"
            )
            field.props("outlined stack-label").props["hint"] = hint
            field.on_value_change(self._changed)
            self._shapes[each.name] = field

    def _adapt(self) -> None:
        """Shows the fields that matter, and the precisions that the device has."""
        precision, weights = self._fields["precision"], self._fields["weights"]
        assert isinstance(precision, ui.select)
        lacks = self._lacks[str(self._fields["device"].value)]
        words = _FIELDS["precision"].shown.words
        offered = {name: words[name] for name in words if name not in lacks}
        if list(offered) != list(precision.options):
            precision.set_options(offered, value=precision.value if precision.value in offered else "fp32")
        precision.props["hint"] = " ".join(f"Not offered: {name}, since {why}." for name, why in lacks.items() if why)
        self._fields["max_error"].set_visibility(precision.value != "fp32" or bool(weights.value))
        self._sets["calibrate"].set_visibility(precision.value in _QUANTISING)


def _said(field: ui.input) -> str:
    """What is written in a field, without space around it."""
    return (field.value or "").strip()


def _require_shapes(fields: Mapping[str, ui.input]) -> None:
    """Checks that inputs have shapes, for a job that takes no ranges.

    Raises:
        InputError: one has none.
    """
    for field in fields.values():
        if not _said(field):
            field.error = "With these options this input needs a shape, such as 1x3x224x224"
            raise _FieldError(field)


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


def _number(option: OptionField, said: float | None) -> float | None:
    """A number as the field needs it, or its default; a fraction in a field of whole numbers is refused by its type."""
    if said is None:
        default: float | None = option.default
        return default
    return int(said) if option.kind is int and said == int(said) else said


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
        return None
    try:
        shape = read_shape(value.name, said)
    except InputError as error:
        return str(error)
    for one in alternatives_of(shape):
        if len(one) != len(value.shape):
            return f"{value.name} has {len(value.shape)} dimensions ({spelled(value)}), and this has {len(one)}"
        for extent, fixed in zip(one, value.shape, strict=True):
            if fixed is not None and extent != fixed:
                return (
                    f"the file fixes a dimension of {value.name} to {fixed} ({spelled(value)}), and this has {extent}"
                )
    return None
