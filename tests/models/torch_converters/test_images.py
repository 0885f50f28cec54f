from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
functional = torch.nn.functional
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

Compare = Callable[..., Any]


def test_resizing_in_double_precision(compare: Compare) -> None:
    def net(x: Any) -> Any:
        sizes = [(5, 7), (13, 20)]
        return [
            functional.interpolate(x, size=size, mode="bilinear", align_corners=c) for size in sizes for c in (False, True)
        ]

    compare(net, draw(1, 2, 7, 9).double(), tolerance=1e-13)
