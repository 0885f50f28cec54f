from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.untuned import build_untuned

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


class Bytes(torch.nn.Module):  # type: ignore[misc]
    """A product with weights of int8, as it is and scaled."""

    def __init__(self) -> None:
        super().__init__()
        drawn = np.random.default_rng(0).integers(-128, 128, (24, 32), np.int8)
        self.register_buffer("weight", torch.from_numpy(drawn))

    def forward(self, a: Any, b: Any) -> Any:
        whole = torch._int_mm(a, self.weight)
        return whole, whole.float() * 0.01, torch._int_mm(a, b)


def test_products_of_bytes(compare: Callable[..., Any], tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    a, b = (torch.from_numpy(draw.integers(-128, 128, shape, np.int8)) for shape in ((20, 24), (24, 32)))
    a[0], b[:, 0] = -128, -128
    compare(Bytes(), a, b, tolerance=1e-6)
    executable = build_untuned(export_module(Bytes(), (a, b), tmp_path))
    for ours, theirs in zip(executable.run(a.numpy(), b.numpy()).values(), Bytes()(a, b), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)
