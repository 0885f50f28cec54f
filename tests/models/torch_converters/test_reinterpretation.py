from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.torch_values import array_of, draw
from tests.support.untuned import build_untuned

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

Compare = Callable[..., Any]


def test_signs_of_zeros(compare: Compare) -> None:
    edges = torch.tensor([0.0, -0.0, 1e-40, -1e-40, float("inf"), -float("inf"), 1.5, -2.0])
    whole, mask = torch.tensor([3, 0, -4, 1, 2, -5, 6, -7]), torch.tensor([True, False] * 4)

    def net(x: Any, whole: Any, mask: Any) -> Any:
        sign, one = torch.copysign, x[3]
        return (
            *(torch.signbit(each) for each in (x, x.half(), x.bfloat16(), x.double(), whole, mask, one)),
            *(
                sign(x.flip(0), x),
                sign(whole, x),
                sign(x, whole),
                sign(x.half(), x.double()),
                sign(x, -0.0),
                sign(x, 2),
            ),
            *(torch.signbit(sign(x, whole)), sign(mask, x)),
        )

    compare(net, edges, whole, mask)


def test_bytes_are_read_as_another_type(compare: Compare) -> None:
    def net(x: Any, wide: Any, half: Any, whole: Any, small: Any, mask: Any) -> Any:
        return (
            *(
                x.view(torch.int32),
                x.view(torch.int32).view(torch.float32) + 1,
                x.view(torch.uint8),
                x[0, 0].view(torch.int32),
            ),
            *(x.view(torch.int16), x.view(torch.float64), x.view(torch.int64), x.view(torch.float16)),
            *(wide.view(torch.float32), wide.view(torch.int64), wide.view(torch.int8)),
            *(half.view(torch.int16), half.view(torch.int8), half.view(torch.int32), half.view(torch.bfloat16)),
            *(whole.view(torch.float64), whole.view(torch.int32), whole.view(torch.uint8)),
            *(small.view(torch.int8), small.view(torch.float32), small.view(torch.int64), small.view(torch.float16)),
            *(mask.view(torch.uint8), mask.view(torch.int8), mask.view(torch.uint8).view(torch.bool)),
        )

    x = draw(3, 4)
    x[0, 1], x[1, 2], x[2, 3] = float("nan"), float("inf"), -0.0
    small = (draw(2, 8).abs() * 30).to(torch.uint8)
    whole = torch.tensor([[1, -1, 2**62, -(2**63), 5, 4607182418800017408]])
    compare(net, x, draw(2, 2).double(), draw(3, 4).half(), whole, small, draw(2, 4) > 0, tolerance=0)


def test_halves_of_another_kind(compare: Compare) -> None:
    compare(
        lambda x: (x.view(torch.int16), x.view(torch.int32), x.view(torch.uint8)), draw(3, 4).bfloat16(), tolerance=0
    )
    compare(lambda i: i.view(torch.bfloat16), torch.tensor([[16256, -16384, 0, 1]], dtype=torch.int16), tolerance=0)


def test_halves_that_are_computed(tmp_path: Path) -> None:
    """As networks are built: numbers are rounded before their bits are read."""

    class Bits(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, half: Any) -> Any:
            return x.bfloat16().view(torch.int16), half.view(torch.int16), (half.view(torch.int16) + 1).view(half.dtype)

    x = draw(3, 40)
    executable = build_untuned(export_module(Bits(), (x, x.bfloat16()), tmp_path))
    found = executable.run(x.numpy(), array_of(x.bfloat16()))
    for ours, theirs in zip(found.values(), Bits()(x, x.bfloat16()), strict=True):
        np.testing.assert_array_equal(ours.astype(np.float32), array_of(theirs).astype(np.float32))
