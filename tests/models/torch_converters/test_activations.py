from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kintune.errors import ModelError
from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
functional = torch.nn.functional
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_random_relu_has_its_middle_slope(compare: Callable[..., Any], dtype: Any) -> None:
    def net(x: Any) -> Any:
        return functional.rrelu(x), functional.rrelu(x, 0.1, 0.5), torch.nn.RReLU(0.25, 0.25).eval()(x[:, 0])

    x = torch.cat([draw(3, 5), torch.tensor([[float("nan"), float("inf"), float("-inf"), 0.0, -0.0]])])
    compare(net, x.to(dtype), tolerance=1e-2 if dtype == torch.bfloat16 else 1e-6)


def test_a_random_relu_in_training_is_refused(tmp_path: Path) -> None:
    from kintune.models.importer import load

    class Random(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return functional.rrelu(x, training=True)

    with pytest.raises(ModelError, match="rrelu"):
        load(export_module(Random(), (draw(4),), tmp_path))
