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


def test_logarithms_of_running_sums(compare: Compare) -> None:
    def net(x: Any, edges: Any, one: Any) -> Any:
        running = torch.logcumsumexp
        return (
            *(running(x, 0), running(x, -1), running(x * 100, 2), running(x[:, :1], 1), running(x.double(), 1)),
            *(running(edges, 0), running(edges.flip(0), 0), running(one, 0), running(x[:, :0], 1)),
        )

    inf, nan = float("inf"), float("-inf")
    edges = torch.tensor([nan, nan, 0.0, -200.0, 200.0, nan, inf, inf, 1.0, float("nan"), 2.0])
    compare(net, draw(3, 7, 4), edges, torch.tensor(2.5), tolerance=1e-6)
    compare(lambda x: torch.logcumsumexp(x, 1), draw(2, 9).bfloat16(), tolerance=2e-2)


def test_positions_in_rows_that_are_masked(compare: Compare) -> None:
    inf = float("inf")

    def net(x: Any, mask: Any, edges: Any) -> Any:
        low, high = x.masked_fill(mask, -inf), x.masked_fill(mask, inf)
        return (
            *(*low.max(1), *high.min(1), low.argmax(1), high.argmin(0), low.argmax()),
            *(mask.to(torch.uint8).argmax(1), mask.max(1).indices, (mask.to(torch.int8) - 128).max(1).indices),
            *(*edges.max(1), *edges.min(1), edges.argmax(1), edges.argmin(1)),
        )

    nan = float("nan")
    edges = torch.tensor([[-inf, nan, 1.0], [nan, inf, nan], [inf, nan, -inf], [nan] * 3])
    compare(net, draw(3, 6), torch.tensor([[True] * 6, [False] * 6, [True, False] * 3]), edges)


@pytest.mark.parametrize(
    "order", [0.0, 2.0, float("inf"), *(pytest.param(p, marks=pytest.mark.slow) for p in (1.0, 1.5, 3.0))]
)
def test_distances_between_the_rows_of_one_matrix(compare: Compare, order: float) -> None:
    def net(x: Any) -> Any:
        return functional.pdist(x, order), functional.pdist(x[:2], order), functional.pdist(x[:1], order)

    x = draw(6, 5)
    x[3] = x[1]
    compare(net, x, tolerance=1e-5)
    compare(lambda x: functional.pdist(x, order), x.double(), tolerance=1e-12)


def test_distances_without_columns(compare: Compare) -> None:
    compare(lambda x: functional.pdist(x[:, :0]), draw(3, 2))


def test_medians_of_numbers_alone(compare: Compare) -> None:
    nan, inf = float("nan"), float("inf")
    edges = torch.tensor([[1.0, nan, -inf, 3.0], [nan] * 4, [inf, inf, nan, inf], [2.0, 5.0, 3.0, 4.0]])

    def net(x: Any, whole: Any, one: Any) -> Any:
        of = torch.nanmedian
        return (
            *(of(x), of(x, 0).values, of(x, 1, keepdim=True).values, of(x[1:2]), of(x.half(), -1).values),
            *(of(whole), of(whole, 1).values, of(one), of(one, 0).values, of(one, 0, keepdim=True).values),
        )

    compare(net, edges, torch.arange(12, dtype=torch.int8).reshape(3, 4), torch.tensor(2.5))


def test_the_place_of_a_median_of_numbers_alone_is_refused(compare: Compare) -> None:
    from kintune.errors import ModelError

    with pytest.raises(ModelError, match="the place of a median that leaves out NaN"):
        compare(lambda x: torch.nanmedian(x, 1).indices, draw(3, 4))
