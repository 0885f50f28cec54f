"""Checks the models and inputs of requests before any resource is asked for, without the compiler."""

from __future__ import annotations

from kintune.core.capabilities import capabilities_named
from kintune.hardware.cpu import host_extensions, inspect_machine
from kintune.hardware.narrow_instructions import require_instructions
from kintune.models.assumed_shapes import possible_inputs
from kintune.models.ref import EXPORTED
from kintune.runtime.inputs import load_fitting
from kintune.tuning.front.placement import DEVICE
from kintune.tuning.front.request import TuneRequest

__all__ = ["check_inputs"]

_NATIVE = "native"


def check_inputs(request: TuneRequest, *, exported: bool = False) -> None:
    """Check the model's file, its shapes and constants, the files of inputs, and the precision of a request.

    Programs of PyTorch are checked only if `exported` programs are to be: opening one takes seconds.  A precision is
    checked for this machine's own CPU; the job checks it for others.

    Raises:
        InputError: something is wrong; `ModelError`, `ShapeError` and `TargetError` are among its kinds.
    """
    extensions = host_extensions()
    if extensions is not None and request.target == _NATIVE and request.device.startswith(DEVICE):
        require_instructions(request.options.precision, extensions, inspect_machine().cpu)
    if (request.model.kind == EXPORTED) != exported:
        return
    can = capabilities_named(request.device, request.target)
    combinations = possible_inputs(request.model, request.options, can, calibrated=bool(request.calibration))
    for path in (*request.inputs, *request.calibration):
        load_fitting(combinations, path)
