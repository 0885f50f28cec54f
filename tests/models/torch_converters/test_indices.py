"""Operators of PyTorch that read or write by indices: the same results, and errors where PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.errors import InputError
from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.untuned import build_untuned

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


class Lookups(torch.nn.Module):  # type: ignore[misc]
    """Each reads or writes by an index of its own, as it is given or computed from it."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.change = change
        self.table = torch.nn.Parameter(torch.arange(20.0).reshape(5, 4))

    def forward(self, x: Any, ids: Any, rows: Any, at: Any, where: Any, put: Any, add: Any) -> Any:
        ids, rows, at, where, put, add = (self.change(index) for index in (ids, rows, at, where, put, add))
        return (
            torch.nn.functional.embedding(ids, self.table),
            x.index_select(1, rows),
            x[:, at],
            x.gather(1, where),
            x.scatter(0, put, torch.ones(2, 4)),
            x.index_put((add,), torch.ones(2, 4), accumulate=True),
            x.scatter_add(1, where, x),
            x.scatter(1, where, 7.0),
            x.scatter_reduce(1, where, -x, "amin"),
        )


NAMES = ("x", "ids", "rows", "at", "where", "put", "add")
SIZES = {"ids": (5, 0), "rows": (4, 0), "at": (4, -4), "where": (4, 0), "put": (3, 0), "add": (3, -3)}
"""How many entries each index has to choose from, and the least index."""


def inputs() -> dict[str, Any]:
    return {
        "x": torch.arange(12.0).reshape(3, 4),
        "ids": torch.tensor([[0, 4], [2, 1]]),
        "rows": torch.tensor([3, 0]),
        "at": torch.tensor([[-1], [2]]),
        "where": torch.tensor([[0, 3], [1, 1], [2, 0]]),
        "put": torch.tensor([[0, 2, 1, 0], [2, 0, 0, 1]]),
        "add": torch.tensor([-3, 2]),
    }


class Puts(torch.nn.Module):  # type: ignore[misc]
    """Writes by indices in all places that they may have."""

    def forward(self, x: Any, i: Any, j: Any, mask: Any) -> Any:
        ones = torch.ones(2)
        inner, last, apart = x.clone(), x.clone(), x.clone()
        inner[:, i] = ones.reshape(2, 1)
        last[:, i, j] = ones
        apart[i, :, j] = ones.reshape(2, 1)
        return (
            inner,
            last,
            apart,
            x.index_put((i, j), torch.ones(2, 4)),
            x.index_put((i.reshape(2, 1), j), torch.ones(4), accumulate=True),
            x.index_put((mask,), torch.tensor(5.0)),
        )


def test_index_put_agrees_with_pytorch(tmp_path: Path) -> None:
    given = (
        torch.arange(36.0).reshape(3, 3, 4),
        torch.tensor([-1, 0]),
        torch.tensor([1, -3]),
        torch.tensor([True, False, True]),
    )
    module = Puts().eval()
    executable = build_untuned(export_module(module, given, tmp_path))
    with torch.no_grad():
        wanted = [value.numpy() for value in module(*given)]
    for ours, theirs in zip(executable.run(*(value.numpy() for value in given)).values(), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize(
    "change", [lambda index: index, lambda index: index * 3 - index * 2], ids=["given", "computed"]
)
def test_lookups_agree_with_pytorch_and_fail_where_it_fails(tmp_path: Path, change: Any) -> None:
    module = Lookups(change).eval()
    executable = build_untuned(export_module(module, tuple(inputs().values()), tmp_path))
    good = inputs()
    arrays = {name: value.numpy() for name, value in good.items()}
    with torch.no_grad():
        wanted = [value.numpy() for value in module(*good.values())]
    for ours, theirs in zip(executable.run(arrays).values(), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs)
    for name, (size, least) in SIZES.items():
        for value in (size, least - 1, 10**9):
            wrong = arrays[name].copy()
            wrong[(0,) * wrong.ndim] = value
            with pytest.raises((IndexError, RuntimeError)):
                module(*{**good, name: torch.from_numpy(wrong)}.values())
            with pytest.raises(InputError, match=str(value)) as error:
                executable.run({**arrays, name: wrong})
            assert f"{size} e" in str(error.value)


def test_an_index_smaller_than_what_it_writes_to(tmp_path: Path) -> None:
    """Two axes on one side of the one that is indexed are smaller."""

    class Scatter(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, at: Any, source: Any) -> Any:
            return x.scatter(0, at, source), x.scatter_add(2, at, source)

    x, at = torch.arange(24.0).reshape(2, 3, 4), torch.tensor([[[1], [0]]])
    given = {"x": x, "at": at, "source": torch.tensor([[[100.0], [200.0]]])}
    executable = build_untuned(export_module(Scatter(), given, tmp_path))
    found = executable.run({name: value.numpy() for name, value in given.items()})
    for ours, expected in zip(found.values(), Scatter()(**given), strict=True):
        np.testing.assert_array_equal(ours, expected.numpy())
