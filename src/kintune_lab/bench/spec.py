"""Reads the spec of a bench from a TOML file, checks it, and expands its matrix to cells."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kintune.errors import InputError, ModelError
from kintune.files import sha256_of
from kintune.models.ref import ZOO, parse_ref
from kintune_lab.bench.experiments import experiment_of
from kintune_lab.experiment.experiment import Cell, Experiment, Method
from kintune_lab.experiment.option import Option, OptionError, OptionKind, OptionsByName, Value, spelled
from kintune_lab.spec_document import Document

__all__ = ["MOST_CELLS", "BenchSpec", "product_of", "read_bench_spec", "size_of"]


MOST_CELLS = 10_000
"""A larger matrix is a mistake."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_KEYS = ["name", "experiment", "description", "matrix", "model", "method"]
_METHOD_KEYS = ["name", "label"]

Place = tuple[str | int, ...]
Axes = dict[str, list[Value]]


class BenchSpec(msgspec.Struct, frozen=True):
    """What a spec asks for.

    `cells` are all different and in the order in which they are run; `models` says of each model where in the spec it
    stands (the beginning of an error's line).  `text` is the file as it was read.
    """

    name: str
    description: str
    experiment: Experiment
    cells: tuple[Cell, ...]
    models: dict[str, str]
    text: str


def read_bench_spec(path: str, find: Callable[[str], Experiment] = experiment_of) -> BenchSpec:
    """Read and check the spec at `path`; `find` knows the experiments.

    Raises:
        InputError: there is no such file.
        SpecError: the spec is wrong; the message names line and value.
    """
    return _Reader(Document.read(path), find).spec()


