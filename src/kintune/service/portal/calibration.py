"""The field of a form for sets of inputs to quantise a model with: each file is sent and checked at once."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import events, ui

from kintune.errors import InputError
from kintune.service.model_store import Input
from kintune.service.portal.frame import PageContext, Region, telling
from kintune.service.portal.markup import notice, text
from kintune.service.portal.shape_words import spelled
from kintune.service.web.inputs import receive_inputs

__all__ = ["CalibrationField", "describe_sets", "misfit"]

_MOST_NAMED = 5


class CalibrationField:
    """Takes `.npz` files, a set of inputs each; below it stands which of them will be used, and what is wrong."""

    def __init__(self, context: PageContext, inputs: Sequence[Input]) -> None:
        """`inputs` are the model's."""
        self._context = context
        self._inputs = inputs
        self._ids: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        with ui.element("div").classes("stack") as self._whole:
            self._field = ui.upload(
                label="Inputs to quantise with (.npz)",
                on_upload=self._came,
                auto_upload=True,
                multiple=True,
                max_file_size=context.visitor.quota.upload_mb << 20,
                on_rejected=self._rejected,
            )
            self._field.props('accept=".npz" flat bordered').classes("upload").mark("calibrate")
            self._field.on("removed", self._removed, js_handler="(files) => emit(files.map(one => one.name))")
            self._said = Region("", "small")
        self._show()

    @property
    def ids(self) -> tuple[int, ...]:
        """The sets of inputs that will be used."""
        return tuple(dict.fromkeys(self._ids.values()))

    def set_visibility(self, visible: bool) -> None:
        """Shows or hides all of it."""
        self._whole.set_visibility(visible)
        self._field.set_visibility(visible)  # a hidden one takes no files

    async def _came(self, upload: events.UploadEventArguments) -> None:
        name = upload.file.name
        self._ids.pop(name, None)
        self._refused.pop(name, None)
        with telling():
            try:
                stored = await receive_inputs(
                    self._context.application,
                    self._context.submitter,
                    name,
                    upload.file.iterate(),
                    self._context.address,
                )
            except InputError as error:
                self._refused[name] = str(error).removeprefix(f"{name[:64]}: ")
            else:
                problem = misfit(stored.findings.inputs if stored.findings else (), self._inputs)
                if problem is None:
                    self._ids[name] = stored.id
                else:
                    self._refused[name] = problem
        self._show()

    def _removed(self, removed: events.GenericEventArguments) -> None:
        for name in removed.args or ():
            self._ids.pop(name, None)
            self._refused.pop(name, None)
        self._show()

    def _rejected(self) -> None:
        most = self._context.visitor.quota.upload_mb
        ui.notify(f"Sets of inputs are .npz files of up to {most} MB each.", type="negative")

    def _show(self) -> None:
        lines = [notice(f"{name}: {why}. It is left out.", "bad") for name, why in self._refused.items()]
        self._said.show(text(describe_sets(tuple(self._ids))) + "".join(lines))


def describe_sets(names: Sequence[str]) -> str:
    """Which files will be used, in words."""
    if not names:
        return "One file for each set of inputs, by the names of the model's inputs: numpy.savez writes them."
    listed = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
    return f"{len(names)} set{'' if len(names) == 1 else 's'} of inputs will be used: {listed}"


def misfit(arrays: Sequence[Input], inputs: Sequence[Input]) -> str | None:
    """Why arrays cannot be inputs of a model, which may have others that are fixed; None where they can."""
    known = {each.name: each for each in inputs}
    strange = [each.name for each in arrays if each.name not in known]
    if strange or not arrays:
        return f"it has {', '.join(strange) or 'nothing'}, and the model takes {', '.join(known) or 'no inputs'}"
    for each in arrays:
        wanted = known[each.name]
        fits = len(each.shape) == len(wanted.shape) and all(
            fixed is None or fixed == extent for fixed, extent in zip(wanted.shape, each.shape, strict=False)
        )
        if not fits:
            return f"its {each.name} is {spelled(each)}, and the model takes {spelled(wanted)}"
    return None
