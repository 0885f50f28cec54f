"""Compares what was imported with PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_LOOKED_UP: list[Sequence[str]] = []


@pytest.fixture(autouse=True)
def _operators_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch looks all operators up for each of its namespaces, twice a model; once will do until there are more."""
    import torch
    from torch._export import utils

    look_up = utils._materialize_cpp_cia_ops

    def once() -> None:
        there = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if [there] != _LOOKED_UP:
            look_up()
            _LOOKED_UP[:] = [there]

    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", once)


@pytest.fixture
def imported(tmp_path: Path, run_module: Any) -> Callable[..., Any]:
    """Export a function or module, import it and run it; returns the module, the imported model, and its results."""
    import torch

    from kintune.models.importer import load
    from kintune.models.torch_export import export_module
    from tests.support.torch_values import array_of

    def run(function: Any, *inputs: Any) -> tuple[Any, Any, list[Any]]:
        class Module(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = function

            def forward(self, *values: Any) -> Any:
                return self.inner(*values)

        module = function if isinstance(function, torch.nn.Module) else Module()
        model = load(export_module(module, inputs, tmp_path))
        arrays = [array_of(value) for value in inputs]
        got = run_module(model, {t.name: a for t, a in zip(model.inputs, arrays, strict=True)})
        return module, model, got

    return run


@pytest.fixture
def compare(imported: Callable[..., Any]) -> Callable[..., Any]:
    """Export a function or module, import it, run it, and compare each result with PyTorch's in type, shape, values."""
    import torch

    from tests.support.torch_values import array_of

    def check(function: Any, *inputs: Any, tolerance: float = 1e-5) -> Any:
        module, model, got = imported(function, *inputs)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module.eval()(*inputs))
        assert len(got) == len(wanted) == len(model.outputs)
        for ours, theirs in zip(got, map(array_of, wanted), strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(
                ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance, atol=tolerance
            )
        return model

    return check


@pytest.fixture
def accurate(imported: Callable[..., Any]) -> Callable[..., None]:
    """Compare functions of one tensor with what PyTorch computes in double precision from the same numbers.

    An error is allowed that is `relative` to the result, and `least` times that near zeros of the function.  `exact`
    computes the right values, where PyTorch's function is itself not accurate enough.
    """

    def check(functions: Any, x: Any, relative: float, least: float = 0.0, exact: Any = None) -> None:
        _, _, got = imported(lambda value: [function(value) for function in functions], x)
        for function, ours in zip(functions, got, strict=True):
            wanted = (exact or function)(x.double()).to(x.dtype).double().numpy()
            np.testing.assert_allclose(
                ours.astype(np.float64), wanted, rtol=relative, atol=relative * least, err_msg=str(function)
            )

    return check
