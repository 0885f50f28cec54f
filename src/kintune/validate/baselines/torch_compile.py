"""PyTorch on the CPU: its compiler (inductor), or each operator by itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from kintune.core.dtypes import numpy_dtype
from kintune.models.exported_program import output_names
from kintune.runtime.inputs import Array
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.numerics import perturbed
from kintune_runtime.library import library

__all__ = ["TorchCompile", "TorchFlushing"]


class TorchCompile:
    """`torch.compile` of an exported program with frozen weights, the fastest way of inductor on CPUs.

    With `exact` nothing is compiled: the program's operators run one after the other.
    """

    _function: Any
    _module: Any
    _program: Any
    _arguments: tuple[Any, ...]
    _keywords: dict[str, Any]
    _subject: BaselineModel

    def __init__(self, exact: bool = False) -> None:
        self._exact = exact
        self._own_weights: dict[str, Array] = {}

    def unavailable(self, subject: BaselineModel) -> str | None:
        """It needs an exported program, PyTorch and a C++ compiler."""
        if subject.exported is None:
            return "the model is not a PyTorch exported program"
        if not find_spec("torch"):
            return "not installed: pip install 'kintune[torch]'"
        if self._exact:
            return None
        compilers = (os.environ.get("CXX") or "g++", "clang++")
        return None if any(map(shutil.which, compilers)) else "its compiler needs a C++ compiler (g++ or clang++)"

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Load the program, and compile it by a first run."""
        self.load(subject, threads)
        self.feed(inputs)
        if self._exact:
            return
        import torch
        import torch._inductor.config as inductor

        inductor.freezing = True
        inductor.compile_threads = 1
        self._function = torch.compile(self._function)
        self.run()

    def load(self, subject: BaselineModel, threads: int) -> None:
        """Load the program, to be run operator by operator."""
        import torch

        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        program = torch.export.load(subject.exported)
        self._function, self._subject = program.module(), subject
        self._module, self._program = self._function, program

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Keep the inputs in the structure of the exported program; its arguments that are no tensors are fixed."""
        import torch

        feeds = self._subject.feeds(inputs)
        specs = self._program.graph_signature.input_specs
        leaves = [
            _tensor(feeds[spec.arg.name])
            if isinstance(spec.arg, torch.export.graph_signature.TensorArgument)
            else getattr(spec.arg, "value", None)
            for spec in specs
            if spec.kind == torch.export.graph_signature.InputKind.USER_INPUT
        ]
        self._arguments, self._keywords = torch.utils._pytree.tree_unflatten(leaves, self._program.call_spec.in_spec)

    def perturb_weights(self, seed: int) -> None:
        """Perturb the original values of floating-point parameters and buffers."""
        import torch

        with torch.no_grad():
            for number, (name, weight) in enumerate(sorted(self._module.state_dict().items())):
                if weight.dtype.is_floating_point:
                    if name not in self._own_weights:
                        self._own_weights[name] = _own(weight).copy()
                    weight.copy_(_tensor(perturbed(self._own_weights[name], (seed, number))).to(weight.dtype))

    def run(self) -> list[Array]:
        """Run once; only tensors among the results are outputs."""
        import torch

        with torch.inference_mode():
            outputs = self._function(*self._arguments, **self._keywords)
        leaves = torch.utils._pytree.tree_leaves(outputs)
        return [_array(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def run_named(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once on these inputs; returns the outputs by name."""
        self.feed({name: np.asarray(values) for name, values in inputs.items()})
        return dict(zip(output_names(self._program), self.run(), strict=True))


class TorchFlushing(TorchCompile):
    """The same, flushing denormal numbers to zero, as Kintune's results do, in a process of its own."""

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Set this thread, from which all others come, then load the program."""
        library().kt_denormals_set(True)
        super().prepare(subject, threads, inputs)


def _tensor(array: Array) -> Any:
    """A tensor of the same values; numpy's bfloat16 is not PyTorch's."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _own(weight: Any) -> Array:
    """A weight's values as an array in its own precision."""
    import torch

    if weight.dtype == torch.bfloat16:
        bits = weight.detach().contiguous().view(torch.int16).numpy()
        return np.asarray(bits.view(numpy_dtype("bfloat16")))
    return np.asarray(weight.detach().numpy())


def _array(leaf: Any) -> Array:
    """An output as an array; bfloat16 as float32, which holds it exactly."""
    import torch

    leaf = leaf.detach()
    return np.asarray((leaf.float() if leaf.dtype == torch.bfloat16 else leaf).numpy())
