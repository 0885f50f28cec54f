"""Converters of PyTorch's core operators to Relax, one file a group.

Each group offers `CONVERTERS`: an operator's name with its overload, and the function that converts it.
"""

from __future__ import annotations

from importlib import import_module

from kintune.models.torch_converters.translation import Converter

__all__ = ["CONVERTERS"]

_GROUPS = (
    *("activations", "antialiasing", "bessel", "elementwise", "error_function", "gamma", "images", "linear", "lookups"),
    *("matrices", "powers", "quantile", "recurrent", "reduction", "reinterpretation", "tensors", "writes"),
)

CONVERTERS: dict[str, Converter] = {
    name: converter for group in _GROUPS for name, converter in import_module(f"{__name__}.{group}").CONVERTERS.items()
}
"""Operator of aten, like "add.Tensor" -> its converter."""
