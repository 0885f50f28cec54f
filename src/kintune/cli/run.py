"""`kintune run`: run a tuned model on inputs from a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import numpy.typing as npt

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import trusted_option
from kintune.errors import InputError
from kintune.files import check_readable, check_writable, expanded, readable_files
from kintune.runtime import opening
from kintune.runtime.inputs import is_strings, load_fitting, load_inputs, write_arrays

__all__ = ["OutputSummary", "RunDocument", "command", "read_arrays"]


_KINDS = ("sequence", "map", "none", "other")


class OutputSummary(msgspec.Struct, frozen=True):
    """One output: its shape and dtype, and the smallest, mean and largest of its values, None where it has no numbers.

    What is no tensor has the dtype "sequence", "map", "none" or "other", and is not written to a file.
    `input` is the file that it was computed from, where there are several.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    mean: float | None
    maximum: float | None
    input: str | None = None


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune run --json`; `output` is the file or directory that arrays were written to, if any."""

    schema_version: int = 1
    executable: str
    outputs: tuple[OutputSummary, ...]
    output: str | None


@click.command("run", short_help="Run a tuned model on inputs from a file.")
@click.argument("executable", metavar="FILE.kt")
@click.option(
    "--input",
    "inputs",
    metavar="FILE.npz|DIR",
    required=True,
    help="The inputs, an array by each input's name; or a directory of such files, which are all run.",
)
@click.option(
    "-o", "--output", metavar="FILE.npz|DIR", help="Write the outputs here, by their names; to files of the same names."
)
@trusted_option
@json_option
def command(executable: str, inputs: str, output: str | None, trusted: str | None, json_target: JsonTarget) -> None:
    """Run the tuned model FILE.kt once on inputs from a file, and describe or write its outputs.

    With a directory of files, it runs once on each, and the outputs go to files of the same names in another one.

    FILE.kt holds machine code: run only what you trust.
    """
    if not os.path.isdir(expanded(inputs)):
        target = None if output is None else check_writable(output, "--output", stream=True)
        results = opening.open(executable, trusted=trusted).run(read_arrays(inputs))
        if target is not None:
            write_arrays(target, _tensors(results))
        summaries = [_summarize(name, array) for name, array in results.items()]
    else:
        target = None if output is None else _directory(output, inputs)
        summaries = list(
            _run_all(opening.open(executable, trusted=trusted), readable_files(inputs, ".npz", "--input"), target)
        )
    document = RunDocument(
        executable=executable, outputs=tuple(summaries), output=None if target is None else str(target)
    )
    write_document(json_target, document)
    for said in summaries:
        source = "" if said.input is None else f"{said.input}: "
        echo(f"{source}{said.name}: {_described(said)}", json_target)
    if target is not None:
        left_out = dict.fromkeys(said.name for said in summaries if said.dtype in _KINDS)
        without = f", without {', '.join(left_out)}, which .npz files cannot hold" if left_out else ""
        echo(f"The outputs are in {target}{without}", json_target)


def _described(output: OutputSummary) -> str:
    if output.dtype in _KINDS:
        return f"{output.dtype} of {output.shape[0]}" if output.shape else output.dtype
    shape = "x".join(str(extent) for extent in output.shape) or "scalar"
    if output.mean is None:
        return f"{output.dtype} {shape}"
    return f"{output.dtype} {shape}, min {output.minimum:g}, mean {output.mean:g}, max {output.maximum:g}"


def _tensors(results: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in results.items() if isinstance(value, np.ndarray)}


def _directory(output: str, inputs: str) -> Path:
    """The directory for outputs, which may be there.

    Raises:
        InputError: it cannot be, or is that of the inputs.
    """
    target = expanded(output).absolute()
    if os.path.exists(target) and not target.is_dir():
        raise InputError(f"--output {output} is a file; name a directory, as --input is one")
    if os.path.exists(target) and target.samefile(expanded(inputs)):
        raise InputError(f"--output {output} is the directory of the inputs, which would be overwritten; name another")
    check_writable(target / ".npz" if os.path.isdir(target) else target, "--output")
    return target


def _run_all(opened: Any, files: Sequence[Path], target: Path | None) -> Iterator[OutputSummary]:
    """Run on each file, all of which are looked at first; write the outputs to files of the same names in `target`."""
    combinations = opened.manifest.combinations
    for file in files:
        load_fitting(combinations, file)
    if target is not None:
        target.mkdir(exist_ok=True)
    for file in files:
        results = opened.run(*load_fitting(combinations, file)[1])
        if target is not None:
            write_arrays(target / file.name, _tensors(results))
        for name, array in results.items():
            yield _summarize(name, array, file.name)


def _summarize(name: str, array: Any, source: str | None = None) -> OutputSummary:
    if not isinstance(array, np.ndarray):
        kind = {list: "sequence", dict: "map", type(None): "none"}.get(type(array), "other")
        shape = (len(array),) if isinstance(array, list | dict) else ()
        return OutputSummary(name, shape, kind, None, None, None, source)
    if is_strings(array):
        return OutputSummary(name, array.shape, "string", None, None, None, source)
    values = array.astype(np.float64)
    ends = (float(values.min()), float(values.mean()), float(values.max())) if values.size else (0.0, 0.0, 0.0)
    return OutputSummary(name, array.shape, str(array.dtype), *ends, source)


def read_arrays(path: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an `.npz` file by name.

    Raises:
        InputError: it is none; Python objects in it are refused.
    """
    check_readable(path, "--input")
    try:
        return load_inputs(expanded(path))
    except InputError as error:
        raise InputError(f"--input {error}; write it with np.savez(path, NAME=array)") from error
