"""The field of a form for sets of inputs, to quantise a model with or to compare its outputs on.

Each file is sent and checked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nicegui import ui

from kintune.errors import InputError
from kintune.service.access import NotFound
from kintune.service.model_store import INPUTS
from kintune.service.portal.frame import PageContext, PageRegion, markup
from kintune.service.portal.job_words import LABELS
from kintune.service.portal.markup import notice, tag, text
from kintune.terminal.formatting import counted

__all__ = ["InputsField", "describe_sets", "sets_zone"]

_MOST_NAMED = 5


class InputsField:
    """Takes `.npz` files, a set of inputs each; below it stands which of them will be used, and what is wrong.

    The script of the pages sends the files, and tells what the service has answered.
    """

    def __init__(
        self, context: PageContext, model: int, name: str, chosen: Sequence[int], changed: Callable[[], None]
    ) -> None:
        """`name` is the field of the request for the `model`, and the sets `chosen` are in it at first.

        `changed` is called when other sets are in it.
        """
        self._name = name
        self._changed = changed
        self._ids: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        for each in chosen:
            with suppress(NotFound):
                self._ids[context.application.models.get(context.visitor, each, INPUTS).name] = each
        with ui.element("div").classes("stack full") as self._whole:
            markup(sets_zone(context.visitor.quota.upload_mb, name, LABELS[name], model))
            self._said = PageRegion("", "stack")
            with ui.element("div").classes("line"):
                self._none = ui.button("Remove all of them", on_click=self._forget, color=None)
                self._wrong = ui.button("Remove what cannot be used", on_click=self._forget_refused, color=None)
            for button in (self._none, self._wrong):
                button.props("unelevated no-caps").classes("button")
        ui.on("set_of_inputs", lambda event: self._came(event.args) if event.args.get("field") == name else None)
        self._show()

    def chosen(self) -> tuple[int, ...]:
        """The sets of inputs that will be used.

        Raises:
            InputError: a file was refused, and is still in the list.
        """
        for name, why in self._refused.items():
            raise InputError(f"{self._name}: {name} cannot be used: {why}; remove the files that cannot be used")
        return tuple(dict.fromkeys(self._ids.values()))

    def set_visibility(self, visible: bool) -> None:
        """Shows or hides all of it."""
        self._whole.set_visibility(visible)

    def _came(self, told: Mapping[str, Any]) -> None:
        name, problem, stored = str(told.get("name", ""))[:128], told.get("error"), told.get("id")
        self._ids.pop(name, None)
        self._refused.pop(name, None)
        if problem is None and isinstance(stored, int):
            self._ids[name] = stored
        else:
            self._refused[name] = str(problem or "it was not sent").removeprefix(f"{name[:64]}: ")
        self._changed()
        self._show()

    def _forget(self) -> None:
        self._ids.clear()
        self._forget_refused()

    def _forget_refused(self) -> None:
        self._refused.clear()
        self._changed()
        self._show()

    def _show(self) -> None:
        lines = [notice(f"{name} cannot be used: {why}.", "bad") for name, why in self._refused.items()]
        said = tag("p", text(describe_sets(tuple(self._ids))), class_="small", role="status")
        self._said.show(said + "".join(lines))
        self._none.set_visibility(bool(self._ids or self._refused))
        self._wrong.set_visibility(bool(self._ids and self._refused))


def sets_zone(most_mb: int, name: str, words: str, model: int) -> str:
    """Where files are dropped or chosen; they are sent at once, and refused where the model does not take them."""
    field = tag(
        "input", type="file", accept=".npz", multiple=True, aria_label=f"{words}: files with a set of inputs each"
    )
    parts = [
        tag("p", tag("strong", text(f"{words}: drop .npz files here, or choose some"))),
        field,
        tag("p", "", role="status"),
    ]
    return tag("div", parts, class_="drop", data_most=most_mb << 20, data_sets=name, data_model=model)


def describe_sets(names: Sequence[str]) -> str:
    """Which files will be used, in words."""
    if not names:
        return "One file for each set of inputs, by the names of the model's inputs: numpy.savez writes them."
    listed = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
    return f"{counted(len(names), 'set')} of inputs will be used: {listed}"
