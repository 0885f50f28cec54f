"""The Python interface: load a model, tune it, build the result, run it.

    import kintune as kt

    model  = kt.load("resnet18.onnx")
    result = model.tune(trials=1000)
    exe    = result.open()
    exe.run({"input": x})

Tuning happens in other processes, so nothing here imports the compiler, except to open a result for a GPU.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from kintune.core.config import COMPILE_FIELDS, DEFAULT_TRIALS, PolicyName, TuneConfig
from kintune.core.failure_report import FailureReport
from kintune.core.model import ModelRef
from kintune.core.report import ProgressReport, RunReport
from kintune.errors import InputError, KintuneError, ModelError, OrderError, UncertainResult
from kintune.tuning.front.request import request_of

if TYPE_CHECKING:
    import torch

    from kintune.core.profile import Profile
    from kintune.runtime.executable import Executable
    from kintune.runtime.hybrid_executable import HybridExecutable
    from kintune.runtime.opening import AnyExecutable

__all__ = ["DEFAULT_TRIALS", "Model", "Result", "TuneConfig", "load", "outputs_of", "profile", "tune_all"]

Shapes = Mapping[str, Sequence[int] | Sequence[Sequence[int]]]
Inputs = str | os.PathLike[str] | Sequence[Mapping[str, Any]]


def load(
    source: str | os.PathLike[str] | torch.nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Model:
    """A model to be tuned.

    `source` is the path of an ONNX file or of a saved PyTorch exported program (`.pt2`), a name from the zoo
    (`"zoo:resnet18"`), or a PyTorch module, which needs `example_inputs`: its arguments, in order or by name.  `shapes`
    fixes the inputs whose dimensions are dynamic: `{"input": (1, 3, 224, 224)}`.  With a list of shapes, the result
    runs with each of them: `{"ids": [(1, 32), (1, 64)]}`.  Lists of several inputs go together, the first shape with
    the first, and make at most 16 combinations.  `constants` fixes the values of inputs, which are then no inputs of
    the result; the values are numbers, lists, arrays, or paths of `.npy` files.

    Of a file, only the kind is checked here; errors in its content are found when the model is tuned or compiled.

    Raises:
        ModelError: the model cannot be used, or PyTorch cannot export the module; `ShapeError` where a shape is wrong.
        InputError: a constant is no tensor.
        OrderError: a PyTorch module comes without example inputs.
    """
    from kintune.models.combinations import combine_shapes, read_shapes
    from kintune.models.constants import constant_of

    fixed = {name: constant_of(name, value) for name, value in (constants or {}).items()}
    if isinstance(source, (str, os.PathLike)):
        combinations = combine_shapes(read_shapes(shapes or {}))
        ref = msgspec.structs.replace(Model.parse(os.fspath(source)).ref, constants=fixed)
        return Model(ref.with_combinations(combinations))
    if not _is_torch_module(source):
        raise ModelError(
            f"a {type(source).__name__} is not a model; pass the path of an ONNX file, 'zoo:NAME' or a PyTorch module"
        )
    if shapes:
        raise OrderError("shapes are for files; a PyTorch module takes its shapes from example_inputs")
    if example_inputs is None:
        raise OrderError("a PyTorch module needs example inputs first: kt.load(module, example_inputs=(x,))")
    from kintune.models.torch_export import export_module

    return Model(msgspec.structs.replace(export_module(source, example_inputs), constants=fixed))


class Model:
    """A model that can be tuned; `ref` says where it comes from."""

    def __init__(self, ref: ModelRef) -> None:
        self.ref = ref

    @classmethod
    def parse(cls, text: str, shapes: Sequence[str] = (), constants: Sequence[str] = ()) -> Model:
        """A model as the command line writes it.

        `text` is a path or `zoo:NAME`; shapes are written as `input=1x3x224x224` or `ids=1x{32,64}`,
        constants as `sizes=1,3,8,8`.

        Raises:
            ModelError: there is no such file or network; `ShapeError` where a shape does not read so.
            InputError: a constant does not read so.
        """
        from kintune.models.constants import parse_constants
        from kintune.models.ref import parse_ref

        return cls(parse_ref(text, list(shapes), constants=parse_constants(constants)))

    def __repr__(self) -> str:
        return f"Model({self.name!r})"

    @property
    def name(self) -> str:
        """The model's name, which also names the executable unless told otherwise."""
        return self.ref.name

    def tune(
        self,
        target: str | None = None,
        *,
        config: TuneConfig | None = None,
        progress: bool | Callable[[ProgressReport], None] = True,
        **options: Any,
    ) -> Result:
        """Search for faster programs and write the best to `output` (`NAME.kt` in the working directory by default).

        Options are the fields of `TuneConfig`, by name or as a `config`; those that are named replace its own.  The
        search ends when `trials` programs were measured, after `minutes`, or once the network is estimated to take at
        most `until` (milliseconds, or a text such as `"onnxruntime*0.8"`), whichever comes first; with none of the
        three it is 1000 trials.  What earlier runs measured is reused, and an unfinished run of the same model, target
        and options goes on, unless `fresh`.

        `inputs` is the path of an `.npz` file or of a directory of such files, or a list of mappings of names to
        arrays, one for each set of inputs; so is `calibrate`.  Progress is shown on the terminal, or not if `progress`
        is False; a function is called with each report instead.

        Ctrl-C ends the search and keeps its result.  Subgraphs that share a cost model follow FamilySeer
        (arXiv 2201.00194), the choice of the next subgraph Ansor (Zheng et al., OSDI 2020).

        Raises:
            InputError: something handed in is wrong.  What can be found without the compiler is raised before any
                work; what is wrong in the model comes after its import.
            JobFailed: nothing could be measured.
            NumericsError: the result does not compute what the model computes.
            UncertainResult: with `strict`, the result was written, but not all of it was compared.
            StorageError: records or the result cannot be written; the same call goes on later.
            EngineError: a process cannot be started.
            TypeError: an option has an unknown name.
        """
        return self._run(_config(config, target, options), progress, search=True)

    def compile(
        self,
        target: str | None = None,
        *,
        config: TuneConfig | None = None,
        progress: bool | Callable[[ProgressReport], None] = True,
        **options: Any,
    ) -> Result:
        """Compile without measuring anything, in seconds, and write the executable to `output`.

        Each subgraph gets the fastest program that the records know for this device, else the first one of the rule,
        else the compiler's default.  The executable runs once, and its outputs are compared with onnxruntime's or
        PyTorch's.  With a narrower precision, or weights of fewer bits, the error of its outputs is measured, and it is
        timed against the network in fp32.  Options are those fields of `TuneConfig` that `COMPILE_FIELDS` names, as for
        `tune`.

        Raises:
            InputError: something handed in is wrong, or the model cannot be compiled.
            JobFailed: the work could not be done.
            NumericsError: the result does not compute what the model computes.
            UncertainResult: with `strict`, the result was written, but not all of it was compared.
            StorageError: records or the result cannot be written.
            EngineError: a process cannot be started.
            TypeError: an option is not among `COMPILE_FIELDS`.
        """
        wrong = sorted(set(options) - {*COMPILE_FIELDS})
        if wrong:
            raise TypeError(f"compile() takes no option {wrong[0]!r}; it takes: {', '.join(COMPILE_FIELDS)}")
        return self._run(_config(config, target, options), progress, search=False)

    def _run(
        self,
        config: Mapping[str, Any],
        progress: bool | Callable[[ProgressReport], None],
        *,
        search: bool,
    ) -> Result:
        from kintune.tuning.front import driver

        with _as_files(config["inputs"]) as files, _as_files(config["calibrate"]) as calibration:
            given = {**config, "inputs": files, "calibrate": calibration}
            request = request_of(self.ref, TuneConfig(**given), search=search)
            with _watching(progress, f"{_titled(self.ref)}, target {request.target}") as watch:
                report = driver.tune(request, watch)
        if config["strict"]:
            refuse_doubts(report)
        return Result(report)