class _Reader:
    def __init__(self, document: Document, find: Callable[[str], Experiment]) -> None:
        self._document = document
        self._content = document.content
        self._find = find
        self._models: dict[str, str] = {}
        self._contents: dict[str, str] = {}
        self._places: dict[str, Place] = {}  # where the method of a label stands
        self._own_places: dict[tuple[Value, str], Place] = {}  # where a model's own option stands

    def spec(self) -> BenchSpec:
        document, content = self._document, self._content
        document.known((), content, _KEYS, "there is no key")
        name = self._text("name")
        if not _NAME.fullmatch(name):
            document.refuse(("name",), f"name = {spelled(name)}: use letters, digits, '_', '.' and '-'")
        wanted = self._text("experiment")
        try:
            experiment = self._find(wanted)
        except InputError as error:
            document.refuse(("experiment",), str(error))
        methods = self._methods(experiment)
        cells = self._cells(experiment, methods)
        return BenchSpec(
            name, self._text("description", required=False), experiment, cells, self._models, document.text
        )  # fmt: skip

    def _text(self, key: str, *, required: bool = True) -> str:
        value = self._content.get(key, None if required else "")
        if value is None:
            self._document.refuse((), f'{key} is missing; write {key} = "..." at the top')
        if not isinstance(value, str):
            self._document.refuse((key,), f"{key} = {spelled(value)}: must be a text")
        return value

    def _methods(self, experiment: Experiment) -> tuple[Method, ...]:
        document = self._document
        given = self._content.get("method", [])
        if not isinstance(given, list):
            document.refuse(("method",), "write [[method]], with two brackets on each side, once for each method")
        methods: dict[str, Method] = {}
        for index, entry in enumerate(given):
            for method in self._variants(experiment, ("method", index), entry):
                if method.label in methods:
                    place = ("method", index, "label" if "label" in entry else "name")
                    document.refuse(place, f"the method {method.label!r} stands twice; give one of them another label")
                methods[method.label] = method
                self._places[method.label] = ("method", index)
        return tuple(methods.values())

    def _variants(self, experiment: Experiment, place: Place, entry: object) -> list[Method]:
        """The methods that one `[[method]]` stands for: lists in it multiply."""
        document = self._document
        table = document.table(place, entry)
        name = table.get("name")
        if not isinstance(name, str):
            document.refuse((*place, "name"), 'a method needs a name: name = "..."')
        if name not in experiment.methods:
            known = ", ".join(experiment.methods)
            hint = f"there are {known}" if known else f"the experiment {experiment.name!r} has none"
            document.refuse((*place, "name"), f"there is no method {name!r}; {hint}")
        label = table.get("label", name)
        if not (isinstance(label, str) and label):
            document.refuse((*place, "label"), f"label = {spelled(label)}: must be a text")
        options = experiment.methods[name]
        settings = {key: value for key, value in table.items() if key not in _METHOD_KEYS}
        document.known(place, settings, list(options), f"the method {name!r} has no option")
        missing = [key for key, option in options.items() if option.required and key not in settings]
        if missing:
            document.refuse(place, f"the method {name!r} needs {missing[0]} = ...")
        axes = self._axes(place, settings, options)
        several = [key for key, values in axes.items() if len(values) > 1]
        return [
            Method(
                name=name,
                label=" ".join([label, *(f"{key}={_plain(choice[key])}" for key in several)]),
                values=_complete(options, choice),
                changed=_changed(options, choice),
            )
            for choice in product_of(axes)
        ]

    def _cells(self, experiment: Experiment, methods: tuple[Method, ...]) -> tuple[Cell, ...]:
        document, options = self._document, experiment.options
        table = document.table(("matrix",), self._content.get("matrix", {}))
        document.known(("matrix",), table, list(options), f"the experiment {experiment.name!r} has no option")
        missing = [name for name, option in options.items() if option.required and name not in table]
        if missing:
            document.refuse(("matrix",), f"the experiment {experiment.name!r} needs {missing[0]} = ... in [matrix]")
        parts = self._parts(options, self._axes(("matrix",), table, options))
        if (size := sum(map(size_of, parts))) > MOST_CELLS:
            document.refuse(("matrix",), f"the matrix has {size} cells, more than {MOST_CELLS}; shorten a list")
        cells = tuple(self._cell(experiment, choice, methods) for axes in parts for choice in product_of(axes))
        for cell in cells:
            self._check(experiment, cell)
        return cells

    def _parts(self, options: OptionsByName, axes: Axes) -> list[Axes]:
        """The matrices whose cells are those of the spec: one, or one a model where some have options of their own."""
        document = self._document
        given = self._content.get("model", [])
        if not given:
            return [axes]
        if not isinstance(given, list):
            document.refuse(("model",), "write [[model]], with two brackets on each side, once for each model")
        if "model" not in axes:
            document.refuse(("model", 0), "[[model]] gives options to models of [matrix], and there are none")
        own: dict[Value, Axes] = {model: {} for model in axes["model"]}
        for index, entry in enumerate(given):
            place = ("model", index)
            table = document.table(place, entry)
            pattern = table.get("name")
            if not (isinstance(pattern, str) and pattern):
                document.refuse(
                    (*place, "name"), 'a [[model]] needs a name: name = "FILE", or a pattern such as "bert*"'
                )
            settings = {key: value for key, value in table.items() if key != "name"}
            document.known(place, settings, [name for name in options if name != "model"], "a model has no option")
            found = self._axes(place, settings, options)
            called = [model for model in own if _is_called(str(model), pattern)]
            if not called:
                document.refuse((*place, "name"), f"name = {spelled(pattern)}: no model of [matrix] is called so")
            for model in called:
                own[model] |= found
                self._own_places |= {(model, name): place for name in found}
        return [{**axes, "model": [model], **changed} for model, changed in own.items()]

    def _cell(self, experiment: Experiment, choice: Mapping[str, Value], methods: tuple[Method, ...]) -> Cell:
        named = [choice, *(method.changed for method in methods)]
        texts = {value for values in named for value in values.values() if isinstance(value, str)}
        return Cell(
            experiment=experiment.name,
            version=experiment.version,
            values=_complete(experiment.options, choice),
            changed=_changed(experiment.options, choice),
            methods=methods,
            contents={text: self._contents[text] for text in texts if text in self._contents},
            title=", ".join(f"{name} {_plain(value)}" for name, value in choice.items()) or experiment.name,
        )

    def _check(self, experiment: Experiment, cell: Cell) -> None:
        try:
            experiment.check(cell)
        except OptionError as error:
            place, value = self._find_option(cell, error)
            shown = f"{error.option} = {spelled(value)}" if value is not None else error.option
            self._document.refuse(place, f"{shown}: {error.problem}")
        except InputError as error:
            self._document.refuse(("method",) if "method" in self._content else ("matrix",), str(error))

    def _find_option(self, cell: Cell, error: OptionError) -> tuple[Place, Value | None]:
        """Where the option that `error` blames stands, and its value."""
        place: Place = ("matrix",)
        table, values = self._content.get("matrix", {}), cell.values
        if error.method:
            place = self._places[error.method]
            table = self._content["method"][place[1]]
            values = next(method.values for method in cell.methods if method.label == error.method)
        elif own := self._own_places.get((cell.values.get("model") or "", error.option)):
            place, table = own, self._content["model"][own[1]]
        value, written = values.get(error.option), table.get(error.option)
        if isinstance(written, list) and value in written:
            return (*place, error.option, written.index(value)), value
        return (*place, error.option), value

    def _axes(self, place: Place, table: Mapping[str, Any], options: OptionsByName) -> Axes:
        """The values of each option that `table` sets, checked."""
        axes: Axes = {}
        for name, given in table.items():
            here = (*place, name)
            if given == []:
                self._document.refuse(here, f"{name} = []: the list is empty; name at least one value")
            values: list[Value] = []
            for index, value in enumerate(given if isinstance(given, list) else [given]):
                at = (*here, index) if isinstance(given, list) else here
                meant = self._expanded(at, name, options[name], value)
                for accepted in (self._accept(at, name, options[name], one) for one in meant):
                    if accepted not in values:
                        values.append(accepted)
                    elif len(meant) == 1:  # what patterns find may overlap
                        self._document.refuse(at, f"{name} = {spelled(accepted)}: stands twice in the list")
            axes[name] = values
        return axes

    def _expanded(self, place: Place, name: str, option: Option, value: object) -> Sequence[object]:
        """The values that `value` stands for; itself for most options."""
        if option.expand is None or not isinstance(value, str):
            return (value,)
        try:
            return option.expand(value)
        except InputError as error:
            self._document.refuse(place, f"{name} = {spelled(value)}: {str(error).removeprefix(f'{value}: ')}")

    def _accept(self, place: Place, name: str, option: Option, value: object) -> Value:
        try:
            accepted = option.accept(value)
            if isinstance(accepted, str):
                self._look_at(place, name, option, accepted)
        except InputError as error:
            problem = str(error).removeprefix(f"{value}: ")
            self._document.refuse(place, f"{name} = {spelled(value)}: {problem}")
        return accepted

    def _look_at(self, place: Place, name: str, option: Option, text: str) -> None:
        """Check that the model or file that an option names exists, and digest it."""
        if option.kind is OptionKind.MODEL:
            ref = parse_ref(text)
            self._models.setdefault(text, self._document.where(place) + f"{name} = {spelled(text)}: ")
            if ref.kind != ZOO:
                self._contents[text] = _content_of(Path(ref.source))
        if option.kind is OptionKind.FILE:
            if not Path(text).is_file():
                raise InputError("there is no such file; paths are relative to the working directory")
            self._contents[text] = _digest_of(Path(text))
        if option.files is not None and (files := option.files(text)):
            self._contents[text] = ",".join(_content_of(Path(file)) for file in files)


