"""`kintune run`: run a tuned model on inputs from a file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec
import numpy as np
import numpy.typing as npt

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.errors import InputError
from kintune.files import check_readable, check_writable, write_whole

__all__ = ["OutputSummary", "RunDocument", "command"]

Arrays = dict[str, npt.NDArray[np.generic]]


class OutputSummary(msgspec.Struct, frozen=True):
    """One output: its shape and dtype, and the smallest, mean and largest of its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float
    mean: float
    maximum: float


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune run --json`; `output` is where the arrays were written, if anywhere."""

    schema_version: int = 1
    executable: str
    outputs: tuple[OutputSummary, ...]
    output: str | None


@click.command("run", short_help="Run a tuned model on inputs from a file.")
@click.argument("executable", metavar="FILE.kt")
@click.option("--input", "inputs", metavar="FILE.npz", required=True, help="The inputs, an array by each input's name.")
@click.option("--output", metavar="FILE.npz", help="Write the outputs here, by their names.")
@json_option
def command(executable: str, inputs: str, output: str | None, json_target: JsonTarget) -> None:
    """Run the tuned model FILE.kt once on inputs from a file, and describe or write its outputs.

    FILE.kt holds machine code: run only what you trust.
    """
    target = None if output is None else check_writable(output, "--output")
    arrays = read_arrays(inputs)
    results = api.open(executable).run(arrays)
    if target is not None:
        write_arrays(target, results)
    summaries = tuple(_summarize(name, array) for name, array in results.items())
    document = RunDocument(executable=executable, outputs=summaries, output=None if target is None else str(target))
    write_document(json_target, document)
    for said in summaries:
        shape = "x".join(str(extent) for extent in said.shape) or "scalar"
        values = f"min {said.minimum:g}, mean {said.mean:g}, max {said.maximum:g}"
        echo(f"{said.name}: {said.dtype} {shape}, {values}", json_target)
    if target is not None:
        echo(f"The outputs are in {target}", json_target)


def read_arrays(path: str) -> Arrays:
    """The arrays of an `.npz` file by name.  Raises InputError when it is none; Python objects in it are refused."""
    file = check_readable(path, "--input")
    try:
        with np.load(file, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"--input {path} holds one unnamed array; write it with np.savez(path, NAME=array)")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"--input {path} is not a readable .npz file ({error}); write it with np.savez") from error


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write arrays as an `.npz` file, all at once."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    write_whole(path, buffer.getvalue())


def _summarize(name: str, array: npt.NDArray[np.generic]) -> OutputSummary:
    values = array.astype(np.float64)
    ends = (float(values.min()), float(values.mean()), float(values.max())) if values.size else (0.0, 0.0, 0.0)
    return OutputSummary(name, array.shape, str(array.dtype), *ends)