class Result:
    """A finished tuning run: its `report`, and the way to the executable."""

    def __init__(self, report: RunReport) -> None:
        self.report = report

    def __repr__(self) -> str:
        from kintune.terminal.comparison import describe_result

        said = describe_result(self.report.latency_ms)
        return f"Result({self.report.model.name!r}{f', {said}' if said else ''})"

    def open(self) -> AnyExecutable:
        """The executable with the best programs found, opened from where the run has written it.

        Raises:
            InputError: as for `kintune.open`: the file was removed since, for example.
        """
        from kintune.runtime.opening import open

        return open(self.report.output)


def profile(
    executable: str | os.PathLike[str] | Executable | HybridExecutable,
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    model: str | Model | None = None,
    threads: int = 0,
    runs: int = 50,
) -> Profile:
    """Where the time of a compiled network goes, by the nodes of the user's model.

    `executable` is one for this machine's CPU, or the path of its file; `inputs` are arrays by name, or the path of an
    `.npz` file, and drawn at random by default.  With a `model`, the path of the ONNX file that it was made of or the
    name of a network of the zoo, onnxruntime runs beside it, and its times stand beside those of the same nodes.
    `threads` is 0 for those it was tuned for; whole runs are timed `runs` times, within a few seconds.  Everything runs
    in processes of its own.  Of a result that runs partly in onnxruntime, the nodes there are calls as well.

    What bounds a call follows from the roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): the peak of the
    machine in arithmetic and in reading memory, which is measured first.

    Raises:
        InputError: something handed in is wrong, or the executable is for a GPU or another CPU, or needs onnxruntime,
            which is missing.
        EngineError: the network does not run.
    """
    from kintune.profiling.collect import ProfileRequest, profile_executable

    if runs < 1 or threads < 0:
        raise InputError(f"profile needs at least 1 run and no negative threads, got {runs} and {threads}")
    ref = Model.parse(model).ref if isinstance(model, str) else None if model is None else model.ref
    with tempfile.TemporaryDirectory(prefix="kintune-profile-") as directory:
        if isinstance(executable, (str, os.PathLike)):
            path = os.fspath(executable)
        else:
            path = os.path.join(directory, "executable.kt")
            executable.save(path)
        file = None if inputs is None else os.path.join(directory, "inputs.npz")
        if isinstance(inputs, (str, os.PathLike)):
            file = os.fspath(inputs)
        elif inputs is not None and file is not None:
            from kintune.runtime.inputs import write_arrays

            write_arrays(Path(file), inputs)
        return profile_executable(ProfileRequest(path, file, ref, threads, runs))


