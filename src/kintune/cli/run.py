"""`kintune run`: run a tuned model on inputs from a file."""

from __future__ import annotations

import click
import msgspec
import numpy as np
import numpy.typing as npt

from kintune import api
from kintune.cli.arrays import read_arrays, write_arrays
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.files import check_writable

__all__ = ["OutputSummary", "RunDocument", "command"]


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


def _summarize(name: str, array: npt.NDArray[np.generic]) -> OutputSummary:
    values = array.astype(np.float64)
    ends = (float(values.min()), float(values.mean()), float(values.max())) if values.size else (0.0, 0.0, 0.0)
    return OutputSummary(name, array.shape, str(array.dtype), *ends)
