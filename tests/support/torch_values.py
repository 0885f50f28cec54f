"""Tensors of PyTorch for tests: drawn, and as arrays."""

from __future__ import annotations

from typing import Any


def draw(*shape: int, seed: int = 0) -> Any:
    """A tensor of normally distributed numbers."""
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def array_of(tensor: Any) -> Any:
    """A tensor as an array, also of bfloat16."""
    import ml_dtypes
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.detach().numpy()
