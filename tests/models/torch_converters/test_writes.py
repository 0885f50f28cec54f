from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.errors import InputError, ModelError
from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.torch_values import draw
from tests.support.untuned import build_untuned

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*", "ignore:index_reduce")]

Compare = Callable[..., Any]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_elements_of_a_source_fill_a_mask(compare: Compare, dtype: Any) -> None:
    def net(x: Any, mask: Any, source: Any) -> Any:
        return (
            *(x.masked_scatter(mask, source), x.masked_scatter(mask[0], source), x[0].masked_scatter(mask, source)),
            *(x.masked_scatter(mask & False, source), x.masked_scatter(mask, source.flatten()[:9])),
            *(x[0, 0].masked_scatter(mask[1, 0], source), x[:0].masked_scatter(mask[0], source)),
        )

    mask = torch.tensor([[True, False, False, True, True], [False, False, True, False, True], [False] * 5])
    x, source = (draw(3, 5) * 9).to(dtype), (draw(4, 5, seed=1) * 9).to(dtype)
    compare(net, x, mask, source)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_values_go_in_order_where_a_mask_is_set_or_one_goes_everywhere(compare: Compare, dtype: Any) -> None:
    """The mask is of any dimensions next to each other; values broadcast along it and the others."""

    def net(x: Any, rows: Any, planes: Any, *values: Any) -> list[Any]:
        indices = ([rows], [planes], [None, rows[:3]], [None, planes.T], [None, None, rows])
        return [
            torch.ops.aten.index_put(x, index, value[: 1 if single else None], accumulate=added)
            for index, value in zip(indices, values, strict=True)
            for single in (False, True)
            for added in (False, True)
        ]

    rows = torch.tensor([True, False, True, True])
    planes = torch.tensor([[True, False, True], [False] * 3, [True] * 3, [False, True, False]])
    counts = [(3, 1, 1), (6, 4), (4, 2, 1), (4, 6), (3,)]
    x = (draw(4, 3, 4) * 9).to(dtype)
    compare(net, x, rows, planes, *((draw(*shape, seed=1) * 9).to(dtype) for shape in counts))


def test_a_source_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    class Fill(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any, source: Any) -> Any:
            return x.masked_scatter(mask, source)

    x, source = np.zeros(4, np.float32), np.float32([5, 6])
    inputs = tuple(map(torch.from_numpy, (x, np.array([True, False, True, False]), source)))
    executable = build_untuned(export_module(Fill(), inputs, tmp_path))
    found = executable.run(x, np.array([False, True, False, True]), source)
    np.testing.assert_array_equal(next(iter(found.values())), [0, 5, 0, 6])
    with pytest.raises(InputError, match="2 e"):
        executable.run(x, np.array([True, True, False, True]), source)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_elements_are_put_by_their_numbers(compare: Compare, dtype: Any) -> None:
    def net(x: Any, index: Any, source: Any) -> Any:
        repeated = index.flatten()[:1].expand(6).reshape(2, 3)
        return (
            *(x.put(index, source), x.put(index, source, accumulate=True), x.put(repeated, source, accumulate=True)),
            *(x.put(index[:0], source[:0]), x[0, 0].put(index[0, 1] * 0, source[0, 0])),
        )

    index = torch.tensor([[1, -1, 7], [0, -12, 4]])
    compare(net, (draw(3, 5) * 9).to(dtype), index, (draw(2, 3, seed=1) * 9).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow), torch.int64])
def test_slices_are_combined_by_index(compare: Compare, dtype: Any) -> None:
    def net(x: Any, index: Any, source: Any) -> Any:
        kinds = ("prod", "amin", "amax", *(("mean",) if dtype != torch.int64 else ()))
        several = [
            x.index_reduce(dim, index, source.transpose(0, dim), kind, include_self=own)
            for kind in kinds
            for own in (True, False)
            for dim in (0, 1, -1)
        ]
        return (
            *several,
            x.index_reduce(0, index[:0], source[:0], "amax"),
            x.amax().index_reduce(0, index[1:2], x.amin(), "prod"),
        )

    x, source = (draw(3, 3, 3) * 9).to(dtype), (draw(4, 3, 3, seed=1) * 9).to(dtype)
    compare(net, x, torch.tensor([2, 0, 2, 2]), source, tolerance=1e-4)


