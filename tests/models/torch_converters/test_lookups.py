from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
def test_histograms(compare: Callable[..., Any], dtype: Any) -> None:
    def net(x: Any, edges: Any, same: Any) -> Any:
        count = torch.histc
        return (
            *(count(x, 5, -1, 1), count(x), count(x, 7), count(x, 3, 0.1, 0.7), count(x.flatten(), 1), count(x[:0], 4)),
            *(count(edges, 10, 0, 1), count(edges, 3, -2, 2), count(same, 4), count(same[0, 0], 5, 1, 1)),
        )

    edges = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.7, 1.0, 1.0, -0.0, 2.0, -2.0, float("nan"), float("inf")])
    compare(net, draw(40, 30).to(dtype), edges.to(dtype), torch.full((3, 2), 2.5, dtype=dtype), tolerance=0)
