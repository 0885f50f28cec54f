from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.tools import require

torch = require("torch")
special = torch.special
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

TYPES = [
    ("float32", 1e-6),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in (("float64", 1e-13), ("float16", 1e-3))),
]


@pytest.mark.parametrize(("dtype", "relative"), TYPES)
def test_modified_bessel_functions(accurate: Callable[..., None], dtype: str, relative: float) -> None:
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.logspace(-4, 1, 800), torch.tensor([0.0, 8.0, -8.0])])
    scaled = torch.cat([x, torch.logspace(1, 4, 800), -torch.logspace(1, 4, 800)])
    kind, least = getattr(torch, dtype), 1e-3 if dtype == "float16" else 0.0  # the type has few digits below that
    accurate(
        [torch.i0, special.i1, special.modified_bessel_i0, special.modified_bessel_i1], x.to(kind), relative, least
    )
    accurate([special.i0e, special.i1e], scaled.to(kind), relative, least)


def test_the_edges(compare: Callable[..., Any]) -> None:
    x = torch.tensor([float("nan"), 0.0, -0.0, 1e-40, 100.0, -100.0])
    compare(lambda x: (torch.i0(x), special.i1(x)), x)
    far = torch.tensor([float("inf"), float("-inf"), 3e38, -3e38])
    compare(lambda x: (special.i0e(x), special.i1e(x)), torch.cat([x, far]))
    compare(lambda i: torch.i0(i), torch.arange(5))
