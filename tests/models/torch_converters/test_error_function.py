from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.models.torch_export import export_module
from tests.support.tools import require

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


class Erfc(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.erfc(x)


@pytest.mark.parametrize(("dtype", "relative"), [("float32", 1e-6), ("float64", 1e-13), ("float16", 1e-3)])
def test_the_tail_of_the_error_function(tmp_path: Path, run_module: Any, dtype: str, relative: float) -> None:
    from kintune.models.importer import load

    x = np.concatenate([np.linspace(-6, 9, 3001), [0.46875, 4.0, -0.46875, -4.0]]).astype(dtype)
    special = np.array([np.inf, -np.inf, np.nan, 60.0, -60.0], dtype)
    x = np.concatenate([x, special])
    model = load(export_module(Erfc(), (torch.from_numpy(x),), tmp_path))
    (found,) = run_module(model, {model.inputs[0].name: x})
    assert found.dtype == np.dtype(dtype)
    wanted = np.array([math.erfc(value) for value in x.astype(np.float64)])
    least = float(np.finfo(dtype).tiny)  # below which a type holds fewer digits
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=relative, atol=least)
    assert found[-5:-3].tolist() == [0, 2]
    assert math.isnan(found[-3])


@pytest.mark.parametrize(
    ("dtype", "relative"), [("float32", 2e-6), pytest.param("float64", 1e-13, marks=pytest.mark.slow)]
)
def test_the_tail_times_a_gaussian(accurate: Callable[..., None], dtype: str, relative: float) -> None:
    x = torch.cat([torch.linspace(-9, 40, 3001), torch.logspace(-3, 18, 300)]).to(getattr(torch, dtype))
    accurate([torch.special.erfcx], x, relative)
    accurate([torch.special.log_ndtr], x[x < 5], 2 * relative)


def test_its_edges(compare: Callable[..., Any]) -> None:
    inf = float("inf")
    compare(torch.special.erfcx, torch.tensor([inf, -inf, float("nan"), 0.0, 0.46875, 4.0, -30.0, 1e30]))
