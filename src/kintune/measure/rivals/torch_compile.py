"""PyTorch's compiler (inductor) on the CPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from kintune.graph.inputs import Array
from kintune.measure.rivals.rival import Subject

__all__ = ["TorchCompile"]


class TorchCompile:
    """`torch.compile` of an exported program with its weights frozen, which is how inductor is at its best on CPUs."""

    _function: Any
    _inputs: list[Any]

    def unavailable(self, subject: Subject) -> str | None:
        """It needs an exported program, PyTorch and a C++ compiler."""
        if subject.exported is None:
            return "the model is not a PyTorch exported program"
        if not find_spec("torch"):
            return "not installed: pip install 'kintune[torch]'"
        compilers = (os.environ.get("CXX") or "g++", "clang++")
        return None if any(map(shutil.which, compilers)) else "its compiler needs a C++ compiler (g++ or clang++)"

    def prepare(self, subject: Subject, threads: int, inputs: Mapping[str, Array]) -> None:
        """Load the program, and compile it by a first run."""
        import torch
        import torch._inductor.config as inductor

        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        inductor.freezing = True
        inductor.compile_threads = 1
        self._function = torch.compile(torch.export.load(subject.exported).module())
        self._inputs = [torch.from_numpy(array) for array in inputs.values()]
        self.run()

    def run(self) -> list[Array]:
        """Run once."""
        import torch

        with torch.inference_mode():
            outputs = self._function(*self._inputs)
        leaves, _ = torch.utils._pytree.tree_flatten(outputs)
        return [leaf.numpy() for leaf in leaves]
