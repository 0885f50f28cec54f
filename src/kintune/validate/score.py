"""The user's own score of a network, computed by his function in a process of its own.

`python -m kintune.validate.score ORDER RESULT` reads the order, a JSON file, and writes the score or what went wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import math
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kintune.core.config import Metric
from kintune.errors import InputError
from kintune.runtime.inputs import Array

__all__ = ["ScoreOrder", "main", "score"]

_PATIENCE_S = 1800.0

_Run = Callable[[Mapping[str, Any]], dict[str, Array]]


class ScoreOrder(msgspec.Struct, frozen=True):
    """Score the network in an ONNX file, a PyTorch exported program, or an executable; exactly one of them is given.

    `held_back` asks a function that has a parameter of this name for the data that no choice has seen.
    """

    metric: Metric
    threads: int
    onnx: str | None = None
    exported: str | None = None
    executable: str | None = None
    held_back: bool = False


class _Scored(msgspec.Struct, frozen=True):
    """The answer: a score, or one line on what went wrong."""

    score: float | None = None
    failure: str = ""


def score(order: ScoreOrder, log: Path | None = None) -> float:
    """Return the score of a network.  What the function prints is added to `log`, or else goes to standard error.

    Raises:
        InputError: the function cannot be found, raises, or returns no number; the line says so.
    """
    with tempfile.TemporaryDirectory(prefix="kintune-score-") as directory, _printing_to(log) as printed:
        asked, answered = Path(directory, "order.json"), Path(directory, "score.json")
        asked.write_bytes(msgspec.json.encode(order))
        command = [sys.executable, "-m", "kintune.validate.score", str(asked), str(answered)]
        folder = order.metric.folder
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, cwd=folder) as process:
            try:
                code = process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                _kill_with_children(process.pid)
                raise InputError(f"metric {order.metric.name}: it took more than {_PATIENCE_S:.0f} s") from None
            except BaseException:
                _kill_with_children(process.pid)
                raise
        if not answered.exists():
            raise InputError(f"metric {order.metric.name}: its process ended with code {code}")
        answer = msgspec.json.decode(answered.read_bytes(), type=_Scored)
    if answer.score is None:
        raise InputError(f"metric {order.metric.name}: {answer.failure}")
    return answer.score


def _kill_with_children(pid: int) -> None:
    """Kill a process and all that it has started, such as the workers that load its data.

    It stays in the process group of its job, which is killed as a whole when the job is called off.
    """
    import psutil  # slow to import

    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


@contextlib.contextmanager
def _printing_to(log: Path | None) -> Iterator[int]:
    if log is None:
        yield sys.stderr.fileno()
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        yield file.fileno()


def main(argv: Sequence[str]) -> None:
    """Carry out one order."""
    order = msgspec.json.decode(Path(argv[0]).read_bytes(), type=ScoreOrder)
    try:
        answer = _Scored(_scored(order))
    except InputError as error:
        answer = _Scored(failure=str(error))
    except Exception as error:  # the user's function raises anything
        traceback.print_exc()
        answer = _Scored(failure=f"it raised {type(error).__name__}: {' '.join(str(error).split())}")
    Path(argv[1]).write_bytes(msgspec.json.encode(answer))


def _scored(order: ScoreOrder) -> float:
    function = _function(order.metric)
    run = _runner(order)
    knows = "held_back" in inspect.signature(function).parameters
    found = function(run, held_back=order.held_back) if knows else function(run)
    try:
        number = float(found)
    except (TypeError, ValueError):
        raise InputError(f"it returned {type(found).__name__} instead of a number") from None
    if not math.isfinite(number):
        raise InputError(f"it returned {number}, which is not a valid score")
    return number


def _function(metric: Metric) -> Callable[..., Any]:
    """The user's function.

    Raises:
        InputError: there is none of this name.
    """
    sys.path.insert(0, metric.folder)
    if metric.module.endswith(".py"):
        spec = importlib.util.spec_from_file_location("kintune_metric", Path(metric.folder, metric.module))
        if spec is None or spec.loader is None or not Path(metric.folder, metric.module).is_file():
            raise InputError(f"there is no file {metric.module}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(metric.module)
        except ModuleNotFoundError as error:
            raise InputError(f"there is no module {error.name}") from None
    function = getattr(module, metric.function, None)
    if not callable(function):
        raise InputError(f"{metric.module} has no function {metric.function}")
    found: Callable[..., Any] = function
    return found


def _runner(order: ScoreOrder) -> _Run:
    """What the user's function runs the network with: arrays by name in, arrays by name out."""
    if order.executable is not None:
        from kintune.runtime import opening

        executable = opening.open(order.executable)
        return lambda inputs: executable.run(inputs, threads=order.threads)
    if order.exported is not None:
        from kintune.validate.baselines import BaselineModel
        from kintune.validate.baselines.torch_compile import TorchCompile

        program = TorchCompile(exact=True)
        program.load(BaselineModel(exported=order.exported), order.threads)
        return program.run_named
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = order.threads
    session = onnxruntime.InferenceSession(order.onnx, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, dict(inputs)), strict=True))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
