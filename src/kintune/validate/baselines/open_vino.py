"""OpenVINO on the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from kintune.errors import InputError
from kintune.hardware.cpu import host_extensions, host_machine
from kintune.hardware.narrow_instructions import has_instructions
from kintune.runtime.inputs import Array
from kintune.validate.baselines.baseline import BaselineModel

__all__ = ["OpenVino", "OpenVinoBf16"]

_PLACE = re.compile(r"(Exception from|Check '.*' failed at) \S+:\d+:?$")
_LONGEST = 250  # characters of a reason


class OpenVino:
    """fp32 (its default on new CPUs is bf16), the given threads, one stream for the least latency."""

    _request: Any
    _inputs: dict[str, Array]
    _subject: BaselineModel
    _precision: str | None = "f32"

    def __init__(self, exact: bool = False) -> None:
        del exact  # it is never a reference

    def unavailable(self, subject: BaselineModel) -> str | None:
        """It needs an ONNX file."""
        if subject.onnx is None:
            return "the model is not an ONNX file"
        return None if find_spec("openvino") else "not installed: pip install 'kintune[compare]'"

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Compile the model, its dynamic dimensions fixed to those of the inputs."""
        import openvino

        self._subject = subject
        self.feed(inputs)
        try:
            self._compile(openvino.Core(), threads)
        except RuntimeError as error:
            raise InputError(_reason(error)) from error

    def _compile(self, core: Any, threads: int) -> None:
        model = core.read_model(self._subject.onnx)
        if model.is_dynamic():
            model.reshape({name: list(array.shape) for name, array in self._inputs.items()})
        configuration = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        if self._precision is not None:
            configuration["INFERENCE_PRECISION_HINT"] = self._precision
        self._request = core.compile_model(model, "CPU", configuration).create_infer_request()

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Keep the inputs, and the constants of the file's own."""
        self._inputs = self._subject.feeds(inputs)

    def perturb_weights(self, seed: int) -> None:
        """Does nothing: its weights stay as they are."""

    def run(self) -> list[Array]:
        """Run once."""
        results = self._request.infer(self._inputs, share_inputs=True, share_outputs=True)
        return [results[index] for index in range(len(results))]


class OpenVinoBf16(OpenVino):
    """The same in bf16, which is its default on CPUs that have it; on others it would emulate bf16, at a loss."""

    _precision = "bf16"

    def unavailable(self, subject: BaselineModel) -> str | None:
        """It needs an ONNX file, and a CPU that computes in bf16 itself."""
        if reason := super().unavailable(subject):
            return reason
        if host_machine() != "x86_64":
            return f"it does not compute in bfloat16 on {host_machine()}"
        return (
            None if has_instructions("bf16", host_extensions()) else "this processor has no instructions for bfloat16"
        )


def _reason(error: RuntimeError) -> str:
    """OpenVINO's message in one line, without the places in its source."""
    lines = (line.strip() for line in str(error).splitlines())
    said = [line for line in lines if line and not _PLACE.match(line)]
    return (" ".join(said) or "OpenVINO cannot compile it")[:_LONGEST]
