from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.torch_values import draw
from tests.support.untuned import build_untuned

torch = require("torch")
linalg = torch.linalg
pytestmark = [
    pytest.mark.tvm,
    pytest.mark.filterwarnings("ignore:::torch.*", r"ignore:torch\.(cholesky|triangular_solve) is deprecated"),
]

Compare = Callable[..., Any]
TYPES = [(torch.float32, 1e-4), pytest.param(torch.float64, 1e-11, marks=pytest.mark.slow)]


def slow(shape: tuple[int, ...]) -> Any:
    return pytest.param(shape, marks=pytest.mark.slow)


def matrices(*shape: int, dtype: Any = torch.float32) -> Any:
    """Matrices that need exchanges of rows: what is on the diagonal is small."""
    values = draw(*shape).to(dtype)
    values.diagonal(dim1=-2, dim2=-1).mul_(0.01)
    return values


def definite(*shape: int, dtype: Any = torch.float32) -> Any:
    values = draw(*shape).to(dtype)
    return values @ values.mT + torch.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("shape", [*map(slow, [(1, 1), (2, 2), (3, 4, 4)]), (5, 5), (2, 3, 7, 7)])
def test_inverses_and_determinants(compare: Compare, dtype: Any, tolerance: float, shape: tuple[int, ...]) -> None:
    def net(a: Any) -> Any:
        return (
            linalg.inv(a),
            torch.det(a),
            *torch.slogdet(a),
            torch.logdet(a @ a.mT + torch.eye(shape[-1], dtype=dtype)),
            linalg.inv_ex(a)[1],
        )

    compare(net, matrices(*shape, dtype=dtype), tolerance=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
def test_systems_of_equations(compare: Compare, dtype: Any, tolerance: float) -> None:
    def net(a: Any, many: Any, b: Any) -> Any:
        solve = linalg.solve
        return (
            *(solve(a, b), solve(a, b[:, 0]), solve(a, b[:, :1]), solve(a, b.mT, left=False)),
            *(solve(many, b), solve(many, b[:, 0]), solve(many, b[None, :, :2].expand(3, 4, 2))),
            *(solve(many, b[:, :3].mT), solve(many, many.mT, left=False), solve(a, many)),
        )

    compare(net, matrices(4, 4, dtype=dtype), matrices(3, 4, 4, dtype=dtype), draw(4, 5).to(dtype), tolerance=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
def test_triangular_systems(compare: Compare, dtype: Any, tolerance: float) -> None:
    def net(a: Any, many: Any, b: Any) -> Any:
        solve, older = linalg.solve_triangular, torch.triangular_solve
        return (
            *(solve(a, b, upper=upper, unitriangular=unit) for upper in (False, True) for unit in (False, True)),
            *(solve(a, b.mT, upper=upper, left=False) for upper in (False, True)),
            *(solve(many, b, upper=True), solve(a, many, upper=False), solve(many, many[:, None], upper=True)),
            *(older(b, a, upper=up, transpose=turned)[0] for up in (False, True) for turned in (False, True)),
            *older(b, a, unitriangular=True),
        )

    a, many = (draw(*shape).to(dtype) + 3 * torch.eye(4, dtype=dtype) for shape in ((4, 4), (3, 4, 4)))
    compare(net, a, many, draw(4, 3).to(dtype), tolerance=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("shape", [*map(slow, [(1, 1), (6, 6)]), (2, 3, 4, 4)])
def test_cholesky_factors(compare: Compare, dtype: Any, tolerance: float, shape: tuple[int, ...]) -> None:
    def net(a: Any, b: Any) -> Any:
        lower, upper = linalg.cholesky(a), linalg.cholesky(a, upper=True)
        return (
            *(lower, upper, torch.cholesky(a), *linalg.cholesky_ex(a)),
            *(torch.cholesky_solve(b, lower), torch.cholesky_solve(b, upper, upper=True)),
            *(torch.cholesky_inverse(lower), torch.cholesky_inverse(upper, upper=True)),
        )

    compare(net, definite(*shape, dtype=dtype), draw(*shape[:-1], 2).to(dtype), tolerance=tolerance)


def test_what_has_no_inverse(compare: Compare) -> None:
    """PyTorch factorises the transpose: both are eliminated exactly, so that no result depends on how LAPACK rounds."""
    singular = torch.tensor([[[1.0, 2.0, 4.0], [2.0, 4.0, 8.0], [1.0, 0.0, 1.0]], [[0.0] * 3] * 3])
    compare(lambda a: (torch.det(a), *torch.slogdet(a), *torch.slogdet(a.mT)), singular)
    compare(lambda a: (linalg.inv_ex(a)[1], linalg.cholesky_ex(a - 4 * torch.eye(3))[1]), singular[1:])


def test_a_product_of_the_compiler(tmp_path: Path) -> None:
    """As networks are built: lowered for this CPU, matrices in the midst of other operators."""

    class Whitened(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            covariance = x.mT @ x / x.shape[-2] + 0.1 * torch.eye(x.shape[-1])
            white = linalg.solve_triangular(linalg.cholesky(covariance), x.mT, upper=False)
            return torch.relu(white.mT @ linalg.inv(covariance)), torch.logdet(covariance)

    x = draw(2, 20, 6)
    executable = build_untuned(export_module(Whitened(), (x,), tmp_path))
    for ours, theirs in zip(executable.run(x.numpy()).values(), Whitened()(x), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-3, atol=1e-4)
