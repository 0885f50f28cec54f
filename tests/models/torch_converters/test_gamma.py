from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.errors import ModelError
from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.torch_values import draw
from tests.support.untuned import build_untuned

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

TYPES = [
    ("float32", 1e-6),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in (("float64", 1e-14), ("float16", 1e-3))),
]


def trigamma(x: Any) -> Any:
    return torch.polygamma(1, x)


def mirrored_trigamma(x: Any) -> Any:
    """Of negative numbers."""
    return (torch.pi / torch.sin(torch.pi * (x - x.round()))) ** 2 - torch.special.zeta(2.0, 1 - x)


@pytest.mark.parametrize(("dtype", "relative"), TYPES)
def test_positive_numbers(accurate: Callable[..., None], dtype: str, relative: float) -> None:
    small, large = torch.logspace(-4, 4, 4001), torch.linspace(0.01, 12, 4001)
    x = torch.cat([small, large, torch.arange(0.5, 12, 0.5)]).to(getattr(torch, dtype))
    near_two = x[(x > 1.9) & (x < 2.1)]
    accurate([torch.lgamma, torch.digamma], x, relative, least=0.5)
    accurate([trigamma], x, relative, exact=lambda x: torch.special.zeta(2.0, x))
    accurate([torch.lgamma], torch.cat([near_two, near_two - 1]), relative)  # relative to the result, also near zeros


@pytest.mark.parametrize(("dtype", "relative"), TYPES[:2])
def test_negative_numbers(accurate: Callable[..., None], dtype: str, relative: float) -> None:
    """The argument's own rounding counts next to the poles: numbers are multiples of 1/64."""
    x = torch.arange(-20 * 64, 0, dtype=getattr(torch, dtype)) / 64
    x = x[x != x.round()]
    accurate([torch.lgamma], x, relative, least=10)
    accurate([torch.digamma], x, relative, least=10)
    accurate([trigamma], x, relative, exact=mirrored_trigamma)


def test_poles_and_infinities(compare: Callable[..., Any]) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, -1e9, inf, -inf, nan, 1.0, 2.0, 1e-38, 3e38, 1e-45, -1e-38, -1e-45])
    compare(lambda x: (torch.lgamma(x), torch.digamma(x)), x, tolerance=1e-6)
    compare(lambda x: torch.polygamma(1, x), x[5:])


def test_integers_and_what_is_made_of_it(compare: Callable[..., Any]) -> None:
    def net(i: Any, x: Any) -> Any:
        whole = torch.lgamma(i), torch.digamma(i), torch.polygamma(0, x), torch.special.gammaln(x[0, 0])
        return (*whole, torch.mvlgamma(x + 2, 3), torch.distributions.Dirichlet(x, validate_args=False).entropy())

    compare(net, torch.arange(1, 7), draw(3, 4).abs() + 0.1)


@pytest.mark.parametrize(("dtype", "relative"), [("float32", 3e-6), ("float64", 1e-12)])
def test_higher_derivatives(accurate: Callable[..., None], dtype: str, relative: float) -> None:
    """Of negative numbers those of even order have zeros between the poles."""
    derivatives = [functools.partial(torch.polygamma, n) for n in (2, 3, 4, 9)]
    positive = torch.cat([torch.logspace(-2, 3, 201), torch.linspace(0.05, 30, 301)]).to(getattr(torch, dtype))
    accurate(derivatives, positive, relative)
    negative = torch.arange(-8 * 16, 0, dtype=getattr(torch, dtype)) / 16
    accurate(derivatives, negative[negative != negative.round()], 10 * relative, least=100)


def test_higher_derivatives_at_poles(compare: Callable[..., Any]) -> None:
    x = torch.tensor([0.0, -1.0, -2.0, -1e9, torch.inf, torch.nan])
    compare(lambda x: [torch.polygamma(n, x) for n in (2, 3)], x)


def test_the_highest_derivatives_are_refused(tmp_path: Path) -> None:
    from kintune.models.importer import load

    class Second(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.polygamma(21, x)

    with pytest.raises(ModelError, match=r"polygamma.*an order above 20"):
        load(export_module(Second(), (draw(4),), tmp_path))


def test_as_networks_are_built(tmp_path: Path) -> None:
    """With the functions of the compiled product, in kernels of many fused operators, whose names are long."""

    class Functions(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            special = torch.special
            return torch.lgamma(x), torch.digamma(x), special.i0(x), special.erfcx(x), torch.erfinv(torch.tanh(x / 9))

    x = torch.linspace(0.01, 11, 4000)
    executable = build_untuned(export_module(Functions(), (x,), tmp_path))
    for ours, theirs in zip(executable.run(x.numpy()).values(), Functions()(x.double()), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=3e-6, atol=1e-6)