@overload
def tune_all(
    models: Sequence[Model], target: str | None = None, *, return_exceptions: Literal[True], **settings: Any
) -> list[Result | KintuneError]: ...


@overload
def tune_all(
    models: Sequence[Model], target: str | None = None, *, return_exceptions: Literal[False] = ..., **settings: Any
) -> list[Result]: ...


def tune_all(
    models: Sequence[Model],
    target: str | None = None,
    *,
    config: TuneConfig | None = None,
    policy: PolicyName = "predictive",
    priorities: Sequence[float] | None = None,
    bundling: bool = False,
    pipelined: bool = True,
    schedule: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, ProgressReport], None] = True,
    on_failure: Callable[[int, FailureReport], None] | None = None,
    return_exceptions: bool = False,
    **options: Any,
) -> list[Result] | list[Result | KintuneError]:
    """Tune several models at once on this machine, and return the result of each, in their order.

    One that fails does not end the others.  When all are over, the first error is raised; with `return_exceptions`, its
    place in the list holds the error instead.  Options are those of `Model.tune`; `output` is the directory that the
    executables go to (the working directory by default), or, for a single model, the file.  `policy` says which model
    goes first when several could; `priorities` has a number for each model: of what is scarce, one of priority 2 gets
    twice as much as one of priority 1.  With `bundling`, a model keeps a resource that its next step wants as well;
    `pipelined` models prepare a round while another is measured, where the device is not the host.  What the scheduler
    is told and decides is recorded in the file `schedule`.  `on_failure` is called with the number of a model without a
    result (from 0), and the report of its run.

    Raises:
        InputError: something is wrong with what is asked; it is raised before any work.
        StorageError: records cannot be written.
        EngineError: a process cannot be started.
        KintuneError: a model failed, and `return_exceptions` was not set; as for `Model.tune`.
        TypeError: an option has an unknown name.
    """
    from kintune.tuning.front.driver import Scheduling, tune_all

    chosen = _config(config, target, options)
    outputs = outputs_of(models, chosen["output"])
    shares = priorities if priorities is not None else [1.0] * len(models)
    if len(shares) != len(models):
        raise InputError(f"priorities: there are {len(shares)} of them for {len(models)} models; name one for each")
    with _as_files(chosen["inputs"]) as files, _as_files(chosen["calibrate"]) as calibration:
        given = {**chosen, "inputs": files, "calibrate": calibration}
        requests = [
            request_of(model.ref, TuneConfig(**{**given, "output": os.fspath(out), "priority": priority}))
            for model, out, priority in zip(models, outputs, shares, strict=True)
        ]
        log = None if schedule is None else os.fspath(schedule)
        scheduling = Scheduling(policy, bundling=bundling, pipelined=pipelined, log=log)
        names = [_titled(model.ref) if len(models) == 1 else model.name for model in models]
        with _watching_all(progress, chosen["target"], policy, names) as watch:
            endings = [_accepted(each, chosen) for each in tune_all(requests, scheduling, watch, on_failure)]
    failed = next((ending for ending in endings if isinstance(ending, KintuneError)), None)
    if failed is not None and not return_exceptions:
        raise failed
    return [ending if isinstance(ending, KintuneError) else Result(ending) for ending in endings]


