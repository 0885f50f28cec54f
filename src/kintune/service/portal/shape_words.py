"""Shapes of a model's inputs in words, as the file says them."""

from __future__ import annotations

from kintune.service.model_store import Input

__all__ = ["alternatives_of", "dimension_names", "shape_text", "spelled"]


def spelled(value: Input) -> str:
    """A shape as the file says it: `batch x 3 x 224 x 224`."""
    pairs = zip(value.shape, dimension_names(value), strict=True)
    return " x ".join(str(extent) if extent is not None else name or "?" for extent, name in pairs) or "a number"


def dimension_names(value: Input) -> tuple[str, ...]:
    """The names of an input's dimensions; of an inspection by an earlier version they are not known."""
    return value.names if len(value.names) == len(value.shape) else ("",) * len(value.shape)


def alternatives_of(shape: tuple[int | str | tuple[int | str, ...], ...]) -> list[tuple[int | str, ...]]:
    """The alternatives of a shape of a request, at least one."""
    several = [one for one in shape if isinstance(one, tuple)]
    return several or [tuple(one for one in shape if not isinstance(one, tuple))]


def shape_text(shape: tuple[int | str | tuple[int | str, ...], ...]) -> str:
    """A shape of a request, or its alternatives, as people write it: `1x3x224x224`, `1x{32,64}`."""
    extents = [tuple(dict.fromkeys(each)) for each in zip(*alternatives_of(shape), strict=True)]
    counted = [str(each[0]) if len(each) == 1 else f"{{{','.join(map(str, each))}}}" for each in extents]
    return "x".join(counted) or "scalar"
