"""The runtimes that a tuned network is compared with, each behind `Baseline`; none is imported before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kintune.core.measurement_protocol import DeviceType
from kintune.errors import InputError
from kintune.validate.baselines.baseline import Baseline, BaselineModel
from kintune.validate.baselines.kintune_executable import KintuneExecutable
from kintune.validate.baselines.onnx_runtime import OnnxRuntime, OnnxRuntimeFlushing
from kintune.validate.baselines.open_vino import OpenVino, OpenVinoBf16
from kintune.validate.baselines.quantised_runtimes import OnnxRuntimeInt8, OpenVinoInt8
from kintune.validate.baselines.torch_compile import TorchCompile, TorchFlushing

__all__ = [
    "BASELINES",
    "FLUSHING",
    "INT8",
    "KINTUNE",
    "Baseline",
    "BaselineModel",
    "make_baseline",
    "run_on",
    "takes",
]

KINTUNE = "kintune"
"""The name of Kintune's own executables among the baselines."""

INT8 = ("onnxruntime_int8", "openvino_int8")
"""The runtimes that run a model as it was quantised to 8 bits."""

FLUSHING = {"onnxruntime": "onnxruntime_flushing", "torch": "torch_flushing"}
"""The names under which runtimes flush denormal numbers to zero, which they do not by default."""

BASELINES: Mapping[str, Callable[[bool], Baseline]] = {
    KINTUNE: KintuneExecutable,
    "onnxruntime": OnnxRuntime,
    FLUSHING["onnxruntime"]: OnnxRuntimeFlushing,
    "openvino": OpenVino,
    "openvino_bf16": OpenVinoBf16,
    "onnxruntime_int8": OnnxRuntimeInt8,
    "openvino_int8": OpenVinoInt8,
    "torch": TorchCompile,
    FLUSHING["torch"]: TorchFlushing,
}
"""All runtimes, by name; the argument is `exact`."""


def run_on(device: DeviceType) -> bool:
    """Returns whether the runtimes run on such a device as it is measured: not on a GPU, nor on a board."""
    return device.capabilities.other_runtimes


def takes(name: str, model: BaselineModel) -> bool:
    """Returns whether a runtime takes models in one of the forms that this one has, installed or not."""
    if name == KINTUNE:
        return model.executable is not None
    if name in INT8:
        return model.quantised is not None
    return model.exported is not None if name in ("torch", FLUSHING["torch"]) else model.onnx is not None


def make_baseline(name: str, exact: bool = False) -> Baseline:
    """Returns the runtime of this name, with `exact` for comparing numbers instead of speed.

    Raises:
        InputError: there is none of this name.
    """
    if name not in BASELINES:
        raise InputError(f"no runtime to compare with is called {name!r}; there are {', '.join(sorted(BASELINES))}")
    return BASELINES[name](exact)
