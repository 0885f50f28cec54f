from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.tools import require

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

TYPES = [
    ("float32", 1e-6),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in (("float64", 1e-13), ("float16", 1e-3))),
]


@pytest.mark.parametrize(("dtype", "relative"), TYPES)
def test_quantiles(accurate: Callable[..., None], dtype: str, relative: float) -> None:
    kind = getattr(torch, dtype)
    tail = torch.logspace(-7, -0.5, 800, dtype=torch.float64)
    middle = torch.linspace(-0.999, 0.999, 2001, dtype=torch.float64)
    x = torch.cat([middle, 1 - tail, tail - 1, tail, -tail]).to(kind)
    accurate([torch.erfinv], x[x.abs() < 1], relative)
    shares = torch.cat([(middle + 1) / 2, torch.logspace(-300, -1, 900, dtype=torch.float64)]).to(kind)
    accurate([torch.special.ndtri], shares[(shares > torch.finfo(kind).tiny) & (shares < 1)], relative, least=0.1)


def test_the_edges(compare: Callable[..., Any]) -> None:
    x = torch.tensor([1.0, -1.0, 1.5, -1.5, 0.0, -0.0, float("nan"), float("inf"), float("-inf")])
    compare(lambda x: (torch.erfinv(x), torch.special.ndtri(x)), x)
    compare(lambda i: torch.erfinv(i), torch.tensor([0, 1, -1]))
