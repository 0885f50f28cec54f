"""Runtimes that run the model as it was quantised to 8 bits, in a file beside the user's own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kintune.runtime.inputs import Array
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.baselines.onnx_runtime import OnnxRuntime
from kintune.validate.baselines.open_vino import OpenVino

__all__ = ["OnnxRuntimeInt8", "OpenVinoInt8"]

_NO_FILE = "the model was not quantised"


class OnnxRuntimeInt8(OnnxRuntime):
    """`OnnxRuntime` on the quantised file."""

    def unavailable(self, subject: BaselineModel) -> str | None:
        """It needs a quantised file."""
        return _NO_FILE if subject.quantised is None else super().unavailable(_as_quantised(subject))

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Load the quantised file."""
        super().prepare(_as_quantised(subject), threads, inputs)


class OpenVinoInt8(OpenVino):
    """`OpenVino` on the quantised file; what is not quantised computes in its default, which is bf16 on new CPUs."""

    _precision = None

    def unavailable(self, subject: BaselineModel) -> str | None:
        """It needs a quantised file."""
        return _NO_FILE if subject.quantised is None else super().unavailable(_as_quantised(subject))

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Compile the quantised file."""
        super().prepare(_as_quantised(subject), threads, inputs)


def _as_quantised(subject: BaselineModel) -> BaselineModel:
    """The subject whose ONNX file is the quantised one."""
    return msgspec.structs.replace(subject, onnx=subject.quantised)
