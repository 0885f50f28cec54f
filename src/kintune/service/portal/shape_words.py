"""Shapes of a model's inputs in words, as the file says them."""

from __future__ import annotations

from kintune.service.model_store import Input

__all__ = ["dimension_names", "spelled"]


def spelled(value: Input) -> str:
    """A shape as the file says it: `batch x 3 x 224 x 224`."""
    pairs = zip(value.shape, dimension_names(value), strict=True)
    return " x ".join(str(extent) if extent is not None else name or "?" for extent, name in pairs) or "a number"


def dimension_names(value: Input) -> tuple[str, ...]:
    """The names of an input's dimensions; of an inspection by an earlier version they are not known."""
    return value.names if len(value.names) == len(value.shape) else ("",) * len(value.shape)
