"""A comparison in 8 bits: the inputs to quantise with, and the file that other runtimes run.

Other runtimes run what onnxruntime's quantiser makes of the model with its usual settings: all operators that it knows,
weights for each channel, QDQ.  They fuse more of that than of a file in which only some layers are quantised.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kintune.core.model import Combination, Tensor
from kintune.errors import ModelError, cause_line
from kintune.files import readable_files
from kintune.models.quantisation.quantiser import SetsReader, check_unquantised, prepared_model
from kintune.models.quiet import quiet
from kintune.runtime.inputs import draw_inputs, load_fitting, write_arrays

__all__ = ["DRAWN", "calibration_files", "write_quantised"]

DRAWN = "drawn"
"""Given in place of files if sets of inputs are to be drawn."""

_SETS = 8
_FIRST_SEED = 1000


def calibration_files(wanted: str, tensors: Sequence[Tensor], directory: Path, seed: int) -> tuple[str, ...]:
    """The files with sets of inputs: those of the user, or eight that are drawn and written to `directory`.

    Raises:
        InputError: there are none, or one cannot be read.
    """
    if wanted != DRAWN:
        return tuple(map(str, readable_files(wanted, ".npz", "the calibration files")))
    directory.mkdir(exist_ok=True)
    paths = [directory / f"inputs{number}.npz" for number in range(_SETS)]
    for number, path in enumerate(paths):
        write_arrays(path, draw_inputs(tensors, seed + _FIRST_SEED + number))
    return tuple(map(str, paths))


def write_quantised(model: Path, tensors: Sequence[Tensor], files: Sequence[str], written: Path) -> None:
    """Write the model as onnxruntime's quantiser makes it by default, with ranges found on these sets of inputs.

    Raises:
        InputError: a file does not fit the model.
        ModelError: the model is quantised already, or cannot be.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    check_unquantised(model)

    def sets() -> Iterator[dict[str, Any]]:
        for file in files:
            _, arrays = load_fitting([Combination(tuple(tensors), ())], file)
            yield {tensor.name: array for tensor, array in zip(tensors, arrays, strict=True)}

    with tempfile.TemporaryDirectory(prefix="kintune-quantised-", dir=written.parent) as directory, quiet():
        try:
            _, prepared = prepared_model(model, Path(directory))
            quantize_static(
                str(prepared),
                str(written),
                SetsReader(sets(), [tensor.name for tensor in tensors]),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        except Exception as error:  # onnxruntime raises its own kinds
            raise ModelError(f"{model}: onnxruntime's quantiser fails: {cause_line(error)}") from error
