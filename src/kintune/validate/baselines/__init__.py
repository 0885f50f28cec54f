"""The runtimes that a tuned network is compared with, each behind `Baseline`; none is imported before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kintune.errors import InputError
from kintune.validate.baselines.baseline import Baseline, BaselineModel
from kintune.validate.baselines.kintune_executable import KintuneExecutable
from kintune.validate.baselines.onnx_runtime import OnnxRuntime
from kintune.validate.baselines.open_vino import OpenVino
from kintune.validate.baselines.torch_compile import TorchCompile

__all__ = ["KINTUNE", "RIVALS", "Baseline", "BaselineModel", "make_baseline"]

KINTUNE = "kintune"
"""The name of our own executables among the rivals."""

RIVALS: Mapping[str, Callable[[bool], Baseline]] = {
    KINTUNE: KintuneExecutable,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "torch": TorchCompile,
}
"""All that can run a network, by name."""


def make_baseline(name: str, exact: bool = False) -> Baseline:
    """The rival of this name, with `exact` one for numbers, not speed; InputError when there is none."""
    if name not in RIVALS:
        raise InputError(f"no runtime to compare with is called {name!r}; there are {', '.join(sorted(RIVALS))}")
    return RIVALS[name](exact)