def test_wrong_numbers_are_errors(tmp_path: Path) -> None:
    class Put(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, at: Any, rows: Any) -> Any:
            return x.put(at, torch.ones(2)), x.index_reduce(0, rows, torch.ones(2, 4), "amax")

    good = {"x": np.zeros((3, 4), np.float32), "at": np.array([3, -12]), "rows": np.array([2, 0])}
    executable = build_untuned(export_module(Put(), {k: torch.from_numpy(v) for k, v in good.items()}, tmp_path))
    executable.run(good)
    for name, wrong in (("at", 12), ("at", -13), ("rows", 3), ("rows", -1)):
        with pytest.raises(InputError, match=str(wrong)):
            executable.run({**good, name: np.array([0, wrong])})


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_extremes_of_scattered_values_keep_nan(compare: Any, dtype: str) -> None:
    def net(x: Any, index: Any, source: Any) -> Any:
        return [
            each
            for kind in ("amax", "amin")
            for own in (True, False)
            for each in (
                x.scatter_reduce(0, index, source, kind, include_self=own),
                x.index_reduce(0, index[:4], source[:4], kind, include_self=own),
            )
        ]

    nan, index = float("nan"), torch.tensor([0, 1, 2, 3, 2, 2])
    x, source = torch.tensor([1.0, nan, 3, 4, 5]), torch.tensor([nan, 2, 7, 1, nan, 9])
    compare(net, x.to(getattr(torch, dtype)), index, source.to(getattr(torch, dtype)))


def test_truth_values_are_scattered_and_combined(compare: Any) -> None:
    def net(x: Any, index: Any, source: Any) -> Any:
        kinds = ("sum", "prod", "amax", "amin")
        return [
            *(x.scatter_reduce(0, index, source, kind, include_self=own) for kind in kinds for own in (True, False)),
            *(
                x.scatter_add(0, index, source),
                x.index_put([index], source, accumulate=True),
                x.index_add(0, index, source),
            ),
        ]

    x, index = torch.tensor([True, False, True, False, True]), torch.tensor([0, 1, 2, 2, 3, 3])
    compare(net, x, index, torch.tensor([False, True, True, False, False, False]))


def test_views_by_strides_are_those_of_memory(compare: Compare) -> None:
    """Also where what is viewed is a view: another order of a tensor, or a part of it."""

    def net(x: Any, source: Any) -> Any:
        size, stride = (2, 2), (1, 2)
        return (
            *(x.as_strided(size, stride), x.t().as_strided(size, stride), x[1:].as_strided(size, stride)),
            *(x.t().contiguous().as_strided(size, stride, 3), torch.as_strided_copy(x.t(), size, stride)),
            *(
                torch.as_strided_scatter(x, source, size, stride),
                torch.as_strided_scatter(x.t(), source, size, stride, 5),
            ),
            *(torch.diagonal_scatter(x, source[0], 2), torch.diagonal_scatter(x, source[0], -1, 0, 1)),
            *(x.t().index_fill(0, torch.tensor([2, 0]), 0.5), x[0, 0].index_fill(0, torch.tensor([0]), 0.5)),
            *(torch.permute_copy(x, (1, 0)), torch.narrow_copy(x, 1, 1, 2), *torch.unbind_copy(x)),
        )

    compare(net, draw(3, 4), draw(2, 2, seed=1))


def test_a_view_of_what_lies_around_its_operand_is_refused(tmp_path: Path) -> None:
    from kintune.models.importer import load

    class Around(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x[1:].as_strided((2, 2), (1, 2), 3)

    with pytest.raises(ModelError, match=r"as_strided.*a part"):
        load(export_module(Around(), (draw(3, 4),), tmp_path))