def _is_called(model: str, pattern: str) -> bool:
    """Whether a model's text, the name of its file or that without its ending is, or fits, the pattern."""
    path = Path(model)
    return any(name == pattern or fnmatchcase(name, pattern) for name in (model, path.name, path.stem))


def _complete(options: OptionsByName, choice: Mapping[str, Value]) -> dict[str, Value | None]:
    return {name: choice.get(name, option.default) for name, option in options.items()}


def _changed(options: OptionsByName, choice: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in choice.items() if value != options[name].default}


def _plain(value: Value) -> str:
    return spelled(value).strip('"')


def _content_of(path: Path) -> str:
    """The digest of a file, and after a comma that of the weights which an ONNX file keeps in others."""
    from kintune.models.digest import external_digest  # this imports numpy

    digest = _digest_of(path)
    if path.suffix != ".onnx":
        return digest
    try:
        weights = external_digest(path, own=True)
    except ModelError:  # whoever imports the model says what is wrong
        weights = ""
    return ",".join(filter(None, (digest, weights)))


def _digest_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return sha256_of(file).hex()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from error


T = TypeVar("T")


def product_of(axes: Mapping[str, Sequence[T]]) -> Iterator[dict[str, T]]:
    """Every choice of one value from each axis; the last axis varies fastest."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def size_of(axes: Mapping[str, Sequence[object]]) -> int:
    """How many choices `product_of` yields."""
    return math.prod(len(values) for values in axes.values())