def refuse_doubts(report: RunReport) -> None:
    """Refuse a result that not all of was compared, or whose numbers are uncertain.

    Raises:
        UncertainResult: it is such a result.
    """
    if report.doubts:
        raise UncertainResult(f"{report.output} was written", report.doubts)


def _accepted(ending: RunReport | KintuneError, config: Mapping[str, Any]) -> RunReport | KintuneError:
    """The ending; with `strict`, an error in place of a result that is not accepted."""
    if isinstance(ending, KintuneError) or not config["strict"] or not ending.doubts:
        return ending
    return UncertainResult(f"{ending.output} was written", ending.doubts)


def _config(config: TuneConfig | None, target: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the configuration by name; paths are texts, `inputs` and `calibrate` may still be arrays.

    Raises:
        TypeError: an option has an unknown name.
    """
    chosen = msgspec.structs.asdict(config or TuneConfig())
    unknown = [name for name in options if name not in chosen]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; there are: {', '.join(chosen)}")
    chosen.update({} if target is None else {"target": target}, **options)
    if isinstance(chosen["until"], int | float):  # milliseconds
        chosen["until"] = str(chosen["until"])
    for name in ("records", "output", "log"):
        chosen[name] = None if chosen[name] is None else os.fspath(chosen[name])
    return chosen


def _titled(ref: ModelRef) -> str:
    """The title of a model in displays."""
    count = len(ref.combinations)
    return ref.name if count == 1 else f"{ref.name} (one run with each of {count} combinations of shapes)"


def outputs_of(models: Sequence[Model], output: str | os.PathLike[str] | None) -> list[str | os.PathLike[str]]:
    """Return the path of each model's executable: `output` for a single model, else files in the directory `output`.

    Raises:
        InputError: there are several models, and `output` is not a directory.
    """
    if len(models) == 1:
        return [output or f"{models[0].name}.kt"]
    directory = output or "."
    if not os.path.isdir(directory):
        raise InputError(f"the output {directory} is not a directory; create it first, the executables go into it")
    return [os.path.join(directory, f"{model.name}.kt") for model in models]


def _is_torch_module(source: object) -> bool:
    """Whether this is a PyTorch module, found out without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


@contextlib.contextmanager
def _as_files(inputs: Inputs | None) -> Iterator[str | None]:
    """Yield the path of the inputs' file or directory; arrays are written to a directory that is removed at the end.

    Raises:
        InputError: the inputs are neither a path nor mappings of names to arrays.
    """
    if inputs is None or isinstance(inputs, (str, os.PathLike)):
        yield None if inputs is None else os.fspath(inputs)
        return
    from kintune.runtime.inputs import write_arrays

    sets = [inputs] if isinstance(inputs, Mapping) else list(inputs)
    if not sets or not all(isinstance(one, Mapping) for one in sets):
        raise InputError("inputs must be a path, or a list of one or more mappings of input names to arrays")
    with tempfile.TemporaryDirectory(prefix="kintune-inputs-") as directory:
        for number, one in enumerate(sets):
            write_arrays(Path(directory, f"inputs[{number:0{len(str(len(sets) - 1))}}].npz"), one)
        yield directory


@contextlib.contextmanager
def _watching(
    progress: bool | Callable[[ProgressReport], None], title: str
) -> Iterator[Callable[[ProgressReport], None]]:
    if callable(progress):
        yield progress
        return
    from kintune.terminal.display import open_display

    with contextlib.closing(open_display(title, quiet=not progress)) as display:
        yield display.show


@contextlib.contextmanager
def _watching_all(
    progress: bool | Callable[[int, ProgressReport], None], target: str, policy: str, names: Sequence[str]
) -> Iterator[Callable[[int, ProgressReport], None]]:
    if callable(progress):
        yield progress
    elif len(names) == 1:
        with _watching(progress, f"{names[0]}, target {target}") as watch:
            yield lambda _, report: watch(report)
    else:
        from kintune.terminal.display import open_fleet_display

        title = f"{len(names)} models, target {target}, policy {policy}"
        with contextlib.closing(open_fleet_display(title, names, quiet=not progress)) as display:
            yield display.show
