"""Sessions of onnxruntime in which Kintune's operators are registered; onnxruntime is imported when one is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from .denormals import Flushing
from .errors import InputError, RunError
from .session_folder import LIBRARY, MODEL, SessionFolder

__all__ = ["import_onnxruntime", "make_session", "raise_run_error"]

_OLDEST = (1, 12)
_SILENT = 4  # a level of messages: what onnxruntime reports as an error is raised as well

_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_NODE = re.compile(r"^Non-zero status code returned while running (\S+) node\. Name:'(.*?)' Status Message: (.*)$")
_INPUT_ERRORS = ("InvalidArgument",)
"""Names of onnxruntime's exceptions that say that something given is wrong."""


def import_onnxruntime() -> Any:
    """The module.

    Raises:
        InputError: it is missing, too old, or cannot be imported.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise InputError(f"onnxruntime cannot be imported: {_one_line(error)}; install it again") from error
        raise InputError("this result runs partly in onnxruntime: pip install onnxruntime") from None
    except ImportError as error:
        raise InputError(f"onnxruntime cannot be imported: {_one_line(error)}; install it again") from error
    version = str(getattr(onnxruntime, "__version__", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST:
        raise InputError(
            f"this result runs partly in onnxruntime, {version or 'an unknown version'} of which is installed, and"
            f" {_OLDEST[0]}.{_OLDEST[1]} or later is needed: pip install --upgrade onnxruntime"
        )
    return onnxruntime


def make_session(
    folder: Path,
    path: str,
    graph: bytes,
    threads: int,
    extents: Mapping[str, int],
    profile: bool = False,
    flush: bool = True,
) -> Any:
    """A session of the host graph on this machine's CPU.

    `folder` is that of a `SessionFolder`, `path` the file that users know; `extents` are those of the graph's names of
    extents.  With `profile`, the times of its nodes go to a file in the folder.  With `flush`, its threads flush
    denormal numbers to zero; the thread that runs it does so only within `Flushing`.

    Raises:
        InputError: the file is damaged, or this CPU cannot run its regions; onnxruntime is missing, too old, or cannot
            load the library.
    """
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _SILENT
    options.add_session_config_entry("session.set_denormal_as_zero", "1" if flush else "0")
    for name, extent in extents.items():
        options.add_free_dimension_override_by_name(name, extent)
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
    try:
        options.register_custom_ops_library(str(folder / LIBRARY))
    except Exception as error:
        text = _one_line(error)
        own = str(folder / MODEL)
        if own in text:  # what the runtime says of the file
            raise InputError(text.replace(own, path)) from error
        raise InputError(
            f"onnxruntime {onnxruntime.__version__} cannot load {LIBRARY}: {text}; if programs may not run from"
            f" {folder.parent}, name another folder in TMPDIR, else install kintune-runtime again"
        ) from error
    try:
        with Flushing(flush):  # threads inherit it; a process's first session also changes the thread that makes it
            return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InputError(f"{path}: onnxruntime {onnxruntime.__version__} refuses it: {_one_line(error)}") from error


def raise_run_error(error: Exception, folder: SessionFolder | None, path: str) -> NoReturn:
    """Raise what onnxruntime said of a run, in one line that begins with the name of the node.

    The file that was opened by the link in `folder` is called by its path.

    Raises:
        InputError: something given is wrong.
        RunError: all else.
    """
    text = _one_line(error)
    if folder is not None:
        text = text.replace(str(folder.path / MODEL), path)
    if found := _NODE.match(text):
        operator, name, said = found.groups()
        text = f"{name or operator}: {said}"
    if type(error).__name__ in _INPUT_ERRORS:
        raise InputError(text) from error
    raise RunError(text) from error


def _one_line(error: BaseException) -> str:
    return _CODE.sub("", " ".join(str(error).split()))
